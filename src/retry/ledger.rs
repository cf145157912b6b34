//! The ledger: what is known of a message's chain when a delivery arrives.

use std::time::Duration;

use serde::Serialize;

use crate::failure::Failure;
use crate::timestamp::Timestamp;
use crate::wait::Path;

/// What is known of a message before an attempt: its own headers, read and bounded, and the
/// broker's count.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ledger {
    /// Attempts before the last hop.
    pub(crate) attempts: u32,
    /// Waits so far, without those that a handler deferred the message by.
    pub(crate) hop: u32,
    /// How often a handler has deferred the message.
    pub(crate) defers: u32,
    /// Whether the message is a copy that rehop made. Only then are its other headers rehop's own.
    pub(crate) is_copy: bool,
    /// How often the broker has given the message back since it was last published. `None`: at
    /// least once, on a queue that does not count, as classic queues do not. Then nothing would
    /// bound immediate attempts, so there are none.
    pub(crate) redeliveries: Option<u32>,
    /// When the delivery before the first wait was seen; until a message has waited, the present
    /// one.
    pub(crate) first_seen: Timestamp,
    /// When the first failure that led to a wait happened.
    pub(crate) first_failed: Option<Timestamp>,
    /// When the message expires.
    pub(crate) deadline: Option<Timestamp>,
    /// The last wait, or the last leg of it.
    pub(crate) wait: Option<Wait>,
    /// When a wait of several legs will be over, if some of it is left.
    pub(crate) wait_unfinished: Option<Timestamp>,
    /// The last failures, oldest first.
    pub(crate) errors: Vec<ErrorRecord>,
    /// Identifies the chain on every span.
    pub(crate) chain_id: Option<String>,
    /// The last replay, if an operator has sent the message back from the parked queue.
    pub(crate) replay: Option<Replay>,
}

/// What a replayed message carries until it is handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Names the operator's run, which waits for receipts.
    pub run: String,
    /// Which of the run's messages it is.
    pub number: u32,
    /// How often the message was replayed.
    pub count: u32,
    /// The run waits for its fate: it is parked instead of waiting.
    pub is_canary: bool,
}

/// One leg, by this path: it began at `since` and takes `leg`. The whole wait ends at `due`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) since: Timestamp,
    pub(crate) due: Timestamp,
    pub(crate) leg: Duration,
    pub(crate) path: Path,
}

impl Wait {
    /// When the whole wait will be over, if some of it is left after the leg that has just ended.
    /// What is left is never more than before that leg, less the leg. So each leg brings the end
    /// nearer, however far apart the clocks of two services are.
    pub(crate) fn unfinished(&self, now: Timestamp) -> Option<Timestamp> {
        Some(self.due.min(now + self.left())).filter(|due| *due > now)
    }

    /// How long the wait lasts from the beginning of this leg on.
    pub(crate) fn total(&self) -> Duration {
        self.due.since(self.since)
    }

    /// How much of the whole wait is left after this leg, by the clock that began the leg.
    pub(crate) fn left(&self) -> Duration {
        self.total().saturating_sub(self.leg)
    }
}

