//! The delayed exchange: one exchange of the delayed-message plugin holds every message for as long
//! as its own header says.

use std::time::Duration;

use super::{Path, Route, millis};

/// The longest delay that the plugin is given: 24 days. It keeps delays as timers of 32 bits.
pub(crate) const LONGEST: Duration = Duration::from_millis((1 << 31) - 1);

/// The wait in whole milliseconds. `None` if the delay is above [`LONGEST`].
pub(crate) fn route(delay: Duration) -> Option<Route> {
    if delay > LONGEST {
        return None;
    }
    let total = Duration::from_millis(millis(delay).max(1));
    Some(Route { path: Path::Delayed, leg: total, total })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::Jitter;
    use crate::wait::jitter::{Draw, Range};

    #[test]
    fn a_delay_is_kept_to_the_millisecond_up_to_24_days() {
        let total = |delay| route(delay).map(|route| route.total);
        assert_eq!(total(Duration::ZERO), Some(Duration::from_millis(1)));
        assert_eq!(total(Duration::from_micros(1_001)), Some(Duration::from_millis(2)));
        assert_eq!(total(LONGEST), Some(LONGEST));
        assert_eq!(total(LONGEST + Duration::from_nanos(1)), None);
        assert_eq!((LONGEST.as_millis(), LONGEST.as_secs() / (24 * 60 * 60)), (2_147_483_647, 24));
    }

    /// A policy whose first delay is 10 ms and whose longest is that of the plugin, after a wait of
    /// 15 ms.
    #[test]
    fn whatever_jitter_makes_of_a_delay_is_rounded_up_to_the_millisecond_and_has_a_route() {
        let range = Range {
            first: Duration::from_millis(10),
            longest: LONGEST,
            previous: Some(Duration::from_millis(15)),
        };
        let check = |kind: Jitter, delay: Duration, draw: f64, expected: Duration| {
            let route = route(kind.of_policy(delay, range, Draw::new(draw))).unwrap();
            let path = Path::Delayed;
            assert_eq!(
                route,
                Route { path, leg: expected, total: expected },
                "{kind:?} of {delay:?} at {draw}"
            );
        };
        let millis = Duration::from_millis;
        check(Jitter::None, millis(10), 0.25, millis(10));
        check(Jitter::Full, millis(10), 0.25, millis(8));
        check(Jitter::Equal, millis(10), 0.25, millis(9));
        check(Jitter::Decorrelated, millis(10), 0.25, millis(19));
        for kind in [Jitter::None, Jitter::Full, Jitter::Equal] {
            check(kind, LONGEST, 0.0, LONGEST);
        }
        for kind in [Jitter::Full, Jitter::Equal, Jitter::Decorrelated] {
            let asked = kind.of_asked(LONGEST - millis(1), LONGEST, Draw::new(0.9));
            assert_eq!(route(asked).map(|route| route.total), Some(LONGEST), "{kind:?}");
        }
    }
}
