//! `x-delayed-retry-*` of 4.3: a returned message waits before it is delivered again, and others
//! pass it.

use std::collections::BTreeMap;

use super::{Entry, Queue, Return};
use crate::policy::DelayedRetryType;
use crate::protocol::Time;

impl Queue {
    /// When a returned message is ready again, if it has to wait. The delay grows with the delivery
    /// count up to the maximum, so it stays at the minimum for messages that come back uncounted.
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
        while self.delayed.next_time().is_some_and(|time| time <= self.now) {
            self.returns.extend(self.delayed.take_next());
        }
    }
}

/// Messages by the time at which they are ready again, and their index.
#[derive(Debug, Default)]
pub(super) struct Delayed {
    pub(super) entries: BTreeMap<(Time, u64), Entry>,
    /// The next one. It is the first that came of those with the earliest time; after it the index
    /// decides. Seen in the source of 4.3.
    next: Option<(Time, u64)>,
}

impl Delayed {
    pub(super) fn insert(&mut self, time: Time, entry: Entry) {
        let key = (time, entry.index);
        self.entries.insert(key, entry);
        if self.next_time().is_none_or(|next| time < next) {
            self.next = Some(key);
        }
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        self.next.map(|(time, _)| time)
    }

    fn take_next(&mut self) -> Option<Entry> {
        let entry = self.entries.remove(&self.next?);
        self.next = self.entries.first_key_value().map(|(key, _)| *key);
        entry
    }
}
