//! Whether looking could do harm: the broker may move or delete a message that is given back too often.

use crate::parked::error::ParkedError;
use crate::parked::found::{Found, Limit};

/// The broker's default limit on 4.x.
const DEFAULT_LIMIT: i64 = 20;
/// From this many returns on, the default limit is near.
const NEAR_DEFAULT: u32 = 15;

/// What is known of the delivery limit of a queue that is looked at.
#[derive(Debug)]
pub(crate) struct DeliveryLimit {
    queue: String,
    /// The queue's own limit. A policy may still set a lower one, which AMQP does not show.
    limit: Limit,
    /// Whether the queue has the arguments that rehop declares it with.
    is_own: bool,
    /// Giving back counts towards the limit: before 4.3.
    is_counted: bool,
    /// From how many returns on a policy's limit may be near.
    warns_from: u32,
    was_warned_of: bool,
}

impl DeliveryLimit {
    /// `has_management`: whether a management API is known, which shows policies. Without it, any message that was looked at before may
    /// leave the queue at this look.
    pub(crate) fn new(queue: &str, found: &Found, is_counted: bool, has_management: bool) -> Self {
        let warns_from = if has_management { NEAR_DEFAULT } else { 1 };
        let Found { limit, is_own, .. } = *found;
        Self { queue: queue.to_owned(), limit, is_own, is_counted, warns_from, was_warned_of: false }
    }

    /// Whether the queue has the arguments that rehop declares it with.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// To be asked before the first of so many messages is taken. Where giving back counts, a refusal after a message was taken counts, too,
    /// because the message is given back. So a queue with a limit below the default is refused before.
    ///
    /// # Errors
    ///
    /// When the queue has such a limit.
    pub(crate) fn check_first(&self, wanted: u64) -> Result<(), ParkedError> {
        match self.limit {
            Limit::At(limit) if limit < DEFAULT_LIMIT && self.is_counted && wanted > 0 => {
                Err(ParkedError::LowLimit { queue: self.queue.clone(), limit })
            }
            Limit::At(_) | Limit::Unknown | Limit::OutOfReach => Ok(()),
        }
    }

    /// To be asked before a message that was given back so often is given back once more.
    ///
    /// # Errors
    ///
    /// When the queue may have a limit that is near.
    pub(crate) fn check(&mut self, returns: u32) -> Result<(), ParkedError> {
        let is_near = match self.limit {
            Limit::OutOfReach => false,
            // A negative one is none where giving back does not count.
            Limit::At(limit) => limit >= 0 && i64::from(returns) >= limit - limit / 4,
            Limit::Unknown => returns >= NEAR_DEFAULT,
        };
        if is_near {
            return Err(ParkedError::NearLimit { queue: self.queue.clone(), returns });
        }
        if self.is_counted && returns >= self.warns_from && !std::mem::replace(&mut self.was_warned_of, true) {
            tracing::warn!(
                queue = self.queue,
                returns,
                "this broker counts how often messages are looked at; where a policy sets a delivery-limit, they leave the queue when they \
                 exceed it. With broker.management_url, `rehop parked` and `rehop doctor` find such a policy"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(limit: Limit, is_counted: bool, has_management: bool) -> DeliveryLimit {
        DeliveryLimit::new("orders.parked", &Found::of_limit(limit), is_counted, has_management)
    }

    #[test]
    fn no_message_is_given_back_until_it_is_deleted() {
        for (limit, fine, near) in [
            (Limit::Unknown, 14, Some(15)),
            (Limit::At(20), 14, Some(15)),
            (Limit::At(30), 22, Some(23)),
            (Limit::At(5), 3, Some(4)),
            (Limit::At(1), 0, Some(1)),
            (Limit::At(-1), 1_000, None),
            (Limit::OutOfReach, 1_000, None),
        ] {
            let mut limit = at(limit, false, true);
            assert!(limit.check(fine).is_ok(), "{limit:?}");
            if let Some(near) = near {
                assert!(matches!(limit.check(near), Err(ParkedError::NearLimit { .. })), "{limit:?}");
            }
        }
        assert!(at(Limit::At(0), false, true).check(0).is_err());
    }

    #[test]
    fn where_looks_count_a_low_or_negative_limit_keeps_all_messages_from_being_taken() {
        for (limit, is_low) in [
            (Limit::At(-1), true),
            (Limit::At(0), true),
            (Limit::At(19), true),
            (Limit::At(20), false),
            (Limit::Unknown, false),
            (Limit::OutOfReach, false),
        ] {
            let refused = at(limit, true, true).check_first(1);
            assert_eq!(matches!(refused, Err(ParkedError::LowLimit { .. })), is_low, "{limit:?}");
            assert!(at(limit, true, true).check_first(0).is_ok(), "nothing is taken of an empty queue");
            assert!(at(limit, false, true).check_first(1).is_ok(), "looks do not count");
        }
    }

    #[test]
    fn a_queue_is_rehops_own_if_nothing_of_it_differs() {
        let is_own = |found: Found| DeliveryLimit::new("orders.parked", &found, false, true).is_own();
        assert!(is_own(Found::default().complete()) && !is_own(Found::of_limit(Limit::OutOfReach)));
    }

    #[test]
    fn the_warning_comes_once_and_only_where_looks_count() {
        let warned = |is_counted, has_management, returns: &[u32]| {
            let mut limit = at(Limit::OutOfReach, is_counted, has_management);
            returns.iter().for_each(|returns| limit.check(*returns).unwrap());
            limit.was_warned_of
        };
        for (is_counted, has_management, returns, expected) in [
            (true, true, &[0, 14][..], false),
            (true, true, &[15, 16], true),
            (true, false, &[0], false),
            (true, false, &[0, 1], true),
            (false, false, &[0, 1, 15], false),
            (false, true, &[15], false),
        ] {
            assert_eq!(
                warned(is_counted, has_management, returns),
                expected,
                "{is_counted} {has_management} {returns:?}"
            );
        }
    }
}