impl Ledger {
    /// The ledger of a message that is seen for the first time.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            attempts: 0,
            hop: 0,
            defers: 0,
            is_copy: false,
            redeliveries: Some(0),
            first_seen: now,
            first_failed: None,
            deadline: None,
            wait: None,
            wait_unfinished: None,
            errors: Vec::new(),
            chain_id: None,
            replay: None,
        }
    }

    /// The number of the attempt that this delivery is for, from 1. Deliveries that ended in a
    /// crash are included, because the broker counts them.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempts.saturating_add(self.redeliveries.unwrap_or(1)).saturating_add(1)
    }

    /// The ledger that a copy of this delivery carries: with the failed attempt, if there was one.
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

    /// The ledger of a copy that goes to wait. A further leg of the same wait follows no attempt,
    /// and is no hop of its own. What a handler deferred had no attempt either.
    pub(crate) fn waiting(
        &self,
        failure: Option<&Failure>,
        is_defer: bool,
        now: Timestamp,
    ) -> Self {
        if is_defer {
            return Self { defers: self.defers.saturating_add(1), ..self.after(None, now) };
        }
        let mut ledger = self.after(failure, now);
        if failure.is_some() {
            ledger.hop = self.hop.saturating_add(1);
        }
        ledger
    }

    /// The ledger of the next attempt if this process holds the message until then: after a wait,
    /// or at once.
    pub(crate) fn held(
        &self,
        failure: Option<&Failure>,
        wait: Option<Wait>,
        is_defer: bool,
        now: Timestamp,
    ) -> Self {
        match wait {
            Some(_) => Self {
                redeliveries: Some(0),
                wait,
                wait_unfinished: None,
                ..self.waiting(failure, is_defer, now)
            },
            None => {
                let redeliveries = self.redeliveries.map(|count| count.saturating_add(1));
                let Self { errors, first_failed, .. } = self.after(failure, now);
                Self { redeliveries, errors, first_failed, wait: None, ..self.clone() }
            }
        }
    }

    fn record(&mut self, failure: ErrorRecord) {
        self.first_failed.get_or_insert(failure.at);
        self.errors.push(failure);
        let excess = self.errors.len().saturating_sub(MAX_ERRORS);
        self.errors.drain(..excess);
        while self.errors.iter().map(ErrorRecord::size).sum::<usize>() > MAX_ERROR_BYTES {
            self.errors.remove(0);
        }
    }
}

/// How many failures the ledger keeps.
pub(crate) const MAX_ERRORS: usize = 10;
/// How many bytes they may take in all: a content header over 131,064 bytes closes the connection
/// (3.10, 4.0, 4.3).
pub(crate) const MAX_ERROR_BYTES: usize = 8 * 1024;
pub(crate) const MAX_CLASS_BYTES: usize = 128;
pub(crate) const MAX_MESSAGE_BYTES: usize = 1024;

