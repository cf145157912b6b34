//! What the inbox has to know of a queue's settings.

use std::time::Duration;

use crate::settings::{Order, QueueConfig};
use crate::wait::WaitStrategy;

/// The settings of one queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// The widest window.
    pub(crate) prefetch: u16,
    /// How many handlers may run at a time.
    pub(crate) concurrency: u16,
    /// How often the broker gives a message back before it parks it.
    pub(crate) delivery_limit: u32,
    /// How often handlers may requeue a message before it waits.
    pub(crate) immediate: u32,
    /// How long a delivery may wait for its handler. Longer, and the broker's timeout would charge all that is held.
    pub(crate) hold_limit: Duration,
    /// Whether messages with the same key run in order, one at a time.
    pub(crate) is_ordered: bool,
}

impl Rules {
    /// A delivery may wait for its handler for half of the broker's ack timeout, and less where a handler that then takes all of
    /// its own time would exceed the timeout.
    ///
    /// What waits in this process must also have time left for all its waits and attempts. Half of what these leave free is for the
    /// first handler, and half for later ones.
    pub(crate) fn of(config: &QueueConfig, ack_timeout: Duration) -> Self {
        let hold_limit = ack_timeout.saturating_sub(config.handler_timeout).min(ack_timeout / 2);
        let hold_limit = match config.policy.strategy.kind() {
            WaitStrategy::InProcess => {
                hold_limit.min(ack_timeout.saturating_sub(config.policy.longest_hold(config.handler_timeout)) / 2)
            }
            _ => hold_limit,
        };
        let is_ordered = config.order != Order::None;
        // What an ordered queue holds can only go back all together, so it may stay for longer.
        let hold_limit =
            if is_ordered { ack_timeout - (ack_timeout / 20).min(Duration::from_secs(30)) } else { hold_limit };
        let most = match config.order {
            Order::None => u16::MAX,
            Order::Queue => 1,
            Order::RoutingKey | Order::Header(_) => in_one_line(config, hold_limit),
        };
        Self {
            prefetch: config.prefetch.min(most),
            concurrency: config.concurrency.min(most),
            is_ordered,
            delivery_limit: config.policy.delivery_limit,
            immediate: config.policy.immediate,
            hold_limit,
        }
    }
}

/// How many messages a queue that is ordered by keys may hold. All of them may have one key, and then run one after the other. Those that do
/// not end within the ack timeout go back, which the broker counts, so none may be so far back that it is parked untried.
fn in_one_line(config: &QueueConfig, hold_limit: Duration) -> u16 {
    let longest = config.policy.longest_hold(config.handler_timeout).as_millis().max(1);
    let in_time = (hold_limit.as_millis() / longest).max(1);
    let rounds = u128::from(config.policy.delivery_limit / 2).max(1);
    u16::try_from(in_time.saturating_mul(rounds)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

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
        assert_eq!(rules(60, 1800).hold_limit.as_secs(), 900);
        assert_eq!(rules(900, 1800).hold_limit.as_secs(), 900);
        assert_eq!(rules(1500, 1800).hold_limit.as_secs(), 300);
    }

    #[test]
    fn the_rest_is_what_the_settings_say() {
        let Rules { prefetch, concurrency, delivery_limit, immediate, .. } = rules(60, 1800);
        assert_eq!((prefetch, concurrency, delivery_limit, immediate), (40, 20, 7, 3));
    }

    #[test]
    fn a_queue_ordered_by_keys_holds_no_more_than_may_end_in_one_line_before_the_limit() {
        let prefetch = |handler_timeout: u64| {
            let mut settings = Settings::default();
            settings.retry.strategy = Some(WaitStrategy::InProcess);
            settings.consume.order = Some(Order::RoutingKey);
            settings.consume.handler_timeout = Some(Duration::from_secs(handler_timeout));
            settings.retry.delays = Some(crate::Backoff::List(vec![Duration::from_secs(10), Duration::from_secs(60)]));
            let config = settings.resolve().unwrap().queue("orders").unwrap();
            Rules::of(&config, settings.broker.consumer_timeout).prefetch
        };
        // Six attempts and 70 s of waits fit into 29.5 minutes four times, or 23 times, and half of the limit is five.
        assert_eq!([60, 1].map(prefetch), [20, 100]);
    }
}
