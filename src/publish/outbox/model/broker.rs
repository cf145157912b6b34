//! The broker, and the line to it.

use std::time::Duration;

use rand::Rng;

use super::answer::Answer;
use super::{Deleted, Event, LATENCY, Mood, Nature, Plan, Weather, World, index, millis};
use crate::broker::lane::cause::Cause;
use crate::publish::outbox::{CopyId, LaneId};

impl World {
    pub(super) fn latency(&mut self) -> Duration {
        millis(self.rng.random_range(1..=LATENCY))
    }

    /// When what is sent now is read, in order. An alarm holds it up.
    pub(super) fn arrival(&mut self) -> Duration {
        let at = (self.now + self.latency()).max(self.last_arrival).max(self.blocked_until);
        self.last_arrival = at;
        at
    }

    fn answer(&mut self, answer: Answer) {
        let (at, queue) = ((self.now + self.latency()).max(self.hangs_until), answer.queue());
        let at = if matches!(answer, Answer::ConnectionClosed(..)) {
            // Read beside both queues, so before what is in them, or after it.
            if self.rng.random() { at } else { at.max(self.last_answer[0]).max(self.last_answer[1]) }
        } else {
            let at = at.max(self.last_answer[queue]);
            self.last_answer[queue] = at;
            at
        };
        self.at(at, Event::Answer(self.connection, answer));
    }

    /// The connection is gone. What was under way on it may be sent again. Some of the broker's answers have come this far, and are
    /// read although the connection is gone: soon, as those that the task still has before it reconnects, or at any time. The task
    /// drops a connection's answers when it reconnects, but the outbox does not rely on that where an answer names a lane.
    pub(super) fn lose(&mut self) {
        self.is_alive = false;
        self.repair_was_asked_for = false;
        self.is_repaired = false;
        self.lanes.clear();
        for (id, _) in std::mem::take(&mut self.in_flight) {
            self.fates[index(id)].excuses += 1;
        }
        let is_its = |event: &Event| matches!(event, Event::Answer(of, _) if *of == self.connection);
        let mut came: Vec<_> = self.events.extract_if(.., |_, event| is_its(event)).map(|(_, event)| event).collect();
        came.truncate(self.rng.random_range(0..=came.len()));
        let span = if self.rng.random() { LATENCY } else { 500 };
        let mut at = [self.now; 2];
        for event in came {
            let Event::Answer(_, answer) = event else { continue };
            match answer.copy().filter(|_| self.rng.random_ratio(2, 3)) {
                Some(id) => self.held.push((id, answer)),
                None => {
                    let at = &mut at[answer.queue()];
                    *at += millis(self.rng.random_range(0..=span));
                    let at = *at;
                    self.at(at, Event::Late(self.connects, answer));
                }
            }
        }
    }

    /// Answers that a copy had on connections that are gone come now that it is sent again.
    pub(super) fn release(&mut self, id: CopyId) {
        let held: Vec<_> = self.held.extract_if(.., |(of, _)| *of == id).collect();
        for (_, answer) in held {
            let at = self.now + millis(self.rng.random_range(0..=3 * LATENCY));
            self.at(at, Event::Late(self.connects, answer));
        }
    }

    pub(super) fn happen(&mut self, event: Event) {
        let is_current = |connection: u64| connection == self.connection && self.is_alive;
        match event {
            Event::Submit(number) => {
                self.fates[number].submitted_at = self.now;
                let exchange = format!("x{}", self.scenario.copies[number].exchange);
                self.outbox.submit(CopyId(number as u64), &exchange);
            }
            Event::Withdraw(number) => {
                let (id, now) = (CopyId(number as u64), self.instant());
                let fate = &mut self.fates[number];
                if fate.confirmed_at.is_none() && !fate.is_unpublishable {
                    fate.is_withdrawn = true;
                    // It is never sent again, so nothing can multiply it.
                    self.in_flight.remove(&id);
                    self.outbox.withdraw(id, now);
                }
            }
            Event::Mood(exchange, mood) => {
                self.moods[exchange] = mood;
                if mood != Mood::Slow {
                    self.answer_waiting(exchange);
                }
            }
            Event::Weather(weather) => self.change(weather),
            Event::Deletes(exchange, part) => self.deleted[exchange] = Some(part),
            // A connection that is asked for ends the repair before it.
            Event::Declares(connects, exchange) => {
                if connects == self.connects && self.now >= self.away_until {
                    self.restored += u32::from(self.deleted[exchange].take().is_some());
                }
            }
            Event::BlockEnds => {}
            Event::Opening(connection, lane) if is_current(connection) => {
                if self.now < self.no_channels_until {
                    self.answer(Answer::NotOpened(lane));
                } else {
                    self.lanes.insert(lane);
                    self.answer(Answer::Opened(lane));
                }
            }
            Event::Publish(connection, lane, id) if is_current(connection) => self.publish(lane, id),
            Event::Probe(connection) if is_current(connection) => self.answer(Answer::Probed),
            Event::Answer(connection, answer) if connection == self.connection => self.tell(answer),
            Event::Late(connects, answer) => self.tell_late(connects, answer),
            Event::Opening(..) | Event::Publish(..) | Event::Probe(_) | Event::Answer(..) => {}
        }
    }

