//! How many more deliveries each queue may take, and how.

use std::time::Instant;

use super::gets::Head;
use super::{Inbox, QueueIndex};
use crate::consume::line::Line;

/// How a queue's deliveries are to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// Without a subscription, a single message is asked for.
    One,
    /// By subscriptions with this prefetch, all together; 0: there are none.
    Window(u16),
}

impl Take {
    /// The prefetch of the subscriptions, all together.
    pub(crate) fn prefetch(self) -> u16 {
        match self {
            Self::One => 0,
            Self::Window(prefetch) => prefetch,
        }
    }
}

/// What the process knows about what its queues may bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A suspect is here: nothing is taken.
    Suspect,
    /// Little is proven: queues open one after the other.
    OneByOne,
    /// Little is proven since a suspect came. `is_idle`: all queues that were asked are empty, so
    /// they may be subscribed to.
    Shaken { is_idle: bool },
    /// Enough is proven.
    Open,
}

impl<T> Inbox<T> {
    /// How the queue's deliveries are to be taken now.
    ///
    /// If its subscriptions have a smaller prefetch, add one. If they have a larger one, ask
    /// [`ends_at`](Self::ends_at) when to cancel all of them, take what is under way, and subscribe
    /// again. Report both with [`subscribed`](Self::subscribed), and the answer to a get with
    /// [`got`](Self::got). What a cancelled subscription brought stays here and can still be
    /// settled. Ask only after [`start`](Self::start) has returned `None`.
    pub(crate) fn take(&self, index: QueueIndex, now: Instant) -> Take {
        let queue = &self.queues[index.0];
        if queue.is_asked() {
            return Take::One;
        }
        if !queue.may_take() {
            return Take::Window(0);
        }
        if queue.rules.line == Line::Ordered {
            return Take::Window(queue.rules.prefetch);
        }
        let open = self.proof.window(queue.rules.concurrency);
        let most = match (self.phase, queue.head()) {
            (Phase::Suspect, _) => 0,
            (Phase::Open, _) | (Phase::OneByOne, Head::Fresh) => open,
            (Phase::OneByOne | Phase::Shaken { .. }, _) if !queue.rules.can_get => 1,
            // Another process may die, and what it held come here.
            (Phase::OneByOne, Head::Empty) => 1,
            // One that is subscribed to stays so while others are asked again.
            (Phase::Shaken { is_idle }, Head::Empty) => u16::from(is_idle || queue.is_subscribed()),
            (Phase::OneByOne | Phase::Shaken { .. }, _) => 0,
        };
        Take::Window(if most > 0 { queue.window(most, now) } else { 0 })
    }

    pub(super) fn enter_phase(&mut self) {
        let has_suspects = self.isolation.is_in_effect() || self.agenda.suspects().next().is_some();
        let phase = match (has_suspects, self.proof.is_shaken(), self.proof.is_scant()) {
            (true, _, _) => Phase::Suspect,
            (false, true, _) => Phase::Shaken { is_idle: self.gets.is_idle() },
            (false, false, true) => Phase::OneByOne,
            (false, false, false) => Phase::Open,
        };
        if std::mem::replace(&mut self.phase, phase) != phase {
            self.agenda.all_changed();
        }
    }

    /// Has the next queue asked for a message, if another message may be taken.
    pub(super) fn ask(&mut self, now: Instant) {
        let is_shaken = match self.phase {
            Phase::Suspect | Phase::Open => return,
            Phase::OneByOne => false,
            Phase::Shaken { .. } => true,
        };
        if !self.proof.allows_one_more() {
            return;
        }
        if let Some(queue) = self.gets.ask(is_shaken, now) {
            self.queues[queue].ask();
            self.note(queue, now);
        }
    }
}
