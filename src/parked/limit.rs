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
    was_warned_of: bool,
}

impl DeliveryLimit {
    pub(crate) fn new(queue: &str, is_high: bool, is_counted: bool) -> Self {
        Self { queue: queue.to_owned(), is_high, is_counted, was_warned_of: false }
    }

    /// To be asked before a message that was given back so often is given back once more.
    ///
    /// # Errors
    ///
    /// When the queue may have a limit that is near.
    pub(crate) fn check(&mut self, returns: u32) -> Result<(), ParkedError> {
        if returns < NEAR_LIMIT {
            return Ok(());
        }
        if !self.is_high {
            return Err(ParkedError::NearLimit { queue: self.queue.clone(), returns });
        }
        if self.is_counted && !std::mem::replace(&mut self.was_warned_of, true) {
            tracing::warn!(
                queue = self.queue,
                returns,
                "messages of this queue were given back often, and this broker counts it; where a policy sets a lower delivery-limit, they \
                 leave the queue when they exceed it. `rehop doctor` finds such a policy"
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
            let mut low = DeliveryLimit::new("orders.parked", false, is_counted);
            assert!(low.check(14).is_ok());
            assert!(matches!(low.check(15), Err(ParkedError::NearLimit { returns: 15, .. })));
            assert!(DeliveryLimit::new("orders.parked", true, is_counted).check(1_000).is_ok());
        }
    }

    #[test]
    fn the_warning_comes_once_and_only_where_looks_count() {
        let warned = |is_counted, returns: &[u32]| {
            let mut limit = DeliveryLimit::new("orders.parked", true, is_counted);
            returns.iter().for_each(|returns| limit.check(*returns).unwrap());
            limit.was_warned_of
        };
        assert_eq!((warned(true, &[14]), warned(true, &[15, 16]), warned(false, &[15])), (false, true, false));
    }
}
