//! Finds which copy or exchange is to blame when the broker refuses a copy, or closes a channel or connection.

use std::collections::BTreeSet;
use std::time::Instant;

use super::copies::Place;
use super::{Action, LONGEST_CONFIRM_TIMEOUT, MAX_CLOSES, Outbox, Report, Solo, Timer, Trial};
use crate::broker::lane::cause::{Blame, Cause, Trouble};
use crate::publish::outbox::{CopyId, LaneId};

impl Outbox {
    /// The broker refused this copy. False when the copy was not on that lane.
    ///
    /// It is sent again on a lane of its own: if the limit of the queue is removed, 3.10 goes on refusing on an old channel.
    pub(super) fn refused(&mut self, lane: LaneId, id: CopyId, trouble: Trouble) -> bool {
        let Some(state) = self.copies.get_mut(&id) else { return false };
        let (exchange, send) = (state.exchange, state.last_send);
        match state.place {
            Place::Sent if self.exchanges[exchange].lane == Some(lane) => {
                self.exchanges[exchange].in_flight.remove(&id);
                self.exchanges[exchange].has_refused |= trouble == Trouble::Refused;
            }
            Place::Alone(own) if own == lane => {
                self.release(lane);
                self.actions.push_back(Action::CloseLane(lane));
            }
            _ => return false,
        }
        self.timers.cancel(Timer::Copy(id));
        self.note(id, trouble, "");
        if let Some(state) = self.copies.get_mut(&id) {
            // The broker has answered, so this copy does not break the connection.
            (state.is_apart, state.is_suspect) = (true, false);
        }
        if self.solo == Solo::Trying(id) {
            self.end_solo();
        }
        // The copy reached the exchange, so the exchange exists and may be written to.
        self.took_one(exchange, send);
        self.rest(id);
        true
    }

    /// The broker closed the lane of an exchange. Either it blames the exchange, or any of the copies may be to blame, and each is tried alone,
    /// so that the culprit closes only its own lane. This is so, too, if nothing that was published seems to be to blame: lapin does not always
    /// know why a channel has ended.
    pub(super) fn lane_of_exchange_closed(&mut self, exchange: usize, cause: &Cause, now: Instant) {
        let of = &mut self.exchanges[exchange];
        if let Some(lane) = of.lane.take() {
            self.timers.cancel(Timer::Opening(lane));
        }
        let was_open = std::mem::take(&mut of.is_open);
        of.has_refused = false;
        let in_flight = std::mem::take(&mut of.in_flight);
        in_flight.iter().for_each(|id| self.timers.cancel(Timer::Copy(*id)));
        let (blame, unconfirmed) = (cause.blame(), in_flight.len());
        if was_open && (in_flight.is_empty() || !matches!(blame, Blame::Exchange(_))) {
            self.actions.push_back(Action::Report(Report::Doubt { text: cause.text.clone(), unconfirmed }));
        }
        match blame {
            Blame::Exchange(trouble) => {
                self.blame(exchange, trouble);
                for id in in_flight {
                    self.note(id, trouble, &cause.text);
                    // One that is slow to be confirmed may be stored. It is under way with no other from now on, so it is stored once more at most.
                    if self.was_sent_lately(id, now) { self.enqueue(id) } else { self.set_apart(id) }
                }
            }
            Blame::Nobody | Blame::Copy | Blame::Unknown => {
                if in_flight.is_empty() {
                    // The next lane may be closed for the same reason.
                    self.pause(exchange);
                }
                in_flight.into_iter().for_each(|id| self.set_apart(id));
            }
        }
    }

    fn blame(&mut self, exchange: usize, trouble: Trouble) {
        self.pause(exchange);
        if trouble == Trouble::Missing {
            self.want_repair(exchange);
        }
    }

    /// The broker closed the lane of one copy alone.
    pub(super) fn closed_alone(&mut self, id: CopyId, is_sent: bool, cause: &Cause, now: Instant) {
        let Some(exchange) = self.exchange_of(id) else { return };
        if self.solo == Solo::Trying(id) {
            self.end_solo();
        }
        let blame = cause.blame();
        match blame {
            _ if !is_sent => {}
            Blame::Exchange(trouble) => {
                self.blame(exchange, trouble);
                self.note(id, trouble, &cause.text);
            }
            Blame::Copy | Blame::Nobody | Blame::Unknown => {
                if let Some(state) = self.copies.get_mut(&id) {
                    // It may have been the one that was to find out about its exchange.
                    state.is_apart = true;
                }
                let trouble = if blame == Blame::Copy { Trouble::Malformed } else { Trouble::Closed };
                self.note(id, trouble, &cause.text);
                if blame == Blame::Copy && self.count_close(id, cause, now) {
                    return;
                }
            }
        }
        if !is_sent && self.exchanges[exchange].is_doubtful() {
            // The next copy would need a lane, too.
            self.pause(exchange);
        }
        self.rest(id);
    }

    /// Counts how often the broker closed something over this copy alone. True when the copy is unpublishable.
    pub(super) fn count_close(&mut self, id: CopyId, cause: &Cause, now: Instant) -> bool {
        let Some(state) = self.copies.get_mut(&id) else { return false };
        state.closes += 1;
        if state.closes < MAX_CLOSES {
            return false;
        }
        self.take(id, now);
        self.actions.push_back(Action::Unpublishable(id, cause.text.clone()));
        true
    }

    /// Sends again what was under way on a lost connection, in order. If the broker closed the connection over a copy, those that
    /// were sent lately are suspect, or all of them if none was.
    pub(super) fn connection_over(&mut self, cause: &Cause, now: Instant) {
        let blame = cause.blame();
        let mut suspects = BTreeSet::new();
        if matches!(blame, Blame::Copy | Blame::Unknown) {
            suspects.extend(self.under_way().filter(|id| self.was_sent_lately(*id, now)));
            if suspects.is_empty() {
                suspects.extend(self.under_way());
            }
        }
        for exchange in 0..self.exchanges.len() {
            let of = &mut self.exchanges[exchange];
            (of.is_open, of.has_refused) = (false, false);
            let (lane, in_flight) = (of.lane.take(), std::mem::take(&mut of.in_flight));
            if let Some(lane) = lane {
                self.timers.cancel(Timer::Opening(lane));
            }
            if !self.exchanges[exchange].is_resting {
                // The copy that was to find out finds out nothing any more.
                self.timers.cancel(Timer::Exchange(exchange));
            }
            for id in in_flight {
                self.timers.cancel(Timer::Copy(id));
                if suspects.contains(&id) {
                    self.suspect(id);
                } else {
                    self.enqueue(id);
                }
            }
        }
        let lanes: Vec<LaneId> = self.trials.keys().copied().collect();
        let alone: Vec<Trial> = lanes.into_iter().filter_map(|lane| self.release(lane)).collect();
        for Trial { copy: id, .. } in alone {
            self.timers.cancel(Timer::Copy(id));
            let was_suspect = self.copies.get(&id).is_some_and(|state| state.is_suspect);
            if !suspects.contains(&id) {
                self.enqueue(id);
            } else if suspects.len() > 1 || !was_suspect {
                self.suspect(id);
            } else {
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
                self.exchanges[state.exchange].in_flight.remove(&id);
            }
            return self.set_apart(id);
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
