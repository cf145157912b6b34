//! The decision: what becomes of a message, from plain data and the time.

use std::fmt;
use std::time::Duration;

use crate::failure::{Failure, Kind};
use crate::retry::ledger::{Ledger, Wait};
use crate::retry::policy::{Ending, RetryPolicy, Treatment};
use crate::timestamp::Timestamp;
use crate::wait::jitter::{Draw, Range};
use crate::wait::{Path, Route};

/// Why a message gets no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// Every attempt that the policy allows has failed.
    Exhausted,
    /// The handler called the failure permanent, or the policy treats its class as permanent.
    Permanent,
    /// Its deadline has passed, or would pass during the wait.
    Expired,
    /// Its body could not be decoded.
    Undecodable,
    /// The handler asked for a longer delay than the policy can make: see
    /// [`RetryPolicy::longest_wait`].
    DelayTooLong,
    /// Its handler deferred it once more than `retry.max_defers` allows.
    DeferredTooOften,
    /// The handler discarded it, or the policy discards the failure's class.
    Discarded,
    /// Its own headers leave no room for rehop's, so it cannot wait. Or the broker accepts no copy
    /// of it, and has parked it itself, without its history.
    Unpublishable,
}

impl Reason {
    /// The word that headers, spans and metrics use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Permanent => "permanent",
            Self::Expired => "expired",
            Self::Undecodable => "undecodable",
            Self::DelayTooLong => "delay_too_long",
            Self::DeferredTooOften => "deferred_too_often",
            Self::Discarded => "discarded",
            Self::Unpublishable => "unpublishable",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What was chosen for a delivery. It is carried out as it is, unless no copy can be made: its
/// headers do not fit into a frame, or the broker takes none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Handled.
    Ack,
    /// Back to the head of the queue, counted by the broker.
    Requeue,
    /// Another attempt at once, by this process, because the broker would forget what the process
    /// knows of a message that has waited in it.
    Again,
    /// Away for this wait. A defer spends neither an attempt nor a wait of the policy.
    Wait { wait: Wait, is_defer: bool },
    /// To the parked queue.
    Park(Reason),
    /// Acked and kept nowhere.
    Discard(Reason),
}

/// What bounds how a delivery may wait or come again, beside its policy and its ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// For how long this process may hold the delivery, if the queue's messages wait in it.
    pub(crate) hold: Option<Hold>,
    /// Whether the message's headers leave room in their frame for those that the broker adds to a
    /// redelivery. If not, no consumer could receive it again.
    pub(crate) lets_return: bool,
}

/// For how long this process may hold a delivery, and what else bounds its returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The longest delay that a handler may ask for now, by the settings.
    pub(crate) max_asked: Duration,
    /// The longest that the delivery may wait from now on so that its next attempt ends before the
    /// broker takes it back. `None`: not even an attempt at once would. In an ordered queue the
    /// message would be overtaken if it went back alone, so there nothing bounds the wait, and all
    /// that the queue holds is given up in time.
    pub(crate) time_left: Option<Duration>,
    /// How often the broker gave the message back. The ledger of a delivery that was held counts
    /// from its last wait.
    pub(crate) redeliveries: Option<u32>,
}

/// Decides before an attempt. An expired message is not attempted. One whose wait is not over waits
/// again: no tier was long enough for the whole wait, a binding of the ladder was missing, or the
/// clock that began it runs ahead of this one. If the policy cannot make what is left of the wait,
/// because it is not the policy that began it, the message is parked: no attempt comes early.
///
/// `limits` are asked for only if the message may have to wait.
pub(crate) fn decide_before(
    policy: &RetryPolicy,
    ledger: &Ledger,
    now: Timestamp,
    limits: impl FnOnce() -> Limits,
) -> Option<Decision> {
    if is_expired_at(ledger, now) {
        return Some(park_or_discard(policy.on_expired, Reason::Expired));
    }
    let due = ledger.wait_unfinished.filter(|due| *due > now)?;
    // The clock may have been put back since the message arrived. That makes no wait longer.
    let due = ledger.wait.map_or(due, |wait| due.min(now + wait.left()));
    let limits = limits();
    let Some(Route { path, leg, total }) = route_asked(policy, due.since(now), limits.hold) else {
        return Some(Decision::Park(Reason::DelayTooLong));
    };
    Some(if is_expired_at(ledger, now + total) {
        park_or_discard(policy.on_expired, Reason::Expired)
    } else {
        let wait = Wait { since: now, due, leg, path };
        bounded_by(limits, policy, Decision::Wait { wait, is_defer: false }, now)
    })
}

