//! Numbers and times for people. Pure.

use std::time::{Duration, SystemTime};

use rehop::Timestamp;

/// With commas between the thousands.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate: small ones with one digit after the point, so that one message in ten seconds shows.
pub(super) fn per_second(rate: f64) -> String {
    match rate {
        ..0.05 => "0".to_owned(),
        ..9.95 => format!("{rate:.1}"),
        _ => count(rate.round() as u64),
    }
}

/// A size in bytes.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// A duration by its largest unit or two.
pub(super) fn span(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    let pair = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {large_unit}"),
        small => format!("{large} {large_unit} {small} {small_unit}"),
    };
    match seconds {
        0 => format!("{millis} ms"),
        1..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3_600 => pair(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => pair(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => pair(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// A time in UTC, such as `2026-11-22 01:02:03 UTC`. A time that no calendar has is given in milliseconds.
pub(super) fn time(at: Timestamp) -> String {
    const LAST: i64 = 253_402_300_799_000;
    if !(0..=LAST).contains(&at.as_millis()) {
        return at.to_string();
    }
    let text = humantime::format_rfc3339_seconds(SystemTime::from(at)).to_string();
    text.replace('T', " ").replace('Z', " UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_between_the_thousands() {
        let counts = [0, 999, 1_000, 48_211, 1_234_567].map(count);
        assert_eq!(counts, ["0", "999", "1,000", "48,211", "1,234,567"]);
        assert_eq!([0.0, 0.04, 0.1, 9.9, 12.4, 1_999.6].map(per_second), ["0", "0", "0.1", "9.9", "12", "2,000"]);
        assert_eq!([0, 1_023, 1_536, 16 * 1_048_576].map(size), ["0 B", "1023 B", "1.5 KiB", "16.0 MiB"]);
    }

    #[test]
    fn durations_have_their_largest_units() {
        let spans = [5, 1_500, 10_000, 61_000, 600_000, 3_660_000, 90_000_000].map(Duration::from_millis).map(span);
        assert_eq!(spans, ["5 ms", "1.5 s", "10 s", "1 min 1 s", "10 min", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn any_time_can_be_shown() {
        assert_eq!(time(Timestamp::from_millis(1_700_000_000_999)), "2023-11-14 22:13:20 UTC");
        for millis in [i64::MIN, -1, 253_402_300_800_000, i64::MAX] {
            assert_eq!(time(Timestamp::from_millis(millis)), format!("{millis} ms"));
        }
        assert!(time(Timestamp::from_millis(253_402_300_799_000)).starts_with("9999-12-31"));
    }
}
