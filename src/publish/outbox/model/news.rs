//! Passes answers to the outbox, and checks its reaction to each.

use super::answer::Answer;
use super::{World, index};
use crate::broker::lane::cause::{Blame, Cause, Trouble};
use crate::publish::outbox::{Connection, CopyId, LONGEST_CONFIRM_TIMEOUT, LaneId, USUAL_ANSWER_TIME};

impl World {
    pub(super) fn tell(&mut self, answer: Answer) {
        let now = self.instant();
        match answer {
            Answer::Opened(lane) => self.outbox.lane_opened(lane),
            Answer::NotOpened(lane) => {
                self.outbox.lane_closed(lane, &Cause::of("the channel limit is reached"), now);
            }
            Answer::Ack(lane, id) => {
                self.took_one(lane, id);
                // Whichever lane it was sent on since: a copy that is stored breaks nothing.
                self.in_flight.remove(&id);
                self.outbox.confirmed(id, now);
            }
            Answer::Nack(lane, id) => self.refuse(lane, id, |world| world.outbox.nacked(lane, id)),
            Answer::Return(lane, id) => {
                let tries = self.tries(id);
                self.refuse(lane, id, |world| world.outbox.returned(lane, id));
                if self.tries(id) > tries {
                    self.needs_repair[self.scenario.copies[index(id)].exchange] = true;
                }
            }
            Answer::LaneClosed(lane, culprit, cause) => {
                let is_its = self.outbox.exchange_of_lane(lane).is_some() || self.outbox.trials.contains_key(&lane);
                if is_its && matches!(cause.blame(), Blame::Exchange(Trouble::Missing)) {
                    self.needs_repair[self.scenario.copies[index(culprit)].exchange] = true;
                }
                self.lane_closes(lane, culprit, &cause);
                self.outbox.lane_closed(lane, &cause, now);
            }
            Answer::ConnectionClosed(culprit, cause) => {
                if self.is_heard() {
                    let at = self.now;
                    let younger_than = |age| self.in_flight.iter().filter(move |(_, (_, sent_at))| at - *sent_at < age);
                    let lately = younger_than(USUAL_ANSWER_TIME).count() > 0;
                    let sent = younger_than(if lately { USUAL_ANSWER_TIME } else { LONGEST_CONFIRM_TIMEOUT });
                    self.suspects.extend(sent.map(|(id, _)| *id));
                }
                self.in_flight.remove(&culprit);
                self.lose();
                self.connection += 1;
                self.outbox.connection_lost(&cause, now);
            }
            Answer::Probed => self.outbox.probed(),
            Answer::Connected => {
                self.is_under_repair = Default::default();
                self.outbox.connected(now);
            }
            Answer::NotConnected => {
                self.outbox.connection_lost(&Cause::of("connection refused"), now);
            }
            Answer::Repaired => {
                (self.is_under_repair, self.is_repaired) = (Default::default(), true);
                self.outbox.repaired();
            }
        }
    }

    /// What comes of a connection that is gone. What names a lane is heard whenever it comes.
    pub(super) fn tell_late(&mut self, connects: u64, answer: Answer) {
        let now = self.instant();
        match answer {
            Answer::Ack(lane, id) => {
                self.late_confirms += 1;
                self.tell(Answer::Ack(lane, id));
            }
            // It is closed in turn.
            Answer::Opened(lane) => self.outbox.lane_opened(lane),
            Answer::NotOpened(lane) => {
                self.changes_nothing(|world| world.outbox.lane_closed(lane, &Cause::of("no channel"), now));
            }
            Answer::Nack(lane, id) => self.changes_nothing(|world| world.outbox.nacked(lane, id)),
            Answer::Return(lane, id) => self.changes_nothing(|world| world.outbox.returned(lane, id)),
            Answer::LaneClosed(lane, _, cause) => {
                self.changes_nothing(|world| world.outbox.lane_closed(lane, &cause, now));
            }
            Answer::Repaired if connects == self.connects => self.outbox.repaired(),
            // Nobody asks a connection that is gone.
            Answer::Repaired
            | Answer::Probed
            | Answer::ConnectionClosed(..)
            | Answer::Connected
            | Answer::NotConnected => {}
        }
    }

    /// Neither the copy nor anything else is blamed for what became of an earlier send.
    fn changes_nothing(&mut self, tell: impl FnOnce(&mut Self)) {
        self.late_others += 1;
        let before = format!("{:?}", self.outbox);
        tell(self);
        assert_eq!(before, format!("{:?}", self.outbox), "late news of a lane that is gone");
    }

    /// The exchange takes copies, unless it was closed after this one was sent.
    fn took_one(&mut self, lane: LaneId, id: CopyId) {
        let closed = &mut self.closed[self.scenario.copies[index(id)].exchange];
        if closed.is_some_and(|closed| self.sends[&(lane, id)] > closed) {
            *closed = None;
        }
    }

    /// The broker did not take a copy. Only the send that it did not take counts.
    fn refuse(&mut self, lane: LaneId, id: CopyId, tell: impl FnOnce(&mut Self)) {
        let is_its = self.in_flight.get(&id).is_some_and(|(of, _)| *of == lane);
        let tries = self.tries(id);
        tell(self);
        let is_blamed = self.tries(id) > tries;
        assert!(is_its || !is_blamed, "{id:?} is blamed for an earlier send");
        if is_its {
            self.in_flight.remove(&id);
        }
        if is_blamed {
            self.took_one(lane, id);
            self.suspects.remove(&id);
            self.pause(id, true);
        }
    }

    /// Of a connection that was given up, nobody asks what it says.
    fn is_heard(&self) -> bool {
        !matches!(self.outbox.connection, Connection::Down { .. })
    }

    fn tries(&self, id: CopyId) -> u32 {
        self.outbox.copies.get(&id).map_or(0, |state| state.tries)
    }

    fn pause(&mut self, id: CopyId, is_own: bool) {
        let now = self.now;
        let fate = &mut self.fates[index(id)];
        fate.refusals += u32::from(is_own);
        fate.refused_at = Some((now, is_own));
    }

    /// Whoever was on the lane beside the culprit may be sent again, if the culprit was not known.
    fn lane_closes(&mut self, lane: LaneId, culprit: CopyId, cause: &Cause) {
        let exchange = self.scenario.copies[index(culprit)].exchange;
        let is_of_the_exchange = cause.code != Some(406);
        let is_new = if !self.is_heard() {
            true
        } else if is_of_the_exchange {
            self.closed[exchange] = Some(self.sends.len() as u64);
            !self.fates[index(culprit)].is_sent_to_closed
        } else {
            self.culprits.insert(culprit)
        };
        let beside: Vec<CopyId> = self.in_flight.iter().filter(|(_, (of, _))| *of == lane).map(|(id, _)| *id).collect();
        for id in &beside {
            self.in_flight.remove(id);
            self.fates[index(*id)].excuses += u32::from(is_new);
        }
        let is_alone = beside.iter().all(|id| *id == culprit);
        if is_alone && !is_new && !self.fates[index(culprit)].is_withdrawn {
            self.pause(culprit, !is_of_the_exchange);
        }
        if !is_alone {
            self.closes += 1;
        }
    }
}
