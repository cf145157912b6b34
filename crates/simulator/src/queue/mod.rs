//! A queue: what it holds, who consumes it, and what it does with each command.
//!
//! As in RabbitMQ, a quorum queue is a state machine of its own. It takes commands one after the
//! other, and says what follows from them as effects, which the broker carries out: it knows no
//! exchanges and no other queue. Each concept has a file here. A classic queue is the same machine,
//! with other answers to a few questions: it keeps no counts, it puts a returned message back to
//! where it was, and its length limit is exact.

mod backlog;
mod consumers;
mod counts;
mod delayed;
mod discards;
mod expiry;
mod limits;
mod timeouts;
mod view;
mod worker;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use self::backlog::Backlog;
use self::consumers::Consumers;
pub(crate) use self::consumers::{ConsumeRequest, Handed};
pub(crate) use self::counts::{Counts, Return};
use self::delayed::Delayed;
use self::discards::Discards;
pub use self::view::{QueueView, Turnover};
pub(crate) use self::worker::{Pending, RETRY_INTERVAL, Worker};
use crate::arguments::{Declaration, QueueType};
use crate::death::Reason;
use crate::error::{Exception, queue_in_vhost};
use crate::message::Message;
use crate::names::{ChannelId, Name, Publisher, QueueId, Tag};
use crate::policy::Settings;
use crate::protocol::{Time, Version};

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
    /// Without a publisher nobody hears whether the message was taken: so it is with dead-lettering
    /// at most once.
    Publish(Option<(Publisher, u64)>, Arc<Message>),
    Settle(ChannelId, Tag, Vec<u64>, Settlement),
    Subscribe(ConsumeRequest),
    Cancel(ChannelId, Tag),
    Get(ConsumeRequest),
    /// A channel is gone, with its consumers and as a publisher.
    Leave(ChannelId),
    Purge(ChannelId),
    Count(ChannelId),
    /// The dead-letter worker is done with a message.
    SettleDeadLetter(u64),
}

/// What a channel waits for. It does nothing else meanwhile.
#[derive(Debug, Clone)]
pub(crate) enum QueueReply {
    Subscribed { tag: Name },
    Cancelled,
    Empty,
    Got { entry: Entry, handed: Handed, left: usize },
    Purged { messages: usize },
    Counted { messages: usize, consumers: usize },
    Refused(Exception),
}

/// What follows from a command.
#[derive(Debug, Clone)]
pub(crate) enum Effect {
    Reply(ChannelId, QueueReply),
    Deliver(Handed, Entry),
    /// Whether a publish was taken.
    Confirm(Publisher, u64, bool),
    /// A delivery was not acked in time (4.3).
    TimedOut(ChannelId, Tag),
    /// Dead-lettered at most once: gone from the queue, whatever becomes of it.
    DeadLetter(Reason, Entry),
    /// Dead-lettered at least once: the queue keeps it until the worker settles it by this number.
    Forward(u64, Reason, Entry),
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) id: QueueId,
    pub(crate) name: Name,
    pub(crate) declaration: Declaration,
    pub(crate) settings: Settings,
    version: Version,
    /// The time of what is being done.
    now: Time,
    /// What follows from it.
    effects: Vec<Effect>,
    next_index: u64,
    backlog: Backlog,
    /// Messages that came back. They are delivered before the others.
    returns: VecDeque<Entry>,
    /// Messages that came back and wait for their delayed retry (4.3).
    delayed: Delayed,
    consumers: Consumers,
    /// Everybody who has published here, and whether reject-publish turns them away.
    publishers: BTreeMap<Publisher, bool>,
    discards: Discards,
    pub(crate) worker: Worker,
    pub(crate) turnover: Turnover,
    /// The leader answers nothing until then.
    silent_until: Option<Time>,
    /// What came meanwhile.
    pub(crate) unanswered: VecDeque<Command>,
}

