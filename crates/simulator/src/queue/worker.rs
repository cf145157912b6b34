//! What the worker of a queue has in hand, which dead-letters at least once: it publishes, waits
//! for each target queue's confirm, and tries again every three minutes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::death::Reason;
use crate::message::Message;
use crate::names::{Name, QueueId};
use crate::protocol::Time;

/// After this time a message that was refused, or had no route, is published again (all versions).
pub(crate) const RETRY_INTERVAL: Time = Time::from_secs(180);

/// What the worker has published, or could not publish.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) pending: BTreeMap<u64, Pending>,
    pub(crate) timer: Option<Time>,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) message: Arc<Message>,
    pub(crate) reason: Reason,
    /// The routing keys that the message came with.
    pub(crate) routing_keys: Vec<Name>,
    pub(crate) published: Option<Time>,
    pub(crate) unsettled: Vec<QueueId>,
    pub(crate) refused: Vec<QueueId>,
    pub(crate) settled: Vec<QueueId>,
}

impl Worker {
    /// A target queue took the message. It is done when all have, by then or before.
    pub(crate) fn settle(&mut self, id: u64, queue: QueueId) -> bool {
        let Some(pending) = self.pending.get_mut(&id) else { return false };
        pending.unsettled.retain(|other| *other != queue);
        pending.refused.retain(|other| *other != queue);
        pending.settled.push(queue);
        let is_done = pending.unsettled.is_empty() && pending.refused.is_empty();
        if is_done {
            self.pending.remove(&id);
            if self.pending.is_empty() {
                self.timer = None;
            }
        }
        is_done
    }

    pub(crate) fn refuse(&mut self, id: u64, queue: QueueId) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.unsettled.retain(|other| *other != queue);
            pending.refused.push(queue);
        }
    }

    /// A target queue is gone. What only waits for it stays until the next try, which finds other
    /// routes.
    pub(crate) fn forget(&mut self, queue: QueueId) {
        for pending in self.pending.values_mut() {
            pending.unsettled.retain(|other| *other != queue);
        }
    }

    pub(crate) fn set_timer(&mut self, now: Time) {
        if self.timer.is_none() && !self.pending.is_empty() {
            self.timer = Some(now + RETRY_INTERVAL);
        }
    }
}
