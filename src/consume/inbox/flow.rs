//! Whether a queue is taken from, and what becomes of what was taken, as the program asks for it.

use std::time::{Duration, Instant};

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
}
