//! The outbox decides which copy is sent when and on which channel, and which one is to blame when the broker refuses something.
//!
//! A *lane* is one confirming channel. Each exchange has one, which carries every copy in good standing, as many at once as there are. If the
//! broker closes it over the exchange, the exchange is *in doubt*: its copies wait, and after a pause one of them finds out whether it takes copies
//! again, on a lane of its own. A copy that the broker refuses, or that may have closed its lane, is *set apart*: it is tried alone, on a lane of its
//! own that is closed after the verdict, after a pause of its own that grows. So it neither holds up nor multiplies the others, whatever the
//! broker does about it.
//!
//! Pure: events come in through its methods, and [`Outbox::next`] says what to do. Time and randomness are arguments.

mod action;
mod blame;
mod copies;
mod exchange;
#[cfg(test)]
mod model;
mod repair;
mod solo;
mod step;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

pub(crate) use self::action::{Action, Report};
use self::copies::{CopyState, Place};
use self::exchange::Exchange;
use self::repair::Repair;
use self::solo::Solo;
use self::timers::Timers;
use crate::broker::lane::cause::{Cause, Trouble};
use crate::broker::lane::{CopyId, LaneId};

/// How long to wait for a confirm on a live connection before the copy is sent again.
const LONGEST_CONFIRM_TIMEOUT: Duration = Duration::from_secs(600);

/// The longest that a healthy broker takes to answer one copy on a lane of its own, or to close something because of a copy.
const USUAL_ANSWER_TIME: Duration = Duration::from_secs(1);

/// How many copies that are set apart are tried at once. Those whose confirm takes longer than usual do not count.
const TRIALS: usize = 16;

/// After this many closes over one copy alone, the copy is unpublishable.
const MAX_CLOSES: u32 = 3;

/// The shortest time between two repairs of the topology.
const REPAIR_EVERY: Duration = Duration::from_secs(5);

/// A connection that lasted this long does not count as failed.
const STEADY_AFTER: Duration = Duration::from_secs(10);

/// How long an exchange must be without trouble before it is reported as recovered.
const RECOVERED_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    /// A pause is over, or a confirm is overdue.
    Copy(CopyId),
    /// The lane should be open by now.
    Opening(LaneId),
    /// Its confirm takes longer than usual.
    Usual(LaneId),
    /// Its pause is over, or the copy that finds out has had no answer for as long as that usually takes.
    Exchange(usize),
    Recovered(usize),
    Connection,
    Probe,
    Repair,
    Solo,
}

#[derive(Debug)]
enum Connection {
    Down { may_connect: bool },
    Connecting,
    Up { since: Instant },
}

/// A copy that has a lane to itself.
#[derive(Debug)]
struct Trial {
    copy: CopyId,
    is_sent: bool,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    answer_timeout: Duration,
    copies: HashMap<CopyId, CopyState>,
    exchanges: Vec<Exchange>,
    connection: Connection,
    /// How often in a row no connection could be made, or broke before it confirmed anything.
    failures: u32,
    last_failure: Option<String>,
    is_probing: bool,
    trials: BTreeMap<LaneId, Trial>,
    /// Those whose lane is open, and whose copy is not sent yet.
    opened: BTreeSet<LaneId>,
    /// Those that have not taken longer than usual. They bound how many are begun.
    recent: BTreeSet<LaneId>,
    suspects: BTreeSet<CopyId>,
    solo: Solo,
    repair: Repair,
    next_lane: u64,
    /// How many sends there were so far: tells what was sent before an event from what was sent after it.
    sends: u64,
    timers: Timers<Timer>,
    /// Pauses that begin now, with the number of failures that their length depends on.
    pauses: Vec<(Timer, u32)>,
    actions: VecDeque<Action>,
}

