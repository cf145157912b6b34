//! How many messages of a queue one process may hold.

use std::time::Duration;

use super::{Order, QueueConfig, Settings, SettingsError};

impl Settings {
    /// How many unsettled messages of this queue one process holds at most: 1 to 65535. That is
    /// `consume.prefetch`, unless the queue is ordered. If handlers that take all of
    /// `consume.handler_timeout` could not start so many in time, a process takes fewer. A queue
    /// that the settings do not list has what they say of all queues.
    ///
    /// With `consume.order = "queue"` it is 1. With a routing key or a header, all that is held may
    /// have one key, and is then handled one after the other. What does not end before the broker
    /// would take it back is given back, which counts as a delivery. So it is
    /// `retry.delivery_limit` / 2 times as many as can end in time, which follows from
    /// `retry.delays`, `retry.immediate`, `retry.jitter`, `retry.delivery_limit`,
    /// `consume.handler_timeout` and `broker.consumer_timeout`, and is at least 1 and at most
    /// `consume.prefetch`.
    ///
    /// ```
    /// use rehop::settings::{Order, WaitStrategy};
    ///
    /// # fn main() -> Result<(), rehop::settings::SettingsError> {
    /// let mut settings = rehop::Settings::default();
    /// assert_eq!(settings.max_unsettled("orders")?, 100);
    /// let queue = settings.queue_mut("orders");
    /// queue.retry.strategy = Some(WaitStrategy::InProcess);
    /// queue.consume.order = Some(Order::Queue);
    /// assert_eq!(settings.max_unsettled("orders")?, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When the settings contradict themselves.
    pub fn max_unsettled(&self, queue: &str) -> Result<u16, SettingsError> {
        Ok(self.resolve()?.queue(queue)?.max_unsettled(self.broker.consumer_timeout))
    }
}

/// When the last frame that settles a delivery has to be sent, or its copy is given up: a little
/// before the broker takes it back.
pub(crate) fn settle_limit(ack_timeout: Duration) -> Duration {
    ack_timeout - (ack_timeout / 20).min(Duration::from_secs(30))
}

impl QueueConfig {
    /// How many deliveries one process may hold, with this ack timeout of the broker.
    pub(crate) fn max_unsettled(&self, ack_timeout: Duration) -> u16 {
        match self.order {
            Order::None => self.prefetch,
            Order::Queue => 1,
            Order::RoutingKey | Order::Header(_) => {
                self.prefetch.min(self.in_one_line(ack_timeout))
            }
        }
    }

    /// Checks that a handler that takes all of its time leaves some to settle. `at` gives a key its
    /// path.
    pub(super) fn check_handler_timeout(
        &self,
        ack_timeout: Duration,
        at: &dyn Fn(&str) -> String,
    ) -> Result<(), SettingsError> {
        let limit = settle_limit(ack_timeout);
        if self.handler_timeout < limit {
            return Ok(());
        }
        let text = humantime::format_duration;
        Err(SettingsError::invalid(
            at("consume.handler_timeout"),
            format!(
                "{} is not below {}: broker.consumer_timeout is {}, and the broker would take a message back before what its handler \
                 decided is carried out; lower it, or raise consumer_timeout on the broker and here",
                text(self.handler_timeout),
                text(limit),
                text(ack_timeout)
            ),
        ))
    }

