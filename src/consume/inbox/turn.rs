//! Turns: while little is proven, only one queue at a time may deliver.

use std::time::{Duration, Instant};

use super::CRASHES_WITHIN;
use super::queue_inbox::QueueInbox;

/// How long a queue that brings nothing keeps its turn. It begins while the subscription of the queue before it ends.
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

    pub(super) fn is_of<T>(&self, queue: usize, queues: &[QueueInbox<T>]) -> bool {
        self.queue % queues.len() == queue
    }

    /// Whether every queue had a turn and brought nothing, so that there is nothing to separate.
    pub(super) fn is_over<T>(&self, queues: &[QueueInbox<T>]) -> bool {
        self.idle >= queues.len()
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
        if self.queue % queues == queue {
            self.give_to((queue + 1) % queues, now);
        }
    }

    /// When the turn ends if nothing arrives.
    pub(super) fn ends_at<T>(&self, queues: &[QueueInbox<T>]) -> Option<Instant> {
        if self.is_over(queues) { None } else { Some(self.since? + self.length(queues)) }
    }

    pub(super) fn pass_time<T>(&mut self, queues: &[QueueInbox<T>], now: Instant) {
        let since = *self.since.get_or_insert(now);
        if !self.is_over(queues) && since + self.length(queues) <= now {
            self.idle = if self.is_idle(queues) { self.idle + 1 } else { 0 };
            self.give_to((self.queue + 1) % queues.len(), now);
        }
    }

    fn length<T>(&self, queues: &[QueueInbox<T>]) -> Duration {
        if self.is_idle(queues) { IDLE } else { CRASHES_WITHIN }
    }

    fn is_idle<T>(&self, queues: &[QueueInbox<T>]) -> bool {
        queues[self.queue % queues.len()].is_empty()
    }
}
