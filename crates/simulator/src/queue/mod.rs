//! A queue: what it holds, who consumes it, and what it does with each command.
//!
//! As in RabbitMQ, a quorum queue is a state machine of its own. It takes commands one after the other, and says what follows from
//! them as effects, which the broker carries out: it knows no exchanges and no other queue. Each concept has a file here. A classic
//! queue is the same machine, with other answers to a few questions: it keeps no counts, it puts a returned message back to where it
//! was, and its length limit is exact.

mod backlog;
mod consumers;
mod counts;
mod delayed;
mod expiry;
mod limits;
mod timeouts;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lapin::types::FieldTable;

use self::backlog::Backlog;
use self::consumers::Consumers;
pub(crate) use self::consumers::Subscription;
pub(crate) use self::counts::{Counts, Return};
use crate::broker::QueueView;
use crate::dead_letter::{Discards, Reason, Worker};
use crate::error::Exception;
use crate::message::Message;
use crate::names::{ChannelId, Name, Publisher, QueueId, Tag};
use crate::policy::Settings;
use crate::protocol::{ConnectionId, Time, Version};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Quorum,
    Classic,
}

/// What a queue was declared with. It is compared when the queue is declared again.
#[derive(Debug, Clone)]
pub(crate) struct Declaration {
    pub(crate) kind: Kind,
    pub(crate) is_durable: bool,
    pub(crate) is_auto_delete: bool,
    /// The connection to which the queue is exclusive.
    pub(crate) owner: Option<ConnectionId>,
    pub(crate) arguments: FieldTable,
}

/// A message in a queue.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The order of arrival in this queue.
    pub(crate) index: u64,
    pub(crate) message: Arc<Message>,
    pub(crate) counts: Counts,
    /// A classic queue has no counts, only this mark.
    pub(crate) was_delivered: bool,
    expires: Option<Time>,
}

impl Entry {
    fn is_expired(&self, now: Time) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    fn message_id(&self) -> String {
        self.message.properties.message_id().as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default()
    }
}

/// What a consumer does with messages that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// They are done with.
    Ack,
    /// They go back to the queue.
    Requeue(Return),
    /// They are dead-lettered.
    Discard(Return),
}

#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// Without a publisher nobody hears whether the message was taken: so it is with dead-lettering at most once.
    Publish {
        publisher: Option<(Publisher, u64)>,
        message: Arc<Message>,
    },
    Settle {
        channel: ChannelId,
        tag: Tag,
        deliveries: Vec<u64>,
        settlement: Settlement,
    },
    Subscribe(Subscription),
    Cancel {
        channel: ChannelId,
        tag: Tag,
    },
    Get(Subscription),
    /// A channel is gone, with its consumers and as a publisher.
    Leave {
        channel: ChannelId,
    },
    Purge {
        channel: ChannelId,
    },
    Count {
        channel: ChannelId,
    },
    /// The dead-letter worker is done with messages.
    SettleDeadLetters {
        ids: Vec<u64>,
    },
}

/// What a channel waits for. It does nothing else meanwhile.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Subscribed { tag: Name },
    Cancelled,
    Empty,
    Got { entry: Entry, delivery: u64, is_no_ack: bool, left: usize },
    Purged { messages: usize },
    Counted { messages: usize, consumers: usize },
    Refused(Exception),
}

