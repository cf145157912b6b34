//! How a queue is paused or drained.

use super::QueueInbox;
use crate::consume::inbox::flow::{Flow, Rest};
use crate::consume::line::Line;

impl<T> QueueInbox<T> {
    /// What the program wants of the queue from now on.
    pub(in crate::consume::inbox) fn set_flow(&mut self, flow: Flow) {
        // To take from an ordered queue no more is to let others overtake what is held. So it gives
        // back what no handler has seen, all together, once nothing runs.
        self.flow = match (self.rules.line, flow) {
            (Line::Ordered, Flow::Draining) => Flow::Paused,
            (_, flow) => flow,
        };
    }

    pub(in crate::consume::inbox) fn rest(&self) -> Rest {
        let is_taking = self.is_subscribed() || self.is_asked();
        let is_still = !is_taking && self.running() == 0;
        match self.flow {
            Flow::On => Rest::Flows,
            Flow::Paused if is_still => Rest::Rests,
            Flow::Draining if is_still && !self.has_unstarted() => Rest::Rests,
            Flow::Paused | Flow::Draining => Rest::Settles,
        }
    }

    /// Whether handlers may start.
    pub(in crate::consume::inbox) fn may_start(&self) -> bool {
        self.flow != Flow::Paused
    }

    /// Whether deliveries may be taken. An ordered queue is taken from until its channel closes.
    pub(in crate::consume::inbox) fn may_take(&self) -> bool {
        self.flow == Flow::On || (self.rules.line == Line::Ordered && self.is_subscribed())
    }

    /// Whether an ordered queue's channel is to close: it is paused, and nothing runs.
    pub(in crate::consume::inbox) fn gives_all_back(&self) -> bool {
        self.flow == Flow::Paused
            && self.rules.line == Line::Ordered
            && self.is_subscribed()
            && self.running() == 0
    }
}
