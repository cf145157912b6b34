//! Limits that take messages out of a queue, whether by argument or by policy.

use super::queue;
use crate::doctor::check::Check;
use crate::doctor::observed::{DelayedRetry, LIMIT_OUT_OF_REACH, Observed, QueueDetails};
use crate::doctor::report::Finding;
use crate::doctor::subject::Subject;
use rehop::settings::Declare;
use rehop::topology::{Argument, Queue, Role};

pub(super) fn check(subject: &Subject, seen: &Observed) -> Vec<Finding> {
    let details = seen.management.as_ref().map(|management| &management.queues);
    let mut found = Vec::new();
    for wanted in &subject.topology.queues {
        let Some(details) = details.and_then(|queues| queues.get(&wanted.name)) else { continue };
        found.extend(delivery_limit(wanted, details));
        found.extend(length(wanted, details));
        found.extend(overflow(wanted, details));
        found.extend(ttl(wanted, details));
        found.extend(expiry(wanted, details));
        found.extend(delayed_retry(wanted, details));
    }
    found
}

/// The limit of a queue that rehop declares. The smaller of argument and policy applies (3.10, 4.0
/// and 4.3), but a negative policy changes nothing (4.0 and 4.3; 3.10 refuses it).
pub(in crate::doctor) fn delivery_limit(wanted: &Queue, details: &QueueDetails) -> Option<Finding> {
    let Some(Argument::Number(ours)) = wanted.arguments.get("x-delivery-limit") else {
        return None;
    };
    let limit =
        details.policy_number("delivery-limit").filter(|limit| (0..*ours).contains(limit))?;
    let policies = details.policies();
    let (harm, remedy) = match wanted.role {
        Role::Parked => (
            "so looking at a parked message that often moves it to the stray queue",
            format!("exclude the queue from {policies}"),
        ),
        Role::Discarded => (
            "so looking at a discarded message that often deletes it",
            format!("exclude the queue from {policies}"),
        ),
        Role::Stray => (
            "so a stray message that is looked at that often is held where no consumer can get it",
            format!("exclude the queue from {policies}"),
        ),
        _ => (
            "so the broker parks messages before their immediate attempts are used up, and poison messages take others with them",
            format!("raise it in {policies}, or exclude the queue"),
        ),
    };
    let seen = format!("{policies} sets delivery-limit {limit}, below {ours}, {harm}");
    Some(Finding::new(Check::DeliveryLimitLowered, queue(&wanted.name), seen, remedy))
}

/// The limit that a queue of messages at rest has by its own argument. The broker's version is not
/// known here, so a negative one counts as none, as on 4.x.
pub(in crate::doctor) fn argument_limit(wanted: &Queue, details: &QueueDetails) -> Option<Finding> {
    let limit = details.argument_number("delivery-limit").filter(|limit| *limit >= 0)?;
    let by_policy = details.policy_number("delivery-limit").filter(|limit| *limit >= 0);
    if limit >= LIMIT_OUT_OF_REACH || by_policy.is_some_and(|policy| policy < limit) {
        return None;
    }
    let seen = format!(
        "the argument x-delivery-limit is {limit}, so a message that is looked at more often leaves the queue, and is deleted if the queue \
         has no dead-letter exchange"
    );
    let remedy = "move the messages to a queue that rehop declares";
    Some(Finding::new(Check::DeliveryLimitLowered, queue(&wanted.name), seen, remedy))
}

fn length(wanted: &Queue, details: &QueueDetails) -> Option<Finding> {
    let (key, limit) = ["max-length", "max-length-bytes"]
        .into_iter()
        .find_map(|key| details.smaller_number(key).map(|limit| (key, limit)))?;
    let refuses = details.text("overflow") == Some("reject-publish");
    let harm = match (wanted.role, refuses) {
        (Role::Work, true) => {
            "when it is full, messages whose wait is over stay in the wait queue, for three minutes at a time"
        }
        (_, true) => "when it is full, handlers hold their messages until there is room",
        (_, false) => "when it is full, the broker drops messages from its head",
    };
    let source = source(details, key);
    let seen = format!("{source} sets {key} {limit}: {harm}");
    let remedy = match wanted.declare {
        Declare::Own => format!("exclude the queue from {source}, and watch its depth instead"),
        _ => "remove the limit, and watch the queue's depth instead".to_owned(),
    };
    Some(Finding::new(Check::LengthLimit, queue(&wanted.name), seen, remedy))
}

/// With another overflow, at-least-once dead-lettering silently becomes at-most-once (3.10, 4.0 and
/// 4.3).
fn overflow(wanted: &Queue, details: &QueueDetails) -> Option<Finding> {
    let refuses = Argument::Text("reject-publish".to_owned());
    if wanted.arguments.get("x-overflow") != Some(&refuses)
        || details.by_policy("overflow").is_none()
    {
        return None;
    }
    let overflow = details.text("overflow").filter(|overflow| *overflow != "reject-publish")?;
    let policies = details.policies();
    let seen = format!(
        "{policies} sets overflow {overflow}: the broker may lose messages that it dead-letters from this queue"
    );
    let remedy = format!("remove overflow from {policies}, or exclude the queue");
    Some(Finding::new(Check::AtMostOnce, queue(&wanted.name), seen, remedy))
}