    /// How many messages a queue that is ordered by keys may hold. All of them may have one key,
    /// and then run one after the other. Those that do not end within the ack timeout go back,
    /// which the broker counts, so none may be so far back that it is parked untried.
    fn in_one_line(&self, ack_timeout: Duration) -> u16 {
        let longest = self.policy.longest_chain(self.handler_timeout).as_millis().max(1);
        let in_time = (settle_limit(ack_timeout).as_millis() / longest).max(1);
        let rounds = u128::from(self.policy.delivery_limit / 2).max(1);
        u16::try_from(in_time.saturating_mul(rounds)).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::backoff::Backoff;
    use crate::settings::{ConsumeSettings, Jitter, WaitStrategy};

    /// Each message may take 430 s: six attempts of a minute, and 70 s of waits.
    fn ordered(order: Order) -> Settings {
        let mut settings = Settings::default();
        settings.consume.order = Some(order);
        settings.retry.strategy = Some(WaitStrategy::InProcess);
        settings.retry.delays =
            Some(Backoff::List(vec![Duration::from_secs(10), Duration::from_secs(60)]));
        settings
    }

    #[test]
    fn a_delivery_is_settled_a_little_before_the_ack_timeout() {
        let limit = |timeout| settle_limit(Duration::from_secs(timeout)).as_secs();
        assert_eq!([100, 600, 1_800].map(limit), [95, 570, 1_770]);
    }

    #[test]
    fn a_handler_may_not_run_until_its_message_can_no_longer_be_settled() {
        let resolve = |seconds| {
            let mut settings = Settings::default();
            settings.consume.handler_timeout = Some(Duration::from_secs(seconds));
            settings.resolve().map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(resolve(1_769), Ok(()));
        let refused = resolve(1_770).unwrap_err();
        let says = ["consume.handler_timeout", "29m 30s", "broker.consumer_timeout is 30m"];
        assert!(says.iter().all(|part| refused.contains(part)), "{refused}");
    }

    #[test]
    fn only_the_handler_timeout_that_is_in_effect_for_a_queue_has_to_fit_the_ack_timeout() {
        let mut settings = Settings::default();
        settings.consume.handler_timeout = Some(Duration::from_secs(3_600));
        settings.queue_mut("orders").consume.handler_timeout = Some(Duration::from_secs(5));
        let resolved = settings.resolve().unwrap();
        assert_eq!(resolved.queue("orders").unwrap().handler_timeout, Duration::from_secs(5));
        let refused = resolved.queue("bills").unwrap_err().to_string();
        assert!(
            refused.starts_with("consume.handler_timeout: queue \"bills\": 1h is not below"),
            "{refused}"
        );
        let code = ConsumeSettings {
            handler_timeout: Some(Duration::from_secs(7)),
            ..ConsumeSettings::default()
        };
        assert_eq!(
            resolved.queue_with("bills", &code, None).unwrap().handler_timeout,
            Duration::from_secs(7)
        );
        settings.queue_mut("orders").consume.handler_timeout = None;
        let refused = settings.resolve().unwrap_err().to_string();
        assert!(
            refused
                .starts_with("queues.0.consume.handler_timeout: queue \"orders\": 1h is not below"),
            "{refused}"
        );
    }

    #[test]
    fn a_queue_that_is_ordered_as_a_whole_holds_one_message_and_an_unordered_one_as_many_as_it_says()
     {
        assert_eq!(ordered(Order::Queue).max_unsettled("orders"), Ok(1));
        assert_eq!(ordered(Order::None).max_unsettled("orders"), Ok(100));
    }

    #[test]
    fn a_queue_that_is_ordered_by_keys_holds_no_more_than_may_end_in_one_line_before_the_limit() {
        let check = |change: fn(&mut Settings), expected: u16| {
            for order in [Order::RoutingKey, Order::Header("customer".to_owned())] {
                let mut settings = ordered(order);
                change(&mut settings);
                assert_eq!(settings.max_unsettled("orders"), Ok(expected));
            }
        };
        // In 29.5 minutes four of them end, and half of the limit is five.
        check(|_| {}, 20);
        check(|it| it.consume.prefetch = Some(12), 12);
        check(|it| it.consume.handler_timeout = Some(Duration::from_secs(1)), 100);
        check(|it| it.retry.delays = Some(Backoff::List(vec![Duration::from_secs(10)])), 35);
        check(|it| it.retry.immediate = Some(0), 35);
        check(|it| it.retry.jitter = Some(Jitter::Decorrelated), 15);
        check(|it| it.retry.delivery_limit = Some(4), 8);
        check(|it| it.broker.consumer_timeout = Duration::from_secs(3600), 40);
    }
}
