//! The consumers of a queue: who is next, how much each may hold, and what a single active consumer
//! is.
//!
//! A consumer has credit for as many messages as its prefetch allows and stands in a line while it
//! has some. Whoever gets a message goes to the end of the line. A cancelled consumer stays known
//! as long as it holds messages.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use super::Entry;
use crate::names::{ChannelId, Name, Tag};
use crate::protocol::{Time, Version};

/// What a quorum queue makes of a prefetch of 0.
const UNLIMITED_PREFETCH: u32 = 2000;

/// What a `basic.consume` or `basic.get` asks for.
#[derive(Debug, Clone)]
pub(crate) struct ConsumeRequest {
    pub(crate) channel: ChannelId,
    pub(crate) tag: Tag,
    pub(crate) is_no_ack: bool,
    pub(crate) is_exclusive: bool,
    pub(crate) prefetch: u16,
    /// `x-priority`: a higher one is served first.
    pub(crate) priority: i64,
    /// How long it may hold a message (4.3).
    pub(crate) timeout: Time,
}

impl ConsumeRequest {
    /// What the method itself says. The rest depends on the queue.
    pub(crate) fn new(
        channel: ChannelId,
        tag: Tag,
        is_no_ack: bool,
        is_exclusive: bool,
        prefetch: u16,
    ) -> Self {
        Self { channel, tag, is_no_ack, is_exclusive, prefetch, priority: 0, timeout: Time::ZERO }
    }

    /// The only message of a `basic.get`.
    pub(crate) fn handed(&self) -> Handed {
        Handed {
            channel: self.channel,
            tag: self.tag.clone(),
            delivery: 0,
            is_no_ack: self.is_no_ack,
        }
    }
}

/// A message that was given to a consumer.
#[derive(Debug, Clone)]
pub(crate) struct Handed {
    pub(crate) channel: ChannelId,
    pub(crate) tag: Tag,
    /// Its number for this consumer.
    pub(crate) delivery: u64,
    pub(crate) is_no_ack: bool,
}

#[derive(Debug)]
struct Held {
    entry: Entry,
    deadline: Time,
}

#[derive(Debug)]
struct Consumer {
    request: ConsumeRequest,
    /// The order of subscription, and the name in the line.
    key: u64,
    /// It gets nothing more, and is forgotten when it holds nothing.
    is_cancelled: bool,
    credit: u32,
    next_delivery: u64,
    /// By their number for this consumer.
    held: BTreeMap<u64, Held>,
    /// What timed out and was not settled since. While there is any, the consumer gets nothing.
    timed_out: Vec<u64>,
}

impl Consumer {
    fn new(key: u64, request: ConsumeRequest) -> Self {
        Self {
            credit: credit_of(&request),
            request,
            key,
            is_cancelled: false,
            next_delivery: 0,
            held: BTreeMap::new(),
            timed_out: Vec::new(),
        }
    }

    fn is(&self, channel: ChannelId, tag: &Tag) -> bool {
        self.request.channel == channel && self.request.tag == *tag
    }

    /// Whether it may get messages if it has credit.
    fn is_up(&self) -> bool {
        !self.is_cancelled && self.timed_out.is_empty()
    }

    /// From 4.0 on there is never more credit than the prefetch.
    fn add_credit(&mut self, version: Version) {
        if !self.is_cancelled && matches!(self.request.tag, Tag::Subscription(_)) {
            let max = if version >= Version::V4_0 { credit_of(&self.request) } else { u32::MAX };
            self.credit = self.credit.saturating_add(1).min(max);
        }
    }

    /// Takes out what was held for too long.
    fn take_late(&mut self, now: Time) -> Vec<Entry> {
        let late: Vec<_> = self
            .held
            .iter()
            .filter(|(_, held)| held.deadline <= now)
            .map(|(&delivery, _)| delivery)
            .collect();
        self.timed_out.extend(&late);
        late.iter().for_each(|_| self.add_credit(Version::V4_3));
        late.iter()
            .filter_map(|delivery| self.held.remove(delivery))
            .map(|held| held.entry)
            .collect()
    }

    /// What had timed out is settled after all.
    fn forgive(&mut self, deliveries: &[u64]) {
        self.timed_out.retain(|delivery| !deliveries.contains(delivery));
    }
}

fn credit_of(request: &ConsumeRequest) -> u32 {
    if request.prefetch == 0 { UNLIMITED_PREFETCH } else { request.prefetch.into() }
}

#[derive(Debug)]
pub(super) struct Consumers {
    version: Version,
    is_single_active: bool,
    next_key: u64,
    /// In the order of subscription.
    known: Vec<Consumer>,
    /// With a single active consumer, the others.
    waiting: Vec<Consumer>,
    /// Consumers with credit, by their priority and key. The first is the next.
    line: VecDeque<(i64, u64)>,
}

impl Consumers {
    pub(super) fn new(version: Version, is_single_active: bool) -> Self {
        Self {
            version,
            is_single_active,
            next_key: 0,
            known: Vec::new(),
            waiting: Vec::new(),
            line: VecDeque::new(),
        }
    }

