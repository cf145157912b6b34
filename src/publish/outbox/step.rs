//! Chooses the next action.

use std::time::Instant;

use super::copies::Place;
use super::exchange::Exchange;
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
                Some(Place::Resting) => self.enqueue(id),
                Some(Place::Sent | Place::Alone(_)) => self.overdue(id, now, is_blocked),
                Some(Place::Queued) | None => {}
            },
            Timer::Opening(_) | Timer::Probe if is_blocked => self.timers.set(timer, now + self.answer_timeout),
            Timer::Opening(_) => self.connection_lost(&Cause::of("no answer to opening a channel"), now),
            Timer::Probe => self.connection_lost(&Cause::of("no confirm and no answer in time"), now),
            // The other copies that are apart do not wait for a queue that is slow to confirm.
            Timer::Usual(lane) => drop(self.recent.remove(&lane)),
            // Its pause is over. Or the copy that finds out has had no answer for long, and the next one may be sent.
            Timer::Exchange(exchange) => self.exchanges[exchange].is_resting = false,
            Timer::Recovered(exchange) => {
                if self.exchanges[exchange].recover() {
                    let exchange = self.exchanges[exchange].name.clone();
                    self.actions.push_back(Action::Report(Report::Recovered { exchange }));
                }
            }
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
        let is_laneless = |of: &Exchange| of.lane.is_none() && !of.is_resting;
        if let Some(exchange) = self.exchanges.iter().position(is_laneless) {
            let lane = self.open_lane(now);
            self.exchanges[exchange].lane = Some(lane);
            return Some(Action::OpenLane(lane));
        }
        if self.repair.is_of_all {
            // An exchange without its bindings would send everything to the stray queue.
            return None;
        }
        match self.solo {
            Solo::Draining | Solo::Trying(_) => return self.advance_alone(now, is_blocked),
            Solo::Idle if !is_blocked && self.next_suspect().is_some() => {
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
        (0..self.exchanges.len()).find_map(|exchange| self.send_to(exchange, now)).or_else(|| self.send_apart(now))
    }

    /// The next copy in good standing goes out on the lane of its exchange, if that is open.
    fn send_to(&mut self, exchange: usize, now: Instant) -> Option<Action> {
        let of = &self.exchanges[exchange];
        // One that finds out whether the exchange takes any has a lane of its own, so that it closes no other's.
        let lane = of.lane.filter(|_| of.is_open && of.is_ready() && !of.is_doubtful())?;
        let id = *of.queue.first()?;
        self.exchanges[exchange].queue.pop_first();
        self.exchanges[exchange].in_flight.insert(id);
        Some(self.send(lane, id, Place::Sent, now))
    }

    /// The next copy that is tried alone goes out on its own lane, or one is opened for it.
    fn send_apart(&mut self, now: Instant) -> Option<Action> {
        let may_send = |lane: &LaneId| {
            let exchange = self.exchange_of(self.trials[lane].copy);
            exchange.is_some_and(|exchange| self.may_send(exchange, now))
        };
        if let Some(lane) = self.opened.iter().copied().find(may_send) {
            self.opened.remove(&lane);
            return self.send_alone(lane, now);
        }
        if self.recent.len() >= TRIALS {
            return None;
        }
        let exchanges = self.exchanges.iter().enumerate();
        let firsts = exchanges.filter_map(|(exchange, of)| Some((of.first_to_try()?, exchange)));
        let (id, exchange) = firsts.filter(|(_, exchange)| self.may_try(*exchange, now)).min()?;
        self.exchanges[exchange].queue.remove(&id);
        self.exchanges[exchange].apart.remove(&id);
        Some(self.try_alone(id, now))
    }

    pub(super) fn try_alone(&mut self, id: CopyId, now: Instant) -> Action {
        let lane = self.open_lane(now);
        self.trials.insert(lane, Trial { copy: id, is_sent: false });
        self.recent.insert(lane);
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
            state.last_send = self.sends;
            state.confirm_timeout = self.answer_timeout;
            if self.exchanges[state.exchange].is_doubtful() {
                self.timers.set(Timer::Exchange(state.exchange), now + USUAL_ANSWER_TIME);
            }
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
