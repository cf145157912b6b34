//! Dead-lettering: a queue gives up a message and publishes it to its dead-letter exchange.
//!
//! At most once means that the queue forgets the message first, so whatever has no route is lost.
//! At least once means that the queue keeps it until every queue to which it was routed has
//! confirmed it; a worker of the queue does this.

mod headers;

use std::sync::Arc;

use crate::broker::Broker;
use crate::death::Reason;
use crate::message::Message;
use crate::names::{Name, Publisher, QueueId};
use crate::protocol::Version;
use crate::queue::{Command, Entry, Pending, Queue, RETRY_INTERVAL, Worker};

/// Where dead letters go: the exchange, and the routing key if it is not to be the message's own.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) exchange: Name,
    pub(crate) routing_key: Option<Name>,
}

impl Broker {
    /// Dead-letters at most once: what has no route is gone. A quorum queue that is full takes it
    /// all the same.
    pub(crate) fn dead_letter_once(&mut self, queue: QueueId, reason: Reason, entry: &Entry) {
        let Some((message, targets)) = self.dead(queue, reason, entry) else { return };
        for target in targets {
            self.command(target, Command::Publish(None, message.clone()));
        }
    }

    /// The worker gets a message from its queue.
    pub(crate) fn forward(&mut self, queue: QueueId, id: u64, reason: Reason, entry: &Entry) {
        let now = self.now;
        let Some((message, targets)) = self.dead(queue, reason, entry) else { return };
        let Some(worker) = self.worker(queue) else { return };
        let pending = Pending {
            message: message.clone(),
            reason,
            routing_keys: entry.message.routing_keys.clone(),
            published: (!targets.is_empty()).then_some(now),
            unsettled: targets.clone(),
            refused: Vec::new(),
            settled: Vec::new(),
        };
        worker.pending.insert(id, pending);
        worker.set_timer(now);
        self.publish_dead(queue, id, &message, targets);
    }

    /// The message as it is dead-lettered, and where it goes.
    fn dead(
        &self,
        queue: QueueId,
        reason: Reason,
        entry: &Entry,
    ) -> Option<(Arc<Message>, Vec<QueueId>)> {
        let queue = self.queues.get(&queue)?;
        let target = target_of(queue)?;
        let date = self.epoch + self.now;
        let message = headers::dead_letter(self.version, date, entry, reason, &queue.name, &target);
        let mut targets = self.route_message(&message);
        targets.retain(|queue| !self.closes_cycle(&message, reason, *queue));
        Some((Arc::new(message), targets))
    }

    fn publish_dead(
        &mut self,
        queue: QueueId,
        id: u64,
        message: &Arc<Message>,
        targets: Vec<QueueId>,
    ) {
        for target in targets {
            self.command(
                target,
                Command::Publish(Some((Publisher::Worker(queue), id)), message.clone()),
            );
        }
    }

    /// A target queue has answered the worker. Seen on 3.10.8: a worker does not hear that its own
    /// queue has taken a message.
    pub(crate) fn answer_worker(
        &mut self,
        queue: QueueId,
        id: u64,
        target: QueueId,
        is_taken: bool,
    ) {
        let is_unheard = is_taken && queue == target && self.version == Version::V3_10;
        let Some(worker) = self.worker(queue).filter(|_| !is_unheard) else { return };
        if !is_taken {
            worker.refuse(id, target);
        } else if worker.settle(id, target) {
            self.command(queue, Command::SettleDeadLetter(id));
        }
    }

    /// Publishes again what was refused or never sent. What waits for the confirm of a quorum queue
    /// is not: that is repeated anyhow.
    pub(crate) fn retry_dead_letters(&mut self, queue: QueueId) {
        let now = self.now;
        let Some(target) = self.queues.get(&queue).and_then(target_of) else { return };
        let Some(worker) = self.worker(queue) else { return };
        let is_due =
            |pending: &Pending| pending.published.is_none_or(|time| time + RETRY_INTERVAL <= now);
        let due: Vec<_> = worker
            .pending
            .iter()
            .filter(|(_, pending)| is_due(pending))
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
        let now = self.now;
        let Some(pending) = self.queues.get(&queue).and_then(|queue| queue.worker.pending.get(&id))
        else {
            return;
        };
        let mut message = (*pending.message).clone();
        message.exchange = target.exchange.clone();
        message.routing_keys = target
            .routing_key
            .clone()
            .map_or_else(|| pending.routing_keys.clone(), |key| vec![key]);
        let routes = self.route_message(&message);
        let is_done = routes.is_empty() && !pending.settled.is_empty();
        let open: Vec<_> =
            routes.into_iter().filter(|route| !pending.settled.contains(route)).collect();
        let mut targets = open.clone();
        targets.retain(|route| {
            let is_repeated = pending.unsettled.contains(route)
                && !self.queues.get(route).is_some_and(Queue::is_classic);
            !is_repeated && !self.closes_cycle(&message, pending.reason, *route)
        });
        let message = Arc::new(message);
        let Some(worker) = self.worker(queue) else { return };
        if is_done {
            worker.pending.remove(&id);
            self.command(queue, Command::SettleDeadLetter(id));
        } else if let Some(pending) = worker.pending.get_mut(&id)
            && !targets.is_empty()
        {
            pending.published = Some(now);
            pending.message = message.clone();
            pending.unsettled = open;
            pending.refused.clear();
            self.publish_dead(queue, id, &message, targets);
        }
    }

    fn closes_cycle(&self, message: &Message, reason: Reason, queue: QueueId) -> bool {
        self.queues
            .get(&queue)
            .is_some_and(|queue| headers::is_cycle(self.version, message, reason, &queue.name))
    }

    fn worker(&mut self, queue: QueueId) -> Option<&mut Worker> {
        self.touched.insert(queue);
        self.queues.get_mut(&queue).map(|queue| &mut queue.worker)
    }
}

fn target_of(queue: &Queue) -> Option<Target> {
    let exchange = queue.settings.dead_letter_exchange.clone()?;
    Some(Target { exchange, routing_key: queue.settings.dead_letter_routing_key.clone() })
}
