//! How a delivery ended.

use std::time::Duration;

use crate::retry::decision::{Decision, Reason};

/// How a delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Handled, and acked.
    Ack,
    /// Requeued for another attempt at once.
    Requeue,
    /// It waits. The next attempt comes after this time, or later.
    Wait(Duration),
    /// Deferred by its handler: as [`Wait`](Self::Wait), but the delivery counts as no attempt, and
    /// the wait as none of the policy's.
    Defer(Duration),
    /// Moved to the parked queue.
    Park(Reason),
    /// Acked, and kept nowhere.
    Discard(Reason),
}

impl Outcome {
    /// The outcome if a decision is carried out.
    pub(crate) fn of(decision: Decision) -> Self {
        match decision {
            Decision::Ack => Self::Ack,
            Decision::Requeue | Decision::Again => Self::Requeue,
            Decision::Wait { wait, is_defer: false } => Self::Wait(wait.total()),
            Decision::Wait { wait, is_defer: true } => Self::Defer(wait.total()),
            Decision::Park(reason) => Self::Park(reason),
            Decision::Discard(reason) => Self::Discard(reason),
        }
    }

    /// The word that spans and metrics use. A defer is a wait, with an attribute.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Requeue => "requeue",
            Self::Wait(_) | Self::Defer(_) => "wait",
            Self::Park(_) => "park",
            Self::Discard(_) => "discard",
        }
    }

    /// Why the message gets no further attempt. `None` if it was handled, or gets another.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Park(reason) | Self::Discard(reason) => Some(reason),
            Self::Ack | Self::Requeue | Self::Wait(_) | Self::Defer(_) => None,
        }
    }

    /// How long the message waits, if it does.
    pub const fn delay(self) -> Option<Duration> {
        match self {
            Self::Wait(delay) | Self::Defer(delay) => Some(delay),
            Self::Ack | Self::Requeue | Self::Park(_) | Self::Discard(_) => None,
        }
    }

    /// Whether a handler deferred the message.
    pub const fn is_defer(self) -> bool {
        matches!(self, Self::Defer(_))
    }

    /// Whether it ends the chain: no further attempt follows.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Ack | Self::Park(_) | Self::Discard(_))
    }
}