/// What follows from a command.
#[derive(Debug, Clone)]
pub(crate) enum Effect {
    Answer {
        channel: ChannelId,
        queue: QueueId,
        answer: Answer,
    },
    Deliver {
        channel: ChannelId,
        queue: QueueId,
        tag: Tag,
        delivery: u64,
        entry: Entry,
        is_no_ack: bool,
    },
    Taken {
        publisher: Publisher,
        sequence: u64,
        queue: QueueId,
    },
    Refused {
        publisher: Publisher,
        sequence: u64,
        queue: QueueId,
    },
    /// A delivery was not acked in time (4.3).
    TimedOut {
        channel: ChannelId,
        tag: Tag,
    },
    /// Dead-lettered at most once: gone from the queue, whatever becomes of it.
    DeadLetter {
        queue: QueueId,
        reason: Reason,
        entry: Entry,
    },
    /// Dead-lettered at least once: the queue keeps it until the worker settles it.
    Forward {
        queue: QueueId,
        id: u64,
        reason: Reason,
        entry: Entry,
    },
    /// The last consumer of an auto-delete queue is gone.
    Unused {
        queue: QueueId,
    },
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) id: QueueId,
    pub(crate) name: Name,
    pub(crate) declaration: Declaration,
    pub(crate) settings: Settings,
    version: Version,
    next_index: u64,
    backlog: Backlog,
    /// Messages that came back. They are delivered before the others.
    returns: VecDeque<Entry>,
    /// Messages that came back and wait for their delayed retry (4.3).
    delayed: BTreeMap<(Time, u64), Entry>,
    consumers: Consumers,
    /// Everybody who has published here, and whether reject-publish turns them away.
    publishers: BTreeMap<Publisher, bool>,
    pub(crate) discards: Discards,
    pub(crate) worker: Worker,
    /// When somebody was last interested, for `x-expires`.
    last_active: Time,
    /// The leader answers nothing until then.
    silent_until: Option<Time>,
    /// What came meanwhile.
    unanswered: VecDeque<Command>,
}

impl Queue {
    pub(crate) fn new(
        now: Time,
        version: Version,
        id: QueueId,
        name: Name,
        declaration: Declaration,
        settings: Settings,
    ) -> Self {
        let is_single_active = settings.is_single_active_consumer;
        Self {
            id,
            name,
            declaration,
            settings,
            version,
            next_index: 0,
            backlog: Backlog::new(version),
            returns: VecDeque::new(),
            delayed: BTreeMap::new(),
            consumers: Consumers::new(version, is_single_active),
            publishers: BTreeMap::new(),
            discards: Discards::default(),
            worker: Worker::default(),
            last_active: now,
            silent_until: None,
            unanswered: VecDeque::new(),
        }
    }

    pub(crate) fn is_classic(&self) -> bool {
        self.declaration.kind == Kind::Classic
    }

    /// How many messages are ready, which is what `queue.declare` says.
    pub(crate) fn ready(&self) -> usize {
        self.returns.len() + self.backlog.len()
    }

    pub(crate) fn consumer_count(&self) -> usize {
        self.consumers.count(self.is_classic())
    }

    /// Takes a command, now or when the leader answers again.
    pub(crate) fn command(&mut self, now: Time, command: Command, effects: &mut VecDeque<Effect>) {
        if self.silent_until.is_some() {
            self.unanswered.push_back(command);
        } else {
            self.apply(now, command, effects);
        }
    }

    fn apply(&mut self, now: Time, command: Command, effects: &mut VecDeque<Effect>) {
        let was_below = self.is_below_soft_limit();
        match command {
            Command::Publish { publisher, message } => self.publish(now, publisher, message, effects),
            Command::Settle { channel, tag, deliveries, settlement } => {
                self.settle(now, channel, &tag, &deliveries, settlement, effects);
            }
            Command::Subscribe(subscription) => self.subscribe(subscription, effects),
            Command::Cancel { channel, tag } => self.cancel(now, channel, &tag, effects),
            Command::Get(subscription) => return self.get(now, subscription, effects),
            Command::Leave { channel } => self.leave(now, channel, effects),
            Command::Purge { channel } => self.purge(channel, effects),
            Command::Count { channel } => {
                let answer = Answer::Counted { messages: self.ready(), consumers: self.consumer_count() };
                effects.push_back(Effect::Answer { channel, queue: self.id, answer });
                return;
            }
            Command::SettleDeadLetters { ids } => self.discards.settle(&ids),
        }
        self.hand_out(now, was_below, effects);
    }

