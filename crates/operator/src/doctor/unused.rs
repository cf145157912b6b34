//! Which wait queues, and exchanges that lead to them, the settings no longer use, and which of
//! them may go. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::observed::{ExchangeDetails, Management, QueueDetails};
use super::users::Users;
use rehop::internals::Names;

/// A wait queue, or an exchange that leads to wait queues, that the settings do not use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Unused {
    /// What it is.
    pub object: Prunable,
    /// Its name.
    pub name: String,
    /// Its delay in milliseconds, or that of the wait queue behind which it stands. The exchange
    /// that leads to all rungs of a ladder, or to all tiers of one queue, has none.
    pub delay_ms: Option<u64>,
    /// How many messages are in a queue, those that the broker is dead-lettering included, as far
    /// as it has counted.
    pub messages: Option<u64>,
    /// Whether it may go.
    pub verdict: Verdict,
    /// The work queues whose consumers use it, or may use it.
    pub used_by: Vec<String>,
}

/// What can be pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Prunable {
    /// A tier, or a rung of the ladder.
    Queue,
    /// The exchange behind a rung, or one that leads to all rungs of a ladder, or to all tiers of
    /// one queue.
    Exchange,
}

impl Prunable {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Exchange => "exchange",
        }
    }
}

/// Whether something that the settings do not use may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// It is empty, nobody consumes from it, and no running consumer of a work queue uses it.
    Removable,
    /// The same, but a work queue has consumers that do not say where its messages wait: they may
    /// use it.
    MayBeInUse,
    /// A running consumer of a work queue, with other settings than these, uses it.
    InUse,
    /// Messages wait in it, or cannot be dead-lettered.
    HasMessages,
    /// Somebody consumes from it.
    HasConsumers,
    /// How many messages or consumers it has is not known: the broker has not counted them yet,
    /// cannot because the queue has no leader, or collects no statistics.
    NotCounted,
    /// It has lost the majority of its members, so only what it held before is known.
    NoMajority,
    /// It is empty, and the management API does not show the consumers of each work queue.
    UseUnknown,
    /// An exchange that is needed by a wait queue that stays.
    Needed,
    /// It has the name of such an object, but not the arguments.
    NotOurs,
}

impl Verdict {
    /// The verdict in a few words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Removable => "it is empty and can be deleted",
            Self::MayBeInUse => {
                "it is empty, but may be in use: not all consumers say where their messages wait"
            }
            Self::InUse => "a running consumer with other settings uses it",
            Self::HasMessages => "it has messages",
            Self::HasConsumers => "it has consumers",
            Self::NotCounted => {
                "the broker has not counted its messages and consumers yet, or collects no statistics"
            }
            Self::NoMajority => {
                "it has lost the majority of its members, so what it holds is not known: start their nodes"
            }
            Self::UseUnknown => {
                "it is empty, but may be in use: the management API does not show all consumers"
            }
            Self::Needed => "a wait queue that stays needs it",
            Self::NotOurs => "its arguments are not those that rehop declares",
        }
    }
}

/// What exists of tiers and ladders beside what is used. Queues first, and the exchanges that their
/// messages pass after them.
pub(super) fn unused(names: &Names, used: &BTreeSet<&str>, seen: &Management) -> Vec<Unused> {
    let users = Users::of(names.namespace(), &seen.consumers);
    let mut queues: Vec<_> = seen
        .wait_queues
        .iter()
        .filter(|details| !used.contains(details.name.as_str()))
        .filter_map(|details| queue(names, &users, details))
        .collect();
    queues.sort_by_cached_key(|queue| (foot_of(names, &queue.name), queue.delay_ms));
    let mut exchanges: Vec<_> = seen
        .wait_exchanges
        .iter()
        .filter_map(|details| between_rungs(names, used, &users, &queues, details))
        .collect();
    exchanges.sort_by_cached_key(|exchange| {
        (names.of_after(&exchange.name).map(|(own, _)| own.ladder()), exchange.delay_ms)
    });
    let feet = seen.wait_exchanges.iter().filter(|details| {
        details.name != names.wait() && names.of_wait_exchange(&details.name).is_some()
    });
    let mut feet: Vec<_> =
        feet.filter_map(|details| foot(names, used, &users, &queues, details)).collect();
    feet.sort_by(|one, other| one.name.cmp(&other.name));
    let all = queues.into_iter().chain(exchanges).chain(feet);
    all.filter(|unused| unused.verdict != Verdict::NotOurs || is_shared(names, &unused.name))
        .collect()
}

/// Whether no queue's name is part of this name. One that has a queue's, and other arguments, may
/// belong to a namespace whose name begins with this one.
fn is_shared(names: &Names, name: &str) -> bool {
    let of_delay = names.of_wait_queue(name).or_else(|| names.of_after(name)).map(|(own, _)| own);
    of_delay.or_else(|| names.of_wait_exchange(name)).is_some_and(|own| own == *names)
}

/// The exchange that leads to this wait queue, after whether that is a ladder's.
fn foot_of(names: &Names, queue: &str) -> Option<(bool, String)> {
    let (own, delay) = names.of_wait_queue(queue)?;
    let is_rung = own.rung(delay) == queue;
    Some((is_rung, if is_rung { own.ladder() } else { own.wait() }))
}

