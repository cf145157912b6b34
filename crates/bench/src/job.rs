//! What a consumer does with each message.

use rehop::topology::Role;

use crate::effort::Effort;
use crate::way::Way;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    /// The handler does nothing.
    Success,
    /// Each message waits once and then succeeds.
    Wait(Way),
    /// Each message is requeued until one more delivery would exceed the delivery limit, and then
    /// parked.
    Requeue,
}

/// What became of a message: where it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Handled,
    In(Role),
}

/// The queue's delivery limit: this many deliveries, then the parked queue.
pub(crate) const DELIVERY_LIMIT: u32 = 4;

impl Job {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Wait(_) => "wait",
            Self::Requeue => "requeue",
        }
    }

    pub(crate) fn messages(self, effort: Effort) -> usize {
        match self {
            Self::Success => effort.success,
            Self::Wait(_) => effort.wait,
            Self::Requeue => effort.requeue,
        }
    }

    pub(crate) fn title(self, effort: Effort) -> String {
        let messages = self.messages(effort);
        match self {
            Self::Success => format!("{messages} messages are handled"),
            Self::Wait(_) => {
                format!(
                    "{messages} messages wait {} s once, and are then handled",
                    Way::TIERS.as_secs()
                )
            }
            Self::Requeue => {
                format!(
                    "{messages} messages are requeued, delivered {DELIVERY_LIMIT} times each, and parked"
                )
            }
        }
    }

    /// How each message waits, if it does.
    pub(crate) fn way(self) -> Option<Way> {
        match self {
            Self::Wait(way) => Some(way),
            Self::Success | Self::Requeue => None,
        }
    }

    /// How often the handler has to be called for each message.
    pub(crate) fn attempts(self) -> u32 {
        match self {
            Self::Success => 1,
            Self::Wait(_) => 2,
            Self::Requeue => DELIVERY_LIMIT,
        }
    }

    /// Where each message has to end.
    pub(crate) fn end(self) -> Fate {
        match self {
            Self::Success | Self::Wait(_) => Fate::Handled,
            Self::Requeue => Fate::In(Role::Parked),
        }
    }
}
