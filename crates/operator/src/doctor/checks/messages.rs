//! Messages where none should be, or not for so long.

use std::time::Duration;

use humantime::format_duration;

use super::queue;
use crate::doctor::check::Check;
use crate::doctor::observed::Observed;
use crate::doctor::report::Finding;
use crate::doctor::subject::Subject;
use crate::doctor::unused::{self, Prunable, Verdict};
use rehop::Timestamp;
use rehop::topology::Role;

/// How long messages may stay parked before somebody should have looked.
const PARKED_FOR: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn check(subject: &Subject, seen: &Observed, now: Timestamp) -> Vec<Finding> {
    let mut found = Vec::new();
    for wanted in &subject.topology.queues {
        let details =
            seen.management.as_ref().and_then(|management| management.queues.get(&wanted.name));
        let ready = seen.queues.get(&wanted.name).map_or(0, |queue| queue.ready);
        let stuck = details.and_then(|details| details.messages_dlx);
        if let Some(stuck) = stuck.filter(|stuck| *stuck > 0) {
            let seen = format!(
                "{stuck} messages are neither ready nor delivered: the broker cannot dead-letter them, and tries every 3 minutes; \
                 32 of them block the others"
            );
            let remedy = match wanted.role {
                Role::Stray => {
                    "raise the delivery limit or TTL of the policy on it, and bind another queue to its exchange"
                }
                _ => {
                    "run `rehop topology declare`, which creates missing exchanges and bindings; then look for a full queue that refuses them"
                }
            };
            found.push(Finding::new(Check::DeadLetteringStuck, queue(&wanted.name), seen, remedy));
        }
        if wanted.role == Role::Stray && ready > 0 {
            let seen =
                format!("it holds {ready} messages that matched no binding; nobody handles them");
            let remedy = "run `rehop topology declare`, then `rehop parked list --stray` to see where they belong";
            found.push(Finding::new(Check::StrayNotEmpty, queue(&wanted.name), seen, remedy));
        }
        if let Some(parked_at) = seen.oldest_parked.get(&wanted.name) {
            let age = now.since(*parked_at);
            if age > PARKED_FOR {
                let age =
                    format_duration(Duration::from_secs(age.as_secs() / 3600 * 3600)).to_string();
                let seen =
                    format!("it holds {ready} messages, and the oldest has been there for {age}");
                let work = wanted.name.as_str();
                let owner = subject
                    .configs
                    .iter()
                    .find(|config| config.parked == work)
                    .map(|config| &config.queue);
                let remedy = format!(
                    "run `rehop parked list --queue {0}`, repair the cause, and `rehop parked replay --queue {0}`",
                    owner.map_or(work, String::as_str)
                );
                found.push(Finding::new(Check::ParkedOld, queue(&wanted.name), seen, remedy));
            }
        }
    }
    found.extend(unused(subject, seen));
    found
}

fn unused(subject: &Subject, seen: &Observed) -> Vec<Finding> {
    let Some(management) = &seen.management else { return Vec::new() };
    let all = unused::unused(&subject.names, &subject.wait_queues(), management);
    // Exchanges of a ladder go with its queues.
    let queues = all.into_iter().filter(|unused| unused.object == Prunable::Queue);
    let found = queues.filter_map(|unused| {
        let (seen, remedy) = match unused.verdict {
            Verdict::Removable | Verdict::MayBeInUse => (
                "it is empty",
                "if no other queue or program uses this namespace and delay, `rehop topology prune` deletes it",
            ),
            Verdict::HasMessages => {
                ("messages still wait in it, and will return", "once it is empty, `rehop topology prune` deletes it")
            }
            Verdict::HasConsumers => ("somebody consumes from it", "stop that consumer"),
            Verdict::InUse => (
                "a running consumer uses it, with other settings than these",
                "look with the settings of that service, or stop it if it should have these",
            ),
            Verdict::UseUnknown => (
                "it is empty, and the management API does not tell whether consumers use it",
                "look again where the broker collects statistics; until then nothing deletes it",
            ),
            Verdict::NotOurs | Verdict::NotCounted | Verdict::NoMajority | Verdict::Needed => return None,
        };
        Some(Finding::new(Check::UnusedTier, queue(&unused.name), seen, remedy))
    });
    found.collect()
}
