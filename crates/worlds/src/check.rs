//! What must hold in every world.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use rehop::settings::{Order, WaitStrategy};
use rehop_simulator::{Time, Version};

use crate::network::{Process, Weather};
use crate::record::{AttemptId, Happened, Recorded};
use crate::scenario::{Ending, Fault, FaultKind, QueuePlan, Scenario};
use crate::world::{Outcome, is_final};

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
    /// A message has more ends than one only if something broke.
    DuplicatesHaveACause,
    /// A message that kills its process is parked, and no other with it.
    PoisonIsParkedAlone,
    /// No process runs more handlers of a queue than it may.
    ConcurrencyIsKept,
    /// In an ordered queue, no attempt begins before the earlier messages with its key have ended.
    OrderIsKept,
    /// A process that stops lets its handlers end within the grace time.
    HandlersMayFinish,
    /// No attempt begins after the deadline of its message.
    NothingBeginsExpired,
    /// A process that stops begins nothing.
    NothingBeginsAfterAStop,
    /// A process stops within its grace time.
    StopsEnd,
    /// No copy is sent once its original is lost to the process.
    NoCopyAfterALoss,
    /// Without faults, each message has exactly the attempts that its policy gives it.
    AttemptsAreThoseOfThePolicy,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3?} {:?}: {}", self.at, self.promise, self.what)
    }
}

/// How much later than it should a process may react: network delays, and what tokio rounds up.
const TOLERANCE: Duration = Duration::from_millis(50);

/// How far away the broker may be for a message that kills to be parked alone.
const NEAR: Duration = Duration::from_millis(3);

/// How soon the loss of a channel is noticed on which nothing is subscribed.
const LOSS_NOTICED: Duration = Duration::from_millis(550);

/// The promises that this world broke.
pub fn check(scenario: &Scenario, outcome: &Outcome) -> Vec<Violation> {
    let mut checker = Checker::new(scenario);
    outcome.events.iter().for_each(|recorded| checker.observe(recorded));
    checker.finish(outcome);
    checker.violations
}

/// An attempt that has begun.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    process: Process,
    message: usize,
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
    /// How each attempt at a message ended.
    endings: BTreeMap<usize, Vec<Ending>>,
    /// How many processes were killed.
    kills: usize,
    is_at_rest: bool,
    violations: Vec<Violation>,
}

