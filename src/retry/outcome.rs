//! How a delivery ended, or why it did not end as was decided.

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

/// Why a delivery was not settled as was decided: its copy was given up, or its channel was gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unsettled {
    /// The copy was not confirmed, and the shortest known ack timeout is nearly over.
    Late,
    /// The broker accepts no copy of the message: it closes the channel or the connection over it
    /// each time, with this answer.
    Unpublishable { answer: Box<str> },
    /// The queue stops, and the broker had refused the copy, or it could not be sent. It may be
    /// stored if a channel or a connection ended before the broker answered.
    Stopped { may_be_stored: bool },
    /// The session ended before the copy was confirmed: its channel was gone, or the grace time was
    /// over. The broker has the message again, or soon will.
    SessionEnded,
    /// The channel was gone before the delivery could be settled. The broker has the message again.
    ChannelClosed,
}

impl Unsettled {
    pub(crate) const fn text(&self) -> &'static str {
        match self {
            Self::Late => "the broker did not confirm the copy in time",
            Self::Unpublishable { .. } => "the broker accepts no copy",
            Self::Stopped { may_be_stored: false } => "the service stops, and no copy was accepted",
            Self::Stopped { may_be_stored: true } => {
                "the service stops, and whether a copy was accepted is unknown"
            }
            Self::SessionEnded => {
                "the channel was gone, or the grace time was over, before the copy was confirmed"
            }
            Self::ChannelClosed => "the channel was gone",
        }
    }

    /// What to do about it, and what happens otherwise.
    pub(crate) const fn advice(&self, counts_deliveries: bool) -> &'static str {
        match (self, counts_deliveries) {
            (Self::SessionEnded | Self::ChannelClosed | Self::Stopped { .. }, _) => "",
            (Self::Unpublishable { .. }, true) => {
                "; an earlier line says why. Past its delivery limit, the broker dead-letters it, or deletes it if the queue has no \
                 dead-letter exchange"
            }
            (Self::Unpublishable { .. }, false) => {
                "; an earlier line says why. This queue counts no deliveries, so the handler runs again each time"
            }
            (Self::Late, true) => {
                "; if the broker refuses copies, an earlier line says why; repair that before the message reaches its delivery limit"
            }
            (Self::Late, false) => {
                "; if the broker refuses copies, an earlier line says why; repair that: this queue counts no deliveries, so the \
                 handler runs again each time"
            }
        }
    }

    /// Whether the message goes back as if no handler had seen it.
    pub(crate) const fn is_handed_back(&self) -> bool {
        matches!(self, Self::Stopped { may_be_stored: false })
    }

    pub(crate) const fn error_type(&self) -> &'static str {
        match self {
            Self::Late => "timeout",
            Self::Unpublishable { .. } => "unpublishable",
            Self::Stopped { .. } => "stopped",
            Self::SessionEnded | Self::ChannelClosed => "channel_closed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_not_settled_has_a_reason_and_advice_unless_the_broker_has_it_again() {
        for (why, text, error_type) in [
            (Unsettled::Late, "the broker did not confirm the copy in time", "timeout"),
            (
                Unsettled::Unpublishable { answer: "".into() },
                "the broker accepts no copy",
                "unpublishable",
            ),
        ] {
            assert_eq!((why.text(), why.error_type()), (text, error_type));
            let [counting, other] =
                [true, false].map(|counts_deliveries| why.advice(counts_deliveries));
            assert!(
                counting.contains("its delivery limit") && !counting.contains("each time"),
                "{counting}"
            );
            assert!(
                other.contains("counts no deliveries") && other.ends_with("runs again each time"),
                "{other}"
            );
        }
        for lost in [Unsettled::SessionEnded, Unsettled::ChannelClosed] {
            assert!(lost.text().starts_with("the channel was gone"));
            assert_eq!(lost.error_type(), "channel_closed");
            assert_eq!([true, false].map(|counts| lost.advice(counts)), [""; 2]);
        }
        let [kept, unknown] =
            [false, true].map(|may_be_stored| Unsettled::Stopped { may_be_stored });
        assert_eq!(
            (kept.text(), kept.advice(true)),
            ("the service stops, and no copy was accepted", "")
        );
        assert!(unknown.text().ends_with("is unknown") && unknown.advice(false).is_empty());
        assert_eq!([kept, unknown].map(|why| why.error_type()), ["stopped"; 2]);
    }
}