    fn publish(
        &mut self,
        now: Time,
        publisher: Option<(Publisher, u64)>,
        message: Arc<Message>,
        effects: &mut VecDeque<Effect>,
    ) {
        if let Some((publisher, sequence)) = publisher
            && self.turns_away(publisher)
        {
            effects.push_back(Effect::Refused { publisher, sequence, queue: self.id });
            return;
        }
        if publisher.is_none() && self.is_classic() && self.turns_away_classic() {
            return;
        }
        let entry = Entry {
            index: self.next_index(),
            counts: Counts::of_arrival(message.delivery_count.filter(|_| !self.is_classic())),
            was_delivered: false,
            expires: self.expiry_of(now, &message),
            message,
        };
        if self.is_classic() {
            self.backlog.push_classic(entry)
        } else {
            self.backlog.push(entry)
        }
        if let Some((publisher, sequence)) = publisher {
            effects.push_back(Effect::Taken { publisher, sequence, queue: self.id });
        }
    }

    fn next_index(&mut self) -> u64 {
        self.next_index += 1;
        self.next_index
    }

    /// Settles messages of a consumer. Those that it does not hold are ignored: they timed out, or were purged with their queue.
    fn settle(
        &mut self,
        now: Time,
        channel: ChannelId,
        tag: &Tag,
        deliveries: &[u64],
        settlement: Settlement,
        effects: &mut VecDeque<Effect>,
    ) {
        let Some(mut consumer) = self.consumers.take(channel, tag) else {
            return self.consumers.forgive_waiting(channel, tag, deliveries);
        };
        consumer.forgive(deliveries);
        let mut returned = Vec::new();
        for delivery in self.order_of_return(deliveries, settlement) {
            let Some(held) = consumer.held.remove(&delivery) else { continue };
            consumer.add_credit();
            let mut entry = held.entry;
            match settlement {
                Settlement::Ack => {}
                Settlement::Discard(how) => {
                    entry.counts.count_discard(self.version, how);
                    self.dead_letter(Reason::Rejected, entry, effects);
                }
                Settlement::Requeue(how) => returned.push((entry, how)),
            }
        }
        self.consumers.put_back(consumer, now, &mut self.last_active);
        for (entry, how) in returned {
            self.give_back(now, entry, how, effects);
        }
        self.consumers.activate_next();
    }

