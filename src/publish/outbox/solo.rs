//! Suspects: copies that were under way when the broker closed the connection, and may be why. They are tried one at a time, with
//! nothing sent beside them.

use std::time::Instant;

use super::{Action, CopyId, LaneId, Outbox, Timer, USUAL_ANSWER_TIME};

/// Whether a suspect has the connection to itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Solo {
    Idle,
    /// The pause between two suspects, in which all other copies are sent.
    Resting,
    /// Nothing is sent until what is under way is confirmed, or has been under way for too long to break the connection.
    Draining,
    Trying(CopyId),
}

impl Outbox {
    /// Tries the oldest suspect once nothing that is under way can break the connection.
    ///
    /// The broker opens the suspect's lane only after it has read everything that was sent before. If it closes the connection
    /// after that, the suspect is to blame, whatever else is unconfirmed. While the broker blocks the connection it reads
    /// nothing, so the time that has passed proves nothing.
    pub(super) fn advance_alone(&mut self, now: Instant, is_blocked: bool) -> Option<Action> {
        if self.solo == Solo::Draining && !is_blocked && self.under_way().all(|id| !self.was_sent_lately(id, now)) {
            let Some(id) = self.next_suspect() else {
                self.solo = Solo::Idle;
                return self.advance(now, is_blocked);
            };
            self.suspects.remove(&id);
            self.solo = Solo::Trying(id);
            self.timers.set(Timer::Solo, now + USUAL_ANSWER_TIME + self.answer_timeout);
            return Some(self.try_alone(id, now));
        }
        let Solo::Trying(id) = self.solo else { return None };
        if is_blocked {
            return None;
        }
        let is_its_lane = |lane: &&LaneId| self.trials.get(lane).is_some_and(|trial| trial.copy == id);
        let lane = *self.opened.iter().find(is_its_lane)?;
        if !self.exchanges[self.exchange_of(id)?].is_ready() {
            // The others do not wait for its exchange.
            self.solo_takes_long(id);
            return self.actions.pop_front();
        }
        self.opened.remove(&lane);
        self.timers.set(Timer::Solo, now + USUAL_ANSWER_TIME);
        self.send_alone(lane, now)
    }

    /// The oldest suspect whose exchange may be sent to.
    pub(super) fn next_suspect(&self) -> Option<CopyId> {
        let is_ready =
            |id: &&CopyId| self.exchange_of(**id).is_some_and(|exchange| self.exchanges[exchange].is_ready());
        self.suspects.iter().find(is_ready).copied()
    }

    /// Every copy that was sent on this connection and has no answer yet.
    pub(super) fn under_way(&self) -> impl Iterator<Item = CopyId> + '_ {
        let alone = self.trials.values().filter(|trial| trial.is_sent).map(|trial| trial.copy);
        self.exchanges.iter().flat_map(|exchange| exchange.in_flight.iter().copied()).chain(alone)
    }

    /// Whether the broker may still close something because of this copy. When it does, it does so at once.
    pub(super) fn was_sent_lately(&self, id: CopyId, now: Instant) -> bool {
        let sent_at = self.copies.get(&id).and_then(|state| state.sent_at);
        sent_at.is_some_and(|sent_at| now.saturating_duration_since(sent_at) < USUAL_ANSWER_TIME)
    }

    /// A copy that breaks the connection does so at once. If this one was sent, it is cleared, although its confirm is still to come. If not, it
    /// is tried later.
    pub(super) fn solo_takes_long(&mut self, id: CopyId) {
        self.end_solo();
        let unsent = self.trials.iter().find(|(_, lane)| lane.copy == id && !lane.is_sent).map(|(lane, _)| *lane);
        if let Some(lane) = unsent {
            let was_opened = self.opened.contains(&lane);
            self.release(lane);
            if was_opened {
                self.actions.push_back(Action::CloseLane(lane));
            }
            self.enqueue(id);
        }
    }

    pub(super) fn end_solo(&mut self) {
        self.solo = Solo::Resting;
        self.timers.cancel(Timer::Solo);
        self.pauses.push((Timer::Solo, 0));
    }

    pub(super) fn suspect(&mut self, id: CopyId) {
        if let Some(state) = self.copies.get_mut(&id) {
            state.is_suspect = true;
        }
        self.set_apart(id);
    }
}
