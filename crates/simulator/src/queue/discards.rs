//! What a queue has given up and keeps until it is dead-lettered at least once.

use std::collections::{BTreeMap, VecDeque};

use super::{Effect, Entry};
use crate::death::Reason;

/// How many messages the worker of a queue has in hand at most. What cannot be delivered counts, so
/// 32 of those stop everything behind them (all versions).
const WORKER_PREFETCH: usize = 32;

/// The messages that a queue dead-letters at least once and still keeps.
#[derive(Debug, Default)]
pub(super) struct Discards {
    waiting: VecDeque<(Reason, Entry)>,
    /// What the worker has in hand.
    in_hand: BTreeMap<u64, (Reason, Entry)>,
    next_id: u64,
}

impl Discards {
    pub(super) fn push(&mut self, reason: Reason, entry: Entry) {
        self.waiting.push_back((reason, entry));
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.in_hand.len()
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.in_hand.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.in_hand.values().chain(&self.waiting).map(|(_, entry)| entry)
    }

    /// Hands messages to the worker, as many as it takes.
    pub(super) fn hand_out(&mut self, effects: &mut Vec<Effect>) {
        while self.in_hand.len() < WORKER_PREFETCH {
            let Some((reason, entry)) = self.waiting.pop_front() else { break };
            let id = self.next_id;
            self.next_id += 1;
            self.in_hand.insert(id, (reason, entry.clone()));
            effects.push(Effect::Forward(id, reason, entry));
        }
    }

    pub(super) fn settle(&mut self, id: u64) {
        self.in_hand.remove(&id);
    }

    /// A new worker starts with what the old one had in hand.
    pub(super) fn restart(&mut self) {
        for (_, discarded) in std::mem::take(&mut self.in_hand).into_iter().rev() {
            self.waiting.push_front(discarded);
        }
    }
}