impl<'a> Checker<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            attempts: BTreeMap::new(),
            running: BTreeSet::new(),
            lives: BTreeMap::new(),
            published: BTreeMap::new(),
            expired: BTreeSet::new(),
            unconfirmed: BTreeMap::new(),
            begun: BTreeMap::new(),
            endings: BTreeMap::new(),
            kills: 0,
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
            Happened::NotPublished(message, _) => *self.unconfirmed.entry(message).or_default() += 1,
            Happened::Began { attempt, process, message, ref queued, .. } => {
                self.check_order(at, message, queued);
                self.began(at, attempt, Attempt { process, message });
            }
            Happened::Ended(attempt, ending) => {
                self.running.remove(&attempt);
                let message = self.attempts[&attempt].message;
                self.endings.entry(message).or_default().push(ending);
            }
            Happened::Dropped(attempt) => self.dropped(at, attempt),
            Happened::AtRest => self.is_at_rest = true,
            Happened::Fault(_) | Happened::Quiet => {}
        }
    }

    fn began(&mut self, at: Time, id: AttemptId, attempt: Attempt) {
        let Attempt { process, message } = attempt;
        if let Some(asked) = self.lives.get(&process).and_then(|life| life.asked_to_stop)
            && at > asked + TOLERANCE
        {
            let what = format!("{process:?} was asked to stop at {asked:.3?}, and message {message} began");
            self.broken(at, Promise::NothingBeginsAfterAStop, what);
        }
        let plan = &self.scenario.messages[message];
        if let Some(deadline) = plan.deadline.map(|deadline| plan.at + deadline)
            && at > deadline + TOLERANCE
        {
            let what = format!("message {message} was worthless from {deadline:.3?} on, and began");
            self.broken(at, Promise::NothingBeginsExpired, what);
        }
        self.attempts.insert(id, attempt);
        self.running.insert(id);
        *self.begun.entry(message).or_default() += 1;
        let queue = self.scenario.messages[message].queue;
        let is_of_queue = |attempt: &&AttemptId| {
            let Attempt { process: by, message } = self.attempts[attempt];
            by == process && self.scenario.messages[message].queue == queue
        };
        let running = self.running.iter().filter(is_of_queue).count();
        let most = usize::from(self.queue_of(message).concurrency);
        if running > most {
            let what = format!("{process:?} runs {running} handlers of queue {queue}, and may run {most}");
            self.broken(at, Promise::ConcurrencyIsKept, what);
        }
    }

    fn check_order(&mut self, at: Time, message: usize, queued: &[usize]) {
        let plan = &self.scenario.messages[message];
        let order = &self.queue_of(message).order;
        if !order.is_kept() {
            return;
        }
        // What was published again may stand behind later ones.
        let earlier = queued.iter().copied().filter(|other| *other < message).filter(|other| {
            let other_plan = &self.scenario.messages[*other];
            let has_its_key = *order == Order::Queue || other_plan.key == plan.key;
            let came_before = self.published.get(other).is_some_and(|published| *published + TOLERANCE < plan.at);
            other_plan.queue == plan.queue && has_its_key && came_before && !self.unconfirmed.contains_key(other)
        });
        let unended: Vec<_> = earlier.filter(|other| !self.may_have_ended(*other)).collect();
        if !unended.is_empty() {
            let what = format!("message {message} began before {unended:?}, which came earlier, had ended");
            self.broken(at, Promise::OrderIsKept, what);
        }
    }

    /// Whether a message was handled or discarded, and its ack may be under way.
    fn may_have_ended(&self, message: usize) -> bool {
        let endings = self.endings.get(&message).map_or(&[][..], Vec::as_slice);
        let is_final = |ending: &Ending| matches!(ending, Ending::Succeeds | Ending::FailsForGood | Ending::Discards);
        endings.iter().any(is_final)
    }

    fn dropped(&mut self, at: Time, id: AttemptId) {
        let Attempt { process, message } = self.attempts[&id];
        self.running.remove(&id);
        let queue = self.queue_of(message);
        let life = self.lives.entry(process).or_default();
        // A handler of an ordered queue ends with its channel, and one that hangs at its time limit.
        let Some(asked) = life.asked_to_stop.filter(|_| !queue.order.is_kept()) else { return };
        let handlers_until = asked + self.scenario.grace - closing_time(self.scenario.grace);
        if at + TOLERANCE < handlers_until && !self.may_hang(message) {
            let what = format!(
                "a handler of message {message} was dropped, although {process:?} was asked to stop at {asked:.3?} and the grace \
                 time for handlers lasts until {handlers_until:.3?}"
            );
            self.broken(at, Promise::HandlersMayFinish, what);
        }
    }

    fn may_hang(&self, message: usize) -> bool {
        let plan = &self.scenario.messages[message];
        plan.attempts.iter().any(|attempt| attempt.ends == Ending::Hangs)
    }

    fn stopped(&mut self, at: Time, process: Process, result: &Result<String, String>) {
        let life = self.lives.entry(process).or_default();
        life.has_ended = true;
        let asked_to_stop = life.asked_to_stop;
        match asked_to_stop {
            // It does not start if its queues are deleted meanwhile.
            None if result.is_err() && self.deletes_queues_around(at) => {}
            None => {
                let what = format!("{process:?} stopped by itself: {result:?}");
                self.broken(at, Promise::EverythingEnds, what);
            }
            Some(asked) if at > asked + self.scenario.grace + Duration::from_secs(1) => {
                let what = format!("{process:?} was asked to stop at {asked:.3?}, and took longer than its grace time");
                self.broken(at, Promise::StopsEnd, what);
            }
            Some(_) => {
                if let Err(error) = result {
                    self.broken(at, Promise::StopsEnd, format!("{process:?} was asked to stop, and failed: {error}"));
                }
            }
        }
    }

    fn finish(&mut self, outcome: &Outcome) {
        let at = outcome.events.last().map(|recorded| recorded.at).unwrap_or_default();
        if !self.is_at_rest {
            let moving =
                outcome.queues.iter().filter(|(name, view)| !is_final(name) && view.messages().next().is_some());
            let what = moving.map(|(name, view)| format!("{name}: {view:?}")).collect::<Vec<_>>().join("; ");
            self.broken(at, Promise::EverythingEnds, format!("not at rest: {what}"));
        }
        for (process, life) in &self.lives {
            if !life.has_ended {
                let what = format!("{process:?} did not stop");
                self.violations.push(Violation { at, promise: Promise::StopsEnd, what });
            }
        }
        for late in &outcome.late_copies {
            if late.sent > late.lost + LOSS_NOTICED {
                self.broken(late.sent, Promise::NoCopyAfterALoss, format!("{late:?}"));
            }
        }
        for message in 0..self.scenario.messages.len() {
            self.account(at, message, outcome);
        }
    }

    /// Counts the ends of a message.
    fn account(&mut self, at: Time, message: usize, outcome: &Outcome) {
        let name = message.to_string();
        let endings = self.endings.get(&message).cloned().unwrap_or_default();
        let handled = endings.iter().filter(|ending| **ending == Ending::Succeeds).count();
        let discarded = endings.iter().filter(|ending| **ending == Ending::Discards).count();
        let left: usize =
            outcome.queues.values().map(|view| view.messages().filter(|message| **message == name).count()).sum();
        let ends = handled + discarded + left;
        let attempts = &self.scenario.messages[message].attempts;
        let is_innocent = attempts.iter().all(|attempt| attempt.ends == Ending::Succeeds);
        if left > 0 && is_innocent && self.is_of_poison() {
            let what = format!("message {message} kills no process, and was parked");
            self.broken(at, Promise::PoisonIsParkedAlone, what);
        }
        if ends == 0 && !self.expired.contains(&message) {
            let is_confirmed = self.published.contains_key(&message);
            let what =
                format!("message {message} (confirmed: {is_confirmed}) ended nowhere; its attempts: {endings:?}");
            self.broken(at, Promise::NothingIsLost, what);
        }
        let disruptions = self.unconfirmed.get(&message).copied().unwrap_or(0) + self.disruptions();
        if ends > 1 + disruptions {
            let what = format!(
                "message {message} was handled {handled} times, discarded {discarded} times and is left {left} times; \
                 {disruptions} faults allow for duplicates"
            );
            self.broken(at, Promise::DuplicatesHaveACause, what);
        }
        let is_timeless = self.scenario.messages[message].deadline.is_none();
        if is_timeless && self.scenario.faults.is_empty() && self.kills == 0 {
            self.check_attempts(at, message, handled, left);
        }
    }

    /// Whether nothing breaks but processes, within the limits in which a message that kills is parked alone.
    fn is_of_poison(&self) -> bool {
        let Scenario { faults, weather, queues, messages, .. } = self.scenario;
        let is_near = *weather == Weather { latency: weather.latency.min(NEAR), ..Weather::default() };
        let is_within = |queue: &QueuePlan| {
            queue.delivery_limit >= 5
                && queue.immediate + 3 <= queue.delivery_limit
                && queue.strategy != WaitStrategy::InProcess
        };
        let only_kills = messages.iter().flat_map(|message| &message.attempts).all(|attempt| {
            matches!(attempt.ends, Ending::Succeeds | Ending::Kills) && attempt.runs <= Duration::from_secs(2)
        });
        faults.is_empty() && is_near && queues.iter().all(is_within) && only_kills
    }

    fn deletes_queues_around(&self, at: Time) -> bool {
        let is_near = |fault: &Fault| fault.at < at && at < fault.at + Duration::from_secs(5);
        let faults = &self.scenario.faults;
        faults.iter().any(|fault| fault.kind == FaultKind::DeleteEmptyQueues && is_near(fault))
    }

    /// How many duplicates of a message the faults can explain: each may have taken an ack or a confirm with it.
    fn disruptions(&self) -> usize {
        let faults = self.scenario.faults.iter().filter(|fault| !matches!(fault.kind, FaultKind::NoCopies { .. }));
        faults.count() + self.kills
    }

    /// Attempts that are exactly those of the policy. Fewer of those at once are possible where subscriptions end, because 3.10 and 4.0
    /// count what was under way to them.
    fn check_attempts(&mut self, at: Time, message: usize, handled: usize, left: usize) {
        let plan = &self.scenario.messages[message];
        let endings = || plan.attempts.iter().map(|attempt| attempt.ends);
        let is_countable =
            |ending| matches!(ending, Ending::Fails | Ending::Requeues | Ending::Panics | Ending::Succeeds);
        if !endings().all(is_countable) {
            return;
        }
        let (most, least) = self.attempts_in(message);
        let begun = self.begun.get(&message).copied().unwrap_or(0);
        let succeeds = endings().position(|ending| ending == Ending::Succeeds);
        let is_as_planned = match succeeds {
            Some(position) if position < least => begun == position + 1 && (handled, left) == (1, 0),
            Some(position) if position < most => match (handled, left) {
                (1, 0) => begun == position + 1,
                (0, 1) => (least..=most).contains(&begun),
                _ => false,
            },
            _ => (least..=most).contains(&begun) && (handled, left) == (0, 1),
        };
        if !is_as_planned {
            let what = format!(
                "message {message} had {begun} attempts, was handled {handled} times and is left {left} times; its policy gives it \
                 {least} to {most} attempts, and its plan is {:?}",
                plan.attempts
            );
            self.broken(at, Promise::AttemptsAreThoseOfThePolicy, what);
        }
    }

    /// The most attempts that a message can get if nothing breaks, and the fewest.
    fn attempts_in(&self, message: usize) -> (usize, usize) {
        let QueuePlan { immediate, delays, strategy, .. } = self.queue_of(message);
        let (immediate, waits) = (*immediate as usize, delays.len());
        let most = match strategy {
            WaitStrategy::Native => immediate + waits + 1,
            _ => (immediate + 1) * (waits + 1),
        };
        let counts_exactly = self.scenario.version == Version::V4_3 && self.scenario.queues.len() == 1;
        (most, if counts_exactly { most } else { waits + 1 })
    }
}

/// How much of a grace time is not for handlers.
fn closing_time(grace: Duration) -> Duration {
    (grace / 5).min(Duration::from_secs(2))
}
