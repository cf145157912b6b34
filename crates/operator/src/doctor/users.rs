//! Which wait queues the running consumers of a namespace use, by what they announce. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::observed::ConsumerDetails;
use rehop::internals::{NAMESPACE, WAITS_IN};

/// Who uses which wait queues.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// The work queues whose consumers use a wait queue, by its name without the namespace.
    announced: BTreeMap<String, BTreeSet<String>>,
    /// The work queues that have consumers which announce nothing.
    silent: BTreeSet<String>,
    /// The work queues whose consumers are not known.
    unseen: BTreeSet<String>,
}

impl Users {
    /// From the consumers of each work queue.
    pub(super) fn of(
        namespace: &str,
        consumers: &BTreeMap<String, Option<Vec<ConsumerDetails>>>,
    ) -> Self {
        let mut users = Self::default();
        for (queue, subscriptions) in consumers {
            if subscriptions.is_none() {
                users.unseen.insert(queue.clone());
            }
            for ConsumerDetails { arguments, .. } in subscriptions.iter().flatten() {
                let text = |name: &str| arguments.get(name).and_then(Value::as_str);
                match (text(NAMESPACE), text(WAITS_IN)) {
                    (Some(own), Some(waits_in)) if own == namespace => {
                        for wait_queue in waits_in.split_whitespace() {
                            users
                                .announced
                                .entry(wait_queue.to_owned())
                                .or_default()
                                .insert(queue.clone());
                        }
                    }
                    (Some(_), Some(_)) => {}
                    _ => drop(users.silent.insert(queue.clone())),
                }
            }
        }
        users
    }

    /// The work queues whose consumers use this wait queue.
    pub(super) fn of_queue(&self, wait_queue: &str) -> Vec<String> {
        self.announced.get(wait_queue).into_iter().flatten().cloned().collect()
    }

    /// The work queues whose consumers use any of these wait queues.
    pub(super) fn of_queues(&self, is_one: impl Fn(&str) -> bool) -> Vec<String> {
        let used = self.announced.iter().filter(|(wait_queue, _)| is_one(wait_queue));
        used.flat_map(|(_, queues)| queues).collect::<BTreeSet<_>>().into_iter().cloned().collect()
    }

    /// The work queues that have consumers of which nothing is known.
    pub(super) fn silent(&self) -> Vec<String> {
        self.silent.iter().cloned().collect()
    }

    /// The work queues that may have consumers which nobody has seen.
    pub(super) fn unseen(&self) -> Vec<String> {
        self.unseen.iter().cloned().collect()
    }
}
