//! The messages that this process has given back, and the redelivery counts that they will have.

use std::collections::{HashMap, VecDeque};

use super::suspicion::Redeliveries;

/// How many messages each generation remembers. There are more only if other processes consume what
/// this one has requeued.
const REMEMBERED: usize = 10_000;

/// Tells a delivery of a message from deliveries of others.
pub(crate) trait Fingerprint {
    /// The same for each delivery of a message, and for few other messages.
    fn fingerprint(&self) -> u64;

    /// Which of an ordered queue's messages it stays in order with.
    fn order_key(&self) -> u64 {
        0
    }

    /// Whether the broker delayed it in its queue before this delivery. It may then come before
    /// what a crash gave back.
    fn has_waited_in_queue(&self) -> bool {
        false
    }
}

/// How many deliveries with one fingerprint each generation remembers. More are alike only if other
/// processes consume them.
const REMEMBERED_ALIKE: usize = 1_000;

/// The messages that come again, and the returns that they then have, by their fingerprints.
#[derive(Debug, Default)]
pub(super) struct Requeued {
    newer: Generation,
    /// Forgotten when there are too many newer ones: another process has taken them.
    older: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    expected: HashMap<u64, VecDeque<Expected>>,
    /// How many of these were handed back, so that they may come again with no count.
    handed_back: usize,
}

/// A message that comes again.
#[derive(Debug)]
struct Expected {
    counted: Redeliveries,
    /// If the broker does not count what is handed back, as 4.3.
    uncounted: Option<Redeliveries>,
}

impl Requeued {
    /// The message comes again like this.
    pub(super) fn expect(&mut self, fingerprint: u64, redeliveries: Redeliveries) {
        self.remember(fingerprint, Expected { counted: redeliveries, uncounted: None });
    }

    /// The message comes again with the count that it had, or with one more and this process's
    /// excuse.
    pub(super) fn expect_handed_back(&mut self, fingerprint: u64, had: Redeliveries) {
        self.remember(fingerprint, Expected { counted: had.and_excused(), uncounted: Some(had) });
    }

    fn remember(&mut self, fingerprint: u64, expected: Expected) {
        if self.newer.expected.len() >= REMEMBERED {
            self.older = std::mem::take(&mut self.newer);
        }
        let alike = self.newer.expected.entry(fingerprint).or_default();
        let forgotten = if alike.len() == REMEMBERED_ALIKE { alike.pop_front() } else { None };
        self.newer.handed_back -=
            usize::from(forgotten.is_some_and(|expected| expected.uncounted.is_some()));
        self.newer.handed_back += usize::from(expected.uncounted.is_some());
        alike.push_back(expected);
    }

    /// Whether a message without a count may be one that this process has handed back.
    pub(super) fn has_handed_back(&self) -> bool {
        self.newer.handed_back > 0 || self.older.handed_back > 0
    }

    /// What is known of a message with this redelivery count, if this process gave it back.
    pub(super) fn take(&mut self, fingerprint: u64, count: u32) -> Option<Redeliveries> {
        self.newer.take(fingerprint, count).or_else(|| self.older.take(fingerprint, count))
    }
}

impl Generation {
    fn take(&mut self, fingerprint: u64, count: u32) -> Option<Redeliveries> {
        let alike = self.expected.get_mut(&fingerprint)?;
        let fits = |redeliveries: &Redeliveries| redeliveries.count == count;
        // One that can come in one way only goes before one that can come in two.
        let requeued = alike
            .iter()
            .position(|expected| expected.uncounted.is_none() && fits(&expected.counted));
        let either = |expected: &Expected| {
            fits(&expected.counted) || expected.uncounted.as_ref().is_some_and(fits)
        };
        let Expected { counted, uncounted } =
            alike.remove(requeued.or_else(|| alike.iter().position(either))?)?;
        self.handed_back -= usize::from(uncounted.is_some());
        if alike.is_empty() {
            self.expected.remove(&fingerprint);
        }
        uncounted.filter(fits).or(Some(counted))
    }
}