/// Decides after an attempt, or after a body that did not decode. `limits` are asked for only after
/// a failure.
pub(crate) fn decide(
    policy: &RetryPolicy,
    ledger: &Ledger,
    result: &Result<(), Failure>,
    now: Timestamp,
    limits: impl FnOnce() -> Limits,
    draw: Draw,
) -> Decision {
    let Err(failure) = result else { return Decision::Ack };
    let limits = limits();
    bounded_by(limits, policy, decide_failed(policy, ledger, failure, now, limits.hold, draw), now)
}

fn decide_failed(
    policy: &RetryPolicy,
    ledger: &Ledger,
    failure: &Failure,
    now: Timestamp,
    hold: Option<Hold>,
    draw: Draw,
) -> Decision {
    let treatment = match failure.kind() {
        Kind::Undecodable => return Decision::Park(Reason::Undecodable),
        Kind::Unclassified => {
            policy.errors.get(failure.class()).copied().unwrap_or(Treatment::Transient)
        }
        Kind::Transient => Treatment::Transient,
        Kind::Requeue => Treatment::Requeue,
        Kind::Permanent => Treatment::Permanent,
        Kind::Discard => Treatment::Discard,
        Kind::Defer => Treatment::Defer,
    };
    let immediate_is_left = ledger.redeliveries.is_some_and(|count| count < policy.immediate);
    match treatment {
        Treatment::Permanent => Decision::Park(Reason::Permanent),
        Treatment::Discard => Decision::Discard(Reason::Discarded),
        Treatment::Transient | Treatment::Requeue | Treatment::Defer
            if is_expired_at(ledger, now) =>
        {
            park_or_discard(policy.on_expired, Reason::Expired)
        }
        Treatment::Defer if failure.retry_after().is_some() => {
            defer(policy, ledger, failure.retry_after().unwrap_or_default(), now, hold, draw)
        }
        Treatment::Transient | Treatment::Requeue | Treatment::Defer
            if immediate_is_left && failure.retry_after().is_none() =>
        {
            Decision::Requeue
        }
        Treatment::Transient | Treatment::Requeue | Treatment::Defer => {
            wait(policy, ledger, failure.retry_after(), now, hold, draw)
        }
    }
}

fn wait(
    policy: &RetryPolicy,
    ledger: &Ledger,
    asked: Option<Duration>,
    now: Timestamp,
    hold: Option<Hold>,
    draw: Draw,
) -> Decision {
    if is_canary(ledger) {
        return Decision::Park(Reason::Exhausted);
    }
    let Some(delay) = policy.delays.get(ledger.hop as usize) else {
        return park_or_discard(policy.on_exhausted, Reason::Exhausted);
    };
    let route = match asked {
        Some(asked) => route_jittered(policy, ledger, asked, now, hold, draw),
        None => policy.strategy.route(policy.jitter.of_policy(*delay, range(policy, ledger), draw)),
    };
    wait_by(policy, ledger, route, false, now)
}

fn defer(
    policy: &RetryPolicy,
    ledger: &Ledger,
    asked: Duration,
    now: Timestamp,
    hold: Option<Hold>,
    draw: Draw,
) -> Decision {
    if is_canary(ledger) {
        return Decision::Park(Reason::Exhausted);
    }
    if ledger.defers >= policy.max_defers {
        return Decision::Park(Reason::DeferredTooOften);
    }
    let route = route_jittered(policy, ledger, asked, now, hold, draw);
    if route.is_some_and(|route| route.path == Path::Return) {
        // The broker counts what is returned to it, and nothing else would bound it.
        return wait(policy, ledger, Some(asked), now, hold, draw);
    }
    wait_by(policy, ledger, route, true, now)
}

/// A canary is parked instead of waiting, also where the policy would discard it: whoever replays
/// the others waits for its fate.
fn is_canary(ledger: &Ledger) -> bool {
    ledger.replay.as_ref().is_some_and(|replay| replay.is_canary)
}

/// What decorrelated jitter draws from.
fn range(policy: &RetryPolicy, ledger: &Ledger) -> Range {
    let first = policy.delays.first().copied().unwrap_or_default();
    let longest = policy.delays.iter().max().copied().unwrap_or_default();
    Range { first, longest, previous: ledger.wait.map(|wait| wait.due.since(wait.since)) }
}

