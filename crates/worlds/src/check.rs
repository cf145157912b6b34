//! What must hold in every world.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use rehop::settings::{Order, WaitStrategy};
use rehop_simulator::{Time, Version};

use crate::network::{Conditions, OddCopy, Oddity, Process, Replayed};
use crate::record::{AttemptId, Happened, Recorded};
use crate::run::{Outcome, is_final};
use crate::scenario::{AttemptEnd, AttemptPlan, Fault, FaultKind, MessagePlan, Place, QueuePlan, Scenario};

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
    /// A message that kills its process is parked, and no other with it. In an ordered queue it may take those behind it along.
    PoisonIsParkedAlone,
    /// Where the settings name the broker's ack timeout and nothing breaks, the broker never has to enforce it.
    NothingIsHeldTooLong,
    /// No process runs more handlers of a queue than it may.
    ConcurrencyIsKept,
    /// In an ordered queue, no attempt begins before the earlier messages with its key have ended.
    OrderIsKept,
    /// Where 4.3 takes messages back sooner than the settings say, or refuses the copies of some, it parks none that are handled in time.
    NothingFineIsParked,
    /// A process that stops lets its handlers end within the grace time.
    HandlersMayFinish,
    /// No attempt begins after the deadline of its message.
    NothingBeginsExpired,
    /// No attempt begins before the wait after the attempts before it is over.
    NothingBeginsEarly,
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
    /// Without faults, each message has exactly the attempts that its policy gives it, and each attempt counts those before it.
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

/// How far away the broker may be for a message that kills to be parked alone.
const NEAR: Duration = Duration::from_millis(3);

/// An ack timeout within which the lines of drawn worlds end.
const LONG_ENOUGH_FOR_LINES: Duration = Duration::from_secs(600);

/// How soon the loss of a channel is noticed on which nothing is subscribed.
const LOSS_NOTICED: Duration = Duration::from_millis(550);

/// The promises that this world broke.
pub fn check(scenario: &Scenario, outcome: &Outcome) -> Vec<Violation> {
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
    /// When the first attempt at a message ended that had waited so often.
    first_ends: BTreeMap<(usize, u32), Time>,
    /// When each message was sent back by an operator.
    replayed: BTreeMap<usize, Vec<Time>>,
    /// Replays that have not ended.
    replaying: BTreeSet<Process>,
    /// How each attempt at a message ended.
    endings: BTreeMap<usize, Vec<AttemptEnd>>,
    /// How many processes were killed.
    kills: usize,
    is_at_rest: bool,
    violations: Vec<Violation>,
}

impl<'a> Checker<'a> {
    fn new(scenario: &'a Scenario, outcome: &Outcome) -> Self {
        let mut replayed = BTreeMap::<usize, Vec<Time>>::new();
        for Replayed { message, at, .. } in &outcome.replayed {
            replayed.entry(*message).or_default().push(*at);
        }
        Self {
            scenario,
            first_ends: BTreeMap::new(),
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
            Happened::Began { attempt, process, message, number, waits, ref queued } => {
                self.check_order(at, message, queued);
                self.began(at, attempt, Attempt { process, message, waits });
                self.check_number(at, message, number);
            }
            Happened::Ended(attempt, ending) => {
                self.ended(at, attempt);
                let message = self.attempts[&attempt].message;
                self.endings.entry(message).or_default().push(ending);
            }
            Happened::ReplayBegan(process, _) => drop(self.replaying.insert(process)),
            Happened::ReplayEnded(process, ref result) => self.replay_ended(at, process, result),
            Happened::Dropped(attempt) => self.dropped(at, attempt),
            Happened::AtRest => self.is_at_rest = true,
            Happened::Fault(_) | Happened::Quiet => {}
        }
    }

