//! Dead-lettering: a queue gives up a message and publishes it to its dead-letter exchange.
//!
//! At most once means that the queue forgets the message first, so whatever has no route is lost. At least once means that the queue
//! keeps it until every queue to which it was routed has confirmed it; a worker of the queue does this.

mod headers;
mod worker;

use std::collections::{BTreeMap, VecDeque};

pub(crate) use self::headers::Death;
pub(crate) use self::worker::Worker;
use crate::names::Name;
use crate::queue::{Effect, Entry};

/// How many messages the worker of a queue has in hand at most. What cannot be delivered counts, so 32 of those stop everything
/// behind them (all versions).
const WORKER_PREFETCH: usize = 32;

/// Why a message is dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Rejected,
    Expired,
    MaxLength,
    DeliveryLimit,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::MaxLength => "maxlen",
            Self::DeliveryLimit => "delivery_limit",
        }
    }
}

/// Where dead letters go: the exchange, and the routing key if it is not to be the message's own.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) exchange: Name,
    pub(crate) routing_key: Option<Name>,
}

/// The messages that a queue dead-letters at least once and still keeps.
#[derive(Debug, Default)]
pub(crate) struct Discards {
    waiting: VecDeque<(Reason, Entry)>,
    /// What the worker has in hand.
    in_hand: BTreeMap<u64, (Reason, Entry)>,
    next_id: u64,
}

impl Discards {
    pub(crate) fn push(&mut self, reason: Reason, entry: Entry) {
        self.waiting.push_back((reason, entry));
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.in_hand.len()
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.in_hand.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.in_hand.values().chain(&self.waiting).map(|(_, entry)| entry)
    }

    /// Hands messages to the worker, as many as it takes.
    pub(crate) fn hand_out(&mut self, effects: &mut Vec<Effect>) {
        while self.in_hand.len() < WORKER_PREFETCH {
            let Some((reason, entry)) = self.waiting.pop_front() else { break };
            let id = self.next_id;
            self.next_id += 1;
            self.in_hand.insert(id, (reason, entry.clone()));
            effects.push(Effect::Forward(id, reason, entry));
        }
    }

    pub(crate) fn settle(&mut self, id: u64) {
        self.in_hand.remove(&id);
    }

    /// A new worker starts with what the old one had in hand.
    pub(crate) fn restart(&mut self) {
        for (_, discarded) in std::mem::take(&mut self.in_hand).into_iter().rev() {
            self.waiting.push_front(discarded);
        }
    }
}
