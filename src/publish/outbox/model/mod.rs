//! A broker that does whatever brokers do, at times that a scenario says, and the outbox before it.

mod answer;
mod broker;
mod news;
mod scenario;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::answer::Answer;
pub(super) use self::scenario::{
    ANSWER_TIMEOUT, Deleted, EXCHANGES, Fate, LATENCY, Mood, Nature, Plan, Scenario, Weather,
};
use super::{Action, CopyId, LONGEST_CONFIRM_TIMEOUT, LaneId, Outbox, USUAL_ANSWER_TIME};

#[derive(Debug, Clone)]
enum Event {
    Submit(usize),
    Withdraw(usize),
    Mood(usize, Mood),
    Weather(Weather),
    /// Somebody deletes a part of the topology.
    Deletes(usize, Deleted),
    /// A repair declares what is missing of an exchange, with how many connections had been asked for when it began.
    Declares(u64, usize),
    BlockEnds,
    Opening(u64, LaneId),
    Publish(u64, LaneId, CopyId),
    Probe(u64),
    Answer(u64, Answer),
    /// An answer of a connection that is gone, with how many had been asked for then.
    Late(u64, Answer),
}

pub(super) struct World {
    pub(super) outbox: Outbox,
    pub(super) fates: Vec<Fate>,
    /// How often a lane was closed with several copies on it.
    pub(super) closes: u32,
    pub(super) opened: u32,
    /// How many confirms came when their connection was gone, and how many other answers did.
    pub(super) late_confirms: u32,
    pub(super) late_others: u32,
    /// How often a repair brought back what was deleted.
    pub(super) restored: u32,
    scenario: Scenario,
    rng: StdRng,
    start: Instant,
    now: Duration,
    events: BTreeMap<(Duration, u64), Event>,
    count: u64,
    moods: [Mood; EXCHANGES],
    deleted: [Option<Deleted>; EXCHANGES],
    /// The outbox knows that something of this exchange is missing, and no repair has begun since.
    needs_repair: [bool; EXCHANGES],
    /// These were known to miss something when the repair that is running began.
    is_under_repair: [bool; EXCHANGES],
    /// Connections are numbered, and so are the ends of connections.
    connection: u64,
    /// How many connections the outbox has asked for.
    connects: u64,
    /// Answers of connections that are gone, until their copies are sent again.
    held: Vec<(CopyId, Answer)>,
    is_alive: bool,
    /// The outbox has asked for a repair on this connection.
    repair_was_asked_for: bool,
    /// The outbox was told of the end of one.
    is_repaired: bool,
    /// When the last confirm comes, and the last other answer: the task reads the two kinds from two queues.
    last_answer: [Duration; 2],
    last_arrival: Duration,
    away_until: Duration,
    blocked_until: Duration,
    hangs_until: Duration,
    no_channels_until: Duration,
    /// What the broker has open.
    lanes: BTreeSet<LaneId>,
    /// Those that were refused a copy by a full queue.
    refused: BTreeSet<LaneId>,
    waiting: Vec<(u64, LaneId, CopyId)>,
    /// What the outbox has sent and had no answer to.
    in_flight: BTreeMap<CopyId, (LaneId, Duration)>,
    culprits: BTreeSet<CopyId>,
    /// What was under way when the broker closed the connection over some copy.
    suspects: BTreeSet<CopyId>,
    /// By the last answers, these take nothing that was sent up to this send.
    closed: [Option<u64>; EXCHANGES],
    /// Sends are numbered.
    sends: BTreeMap<(LaneId, CopyId), u64>,
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
            outbox: Outbox::new(ANSWER_TIMEOUT, ["x0", "x1"]),
            fates: vec![Fate::default(); scenario.copies.len()],
            closes: 0,
            opened: 0,
            late_confirms: 0,
            late_others: 0,
            restored: 0,
            scenario: scenario.clone(),
            rng: StdRng::seed_from_u64(scenario.seed),
            start: Instant::now(),
            now: Duration::ZERO,
            events: BTreeMap::new(),
            count: 0,
            moods: [Mood::Open; EXCHANGES],
            deleted: [None; EXCHANGES],
            needs_repair: [false; EXCHANGES],
            is_under_repair: [false; EXCHANGES],
            connection: 0,
            connects: 0,
            held: Vec::new(),
            is_alive: false,
            repair_was_asked_for: false,
            is_repaired: false,
            last_answer: [Duration::ZERO; 2],
            last_arrival: Duration::ZERO,
            away_until: Duration::ZERO,
            blocked_until: Duration::ZERO,
            hangs_until: Duration::ZERO,
            no_channels_until: Duration::ZERO,
            lanes: BTreeSet::new(),
            refused: BTreeSet::new(),
            waiting: Vec::new(),
            in_flight: BTreeMap::new(),
            culprits: BTreeSet::new(),
            suspects: BTreeSet::new(),
            closed: [None; EXCHANGES],
            sends: BTreeMap::new(),
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
        for (at, exchange, part) in scenario.deletions {
            self.at(millis(at), Event::Deletes(exchange, part));
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
                self.connects += 1;
                let answer = if self.now < self.away_until { Answer::NotConnected } else { Answer::Connected };
                self.is_alive = matches!(answer, Answer::Connected);
                let at = self.now + self.latency();
                (self.last_answer, self.last_arrival) = ([at; 2], at);
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
                let rounds = if std::mem::replace(&mut self.repair_was_asked_for, true) { 200 } else { 1 };
                let at = self.now + self.latency() * rounds;
                // What is deleted again after its turn stays away until the next repair.
                for exchange in 0..EXCHANGES {
                    let turn = self.rng.random_range(self.now..=at);
                    self.at(turn, Event::Declares(self.connects, exchange));
                }
                self.at(at, Event::Answer(connection, Answer::Repaired));
                self.is_under_repair = std::mem::take(&mut self.needs_repair);
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
        let exchange = self.scenario.copies[index(id)].exchange;
        assert!(self.is_repaired, "{id:?} is sent before the topology was declared on this connection");
        assert!(!self.is_under_repair[exchange], "{id:?} is sent to an exchange that may lack its bindings");
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
        fate.is_sent_to_closed = self.closed[exchange].is_some();
        let number = self.sends.len() as u64 + 1;
        self.sends.insert((lane, id), number);
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
        self.release(id);
        let delays: Vec<_> =
            self.scenario.cuts.iter().filter(|(sends, _)| *sends as u64 == number).map(|(_, delay)| *delay).collect();
        for delay in delays {
            self.at(now + millis(delay), Event::Weather(Weather::Drop));
        }
    }

    fn check_memory(&self) {
        let outbox = &self.outbox;
        let copies = outbox.copies.len();
        let queued = outbox.exchanges.iter().map(|exchange| exchange.queue.len() + exchange.apart.len()).sum::<usize>();
        assert!(outbox.trials.len() <= copies && queued + outbox.suspects.len() <= copies);
        assert!(outbox.timers.len() <= 3 * copies + EXCHANGES * 2 + 8, "{} timers", outbox.timers.len());
    }
}
