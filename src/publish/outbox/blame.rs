//! Finds which copy or exchange is to blame when the broker rejects a copy, or closes a channel or connection.

use std::collections::BTreeSet;
use std::time::Instant;

use super::copies::Place;
use super::{Action, LONGEST_CONFIRM_TIMEOUT, MAX_CLOSES, Main, Outbox, Report, Solo, Timer, Trial};
use crate::broker::lane::cause::{Blame, Cause, Trouble};
use crate::publish::outbox::{CopyId, LaneId};

impl Outbox {
    /// The broker rejected this copy. False when the copy was not on that lane.
    pub(super) fn refused(&mut self, lane: LaneId, id: CopyId, trouble: Trouble) -> bool {
        let was_alone = self.copies.get(&id).is_some_and(|state| matches!(state.place, Place::Alone(_)));
        match self.copies.get(&id).map(|state| state.place) {
            Some(Place::OnMain) if self.main.lane == Some(lane) => {
                self.main.in_flight.remove(&id);
            }
            Some(Place::Alone(own)) if own == lane => {
                self.release(lane);
                self.actions.push_back(Action::CloseLane(lane));
            }
            Some(_) | None => return false,
        }
        self.timers.cancel(Timer::Copy(id));
        self.note(id, trouble, "");
        self.failed(id);
        // The broker has answered, so this copy does not break the connection.
        if let Some(state) = self.copies.get_mut(&id) {
            state.is_suspect = false;
        }
        if self.solo == Solo::Trying(id) {
            self.end_solo();
        }
        // The copy reached the exchange, so the exchange exists and may be written to.
        if let Some(exchange) = self.exchange_of(id)
            && was_alone
        {
            let send = self.copies.get(&id).map_or(0, |state| state.send);
            self.took_one(exchange, id, send);
        }
        self.rest(id);
        true
    }

    /// The broker closed the main lane. If it names an exchange, the copies to that exchange are to blame. If not, any copy may
    /// be, and each is tried alone, so that the culprit closes only its own lane.
    pub(super) fn main_closed(&mut self, lane: LaneId, cause: &Cause) {
        self.timers.cancel(Timer::Opening(lane));
        let failures = self.main.failures;
        let in_flight = std::mem::take(&mut self.main).in_flight;
        let (mut is_explained, mut is_anything_set_apart) = (false, false);
        let closed = match cause.blame() {
            Blame::Exchange(name, trouble) => {
                let exchange = self.exchange(&name);
                self.close(exchange);
                if trouble == Trouble::Missing {
                    self.want_repair(exchange);
                }
                Some((exchange, trouble))
            }
            Blame::Nobody | Blame::Copy | Blame::Unknown => None,
        };
        let unconfirmed = in_flight.len();
        for id in in_flight {
            self.timers.cancel(Timer::Copy(id));
            match closed {
                Some((exchange, trouble)) if self.exchange_of(id) == Some(exchange) => {
                    (is_explained, is_anything_set_apart) = (true, true);
                    self.set_apart(id);
                    self.note(id, trouble, &cause.text);
                    self.hold(id);
                }
                Some(_) => self.enqueue(id),
                None => {
                    is_anything_set_apart = true;
                    self.set_apart(id);
                    self.make_ready(id);
                }
            }
        }
        // The next lane would carry the same copies, or none, and may be closed for the same reason.
        if !is_anything_set_apart {
            self.main.is_resting = true;
            self.main.failures = failures.saturating_add(1);
            self.pauses.push((Timer::Main, failures));
        }
        if !is_explained {
            self.actions.push_back(Action::Report(Report::Doubt { text: cause.text.clone(), unconfirmed }));
        }
    }

    /// The broker closed the lane of one copy alone.
    pub(super) fn closed_alone(&mut self, id: CopyId, is_sent: bool, cause: &Cause, now: Instant) {
        let Some(exchange) = self.exchange_of(id) else { return };
        self.failed(id);
        if matches!(self.solo, Solo::Trying(suspect) if suspect == id) {
            self.end_solo();
        }
        match cause.blame() {
            _ if !is_sent => {}
            Blame::Exchange(_, trouble) => {
                if trouble == Trouble::Missing {
                    self.want_repair(exchange);
                }
                self.note(id, trouble, &cause.text);
                if self.exchanges[exchange].is_scout(id) {
                    self.scout_failed(exchange);
                } else {
                    self.close(exchange);
                }
                return self.hold(id);
            }
            Blame::Copy => {
                self.note(id, Trouble::Malformed, &cause.text);
                if self.count_close(id, cause, now) {
                    return;
                }
            }
            Blame::Nobody | Blame::Unknown => self.note(id, Trouble::Closed, &cause.text),
        }
        if self.exchanges[exchange].is_scout(id) {
            self.scout_failed(exchange);
        }
        self.rest(id);
    }

