//! Work queues that may accept nothing, and share their wait queues with others.

use std::collections::{BTreeMap, BTreeSet};

use super::limits::source;
use super::queue;
use crate::doctor::check::Check;
use crate::doctor::observed::{Management, Observed, QueueDetails};
use crate::doctor::report::Finding;
use crate::doctor::subject::Subject;
use crate::doctor::users::Users;
use rehop::internals::{QueueConfig, build};
use rehop::topology::Role;

pub(super) fn check(subject: &Subject, seen: &Observed) -> Vec<Finding> {
    let Some(management) = &seen.management else { return Vec::new() };
    let waits = wait_queues(subject, management);
    let finding = |config: &QueueConfig| {
        let because = may_refuse(management.queues.get(&config.queue)?, management)?;
        let others = sharing(&config.queue, &waits);
        if others.is_empty() {
            return None;
        }
        let seen = format!(
            "{because}, and it shares its wait queues: while it accepts nothing, 32 of its messages that are due hold up those of {}",
            others.iter().map(|other| format!("{other:?}")).collect::<Vec<_>>().join(", ")
        );
        let remedy = "set retry.wait_queues = \"own\" for this queue; what waits in the shared ones still comes home";
        Some(Finding::new(Check::WaitQueuesShared, queue(&config.queue), seen, remedy))
    };
    subject.configs.iter().filter_map(finding).collect()
}

/// The work queues whose messages wait in each wait queue, as the settings say, and as running
/// consumers do.
fn wait_queues(subject: &Subject, management: &Management) -> BTreeMap<String, BTreeSet<String>> {
    let users = Users::of(subject.names.namespace(), &management.consumers);
    let mut waits = BTreeMap::<String, BTreeSet<String>>::new();
    for config in &subject.configs {
        let alone = build(&subject.names, std::slice::from_ref(config));
        for wait in alone.queues.into_iter().filter(|queue| queue.role == Role::Wait) {
            let announced = users.of_queue(subject.names.without_namespace(&wait.name));
            let work_queues = waits.entry(wait.name).or_default();
            work_queues.insert(config.queue.clone());
            work_queues.extend(announced);
        }
    }
    waits
}

/// The other queues whose messages wait where those of this queue do.
fn sharing<'a>(queue: &str, waits: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a String> {
    let shared = waits.values().filter(|work_queues| work_queues.contains(queue));
    shared.flatten().filter(|other| *other != queue).collect()
}

/// Why a queue may accept nothing, as far as that can be seen.
fn may_refuse(details: &QueueDetails, management: &Management) -> Option<String> {
    let limited = ["max-length", "max-length-bytes"]
        .into_iter()
        .find_map(|key| details.smaller_number(key).map(|limit| (key, limit)));
    if let Some((key, limit)) = limited {
        return Some(format!("{} sets {key} {limit}", source(details, key)));
    }
    if details.kind != "quorum" {
        return None;
    }
    let (members, nodes) = (details.members.as_ref()?.len(), management.nodes.len());
    match members {
        _ if details.has_lost_majority() => Some("it has lost its majority".to_owned()),
        1 if nodes > 1 => Some(format!("it has one member in a cluster of {nodes} nodes")),
        _ => None,
    }
}