fn queue(names: &Names, users: &Users, details: &QueueDetails) -> Option<Unused> {
    let (own, delay) = names.of_wait_queue(&details.name)?;
    let then = if own.tier(delay) == details.name { own.return_() } else { own.after(delay) };
    let announced = users.of_queue(names.without_namespace(&details.name));
    let verdict = verdict(delay, &then, details, announced.is_empty(), users);
    Some(Unused {
        object: Prunable::Queue,
        name: details.name.clone(),
        delay_ms: u64::try_from(delay.as_millis()).ok(),
        messages: details.messages,
        used_by: used_by(verdict, announced, users),
        verdict,
    })
}

fn verdict(
    delay: Duration,
    then: &str,
    details: &QueueDetails,
    is_free: bool,
    users: &Users,
) -> Verdict {
    let ttl = details.arguments.get("x-message-ttl").and_then(Value::as_u64);
    let leads_to = details.arguments.get("x-dead-letter-exchange").and_then(Value::as_str);
    let is_quorum = details.kind == "quorum";
    if !is_quorum || ttl.map(Duration::from_millis) != Some(delay) || leads_to != Some(then) {
        return Verdict::NotOurs;
    }
    match (details.consumers, details.messages) {
        _ if !is_free => Verdict::InUse,
        _ if details.has_lost_majority() => Verdict::NoMajority,
        (Some(1..), _) => Verdict::HasConsumers,
        (_, Some(1..)) => Verdict::HasMessages,
        (None, _) | (_, None) => Verdict::NotCounted,
        _ if details.is_without_leader() => Verdict::NotCounted,
        (Some(0), Some(0)) if !users.unseen().is_empty() => Verdict::UseUnknown,
        (Some(0), Some(0)) if users.silent().is_empty() => Verdict::Removable,
        (Some(0), Some(0)) => Verdict::MayBeInUse,
    }
}

fn used_by(verdict: Verdict, announced: Vec<String>, users: &Users) -> Vec<String> {
    match verdict {
        Verdict::InUse => announced,
        Verdict::MayBeInUse => users.silent(),
        Verdict::UseUnknown => users.unseen(),
        Verdict::Removable
        | Verdict::HasMessages
        | Verdict::HasConsumers
        | Verdict::NotCounted
        | Verdict::NoMajority
        | Verdict::Needed
        | Verdict::NotOurs => Vec::new(),
    }
}

/// The exchange behind a rung goes with the rung. A rung that is gone already leaves its exchange
/// to be deleted.
fn between_rungs(
    names: &Names,
    used: &BTreeSet<&str>,
    users: &Users,
    queues: &[Unused],
    details: &ExchangeDetails,
) -> Option<Unused> {
    let (own, delay) = names.of_after(&details.name)?;
    let rung = own.rung(delay);
    if used.contains(rung.as_str()) {
        return None;
    }
    let announced = users.of_queue(names.without_namespace(&rung));
    let behind = queues.iter().find(|queue| queue.name == rung);
    let verdict = match behind.map(|queue| queue.verdict) {
        _ if !is_ours(details, &names.return_()) => Verdict::NotOurs,
        None if !announced.is_empty() => Verdict::InUse,
        None if !users.unseen().is_empty() => Verdict::UseUnknown,
        None => Verdict::Removable,
        Some(verdict @ (Verdict::Removable | Verdict::MayBeInUse)) => verdict,
        Some(_) => Verdict::Needed,
    };
    let delay_ms = u64::try_from(delay.as_millis()).ok();
    Some(exchange(details, delay_ms, verdict, used_by(verdict, announced, users)))
}

/// The exchange that leads to all rungs of a ladder, or to all tiers of one queue, goes with the
/// last of them.
fn foot(
    names: &Names,
    used: &BTreeSet<&str>,
    users: &Users,
    queues: &[Unused],
    details: &ExchangeDetails,
) -> Option<Unused> {
    let leads_to =
        |queue: &str| foot_of(names, queue).is_some_and(|(_, exchange)| exchange == details.name);
    if used.iter().any(|queue| leads_to(queue)) {
        return None;
    }
    let announced = users.of_queues(|queue| leads_to(&format!("{}.{queue}", names.namespace())));
    let mut kept = queues.iter().filter(|queue| leads_to(&queue.name)).map(|queue| queue.verdict);
    let verdict = if !is_ours(details, &names.stray()) {
        Verdict::NotOurs
    } else if !announced.is_empty() {
        Verdict::InUse
    } else if kept.any(|verdict| !matches!(verdict, Verdict::Removable | Verdict::MayBeInUse)) {
        Verdict::Needed
    } else if !users.unseen().is_empty() {
        Verdict::UseUnknown
    } else if !users.silent().is_empty() {
        Verdict::MayBeInUse
    } else {
        Verdict::Removable
    };
    Some(exchange(details, None, verdict, used_by(verdict, announced, users)))
}

fn is_ours(details: &ExchangeDetails, alternate: &str) -> bool {
    let found = details.arguments.get("alternate-exchange").and_then(Value::as_str);
    details.kind == "headers" && found == Some(alternate)
}

fn exchange(
    details: &ExchangeDetails,
    delay_ms: Option<u64>,
    verdict: Verdict,
    used_by: Vec<String>,
) -> Unused {
    Unused {
        object: Prunable::Exchange,
        name: details.name.clone(),
        delay_ms,
        messages: None,
        verdict,
        used_by,
    }
}

#[cfg(test)]
mod tests;
