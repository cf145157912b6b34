//! A broker that does whatever brokers do, at times that a scenario says, and the outbox before it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Action, Connection, CopyId, LONGEST_CONFIRM_TIMEOUT, LaneId, Outbox, USUAL_ANSWER_TIME};
use crate::publish::cause::Cause;

pub(super) const EXCHANGES: usize = 3;
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest that anything takes on its way, in ms.
pub(super) const LATENCY: u64 = 10;

/// What an exchange, or the queue behind it, does with a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Open,
    Forbidden,
    Missing,
    Full,
    Unroutable,
    /// Stores and confirms when this is over.
    Slow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    Fine,
    /// Its channel is closed (406).
    Malformed,
    /// Its connection is closed (501).
    Deadly,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Weather {
    Drop,
    /// No connection can be made for so long, and the present one is dropped.
    Away(u64),
    /// An alarm: nothing that is sent is read for so long.
    Block(u64),
    /// Nothing that is sent is answered for so long.
    Hang(u64),
    /// No channel can be opened for so long.
    NoChannels(u64),
}

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) at: u64,
    pub(super) exchange: usize,
    pub(super) nature: Nature,
    pub(super) withdrawn_after: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) copies: Vec<Plan>,
    pub(super) moods: Vec<(u64, usize, Mood)>,
    pub(super) weather: Vec<(u64, Weather)>,
    /// Whether a 403 or 404 names the exchange.
    pub(super) names_exchange: bool,
}

/// What became of a copy.
#[derive(Debug, Clone, Default)]
pub(super) struct Fate {
    pub(super) submitted_at: Duration,
    pub(super) confirmed_at: Option<Duration>,
    pub(super) is_unpublishable: bool,
    pub(super) is_withdrawn: bool,
    pub(super) sent: u32,
    pub(super) stored: u32,
    /// Losses of the connection, first closes by a new culprit, and confirms that did not come, each while it was under way.
    pub(super) excuses: u32,
    /// How often the answer was no to it alone, and when it last was.
    refusals: u32,
    refused_at: Option<(Duration, bool)>,
    /// When it was sent last, the last answer was that its exchange takes nothing.
    is_sent_to_closed: bool,
}

#[derive(Debug, Clone)]
enum Answer {
    Opened(LaneId),
    NotOpened(LaneId),
    Ack(LaneId, CopyId),
    Nack(LaneId, CopyId),
    Return(LaneId, CopyId),
    LaneClosed(LaneId, CopyId, Cause),
    ConnectionClosed(CopyId, Cause),
    Probed,
    Connected,
    NotConnected,
    Repaired,
}

#[derive(Debug, Clone)]
enum Event {
    Submit(usize),
    Withdraw(usize),
    Mood(usize, Mood),
    Weather(Weather),
    BlockEnds,
    Opening(u64, LaneId),
    Publish(u64, LaneId, CopyId),
    Probe(u64),
    Answer(u64, Answer),
}

pub(super) struct World {
    pub(super) outbox: Outbox,
    pub(super) fates: Vec<Fate>,
    /// How often the main lane was closed over a copy.
    pub(super) closes: u32,
    pub(super) opened: u32,
    scenario: Scenario,
    rng: StdRng,
    start: Instant,
    now: Duration,
    events: BTreeMap<(Duration, u64), Event>,
    count: u64,
    moods: [Mood; EXCHANGES],
    /// Connections are numbered; what is of an old one never arrives.
    connection: u64,
    is_alive: bool,
    /// The topology was declared on this connection.
    is_declared: bool,
    last_answer: Duration,
    last_arrival: Duration,
    away_until: Duration,
    blocked_until: Duration,
    hangs_until: Duration,
    no_channels_until: Duration,
    /// What the broker has open.
    lanes: BTreeSet<LaneId>,
    waiting: Vec<(u64, LaneId, CopyId)>,
    /// What the outbox has sent and had no answer to.
    in_flight: BTreeMap<CopyId, (LaneId, Duration)>,
    culprits: BTreeSet<CopyId>,
    /// What was under way when the broker closed the connection over some copy.
    suspects: BTreeSet<CopyId>,
    closed: [bool; EXCHANGES],
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn index(id: CopyId) -> usize {
    id.0 as usize
}

impl World {
    /// Plays the scenario, then goes on with a healthy broker for several times the longest confirm timeout.
    pub(super) fn run(scenario: &Scenario) -> Self {
        let mut world = Self {
            outbox: Outbox::new(ANSWER_TIMEOUT),
            fates: vec![Fate::default(); scenario.copies.len()],
            closes: 0,
            opened: 0,
            scenario: scenario.clone(),
            rng: StdRng::seed_from_u64(scenario.seed),
            start: Instant::now(),
            now: Duration::ZERO,
            events: BTreeMap::new(),
            count: 0,
            moods: [Mood::Open; EXCHANGES],
            connection: 0,
            is_alive: false,
            is_declared: false,
            last_answer: Duration::ZERO,
            last_arrival: Duration::ZERO,
            away_until: Duration::ZERO,
            blocked_until: Duration::ZERO,
            hangs_until: Duration::ZERO,
            no_channels_until: Duration::ZERO,
            lanes: BTreeSet::new(),
            waiting: Vec::new(),
            in_flight: BTreeMap::new(),
            culprits: BTreeSet::new(),
            suspects: BTreeSet::new(),
            closed: [false; EXCHANGES],
        };
        world.schedule();
        world.play();
        world
    }

