//! The ledger: what is known of a message's chain when a delivery arrives.

use std::time::Duration;

use crate::failure::Failure;
use crate::timestamp::Timestamp;

/// What is known of a message before an attempt: its own headers, read and bounded, and the broker's count.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ledger {
    /// Attempts before the last hop.
    pub(crate) attempts: u32,
    /// Waits so far.
    pub(crate) hop: u32,
    /// How often the broker has given the message back since it was last published. `None`: it has, and does not count, as
    /// classic queues do not; then no attempt is made at once, because nothing would bound them.
    pub(crate) redeliveries: Option<u32>,
    /// The first delivery of the chain that left a trace.
    pub(crate) first_seen: Timestamp,
    /// The first failure that led to a wait.
    pub(crate) first_failed: Option<Timestamp>,
    /// From this moment on it is expired.
    pub(crate) deadline: Option<Timestamp>,
    /// When it entered its last wait queue, and when it was due back.
    pub(crate) wait: Option<Wait>,
    /// When a wait of several legs will be over, if this was not the last of them.
    pub(crate) wait_unfinished: Option<Timestamp>,
    /// The last failures, oldest first.
    pub(crate) errors: Vec<ErrorRecord>,
    /// Names the chain on every span.
    pub(crate) chain_id: Option<String>,
}

/// One trip through a wait queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) since: Timestamp,
    pub(crate) due: Timestamp,
    pub(crate) tier: Duration,
}

impl Wait {
    /// Whether one tier was all of it.
    pub(crate) fn is_whole(&self) -> bool {
        self.due.since(self.since) <= self.tier
    }
}

impl Ledger {
    /// The number of the attempt that this delivery is for, from 1. Crashed deliveries count, as the broker counts them.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempts.saturating_add(self.redeliveries.unwrap_or(1)).saturating_add(1)
    }

    /// The ledger after this delivery, as a copy carries it: with the failed attempt, if there was one, or as it came.
    pub(crate) fn after(&self, failure: Option<&Failure>, now: Timestamp) -> Self {
        let mut ledger = self.clone();
        match failure {
            Some(failure) => {
                ledger.attempts = self.attempt();
                ledger.record(ErrorRecord::of(failure, self.attempt(), now));
            }
            None => ledger.attempts = self.attempt().saturating_sub(1),
        }
        ledger
    }

    fn record(&mut self, failure: ErrorRecord) {
        self.first_failed.get_or_insert(failure.at);
        self.errors.push(failure);
        let excess = self.errors.len().saturating_sub(MAX_ERRORS);
        self.errors.drain(..excess);
        while self.errors.len() > 1 && self.errors.iter().map(ErrorRecord::size).sum::<usize>() > MAX_ERROR_BYTES {
            self.errors.remove(0);
        }
    }
}

/// How many failures the ledger keeps.
pub(crate) const MAX_ERRORS: usize = 10;
/// How many bytes they may take together: a content header over 131,064 bytes closes the connection (3.10, 4.0, 4.3).
pub(crate) const MAX_ERROR_BYTES: usize = 8 * 1024;
const MAX_CLASS_BYTES: usize = 128;
pub(crate) const MAX_MESSAGE_BYTES: usize = 1024;

/// One failure in a message's history.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorRecord {
    /// When it failed.
    pub at: Timestamp,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The failure's class, cut at 128 bytes.
    pub class: String,
    /// The failure's text, cut at 1,024 bytes.
    pub message: String,
}

impl ErrorRecord {
    pub(crate) fn new(at: Timestamp, attempt: u32, class: &str, message: &str) -> Self {
        Self {
            at,
            attempt,
            class: cut(class, MAX_CLASS_BYTES).to_owned(),
            message: cut(message, MAX_MESSAGE_BYTES).to_owned(),
        }
    }

    fn of(failure: &Failure, attempt: u32, at: Timestamp) -> Self {
        Self::new(at, attempt, failure.class(), failure.message())
    }

    fn size(&self) -> usize {
        64 + self.class.len() + self.message.len()
    }
}

/// The longest beginning of a text that fits into so many bytes.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::inputs;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(inputs(256))]

        #[test]
        fn the_history_stays_within_its_bounds_and_keeps_the_newest(texts in prop::collection::vec(".{0,3000}", 1..40)) {
            let at = Timestamp::from_millis(1);
            let mut ledger = crate::policy::tests::fresh();
            for (index, text) in texts.iter().enumerate() {
                ledger.record(ErrorRecord::new(at, index as u32 + 1, text, text));
            }
            prop_assert!(ledger.errors.len() <= MAX_ERRORS);
            prop_assert!(ledger.errors.iter().map(ErrorRecord::size).sum::<usize>() <= MAX_ERROR_BYTES);
            prop_assert_eq!(ledger.errors.last().unwrap().attempt as usize, texts.len());
        }
    }
}
