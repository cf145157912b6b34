//! How a message waits: from a delay to a route. Pure: no I/O, no clock, no randomness.

pub(crate) mod delayed;
pub(crate) mod jitter;
pub(crate) mod ladder;
mod strategy;
pub(crate) mod tiers;

use std::time::Duration;

pub use jitter::Jitter;
pub(crate) use strategy::Strategy;
pub use strategy::{AskedDelays, WaitQueues, WaitStrategy};

/// The longest delay that a policy or a [`Failure::after`](crate::Failure::after) may ask for: 30
/// days.
pub const MAX_DELAY: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How a delay is waited out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) path: Path,
    /// How long the message is away before it is delivered again.
    pub(crate) leg: Duration,
    /// How long the wait lasts in all. If one leg is not long enough this is more than `leg`: the
    /// message then returns early, and waits again without an attempt, until the whole wait is
    /// over.
    pub(crate) total: Duration,
}

/// Where a message spends one leg of its wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// A copy in the wait queue whose TTL is the leg.
    Tier,
    /// A copy on the ladder: it passes through the rungs that add up to the leg, from the longest
    /// down, and its headers lead it from one to the next. [`ladder::legs`] tells them from the leg
    /// and this rung, the shortest.
    Ladder { rung: Duration },
    /// A copy in the delayed exchange.
    Delayed,
    /// No copy: the broker keeps the message in the work queue until the leg is over.
    Return,
    /// No copy: this process keeps the delivery, unacked, until the leg is over.
    Hold,
}

/// A delay rounded up to whole milliseconds, so that no wait is too short.
fn whole_millis(delay: Duration) -> Duration {
    Duration::from_millis(millis(delay))
}

/// A delay in whole milliseconds, rounded up so that no wait is too short.
fn millis(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