    /// How many there are, as `queue.declare` says. A quorum queue counts cancelled ones that hold
    /// messages, and none that wait.
    pub(super) fn count(&self, is_classic: bool) -> usize {
        if is_classic { self.subscribers().len() } else { self.known.len() }
    }

    /// An exclusive consumer tolerates no other (classic queues).
    pub(super) fn is_refused(&self, request: &ConsumeRequest) -> bool {
        self.known.iter().any(|consumer| consumer.request.is_exclusive)
            || (request.is_exclusive && !self.known.is_empty())
    }

    /// A consumer subscribes. One that was cancelled and still holds messages, with the same tag on
    /// the same channel, is taken up again.
    pub(super) fn subscribe(&mut self, request: ConsumeRequest) {
        let known = self.known.iter().position(|known| known.is(request.channel, &request.tag));
        let is_free = !self.is_single_active || !self.known.iter().any(Consumer::is_up);
        if let Some(position) = known.filter(|_| is_free) {
            let mut consumer = self.known.remove(position);
            let held = u32::try_from(consumer.held.len()).unwrap_or(u32::MAX);
            consumer.credit = credit_of(&request).saturating_sub(held);
            consumer.is_cancelled = false;
            consumer.request = request;
            return self.put_back(consumer);
        }
        self.next_key += 1;
        let consumer = Consumer::new(self.next_key, request);
        if self.is_single_active { self.wait(consumer) } else { self.put_back(consumer) }
    }

    /// On 4.x those with more credit come before those who have waited longer.
    fn wait(&mut self, consumer: Consumer) {
        self.waiting.push(consumer);
        if self.version >= Version::V4_0 {
            let rank = |other: &Consumer| {
                (Reverse(other.request.priority), Reverse(other.credit), other.key)
            };
            self.waiting.sort_by_key(|other| (!other.is_up(), rank(other)));
        }
    }

    /// Puts a consumer into the line if it may get messages and is not there.
    fn queue_up(&mut self, key: u64) {
        let Some(consumer) = self.known.iter().find(|consumer| consumer.key == key) else { return };
        if consumer.credit == 0
            || !consumer.is_up()
            || self.line.iter().any(|&(_, other)| other == key)
        {
            return;
        }
        let priority = consumer.request.priority;
        let position =
            self.line.iter().position(|&(other, _)| other < priority).unwrap_or(self.line.len());
        self.line.insert(position, (priority, key));
    }

    /// A consumer settles messages. Returns those that it held, in the order that is asked for.
    pub(super) fn settle(
        &mut self,
        channel: ChannelId,
        tag: &Tag,
        deliveries: &[u64],
        order: &[u64],
    ) -> Vec<Entry> {
        let Some(mut consumer) = self.take(channel, tag) else {
            // It may be one that has timed out and waits for its turn.
            if let Some(position) =
                self.waiting.iter().position(|consumer| consumer.is(channel, tag))
            {
                let mut consumer = self.waiting.remove(position);
                consumer.forgive(deliveries);
                self.wait(consumer);
            }
            return Vec::new();
        };
        consumer.forgive(deliveries);
        let settled: Vec<_> =
            order.iter().filter_map(|delivery| consumer.held.remove(delivery)).collect();
        settled.iter().for_each(|_| consumer.add_credit(self.version));
        self.put_back(consumer);
        settled.into_iter().map(|held| held.entry).collect()
    }

    /// 3.10 credits a returned message twice if it is dead-lettered for its limit, so that the
    /// consumer gets more than its prefetch.
    pub(super) fn credit_again(&mut self, channel: ChannelId, tag: &Tag) {
        if let Some(mut consumer) = self.take(channel, tag) {
            consumer.add_credit(self.version);
            self.put_back(consumer);
        }
    }

    fn take(&mut self, channel: ChannelId, tag: &Tag) -> Option<Consumer> {
        let position = self.known.iter().position(|consumer| consumer.is(channel, tag))?;
        Some(self.known.remove(position))
    }

    /// Puts a consumer back, unless it is done: cancelled and without messages.
    fn put_back(&mut self, consumer: Consumer) {
        let is_once = consumer.is_cancelled || matches!(consumer.request.tag, Tag::Get(_));
        if consumer.held.is_empty() && is_once {
            return;
        }
        let key = consumer.key;
        let position = self.known.partition_point(|other| other.key < key);
        self.known.insert(position, consumer);
        self.queue_up(key);
    }

    pub(super) fn cancel(&mut self, channel: ChannelId, tag: &Tag) {
        if let Some(mut consumer) = self.take(channel, tag) {
            consumer.is_cancelled = true;
            consumer.credit = 0;
            self.put_back(consumer);
        } else {
            self.waiting.retain(|consumer| !consumer.is(channel, tag));
        }
    }

