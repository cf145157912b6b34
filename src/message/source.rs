//! The queue that a message was consumed from.

use crate::failure::Failure;
use crate::retry::decision::{Decision, Limits, decide};
use crate::retry::ledger::Ledger;
use crate::retry::policy::RetryPolicy;
use crate::timestamp::Timestamp;
use crate::wait::jitter::Draw;

/// The queue that a message was consumed from, and how its messages are retried.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) queue: String,
    pub(crate) policy: RetryPolicy,
}

impl Source {
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

    #[test]
    fn an_attempt_is_the_last_if_none_is_left_or_the_deadline_is_before_the_end_of_the_wait() {
        let delays = Some(Backoff::List(vec![Duration::from_secs(10)]));
        let settings = RetrySettings { immediate: Some(1), delays, ..RetrySettings::default() };
        let source =
            Source { queue: "orders".to_owned(), policy: RetryPolicy::new(&settings).unwrap() };
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
