//! The waits that this process has recorded, of messages that its handlers have requeued.

use std::collections::VecDeque;
use std::sync::Mutex;

use opentelemetry::trace::{SpanContext, SpanId};

use crate::lock::lock;

/// How many are remembered. A requeued message comes back soon, perhaps to another process.
const MOST: usize = 256;

/// Each with the attempt before it, whose span the message names.
#[derive(Debug, Default)]
pub(super) struct RecordedWaits(Mutex<VecDeque<(SpanId, SpanContext)>>);

impl RecordedWaits {
    pub(super) fn keep(&self, attempt: SpanId, wait: SpanContext) {
        let mut waits = lock(&self.0);
        if waits.len() >= MOST {
            waits.pop_front();
        }
        waits.push_back((attempt, wait));
    }

    /// The wait after this attempt.
    pub(super) fn take(&self, attempt: SpanId) -> Option<SpanContext> {
        let mut waits = lock(&self.0);
        let position = waits.iter().rposition(|(before, _)| *before == attempt)?;
        waits.remove(position).map(|(_, wait)| wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_waits_are_remembered_until_they_are_asked_for() {
        let waits = RecordedWaits::default();
        let id = |number: usize| SpanId::from(number as u64);
        for number in 0..=MOST {
            waits.keep(id(number), SpanContext::NONE);
        }
        assert_eq!(waits.take(id(0)), None, "the oldest made room");
        assert!([1, MOST].iter().all(|number| waits.take(id(*number)).is_some()));
        assert_eq!(waits.take(id(MOST)), None, "it was taken");
    }
}