    fn began(&mut self, at: Time, id: AttemptId, attempt: Attempt) {
        let Attempt { process, message, waits } = attempt;
        if let Some(asked) = self.lives.get(&process).and_then(|life| life.asked_to_stop)
            && at > asked + TOLERANCE
        {
            let what = format!("{process:?} was asked to stop at {asked:.3?}, and message {message} began");
            self.broken(at, Promise::NothingBeginsAfterAStop, what);
        }
        let plan = &self.scenario.messages[message];
        if let Some(deadline) = plan.deadline.map(|deadline| plan.at + deadline)
            && at > deadline + TOLERANCE
            // An operator gives it time again.
            && !self.was_replayed_by(message, at)
        {
            let what = format!("message {message} was worthless from {deadline:.3?} on, and began");
            self.broken(at, Promise::NothingBeginsExpired, what);
        }
        self.check_wait(at, message, waits);
        self.attempts.insert(id, attempt);
        self.running.insert(id);
        *self.begun.entry(message).or_default() += 1;
        let queue = self.scenario.messages[message].queue;
        let is_of_queue = |attempt: &&AttemptId| {
            let Attempt { process: by, message, .. } = self.attempts[attempt];
            by == process && self.scenario.messages[message].queue == queue
        };
        let running = self.running.iter().filter(is_of_queue).count();
        self.check_line(at, message);
        let most = usize::from(self.queue_of(message).concurrency);
        if running > most {
            let what = format!("{process:?} runs {running} handlers of queue {queue}, and may run {most}");
            self.broken(at, Promise::ConcurrencyIsKept, what);
        }
    }

    /// Each wait is as long as the settings say, at least, after the first attempt that may have led to it.
    fn check_wait(&mut self, at: Time, message: usize, waits: u32) {
        let Some(before) = waits.checked_sub(1) else { return };
        let delay = self.queue_of(message).delays.get(before as usize).copied().unwrap_or_default();
        let due = self.first_ends.get(&(message, before)).map(|ended| *ended + delay);
        // What was under way to a subscription that ended comes back as if it had waited.
        let may_be_spent = self.queue_of(message).strategy == WaitStrategy::Native && due.is_none();
        if !may_be_spent && due.is_none_or(|due| at < due) {
            let what = format!("message {message} began after wait {waits} of {delay:?}, which is over at {due:.3?}");
            self.broken(at, Promise::NothingBeginsEarly, what);
        }
    }

    /// Without faults, an attempt knows of all those before it, and of no others. But 3.10 and 4.0 count what is under way to a subscription
    /// that ends.
    fn check_number(&mut self, at: Time, message: usize, number: u32) {
        let nth = self.begun.get(&message).copied().unwrap_or(0);
        let Scenario { faults, messages, .. } = self.scenario;
        let defers = |attempt: &AttemptPlan| matches!(attempt.ends, AttemptEnd::Defers(_));
        let is_single = !self.unconfirmed.contains_key(&message) && !self.replayed.contains_key(&message);
        let is_undisturbed = faults.is_empty() && self.kills == 0 && is_single && !self.is_taken_back();
        if !is_undisturbed || self.may_give_back(message) || messages[message].attempts.iter().any(defers) {
            return;
        }
        if (number as usize) < nth || self.counts_exactly() && number as usize > nth {
            let what = format!("attempt {nth} of message {message} takes itself for attempt {number}");
            self.broken(at, Promise::AttemptsAreThoseOfThePolicy, what);
        }
    }

    /// A handler has come to its end, or was dropped, as at its time limit.
    fn ended(&mut self, at: Time, id: AttemptId) {
        self.running.remove(&id);
        let Attempt { message, waits, .. } = self.attempts[&id];
        self.first_ends.entry((message, waits)).or_insert(at);
    }

    fn was_replayed_by(&self, message: usize, at: Time) -> bool {
        self.replayed.get(&message).is_some_and(|times| times.iter().any(|time| *time <= at))
    }

    fn replay_ended(&mut self, at: Time, process: Process, result: &Result<String, String>) {
        self.replaying.remove(&process);
        let replays = &self.scenario.replays;
        // Two operators do not work on one queue.
        // It may hold messages for longer than an ack timeout that is shorter than the settings say.
        let is_undisturbed = self.scenario.faults.is_empty()
            && !self.is_taken_back()
            && replays.len() == 1
            && replays.iter().all(|replay| replay.disturbed.is_none());
        if let Err(error) = result
            && is_undisturbed
        {
            self.broken(at, Promise::ReplaysEnd, format!("a replay failed, although nothing broke: {error}"));
        }
    }