/// One failure in a message's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    #[doc(hidden)]
    pub fn new(at: Timestamp, attempt: u32, class: &str, message: &str) -> Self {
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

/// The longest prefix of a text that fits into this many bytes.
pub fn cut(text: &str, bytes: usize) -> &str {
    let end =
        (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::{inputs, texts};
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn what_is_left_of_a_wait_ends_when_it_is_due_and_is_never_more_than_there_was() {
        let wait = Wait { since: NOW, due: NOW + millis(300), leg: millis(100), path: Path::Tier };
        let check = |wait: Wait, now: u64, left: Option<u64>| {
            assert_eq!(
                wait.unfinished(NOW + millis(now)),
                left.map(|left| NOW + millis(left)),
                "{wait:?} at {now}"
            );
        };
        check(wait, 105, Some(300));
        check(wait, 299, Some(300));
        check(wait, 300, None);
        check(wait, 301, None);
        // This clock lags behind the one that began the wait: 200 ms are left all the same.
        check(wait, 50, Some(250));
        check(Wait { leg: millis(300), ..wait }, 0, None);
        check(Wait { leg: millis(500), ..wait }, 0, None);
        check(Wait { due: NOW, ..wait }, 0, None);
    }

    #[test]
    fn attempts_count_redeliveries_and_never_overflow() {
        let ledger = |attempts, redeliveries| Ledger {
            attempts,
            redeliveries,
            ..crate::retry::decision::tests::fresh()
        };
        assert_eq!(ledger(0, Some(0)).attempt(), 1);
        assert_eq!(ledger(3, Some(2)).attempt(), 6);
        // A queue that does not count has given it back at least once.
        assert_eq!(ledger(3, None).attempt(), 5);
        assert_eq!(ledger(u32::MAX, Some(1)).attempt(), u32::MAX);
    }

    #[test]
    fn a_copy_counts_the_attempt_that_failed_and_none_that_was_not_made() {
        let before =
            Ledger { attempts: 3, redeliveries: Some(2), ..crate::retry::decision::tests::fresh() };
        let failed = before.after(Some(&Failure::transient("busy").with_class("class")), NOW);
        assert_eq!((failed.attempts, failed.first_failed), (6, Some(NOW)));
        assert_eq!(failed.errors, [ErrorRecord::new(NOW, 6, "class", "busy")]);
        let again = failed.after(Some(&Failure::transient("busy")), NOW + millis(1));
        assert_eq!((again.attempts, again.first_failed, again.errors.len()), (9, Some(NOW), 2));
        let untouched = before.after(None, NOW);
        assert_eq!(
            (untouched.attempts, untouched.first_failed, untouched.errors.len()),
            (5, None, 0)
        );
    }

    #[test]
    fn what_this_process_holds_for_the_next_attempt_has_left_its_last_wait_behind() {
        let wait =
            |since| Wait { since, due: since + millis(300), leg: millis(100), path: Path::Hold };
        let before = Ledger {
            attempts: 3,
            redeliveries: Some(2),
            wait: Some(wait(NOW)),
            wait_unfinished: Some(NOW),
            ..crate::retry::decision::tests::fresh()
        };
        let failure = Failure::transient("busy");
        let next = Some(wait(NOW + millis(300)));
        let waits = before.held(Some(&failure), next, false, NOW);
        assert_eq!(
            (waits.redeliveries, waits.wait, waits.wait_unfinished, waits.attempt()),
            (Some(0), next, None, 7)
        );
        let at_once = before.held(Some(&failure), None, false, NOW);
        assert_eq!((at_once.redeliveries, at_once.wait, at_once.attempt()), (Some(3), None, 7));
        assert_eq!([waits, at_once].map(|ledger| ledger.errors.len()), [1, 1]);
    }

    #[test]
    fn the_oldest_failures_make_room_when_there_are_eleven_or_more_than_eight_kibibytes() {
        let after_each = |records: &[usize]| {
            let mut ledger = crate::retry::decision::tests::fresh();
            for (index, size) in records.iter().enumerate() {
                ledger.record(ErrorRecord::new(
                    NOW,
                    index as u32 + 1,
                    "class",
                    &"x".repeat(size - 64 - "class".len()),
                ));
            }
            ledger.errors.iter().map(|record| record.attempt).collect::<Vec<_>>()
        };
        assert_eq!(after_each(&[100; 10]), (1..=10).collect::<Vec<_>>());
        assert_eq!(after_each(&[100; 11]), (2..=11).collect::<Vec<_>>());
        assert_eq!(after_each(&[1024; 8]), (1..=8).collect::<Vec<_>>());
        assert_eq!(
            after_each(&[1024, 1024, 1024, 1024, 1024, 1024, 1024, 1025]),
            (2..=8).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_text_is_cut_where_a_character_ends() {
        assert_eq!((cut("a\u{e9}b", 0), cut("a\u{e9}b", 1), cut("a\u{e9}b", 2)), ("", "a", "a"));
        assert_eq!(
            (cut("a\u{e9}b", 3), cut("a\u{e9}b", 4), cut("a\u{e9}b", 5)),
            ("a\u{e9}", "a\u{e9}b", "a\u{e9}b")
        );
        let record = ErrorRecord::new(NOW, 1, &"c".repeat(129), &"m".repeat(1_025));
        assert_eq!((record.class.len(), record.message.len()), (128, 1_024));
    }

    proptest! {
        #![proptest_config(inputs(256))]

        #[test]
        fn the_history_stays_within_its_bounds_and_keeps_the_newest(texts in prop::collection::vec(texts(3_000), 1..40)) {
            let at = Timestamp::from_millis(1);
            let mut ledger = crate::retry::decision::tests::fresh();
            for (index, text) in texts.iter().enumerate() {
                ledger.record(ErrorRecord::new(at, index as u32 + 1, text, text));
            }
            prop_assert!(ledger.errors.len() <= MAX_ERRORS);
            prop_assert!(ledger.errors.iter().map(ErrorRecord::size).sum::<usize>() <= MAX_ERROR_BYTES);
            prop_assert_eq!(ledger.errors.last().unwrap().attempt as usize, texts.len());
        }
    }
}