fn ttl(wanted: &Queue, details: &QueueDetails) -> Option<Finding> {
    let ttl = details.smaller_number("message-ttl")?;
    if let Some(Argument::Number(ours)) = wanted.arguments.get("x-message-ttl")
        && *ours <= ttl
    {
        return None;
    }
    let harm = match wanted.role {
        Role::Work => {
            "messages that wait for a handler are dead-lettered, with no attempt and no error"
        }
        Role::Wait => "messages return before their delay is over",
        Role::Parked => "parked messages move to the stray queue",
        Role::Stray => "stray messages are held where no consumer can get them",
        _ => "discarded messages are deleted earlier",
    };
    let source = source(details, "message-ttl");
    let seen = format!("{source} sets message-ttl {ttl} (ms): {harm}");
    let remedy = match wanted.role {
        Role::Work => format!(
            "remove it from {source}, and give messages a deadline with retry.max_age instead"
        ),
        _ => format!("exclude the queue from {source}"),
    };
    Some(Finding::new(Check::MessageTtl, queue(&wanted.name), seen, remedy))
}

fn expiry(wanted: &Queue, details: &QueueDetails) -> Option<Finding> {
    let unused = details.smaller_number("expires")?;
    let source = source(details, "expires");
    let seen = format!(
        "{source} sets expires {unused} (ms): unused for so long, it is deleted with its messages"
    );
    Some(Finding::new(
        Check::QueueExpires,
        queue(&wanted.name),
        seen,
        format!("exclude the queue from {source}"),
    ))
}

/// Delayed retries, which only 4.3 has. Services return messages to work queues, and a look returns
/// them to parked, stray and discarded ones. Wait queues get nothing back.
pub(in crate::doctor) fn delayed_retry(wanted: &Queue, details: &QueueDetails) -> Option<Finding> {
    // A policy may set everything of it.
    details.effective_policy.as_ref()?;
    // The strategy `native` asks for it.
    if let Some(Argument::Number(delay)) = wanted.arguments.get("x-delayed-retry-min") {
        return native_delay(wanted, details, *delay);
    }
    let DelayedRetry { kind, .. } = details.delayed_retry()?;
    let source = source(details, "delayed-retry-type");
    let (harm, remedy) = match wanted.role {
        Role::Work => (
            "the broker holds back returned messages, so immediate attempts come late",
            format!("exclude the queue from {source}; retry.delays is where rehop's waits are set"),
        ),
        // The type "failed" delays only what is rejected, and a look rejects nothing.
        Role::Parked | Role::Stray | Role::Discarded if kind != "failed" => (
            "the broker holds back messages that were looked at: nobody can see or move them until the delay is over",
            format!("exclude the queue from {source}"),
        ),
        _ => return None,
    };
    let seen = format!("{source} sets delayed-retry-type {kind:?}: {harm}");
    Some(Finding::new(Check::DelayedRetry, queue(&wanted.name), seen, remedy))
}

/// The strategy `native` needs the type `returned`, and one delay for all waits.
fn native_delay(wanted: &Queue, details: &QueueDetails, delay: i64) -> Option<Finding> {
    let is_by_policy = details.has_delayed_retry_policy();
    let found = details.delayed_retry();
    let is_wanted = found == Some(DelayedRetry { kind: "returned", least: delay, longest: delay });
    let by_arguments =
        QueueDetails { effective_policy: Some(serde_json::Map::default()), ..details.clone() };
    // If rehop declares the queue, `arguments-differ` finds other arguments.
    if is_wanted || by_arguments.delayed_retry() == found && wanted.declare == Declare::Own {
        return None;
    }
    let source = if is_by_policy { details.policies() } else { "its arguments".to_owned() };
    let (is, harm) = match found {
        None => (
            "returned messages do not wait".to_owned(),
            "they come again at once, and soon have no attempts left",
        ),
        Some(DelayedRetry { kind, least, longest }) => (
            format!("delayed-retry-type is {kind:?}, -min {least} and -max {longest}"),
            match kind {
                // It delays what is rejected, and a wait is a nack.
                "failed" => {
                    "messages that should wait come again at once, and soon have no attempts left"
                }
                "all" => "immediate attempts wait too",
                _ => "waits last for another time than the settings say",
            },
        ),
    };
    let seen = format!("retry.strategy is \"native\", and with {source} {is}: {harm}");
    let remedy = match wanted.declare {
        Declare::Own => {
            format!("exclude the queue from {source}, or set retry.strategy = \"ladder\"")
        }
        _ => format!(
            "its owner sets delayed-retry-type \"returned\", and -min and -max {delay}, by arguments or a policy; or set \
             retry.strategy = \"ladder\""
        ),
    };
    Some(Finding::new(Check::NativeDelayDiffers, queue(&wanted.name), seen, remedy))
}

/// Whether an argument or a policy sets this.
pub(super) fn source(details: &QueueDetails, key: &str) -> String {
    match (details.by_policy(key), details.arguments.get(&format!("x-{key}"))) {
        (None, Some(_)) => format!("the argument x-{key}"),
        _ => details.policies(),
    }
}