    /// In which order messages come back that are returned together: as the consumer gave them back. 3.10 takes them from a map, which
    /// Erlang keeps in order up to 32 keys only; the real order of more is as arbitrary, though not the same, as this one.
    fn order_of_return(&self, deliveries: &[u64], settlement: Settlement) -> Vec<u64> {
        let mut order = deliveries.to_vec();
        let is_return = matches!(settlement, Settlement::Requeue(_));
        if self.version == Version::V3_10 && is_return && self.settings.delivery_limit.is_some() && order.len() > 32 {
            order.sort_by_key(|delivery| delivery.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17));
        }
        order
    }

    /// A message comes back: to the head, to the end, later, or to the dead-letter exchange.
    fn give_back(&mut self, now: Time, mut entry: Entry, how: Return, effects: &mut VecDeque<Effect>) {
        if self.is_classic() {
            entry.was_delivered = true;
            return self.backlog.push_by_index(entry);
        }
        entry.counts.count_return(self.version, how);
        let limit = self.settings.delivery_limit;
        if entry.counts.is_over(self.version, limit) {
            return self.dead_letter(Reason::DeliveryLimit, entry, effects);
        }
        // Without a limit, 3.10 and 4.0 append a message that a consumer gave back; one of a lost channel stays at the head.
        if limit.is_none() && self.version <= Version::V4_0 && matches!(how, Return::Nack | Return::Reject) {
            entry.index = self.next_index();
            return self.backlog.push_requeued(entry);
        }
        match self.ready_again(now, &entry, how) {
            Some(time) => {
                self.delayed.insert((time, entry.index), entry);
            }
            None => self.returns.push_back(entry),
        }
    }

    fn dead_letter(&mut self, reason: Reason, entry: Entry, effects: &mut VecDeque<Effect>) {
        if self.settings.dead_letter_exchange.is_none() {
            return;
        }
        if self.is_at_least_once() && reason != Reason::MaxLength {
            self.discards.push(reason, entry);
        } else {
            effects.push_back(Effect::DeadLetter { queue: self.id, reason, entry });
        }
    }

    pub(crate) fn is_at_least_once(&self) -> bool {
        self.settings.is_at_least_once && !self.is_classic() && self.settings.dead_letter_exchange.is_some()
    }

    fn subscribe(&mut self, subscription: Subscription, effects: &mut VecDeque<Effect>) {
        let channel = subscription.channel;
        let Tag::Subscription(tag) = subscription.tag.clone() else { return };
        let answer = if self.is_classic() && self.consumers.is_refused(&subscription) {
            let queue = crate::error::queue_in_vhost(&self.name);
            Answer::Refused(Exception::access_refused(&format!("{queue} in exclusive use")))
        } else {
            self.consumers.subscribe(subscription);
            self.consumers.activate_next();
            Answer::Subscribed { tag }
        };
        effects.push_back(Effect::Answer { channel, queue: self.id, answer });
    }

    fn cancel(&mut self, now: Time, channel: ChannelId, tag: &Tag, effects: &mut VecDeque<Effect>) {
        self.consumers.cancel(channel, tag, now, &mut self.last_active);
        self.consumers.activate_next();
        effects.push_back(Effect::Answer { channel, queue: self.id, answer: Answer::Cancelled });
        self.tell_unused(effects);
    }

    fn tell_unused(&self, effects: &mut VecDeque<Effect>) {
        if self.declaration.is_auto_delete && self.consumers.is_empty() {
            effects.push_back(Effect::Unused { queue: self.id });
        }
    }

    fn get(&mut self, now: Time, subscription: Subscription, effects: &mut VecDeque<Effect>) {
        let was_below = self.is_below_soft_limit();
        self.last_active = now;
        self.expire(now, effects);
        let channel = subscription.channel;
        let is_no_ack = subscription.is_no_ack;
        let answer = match self.take_next() {
            None => Answer::Empty,
            Some(entry) => {
                let left = self.ready();
                if !is_no_ack {
                    self.consumers.hold_for_get(now, subscription, entry.clone());
                }
                Answer::Got { entry, delivery: 0, is_no_ack, left }
            }
        };
        effects.push_back(Effect::Answer { channel, queue: self.id, answer });
        self.hand_out(now, was_below, effects);
    }

    /// A channel is gone: everything that it held comes back, in its order.
    fn leave(&mut self, now: Time, channel: ChannelId, effects: &mut VecDeque<Effect>) {
        self.publishers.remove(&Publisher::Channel(channel));
        let had_consumers = !self.consumers.is_empty();
        self.consumers.drop_waiting(channel);
        for consumer in self.consumers.drop_of(channel) {
            self.last_active = now;
            for held in consumer.held.into_values() {
                self.give_back(now, held.entry, Return::Lost, effects);
            }
        }
        self.consumers.activate_next();
        if had_consumers {
            self.tell_unused(effects);
        }
    }

    fn purge(&mut self, channel: ChannelId, effects: &mut VecDeque<Effect>) {
        let mut messages = self.ready() + self.delayed.len();
        self.backlog.clear();
        self.returns.clear();
        self.delayed.clear();
        // Seen in the source: from 4.1 on, a purge takes what waits for dead-lettering as well.
        if self.version >= Version::V4_3 {
            messages += self.discards.len();
            self.discards.clear();
        }
        effects.push_back(Effect::Answer { channel, queue: self.id, answer: Answer::Purged { messages } });
    }

    /// Delivers what can be delivered, and drops what is too much.
    fn hand_out(&mut self, now: Time, was_below: bool, effects: &mut VecDeque<Effect>) {
        loop {
            self.expire(now, effects);
            if self.ready() == 0 || !self.consumers.has_next() {
                break;
            }
            let Some(entry) = self.take_next() else { break };
            let Some(delivered) = self.consumers.deliver(now, &entry, self.is_classic()) else { break };
            let (channel, tag, delivery, is_no_ack) = delivered;
            effects.push_back(Effect::Deliver { channel, queue: self.id, tag, delivery, entry, is_no_ack });
        }
        if self.is_at_least_once() {
            self.discards.hand_out(self.id, effects);
        }
        self.enforce_limits(now, was_below, effects);
    }

    fn take_next(&mut self) -> Option<Entry> {
        self.returns.pop_front().or_else(|| self.backlog.take_next())
    }

    /// What the management API shows.
    pub(crate) fn view(&self) -> QueueView {
        QueueView {
            ready: self.returns.iter().chain(self.backlog.iter()).map(Entry::message_id).collect(),
            unacked: self.consumers.held().map(Entry::message_id).collect(),
            dead_lettering: self.discards.iter().map(Entry::message_id).collect(),
            delayed: self.delayed.values().map(Entry::message_id).collect(),
        }
    }

    /// The settings have changed with a policy.
    pub(crate) fn configure(&mut self, now: Time, settings: Settings, effects: &mut VecDeque<Effect>) {
        let was_below = self.is_below_soft_limit();
        let was_at_least_once = self.is_at_least_once();
        self.settings = settings;
        if was_at_least_once && !self.is_at_least_once() {
            self.discards = Discards::default();
            self.worker = Worker::default();
        }
        self.hand_out(now, was_below, effects);
    }

    /// The leader answers nothing until then.
    pub(crate) fn silence(&mut self, until: Time) {
        self.silent_until = Some(until);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent_until.is_some()
    }

    /// A question for the counts is given up after 250 ms.
    pub(crate) fn forget_count(&mut self, channel: ChannelId) {
        self.unanswered.retain(|command| !matches!(command, Command::Count { channel: asked } if *asked == channel));
    }

    /// Publishes that were not taken before the queue was deleted. The broker confirms them.
    pub(crate) fn unanswered_publishes(&self) -> impl Iterator<Item = (Publisher, u64)> {
        self.unanswered.iter().filter_map(|command| match command {
            Command::Publish { publisher, .. } => *publisher,
            _ => None,
        })
    }

    /// Whoever waits for an answer of this queue.
    pub(crate) fn asking(&self) -> impl Iterator<Item = ChannelId> {
        self.unanswered.iter().filter_map(|command| match command {
            Command::Subscribe(subscription) | Command::Get(subscription) => Some(subscription.channel),
            Command::Cancel { channel, .. } | Command::Purge { channel } | Command::Count { channel } => Some(*channel),
            Command::Publish { .. }
            | Command::Settle { .. }
            | Command::Leave { .. }
            | Command::SettleDeadLetters { .. } => None,
        })
    }

    /// Everyone who has a subscription.
    pub(crate) fn subscribers(&self) -> Vec<(ChannelId, Name)> {
        self.consumers.subscribers()
    }

    /// The node starts again: its channels are gone, and a classic queue has lost what is not persistent.
    pub(crate) fn restart(&mut self, now: Time, effects: &mut VecDeque<Effect>) {
        let was_below = self.is_below_soft_limit();
        self.silent_until = None;
        self.unanswered.clear();
        for channel in self.consumers.channels() {
            self.leave(now, channel, effects);
        }
        self.publishers.clear();
        self.worker = Worker::default();
        self.discards.restart();
        if self.is_classic() {
            self.backlog.retain(|entry| entry.message.is_persistent());
        }
        self.hand_out(now, was_below, effects);
    }

    /// When the queue has something to do by itself.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        if self.silent_until.is_some() {
            return self.silent_until;
        }
        [
            self.next_expiry(),
            self.delayed.first_key_value().map(|(&(time, _), _)| time),
            self.next_timeout(),
            self.worker.timer,
            self.unused_until(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due. The dead-letter worker's timer is the broker's business.
    pub(crate) fn pass_time(&mut self, now: Time, effects: &mut VecDeque<Effect>) {
        if self.silent_until.is_some_and(|until| until <= now) {
            self.silent_until = None;
            for command in std::mem::take(&mut self.unanswered) {
                self.apply(now, command, effects);
            }
        }
        if self.silent_until.is_some() {
            return;
        }
        let was_below = self.is_below_soft_limit();
        self.promote_delayed(now);
        self.time_out(now, effects);
        self.hand_out(now, was_below, effects);
    }
}
