//! How far an operation is.

use serde::Serialize;

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
    /// How many match and cannot be copied: they would be too large, or the broker does not accept
    /// the copy. They stay.
    pub too_large: u64,
    /// How many copies the broker did not confirm, or whose originals could not be removed. They
    /// may exist beside their originals.
    pub unconfirmed: u64,
}

impl Tally {
    /// How many match and stay where they are.
    pub fn stayed(&self) -> u64 {
        self.without_destination + self.missing_destination + self.too_large
    }

    /// The queue is gone through again from its head, where what was not moved is.
    pub(crate) fn start_again(&mut self) {
        *self = Self {
            snapshot: self.snapshot,
            moved: self.moved,
            matched: self.moved,
            ..Self::default()
        };
    }
}

/// What is known of the messages that were sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fates {
    /// Sent, and confirmed by the broker.
    pub sent: u64,
    /// Handled, as their consumer says.
    pub handled: u64,
    /// Parked again.
    pub parked_again: u64,
    /// Discarded by their handler or its policy.
    pub discarded: u64,
    /// Failed, and waiting for another attempt.
    pub waiting: u64,
}

impl Fates {
    /// Sent, and their consumer has not said what became of them. Never counted as success.
    pub fn unknown(&self) -> u64 {
        self.sent.saturating_sub(self.handled + self.parked_again + self.discarded + self.waiting)
    }

    /// How many have ended, as their consumer has said.
    pub(crate) fn known(&self) -> u64 {
        self.handled + self.parked_again + self.discarded
    }
}

/// How far an operation is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Progress {
    /// Names this operation, as its end does. If an error ends a discard,
    /// [`Filter::run`](crate::parked::Filter::run) finds what it moved.
    pub run: String,
    /// What it has done.
    #[serde(flatten)]
    pub tally: Tally,
    /// What is known of the messages that a replay has sent.
    pub fates: Fates,
    /// Whether it waits for a work queue to become shorter.
    pub is_paused: bool,
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
    fn what_no_consumer_has_told_of_is_unknown() {
        let fates = Fates { sent: 100, handled: 40, parked_again: 20, discarded: 10, waiting: 5 };
        assert_eq!(fates.unknown(), 25);
        assert_eq!(Fates { sent: 1, ..fates }.unknown(), 0);
    }
}
