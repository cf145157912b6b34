//! The queue that a message was consumed from.

use std::time::Duration;

use tokio::time::Instant;

use crate::failure::Failure;
use crate::retry::decision::{Decision, Limits, decide};
use crate::retry::ledger::Ledger;
use crate::retry::policy::RetryPolicy;
use crate::shutdown::Shutdown;
use crate::timestamp::Timestamp;
use crate::wait::jitter::Draw;

/// The queue that a message was consumed from, how its messages are retried, and how long an attempt
/// at one may take.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) queue: String,
    pub(crate) policy: RetryPolicy,
    pub(crate) handler_timeout: Duration,
    pub(crate) shutdown: Shutdown,
}

impl Source {
    /// When a handler is dropped that began then, as far as is known now.
    pub(crate) fn ends_at(&self, began: Instant) -> Option<Instant> {
        let limit = began.checked_add(self.handler_timeout);
        let stop = self.shutdown.is_requested().then(|| self.shutdown.handlers_until());
        limit.into_iter().chain(stop).min()
    }

    /// Whether a transient failure at this time would end the chain.
    pub(crate) fn is_last_attempt(&self, ledger: &Ledger, now: Timestamp) -> bool {
        let failed = Err(Failure::transient("asks for no delay"));
        let limits = || Limits { hold: None, lets_return: true };
        let decision = decide(&self.policy, ledger, &failed, now, limits, Draw::MIDDLE);
        !matches!(decision, Decision::Requeue | Decision::Again | Decision::Wait { .. })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::retry::backoff::Backoff;
    use crate::settings::RetrySettings;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[tokio::test(start_paused = true)]
    async fn a_handler_ends_at_its_time_limit_or_at_the_end_of_the_grace_time_for_handlers() {
        let seconds = Duration::from_secs;
        let began = Instant::now();
        for (handler_timeout, grace, expected) in [(60, 30, 38), (60, 100, 60), (30, 30, 30)] {
            let policy = RetryPolicy::new(&RetrySettings::default()).unwrap();
            let (queue, shutdown) = ("orders".to_owned(), Shutdown::new(seconds(grace)));
            let handler_timeout = seconds(handler_timeout);
            let source = Source { queue, policy, handler_timeout, shutdown };
            assert_eq!(source.ends_at(began), Some(began + handler_timeout));
            tokio::time::advance((began + seconds(10)) - Instant::now()).await;
            source.shutdown.request();
            assert_eq!(source.ends_at(began), Some(began + seconds(expected)));
        }
    }

    #[tokio::test]
    async fn the_future_of_the_stop_may_be_polled_again() {
        let shutdown = Shutdown::new(Duration::from_secs(30));
        let mut stopping = std::pin::pin!(shutdown.requested_for_long());
        assert!(futures_util::poll!(&mut stopping).is_pending());
        shutdown.request();
        for _ in 0..2 {
            assert!(futures_util::poll!(&mut stopping).is_ready());
        }
    }

    #[test]
    fn an_attempt_is_the_last_if_none_is_left_or_the_deadline_is_before_the_end_of_the_wait() {
        let delays = Some(Backoff::List(vec![Duration::from_secs(10)]));
        let settings = RetrySettings { immediate: Some(1), delays, ..RetrySettings::default() };
        let source = Source {
            queue: "orders".to_owned(),
            policy: RetryPolicy::new(&settings).unwrap(),
            handler_timeout: Duration::from_secs(30),
            shutdown: Shutdown::new(Duration::from_secs(30)),
        };
        let check = |redeliveries, hop, deadline: Option<u64>, expected| {
            let deadline = deadline.map(|seconds| NOW + Duration::from_secs(seconds));
            let ledger =
                Ledger { redeliveries: Some(redeliveries), hop, deadline, ..Ledger::new(NOW) };
            assert_eq!(source.is_last_attempt(&ledger, NOW), expected, "{ledger:?}");
        };
        check(0, 0, None, false);
        check(1, 0, None, false);
        check(0, 1, None, false);
        check(1, 1, None, true);
        check(1, 0, Some(11), false);
        check(1, 0, Some(10), true);
        check(0, 0, Some(10), false);
    }
}
