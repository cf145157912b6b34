//! What the inbox has to know of a queue's settings.

use std::time::Duration;

use crate::consume::line::Line;
use crate::settings::{QueueConfig, settle_limit};
use crate::wait::WaitStrategy;

/// The settings of one queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// The widest window that the settings allow.
    pub(crate) prefetch: u16,
    /// How many handlers may run at a time.
    pub(crate) concurrency: u16,
    /// How often the broker gives a message back before it parks it.
    pub(crate) delivery_limit: u32,
    /// How often handlers may requeue a message before it waits.
    pub(crate) immediate: u32,
    /// How long a delivery may wait for its handler. Longer, and the broker's timeout would charge
    /// all that is held.
    pub(crate) start_limit: Duration,
    /// How long a handler may run.
    pub(crate) handler_timeout: Duration,
    /// In an ordered queue, messages with one key run one after the other.
    pub(crate) line: Line,
    /// Whether the broker counts the deliveries of a message.
    pub(crate) counts_deliveries: bool,
    /// Whether single messages may be asked for.
    pub(crate) can_get: bool,
}

/// The broker's own ack timeout, unless it was changed. A consumer may ask for a longer one (4.3),
/// and a get cannot.
const USUAL_ACK_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// RabbitMQ advises against timeouts of less than five minutes, so what is handled within this time
/// is not taken back.
const SURELY_HANDLED: Duration = Duration::from_secs(150);

impl Rules {
    pub(crate) fn of(config: &QueueConfig, ack_timeout: Duration) -> Self {
        let (line, most) = (Line::of(&config.order), config.max_unsettled(ack_timeout));
        let may_hold = config.policy.strategy.kind() == WaitStrategy::InProcess;
        let is_short = ack_timeout <= USUAL_ACK_TIMEOUT || config.handler_timeout <= SURELY_HANDLED;
        Self {
            prefetch: most,
            concurrency: config.concurrency.min(most),
            line,
            delivery_limit: config.policy.delivery_limit,
            immediate: config.policy.immediate,
            start_limit: Self::start_limit(config, ack_timeout),
            handler_timeout: config.handler_timeout,
            counts_deliveries: config.counts_deliveries,
            // The queue of a single active consumer refuses gets.
            can_get: line == Line::Free && !may_hold && is_short,
        }
    }

    /// How long a delivery may wait for its handler, with this ack timeout: half of it, and less
    /// where a handler that then takes all of its own time would exceed the timeout.
    ///
    /// What waits in this process must also have time left for all its waits and attempts. Half of
    /// what these leave free is for the first handler, and half for later ones.
    ///
    /// The settings allow no timeout that leaves nothing free, but the broker may name one. Then it
    /// is half of the timeout: most handlers take less than all of their time.
    pub(crate) fn start_limit(config: &QueueConfig, ack_timeout: Duration) -> Duration {
        let limit = settle_limit(ack_timeout);
        if !Line::of(&config.order).allows_single_return() {
            return limit;
        }
        let free = limit.saturating_sub(config.handler_timeout);
        let free = match config.policy.strategy.kind() {
            WaitStrategy::InProcess => free.min(
                ack_timeout.saturating_sub(config.policy.longest_chain(config.handler_timeout)) / 2,
            ),
            _ => free,
        };
        if free.is_zero() { limit / 2 } else { free.min(ack_timeout / 2) }
    }

