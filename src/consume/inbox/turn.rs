//! Turns: while little is proven, only one queue at a time may deliver.

use std::time::{Duration, Instant};

use super::CRASHES_WITHIN;

/// How long a queue that brings nothing keeps its turn. It begins while the subscription of the
/// queue before it ends.
const IDLE: Duration = Duration::from_millis(350);

/// Whose turn it is to be taken from.
#[derive(Debug)]
pub(super) struct Turn {
    /// A queue's index, before it is reduced to the number of queues.
    queue: usize,
    /// `None` before time has passed for the first time.
    since: Option<Instant>,
    /// How many queues in a row brought nothing.
    idle: usize,
}

impl Turn {
    pub(super) fn new(draw: u64) -> Self {
        Self { queue: usize::from(draw.to_le_bytes()[0]), since: None, idle: 0 }
    }

    /// Whose turn it is, of so many queues.
    pub(super) fn queue(&self, queues: usize) -> usize {
        self.queue % queues
    }

    /// Whether every queue had a turn and brought nothing, so that there is nothing to separate.
    pub(super) fn is_over(&self, queues: usize) -> bool {
        self.idle >= queues
    }

    pub(super) fn arrived(&mut self) {
        self.idle = 0;
    }

    pub(super) fn give_to(&mut self, queue: usize, now: Instant) {
        self.queue = queue;
        self.since = Some(now);
    }

    /// A handler of this queue has finished. If it was this queue's turn, the next one's begins.
    pub(super) fn finished(&mut self, queue: usize, queues: usize, now: Instant) {
        if self.queue(queues) == queue {
            self.give_to((queue + 1) % queues, now);
        }
    }

    /// When the turn ends if nothing arrives. `is_idle`: nothing of its queue may kill the process.
    pub(super) fn ends_at(&self, queues: usize, is_idle: bool) -> Option<Instant> {
        let length = if is_idle { IDLE } else { CRASHES_WITHIN };
        self.since.filter(|_| !self.is_over(queues)).map(|since| since + length)
    }

    pub(super) fn pass_time(&mut self, queues: usize, is_idle: bool, now: Instant) {
        self.since.get_or_insert(now);
        if self.ends_at(queues, is_idle).is_some_and(|at| at <= now) {
            self.idle = if is_idle { self.idle + 1 } else { 0 };
            self.give_to((self.queue(queues) + 1) % queues, now);
        }
    }
}
