//! What a queue's way to wait needs of its other settings.

use std::time::Duration;

use super::{QueueConfig, SettingsError};
use crate::wait::WaitStrategy;

/// How much of the broker's ack timeout is kept free of handlers and waits: a held message may have
/// to wait for a free handler.
const MARGIN: Duration = Duration::from_secs(60);

impl QueueConfig {
    /// For how long a delivery may be held before its last attempt begins, if its messages wait in
    /// the process.
    pub(crate) fn hold_limit(&self, ack_timeout: Duration) -> Option<Duration> {
        let is_held = self.policy.strategy.kind() == WaitStrategy::InProcess;
        is_held.then(|| ack_timeout.saturating_sub(MARGIN).saturating_sub(self.handler_timeout))
    }

    /// Checks that the queue's messages can wait as they are to. `at` gives a key its path.
    pub(super) fn check_strategy(
        &self,
        ack_timeout: Duration,
        at: &dyn Fn(&str) -> String,
    ) -> Result<(), SettingsError> {
        let strategy = self.policy.strategy.kind();
        if strategy == WaitStrategy::Native && !self.counts_deliveries {
            return Err(SettingsError::invalid(
                at("retry.strategy"),
                "strategy \"native\" needs a quorum queue: a classic queue cannot delay what is returned to it; say queue_type = \
                 \"quorum\" if it is one, or set retry.strategy = \"tiers\""
                    .to_owned(),
            ));
        }
        if self.order.is_kept() && strategy != WaitStrategy::InProcess {
            return Err(SettingsError::invalid(
                at("consume.order"),
                format!(
                    "order is kept only by strategy \"in-process\": with {:?} a message that waits leaves its place, and others \
                     overtake it; set retry.strategy = \"in-process\", or order = \"none\"",
                    strategy.as_str()
                ),
            ));
        }
        if self.order.is_kept() && self.policy.used_ladder().is_some() {
            return Err(SettingsError::invalid(
                at("retry.after"),
                "order is not kept on the ladder: set retry.after = \"own\", or order = \"none\""
                    .to_owned(),
            ));
        }
        if strategy == WaitStrategy::InProcess {
            self.check_hold(ack_timeout, at)?;
        }
        Ok(())
    }

    fn check_hold(
        &self,
        ack_timeout: Duration,
        at: &dyn Fn(&str) -> String,
    ) -> Result<(), SettingsError> {
        let (hold, attempts) =
            (self.policy.longest_chain(self.handler_timeout), self.policy.max_attempts());
        if hold <= ack_timeout.saturating_sub(MARGIN) {
            return Ok(());
        }
        let text = |duration| humantime::format_duration(duration);
        Err(SettingsError::invalid(
            at("retry.delays"),
            format!(
                "with strategy \"in-process\" a message stays unacked through all its waits and {attempts} attempts of up to {} each, \
                 {} in all, and broker.consumer_timeout is {}, of which a minute is kept free: shorten retry.delays or \
                 consume.handler_timeout, raise consumer_timeout on the broker and here, or set retry.strategy = \"tiers\"",
                text(self.handler_timeout),
                text(hold),
                text(ack_timeout)
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::retry::backoff::Backoff;
    use crate::settings::{Declare, Order, QueueType};

    fn settings(strategy: WaitStrategy) -> Settings {
        let mut settings = Settings::default();
        settings.retry.strategy = Some(strategy);
        settings.retry.delays = Some(Backoff::List(vec![Duration::from_secs(10); 2]));
        settings.retry.immediate = Some(0);
        settings.consume.handler_timeout = Some(Duration::from_secs(20));
        settings
    }

    fn error(settings: &Settings) -> Option<String> {
        settings.resolve().err().map(|error| error.to_string())
    }

    #[test]
    fn all_waits_and_attempts_of_a_held_message_end_a_minute_before_the_ack_timeout() {
        let mut held = settings(WaitStrategy::InProcess);
        held.broker.consumer_timeout = Duration::from_secs(60 + 80);
        let config = held.resolve().unwrap().queue("orders").unwrap();
        assert_eq!(config.hold_limit(held.broker.consumer_timeout), Some(Duration::from_secs(60)));
        held.broker.consumer_timeout -= Duration::from_millis(1);
        let text = error(&held).unwrap();
        assert!(
            text.contains("retry.delays")
                && text.contains("3 attempts of up to 20s")
                && text.contains("1m 20s in all"),
            "{text}"
        );
        held.retry.strategy = Some(WaitStrategy::Tiers);
        assert_eq!(error(&held), None);
        let config = held.resolve().unwrap().queue("orders").unwrap();
        assert_eq!(config.hold_limit(held.broker.consumer_timeout), None);
    }

    #[test]
    fn order_needs_messages_that_wait_in_the_process() {
        for (strategy, is_right) in [
            (WaitStrategy::Tiers, false),
            (WaitStrategy::Native, false),
            (WaitStrategy::InProcess, true),
        ] {
            let mut ordered = settings(strategy);
            ordered.consume.order = Some(Order::RoutingKey);
            assert_eq!(error(&ordered).is_none(), is_right, "{strategy:?}");
        }
    }

    #[test]
    fn a_classic_queue_cannot_delay_what_is_returned() {
        let mut native = settings(WaitStrategy::Native);
        native.queue_mut("orders").declare = Declare::Existing;
        assert!(error(&native).unwrap().contains("quorum"));
        native.queue_mut("orders").queue_type = Some(QueueType::Quorum);
        assert_eq!(error(&native), None);
    }

    #[test]
    fn an_order_that_is_set_in_code_is_checked_with_the_policy_that_is_set_in_code() {
        let tiers = settings(WaitStrategy::Tiers);
        let mut consume = tiers.consume.clone();
        consume.order = Some(Order::Queue);
        let resolved = tiers.resolve().unwrap();
        let refused = resolved.queue_with("orders", &consume, None).unwrap_err().to_string();
        assert!(
            refused.starts_with("consume.order: ") && refused.contains("in-process"),
            "{refused}"
        );
        let policy = crate::RetryPolicy::new(&settings(WaitStrategy::InProcess).retry).unwrap();
        let config = resolved.queue_with("orders", &consume, Some(&policy)).unwrap();
        assert_eq!(config.order, Order::Queue);
    }

    /// A policy in code replaces the settings' own, and is checked like it.
    #[test]
    fn a_policy_that_is_set_in_code_is_checked_as_well() {
        let tiers = settings(WaitStrategy::Tiers);
        let mut held = settings(WaitStrategy::InProcess).retry;
        held.delays = Some(Backoff::List(vec![Duration::from_secs(3600)]));
        let policy = crate::RetryPolicy::new(&held).unwrap();
        let refused = tiers.resolve().unwrap().queue_with("orders", &tiers.consume, Some(&policy));
        assert!(refused.unwrap_err().to_string().contains("consumer_timeout"));
    }
}
