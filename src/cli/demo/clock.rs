//! The clock, in the unit that spans have.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since the epoch.
pub(super) fn now_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
