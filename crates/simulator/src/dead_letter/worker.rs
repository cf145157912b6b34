//! The worker that dead-letters at least once: it publishes, waits for each target queue's confirm, and tries again every three minutes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Reason, Target, headers};
use crate::broker::Broker;
use crate::message::Message;
use crate::names::{Name, Publisher, QueueId};
use crate::protocol::{Time, Version};
use crate::queue::{Command, Entry, Queue};

/// After this time a message that was refused, or had no route, is published again (all versions).
const RETRY_INTERVAL: Time = Time::from_secs(180);

/// What the worker has published, or could not publish.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    pending: BTreeMap<u64, Pending>,
    pub(crate) timer: Option<Time>,
}

#[derive(Debug)]
struct Pending {
    message: Message,
    reason: Reason,
    /// The routing keys that the message came with.
    routing_keys: Vec<Name>,
    published: Option<Time>,
    unsettled: Vec<QueueId>,
    refused: Vec<QueueId>,
    settled: Vec<QueueId>,
}

impl Worker {
    /// A target queue took the message. It is done when all have, by then or before.
    fn settle(&mut self, id: u64, queue: QueueId) -> bool {
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

    fn refuse(&mut self, id: u64, queue: QueueId) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.unsettled.retain(|other| *other != queue);
            pending.refused.push(queue);
        }
    }

    /// A target queue is gone. What only waits for it stays until the next try, which finds other routes.
    pub(crate) fn forget(&mut self, queue: QueueId) {
        for pending in self.pending.values_mut() {
            pending.unsettled.retain(|other| *other != queue);
        }
    }

    fn set_timer(&mut self, now: Time) {
        if self.timer.is_none() && !self.pending.is_empty() {
            self.timer = Some(now + RETRY_INTERVAL);
        }
    }
}

impl Broker {
    /// Dead-letters at most once: what has no route is gone, and a queue that is full takes it all the same.
    pub(crate) fn dead_letter_once(&mut self, queue: QueueId, reason: Reason, entry: &Entry) {
        let Some((name, target)) = self.queue_by_id(queue).and_then(dead_letter_target) else { return };
        let message = self.dead(entry, reason, &name, &target);
        let queues = self.routes_of_dead(&message, reason);
        let message = Arc::new(message);
        for target in queues {
            self.command(target, Command::Publish(None, message.clone()));
        }
    }

    /// The worker gets a message from its queue.
    pub(crate) fn forward(&mut self, queue: QueueId, id: u64, reason: Reason, entry: &Entry) {
        let Some((name, target)) = self.queue_by_id(queue).and_then(dead_letter_target) else { return };
        let routing_keys = entry.message.routing_keys.clone();
        let message = self.dead(entry, reason, &name, &target);
        let queues = self.routes_of_dead(&message, reason);
        let now = self.now();
        let pending = Pending {
            message: message.clone(),
            reason,
            routing_keys,
            published: (!queues.is_empty()).then_some(now),
            unsettled: queues.clone(),
            refused: Vec::new(),
            settled: Vec::new(),
        };
        if let Some(worker) = self.worker(queue) {
            worker.pending.insert(id, pending);
            worker.set_timer(now);
        }
        self.publish_dead(queue, id, message, queues);
    }

    fn publish_dead(&mut self, queue: QueueId, id: u64, message: Message, targets: Vec<QueueId>) {
        let message = Arc::new(message);
        for target in targets {
            let publisher = Some((Publisher::Worker(queue), id));
            self.command(target, Command::Publish(publisher, message.clone()));
        }
    }

    /// A target queue has answered the worker.
    pub(crate) fn answer_worker(&mut self, queue: QueueId, id: u64, target: QueueId, is_taken: bool) {
        let Some(worker) = self.worker(queue) else { return };
        if !is_taken {
            worker.refuse(id, target);
        } else if worker.settle(id, target) {
            self.command(queue, Command::SettleDeadLetter(id));
        }
    }

    /// Publishes again what was refused or never sent. What waits for a confirm of a quorum queue is not: its client repeats by itself.
    pub(crate) fn retry_dead_letters(&mut self, queue: QueueId) {
        let now = self.now();
        let Some((_, target)) = self.queue_by_id(queue).and_then(dead_letter_target) else { return };
        let Some(worker) = self.worker(queue) else { return };
        worker.timer = None;
        let due: Vec<_> = worker
            .pending
            .iter()
            .filter(|(_, pending)| pending.published.is_none_or(|time| time + RETRY_INTERVAL <= now))
            .map(|(id, _)| *id)
            .collect();
        if self.has_exchange(&target.exchange) {
            for id in due {
                self.retry_dead_letter(queue, id, &target);
            }
        }
        if let Some(worker) = self.worker(queue) {
            worker.set_timer(now);
        }
    }

    fn retry_dead_letter(&mut self, queue: QueueId, id: u64, target: &Target) {
        let now = self.now();
        let Some(pending) = self.worker(queue).and_then(|worker| worker.pending.get(&id)) else { return };
        let mut message = pending.message.clone();
        let (reason, settled, unsettled) = (pending.reason, pending.settled.clone(), pending.unsettled.clone());
        message.exchange = target.exchange.clone();
        message.routing_keys = target.routing_key.clone().map_or_else(|| pending.routing_keys.clone(), |key| vec![key]);
        let routes = self.route_message(&message);
        if routes.is_empty() && !settled.is_empty() {
            if let Some(worker) = self.worker(queue) {
                worker.pending.remove(&id);
            }
            return self.command(queue, Command::SettleDeadLetter(id));
        }
        let open: Vec<_> = routes.into_iter().filter(|route| !settled.contains(route)).collect();
        let targets: Vec<_> = open
            .iter()
            .copied()
            .filter(|route| !unsettled.contains(route) || self.queue_by_id(*route).is_some_and(Queue::is_classic))
            .filter(|route| !self.closes_cycle(&message, reason, *route))
            .collect();
        if targets.is_empty() {
            return;
        }
        if let Some(pending) = self.worker(queue).and_then(|worker| worker.pending.get_mut(&id)) {
            pending.published = Some(now);
            pending.message = message.clone();
            pending.unsettled = open;
            pending.refused.clear();
        }
        self.publish_dead(queue, id, message, targets);
    }

    fn dead(&self, entry: &Entry, reason: Reason, queue: &Name, target: &Target) -> Message {
        headers::dead_letter(self.version(), self.now(), &entry.message, entry.counts, reason, queue, target)
    }

    fn routes_of_dead(&self, message: &Message, reason: Reason) -> Vec<QueueId> {
        let mut queues = self.route_message(message);
        queues.retain(|queue| !self.closes_cycle(message, reason, *queue));
        queues
    }

    fn closes_cycle(&self, message: &Message, reason: Reason, queue: QueueId) -> bool {
        let version: Version = self.version();
        self.queue_by_id(queue).is_some_and(|queue| headers::is_cycle(version, message, reason, &queue.name))
    }

    fn worker(&mut self, queue: QueueId) -> Option<&mut Worker> {
        self.queue_by_id_mut(queue).map(|queue| &mut queue.worker)
    }
}

fn dead_letter_target(queue: &Queue) -> Option<(Name, Target)> {
    let exchange = queue.settings.dead_letter_exchange.clone()?;
    let routing_key = queue.settings.dead_letter_routing_key.clone();
    Some((queue.name.clone(), Target { exchange, routing_key }))
}
