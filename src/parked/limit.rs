//! Whether looking could do harm: the broker may move or delete a message that is given back too often.

use crate::parked::error::ParkedError;

/// The broker's default limit on 4.x is 20 returns.
const NEAR_LIMIT: u32 = 15;

/// What is known of the delivery limit of a queue that is looked at.
#[derive(Debug)]
pub(crate) struct DeliveryLimit {
    queue: String,
    /// The queue's own limit is never reached. A policy may still set a lower one, which AMQP does not show.
    is_high: bool,
    /// Giving back counts towards the limit: before 4.3.
    is_counted: bool,
    /// From how many returns on a policy's limit may be near.
    warns_from: u32,
    was_warned_of: bool,
}

impl DeliveryLimit {
    /// `has_management`: whether a management API is known, which shows policies. Without it, any message that was looked at before may
    /// leave the queue at this look.
    pub(crate) fn new(queue: &str, is_high: bool, is_counted: bool, has_management: bool) -> Self {
        let warns_from = if has_management { NEAR_LIMIT } else { 1 };
        Self { queue: queue.to_owned(), is_high, is_counted, warns_from, was_warned_of: false }
    }

    /// Whether the queue has the arguments that rehop declares it with.
    pub(crate) fn is_high(&self) -> bool {
        self.is_high
    }

    /// To be asked before a message that was given back so often is given back once more.
    ///
    /// # Errors
    ///
    /// When the queue may have a limit that is near.
    pub(crate) fn check(&mut self, returns: u32) -> Result<(), ParkedError> {
        if returns >= NEAR_LIMIT && !self.is_high {
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

    #[test]
    fn only_a_limit_that_is_known_to_be_high_may_come_near() {
        for is_counted in [false, true] {
            let mut low = DeliveryLimit::new("orders.parked", false, is_counted, true);
            assert!(low.check(14).is_ok());
            assert!(matches!(low.check(15), Err(ParkedError::NearLimit { returns: 15, .. })));
            assert!(DeliveryLimit::new("orders.parked", true, is_counted, true).check(1_000).is_ok());
        }
    }

    #[test]
    fn the_warning_comes_once_and_only_where_looks_count() {
        let warned = |is_counted, has_management, returns: &[u32]| {
            let mut limit = DeliveryLimit::new("orders.parked", true, is_counted, has_management);
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
