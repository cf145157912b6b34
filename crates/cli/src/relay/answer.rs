//! What an answer, or the lack of one, means. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use http::header::{HeaderMap, RETRY_AFTER};
use rehop::Failure;
use rehop::settings::Treatment;

/// How failures are treated: as the settings say for their class, else by the relay's defaults.
#[derive(Debug, Clone, Default)]
pub(super) struct Treatments(pub(super) BTreeMap<String, Treatment>);

impl Treatments {
    /// `explanation` is what the answer says about a failure.
    pub(super) fn judge(
        &self,
        status: StatusCode,
        retry_after: Option<Duration>,
        explanation: Option<String>,
    ) -> Result<(), Failure> {
        let default = match status.as_u16() {
            200..=299 => return Ok(()),
            409 | 423 => Treatment::Requeue,
            408 | 425 | 429 | 500..=599 => Treatment::Transient,
            _ => Treatment::Permanent,
        };
        let mut text = format!("the endpoint answered {status}");
        if status.is_redirection() {
            text.push_str(", and redirects are not followed");
        }
        if let Some(explanation) = explanation {
            text.push_str(": ");
            text.push_str(&explanation);
        }
        self.failure(format!("http_{}", status.as_u16()), default, text, retry_after)
    }

    /// Only a transient failure has a delay, and one that is deferred: the others are retried
    /// immediately, or never.
    pub(super) fn failure(
        &self,
        class: String,
        default: Treatment,
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
        retry_after: Option<Duration>,
    ) -> Result<(), Failure> {
        let failure = match self.0.get(&class).copied().unwrap_or(default) {
            Treatment::Transient => match retry_after {
                Some(delay) => Failure::transient(error).after(delay),
                None => Failure::transient(error),
            },
            Treatment::Defer => match retry_after {
                Some(delay) => Failure::defer(delay).with_source(error),
                None => Failure::transient(error),
            },
            Treatment::Requeue => Failure::requeue(error),
            Treatment::Discard => Failure::discard(error),
            _ => Failure::permanent(error),
        };
        Err(failure.with_class(class))
    }
}

/// The delay that the endpoint asks for, in seconds or as a date. Anything else is ignored.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::header::HeaderValue;

    use super::*;

    fn seconds(text: &'static str) -> Option<u64> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
        retry_after(&headers, now).map(|delay| delay.as_secs())
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date() {
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds(" 0 "), Some(0));
        for date in [
            "Sun, 06 Nov 1994 08:49:47 GMT",
            "Sunday, 06-Nov-94 08:49:47 GMT",
            "Sun Nov  6 08:49:47 1994",
        ] {
            assert_eq!(seconds(date), Some(10), "{date}");
        }
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:27 GMT"), Some(0), "a date that has passed");
        for nonsense in ["", "soon", "-1", "1.5", "99999999999999999999999"] {
            assert_eq!(seconds(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn the_class_names_the_status_and_only_transient_failures_have_a_delay() {
        let delay = Some(Duration::from_secs(7));
        let judge = |status| {
            Treatments::default()
                .judge(StatusCode::from_u16(status).unwrap(), delay, None)
                .unwrap_err()
        };
        for status in [408, 425, 429, 500, 503, 599] {
            assert_eq!(judge(status).class(), format!("http_{status}"));
            assert_eq!(judge(status).retry_after(), delay);
        }
        for status in [302, 400, 404, 409, 422, 423, 700] {
            assert_eq!(judge(status).retry_after(), None, "{status}");
        }
        assert_eq!(
            judge(302).message(),
            "the endpoint answered 302 Found, and redirects are not followed"
        );
        let explained = Treatments::default()
            .judge(StatusCode::UNPROCESSABLE_ENTITY, None, Some("Sold out".to_owned()))
            .unwrap_err();
        assert_eq!(explained.message(), "the endpoint answered 422 Unprocessable Entity: Sold out");
    }
}
