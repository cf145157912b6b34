//! A time, as the headers write it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A time in whole milliseconds since the Unix epoch, in rehop's headers and with serde. Displayed
/// as RFC 3339. Converts to and from [`SystemTime`], which date crates accept.
///
/// ```
/// use std::time::Duration;
/// let seen = rehop::Timestamp::from_millis(1_700_000_000_000);
/// assert_eq!((seen + Duration::from_secs(2)).as_millis(), 1_700_000_002_000);
/// assert_eq!(seen.since(seen + Duration::from_secs(2)), Duration::ZERO);
/// assert_eq!(seen.to_string(), "2023-11-14T22:13:20.000Z");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

/// The last millisecond of 9999. RFC 3339 has no later years, and `humantime` writes none before
/// 1970.
const LAST_DATE: i64 = 253_402_300_799_999;

impl Timestamp {
    /// The clock of the code that does I/O. Decisions get the time as an argument.
    #[doc(hidden)]
    pub fn now() -> Self {
        crate::clock::date().into()
    }

    /// The time `millis` milliseconds after the epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The time since `earlier`. Zero if `earlier` lies ahead, which clock skew between machines
    /// makes possible.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at the latest time.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(millis(after)),
            Err(before) => Self(-millis(before.duration())),
        }
    }
}

impl From<Timestamp> for SystemTime {
    /// A time that the system clock cannot express becomes the epoch.
    fn from(timestamp: Timestamp) -> Self {
        let distance = Duration::from_millis(timestamp.0.unsigned_abs());
        let moment = if timestamp.0.is_negative() {
            UNIX_EPOCH.checked_sub(distance)
        } else {
            UNIX_EPOCH.checked_add(distance)
        };
        moment.unwrap_or(UNIX_EPOCH)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..=LAST_DATE => humantime::format_rfc3339_millis(SystemTime::from(*self)).fmt(f),
            millis => write!(f, "{millis} ms since the Unix epoch"),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_converted_to_the_millisecond_and_saturate() {
        let millis = Duration::from_millis;
        for (moment, since_epoch) in
            [(UNIX_EPOCH + millis(1_500), 1_500), (UNIX_EPOCH - millis(1_500), -1_500)]
        {
            let timestamp = Timestamp::from_millis(since_epoch);
            assert_eq!((Timestamp::from(moment), SystemTime::from(timestamp)), (timestamp, moment));
        }
        assert_eq!(SystemTime::from(Timestamp::from_millis(0)), UNIX_EPOCH);
        assert_eq!((Timestamp::from_millis(i64::MAX - 1) + millis(5)).as_millis(), i64::MAX);
        assert_eq!((Timestamp::from_millis(5) + Duration::MAX).as_millis(), i64::MAX);
    }

    #[test]
    fn a_time_is_shown_as_a_date_or_where_there_is_none_in_milliseconds() {
        for (millis, shown) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_764_304_659_007, "2025-11-28T04:37:39.007Z"),
            (LAST_DATE, "9999-12-31T23:59:59.999Z"),
            (LAST_DATE + 1, "253402300800000 ms since the Unix epoch"),
            (-7, "-7 ms since the Unix epoch"),
            (i64::MIN, "-9223372036854775808 ms since the Unix epoch"),
            (i64::MAX, "9223372036854775807 ms since the Unix epoch"),
        ] {
            let timestamp = Timestamp::from_millis(millis);
            assert_eq!(timestamp.to_string(), shown);
            assert_eq!(format!("{timestamp:?}"), format!("Timestamp({shown})"));
            let text = serde_json::to_string(&timestamp).unwrap();
            assert_eq!(text, millis.to_string());
            assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), timestamp);
        }
    }

    #[test]
    fn the_time_since_something_that_lies_ahead_is_zero() {
        let at = Timestamp::from_millis;
        assert_eq!(at(1_700).since(at(1_000)), Duration::from_millis(700));
        assert_eq!(at(1_000).since(at(1_700)), Duration::ZERO);
        assert_eq!(at(i64::MAX).since(at(i64::MIN)).as_millis(), i64::MAX as u128);
    }
}