impl Outbox {
    /// `answer_timeout` is how long the broker may take to answer anything. The lanes of these exchanges are opened before the first copies.
    pub(crate) fn new<'a>(answer_timeout: Duration, exchanges: impl IntoIterator<Item = &'a str>) -> Self {
        let mut outbox = Self {
            answer_timeout,
            copies: HashMap::new(),
            exchanges: Vec::new(),
            connection: Connection::Down { may_connect: true },
            failures: 0,
            last_failure: None,
            is_probing: false,
            trials: BTreeMap::new(),
            opened: BTreeSet::new(),
            recent: BTreeSet::new(),
            suspects: BTreeSet::new(),
            solo: Solo::Idle,
            repair: Repair::default(),
            next_lane: 0,
            sends: 0,
            timers: Timers::new(),
            pauses: Vec::new(),
            actions: VecDeque::new(),
        };
        for exchange in exchanges {
            outbox.exchange_named(exchange);
        }
        outbox
    }

    /// A copy that is to be published. Ids grow.
    pub(crate) fn submit(&mut self, id: CopyId, exchange: &str) {
        let exchange = self.exchange_named(exchange);
        let state = CopyState {
            exchange,
            place: Place::Queued,
            is_apart: false,
            is_suspect: false,
            is_in_trouble: false,
            was_sent: false,
            sent_at: None,
            awaited_since: None,
            last_send: 0,
            confirm_timeout: self.answer_timeout,
            tries: 0,
            closes: 0,
            resends: 0,
        };
        self.copies.insert(id, state);
        self.enqueue(id);
    }

    /// Nobody waits for this copy any longer.
    pub(crate) fn withdraw(&mut self, id: CopyId, now: Instant) {
        self.take(id, now);
    }

    /// The broker has it. This holds whichever lane says so, even one that was given up.
    pub(crate) fn confirmed(&mut self, id: CopyId, now: Instant) {
        let Some(state) = self.take(id, now) else { return };
        self.failures = 0;
        self.took_one(state.exchange, state.last_send);
        if matches!(state.place, Place::Alone(_)) {
            self.renew_lane(state.exchange);
        }
        self.actions.push_back(Action::Confirmed(id));
    }

    pub(crate) fn nacked(&mut self, lane: LaneId, id: CopyId) {
        self.refused(lane, id, Trouble::Refused);
    }

    /// The copy found no queue, although each of our exchanges has an alternate exchange that leads to one.
    pub(crate) fn returned(&mut self, lane: LaneId, id: CopyId) {
        if self.refused(lane, id, Trouble::Unroutable)
            && let Some(exchange) = self.exchange_of(id)
        {
            self.want_repair(exchange);
        }
    }

    pub(crate) fn lane_opened(&mut self, lane: LaneId) {
        self.timers.cancel(Timer::Opening(lane));
        if let Some(exchange) = self.exchange_of_lane(lane) {
            self.exchanges[exchange].is_open = true;
        } else if self.trials.contains_key(&lane) {
            self.opened.insert(lane);
        } else {
            self.actions.push_back(Action::CloseLane(lane));
        }
    }

    /// The broker closed a channel, or did not open it.
    pub(crate) fn lane_closed(&mut self, lane: LaneId, cause: &Cause, now: Instant) {
        if let Some(exchange) = self.exchange_of_lane(lane) {
            self.lane_of_exchange_closed(exchange, cause, now);
        } else if let Some(Trial { copy, is_sent }) = self.release(lane) {
            self.timers.cancel(Timer::Copy(copy));
            self.closed_alone(copy, is_sent, cause, now);
        }
    }

    pub(crate) fn connected(&mut self, now: Instant) {
        self.connection = Connection::Up { since: now };
        self.last_failure = None;
        self.end_repair();
        self.repair = Repair { is_wanted: true, is_of_all: true, ..Repair::default() };
    }

    /// The connection is gone, or could not be made.
    pub(crate) fn connection_lost(&mut self, cause: &Cause, now: Instant) {
        match self.connection {
            Connection::Down { .. } => return,
            Connection::Up { since } if now.saturating_duration_since(since) >= STEADY_AFTER => self.failures = 0,
            Connection::Up { .. } | Connection::Connecting => {}
        }
        if self.last_failure.as_ref() != Some(&cause.text) {
            self.last_failure = Some(cause.text.clone());
            let report = Report::Disconnected { text: cause.text.clone(), unconfirmed: self.copies.len() };
            self.actions.push_back(Action::Report(report));
        }
        self.connection = Connection::Down { may_connect: false };
        self.pauses.push((Timer::Connection, self.failures));
        self.failures = self.failures.saturating_add(1);
        self.is_probing = false;
        self.timers.cancel(Timer::Probe);
        self.solo = Solo::Idle;
        self.timers.cancel(Timer::Solo);
        self.connection_over(cause, now);
    }

    /// The connection answers.
    pub(crate) fn probed(&mut self) {
        self.is_probing = false;
        self.timers.cancel(Timer::Probe);
    }

    /// The topology is established, or could not be.
    pub(crate) fn repaired(&mut self) {
        self.repair.is_running = false;
        self.repair.is_of_all = false;
        self.end_repair();
    }
}