    /// With a single active consumer, the next one takes over if there is none.
    pub(super) fn activate_next(&mut self) {
        let is_wanted = self.is_single_active && !self.known.iter().any(Consumer::is_up);
        if !is_wanted || !self.waiting.first().is_some_and(Consumer::is_up) {
            return;
        }
        let mut next = self.waiting.remove(0);
        // The same consumer, cancelled while it held messages and subscribed again, is one
        // consumer.
        if let Some(former) = self.take(next.request.channel, &next.request.tag.clone()) {
            next.held = former.held;
            next.next_delivery = former.next_delivery;
            next.timed_out = former.timed_out;
        }
        self.put_back(next);
    }

    /// Whether anybody can take a message.
    pub(super) fn has_next(&mut self) -> bool {
        while let Some(&(_, key)) = self.line.front() {
            if self
                .known
                .iter()
                .any(|consumer| consumer.key == key && consumer.is_up() && consumer.credit > 0)
            {
                return true;
            }
            self.line.pop_front();
        }
        false
    }

    /// Gives the message to whoever is next. A consumer without acks holds nothing.
    pub(super) fn deliver(&mut self, now: Time, entry: &Entry, is_classic: bool) -> Option<Handed> {
        let (_, key) = self.line.pop_front()?;
        let consumer = self.known.iter_mut().find(|consumer| consumer.key == key)?;
        let delivery = consumer.next_delivery;
        consumer.next_delivery += 1;
        let request = &consumer.request;
        if !request.is_no_ack {
            let deadline = now + request.timeout;
            consumer.held.insert(delivery, Held { entry: entry.clone(), deadline });
            // A classic queue takes a prefetch of 0 for what it says.
            consumer.credit -= u32::from(!is_classic || request.prefetch > 0);
        }
        let (channel, tag) = (request.channel, request.tag.clone());
        let handed = Handed { channel, tag, delivery, is_no_ack: request.is_no_ack };
        self.queue_up(key);
        Some(handed)
    }

    /// Holds a message for a `basic.get`.
    pub(super) fn hold_for_get(&mut self, now: Time, request: ConsumeRequest, entry: Entry) {
        self.next_key += 1;
        let deadline = now + request.timeout;
        let mut consumer = Consumer::new(self.next_key, request);
        consumer.credit = 0;
        consumer.next_delivery = 1;
        consumer.held.insert(0, Held { entry, deadline });
        self.known.push(consumer);
    }

    /// A channel is gone, with its consumers. Returns what they held, one consumer after the other:
    /// 3.10 takes them by their tags, where that of a `basic.get` is its number, and 4.x takes
    /// subscriptions first, in their order.
    pub(super) fn leave(&mut self, channel: ChannelId) -> Vec<Entry> {
        self.waiting.retain(|consumer| consumer.request.channel != channel);
        let gone = self.known.extract_if(.., |consumer| consumer.request.channel == channel);
        let mut gone: Vec<_> = gone.collect();
        gone.sort_by_cached_key(|consumer| match &consumer.request.tag {
            Tag::Subscription(_) if self.version >= Version::V4_0 => {
                (0, consumer.key, Name::default())
            }
            Tag::Subscription(tag) => (1, 0, tag.clone()),
            Tag::Get(delivery) => (1, 0, delivery.to_string().into()),
        });
        gone.into_iter()
            .flat_map(|consumer| consumer.held.into_values())
            .map(|held| held.entry)
            .collect()
    }

    /// Everything that is held.
    pub(super) fn held(&self) -> impl Iterator<Item = &Entry> {
        self.known.iter().flat_map(|consumer| consumer.held.values().map(|held| &held.entry))
    }

    pub(super) fn subscribers(&self) -> Vec<(ChannelId, Name)> {
        let consumers = self.known.iter().chain(&self.waiting);
        consumers
            .filter(|consumer| !consumer.is_cancelled)
            .filter_map(|consumer| match &consumer.request.tag {
                Tag::Subscription(tag) => Some((consumer.request.channel, tag.clone())),
                Tag::Get(_) => None,
            })
            .collect()
    }

    pub(super) fn channels(&self) -> Vec<ChannelId> {
        let mut channels: Vec<_> = self
            .known
            .iter()
            .chain(&self.waiting)
            .map(|consumer| consumer.request.channel)
            .collect();
        channels.sort_unstable();
        channels.dedup();
        channels
    }

    /// The messages of a consumer time out in the order in which it got them.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.known
            .iter()
            .filter_map(|consumer| consumer.held.values().next())
            .map(|held| held.deadline)
            .min()
    }

    /// Takes from each consumer what it has held for too long. A single active consumer that holds
    /// nothing then waits for its turn.
    pub(super) fn take_timed_out(&mut self, now: Time) -> Vec<(ChannelId, Tag, Vec<Entry>)> {
        let mut timed_out = Vec::new();
        for mut consumer in std::mem::take(&mut self.known) {
            let late = consumer.take_late(now);
            if !late.is_empty() {
                timed_out.push((consumer.request.channel, consumer.request.tag.clone(), late));
            }
            if self.is_single_active && !consumer.timed_out.is_empty() && consumer.held.is_empty() {
                self.wait(consumer);
            } else {
                self.put_back(consumer);
            }
        }
        timed_out
    }
}
