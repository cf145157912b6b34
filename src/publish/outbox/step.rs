//! Chooses the next action.

use std::time::Instant;

use super::copies::Place;
use super::repair::Repair;
use super::solo::Solo;
use super::{
    Action, Connection, CopyId, LaneId, Outbox, REPAIR_EVERY, Report, TRIALS, Timer, Trial, USUAL_ANSWER_TIME,
};
use crate::broker::lane::cause::Cause;
use crate::pause::pause;

impl Outbox {
    /// The next action, or `None` until another event or [`wake_at`](Self::wake_at). While the broker blocks the connection,
    /// nothing is overdue.
    pub(crate) fn next(&mut self, now: Instant, is_blocked: bool, mut draw: impl FnMut() -> f64) -> Option<Action> {
        loop {
            for (timer, failures) in std::mem::take(&mut self.pauses) {
                self.timers.set(timer, now + pause(failures, draw()));
            }
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
            match self.timers.pop(now) {
                Some(timer) => self.on_timer(timer, now, is_blocked),
                None => return self.advance(now, is_blocked),
            }
        }
    }

    /// When `next` must be called again at the latest.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.timers.first()
    }

    fn on_timer(&mut self, timer: Timer, now: Instant, is_blocked: bool) {
        match timer {
            Timer::Copy(id) => match self.copies.get(&id).map(|state| state.place) {
                Some(Place::Resting) => self.make_ready(id),
                Some(Place::OnMain | Place::Alone(_)) => self.overdue(id, now, is_blocked),
                Some(Place::Queued | Place::Ready | Place::Held) | None => {}
            },
            Timer::Opening(_) | Timer::Probe if is_blocked => self.timers.set(timer, now + self.answer_timeout),
            Timer::Opening(_) => self.connection_lost(&Cause::of("no answer to opening a channel"), now),
            Timer::Probe => self.connection_lost(&Cause::of("no confirm and no answer in time"), now),
            Timer::Usual(lane) => {
                self.unanswered.remove(&lane);
                // The scout's queue is slow to confirm. The other copies of its exchange do not wait for that.
                if let Some(id) = self.trials.get(&lane).map(|trial| trial.copy)
                    && let Some(exchange) = self.exchange_of(id)
                {
                    self.replace_scout(exchange, id);
                }
            }
            Timer::Exchange(exchange) => {
                self.exchanges[exchange].end_pause();
                self.send_scout(exchange);
            }
            Timer::Recovered(exchange) => {
                if self.exchanges[exchange].recover() {
                    let exchange = self.exchanges[exchange].name.clone();
                    self.actions.push_back(Action::Report(Report::Recovered { exchange }));
                }
            }
            Timer::Main => self.main.is_resting = false,
            Timer::Connection => {
                if let Connection::Down { may_connect } = &mut self.connection {
                    *may_connect = true;
                }
            }
            Timer::Repair => self.repair.is_resting = false,
            Timer::Solo => match self.solo {
                Solo::Idle | Solo::Resting => self.solo = Solo::Idle,
                // Everything under way has been for long enough; `advance_alone` sees that.
                Solo::Draining => {}
                Solo::Trying(id) => self.solo_takes_long(id),
            },
        }
    }

    pub(super) fn advance(&mut self, now: Instant, is_blocked: bool) -> Option<Action> {
        match self.connection {
            Connection::Down { may_connect: true } => {
                self.connection = Connection::Connecting;
                return Some(Action::Connect);
            }
            Connection::Down { may_connect: false } | Connection::Connecting => return None,
            Connection::Up { .. } => {}
        }
        if self.repair.is_wanted && !self.repair.is_running && !self.repair.is_resting {
            self.repair = Repair { is_wanted: false, is_running: true, is_resting: true, ..self.repair };
            self.begin_repair();
            self.timers.set(Timer::Repair, now + REPAIR_EVERY);
            return Some(Action::Repair);
        }
        if self.main.lane.is_none() && !self.main.is_resting {
            let lane = self.open_lane(now);
            self.main.lane = Some(lane);
            return Some(Action::OpenLane(lane));
        }
        if self.repair.is_of_all {
            // An exchange without its bindings would send everything to the stray queue.
            return None;
        }
        match self.solo {
            Solo::Draining | Solo::Trying(_) => return self.advance_alone(now, is_blocked),
            Solo::Idle if !self.suspects.is_empty() && !is_blocked => {
                self.solo = Solo::Draining;
                self.timers.set(Timer::Solo, now + USUAL_ANSWER_TIME);
                return self.advance_alone(now, is_blocked);
            }
            Solo::Idle | Solo::Resting => {}
        }
        if is_blocked {
            // lapin would keep what is sent now, and send it after the alarm, although its delivery may have gone back meanwhile.
            return None;
        }
        if let Some(action) = self.send_on_main(now) {
            return Some(action);
        }
        if let Some(lane) = self.opened.iter().copied().find(|lane| !self.is_under_repair(*lane)) {
            self.opened.remove(&lane);
            return self.send_alone(lane, now);
        }
        while self.unanswered.len() < TRIALS {
            let id = self.ready.pop_first()?;
            if self.must_be_held(id) {
                self.hold(id);
                continue;
            }
            return Some(self.try_alone(id, now));
        }
        None
    }

    fn send_on_main(&mut self, now: Instant) -> Option<Action> {
        let lane = self.main.lane.filter(|_| self.main.is_open)?;
        while let Some(id) = self.queue.pop_first() {
            if self.must_be_held(id) {
                self.hold(id);
                continue;
            }
            self.main.in_flight.insert(id);
            return Some(self.send(lane, id, Place::OnMain, now));
        }
        None
    }

    pub(super) fn try_alone(&mut self, id: CopyId, now: Instant) -> Action {
        let lane = self.open_lane(now);
        self.trials.insert(lane, Trial { copy: id, is_sent: false });
        self.unanswered.insert(lane);
        self.timers.set(Timer::Usual(lane), now + USUAL_ANSWER_TIME);
        if let Some(state) = self.copies.get_mut(&id) {
            state.place = Place::Alone(lane);
        }
        Action::OpenLane(lane)
    }

    pub(super) fn send_alone(&mut self, lane: LaneId, now: Instant) -> Option<Action> {
        let of_copy = self.trials.get_mut(&lane)?;
        of_copy.is_sent = true;
        let id = of_copy.copy;
        self.timers.set(Timer::Usual(lane), now + USUAL_ANSWER_TIME);
        Some(self.send(lane, id, Place::Alone(lane), now))
    }

    fn send(&mut self, lane: LaneId, id: CopyId, place: Place, now: Instant) -> Action {
        let mut again = false;
        self.sends += 1;
        if let Some(state) = self.copies.get_mut(&id) {
            again = std::mem::replace(&mut state.was_sent, true);
            state.place = place;
            state.sent_at = Some(now);
            state.awaited_since = Some(now);
            state.send = self.sends;
            state.confirm_timeout = self.answer_timeout;
        }
        self.timers.set(Timer::Copy(id), now + self.answer_timeout);
        Action::Send { lane, id, again }
    }

    fn open_lane(&mut self, now: Instant) -> LaneId {
        let lane = LaneId(self.next_lane);
        self.next_lane += 1;
        self.timers.set(Timer::Opening(lane), now + self.answer_timeout);
        lane
    }
}
