//! The messages that this process's handlers have requeued, and the redelivery counts that they will have.

use std::collections::HashMap;

use super::suspicion::Redeliveries;

/// How many messages each generation remembers. There are more only if other processes consume what this one has requeued.
const REMEMBERED: usize = 10_000;

/// Tells a delivery of a message from deliveries of others.
pub(crate) trait Fingerprint {
    /// The same for each delivery of a message, and for few other messages.
    fn fingerprint(&self) -> u64;

    /// Which of an ordered queue's messages it stays in order with.
    fn order_key(&self) -> u64 {
        0
    }

    /// Whether the broker delayed it in its queue before this delivery. It may then come before what a crash gave back.
    fn has_waited_in_queue(&self) -> bool {
        false
    }
}

/// The messages that come again, and the returns that they then have, by their fingerprints.
#[derive(Debug, Default)]
pub(super) struct Requeued {
    newer: HashMap<u64, Vec<Redeliveries>>,
    /// Forgotten when there are too many newer ones: another process has taken them.
    older: HashMap<u64, Vec<Redeliveries>>,
}

impl Requeued {
    pub(super) fn expect(&mut self, fingerprint: u64, redeliveries: Redeliveries) {
        if self.newer.len() >= REMEMBERED {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.entry(fingerprint).or_default().push(redeliveries);
    }

    /// What is known of a message with this redelivery count, if this process requeued it.
    pub(super) fn take(&mut self, fingerprint: u64, count: u32) -> Option<Redeliveries> {
        take(&mut self.newer, fingerprint, count).or_else(|| take(&mut self.older, fingerprint, count))
    }
}

fn take(expected: &mut HashMap<u64, Vec<Redeliveries>>, fingerprint: u64, count: u32) -> Option<Redeliveries> {
    let all = expected.get_mut(&fingerprint)?;
    let position = all.iter().position(|redeliveries| redeliveries.count == count)?;
    let redeliveries = all.swap_remove(position);
    if all.is_empty() {
        expected.remove(&fingerprint);
    }
    Some(redeliveries)
}