    fn schedule(&mut self) {
        let scenario = self.scenario.clone();
        let mut last = 0;
        for (number, plan) in scenario.copies.iter().enumerate() {
            self.at(millis(plan.at), Event::Submit(number));
            if let Some(after) = plan.withdrawn_after {
                self.at(millis(plan.at + after), Event::Withdraw(number));
            }
            last = last.max(plan.at);
        }
        for (at, exchange, mood) in scenario.moods {
            self.at(millis(at), Event::Mood(exchange, mood));
            last = last.max(at);
        }
        for (at, weather) in scenario.weather {
            self.at(millis(at), Event::Weather(weather));
            last = last.max(at);
        }
        for exchange in 0..EXCHANGES {
            self.at(millis(last + 1), Event::Mood(exchange, Mood::Open));
        }
        self.at(millis(last) + 4 * LONGEST_CONFIRM_TIMEOUT, Event::BlockEnds);
    }

    fn at(&mut self, at: Duration, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    fn play(&mut self) {
        let mut steps = 0;
        while let Some((&(at, number), _)) = self.events.first_key_value() {
            steps += 1;
            assert!(steps < 2_000_000, "a hot loop");
            let wake = self.outbox.wake_at().map(|wake| wake.saturating_duration_since(self.start));
            if wake.is_some_and(|wake| wake < at) {
                self.now = self.now.max(wake.unwrap_or_default());
            } else {
                self.now = self.now.max(at);
                if let Some(event) = self.events.remove(&(at, number)) {
                    self.happen(event);
                }
            }
            self.act();
            self.check_memory();
        }
    }

    fn instant(&self) -> Instant {
        self.start + self.now
    }

    fn act(&mut self) {
        for _ in 0..100_000 {
            let (now, is_blocked) = (self.instant(), self.is_alive && self.now < self.blocked_until);
            let rng = &mut self.rng;
            match self.outbox.next(now, is_blocked, || rng.random_range(0.0..1.0)) {
                Some(action) => self.carry_out(action),
                None => return,
            }
        }
        panic!("the outbox never rests");
    }

    fn carry_out(&mut self, action: Action) {
        let connection = self.connection;
        match action {
            Action::Connect => {
                self.lose();
                self.connection += 1;
                let answer = if self.now < self.away_until { Answer::NotConnected } else { Answer::Connected };
                self.is_alive = matches!(answer, Answer::Connected);
                let at = self.now + self.latency();
                (self.last_answer, self.last_arrival) = (at, at);
                self.at(at, Event::Answer(self.connection, answer));
            }
            Action::Probe => {
                let at = self.arrival();
                self.at(at, Event::Probe(connection));
            }
            Action::OpenLane(lane) => {
                self.opened += 1;
                let at = self.arrival();
                self.at(at, Event::Opening(connection, lane));
            }
            // What it was sent before is still handled, and confirmed: the worst case.
            Action::CloseLane(_) => {}
            Action::Send { lane, id, again } => self.send(lane, id, again),
            Action::Repair => {
                // Only the first one of a connection is quick: while that runs, nothing is sent.
                let rounds = if std::mem::replace(&mut self.is_declared, true) { 200 } else { 1 };
                let at = self.now + self.latency() * rounds;
                self.at(at, Event::Answer(connection, Answer::Repaired));
            }
            Action::Confirmed(id) => {
                let now = self.now;
                let fate = &mut self.fates[index(id)];
                assert!(fate.stored > 0, "{id:?} is confirmed and was never stored");
                assert!(fate.confirmed_at.is_none() && !fate.is_unpublishable && !fate.is_withdrawn, "{id:?} {fate:?}");
                fate.confirmed_at = Some(now);
            }
            Action::Unpublishable(id, _) => {
                let nature = self.scenario.copies[index(id)].nature;
                let fate = &mut self.fates[index(id)];
                assert!(nature != Nature::Fine, "{id:?} is fine and was given up");
                assert!(fate.confirmed_at.is_none() && !fate.is_unpublishable && !fate.is_withdrawn, "{id:?} {fate:?}");
                fate.is_unpublishable = true;
            }
            Action::Report(_) => {}
        }
    }

    fn send(&mut self, lane: LaneId, id: CopyId, again: bool) {
        let now = self.now;
        let fate = &mut self.fates[index(id)];
        assert!(
            fate.confirmed_at.is_none() && !fate.is_unpublishable && !fate.is_withdrawn,
            "{id:?} is sent for nobody"
        );
        assert_eq!(again, fate.sent > 0);
        if let Some((refused_at, is_own)) = fate.refused_at.take() {
            let tries = if is_own { fate.refusals.min(8) - 1 } else { 0 };
            let pause = Duration::from_millis(50 << tries).min(Duration::from_secs(5));
            assert!(now >= refused_at + pause, "{id:?} is tried again {:?} after refusal {tries}", now - refused_at);
        }
        fate.sent += 1;
        fate.is_sent_to_closed = self.closed[self.scenario.copies[index(id)].exchange];
        if let Some((_, sent_at)) = self.in_flight.insert(id, (lane, now)) {
            assert!(now - sent_at >= LONGEST_CONFIRM_TIMEOUT, "{id:?} is sent while it is under way");
            fate.excuses += 1;
        }
        let is_beside = |other: CopyId, sent_at| other != id && now - sent_at < USUAL_ANSWER_TIME;
        for (other, (_, sent_at)) in self.in_flight.iter().filter(|(other, (_, at))| is_beside(**other, *at)) {
            let beside = format!("{id:?} is sent at {now:?} beside {other:?} of {sent_at:?}");
            assert!(!self.suspects.contains(&id), "{beside}, and is suspect");
            assert!(!self.suspects.contains(other), "{beside}, which is suspect");
        }
        let at = self.arrival();
        self.at(at, Event::Publish(self.connection, lane, id));
    }

    fn latency(&mut self) -> Duration {
        millis(self.rng.random_range(1..=LATENCY))
    }

    /// When what is sent now is read, in order. An alarm holds it up.
    fn arrival(&mut self) -> Duration {
        let at = (self.now + self.latency()).max(self.last_arrival).max(self.blocked_until);
        self.last_arrival = at;
        at
    }

    fn answer(&mut self, answer: Answer) {
        let at = (self.now + self.latency()).max(self.last_answer).max(self.hangs_until);
        self.last_answer = at;
        self.at(at, Event::Answer(self.connection, answer));
    }

    /// What was under way on the connection that is gone now may be sent again.
    fn lose(&mut self) {
        self.is_alive = false;
        self.is_declared = false;
        self.lanes.clear();
        for (id, _) in std::mem::take(&mut self.in_flight) {
            self.fates[index(id)].excuses += 1;
        }
    }

    fn happen(&mut self, event: Event) {
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
                    let (over, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
                        .into_iter()
                        .partition(|(_, _, id)| self.scenario.copies[index(*id)].exchange == exchange);
                    self.waiting = waiting;
                    for (connection, lane, id) in over {
                        self.fates[index(id)].stored += 1;
                        if connection == self.connection && self.is_alive && self.lanes.contains(&lane) {
                            self.answer(Answer::Ack(lane, id));
                        }
                    }
                }
            }
            Event::Weather(weather) => self.change(weather),
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
            Event::Opening(..) | Event::Publish(..) | Event::Probe(_) | Event::Answer(..) => {}
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
                    self.connection += 1;
                    self.lose();
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

    /// The broker reads a copy.
    fn publish(&mut self, lane: LaneId, id: CopyId) {
        if !self.lanes.contains(&lane) {
            return;
        }
        let Plan { exchange, nature, .. } = self.scenario.copies[index(id)];
        let named =
            if self.scenario.names_exchange { format!("exchange 'x{exchange}' in vhost '/'") } else { String::new() };
        let mut close = |code, text: String| {
            self.lanes.remove(&lane);
            Answer::LaneClosed(lane, id, Cause { code: Some(code), text })
        };
        let answer = match (nature, self.moods[exchange]) {
            (Nature::Deadly, _) => {
                self.lanes.clear();
                Answer::ConnectionClosed(id, Cause { code: Some(501), text: "FRAME_ERROR".to_owned() })
            }
            (_, Mood::Forbidden) => close(403, format!("ACCESS_REFUSED - access to {named} refused")),
            (_, Mood::Missing) => close(404, format!("NOT_FOUND - no {named}")),
            (Nature::Malformed, _) => close(406, "PRECONDITION_FAILED - invalid expiration".to_owned()),
            (Nature::Fine, Mood::Open) => {
                self.fates[index(id)].stored += 1;
                Answer::Ack(lane, id)
            }
            (Nature::Fine, Mood::Full) => Answer::Nack(lane, id),
            (Nature::Fine, Mood::Unroutable) => Answer::Return(lane, id),
            (Nature::Fine, Mood::Slow) => return self.waiting.push((self.connection, lane, id)),
        };
        self.answer(answer);
    }

    fn tell(&mut self, answer: Answer) {
        let now = self.instant();
        match answer {
            Answer::Opened(lane) => self.outbox.lane_opened(lane),
            Answer::NotOpened(lane) => {
                self.outbox.lane_closed(lane, &Cause::of("the channel limit is reached"), now);
            }
            Answer::Ack(lane, id) => {
                self.answered(lane, id);
                // Whichever lane it was sent on since: a copy that is stored breaks nothing.
                self.in_flight.remove(&id);
                self.outbox.confirmed(id, now);
            }
            Answer::Nack(lane, id) => {
                self.answered(lane, id);
                let tries = self.tries(id);
                self.outbox.nacked(lane, id);
                // Nor of a lane that was.
                if self.tries(id) > tries {
                    self.suspects.remove(&id);
                    self.refuse(id, true);
                }
            }
            Answer::Return(lane, id) => {
                self.answered(lane, id);
                let tries = self.tries(id);
                self.outbox.returned(lane, id);
                if self.tries(id) > tries {
                    self.suspects.remove(&id);
                    self.refuse(id, true);
                }
            }
            Answer::LaneClosed(lane, culprit, cause) => {
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
                self.connection += 1;
                self.lose();
                self.outbox.connection_lost(&cause, now);
            }
            Answer::Probed => self.outbox.probed(),
            Answer::Connected => self.outbox.connected(now),
            Answer::NotConnected => {
                self.outbox.connection_lost(&Cause::of("connection refused"), now);
            }
            Answer::Repaired => self.outbox.repaired(),
        }
    }

    /// The exchange takes copies, whatever becomes of this one.
    fn answered(&mut self, lane: LaneId, id: CopyId) {
        if self.in_flight.get(&id).is_some_and(|(of, _)| *of == lane) {
            self.in_flight.remove(&id);
        }
        self.closed[self.scenario.copies[index(id)].exchange] = false;
    }

    /// Of a connection that was given up, nobody asks what it says.
    fn is_heard(&self) -> bool {
        !matches!(self.outbox.connection, Connection::Down { .. })
    }

    fn tries(&self, id: CopyId) -> u32 {
        self.outbox.copies.get(&id).map_or(0, |state| state.tries)
    }

    fn refuse(&mut self, id: CopyId, is_own: bool) {
        let now = self.now;
        let fate = &mut self.fates[index(id)];
        fate.refusals += u32::from(is_own);
        fate.refused_at = Some((now, is_own));
    }

    /// Whoever was on the lane beside the culprit may be sent again, if the culprit was not known.
    fn lane_closes(&mut self, lane: LaneId, culprit: CopyId, cause: &Cause) {
        let exchange = self.scenario.copies[index(culprit)].exchange;
        let is_of_the_exchange = cause.code != Some(406) && self.scenario.names_exchange;
        let is_new = if !self.is_heard() {
            true
        } else if is_of_the_exchange {
            self.closed[exchange] = true;
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
            self.refuse(culprit, !is_of_the_exchange);
        }
        if !is_alone {
            self.closes += 1;
        }
    }

    fn check_memory(&self) {
        let outbox = &self.outbox;
        let copies = outbox.copies.len();
        assert!(outbox.trials.len() <= copies && outbox.queue.len() + outbox.ready.len() <= copies);
        assert!(outbox.timers.len() <= 3 * copies + EXCHANGES * 2 + 8, "{} timers", outbox.timers.len());
    }
}
