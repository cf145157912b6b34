//! A moment, as the wire contract writes it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment in whole milliseconds since the Unix epoch, as all of rehop's headers write it.
///
/// ```
/// use std::time::Duration;
/// let seen = rehop::Timestamp::from_millis(1_700_000_000_000);
/// assert_eq!((seen + Duration::from_secs(2)).as_millis(), 1_700_000_002_000);
/// assert_eq!(seen.since(seen + Duration::from_secs(2)), Duration::ZERO);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment `millis` milliseconds after the epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// How long ago `earlier` was; zero when it lies ahead, which clock skew between machines makes possible.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at the end of time.
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
    /// Moments that the system's clock cannot express become the epoch.
    fn from(timestamp: Timestamp) -> Self {
        let distance = Duration::from_millis(timestamp.0.unsigned_abs());
        let moment = if timestamp.0 < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
        moment.unwrap_or(UNIX_EPOCH)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}
