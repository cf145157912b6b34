//! What must hold in every world.

mod allowances;
mod beginnings;
mod copies;
mod endings;
mod order;
mod processes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use rehop_simulator::Time;

use crate::network::{Process, Replayed};
use crate::record::{AttemptId, Happened, Recorded};
use crate::run::{RunOutcome, is_final};
use crate::scenario::{AttemptEnd, QueuePlan, Scenario};

/// A promise that a world broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// When it showed.
    pub at: Time,
    /// Which promise.
    pub promise: Promise,
    /// What happened instead.
    pub what: String,
}

/// What rehop promises in every world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// Each message ends: handled, parked, discarded, or stray.
    NothingIsLost,
    /// Everything comes to rest once nothing breaks any more.
    EverythingEnds,
    /// Once nothing breaks any more, something happens at least every ten minutes until everything
    /// has ended.
    NothingStandsStill,
    /// A message has more ends than one only if something broke.
    DuplicatesHaveACause,
    /// A message that kills its process is parked, and no other with it. In an ordered queue it may
    /// take those behind it along.
    PoisonIsParkedAlone,
    /// Where the settings name the broker's ack timeout and nothing breaks, the broker never has to
    /// enforce it.
    NothingIsHeldTooLong,
    /// No process runs more handlers of a queue than it may.
    ConcurrencyIsKept,
    /// No process holds more unsettled messages of a queue than its prefetch, if nothing breaks but
    /// processes.
    PrefetchIsKept,
    /// In an ordered queue, no attempt begins before the earlier messages with its key have ended.
    OrderIsKept,
    /// Where 4.3 refuses the copies of some messages, it parks none that are handled in time.
    NothingFineIsParked,
    /// A process that stops lets its handlers end within the grace time.
    HandlersMayFinish,
    /// No attempt begins after the deadline of its message.
    NothingBeginsExpired,
    /// No attempt begins before the wait after the attempts before it is over.
    NothingBeginsEarly,
    /// While a queue accepts nothing, what waits for another queue comes back in time, unless the
    /// two share their wait queues.
    OthersComeBackInTime,
    /// Nothing begins in a queue that its process has paused.
    NothingBeginsInAPause,
    /// A process that stops begins nothing.
    NothingBeginsAfterAStop,
    /// A process stops within its grace time.
    StopsEnd,
    /// No copy is sent once its original is lost to the process.
    NoCopyAfterALoss,
    /// No copy is sent while the broker does not read from the connection.
    NoCopyDuringAnAlarm,
    /// A copy tells the failures that led to it.
    CopiesTellTheirHistory,
    /// Without faults, each message has exactly the attempts that its policy gives it, and each
    /// attempt counts those before it.
    AttemptsAreThoseOfThePolicy,
    /// A replay ends and, unless something breaks, sends all that it was asked for.
    ReplaysEnd,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3?} {:?}: {}", self.at, self.promise, self.what)
    }
}

/// How much later than it should a process may react: network delays, and what tokio rounds up.
const TOLERANCE: Duration = Duration::from_millis(50);

/// The promises that this world broke.
pub fn check(scenario: &Scenario, outcome: &RunOutcome) -> Vec<Violation> {
    let mut checker = Checker::new(scenario, outcome);
    outcome.events.iter().for_each(|recorded| checker.observe(recorded));
    checker.finish(outcome);
    checker.violations
}

/// An attempt that has begun.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    process: Process,
    message: usize,
    /// What the service calls it.
    number: u32,
    waits: u32,
}

/// What is known of a process.
#[derive(Default)]
struct Life {
    asked_to_stop: Option<Time>,
    has_ended: bool,
}

struct Checker<'a> {
    scenario: &'a Scenario,
    attempts: BTreeMap<AttemptId, Attempt>,
    running: BTreeSet<AttemptId>,
    lives: BTreeMap<Process, Life>,
    published: BTreeMap<usize, Time>,
    /// Messages that were not published, because their deadline had passed.
    expired: BTreeSet<usize>,
    /// How often the confirm of a message did not come.
    unconfirmed: BTreeMap<usize, usize>,
    begun: BTreeMap<usize, usize>,
    /// When attempts at a message ended that had waited so often.
    ended_at: BTreeMap<(usize, u32), Vec<Time>>,
    /// When each message was sent back by an operator.
    replayed: BTreeMap<usize, Vec<Time>>,
    /// Queues that a process has paused, and since when.
    paused: BTreeMap<(Process, usize), Time>,
    /// Replays that have not ended.
    replaying: BTreeSet<Process>,
    /// How each attempt at a message ended.
    endings: BTreeMap<usize, Vec<AttemptEnd>>,
    /// How many processes were killed.
    kills: usize,
    /// When something last happened; `None` while things may still break.
    last_event_at: Option<Time>,
    is_at_rest: bool,
    violations: Vec<Violation>,
}

