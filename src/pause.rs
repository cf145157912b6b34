//! How long to wait before an operation that failed is tried again.

use std::time::Duration;

/// Doubles from 0.1 s to 10 s with each attempt. `draw`, from 0 to 1, makes it between half and all
/// of that, so that not all services connect at once after the broker has restarted.
pub(crate) fn pause(attempt: u32, draw: f64) -> Duration {
    let whole = Duration::from_millis(100).saturating_mul(1 << attempt.min(10)).min(LONGEST_PAUSE);
    whole.mul_f64(0.5 + draw.clamp(0.0, 1.0) / 2.0)
}

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::pause;

    #[test]
    fn a_pause_doubles_from_a_tenth_of_a_second_to_ten_seconds_and_is_at_least_half_of_that() {
        let check = |attempt, draw, millis: f64| {
            assert!(
                (pause(attempt, draw).as_secs_f64() * 1000.0 - millis).abs() < 1e-3,
                "{attempt} {draw}"
            );
        };
        check(0, 1.0, 100.0);
        check(0, 0.0, 50.0);
        check(3, 0.5, 600.0);
        check(6, 1.0, 6_400.0);
        check(7, 1.0, 10_000.0);
        check(u32::MAX, 0.0, 5_000.0);
    }
}
