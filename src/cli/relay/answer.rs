//! What an answer means, or that there is none. Pure.

use std::time::{Duration, SystemTime};

use rehop::Failure;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

pub(super) fn judge(status: StatusCode, retry_after: Option<Duration>) -> Result<(), Failure> {
    let text = format!("the endpoint answered {status}");
    let failure = match status.as_u16() {
        200..=299 => return Ok(()),
        300..=399 => Failure::permanent(format!("{text}, and redirects are not followed")),
        409 | 423 => Failure::requeue(text),
        408 | 425 | 429 | 500..=599 => delayed(Failure::transient(text), retry_after),
        _ => Failure::permanent(text),
    };
    Err(failure.with_class(format!("http_{}", status.as_u16())))
}

fn delayed(failure: Failure, retry_after: Option<Duration>) -> Failure {
    match retry_after {
        Some(delay) => failure.after(delay),
        None => failure,
    }
}

/// How long the endpoint wants to be left alone: seconds, or a date. What is neither is ignored.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// There was no answer. The error's text is kept with the message, so the URL is taken out of it.
pub(super) fn missing(error: reqwest::Error) -> Failure {
    let class = if error.is_timeout() {
        "http_timeout"
    } else if error.is_connect() {
        "http_connect"
    } else {
        "http_connection"
    };
    Failure::transient(error.without_url()).with_class(class)
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

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
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:27 GMT"), Some(0), "a date that has passed");
        for nonsense in ["", "soon", "-1", "1.5", "99999999999999999999999"] {
            assert_eq!(seconds(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn the_status_names_the_class_and_only_a_passing_trouble_has_a_delay() {
        let delay = Some(Duration::from_secs(7));
        let judge = |status| judge(StatusCode::from_u16(status).unwrap(), delay).unwrap_err();
        for status in [408, 425, 429, 500, 503, 599] {
            assert_eq!(judge(status).class(), format!("http_{status}"));
            assert_eq!(judge(status).retry_after(), delay);
        }
        for status in [302, 400, 404, 409, 422, 423, 700] {
            assert_eq!(judge(status).retry_after(), None, "{status}");
        }
        assert_eq!(judge(302).message(), "the endpoint answered 302 Found, and redirects are not followed");
    }
}
