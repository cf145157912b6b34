//! `x-delayed-retry-*` of 4.3: a returned message waits before it is delivered again, and others pass it.

use super::{Entry, Queue, Return};
use crate::policy::DelayedRetryType;
use crate::protocol::Time;

impl Queue {
    /// When a returned message is ready again, if it has to wait. The delay grows with the delivery count up to the maximum, so it
    /// stays at the minimum for messages that come back uncounted.
    pub(super) fn ready_again(&self, entry: &Entry, how: Return) -> Option<Time> {
        let retry = self.settings.delayed_retry?;
        let is_failure = matches!(how, Return::Reject | Return::Lost);
        let is_delayed = match retry.kind {
            DelayedRetryType::All => true,
            DelayedRetryType::Failed => is_failure,
            DelayedRetryType::Returned => !is_failure,
        };
        let factor = u32::try_from(entry.counts.delivery().unwrap_or(1).max(1)).unwrap_or(u32::MAX);
        is_delayed.then(|| self.now + retry.min.saturating_mul(factor).min(retry.max))
    }

    pub(super) fn promote_delayed(&mut self) {
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= self.now
        {
            self.returns.push_back(first.remove());
        }
    }
}
