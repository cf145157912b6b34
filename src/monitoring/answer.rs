//! What a path answers.

use http::StatusCode;

use crate::status::Status;
use crate::telemetry::prometheus;

/// The content type of Prometheus' text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// A page without its transport.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

/// What this path answers. `status` is missing until a service is watched.
pub(super) fn answer(path: &str, status: Option<&Status>) -> Page {
    match path {
        "/livez" => text(StatusCode::OK, "live\n".to_owned()),
        "/readyz" => {
            let problems = match status {
                Some(status) => status.problems(),
                None => vec!["the service has not started yet".to_owned()],
            };
            readiness(&problems)
        }
        "/metrics" => match prometheus::text() {
            Ok(metrics) => Page { status: StatusCode::OK, content_type: METRICS, body: metrics },
            Err(error) => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("cannot collect the metrics: {error}\n"),
            ),
        },
        _ => text(StatusCode::NOT_FOUND, "there are /livez, /readyz and /metrics\n".to_owned()),
    }
}

fn readiness(problems: &[String]) -> Page {
    match problems {
        [] => text(StatusCode::OK, "ready\n".to_owned()),
        problems => text(StatusCode::SERVICE_UNAVAILABLE, problems.join("\n") + "\n"),
    }
}

fn text(status: StatusCode, body: String) -> Page {
    Page { status, content_type: TEXT, body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_live_before_it_is_ready_and_says_what_is_missing() {
        assert_eq!(answer("/livez", None).status, StatusCode::OK);
        let unready = answer("/readyz", None);
        assert_eq!(unready.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(unready.body.contains("not started"), "{}", unready.body);
        assert_eq!(readiness(&[]).status, StatusCode::OK);
        let two = readiness(&["one".to_owned(), "two".to_owned()]);
        assert_eq!(
            (two.status, two.body.as_str()),
            (StatusCode::SERVICE_UNAVAILABLE, "one\ntwo\n")
        );
        assert_eq!(answer("/", None).status, StatusCode::NOT_FOUND);
    }
}