impl Queue {
    pub(crate) fn new(
        id: QueueId,
        name: Name,
        now: Time,
        declaration: Declaration,
        settings: Settings,
    ) -> Self {
        let version = settings.version;
        Self {
            id,
            name,
            consumers: Consumers::new(version, settings.is_single_active_consumer),
            declaration,
            settings,
            version,
            now,
            effects: Vec::new(),
            next_index: 0,
            backlog: Backlog::new(version),
            returns: VecDeque::new(),
            delayed: Delayed::default(),
            publishers: BTreeMap::new(),
            discards: Discards::default(),
            worker: Worker::default(),
            turnover: Turnover::default(),
            silent_until: None,
            unanswered: VecDeque::new(),
        }
    }

    pub(crate) fn is_classic(&self) -> bool {
        self.declaration.kind == QueueType::Classic
    }

    /// How many messages are ready, which is what `queue.declare` says.
    pub(crate) fn ready(&self) -> usize {
        self.returns.len() + self.backlog.len()
    }

    pub(crate) fn consumer_count(&self) -> usize {
        self.consumers.count(self.is_classic())
    }

    /// What has followed since the last call.
    pub(crate) fn take_effects(&mut self) -> std::vec::Drain<'_, Effect> {
        self.effects.drain(..)
    }

    /// Takes a command, now or when the leader answers again.
    pub(crate) fn command(&mut self, now: Time, command: Command) {
        if self.silent_until.is_some() {
            self.unanswered.push_back(command);
        } else {
            self.change(now, |queue| queue.apply(command));
        }
    }

    /// Whatever happens to a queue: then it delivers what it can, and drops what is too much.
    fn change(&mut self, now: Time, change: impl FnOnce(&mut Self)) {
        self.now = now;
        let was_below = self.is_below_soft_limit();
        change(self);
        self.hand_out();
        self.enforce_limits(was_below);
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Publish(publisher, message) => self.publish(publisher, message),
            Command::Settle(channel, tag, deliveries, settlement) => {
                self.settle(channel, &tag, &deliveries, settlement)
            }
            Command::Subscribe(request) => self.subscribe(request),
            Command::Cancel(channel, tag) => {
                self.consumers.cancel(channel, &tag);
                self.answer(channel, QueueReply::Cancelled);
            }
            Command::Get(request) => self.get(request),
            Command::Leave(channel) => self.leave(channel),
            Command::Purge(channel) => self.purge(channel),
            Command::Count(channel) => {
                let answer = QueueReply::Counted {
                    messages: self.ready(),
                    consumers: self.consumer_count(),
                };
                self.answer(channel, answer);
            }
            Command::SettleDeadLetter(id) => self.discards.settle(id),
        }
    }

    fn answer(&mut self, channel: ChannelId, answer: QueueReply) {
        self.effects.push(Effect::Reply(channel, answer));
    }

    fn publish(&mut self, publisher: Option<(Publisher, u64)>, message: Arc<Message>) {
        let is_taken = !self.turns_away(publisher.map(|(publisher, _)| publisher));
        self.turnover.dead_letters +=
            u64::from(!matches!(publisher, Some((Publisher::Channel(_), _))));
        self.turnover.dropped += u64::from(!is_taken);
        if is_taken {
            let entry = Entry {
                index: self.next_index(),
                counts: Counts::of_arrival(message.delivery_count.filter(|_| !self.is_classic())),
                was_delivered: false,
                expires: self.expiry_of(&message),
                message,
            };
            self.backlog.push(entry, self.is_classic());
        }
        if let Some((publisher, sequence)) = publisher {
            self.effects.push(Effect::Confirm(publisher, sequence, is_taken));
        }
    }

    fn next_index(&mut self) -> u64 {
        self.next_index += 1;
        self.next_index
    }

    /// Settles messages of a consumer. Those that it does not hold are ignored: they timed out, or
    /// were purged with their queue.
    fn settle(
        &mut self,
        channel: ChannelId,
        tag: &Tag,
        deliveries: &[u64],
        settlement: Settlement,
    ) {
        let order = self.order_of_return(deliveries, settlement);
        for entry in self.consumers.settle(channel, tag, deliveries, &order) {
            match settlement {
                Settlement::Ack => {}
                Settlement::Requeue(how) => {
                    let is_dead = self.give_back(entry, how);
                    if is_dead && self.version == Version::V3_10 {
                        self.consumers.credit_again(channel, tag);
                    }
                }
                Settlement::Discard(how) => {
                    let mut entry = entry;
                    entry.counts.count_discard(self.version, how);
                    self.dead_letter(Reason::Rejected, entry);
                }
            }
        }
    }

    /// In which order messages come back that are returned together: as the consumer gave them
    /// back. 3.10 takes them from a map, which Erlang keeps in order up to 32 keys only. The real
    /// order of more is as arbitrary as this one, though another.
    fn order_of_return(&self, deliveries: &[u64], settlement: Settlement) -> Vec<u64> {
        let mut order = deliveries.to_vec();
        let is_return = matches!(settlement, Settlement::Requeue(_));
        if self.version == Version::V3_10
            && is_return
            && self.settings.delivery_limit.is_some()
            && order.len() > 32
        {
            order.sort_by_key(|delivery| {
                delivery.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17)
            });
        }
        order
    }

    /// A message comes back: to the head, to the end, later, or to the dead-letter exchange.
    /// Returns whether the last.
    fn give_back(&mut self, mut entry: Entry, how: Return) -> bool {
        if self.is_classic() {
            entry.was_delivered = true;
            self.backlog.push_by_index(entry);
            return false;
        }
        entry.counts.count_return(self.version, how);
        let limit = self.settings.delivery_limit;
        if entry.counts.is_over(self.version, limit) {
            self.dead_letter(Reason::DeliveryLimit, entry);
            return true;
        }
        // Without a limit, 3.10 and 4.0 append a message that a consumer gave back; one of a lost
        // channel stays at the head.
        if limit.is_none()
            && self.version <= Version::V4_0
            && matches!(how, Return::Nack | Return::Reject)
        {
            entry.index = self.next_index();
            self.backlog.push_requeued(entry);
        } else if let Some(time) = self.ready_again(&entry, how) {
            self.delayed.insert(time, entry);
        } else {
            self.returns.push_back(entry);
        }
        false
    }

    fn dead_letter(&mut self, reason: Reason, entry: Entry) {
        self.turnover.dropped += u64::from(matches!(reason, Reason::Expired | Reason::MaxLength));
        if self.is_at_least_once() && reason != Reason::MaxLength {
            self.discards.push(reason, entry);
        } else if self.settings.dead_letter_exchange.is_some() {
            self.effects.push(Effect::DeadLetter(reason, entry));
        }
    }

    fn is_at_least_once(&self) -> bool {
        self.settings.is_at_least_once && self.settings.dead_letter_exchange.is_some()
    }

    fn subscribe(&mut self, request: ConsumeRequest) {
        let channel = request.channel;
        if self.is_classic() && self.consumers.is_refused(&request) {
            let text = format!("{} in exclusive use", queue_in_vhost(&self.name));
            return self.answer(channel, QueueReply::Refused(Exception::access_refused(&text)));
        }
        if let Tag::Subscription(tag) = &request.tag {
            self.answer(channel, QueueReply::Subscribed { tag: tag.clone() });
        }
        self.consumers.subscribe(request);
    }

    fn get(&mut self, request: ConsumeRequest) {
        self.expire();
        let handed = request.handed();
        let channel = handed.channel;
        let answer = match self.take_next() {
            None => QueueReply::Empty,
            Some(entry) => {
                if handed.is_no_ack {
                    // It is settled before the rest is counted, and whatever settles looks for
                    // expired messages.
                    self.expire();
                } else {
                    self.consumers.hold_for_get(self.now, request, entry.clone());
                }
                QueueReply::Got { entry, handed, left: self.ready() }
            }
        };
        self.answer(channel, answer);
    }

    /// A channel is gone: everything that it held comes back, in its order.
    fn leave(&mut self, channel: ChannelId) {
        self.publishers.remove(&Publisher::Channel(channel));
        for entry in self.consumers.leave(channel) {
            self.give_back(entry, Return::Lost);
        }
    }

    fn purge(&mut self, channel: ChannelId) {
        let mut messages = self.ready() + self.delayed.entries.len();
        self.backlog = Backlog::new(self.version);
        self.returns.clear();
        self.delayed = Delayed::default();
        // Seen in the source of 4.3: there a purge takes what waits for dead-lettering as well.
        if self.version >= Version::V4_3 {
            messages += self.discards.len();
            self.discards.clear();
        }
        self.answer(channel, QueueReply::Purged { messages });
    }

    fn hand_out(&mut self) {
        self.consumers.activate_next();
        loop {
            self.expire();
            if self.ready() == 0 || !self.consumers.has_next() {
                break;
            }
            let Some(entry) = self.take_next() else { break };
            let Some(handed) = self.consumers.deliver(self.now, &entry, self.is_classic()) else {
                break;
            };
            self.effects.push(Effect::Deliver(handed, entry));
        }
        if self.is_at_least_once() {
            self.discards.hand_out(&mut self.effects);
        }
    }

    fn take_next(&mut self) -> Option<Entry> {
        self.returns.pop_front().or_else(|| self.backlog.take_next())
    }

    /// The settings have changed with a policy. What was kept for dead-lettering at least once is
    /// lost if that ends.
    pub(crate) fn configure(&mut self, now: Time, settings: Settings) {
        self.change(now, |queue| {
            let was_at_least_once = queue.is_at_least_once();
            queue.settings = settings;
            if was_at_least_once && !queue.is_at_least_once() {
                queue.discards = Discards::default();
                queue.worker = Worker::default();
            }
        });
    }

    /// The leader answers nothing until then.
    pub(crate) fn silence(&mut self, until: Time) {
        self.silent_until = Some(until);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent_until.is_some()
    }

    /// A question for the counts is given up. Returns whether there was one.
    pub(crate) fn forget_count(&mut self, channel: ChannelId) -> bool {
        let is_asking =
            |command: &Command| matches!(command, Command::Count(asking) if *asking == channel);
        let position = self.unanswered.iter().position(is_asking);
        position.and_then(|position| self.unanswered.remove(position)).is_some()
    }

    /// Everyone who has a subscription.
    pub(crate) fn subscribers(&self) -> Vec<(ChannelId, Name)> {
        self.consumers.subscribers()
    }

    /// The node starts again: its channels are gone, and a classic queue has lost what is not
    /// persistent.
    pub(crate) fn restart(&mut self, now: Time) {
        self.silent_until = None;
        self.unanswered.clear();
        self.change(now, |queue| {
            for channel in queue.consumers.channels() {
                queue.leave(channel);
            }
            queue.publishers.clear();
            queue.worker = Worker::default();
            queue.discards.restart();
            if queue.is_classic() {
                queue.backlog.retain(|entry| entry.message.is_persistent());
            }
        });
    }

    /// When the queue has something to do by itself.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        let timers =
            [self.next_expiry(), self.delayed.next_time(), self.next_timeout(), self.worker.timer];
        self.silent_until.or_else(|| timers.into_iter().flatten().min())
    }

    /// Does what is due, apart from the worker's retries.
    pub(crate) fn pass_time(&mut self, now: Time) {
        if self.silent_until.is_some_and(|until| until <= now) {
            self.silent_until = None;
            for command in std::mem::take(&mut self.unanswered) {
                self.change(now, |queue| queue.apply(command));
            }
        }
        if self.silent_until.is_none() {
            self.change(now, |queue| {
                queue.promote_delayed();
                queue.time_out();
            });
        }
    }
}
