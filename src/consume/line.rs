//! Whether a queue's deliveries stand in line, and what follows from it. Pure.

use std::time::Duration;

use crate::settings::Order;

/// Whether a queue's deliveries stand in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// Each stands alone.
    Free,
    /// Those with the same key are handled in their order. One that went back to its queue alone
    /// would be overtaken by those behind it. So what the process holds goes back all together, in
    /// its order, when the channel closes.
    Ordered,
}

impl Line {
    pub(crate) fn of(order: &Order) -> Self {
        if order.is_kept() { Self::Ordered } else { Self::Free }
    }

    /// Whether one delivery may go back to its queue, and come again, without the others.
    pub(crate) fn allows_single_return(self) -> bool {
        self == Self::Free
    }

    /// Whether a handler may run on after its session has ended. In an ordered queue its message
    /// may already be with another process, and so may those behind it.
    pub(crate) fn lets_handlers_outlive_the_session(self) -> bool {
        self == Self::Free
    }

    /// For how long a delivery that must be settled within `limit` may wait in this process, if its
    /// next attempt takes `attempt`. `None`: for no time. In an ordered queue nothing bounds the
    /// wait, because all that is held is given up in time.
    pub(crate) fn longest_hold(self, limit: Duration, attempt: Duration) -> Option<Duration> {
        match self {
            Self::Free => limit.checked_sub(attempt),
            Self::Ordered => Some(Duration::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_alone_has_to_end_its_wait_before_its_limit() {
        let second = Duration::from_secs;
        assert_eq!(Line::Free.longest_hold(second(10), second(4)), Some(second(6)));
        assert_eq!(Line::Free.longest_hold(second(3), second(4)), None);
        assert_eq!(Line::Ordered.longest_hold(second(3), second(4)), Some(Duration::MAX));
    }
}