impl<'a> Checker<'a> {
    fn new(scenario: &'a Scenario, outcome: &RunOutcome) -> Self {
        let mut replayed = BTreeMap::<usize, Vec<Time>>::new();
        for Replayed { message, at, .. } in &outcome.replayed {
            replayed.entry(*message).or_default().push(*at);
        }
        Self {
            scenario,
            ended_at: BTreeMap::new(),
            paused: BTreeMap::new(),
            replaying: BTreeSet::new(),
            replayed,
            attempts: BTreeMap::new(),
            running: BTreeSet::new(),
            lives: BTreeMap::new(),
            published: BTreeMap::new(),
            expired: BTreeSet::new(),
            unconfirmed: BTreeMap::new(),
            begun: BTreeMap::new(),
            endings: BTreeMap::new(),
            kills: 0,
            last_event_at: None,
            is_at_rest: false,
            violations: Vec::new(),
        }
    }

    fn broken(&mut self, at: Time, promise: Promise, what: String) {
        self.violations.push(Violation { at, promise, what });
    }

    fn queue_of(&self, message: usize) -> &'a QueuePlan {
        &self.scenario.queues[self.scenario.messages[message].queue]
    }

    fn observe(&mut self, Recorded { at, event }: &Recorded) {
        let at = *at;
        self.check_standstill(at);
        match *event {
            Happened::Started(process) => drop(self.lives.entry(process).or_default()),
            Happened::AskedToStop(process) => {
                self.lives.entry(process).or_default().asked_to_stop = Some(at);
            }
            Happened::Stopped(process, ref result) => self.stopped(at, process, result),
            Happened::Killed(process) => {
                self.lives.entry(process).or_default().has_ended = true;
                self.kills += 1;
                let attempts = &self.attempts;
                self.running.retain(|attempt| attempts[attempt].process != process);
            }
            Happened::Published(message) => drop(self.published.insert(message, at)),
            Happened::Expired(message) => drop(self.expired.insert(message)),
            Happened::NotPublished(message, _) => {
                *self.unconfirmed.entry(message).or_default() += 1
            }
            Happened::Began { attempt, process, message, number, waits, ref queued } => {
                self.check_order(at, message, queued);
                self.began(at, attempt, Attempt { process, message, number, waits });
                self.check_number(at, message, number, waits);
            }
            Happened::Ended(attempt, ending) => {
                self.ended(at, attempt);
                let message = self.attempts[&attempt].message;
                self.endings.entry(message).or_default().push(ending);
            }
            Happened::ReplayBegan(process, _) => drop(self.replaying.insert(process)),
            Happened::ReplayEnded(process, ref result) => self.replay_ended(at, process, result),
            Happened::Dropped(attempt) => self.dropped(at, attempt),
            Happened::Paused(process, queue) => drop(self.paused.insert((process, queue), at)),
            Happened::Resumed(process, queue) => drop(self.paused.remove(&(process, queue))),
            Happened::Quiet => self.last_event_at = Some(at),
            Happened::AtRest => self.is_at_rest = true,
            Happened::Fault(_) => {}
        }
    }

    /// A handler has come to its end, or was dropped, as at its time limit.
    fn ended(&mut self, at: Time, id: AttemptId) {
        self.running.remove(&id);
        let Attempt { message, waits, .. } = self.attempts[&id];
        self.ended_at.entry((message, waits)).or_default().push(at);
    }

    /// When an operator last sent the message back before this time.
    fn replayed_by(&self, message: usize, at: Time) -> Option<Time> {
        self.replayed.get(&message)?.iter().copied().filter(|time| *time <= at).max()
    }

    fn finish(&mut self, outcome: &RunOutcome) {
        let at = outcome.events.last().map(|recorded| recorded.at).unwrap_or_default();
        if !self.is_at_rest {
            let moving = outcome
                .queues
                .iter()
                .filter(|(name, view)| !is_final(name) && view.messages().next().is_some());
            let what = moving
                .map(|(name, view)| format!("{name}: {view:?}"))
                .collect::<Vec<_>>()
                .join("; ");
            self.broken(at, Promise::EverythingEnds, format!("not at rest: {what}"));
        }
        for (process, life) in &self.lives {
            if !life.has_ended {
                let what = format!("{process:?} did not stop");
                self.violations.push(Violation { at, promise: Promise::StopsEnd, what });
            }
        }
        for copy in &outcome.odd_copies {
            self.check_copy(copy);
        }
        self.check_held(at, outcome);
        if let Some(first) = outcome.timeouts.first()
            && self.scenario.faults.is_empty()
            && !self.is_taken_back()
        {
            let what =
                "the broker took back what was held for longer than its ack timeout".to_owned();
            self.broken(*first, Promise::NothingIsHeldTooLong, what);
        }
        if !self.replaying.is_empty() {
            self.broken(
                at,
                Promise::ReplaysEnd,
                format!("these replays did not end: {:?}", self.replaying),
            );
        }
        for message in 0..self.scenario.messages.len() {
            self.account(at, message, outcome);
        }
    }
}
