//! What must hold for a process: of the service, and of an operator.

use std::time::Duration;

use rehop_simulator::Time;

use super::{Attempt, Checker, Promise, TOLERANCE};
use crate::network::Process;
use crate::record::AttemptId;
use crate::run::RunOutcome;
use crate::scenario::{AttemptEnd, Fault, FaultKind};

impl Checker<'_> {
    pub(super) fn stopped(&mut self, at: Time, process: Process, result: &Result<String, String>) {
        let life = self.lives.entry(process).or_default();
        life.has_ended = true;
        let asked_to_stop = life.asked_to_stop;
        match asked_to_stop {
            Some(asked) if at > asked + self.scenario.grace + Duration::from_secs(1) => {
                let what = format!(
                    "{process:?} was asked to stop at {asked:.3?}, and took longer than its grace time"
                );
                self.broken(at, Promise::StopsEnd, what);
            }
            // It does not start if its queues are deleted meanwhile. If it has started to consume
            // another queue, that has its grace time.
            _ if result.is_err() && self.deletes_queues_around(at) => {}
            None => {
                let what = format!("{process:?} stopped by itself: {result:?}");
                self.broken(at, Promise::EverythingEnds, what);
            }
            Some(_) => {
                if let Err(error) = result {
                    self.broken(
                        at,
                        Promise::StopsEnd,
                        format!("{process:?} was asked to stop, and failed: {error}"),
                    );
                }
            }
        }
    }

    pub(super) fn dropped(&mut self, at: Time, id: AttemptId) {
        let Attempt { process, message, .. } = self.attempts[&id];
        self.ended(at, id);
        let queue = self.queue_of(message);
        let life = self.lives.entry(process).or_default();
        // A handler of an ordered queue ends with its channel, and one that hangs at its time
        // limit.
        let Some(asked) = life.asked_to_stop.filter(|_| !queue.order.is_kept()) else { return };
        let handlers_until = asked + self.scenario.grace - closing_time(self.scenario.grace);
        if at + TOLERANCE < handlers_until && !self.may_hang(message) {
            let what = format!(
                "a handler of message {message} was dropped, although {process:?} was asked to stop at {asked:.3?} and the grace \
                 time for handlers lasts until {handlers_until:.3?}"
            );
            self.broken(at, Promise::HandlersMayFinish, what);
        }
    }

    /// A copy that is never confirmed leaves its message to the broker, which is held no longer.
    pub(super) fn check_held(&mut self, at: Time, outcome: &RunOutcome) {
        if !self.scenario.faults.iter().all(|fault| matches!(fault.kind, FaultKind::Kill { .. })) {
            return;
        }
        for ((process, queue), held) in &outcome.held {
            let most = usize::from(self.scenario.queues[*queue].prefetch);
            if *held > most {
                let what = format!(
                    "{process:?} held {held} messages of queue {queue}, and its prefetch is {most}"
                );
                self.broken(at, Promise::PrefetchIsKept, what);
            }
        }
    }

    pub(super) fn may_hang(&self, message: usize) -> bool {
        let plan = &self.scenario.messages[message];
        plan.attempts.iter().any(|attempt| attempt.ends == AttemptEnd::Hangs)
    }

    pub(super) fn replay_ended(
        &mut self,
        at: Time,
        process: Process,
        result: &Result<String, String>,
    ) {
        self.replaying.remove(&process);
        let replays = &self.scenario.replays;
        // Two operators do not work on one queue. And an operator may hold messages for longer than
        // an ack timeout that the settings do not know.
        let is_undisturbed = self.scenario.faults.is_empty()
            && !self.is_taken_back()
            && replays.len() == 1
            && replays.iter().all(|replay| replay.disturbed.is_none());
        if let Err(error) = result
            && is_undisturbed
        {
            self.broken(
                at,
                Promise::ReplaysEnd,
                format!("a replay failed, although nothing broke: {error}"),
            );
        }
    }

    pub(super) fn deletes_queues_around(&self, at: Time) -> bool {
        let is_near = |fault: &Fault| {
            fault.at < at && at < fault.at + Duration::from_secs(5) + self.scenario.grace
        };
        let faults = &self.scenario.faults;
        faults.iter().any(|fault| fault.kind == FaultKind::DeleteEmptyQueues && is_near(fault))
    }
}

/// How much of a grace time is not for handlers.
fn closing_time(grace: Duration) -> Duration {
    (grace / 5).min(Duration::from_secs(2))
}