/// The wait for a delay that was asked for. Where the strategy would hold the message for longer
/// than this process may, that is on the ladder, if there is one.
fn route_asked(policy: &RetryPolicy, delay: Duration, hold: Option<Hold>) -> Option<Route> {
    let route = policy.route_asked(delay)?;
    let fits = route.path != Path::Hold || hold.is_none_or(|hold| route.total <= hold.max_asked);
    if fits { Some(route) } else { policy.used_ladder()?.route(delay) }
}

/// The wait for a delay that was asked for, with jitter, unless only that would end it after the
/// deadline: the ladder rounds up.
fn route_jittered(
    policy: &RetryPolicy,
    ledger: &Ledger,
    asked: Duration,
    now: Timestamp,
    hold: Option<Hold>,
    draw: Draw,
) -> Option<Route> {
    let jittered = policy.jitter.of_asked(asked, longest_asked(policy, ledger, now, hold), draw);
    let route = route_asked(policy, jittered, hold);
    route
        .filter(|route| !is_expired_at(ledger, now + route.total))
        .or_else(|| route_asked(policy, asked, hold))
}

/// The longest delay that jitter may make: it makes no wait too long that would not be.
fn longest_asked(
    policy: &RetryPolicy,
    ledger: &Ledger,
    now: Timestamp,
    hold: Option<Hold>,
) -> Duration {
    let held = hold.filter(|_| policy.used_ladder().is_none());
    let held =
        held.map(|hold| hold.time_left.map_or(hold.max_asked, |left| left.min(hold.max_asked)));
    let alive = ledger
        .deadline
        .map(|deadline| deadline.since(now).saturating_sub(Duration::from_millis(1)));
    [held, alive].into_iter().flatten().fold(policy.longest_wait(), Duration::min)
}

fn wait_by(
    policy: &RetryPolicy,
    ledger: &Ledger,
    route: Option<Route>,
    is_defer: bool,
    now: Timestamp,
) -> Decision {
    let Some(Route { path, leg, total }) = route else {
        return Decision::Park(Reason::DelayTooLong);
    };
    let due = now + total;
    if is_expired_at(ledger, due) {
        return park_or_discard(policy.on_expired, Reason::Expired);
    }
    Decision::Wait { wait: Wait { since: now, due, leg, path }, is_defer }
}

/// Whether the message's deadline has passed at that moment.
fn is_expired_at(ledger: &Ledger, moment: Timestamp) -> bool {
    ledger.deadline.is_some_and(|deadline| moment >= deadline)
}

fn park_or_discard(ending: Ending, reason: Reason) -> Decision {
    match ending {
        Ending::Park => Decision::Park(reason),
        Ending::Discard => Decision::Discard(reason),
    }
}

/// The decision, or what takes its place where this delivery cannot be held, or its message not be
/// received again.
fn bounded_by(
    limits: Limits,
    policy: &RetryPolicy,
    decision: Decision,
    now: Timestamp,
) -> Decision {
    let decision = match (limits.hold, decision) {
        (Some(hold), Decision::Requeue) if hold.has_time_for(Duration::ZERO) => Decision::Again,
        (Some(hold), Decision::Wait { wait, .. })
            if wait.path == Path::Hold && hold.has_time_for(wait.due.since(now)) =>
        {
            decision
        }
        (
            Some(hold),
            Decision::Requeue | Decision::Wait { wait: Wait { path: Path::Hold, .. }, .. },
        ) => start_again(policy, hold),
        (_, other) => other,
    };
    match decision {
        Decision::Requeue | Decision::Wait { wait: Wait { path: Path::Return, .. }, .. }
            if !limits.lets_return =>
        {
            Decision::Park(Reason::Unpublishable)
        }
        other => other,
    }
}

/// Decides on a message that cannot wait in this process for as long as it should. It goes back to
/// its queue and starts again, if the broker has counted fewer returns than the limit. Otherwise it
/// is parked: what is not counted would come again without end, and past the limit the broker would
/// delete it if the queue has no dead-letter exchange.
fn start_again(policy: &RetryPolicy, hold: Hold) -> Decision {
    match hold.redeliveries {
        Some(count) if count < policy.delivery_limit => Decision::Requeue,
        _ => Decision::Park(Reason::Exhausted),
    }
}

impl Hold {
    fn has_time_for(self, delay: Duration) -> bool {
        self.time_left.is_some_and(|left| delay <= left)
    }
}

#[cfg(test)]
pub(crate) mod tests;
