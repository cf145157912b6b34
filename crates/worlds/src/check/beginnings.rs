//! What must hold when an attempt begins.

use std::time::Duration;

use rehop::settings::WaitStrategy;
use rehop_simulator::Time;

use super::{Attempt, Checker, Promise, TOLERANCE};
use crate::record::AttemptId;
use crate::scenario::{AttemptEnd, AttemptPlan};

/// How long after its wait a message may begin: a ladder makes the wait longer, and others may be
/// before it. What is held up by a full queue begins three minutes later.
const SOON: Duration = Duration::from_secs(60);

impl Checker<'_> {
    pub(super) fn began(&mut self, at: Time, id: AttemptId, attempt: Attempt) {
        let Attempt { process, message, waits, .. } = attempt;
        if let Some(asked) = self.lives.get(&process).and_then(|life| life.asked_to_stop)
            && at > asked + TOLERANCE
        {
            let what = format!(
                "{process:?} was asked to stop at {asked:.3?}, and message {message} began"
            );
            self.broken(at, Promise::NothingBeginsAfterAStop, what);
        }
        let plan = &self.scenario.messages[message];
        if let Some(deadline) = plan.deadline.map(|deadline| plan.at + deadline)
            && at > deadline + TOLERANCE
            // An operator gives it time again.
            && self.replayed_by(message, at).is_none()
        {
            let what = format!("message {message} was worthless from {deadline:.3?} on, and began");
            self.broken(at, Promise::NothingBeginsExpired, what);
        }
        if let Some(paused) = self.paused.get(&(process, plan.queue))
            && at > *paused + TOLERANCE
        {
            let what = format!(
                "{process:?} paused its queue at {paused:.3?}, and message {message} began"
            );
            self.broken(at, Promise::NothingBeginsInAPause, what);
        }
        self.check_wait(at, message, waits);
        self.check_return(at, message, waits);
        self.attempts.insert(id, attempt);
        self.running.insert(id);
        *self.begun.entry(message).or_default() += 1;
        let queue = self.scenario.messages[message].queue;
        let is_of_queue = |attempt: &&AttemptId| {
            let Attempt { process: by, message, .. } = self.attempts[attempt];
            by == process && self.scenario.messages[message].queue == queue
        };
        let running = self.running.iter().filter(is_of_queue).count();
        self.check_line(at, message);
        let most = usize::from(self.queue_of(message).concurrency);
        if running > most {
            let what =
                format!("{process:?} runs {running} handlers of queue {queue}, and may run {most}");
            self.broken(at, Promise::ConcurrencyIsKept, what);
        }
    }

    /// Each wait is as long as the settings say, at least, after the first attempt that may have
    /// led to it. It comes after the last replay, because waits start again then. Where something
    /// breaks, a copy from before the replay may be left.
    pub(super) fn check_wait(&mut self, at: Time, message: usize, waits: u32) {
        let Some(before) = waits.checked_sub(1) else { return };
        let queue = self.queue_of(message);
        let is_native = queue.strategy == WaitStrategy::Native;
        let since = self
            .replayed_by(message, at)
            .filter(|_| self.is_undisturbed(message))
            .unwrap_or_default();
        let ended_at = self.ended_at.get(&(message, before));
        let led_to_it =
            ended_at.and_then(|times| times.iter().copied().find(|ended| *ended >= since));
        let broken = match (queue.delays.get(before as usize), led_to_it) {
            // What was under way to a subscription that ended comes back as if it had waited.
            (_, None) | (None, _) if is_native => None,
            // It may have been published twice. Then the attempt that was found may be one at the
            // other of the two.
            _ if is_native && self.unconfirmed.contains_key(&message) => None,
            // An ack timeout uses up a wait.
            _ if is_native && self.is_taken_back() => None,
            (Some(delay), Some(ended)) if at >= ended + *delay => None,
            (Some(delay), ended) => Some(format!(
                "wait {waits} of {delay:?} after an attempt that ended at {ended:.3?}"
            )),
            (None, _) => Some(format!("wait {waits}, and its policy has fewer")),
        };
        if let Some(broken) = broken {
            self.broken(
                at,
                Promise::NothingBeginsEarly,
                format!("message {message} began after {broken}"),
            );
        }
    }

    /// What waits for a queue comes back in time where nothing breaks but another queue, which
    /// accepts nothing, and does not wait in the same wait queues.
    fn check_return(&mut self, at: Time, message: usize, waits: u32) {
        let Some(before) = waits.checked_sub(1) else { return };
        let ended = self.ended_at.get(&(message, before)).and_then(|times| times.last()).copied();
        let delay = self.queue_of(message).delays.get(before as usize);
        if let (Some(ended), Some(delay)) = (ended, delay)
            && self.is_beside_full_queues(message)
            && at > ended + *delay + SOON
        {
            let what = format!(
                "message {message} began after wait {waits} of {delay:?}, and the attempt before it ended at {ended:.3?}"
            );
            self.broken(at, Promise::OthersComeBackInTime, what);
        }
    }

    /// Without faults, an attempt knows of all those before it, and of no others. But 3.10 and 4.0
    /// count what is under way to a subscription that ends. Where messages wait in their queue, 4.3
    /// counts it as an attempt and a wait.
    pub(super) fn check_number(&mut self, at: Time, message: usize, number: u32, waits: u32) {
        let is_native = self.queue_of(message).strategy == WaitStrategy::Native;
        let without_attempt = |before: &u32| !self.ended_at.contains_key(&(message, *before));
        let others = if is_native { (0..waits).filter(without_attempt).count() } else { 0 };
        let nth = self.begun.get(&message).copied().unwrap_or(0);
        let attempts = &self.scenario.messages[message].attempts;
        let defers = |attempt: &AttemptPlan| matches!(attempt.ends, AttemptEnd::Defers(_));
        let is_single = self.is_undisturbed(message) && !self.replayed.contains_key(&message);
        if !is_single || self.may_give_back(message) || attempts.iter().any(defers) {
            return;
        }
        if (number as usize) < nth || self.counts_exactly() && number as usize > nth + others {
            let what =
                format!("attempt {nth} of message {message} takes itself for attempt {number}");
            self.broken(at, Promise::AttemptsAreThoseOfThePolicy, what);
        }
    }
}
