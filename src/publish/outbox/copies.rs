//! Where each copy is, and what is known about it.

use std::time::{Duration, Instant};

use super::{Action, CopyId, LaneId, Outbox, RECOVERED_AFTER, Report, Solo, Timer, Trial};
use crate::broker::lane::cause::Trouble;

/// Where a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// To be sent on the main lane.
    Queued,
    OnMain,
    /// Until its pause is over.
    Resting,
    /// To be tried as soon as there is a free trial.
    Ready,
    /// Until its exchange takes copies again.
    Held,
    /// A lane of its own, perhaps still being opened.
    Alone(LaneId),
}

#[derive(Debug)]
pub(super) struct CopyState {
    pub(super) exchange: usize,
    pub(super) place: Place,
    /// The main lane was closed while it was under way, or it was not taken there: it never goes back to the main lane.
    pub(super) is_apart: bool,
    /// The broker closed a connection while it was under way, and it may be why: it is tried with nothing sent beside it.
    pub(super) is_suspect: bool,
    pub(super) is_in_trouble: bool,
    pub(super) was_sent: bool,
    pub(super) sent_at: Option<Instant>,
    /// When it was sent, or when its confirm was last overdue while the broker blocked the connection.
    pub(super) awaited_since: Option<Instant>,
    /// The number of its last send, counted over all copies.
    pub(super) send: u64,
    pub(super) confirm_timeout: Duration,
    /// How often it was not taken.
    pub(super) tries: u32,
    pub(super) closes: u32,
    /// How often it was sent again on a live connection because its confirm did not come.
    pub(super) resends: u32,
}

impl Outbox {
    pub(super) fn enqueue(&mut self, id: CopyId) {
        self.put(id, Place::Queued);
        self.queue.insert(id);
    }

    pub(super) fn set_apart(&mut self, id: CopyId) {
        if let Some(state) = self.copies.get_mut(&id) {
            state.is_apart = true;
        }
    }

    pub(super) fn make_ready(&mut self, id: CopyId) {
        self.put(id, Place::Ready);
        if self.copies.get(&id).is_some_and(|state| state.is_suspect) {
            self.suspects.insert(id);
        } else {
            self.ready.insert(id);
        }
    }

    pub(super) fn failed(&mut self, id: CopyId) {
        self.set_apart(id);
        if let Some(state) = self.copies.get_mut(&id) {
            state.tries = state.tries.saturating_add(1);
        }
    }

    /// Pauses the copy, for longer with each failure.
    pub(super) fn rest(&mut self, id: CopyId) {
        self.put(id, Place::Resting);
        let tries = self.copies.get(&id).map_or(0, |state| state.tries);
        self.pauses.push((Timer::Copy(id), tries.saturating_sub(1)));
    }

    pub(super) fn put(&mut self, id: CopyId, place: Place) {
        if let Some(state) = self.copies.get_mut(&id) {
            state.place = place;
        }
    }

    /// Forgets a copy, wherever it is.
    pub(super) fn take(&mut self, id: CopyId, now: Instant) -> Option<CopyState> {
        let state = self.copies.remove(&id)?;
        self.timers.cancel(Timer::Copy(id));
        self.pauses.retain(|(timer, _)| *timer != Timer::Copy(id));
        match state.place {
            Place::Queued => {
                self.queue.remove(&id);
            }
            Place::OnMain => {
                self.main.in_flight.remove(&id);
            }
            Place::Resting => {}
            Place::Ready => {
                self.ready.remove(&id);
                self.suspects.remove(&id);
            }
            Place::Held => self.exchanges[state.exchange].let_go(id),
            Place::Alone(lane) => {
                // A lane that is still being opened is closed once it is open.
                let was_opened = self.opened.contains(&lane);
                if self.release(lane).is_some_and(|trial| trial.is_sent) || was_opened {
                    self.actions.push_back(Action::CloseLane(lane));
                }
            }
        }
        if self.solo == Solo::Trying(id) {
            self.end_solo();
        }
        if state.is_in_trouble && self.exchanges[state.exchange].one_less_in_trouble() {
            self.timers.set(Timer::Recovered(state.exchange), now + RECOVERED_AFTER);
        }
        Some(state)
    }

    /// Forgets the lane of one copy.
    pub(super) fn release(&mut self, lane: LaneId) -> Option<Trial> {
        self.timers.cancel(Timer::Opening(lane));
        self.timers.cancel(Timer::Usual(lane));
        self.opened.remove(&lane);
        self.unanswered.remove(&lane);
        self.trials.remove(&lane)
    }

    /// Records that a copy is in trouble, and reports the trouble if it is new for the exchange.
    pub(super) fn note(&mut self, id: CopyId, trouble: Trouble, text: &str) {
        let Some(state) = self.copies.get_mut(&id) else { return };
        let exchange = &mut self.exchanges[state.exchange];
        if !std::mem::replace(&mut state.is_in_trouble, true) {
            exchange.one_more_in_trouble();
        }
        if exchange.is_news(trouble) {
            let (exchange, text) = (exchange.name.clone(), text.to_owned());
            self.actions.push_back(Action::Report(Report::Trouble { exchange, trouble, text }));
        }
    }
}
