//! Rates, durations and times as the page shows them. Pure.

use std::time::Duration;

use rehop::Timestamp;
use rehop_operator::format::{self, count};

/// A rate: small ones with one digit after the point, so that one message in ten seconds shows.
pub(super) fn per_second(rate: f64) -> String {
    match rate {
        ..0.05 => "0".to_owned(),
        ..9.95 => format!("{rate:.1}"),
        _ => count(rate.round() as u64),
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

/// A time in UTC, such as `2026-11-22 01:02:03 UTC`.
pub(super) fn time(at: Timestamp) -> String {
    format::time(at).replace('T', " ").replace('Z', " UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_rates_have_a_digit_after_the_point() {
        assert_eq!(
            [0.0, 0.04, 0.1, 9.9, 12.4, 1_999.6].map(per_second),
            ["0", "0", "0.1", "9.9", "12", "2,000"]
        );
    }

    #[test]
    fn durations_have_their_largest_units() {
        let spans = [5, 1_500, 10_000, 61_000, 600_000, 3_660_000, 90_000_000]
            .map(Duration::from_millis)
            .map(span);
        assert_eq!(spans, ["5 ms", "1.5 s", "10 s", "1 min 1 s", "10 min", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn a_time_is_written_for_people() {
        assert_eq!(time(Timestamp::from_millis(1_700_000_000_999)), "2023-11-14 22:13:20 UTC");
        assert_eq!(time(Timestamp::from_millis(-1)), "-1 ms since the Unix epoch");
    }
}