    /// The queue behind the exchange is not slow any longer.
    fn answer_waiting(&mut self, exchange: usize) {
        let (over, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(_, _, id)| self.scenario.copies[index(*id)].exchange == exchange);
        self.waiting = waiting;
        for (connection, lane, id) in over {
            let is_full = self.moods[exchange] == Mood::Full;
            self.fates[index(id)].stored += u32::from(!is_full);
            if connection == self.connection && self.is_alive && self.lanes.contains(&lane) {
                self.answer(if is_full { Answer::Nack(lane, id) } else { Answer::Ack(lane, id) });
            }
        }
    }

    fn change(&mut self, weather: Weather) {
        match weather {
            Weather::Drop | Weather::Away(_) => {
                if let Weather::Away(duration) = weather {
                    self.away_until = self.now + millis(duration);
                }
                if self.is_alive {
                    // Nothing more arrives in either direction.
                    self.lose();
                    self.connection += 1;
                    let now = self.instant();
                    self.outbox.connection_lost(&Cause::of("connection reset by peer"), now);
                }
            }
            Weather::Block(duration) => {
                self.blocked_until = self.now + millis(duration);
                self.at(self.blocked_until, Event::BlockEnds);
            }
            Weather::Hang(duration) => self.hangs_until = self.now + millis(duration),
            Weather::NoChannels(duration) => self.no_channels_until = self.now + millis(duration),
        }
    }

    /// What the broker does with copies to this exchange. It checks the permission first.
    fn mood(&self, exchange: usize) -> Mood {
        match (self.moods[exchange], self.deleted[exchange]) {
            (Mood::Forbidden, _) => Mood::Forbidden,
            (Mood::Missing, _) | (_, Some(Deleted::Exchange)) => Mood::Missing,
            (_, Some(Deleted::Queue)) => Mood::Unroutable,
            (mood, None) => mood,
        }
    }

    /// The broker reads a copy.
    fn publish(&mut self, lane: LaneId, id: CopyId) {
        if !self.lanes.contains(&lane) {
            return;
        }
        let Plan { exchange, nature, .. } = self.scenario.copies[index(id)];
        let mood = self.mood(exchange);
        let mut close = |code, text: String| {
            self.lanes.remove(&lane);
            Answer::LaneClosed(lane, id, Cause { code: Some(code), text })
        };
        let answer = match (nature, mood) {
            (Nature::Deadly, _) => {
                self.lanes.clear();
                Answer::ConnectionClosed(id, Cause { code: Some(501), text: "FRAME_ERROR".to_owned() })
            }
            (_, Mood::Forbidden) => close(403, "ACCESS_REFUSED - access to exchange refused".to_owned()),
            (_, Mood::Missing) => close(404, "NOT_FOUND - no exchange".to_owned()),
            (Nature::Malformed, _) => close(406, "PRECONDITION_FAILED - invalid expiration".to_owned()),
            (Nature::Fine, Mood::Open) if self.scenario.goes_on_refusing && self.refused.contains(&lane) => {
                Answer::Nack(lane, id)
            }
            (Nature::Fine, Mood::Open) => {
                self.fates[index(id)].stored += 1;
                Answer::Ack(lane, id)
            }
            (Nature::Fine, Mood::Full) => {
                self.refused.insert(lane);
                Answer::Nack(lane, id)
            }
            (Nature::Fine, Mood::Unroutable) => Answer::Return(lane, id),
            (Nature::Fine, Mood::Slow) => return self.waiting.push((self.connection, lane, id)),
        };
        self.answer(answer);
    }
}
