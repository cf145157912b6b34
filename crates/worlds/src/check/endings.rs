//! Where each message ended, and after how many attempts.

use std::time::Duration;

use rehop::settings::WaitStrategy;
use rehop_simulator::Time;

use super::{Checker, Promise};
use crate::run::RunOutcome;
use crate::scenario::{AttemptEnd, QueuePlan};

/// In drawn worlds, a wait or an attempt takes a minute at most. What takes longest are several
/// rounds of the broker's dead-lettering, which tries again every three minutes: six minutes in the
/// longest standstill of 60,000 worlds.
const LONGEST_STANDSTILL: Duration = Duration::from_secs(600);

impl Checker<'_> {
    /// Called at each event: the one before it must not have been too long ago.
    pub(super) fn check_standstill(&mut self, at: Time) {
        let Some(last_event_at) = &mut self.last_event_at else { return };
        let before = std::mem::replace(last_event_at, at);
        if at > before + LONGEST_STANDSTILL {
            let what = format!("nothing breaks any more, and nothing happened since {before:.0?}");
            self.broken(at, Promise::NothingStandsStill, what);
        }
    }

    /// Counts the ends of a message.
    pub(super) fn account(&mut self, at: Time, message: usize, outcome: &RunOutcome) {
        let name = message.to_string();
        let endings = self.endings.get(&message).cloned().unwrap_or_default();
        let handled = endings.iter().filter(|ending| **ending == AttemptEnd::Succeeds).count();
        let discarded = endings.iter().filter(|ending| **ending == AttemptEnd::Discards).count();
        let left: usize = outcome
            .queues
            .values()
            .map(|view| view.messages().filter(|message| **message == name).count())
            .sum();
        let ends = handled + discarded + left;
        let is_alone = self.is_innocent(message) && !self.may_use_up_attempts(message);
        let is_parked_beside_poison =
            left > 0 && is_alone && self.is_of_poison() && !self.is_behind_poison(message);
        if is_parked_beside_poison && !self.has_used_up_attempts(message) {
            let what = format!("message {message} kills no process, and was parked");
            self.broken(at, Promise::PoisonIsParkedAlone, what);
        }
        if left > 0 && self.is_never_late(message) {
            let what = format!(
                "message {message} is handled in time whenever it is attempted, and was parked"
            );
            self.broken(at, Promise::NothingFineIsParked, what);
        }
        if ends == 0 && !self.expired.contains(&message) && !self.may_be_deleted(message) {
            let is_confirmed = self.published.contains_key(&message);
            let what = format!(
                "message {message} (confirmed: {is_confirmed}) ended nowhere; its attempts: {endings:?}"
            );
            self.broken(at, Promise::NothingIsLost, what);
        }
        // What was published again may have been stored each time, and each fault may double each
        // of these.
        let published = 1 + self.unconfirmed.get(&message).copied().unwrap_or(0);
        let disruptions = self.disruptions(outcome);
        if ends > published * (1 + disruptions) {
            let what = format!(
                "message {message} was handled {handled} times, discarded {discarded} times and is left {left} times; \
                 it was published {published} times, and {disruptions} faults allow for duplicates"
            );
            self.broken(at, Promise::DuplicatesHaveACause, what);
        }
        let is_timeless =
            self.scenario.messages[message].deadline.is_none() && !self.may_give_back(message);
        if is_timeless
            && !self.is_taken_back()
            && !self.replayed.contains_key(&message)
            && self.scenario.faults.is_empty()
            && self.kills == 0
        {
            self.check_attempts(at, message, handled, left);
        }
    }

    /// Attempts that are exactly those of the policy. Fewer of those at once are possible where
    /// subscriptions end, because 3.10 and 4.0 count what was under way to them.
    pub(super) fn check_attempts(&mut self, at: Time, message: usize, handled: usize, left: usize) {
        let plan = &self.scenario.messages[message];
        let endings = || plan.attempts.iter().map(|attempt| attempt.ends);
        let is_countable = |ending| {
            matches!(
                ending,
                AttemptEnd::Fails
                    | AttemptEnd::Requeues
                    | AttemptEnd::Panics
                    | AttemptEnd::Succeeds
            )
        };
        if !endings().all(is_countable) {
            return;
        }
        let (most, least) = self.attempts_in(message);
        let begun = self.begun.get(&message).copied().unwrap_or(0);
        let succeeds = endings().position(|ending| ending == AttemptEnd::Succeeds);
        let is_as_planned = match succeeds {
            Some(position) if position < least => {
                begun == position + 1 && (handled, left) == (1, 0)
            }
            Some(position) if position < most => match (handled, left) {
                (1, 0) => begun == position + 1,
                (0, 1) => (least..=most).contains(&begun),
                _ => false,
            },
            _ => (least..=most).contains(&begun) && (handled, left) == (0, 1),
        };
        if !is_as_planned {
            let what = format!(
                "message {message} had {begun} attempts, was handled {handled} times and is left {left} times; its policy gives it \
                 {least} to {most} attempts, and its plan is {:?}",
                plan.attempts
            );
            self.broken(at, Promise::AttemptsAreThoseOfThePolicy, what);
        }
    }

    /// The most attempts that a message can get if nothing breaks, and the fewest.
    pub(super) fn attempts_in(&self, message: usize) -> (usize, usize) {
        let QueuePlan { immediate, delays, strategy, .. } = self.queue_of(message);
        let (immediate, waits) = (*immediate as usize, delays.len());
        let most = match strategy {
            WaitStrategy::Native => immediate + waits + 1,
            _ => (immediate + 1) * (waits + 1),
        };
        (most, if self.counts_exactly() { most } else { waits + 1 })
    }
}
