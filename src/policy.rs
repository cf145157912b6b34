//! The decision: what becomes of a message, from plain data and the time.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backoff::MAX_DELAY;
use crate::failure::{Failure, Kind};
use crate::ledger::Ledger;
use crate::tiers::{Plan, Tiers};
use crate::timestamp::Timestamp;

/// How often and when a queue's messages are tried again, and what becomes of those that never succeed.
///
/// Built and validated from [`Settings`](crate::Settings).
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    pub(crate) delivery_limit: u32,
    pub(crate) immediate: u32,
    pub(crate) delays: Vec<Duration>,
    pub(crate) tiers: Tiers,
    pub(crate) max_age: Option<Duration>,
    pub(crate) on_exhausted: Ending,
    pub(crate) on_expired: Ending,
    pub(crate) errors: BTreeMap<String, Treatment>,
}

impl RetryPolicy {
    /// The most attempts that a message can get by failing: `(immediate + 1) × (waits + 1)`.
    ///
    /// Crashes come on top: deliveries that end with their connection and not with a decision, at most `delivery_limit` of
    /// them before each wait.
    pub fn max_attempts(&self) -> u64 {
        (u64::from(self.immediate) + 1) * (self.delays.len() as u64 + 1)
    }

    /// The most deliveries that a message can get, crashes included: `(delivery_limit + 1) × (waits + 1)`.
    pub fn max_deliveries(&self) -> u64 {
        (u64::from(self.delivery_limit) + 1) * (self.delays.len() as u64 + 1)
    }
}

/// What becomes of a message that will get no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Ending {
    /// Moved to `<queue>.parked` with its history.
    Park,
    /// Acked, counted, kept nowhere.
    Discard,
}

/// How the failures of an error class are treated when the handler left it to the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Treatment {
    /// As [`Failure::transient`].
    Transient,
    /// As [`Failure::requeue`].
    Requeue,
    /// As [`Failure::permanent`].
    Permanent,
    /// As [`Failure::discard`].
    Discard,
}

/// Why a message gets no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// Every attempt that the policy allows has failed.
    Exhausted,
    /// The handler called the failure permanent, or the policy treats its class so.
    Permanent,
    /// Its deadline has passed, or would pass during the wait.
    Expired,
    /// Its body could not be decoded.
    Undecodable,
    /// The handler asked for a delay above [`MAX_DELAY`].
    DelayTooLong,
    /// The handler said that nobody needs it.
    Unneeded,
    /// Its own headers fill a frame and leave no room for ours, so it cannot wait; or the broker takes no copy of it, and has
    /// parked it itself. Either way it is parked without a history.
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
            Self::Unneeded => "unneeded",
            Self::Unpublishable => "unpublishable",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What was chosen for a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Handled.
    Ack,
    /// Back to the head of the queue, counted by the broker.
    Requeue,
    /// Through a wait queue, and home at `due`.
    Wait { tier: Duration, due: Timestamp },
    /// To the parked queue.
    Park(Reason),
    /// Acked and kept nowhere.
    Discard(Reason),
}

/// Decides before an attempt: an expired message is not attempted, and one that came home before its wait was over, because
/// no tier is as long as the delay that was asked for, waits on.
pub(crate) fn decide_before(policy: &RetryPolicy, ledger: &Ledger, now: Timestamp) -> Option<Decision> {
    if outlives(ledger, now) {
        return Some(end(policy.on_expired, Reason::Expired));
    }
    let due = ledger.wait_unfinished.filter(|due| *due > now)?;
    let Plan { tier, total } = policy.tiers.plan(due.since(now))?;
    Some(if outlives(ledger, now + total) {
        end(policy.on_expired, Reason::Expired)
    } else {
        Decision::Wait { tier, due }
    })
}

/// Decides after an attempt, or after a body that did not decode.
pub(crate) fn decide(policy: &RetryPolicy, ledger: &Ledger, result: &Result<(), Failure>, now: Timestamp) -> Decision {
    let Err(failure) = result else { return Decision::Ack };
    let at_once = ledger.redeliveries.is_some_and(|count| count < policy.immediate);
    match treatment(policy, failure) {
        Treatment::Permanent => Decision::Park(Reason::Permanent),
        Treatment::Discard => Decision::Discard(Reason::Unneeded),
        Treatment::Transient | Treatment::Requeue if outlives(ledger, now) => end(policy.on_expired, Reason::Expired),
        Treatment::Transient | Treatment::Requeue if at_once && failure.retry_after().is_none() => Decision::Requeue,
        Treatment::Transient | Treatment::Requeue => wait(policy, ledger, failure.retry_after(), now),
    }
}

fn treatment(policy: &RetryPolicy, failure: &Failure) -> Treatment {
    match failure.kind() {
        Kind::Unsaid => policy.errors.get(failure.class()).copied().unwrap_or(Treatment::Transient),
        Kind::Transient => Treatment::Transient,
        Kind::Requeue => Treatment::Requeue,
        Kind::Permanent => Treatment::Permanent,
        Kind::Discard => Treatment::Discard,
    }
}

fn wait(policy: &RetryPolicy, ledger: &Ledger, asked: Option<Duration>, now: Timestamp) -> Decision {
    let Some(delay) = policy.delays.get(ledger.hop as usize) else {
        return end(policy.on_exhausted, Reason::Exhausted);
    };
    if asked > Some(MAX_DELAY) {
        return Decision::Park(Reason::DelayTooLong);
    }
    let Some(Plan { tier, total }) = policy.tiers.plan(asked.unwrap_or(*delay)) else {
        return end(policy.on_exhausted, Reason::Exhausted);
    };
    let due = now + total;
    if outlives(ledger, due) { end(policy.on_expired, Reason::Expired) } else { Decision::Wait { tier, due } }
}

/// Whether the message's deadline has passed at that moment.
fn outlives(ledger: &Ledger, moment: Timestamp) -> bool {
    ledger.deadline.is_some_and(|deadline| moment >= deadline)
}

fn end(ending: Ending, reason: Reason) -> Decision {
    match ending {
        Ending::Park => Decision::Park(reason),
        Ending::Discard => Decision::Discard(reason),
    }
}

#[cfg(test)]
pub(crate) mod tests;
