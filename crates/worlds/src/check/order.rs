//! The order of messages in queues that keep it.

use rehop::settings::Order;
use rehop_simulator::Time;

use super::{Checker, Promise, TOLERANCE};
use crate::record::AttemptId;
use crate::scenario::{AffectedQueues, AttemptEnd, FaultKind};

impl Checker<'_> {
    pub(super) fn check_order(&mut self, at: Time, message: usize, queued: &[usize]) {
        let plan = &self.scenario.messages[message];
        let order = &self.queue_of(message).order;
        if !order.is_kept() {
            return;
        }
        // What was published again may stand behind later ones.
        let earlier = queued.iter().copied().filter(|other| *other < message).filter(|other| {
            let other_plan = &self.scenario.messages[*other];
            let has_its_key = *order == Order::Queue || other_plan.key == plan.key;
            let came_before =
                self.published.get(other).is_some_and(|published| *published + TOLERANCE < plan.at);
            other_plan.queue == plan.queue
                && has_its_key
                && came_before
                && !self.unconfirmed.contains_key(other)
        });
        // If the leader is silent, what was parked may still be there, too: after its attempts, or
        // at its deadline without one.
        let is_silent = self.is_silent(message, at);
        let may_be_parked = |other: usize| {
            let plan = &self.scenario.messages[other];
            is_silent
                && (self.begun.contains_key(&other)
                    || plan.deadline.is_some_and(|deadline| plan.at + deadline <= at))
        };
        let unended: Vec<_> = earlier
            .filter(|other| !self.may_have_ended(*other) && !may_be_parked(*other))
            .collect();
        if !unended.is_empty() {
            let what = format!(
                "message {message} began before {unended:?}, which came earlier, had ended"
            );
            self.broken(at, Promise::OrderIsKept, what);
        }
    }

    /// Whether the leader of the message's queue is silent.
    pub(super) fn is_silent(&self, message: usize, at: Time) -> bool {
        let queue = self.scenario.messages[message].queue;
        self.scenario.faults.iter().any(|fault| match fault.kind {
            FaultKind::SilentLeader { queues: AffectedQueues::Work(silent), lasts } => {
                silent == queue && fault.at <= at && at <= fault.at + lasts + TOLERANCE
            }
            _ => false,
        })
    }

    /// In an ordered queue, one message of a key is handled at a time. A process whose connection
    /// is gone may not know yet that another one has its messages, so this holds where nothing
    /// breaks.
    pub(super) fn check_line(&mut self, at: Time, message: usize) {
        let plan = &self.scenario.messages[message];
        let order = &self.queue_of(message).order;
        if !order.is_kept()
            || !self.scenario.faults.is_empty()
            || self.kills > 0
            || self.is_taken_back()
        {
            return;
        }
        let is_of_line = |attempt: &&AttemptId| {
            let other = &self.scenario.messages[self.attempts[attempt].message];
            other.queue == plan.queue && (*order == Order::Queue || other.key == plan.key)
        };
        let running = self.running.iter().filter(is_of_line).count();
        if running > 1 {
            let what = format!("{running} handlers of the line of message {message} run at once");
            self.broken(at, Promise::OrderIsKept, what);
        }
    }

    /// Whether a message was handled or discarded, and its ack may be under way.
    pub(super) fn may_have_ended(&self, message: usize) -> bool {
        let endings = self.endings.get(&message).map_or(&[][..], Vec::as_slice);
        let is_final = |ending: &AttemptEnd| {
            matches!(ending, AttemptEnd::Succeeds | AttemptEnd::FailsForGood | AttemptEnd::Discards)
        };
        endings.iter().any(is_final)
    }
}
