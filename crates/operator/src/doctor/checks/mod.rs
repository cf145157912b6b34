//! From what was seen to what is wrong: pure, one file for each kind of trap.

mod cluster;
mod consumers;
mod dead_lettering;
mod foreign;
mod limits;
mod messages;
mod near;
mod parts;
mod shared_waits;
mod taken_over;

use super::check::Check;
use super::observed::{Existence, Observed};
use super::report::Finding;
use super::subject::Subject;
use rehop::Timestamp;

/// Everything that is wrong.
pub(super) fn findings(subject: &Subject, seen: &Observed, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(problem) = &seen.management_problem {
        findings.push(Finding::new(
            Check::ManagementUnusable,
            "the management API",
            problem,
            "check broker.management_url or --management; without it policies, bindings and the cluster cannot be seen",
        ));
    }
    findings.extend(parts::check(subject, seen));
    findings.extend(foreign::check(subject, seen));
    findings.extend(limits::check(subject, seen));
    findings.extend(near::check(seen));
    findings.extend(shared_waits::check(subject, seen));
    findings.extend(taken_over::check(subject, seen));
    findings.extend(dead_lettering::check(subject, seen));
    findings.extend(cluster::check(subject, seen));
    findings.extend(consumers::check(subject, seen));
    findings.extend(messages::check(subject, seen, now));
    findings
}

pub(super) use limits::{argument_limit, delayed_retry, delivery_limit};
pub(super) use parts::{LEAST_PERMISSIONS, missing_bindings, missing_exchange_bindings};
pub(super) use taken_over::own_dead_lettering;

fn queue(name: &str) -> String {
    format!("queue {name:?}")
}

/// Whether a queue can be looked at.
fn is_present(seen: &Observed, queue: &str) -> bool {
    seen.queues.get(queue).is_some_and(|queue| matches!(queue.existence, Existence::Present { .. }))
}

#[cfg(test)]
mod tests;
