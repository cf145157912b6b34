//! Times as other stacks write them in a header.

use crate::message::HeaderValue;
use crate::timestamp::Timestamp;

/// The longest text that is a time: with nanoseconds and an offset it has 35 bytes.
const LONGEST_TEXT: usize = 64;

/// A time in milliseconds since the epoch: as any of AMQP's numbers, as a number in text, as AMQP's
/// timestamp, which counts seconds, or in RFC 3339. Fractions of a millisecond are dropped. `None`
/// for anything else.
pub(super) fn millis(value: &HeaderValue<'_>) -> Option<i64> {
    match value {
        HeaderValue::Int(number) => Some(*number),
        HeaderValue::Timestamp(seconds) => seconds.checked_mul(1000),
        HeaderValue::Float(number) => whole(*number),
        HeaderValue::Decimal { scale, value } => {
            Some(10_i64.checked_pow((*scale).into()).map_or(0, |parts| i64::from(*value) / parts))
        }
        other => {
            let text = other.as_text()?.trim();
            if text.len() > LONGEST_TEXT {
                return None;
            }
            text.parse().ok().or_else(|| number(text)).or_else(|| rfc_3339(text))
        }
    }
}

/// A number with a fraction or an exponent.
fn number(text: &str) -> Option<i64> {
    text.parse().ok().and_then(whole)
}

/// Beyond the range of an integer, the nearest one, which is absurd as a time.
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for, and it saturates")]
fn whole(number: f64) -> Option<i64> {
    number.is_finite().then_some(number as i64)
}

/// A date and a time with `Z` or an offset. One without is a different time in each zone.
fn rfc_3339(text: &str) -> Option<i64> {
    const OFFSET: usize = "+00:00".len();
    if let Some(utc) = text.strip_suffix(['Z', 'z']) {
        return local(utc);
    }
    let (time, offset) = text.split_at_checked(text.len().checked_sub(OFFSET)?)?;
    let (sign, offset) = match offset.split_at_checked(1)? {
        ("+", offset) => (1, offset),
        ("-", offset) => (-1, offset),
        _ => return None,
    };
    let (hours, minutes) = offset.split_once(':')?;
    let part = |digits: &str, below: i64| {
        let is_plain = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_digit());
        let number = digits.parse::<i64>().ok()?;
        (is_plain && number < below).then_some(number)
    };
    let minutes = part(hours, 24)? * 60 + part(minutes, 60)?;
    local(time)?.checked_sub(sign * minutes * 60_000)
}

/// A date and a time in UTC, without the `Z`.
fn local(text: &str) -> Option<i64> {
    // It would be taken for a second one.
    if text.ends_with(['Z', 'z']) {
        return None;
    }
    let time = humantime::parse_rfc3339_weak(&text.replacen('t', "T", 1)).ok()?;
    Some(Timestamp::from(time).as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-28T10:30:05.250Z.
    const AT: i64 = 1_795_861_805_250;

    fn text(text: &str) -> Option<i64> {
        millis(&HeaderValue::Text(text))
    }

    #[test]
    fn a_time_is_read_from_numbers_of_all_kinds_without_the_fraction_of_a_millisecond() {
        for value in [
            HeaderValue::Int(AT),
            HeaderValue::Float(1_795_861_805_250.0),
            HeaderValue::Float(1_795_861_805_250.75),
            HeaderValue::Text("1795861805250"),
            HeaderValue::Text(" 1795861805250.999 "),
            HeaderValue::Text("1.79586180525e12"),
            HeaderValue::Bytes(b"1795861805250"),
        ] {
            if matches!(value, HeaderValue::Bytes(_)) && value.as_text().is_none() {
                continue;
            }
            assert_eq!(millis(&value), Some(AT), "{value:?}");
        }
        assert_eq!(millis(&HeaderValue::Timestamp(AT / 1000)), Some(AT / 1000 * 1000));
        assert_eq!(millis(&HeaderValue::Decimal { scale: 1, value: 17_958 }), Some(1_795));
        assert_eq!(millis(&HeaderValue::Decimal { scale: 255, value: 17_958 }), Some(0));
    }

    #[test]
    fn a_time_is_read_in_rfc_3339_with_any_offset() {
        for time in [
            "2026-11-28T10:30:05.250Z",
            "2026-11-28t10:30:05.250z",
            "2026-11-28 10:30:05.250Z",
            "2026-11-28T10:30:05.250999999Z",
            "2026-11-28T10:30:05.250+00:00",
            "2026-11-28T12:30:05.250+02:00",
            "2026-11-28T00:15:05.250-10:15",
            "2026-11-29T00:30:05.250+14:00",
        ] {
            assert_eq!(text(time), Some(AT), "{time}");
        }
        assert_eq!(text("2026-11-28T10:30:05Z"), Some(AT - 250));
    }

    #[test]
    fn what_is_no_time_is_not_read() {
        for time in [
            "",
            "soon",
            "NaN",
            "inf",
            "2026-11-28",
            "2026-11-28T10:30:05.250",
            "2026-11-28T10:30:05.250ZZ",
            "2026-11-28T10:30:05.250Z+00:00",
            "2026-11-28T10:30:05.250+0200",
            "2026-11-28T10:30:05.250+24:00",
            "2026-11-28T10:30:05.250++2:00",
            "2026-13-28T10:30:05.250Z",
            "2026-11-28T10:30:05.250+02:é",
            "Sat, 28 Nov 2026 10:30:05 GMT",
        ] {
            assert_eq!(text(time), None, "{time}");
        }
        assert_eq!(text(&"1".repeat(65)), None);
        for value in [
            HeaderValue::Void,
            HeaderValue::Bool(true),
            HeaderValue::Float(f64::NAN),
            HeaderValue::Float(f64::INFINITY),
            HeaderValue::Table(Vec::new()),
        ] {
            assert_eq!(millis(&value), None, "{value:?}");
        }
    }
}