    /// Counts how often the broker closed something over this copy alone. True when the copy is given up.
    pub(super) fn count_close(&mut self, id: CopyId, cause: &Cause, now: Instant) -> bool {
        let Some(state) = self.copies.get_mut(&id) else { return false };
        state.closes += 1;
        if state.closes < MAX_CLOSES {
            return false;
        }
        if let Some(state) = self.take(id, now) {
            self.replace_scout(state.exchange, id);
        }
        self.actions.push_back(Action::Unpublishable(id, cause.text.clone()));
        true
    }

    /// Sends again what was under way on a lost connection, in order. If the broker closed the connection over a copy, those that
    /// were sent lately are suspect, or all of them if none was.
    pub(super) fn send_elsewhere(&mut self, cause: &Cause, now: Instant) {
        let blame = cause.blame();
        let mut suspects = BTreeSet::new();
        if matches!(blame, Blame::Copy | Blame::Unknown) {
            suspects.extend(self.under_way().filter(|id| self.was_sent_lately(*id, now)));
            if suspects.is_empty() {
                suspects.extend(self.under_way());
            }
        }
        let failures = self.main.failures;
        let main = std::mem::replace(&mut self.main, Main { failures, ..Main::default() });
        if let Some(lane) = main.lane {
            self.timers.cancel(Timer::Opening(lane));
        }
        self.timers.cancel(Timer::Main);
        let lanes: Vec<LaneId> = self.trials.keys().copied().collect();
        let alone: Vec<Trial> = lanes.into_iter().filter_map(|lane| self.release(lane)).collect();
        for id in main.in_flight {
            self.timers.cancel(Timer::Copy(id));
            if suspects.contains(&id) {
                self.suspect(id);
            } else {
                self.enqueue(id);
            }
        }
        for Trial { copy: id, .. } in alone {
            self.timers.cancel(Timer::Copy(id));
            let was_suspect = self.copies.get(&id).is_some_and(|state| state.is_suspect);
            if !suspects.contains(&id) {
                self.make_ready(id);
            } else if suspects.len() > 1 || !was_suspect {
                self.suspect(id);
            } else {
                self.failed(id);
                self.note(id, Trouble::Malformed, &cause.text);
                if !(blame == Blame::Copy && self.count_close(id, cause, now)) {
                    self.rest(id);
                }
            }
        }
    }

    /// The confirm is late. On a live connection it still comes, and sending the copy again would store it twice.
    pub(super) fn overdue(&mut self, id: CopyId, now: Instant, is_blocked: bool) {
        let Some(state) = self.copies.get_mut(&id) else { return };
        let since = *state.awaited_since.get_or_insert(now);
        if is_blocked {
            state.awaited_since = Some(now);
        } else if now.saturating_duration_since(since)
            >= LONGEST_CONFIRM_TIMEOUT.saturating_mul(1 << state.resends.min(10))
        {
            // Each further send may store the copy once more, so the next one takes twice as long.
            state.resends += 1;
            if let Place::Alone(lane) = state.place {
                self.release(lane);
                self.actions.push_back(Action::CloseLane(lane));
            } else {
                self.main.in_flight.remove(&id);
                self.set_apart(id);
            }
            return self.make_ready(id);
        } else {
            state.confirm_timeout = state.confirm_timeout.saturating_mul(2).min(LONGEST_CONFIRM_TIMEOUT);
        }
        self.timers.set(Timer::Copy(id), now + state.confirm_timeout);
        if is_blocked {
            return;
        }
        self.note(id, Trouble::Unconfirmed, "");
        if !self.is_probing {
            self.is_probing = true;
            self.timers.set(Timer::Probe, now + self.answer_timeout);
            self.actions.push_back(Action::Probe);
        }
    }
}
