//! Whether a queue is taken from, and what becomes of what was taken, as the program asks for it.

use std::time::{Duration, Instant};

use super::rules::Rules;
use super::suspicion::is_near_limit;

/// For how long a paused queue's deliveries are kept for a handler. A short pause charges nothing,
/// and after a longer one other processes have them.
pub(super) const KEPT_IN_PAUSE: Duration = Duration::from_secs(10);

/// What the program wants of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It is taken from, and handlers start.
    On,
    /// Nothing is taken, and what was taken is handled.
    Draining,
    /// Nothing is taken, and no handler starts.
    Paused {
        /// Since when.
        since: Instant,
    },
}

/// Whether a queue rests, as a pause or a drain wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It is to flow.
    Flows,
    /// Something is still taken, runs or, if it is drained, waits.
    NotYet,
    /// Nothing is taken, and nothing runs or, if it is drained, waits.
    Rests,
}

/// Why deliveries are to go back to their queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Late {
    /// They have waited too long for a handler.
    Waited,
    /// The queue has been paused for a while.
    Paused,
}

impl Flow {
    pub(super) fn is_paused(self) -> bool {
        matches!(self, Self::Paused { .. })
    }

    /// For how long a delivery that came back this often may wait for its first handler. One that
    /// has few charges left is not given back early: 3.10 and 4.0 count that.
    pub(super) fn start_limit(self, rules: &Rules, redeliveries: u32) -> Duration {
        let is_kept = !self.is_paused() || is_near_limit(redeliveries, rules.delivery_limit);
        if is_kept { rules.start_limit } else { rules.start_limit.min(KEPT_IN_PAUSE) }
    }
}