    fn check_order(&mut self, at: Time, message: usize, queued: &[usize]) {
        let plan = &self.scenario.messages[message];
        let order = &self.queue_of(message).order;
        if !order.is_kept() || self.is_silent(message, at) {
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

    /// Whether the leader of the message's queue is silent. Then what has ended, and was acked, may still be there.
    fn is_silent(&self, message: usize, at: Time) -> bool {
        let queue = self.scenario.messages[message].queue;
        self.scenario.faults.iter().any(|fault| match fault.kind {
            FaultKind::SilentLeader { place: Place::Work(silent), lasts } => {
                silent == queue && fault.at <= at && at <= fault.at + lasts + TOLERANCE
            }
            _ => false,
        })
    }

    /// In an ordered queue, one message of a key is handled at a time. A process whose connection is gone may not know yet that another one
    /// has its messages, so this holds where nothing breaks.
    fn check_line(&mut self, at: Time, message: usize) {
        let plan = &self.scenario.messages[message];
        let order = &self.queue_of(message).order;
        if !order.is_kept() || !self.scenario.faults.is_empty() || self.kills > 0 || self.is_taken_back() {
            return;
        }
        let is_of_line = |attempt: &&AttemptId| {
            let other = &self.scenario.messages[self.attempts[attempt].message];
            other.queue == plan.queue && (*order == Order::Queue || other.key == plan.key)
        };
        let running = self.running.iter().filter(is_of_line).count();
        if running > 1 {
            let what = format!("{running} handlers of the line of message {message} run at once");
            self.broken(at, Promise::OrderIsKept, what);
        }
    }

    /// Whether a message was handled or discarded, and its ack may be under way.
    fn may_have_ended(&self, message: usize) -> bool {
        let endings = self.endings.get(&message).map_or(&[][..], Vec::as_slice);
        let is_final = |ending: &AttemptEnd| {
            matches!(ending, AttemptEnd::Succeeds | AttemptEnd::FailsForGood | AttemptEnd::Discards)
        };
        endings.iter().any(is_final)
    }

    fn dropped(&mut self, at: Time, id: AttemptId) {
        let Attempt { process, message, .. } = self.attempts[&id];
        self.ended(at, id);
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
        plan.attempts.iter().any(|attempt| attempt.ends == AttemptEnd::Hangs)
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
        for copy in &outcome.odd_copies {
            self.check_copy(copy);
        }
        if let Some(first) = outcome.timeouts.first()
            && self.scenario.faults.is_empty()
            && !self.is_taken_back()
        {
            let what = "the broker took back what was held for longer than its ack timeout".to_owned();
            self.broken(*first, Promise::NothingIsHeldTooLong, what);
        }
        if !self.replaying.is_empty() {
            self.broken(at, Promise::ReplaysEnd, format!("these replays did not end: {:?}", self.replaying));
        }
        for message in 0..self.scenario.messages.len() {
            self.account(at, message, outcome);
        }
    }

    fn check_copy(&mut self, copy: &OddCopy) {
        let promise = match copy.oddity {
            Oddity::AfterLoss { lost } if copy.sent <= lost + LOSS_NOTICED => return,
            Oddity::AfterLoss { .. } => Promise::NoCopyAfterALoss,
            Oddity::WhileBlocked => Promise::NoCopyDuringAnAlarm,
            // What waits in its queue has nowhere to keep them. Its parked copy tells the last.
            Oddity::WithoutHistory { failures, has_failed, .. }
                if self.is_native(&copy.message) && (failures > 0 || !has_failed) =>
            {
                return;
            }
            Oddity::WithoutHistory { .. } => Promise::CopiesTellTheirHistory,
        };
        self.broken(copy.sent, promise, format!("{copy:?}"));
    }

    fn is_native(&self, message: &str) -> bool {
        let number = message.parse().ok().filter(|number| *number < self.scenario.messages.len());
        number.is_some_and(|number| self.queue_of(number).strategy == WaitStrategy::Native)
    }

    /// Counts the ends of a message.
    fn account(&mut self, at: Time, message: usize, outcome: &Outcome) {
        let name = message.to_string();
        let endings = self.endings.get(&message).cloned().unwrap_or_default();
        let handled = endings.iter().filter(|ending| **ending == AttemptEnd::Succeeds).count();
        let discarded = endings.iter().filter(|ending| **ending == AttemptEnd::Discards).count();
        let left: usize =
            outcome.queues.values().map(|view| view.messages().filter(|message| **message == name).count()).sum();
        let ends = handled + discarded + left;
        let is_alone = self.is_innocent(message) && !self.may_use_up_attempts(message);
        if left > 0 && is_alone && self.is_of_poison() && !self.is_behind_poison(message) {
            let what = format!("message {message} kills no process, and was parked");
            self.broken(at, Promise::PoisonIsParkedAlone, what);
        }
        if left > 0 && self.is_never_late(message) {
            let what = format!("message {message} is handled in time whenever it is attempted, and was parked");
            self.broken(at, Promise::NothingFineIsParked, what);
        }
        if ends == 0 && !self.expired.contains(&message) && !self.may_be_deleted(message) {
            let is_confirmed = self.published.contains_key(&message);
            let what =
                format!("message {message} (confirmed: {is_confirmed}) ended nowhere; its attempts: {endings:?}");
            self.broken(at, Promise::NothingIsLost, what);
        }
        let disruptions = self.unconfirmed.get(&message).copied().unwrap_or(0) + self.disruptions();
        if ends > 1 + disruptions && !self.is_taken_back() {
            let what = format!(
                "message {message} was handled {handled} times, discarded {discarded} times and is left {left} times; \
                 {disruptions} faults allow for duplicates"
            );
            self.broken(at, Promise::DuplicatesHaveACause, what);
        }
        let is_timeless = self.scenario.messages[message].deadline.is_none() && !self.may_give_back(message);
        if is_timeless
            && !self.is_taken_back()
            && !self.replayed.contains_key(&message)
            && self.scenario.faults.is_empty()
            && self.kills == 0
        {
            self.check_attempts(at, message, handled, left);
        }
    }

    /// Whether no attempt at this message kills its process.
    fn is_innocent(&self, message: usize) -> bool {
        let attempts = &self.scenario.messages[message].attempts;
        attempts.iter().all(|attempt| attempt.ends != AttemptEnd::Kills)
    }

    /// Whether the message fails in a queue in which the deaths of its process use up attempts that do not come again.
    fn may_use_up_attempts(&self, message: usize) -> bool {
        let fails = self.scenario.messages[message].attempts.iter().any(|attempt| attempt.ends != AttemptEnd::Succeeds);
        fails && self.queue_of(message).strategy == WaitStrategy::Native
    }

    /// Whether one that kills comes before this message in its line of an ordered queue that holds several.
    fn is_behind_poison(&self, message: usize) -> bool {
        let plan = &self.scenario.messages[message];
        let is_of_line = |other: &usize| {
            let other = &self.scenario.messages[*other];
            other.queue == plan.queue && other.key == plan.key
        };
        // What is published at nearly the same time may change places.
        let is_before = |other: &usize| self.scenario.messages[*other].at <= plan.at + TOLERANCE;
        let mut before = (0..self.scenario.messages.len()).filter(is_of_line).filter(is_before);
        self.queue_of(message).order == Order::RoutingKey && before.any(|other| !self.is_innocent(other))
    }

    /// Whether the broker may delete the message above its delivery limit, which it would dead-letter if it could.
    fn may_be_deleted(&self, message: usize) -> bool {
        let queue = self.queue_of(message);
        let is_late = self.is_taken_back() && queue.strategy == WaitStrategy::InProcess;
        queue.is_existing && (!self.is_innocent(message) || self.is_behind_poison(message) || is_late)
    }

    /// Whether a broker that takes back single messages, or refuses copies (4.3), does neither with this one, and nothing else may park it.
    fn is_never_late(&self, message: usize) -> bool {
        let (plan, queue) = (&self.scenario.messages[message], self.queue_of(message));
        let is_quick = plan
            .attempts
            .iter()
            .all(|attempt| attempt.ends == AttemptEnd::Succeeds && attempt.runs < self.scenario.enforced_timeout / 2);
        let goes_back = !matches!(queue.strategy, WaitStrategy::InProcess | WaitStrategy::Native);
        let refuses = |fault: &Fault| matches!(fault.kind, FaultKind::NoCopies { .. } | FaultKind::Full { .. });
        let is_undisturbed = self.kills == 0 && self.scenario.faults.iter().all(refuses);
        let is_alone = self.scenario.version == Version::V4_3 && is_undisturbed;
        is_quick && goes_back && is_alone && plan.deadline.is_none() && !self.unconfirmed.contains_key(&message)
    }

    /// Whether an ordered queue may hold a line for longer than the broker's ack timeout. Then it gives back all that it holds, which is
    /// counted. So is what waits too long for its first handler in a queue in which the broker lets messages wait.
    fn may_give_back(&self, message: usize) -> bool {
        let queue = self.queue_of(message);
        let is_counted = queue.order.is_kept() || queue.strategy == WaitStrategy::Native;
        is_counted && self.scenario.consumer_timeout < LONG_ENOUGH_FOR_LINES
    }

    /// Whether the broker takes messages back sooner than the settings say. Then their handlers run on, and others run beside them.
    fn is_taken_back(&self) -> bool {
        self.scenario.enforced_timeout < self.scenario.consumer_timeout
    }

    /// Whether nothing breaks but processes, within the limits in which a message that kills is parked alone.
    fn is_of_poison(&self) -> bool {
        let Scenario { faults, conditions, queues, messages, .. } = self.scenario;
        let is_near = is_near(conditions);
        let is_within = |queue: &QueuePlan| {
            queue.delivery_limit >= 5
                && queue.immediate + 3 <= queue.delivery_limit
                && (queue.strategy != WaitStrategy::InProcess || queue.order.is_kept() && queue.delivery_limit >= 6)
        };
        let is_ordered = queues.iter().any(|queue| queue.order.is_kept());
        let kills = (0..messages.len()).filter(|message| !self.is_innocent(*message)).count();
        let is_alone = !is_ordered || queues.len() == 1 && kills <= 1;
        // Others succeed in the end, after no more attempts at once than they have.
        let is_planned = |message: &MessagePlan| {
            let immediate = queues[message.queue].immediate as usize;
            message.attempts.iter().all(|attempt| match attempt.ends {
                AttemptEnd::Kills => attempt.runs <= Duration::from_secs(2),
                AttemptEnd::Requeues => !is_ordered && message.attempts.len() <= immediate + 1,
                ends => ends == AttemptEnd::Succeeds,
            })
        };
        let is_kill = |fault: &Fault| matches!(fault.kind, FaultKind::Kill { .. });
        let is_killed_once = faults.len() <= 1 && faults.iter().all(is_kill);
        let is_planned = messages.iter().all(is_planned) && queues.iter().all(is_within);
        is_killed_once && is_near && is_alone && is_planned && !self.is_taken_back()
    }

    fn deletes_queues_around(&self, at: Time) -> bool {
        let is_near = |fault: &Fault| fault.at < at && at < fault.at + Duration::from_secs(5);
        let faults = &self.scenario.faults;
        faults.iter().any(|fault| fault.kind == FaultKind::DeleteEmptyQueues && is_near(fault))
    }

    /// How many duplicates of a message the faults can explain: each may have taken an ack or a confirm with it.
    fn disruptions(&self) -> usize {
        let ack_timeout = self.scenario.consumer_timeout;
        let explained = self.scenario.faults.iter().map(|fault| match fault.kind {
            // The copy was refused, so there is none.
            FaultKind::NoCopies { .. } | FaultKind::Full { .. } | FaultKind::NoBodies { .. } => 0,
            // A copy may be stored although its confirm did not come in time, each time that the message comes again.
            FaultKind::SilentLeader { lasts, .. } => 1 + (lasts.as_secs() / (ack_timeout.as_secs() / 3)) as usize,
            // The same if the broker takes the message back during the alarm: a new connection sends one copy before it hears of the alarm.
            FaultKind::Alarm { lasts } => 1 + (lasts.as_secs() / ack_timeout.as_secs()) as usize,
            _ => 1,
        });
        let disturbed = self.scenario.replays.iter().filter(|replay| replay.disturbed.is_some());
        explained.sum::<usize>() + self.kills + disturbed.count()
    }

    /// Attempts that are exactly those of the policy. Fewer of those at once are possible where subscriptions end, because 3.10 and 4.0
    /// count what was under way to them.
    fn check_attempts(&mut self, at: Time, message: usize, handled: usize, left: usize) {
        let plan = &self.scenario.messages[message];
        let endings = || plan.attempts.iter().map(|attempt| attempt.ends);
        let is_countable = |ending| {
            matches!(ending, AttemptEnd::Fails | AttemptEnd::Requeues | AttemptEnd::Panics | AttemptEnd::Succeeds)
        };
        if !endings().all(is_countable) {
            return;
        }
        let (most, least) = self.attempts_in(message);
        let begun = self.begun.get(&message).copied().unwrap_or(0);
        let succeeds = endings().position(|ending| ending == AttemptEnd::Succeeds);
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
        (most, if self.counts_exactly() { most } else { waits + 1 })
    }

    /// Whether the broker counts nothing but attempts, if nothing breaks.
    fn counts_exactly(&self) -> bool {
        self.scenario.version == Version::V4_3 && self.scenario.queues.len() == 1
    }
}

/// Whether the broker is near, and at once does what it is told.
fn is_near(conditions: &Conditions) -> bool {
    *conditions == Conditions { latency: conditions.latency.min(NEAR), ..Conditions::default() }
}

/// How much of a grace time is not for handlers.
fn closing_time(grace: Duration) -> Duration {
    (grace / 5).min(Duration::from_secs(2))
}
