//! A process of the model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::scenario::Scenario;
use super::taken::Taken;
use super::{Channel, Delivery, Life};
use crate::consume::ack_timeout::{AckTimeout, Unsettled};
use crate::consume::copy_deadline::CopyDeadline;
use crate::consume::inbox::{Inbox, QueueIndex, Ticket};
use crate::consume::uncopied::Uncopied;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subscription {
    None,
    Of(u16),
    Ending,
    /// The broker has cancelled one. The others of the channel are ending.
    EndedByBroker,
}

/// One queue's channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    pub(super) channel: Channel,
    /// As far as the process knows: the broker may have lost it already.
    pub(super) is_open: bool,
    pub(super) subscription: Subscription,
}

/// A copy that was sent, and whose delivery is not settled.
#[derive(Debug, Clone, Copy)]
pub(super) enum SentCopy {
    /// Until this limit, and what becomes of the delivery then.
    Awaited(CopyDeadline, Uncopied),
    Confirmed,
    /// It was not confirmed in time, or is never accepted, and the message comes again.
    Requeued,
    /// It was not confirmed in time, and the message is at its limit, so it goes back as if no handler had seen it.
    HandedBack,
    /// It was not confirmed in time, or is never accepted, and the broker parks the message.
    DeadLettered,
    /// It is never accepted, and the message stays unsettled.
    Stays,
}

pub(super) struct Process {
    pub(super) inbox: Inbox<Taken>,
    pub(super) queues: Vec<QueueIndex>,
    pub(super) life: Life,
    pub(super) is_up: bool,
    pub(super) sessions: Vec<Session>,
    /// Also those of lost channels.
    pub(super) running: BTreeMap<u64, (Ticket, Taken)>,
    /// By the handlers whose deliveries they are of.
    pub(super) copies: BTreeMap<u64, SentCopy>,
    /// Handlers that have ended while their queue's subscriptions filled up. Those of lost channels may be among them.
    pub(super) ended: Vec<u64>,
    /// What is known of the broker's ack timeout, for each queue.
    pub(super) ack_timeouts: Vec<AckTimeout>,
    pub(super) unsettled: Vec<Unsettled>,
    /// Of what may wait here, until it is settled.
    pub(super) tokens: BTreeMap<Delivery, Arc<()>>,
    next_handler: u64,
    pub(super) will_look: bool,
    /// The clock is set to this time.
    pub(super) wakes_at: Option<u64>,
}

impl Process {
    pub(super) fn new(process: usize) -> Self {
        Self {
            inbox: Inbox::new(0),
            queues: Vec::new(),
            life: Life { process, number: 0 },
            is_up: false,
            sessions: Vec::new(),
            running: BTreeMap::new(),
            copies: BTreeMap::new(),
            ended: Vec::new(),
            ack_timeouts: Vec::new(),
            unsettled: Vec::new(),
            tokens: BTreeMap::new(),
            next_handler: 0,
            will_look: false,
            wakes_at: None,
        }
    }

    pub(super) fn begin_life(&mut self, scenario: &Scenario, draw: u64) {
        let life = Life { number: self.life.number + 1, ..self.life };
        let mut inbox = Inbox::new(draw);
        let queues = scenario.rules.iter().map(|rules| inbox.add(*rules)).collect();
        let channels = (0..scenario.rules.len()).map(|queue| Channel { life, queue, number: 0 });
        let sessions = channels.map(|channel| Session { channel, is_open: true, subscription: Subscription::None });
        let configured = Duration::from_millis(scenario.ack_timeout);
        let ack_timeouts = scenario.rules.iter().map(|_| AckTimeout::new(configured)).collect();
        let unsettled = scenario.rules.iter().map(|rules| Unsettled::new(rules.is_ordered)).collect();
        let (is_up, sessions) = (true, sessions.collect());
        *self = Self { inbox, queues, life, is_up, sessions, ack_timeouts, unsettled, ..Self::new(life.process) };
    }

    /// Remembers a delivery that may wait here, and notices one that the broker has taken back meanwhile.
    pub(super) fn watch(&mut self, scenario: &Scenario, delivery: Delivery, count: u32, now: Instant) {
        let queue = delivery.channel.queue;
        if scenario.enforced.is_none() || scenario.waits[queue].is_none() {
            return;
        }
        let fingerprint = delivery.message as u64;
        if delivery.number > 1
            && let Some(timeout) = self.unsettled[queue].came_again(fingerprint, Some(count))
        {
            self.taken_back_after(scenario, queue, timeout);
        }
        let token = self.unsettled[queue].add(fingerprint, Some(count), now);
        self.tokens.insert(delivery, token);
    }

    /// The broker has taken back a delivery of this queue after this time.
    pub(super) fn taken_back_after(&mut self, scenario: &Scenario, queue: usize, timeout: Duration) {
        let known = &self.ack_timeouts[queue];
        if known.shown(timeout) {
            self.inbox.limit_hold(self.queues[queue], known.hold_limit(scenario.rules[queue].is_ordered));
        }
    }

    /// Whether the process takes this channel for open.
    pub(super) fn uses(&self, channel: Channel) -> bool {
        let session = self.sessions[channel.queue];
        self.is_up && session.channel == channel && session.is_open
    }

    /// Ends the handlers of a lost channel without settling anything: in an ordered queue all of them, before it has another channel; in
    /// any other queue those that wait for a confirm.
    pub(super) fn drop_handlers(&mut self, channel: Channel, is_ordered: bool, now: Instant) {
        let is_dropped = |handler: &u64| is_ordered || self.copies.contains_key(handler);
        let of_channel = self.running.iter().filter(|(_, (_, taken))| taken.delivery.channel == channel);
        let dropped: Vec<_> = of_channel.map(|(handler, _)| *handler).filter(is_dropped).collect();
        for handler in dropped {
            self.copies.remove(&handler);
            if let Some((ticket, _)) = self.running.remove(&handler) {
                self.inbox.finish(ticket, now);
            }
        }
    }

    /// Starts the next handler, if one may start.
    pub(super) fn start_next(&mut self, scenario: &Scenario, now: Instant) -> Option<(u64, Taken)> {
        let (_, ticket, taken) = self.inbox.start(now)?;
        let handler = self.next_handler;
        self.next_handler += 1;
        self.running.insert(handler, (ticket, taken));
        let queue = taken.delivery.channel.queue;
        let of_queue = self.running.values().filter(|(_, other)| other.delivery.channel.queue == queue).count();
        let limit = usize::from(scenario.rules[queue].concurrency);
        assert!(of_queue <= limit, "{of_queue} handlers of one queue run");
        Some((handler, taken))
    }
}
