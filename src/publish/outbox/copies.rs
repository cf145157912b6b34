//! Where each copy is, and what is known about it.

use std::time::{Duration, Instant};

use super::{Action, CopyId, LaneId, Outbox, RECOVERED_AFTER, Report, Solo, Timer, Trial};
use crate::broker::lane::cause::Trouble;

/// Where a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// To be sent as soon as its exchange takes it.
    Queued,
    /// Under way on the lane of its exchange.
    Sent,
    /// Until its pause is over.
    Resting,
    /// A lane of its own, perhaps still being opened.
    Alone(LaneId),
}

#[derive(Debug)]
pub(super) struct CopyState {
    pub(super) exchange: usize,
    pub(super) place: Place,
    /// The broker refused it, did not confirm it, or may have closed a lane over it: it is tried on a lane of its own.
    pub(super) is_apart: bool,
    /// The broker closed a connection while it was under way, and it may be why: it is tried with nothing sent beside it.
    pub(super) is_suspect: bool,
    pub(super) is_in_trouble: bool,
    pub(super) was_sent: bool,
    pub(super) sent_at: Option<Instant>,
    /// When it was sent, or when its confirm was last overdue while the broker blocked the connection.
    pub(super) awaited_since: Option<Instant>,
    /// The number of its last send, counted over all copies.
    pub(super) last_send: u64,
    pub(super) confirm_timeout: Duration,
    /// How often it was not taken.
    pub(super) tries: u32,
    pub(super) closes: u32,
    /// How often it was sent again on a live connection because its confirm did not come.
    pub(super) resends: u32,
}

impl Outbox {
    /// The copy is to be sent, in the way that it has to be.
    pub(super) fn enqueue(&mut self, id: CopyId) {
        let Some(state) = self.copies.get_mut(&id) else { return };
        state.place = Place::Queued;
        let exchange = &mut self.exchanges[state.exchange];
        let queue = match (state.is_suspect, state.is_apart) {
            (true, _) => &mut self.suspects,
            (false, true) => &mut exchange.apart,
            (false, false) => &mut exchange.queue,
        };
        queue.insert(id);
    }

    pub(super) fn set_apart(&mut self, id: CopyId) {
        if let Some(state) = self.copies.get_mut(&id) {
            state.is_apart = true;
        }
        self.enqueue(id);
    }

    /// The broker did not take the copy, which pauses, for longer each time.
    pub(super) fn rest(&mut self, id: CopyId) {
        if let Some(state) = self.copies.get_mut(&id) {
            state.place = Place::Resting;
            self.pauses.push((Timer::Copy(id), state.tries));
            state.tries = state.tries.saturating_add(1);
        }
    }

    /// Forgets a copy, wherever it is.
    pub(super) fn take(&mut self, id: CopyId, now: Instant) -> Option<CopyState> {
        let state = self.copies.remove(&id)?;
        self.timers.cancel(Timer::Copy(id));
        self.pauses.retain(|(timer, _)| *timer != Timer::Copy(id));
        match state.place {
            Place::Queued => {
                self.suspects.remove(&id);
                self.exchanges[state.exchange].queue.remove(&id);
                self.exchanges[state.exchange].apart.remove(&id);
            }
            Place::Sent => {
                self.exchanges[state.exchange].in_flight.remove(&id);
            }
            Place::Resting => {}
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
        self.recent.remove(&lane);
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