    /// How many deliveries this many free slots can start before one has waited too long, even if
    /// each handler takes all of its time.
    pub(crate) fn startable(&self, free: usize) -> usize {
        let rounds = self.start_limit.as_nanos() / self.handler_timeout.as_nanos().max(1);
        free.saturating_mul(usize::try_from(rounds).unwrap_or(usize::MAX).saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::settings::Order;

    fn rules(handler_timeout: u64, ack_timeout: u64) -> Rules {
        let mut settings = Settings::default();
        settings.broker.consumer_timeout = Duration::from_secs(ack_timeout);
        settings.consume.handler_timeout = Some(Duration::from_secs(handler_timeout));
        settings.consume.prefetch = Some(40);
        settings.consume.concurrency = Some(20);
        settings.retry.delivery_limit = Some(7);
        settings.retry.immediate = Some(3);
        let config = settings.resolve().unwrap().queue("orders").unwrap();
        Rules::of(&config, settings.broker.consumer_timeout)
    }

    #[test]
    fn a_delivery_waits_half_of_the_ack_timeout_at_most_and_leaves_its_handler_all_of_its_time() {
        assert_eq!(rules(60, 1800).start_limit.as_secs(), 900);
        assert_eq!(rules(900, 1800).start_limit.as_secs(), 870);
        assert_eq!(rules(1500, 1800).start_limit.as_secs(), 270);
    }

    #[test]
    fn a_timeout_that_the_broker_names_may_leave_no_time_to_spare() {
        let mut settings = Settings::default();
        settings.consume.handler_timeout = Some(Duration::from_secs(60));
        let config = settings.resolve().unwrap().queue("orders").unwrap();
        let limit =
            |timeout| Rules::start_limit(&config, Duration::from_secs(timeout)).as_secs_f64();
        assert_eq!([1_800, 200, 80].map(limit), [900.0, 100.0, 16.0]);
        assert_eq!([60, 10].map(limit), [28.5, 4.75], "a handler may be quicker");
    }

    /// The chain of a message with two waits of 100 s and three attempts of at most 60 s takes 380
    /// s.
    #[test]
    fn what_waits_in_the_process_leaves_time_for_all_waits_and_attempts() {
        let start_limit = |ack_timeout| {
            let mut settings = Settings::default();
            settings.broker.consumer_timeout = Duration::from_secs(ack_timeout);
            settings.consume.handler_timeout = Some(Duration::from_secs(60));
            settings.retry.strategy = Some(WaitStrategy::InProcess);
            settings.retry.immediate = Some(0);
            settings.retry.delays = Some(crate::Backoff::List(vec![Duration::from_secs(100); 2]));
            let config = settings.resolve().unwrap().queue("orders").unwrap();
            Rules::of(&config, settings.broker.consumer_timeout).start_limit.as_secs()
        };
        assert_eq!([600, 1800].map(start_limit), [110, 710]);
    }

    #[test]
    fn what_may_be_held_for_longer_than_the_broker_usually_allows_is_not_asked_for_singly() {
        let can_get = |(handler_timeout, ack_timeout)| rules(handler_timeout, ack_timeout).can_get;
        let handlers_and_timeouts = [(150, 3_600), (1_500, 1_800), (151, 1_801)];
        assert_eq!(handlers_and_timeouts.map(can_get), [true, true, false]);
    }

    #[test]
    fn the_rest_is_what_the_settings_say() {
        let Rules { prefetch, concurrency, delivery_limit, immediate, .. } = rules(60, 1800);
        assert_eq!((prefetch, concurrency, delivery_limit, immediate), (40, 20, 7, 3));
    }

    #[test]
    fn no_more_is_taken_than_handlers_can_start_in_time_if_each_takes_all_of_its_time() {
        let startable = |handler_timeout| rules(handler_timeout, 1_800).startable(20);
        assert_eq!(
            [60, 400, 900, 1_500].map(startable),
            [320, 60, 20, 20],
            "after 400 s and 800 s others start"
        );
        assert_eq!(rules(400, 1_800).startable(1), 3);
        assert_eq!(Rules { start_limit: Duration::ZERO, ..rules(60, 1_800) }.startable(20), 20);
    }

    #[test]
    fn an_ordered_queue_has_the_window_of_its_order_and_no_more_handlers_than_that() {
        let of = |order: Order| {
            let mut settings = Settings::default();
            settings.retry.strategy = Some(WaitStrategy::InProcess);
            settings.retry.delays = Some(crate::Backoff::List(vec![Duration::from_secs(10)]));
            settings.consume.order = Some(order);
            let config = settings.resolve().unwrap().queue("orders").unwrap();
            let rules = Rules::of(&config, settings.broker.consumer_timeout);
            assert!(!rules.can_get);
            let Rules { prefetch, concurrency, line, start_limit, .. } = rules;
            (prefetch, concurrency, line, start_limit.as_secs())
        };
        assert_eq!(of(Order::Queue), (1, 1, Line::Ordered, 1_770));
        assert_eq!(of(Order::RoutingKey), (35, 10, Line::Ordered, 1_770));
    }
}
