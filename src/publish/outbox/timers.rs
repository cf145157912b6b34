//! What is to happen at which time.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Instant;

/// At most one time for each key.
#[derive(Debug)]
pub(super) struct Timers<K> {
    by_time: BTreeSet<(Instant, K)>,
    by_key: HashMap<K, Instant>,
}

impl<K: Ord + Hash + Copy> Timers<K> {
    pub(super) fn new() -> Self {
        Self { by_time: BTreeSet::new(), by_key: HashMap::new() }
    }

    pub(super) fn set(&mut self, key: K, at: Instant) {
        if let Some(before) = self.by_key.insert(key, at) {
            self.by_time.remove(&(before, key));
        }
        self.by_time.insert((at, key));
    }

    pub(super) fn cancel(&mut self, key: K) {
        if let Some(at) = self.by_key.remove(&key) {
            self.by_time.remove(&(at, key));
        }
    }

    /// The first that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<K> {
        let (_, key) = *self.by_time.first().filter(|(at, _)| *at <= now)?;
        self.cancel(key);
        Some(key)
    }

    pub(super) fn first(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }
}
