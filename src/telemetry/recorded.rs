//! What this process remembers of spans that it has recorded, until the message comes back to it.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use opentelemetry::trace::SpanId;

use crate::lock::lock;

/// How many are remembered. A message may come back to another process, or never.
const MOST: usize = 4096;

/// Each by the attempt whose span the message names.
#[derive(Debug)]
pub(super) struct Recorded<V>(Mutex<Kept<V>>);

#[derive(Debug)]
struct Kept<V> {
    values: HashMap<SpanId, V>,
    /// The oldest first. Some may have been taken.
    order: VecDeque<SpanId>,
}

impl<V> Default for Recorded<V> {
    fn default() -> Self {
        Self(Mutex::new(Kept { values: HashMap::new(), order: VecDeque::new() }))
    }
}

impl<V> Recorded<V> {
    pub(super) fn keep(&self, attempt: SpanId, value: V) {
        let mut kept = lock(&self.0);
        if let Some(present) = kept.values.get_mut(&attempt) {
            *present = value;
            return;
        }
        if kept.order.len() >= MOST
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.values.remove(&oldest);
        }
        kept.order.push_back(attempt);
        kept.values.insert(attempt, value);
    }

    /// What was kept for this attempt.
    pub(super) fn take(&self, attempt: SpanId) -> Option<V> {
        lock(&self.0).values.remove(&attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered_until_they_are_asked_for() {
        let recorded = Recorded::default();
        let id = |number: usize| SpanId::from(number as u64);
        for number in 0..=MOST {
            recorded.keep(id(number), number);
        }
        assert_eq!(recorded.take(id(0)), None, "the oldest made room");
        assert!([1, MOST].iter().all(|number| recorded.take(id(*number)) == Some(*number)));
        assert_eq!(recorded.take(id(MOST)), None, "it was taken");
    }
}
