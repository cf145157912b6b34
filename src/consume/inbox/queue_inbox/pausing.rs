//! How a queue is paused or drained.

use std::time::Instant;

use super::{QueueInbox, Waiting};
use crate::consume::inbox::flow::{Flow, KEPT_IN_PAUSE, Late, Rest};
use crate::consume::inbox::rules::Rules;
use crate::consume::inbox::suspicion::is_near_limit;
use crate::consume::line::Line;

impl<T> QueueInbox<T> {
    /// What the program wants of the queue from now on. A pause that goes on keeps its beginning.
    pub(in crate::consume::inbox) fn set_flow(&mut self, flow: Flow, now: Instant) {
        // If the subscription of an ordered queue ended, others would overtake what is held. So it
        // gives back what it holds, all together.
        let flow = match (self.rules.line, flow) {
            (Line::Ordered, Flow::Draining) => Flow::Paused { since: now },
            (_, flow) => flow,
        };
        if !(flow.is_paused() && self.flow.is_paused()) {
            self.flow = flow;
        }
    }

    pub(in crate::consume::inbox) fn rest(&self) -> Rest {
        let is_taking = match self.rules.line {
            Line::Free => self.is_subscribed() || self.is_asked(),
            // Until its channel closes, but none of it starts.
            Line::Ordered => false,
        };
        let is_still = !is_taking && self.running() == 0;
        match self.flow {
            Flow::On => Rest::Flows,
            Flow::Paused { .. } if is_still => Rest::Rests,
            Flow::Draining if is_still && !self.has_unstarted() => Rest::Rests,
            Flow::Paused { .. } | Flow::Draining => Rest::NotYet,
        }
    }

    /// Whether handlers may start.
    pub(in crate::consume::inbox) fn may_start(&self) -> bool {
        !self.flow.is_paused()
    }

    /// Whether deliveries may be taken. An ordered queue is taken from until its channel closes.
    pub(in crate::consume::inbox) fn may_take(&self) -> bool {
        self.flow == Flow::On || (self.rules.line == Line::Ordered && self.is_subscribed())
    }

    /// When an ordered queue's channel is to close because of a pause: after a while, if nothing
    /// runs, and nothing that it holds has few charges left.
    fn closes_at(&self) -> Option<Instant> {
        let Flow::Paused { since } = self.flow else { return None };
        if self.rules.line == Line::Free || !self.is_subscribed() || self.running() > 0 {
            return None;
        }
        let limit = self.rules.delivery_limit;
        let mut held = self.lines.iter().map(|waiting| waiting.redeliveries.count);
        let is_kept = held.any(|count| is_near_limit(count, limit));
        (!is_kept).then(|| since + KEPT_IN_PAUSE.min(self.rules.start_limit))
    }

    /// When the first delivery of a queue that is paused, and not ordered, has waited too long.
    fn late_in_pause_at(&self) -> Option<Instant> {
        let at = |waiting: &Waiting<T>| waiting.late_at(self.flow, &self.rules);
        // In the order of their arrival.
        let is_early = |waiting: &&Waiting<T>| at(waiting) < waiting.since + self.rules.start_limit;
        let plain = [self.plain.front(), self.plain.iter().find(is_early), self.due.front()];
        plain.into_iter().flatten().chain(self.suspects.values()).map(at).min()
    }

    /// When deliveries are to go back next.
    pub(in crate::consume::inbox) fn goes_back_at(&self) -> Option<Instant> {
        if self.flow.is_paused() && self.rules.line == Line::Free {
            return self.late_in_pause_at();
        }
        [self.closes_at(), self.late_at()].into_iter().flatten().min()
    }

    /// Why deliveries are to go back now, if they are.
    pub(in crate::consume::inbox) fn late(&self, now: Instant) -> Option<Late> {
        let is_now = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.flow.is_paused() && self.rules.line == Line::Free {
            return is_now(self.late_in_pause_at()).then_some(Late::Paused);
        }
        let is_paused = self.flow.is_paused() && self.running() == 0;
        let late = if is_paused { Late::Paused } else { Late::Waited };
        is_now(self.goes_back_at()).then_some(late)
    }
}

impl<T> Waiting<T> {
    /// When it has waited too long for a handler. In a pause that is a while after the pause began,
    /// unless giving it back early would harm it: what has few charges left would lose one on 3.10
    /// and 4.0, and what was tried before would lose its attempts.
    pub(super) fn late_at(&self, flow: Flow, rules: &Rules) -> Instant {
        let latest = self.since + rules.start_limit;
        let is_kept = self.has_run || is_near_limit(self.redeliveries.count, rules.delivery_limit);
        match flow {
            Flow::Paused { since } if !is_kept => latest.min(self.since.max(since) + KEPT_IN_PAUSE),
            _ => latest,
        }
    }
}
