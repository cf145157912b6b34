//! How far an operation is, and how it ended.

use serde::Serialize;

use crate::parked::group::Group;
use crate::parked::ramp::{Fates, Stop};

/// What an operation has done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// How many messages were in the queue when it began. Later ones are left alone.
    pub snapshot: u64,
    /// How many of those that were looked at match.
    pub matched: u64,
    /// How many were published elsewhere, confirmed and acked here.
    pub moved: u64,
    /// How many match and do not say which queue they are to go to. They stay.
    pub without_destination: u64,
    /// How many match and are to go to a queue that does not exist. They stay.
    pub missing_destination: u64,
    /// How many match and have headers too large for a copy. They stay.
    pub too_large: u64,
    /// How many copies the broker did not confirm in time. They may exist beside their originals.
    pub unconfirmed: u64,
}

impl Tally {
    /// How many match and stay where they are.
    pub fn stayed(&self) -> u64 {
        self.without_destination + self.missing_destination + self.too_large
    }

    /// The queue is gone through again from its head, where what was not moved is.
    pub(crate) fn start_again(&mut self) {
        *self = Self { snapshot: self.snapshot, moved: self.moved, matched: self.moved, ..Self::default() };
    }
}

/// How far an operation is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Progress {
    /// Names this operation, as its end does. If an error ends a discard, [`Filter::run`](crate::parked::Filter::run) finds what it moved.
    pub run: String,
    /// What it has done.
    #[serde(flatten)]
    pub tally: Tally,
    /// What is known of the messages that a replay has sent.
    pub fates: Fates,
    /// Whether it waits for a work queue to become shorter.
    pub is_paused: bool,
}

/// How a replay ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Replayed {
    /// Names this replay; its messages carry it in `rehop-replay-run`.
    pub run: String,
    /// What it has done.
    #[serde(flatten)]
    pub tally: Tally,
    /// What became of the messages.
    pub fates: Fates,
    /// How many of them nothing is known of. Never counted as success.
    pub unknown: u64,
    /// Why it stopped before its end. `None` if it went through all messages.
    pub stopped: Option<Stop>,
    /// The messages that parked again.
    pub parked_again: Vec<Group>,
}

impl Replayed {
    /// Whether every message that matched was sent and handled.
    pub fn is_success(&self) -> bool {
        self.stopped.is_none() && self.fates.handled == self.tally.matched
    }
}

/// How a restore ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Restored {
    /// Names this operation in logs.
    pub run: String,
    /// What it has done.
    #[serde(flatten)]
    pub tally: Tally,
    /// Why it stopped before its end. `None` if it went through all messages.
    pub stopped: Option<Stop>,
}

/// How a discard ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Discarded {
    /// Names this operation in logs, and on the messages that it moved: [`Filter::run`](crate::parked::Filter::run) finds them.
    pub run: String,
    /// What it has done.
    #[serde(flatten)]
    pub tally: Tally,
    /// Why it stopped before its end. `None` if it went through all messages.
    pub stopped: Option<Stop>,
}

/// Is told how far the operation is.
pub(crate) type Observe<'a> = &'a mut (dyn FnMut(&Progress) + Send);

/// Completes when the operation is to end. Must not be polled again after that.
pub(crate) type StopSignal<'a> = &'a mut (dyn Future<Output = ()> + Send + Unpin);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_counted_and_forgotten_when_the_queue_is_gone_through_again() {
        let mut tally = Tally {
            snapshot: 100,
            matched: 40,
            moved: 20,
            without_destination: 5,
            missing_destination: 3,
            too_large: 2,
            unconfirmed: 1,
        };
        assert_eq!(tally.stayed(), 10);
        tally.start_again();
        assert_eq!(tally, Tally { snapshot: 100, matched: 20, moved: 20, ..Tally::default() });
    }

    #[test]
    fn a_replay_is_a_success_if_it_went_through_and_all_that_matched_was_handled() {
        let is_success = |handled, stopped| {
            let (tally, fates) = (Tally { matched: 2, ..Tally::default() }, Fates { handled, ..Fates::default() });
            let run = String::new();
            Replayed { run, tally, fates, unknown: 0, stopped, parked_again: Vec::new() }.is_success()
        };
        assert!(is_success(2, None));
        assert!(!is_success(1, None) && !is_success(2, Some(Stop::StrayGrew)));
    }
}
