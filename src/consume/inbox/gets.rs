//! Gets: while little is proven, messages are taken one by one, from one queue after the other.
//!
//! A crash charges every message that the process holds. So until it has proven that it survives,
//! it asks for a single message with `basic.get`. An empty queue answers at once, so a process with
//! a hundred idle queues has asked all of them within a hundred round trips.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long other queues wait for the answer of the one that was asked. Its leader may hang.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// What is known of the messages that are ready in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// A crash may have given back what comes next.
    Unknown,
    /// The last delivery was new, or is known to have come back with a lost channel.
    Fresh,
    /// Nothing was there.
    Empty,
}

/// A queue that may be asked for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) head: Head,
    /// What it brought could start at once.
    pub(super) has_room: bool,
}

/// Which queue is asked for a message.
#[derive(Debug)]
pub(super) struct Gets {
    candidates: Vec<Option<Candidate>>,
    /// Those with room, and of these those whose head is unknown.
    with_room: BTreeSet<usize>,
    unknown: BTreeSet<usize>,
    /// How many of those with room are not known to be empty.
    not_empty: usize,
    /// The queue that was asked, and until when the others wait for its answer.
    asked: Option<(usize, Instant)>,
    /// Where the search for the next one begins.
    from: usize,
}

impl Gets {
    /// `draw` is any random number, so that processes that start together do not all begin with the
    /// same queue.
    pub(super) fn new(draw: u64) -> Self {
        Self {
            candidates: Vec::new(),
            with_room: BTreeSet::new(),
            unknown: BTreeSet::new(),
            not_empty: 0,
            asked: None,
            from: usize::from(draw.to_le_bytes()[0]),
        }
    }

    pub(super) fn add(&mut self) {
        self.candidates.push(None);
    }

    /// Something about this queue has changed. `None`: it may not be asked.
    pub(super) fn put(&mut self, queue: usize, candidate: Option<Candidate>) {
        let Some(kept) = self.candidates.get_mut(queue) else { return };
        let before = std::mem::replace(kept, candidate);
        if before == candidate {
            return;
        }
        let is_not_empty =
            |candidate: &Candidate| candidate.has_room && candidate.head != Head::Empty;
        self.not_empty += usize::from(candidate.as_ref().is_some_and(is_not_empty));
        self.not_empty -= usize::from(before.as_ref().is_some_and(is_not_empty));
        for set in [&mut self.with_room, &mut self.unknown] {
            set.remove(&queue);
        }
        if let Some(Candidate { head, has_room: true }) = candidate {
            self.with_room.insert(queue);
            if head == Head::Unknown {
                self.unknown.insert(queue);
            }
        }
    }

    /// Whether all queues with room are known to be empty. Those without will be asked when they
    /// have room again.
    pub(super) fn is_idle(&self) -> bool {
        self.not_empty == 0
    }

    /// The next queue to ask, if none is being asked: one whose head is unknown or, if `all`, any
    /// one, so that each has its turn. But if all are empty, none: the broker would be asked
    /// without end.
    pub(super) fn ask(&mut self, all: bool, now: Instant) -> Option<usize> {
        if self.asked.is_some() || (all && self.is_idle()) {
            return None;
        }
        let set = if all { &self.with_room } else { &self.unknown };
        let from = self.from % self.candidates.len().max(1);
        let queue = set.range(from..).next().or(set.first()).copied()?;
        (self.asked, self.from) = (Some((queue, now + ANSWERED_WITHIN)), queue + 1);
        Some(queue)
    }

    /// The queue has answered, or cannot answer any more.
    pub(super) fn answered(&mut self, queue: usize) {
        self.asked.take_if(|(asked, _)| *asked == queue);
    }

    /// Until when others wait for an answer.
    pub(super) fn awaited_until(&self) -> Option<Instant> {
        self.asked.map(|(_, until)| until)
    }

    pub(super) fn pass_time(&mut self, now: Instant) {
        self.asked.take_if(|(_, until)| *until <= now);
    }
}
