//! The delayed exchange: one exchange of the delayed-message plugin holds every message for as long as its own header says.

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

    #[test]
    fn a_delay_is_kept_to_the_millisecond_up_to_24_days() {
        let total = |delay| route(delay).map(|route| route.total);
        assert_eq!(total(Duration::ZERO), Some(Duration::from_millis(1)));
        assert_eq!(total(Duration::from_micros(1_001)), Some(Duration::from_millis(2)));
        assert_eq!(total(LONGEST), Some(LONGEST));
        assert_eq!(total(LONGEST + Duration::from_nanos(1)), None);
        assert_eq!(LONGEST.as_secs() / (24 * 60 * 60), 24);
    }
}
