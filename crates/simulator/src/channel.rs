//! Channels: what a client may do, deliveries and their settlement, and the confirms of what it published.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lapin::types::{FieldTable, ShortString};

use crate::broker::{Broker, Timer};
use crate::error::{Exception, queue_in_vhost};
use crate::headers::{integer_of, with_headers};
use crate::names::{ChannelId, Name, QueueId, Tag, short};
use crate::permissions::{Access, Resource};
use crate::protocol::{ChannelNumber, ConnectionId, Delivery, Event, Method, Time, Version};
use crate::queue::{Answer, Command, Effect, Entry, Return, Settlement, Subscription};

/// How often a channel looks for deliveries that were not acked in time, until 4.2.
const TICK: Time = Time::from_secs(60);

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) connection: ConnectionId,
    pub(crate) number: ChannelNumber,
    prefetch: u16,
    pub(crate) is_confirming: bool,
    pub(crate) next_publish: u64,
    next_delivery: u64,
    consumers: BTreeMap<Name, QueueId>,
    /// By their delivery tag.
    unacked: BTreeMap<u64, Unacked>,
    /// Publishes, and how many queues have not taken them yet.
    pub(crate) unconfirmed: BTreeMap<u64, usize>,
    pub(crate) confirmed: Vec<u64>,
    pub(crate) refused: Vec<u64>,
    /// Queues that have to hear when the channel ends.
    pub(crate) queues: BTreeSet<QueueId>,
    /// What an empty queue name means.
    pub(crate) last_declared: ShortString,
    /// The queue whose answer it waits for. Nothing else happens on the channel meanwhile.
    waits_for: Option<QueueId>,
    mailbox: VecDeque<Mail>,
    consumer_timeout: Time,
    pub(crate) tick: Option<Time>,
}

#[derive(Debug)]
struct Unacked {
    queue: QueueId,
    tag: Tag,
    delivery: u64,
    since: Time,
}

/// What comes while a channel waits.
#[derive(Debug)]
enum Mail {
    Method(Method),
    Effect(Effect),
}

impl Channel {
    pub(crate) fn new(connection: ConnectionId, number: ChannelNumber, consumer_timeout: Time) -> Self {
        Self {
            connection,
            number,
            prefetch: 0,
            is_confirming: false,
            next_publish: 1,
            next_delivery: 1,
            consumers: BTreeMap::new(),
            unacked: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            confirmed: Vec::new(),
            refused: Vec::new(),
            queues: BTreeSet::new(),
            last_declared: ShortString::default(),
            waits_for: None,
            mailbox: VecDeque::new(),
            consumer_timeout,
            tick: None,
        }
    }

    /// Takes the deliveries that a client settles, the oldest first. A tag that is not open is an error, also with `multiple`.
    fn take_unacked(&mut self, tag: u64, is_multiple: bool) -> Result<Vec<Unacked>, Exception> {
        if tag == 0 && is_multiple {
            return Ok(std::mem::take(&mut self.unacked).into_values().collect());
        }
        let unknown = || Exception::precondition_failed(&format!("unknown delivery tag {tag}"));
        if !is_multiple {
            return self.unacked.remove(&tag).map(|unacked| vec![unacked]).ok_or_else(unknown);
        }
        if !self.unacked.contains_key(&tag) {
            return Err(unknown());
        }
        let later = self.unacked.split_off(&(tag + 1));
        Ok(std::mem::replace(&mut self.unacked, later).into_values().collect())
    }
}

impl Broker {
    /// Handles a method, or keeps it for later if its channel waits for a queue.
    pub(crate) fn handle_or_keep(&mut self, id: ChannelId, method: Method) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if channel.waits_for.is_some() {
            channel.mailbox.push_back(Mail::Method(method));
        } else if let Err(exception) = self.handle(id, method) {
            self.close_channel(id, exception);
        }
    }

    fn handle(&mut self, id: ChannelId, method: Method) -> Result<(), Exception> {
        match method {
            Method::OpenChannel => return Err(Exception::channel_error("second 'channel.open' seen")),
            Method::CloseChannel => {
                self.send_on(id, Event::Done);
                self.drop_channel(id);
            }
            Method::Flow { is_active: false } => return Err(Exception::not_implemented("active=false")),
            Method::Flow { is_active: true } => self.send_on(id, Event::Done),
            Method::ConfirmSelect => self.change(id, |channel| channel.is_confirming = true),
            Method::Qos { prefetch } => self.change(id, |channel| channel.prefetch = prefetch),
            Method::Consume { queue, tag, is_no_ack, is_exclusive, arguments } => {
                self.consume(id, &queue, &tag, is_no_ack, is_exclusive, &arguments)?;
            }
            Method::Cancel { tag } => self.cancel(id, tag),
            Method::Get { queue, is_no_ack } => self.get(id, &queue, is_no_ack)?,
            Method::Ack { tag, is_multiple } => self.settle(id, tag, is_multiple, Settlement::Ack)?,
            Method::Reject { tag, is_requeued } => {
                self.settle(id, tag, false, given_back(is_requeued, Return::Reject))?
            }
            Method::Nack { tag, is_multiple, is_requeued } => {
                self.settle(id, tag, is_multiple, given_back(is_requeued, Return::Nack))?;
            }
            Method::Publish { exchange, routing_key, is_mandatory, properties, body } => {
                self.publish(id, exchange, routing_key, is_mandatory, properties, body)?;
            }
            topology => self.change_topology(id, topology)?,
        }
        Ok(())
    }

    fn change(&mut self, id: ChannelId, change: impl FnOnce(&mut Channel)) {
        if let Some(channel) = self.channels.get_mut(&id) {
            change(channel);
        }
        self.send_on(id, Event::Done);
    }

    fn consume(
        &mut self,
        id: ChannelId,
        queue: &ShortString,
        tag: &ShortString,
        is_no_ack: bool,
        is_exclusive: bool,
        arguments: &FieldTable,
    ) -> Result<(), Exception> {
        if self.channels.get(&id).is_some_and(|channel| channel.consumers.contains_key(tag.as_str())) {
            return Err(Exception::not_allowed(&format!("attempt to reuse consumer tag '{tag}'")));
        }
        let queue = self.expand_queue_name(id, queue)?;
        self.check_access(id, Access::Read, Resource::Queue(&queue))?;
        let tag = if tag.as_str().is_empty() {
            Name::from(format!("amq.ctag-{}", self.next_number()))
        } else {
            Name::from(tag.as_str())
        };
        let queue = self.accessible_queue(id, &queue)?;
        // Only 4.3 knows a consumer's own timeout.
        let timeout = integer_of(arguments, "x-consumer-timeout")
            .filter(|_| self.version() >= Version::V4_3)
            .and_then(|timeout| u64::try_from(timeout).ok())
            .map(Time::from_millis);
        let Some(channel) = self.channels.get(&id) else { return Ok(()) };
        let subscription = Subscription {
            channel: id,
            tag: Tag::Subscription(tag),
            is_no_ack,
            is_exclusive,
            prefetch: channel.prefetch,
            priority: integer_of(arguments, "x-priority").unwrap_or_default(),
            timeout: timeout.unwrap_or_else(|| self.consumer_timeout_of(channel, queue)),
        };
        self.ask(id, queue, Command::Subscribe(subscription));
        Ok(())
    }

    /// The node's timeout, unless the queue has its own.
    fn consumer_timeout_of(&self, channel: &Channel, queue: QueueId) -> Time {
        let own = self.queue_by_id(queue).and_then(|queue| queue.settings.consumer_timeout);
        own.unwrap_or(channel.consumer_timeout)
    }

    /// Sends a command whose answer the channel waits for.
    pub(crate) fn ask(&mut self, id: ChannelId, queue: QueueId, command: Command) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.waits_for = Some(queue);
            channel.queues.insert(queue);
        }
        self.command(queue, command);
    }

    /// The subscription ends; what it has not settled stays with the channel.
    fn cancel(&mut self, id: ChannelId, tag: ShortString) {
        let queue = self.channels.get_mut(&id).and_then(|channel| channel.consumers.remove(tag.as_str()));
        match queue.filter(|queue| self.queue_by_id(*queue).is_some()) {
            Some(queue) => {
                let tag = Tag::Subscription(Name::from(tag.as_str()));
                self.ask(id, queue, Command::Cancel { channel: id, tag });
            }
            // Nobody is told that there was no such subscription.
            None => self.send_on(id, Event::Done),
        }
    }

    fn get(&mut self, id: ChannelId, queue: &ShortString, is_no_ack: bool) -> Result<(), Exception> {
        let queue = self.expand_queue_name(id, queue)?;
        self.check_access(id, Access::Read, Resource::Queue(&queue))?;
        let queue_id = self.accessible_queue(id, &queue)?;
        let is_single_active = self
            .queue_by_id(queue_id)
            .is_some_and(|queue| queue.settings.is_single_active_consumer && !queue.is_classic());
        if is_single_active {
            let kind = if self.version() == Version::V4_3 { "<<\"quorum\">>" } else { "quorum" };
            let text = format!(
                "cannot obtain access to locked {}. basic.get operations are not supported by {kind} queues with single \
                 active consumer",
                queue_in_vhost(&queue)
            );
            return Err(Exception::resource_locked(&text));
        }
        let Some(channel) = self.channels.get(&id) else { return Ok(()) };
        let subscription = Subscription {
            channel: id,
            tag: Tag::Get(channel.next_delivery),
            is_no_ack,
            is_exclusive: false,
            prefetch: 1,
            priority: 0,
            timeout: self.consumer_timeout_of(channel, queue_id),
        };
        self.ask(id, queue_id, Command::Get(subscription));
        Ok(())
    }

    fn settle(&mut self, id: ChannelId, tag: u64, is_multiple: bool, settlement: Settlement) -> Result<(), Exception> {
        let Some(channel) = self.channels.get_mut(&id) else { return Ok(()) };
        let mut by_consumer: BTreeMap<(QueueId, Tag), Vec<u64>> = BTreeMap::new();
        for unacked in channel.take_unacked(tag, is_multiple)? {
            by_consumer.entry((unacked.queue, unacked.tag)).or_default().push(unacked.delivery);
        }
        for ((queue, tag), deliveries) in by_consumer {
            self.command(queue, Command::Settle { channel: id, tag, deliveries, settlement });
        }
        Ok(())
    }

    /// Something happens to a channel.
    pub(crate) fn notify_channel(&mut self, id: ChannelId, effect: Effect) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if let Effect::Answer { queue, answer, .. } = effect {
            if channel.waits_for == Some(queue) {
                channel.waits_for = None;
                self.answer_channel(id, queue, answer);
                self.read_mailbox(id);
            }
        } else if channel.waits_for.is_some() {
            channel.mailbox.push_back(Mail::Effect(effect));
        } else {
            self.tell_channel(id, effect);
        }
    }

    fn read_mailbox(&mut self, id: ChannelId) {
        while let Some(channel) = self.channels.get_mut(&id)
            && channel.waits_for.is_none()
            && let Some(mail) = channel.mailbox.pop_front()
        {
            match mail {
                Mail::Method(method) => self.handle_or_keep(id, method),
                Mail::Effect(effect) => self.tell_channel(id, effect),
            }
        }
    }

    fn answer_channel(&mut self, id: ChannelId, queue: QueueId, answer: Answer) {
        match answer {
            Answer::Subscribed { tag } => {
                let event = Event::Subscribed { tag: short(&tag) };
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.consumers.insert(tag, queue);
                }
                self.send_on(id, event);
            }
            Answer::Cancelled => self.send_on(id, Event::Done),
            Answer::Empty => self.send_on(id, Event::Empty),
            Answer::Got { entry, delivery, is_no_ack, left } => {
                let Some(channel) = self.channels.get(&id) else { return };
                let tag = Tag::Get(channel.next_delivery);
                let delivery = self.delivery(id, queue, tag, delivery, &entry, is_no_ack);
                self.send_on(id, Event::Got { delivery, messages: count(left) });
            }
            Answer::Purged { messages } => self.send_on(id, Event::Deleted { messages: count(messages) }),
            Answer::Counted { messages, consumers } => self.send_counts(id, queue, messages, consumers),
            Answer::Refused(exception) => self.close_channel(id, exception),
        }
    }

    /// Answers a declaration.
    pub(crate) fn send_counts(&mut self, id: ChannelId, queue: QueueId, messages: usize, consumers: usize) {
        let Some(queue) = self.queue_by_id(queue) else { return };
        let queue = short(&queue.name);
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.last_declared = queue.clone();
        }
        self.send_on(id, Event::Queue { queue, messages: count(messages), consumers: count(consumers) });
    }

    /// A queue has not said within 250 ms how many messages it has: then it has none, and no consumers.
    pub(crate) fn give_up_count(&mut self, id: ChannelId, queue: QueueId) {
        if self.channels.get(&id).is_none_or(|channel| channel.waits_for != Some(queue)) {
            return;
        }
        if let Some(queue) = self.queue_by_id_mut(queue) {
            queue.forget_count(id);
        }
        self.notify_channel(
            id,
            Effect::Answer { channel: id, queue, answer: Answer::Counted { messages: 0, consumers: 0 } },
        );
    }

    fn tell_channel(&mut self, id: ChannelId, effect: Effect) {
        match effect {
            Effect::Deliver { queue, tag: Tag::Subscription(tag), delivery, entry, is_no_ack, .. } => {
                let is_subscribed = self.channels.get(&id).is_some_and(|channel| channel.consumers.contains_key(&tag));
                let consumer = short(&tag);
                let tag = Tag::Subscription(tag);
                if is_subscribed {
                    let delivery = self.delivery(id, queue, tag, delivery, &entry, is_no_ack);
                    self.send_on(id, Event::Delivered { consumer, delivery });
                } else if !is_no_ack {
                    // It was cancelled meanwhile, so the client will never see it.
                    let settlement = Settlement::Requeue(Return::Nack);
                    self.command(queue, Command::Settle { channel: id, tag, deliveries: vec![delivery], settlement });
                }
            }
            Effect::Taken { sequence, .. } => self.confirm(id, sequence, true),
            Effect::Refused { sequence, .. } => self.confirm(id, sequence, false),
            Effect::TimedOut { tag, .. } => self.time_out(id, &tag),
            _ => {}
        }
    }

    fn delivery(
        &mut self,
        id: ChannelId,
        queue: QueueId,
        tag: Tag,
        delivery: u64,
        entry: &Entry,
        is_no_ack: bool,
    ) -> Delivery {
        let version = self.version();
        let now = self.now();
        let is_classic = self.queue_by_id(queue).is_some_and(|queue| queue.is_classic());
        let is_get = matches!(tag, Tag::Get(_)) && !is_classic;
        let message = &entry.message;
        let properties = if entry.counts.has_headers(version, is_get) {
            with_headers(&message.properties, |headers| entry.counts.set_headers(version, is_get, headers))
        } else {
            (*message.properties).clone()
        };
        let mut delivered = Delivery {
            tag: 0,
            is_redelivered: entry.was_delivered || entry.counts.is_redelivered(version),
            exchange: short(&message.exchange),
            routing_key: short(message.routing_key()),
            properties: Box::new(properties),
            body: (*message.body).clone(),
        };
        let Some(channel) = self.channels.get_mut(&id) else { return delivered };
        delivered.tag = channel.next_delivery;
        channel.next_delivery += 1;
        if !is_no_ack {
            channel.unacked.insert(delivered.tag, Unacked { queue, tag, delivery, since: now });
            if version < Version::V4_3 && channel.tick.is_none() {
                channel.tick = Some(now + TICK);
                self.set_timer(now + TICK, Timer::Channel(id));
            }
        }
        delivered
    }

    /// Looks, until 4.2, whether the oldest delivery of the channel was acked in time. The whole channel pays for it.
    pub(crate) fn tick_channel(&mut self, id: ChannelId) {
        let now = self.now();
        let Some(channel) = self.channels.get_mut(&id) else { return };
        channel.tick = None;
        let Some((queue, since)) = channel.unacked.first_key_value().map(|(_, oldest)| (oldest.queue, oldest.since))
        else {
            return;
        };
        channel.tick = Some(now + TICK);
        let number = channel.number;
        let Some(channel) = self.channels.get(&id) else { return };
        let timeout = self.consumer_timeout_of(channel, queue);
        if since + timeout <= now {
            self.close_channel(id, timed_out(number, &timeout.as_millis().to_string()));
        } else {
            self.set_timer(now + TICK, Timer::Channel(id));
        }
    }

    /// A delivery was taken back by its queue (4.3). The client hears of it by `basic.cancel`, once for each message, though the
    /// subscription is not over: the tag stays in use, and whoever acks late is served again. If the client has cancelled it, or it
    /// was a `basic.get`, there is nothing to cancel, and the channel is closed.
    fn time_out(&mut self, id: ChannelId, tag: &Tag) {
        let Some(channel) = self.channels.get(&id) else { return };
        match tag {
            Tag::Subscription(tag) if channel.consumers.contains_key(tag) => {
                self.send_on(id, Event::Cancelled { tag: short(tag) });
            }
            _ => self.close_channel(id, timed_out(channel.number, "-1")),
        }
    }

    /// The queue of subscriptions is gone.
    pub(crate) fn end_subscription(&mut self, id: ChannelId, tag: &Name) {
        if let Some(channel) = self.channels.get_mut(&id)
            && channel.consumers.remove(tag).is_some()
        {
            self.send_on(id, Event::Cancelled { tag: short(tag) });
        }
    }

    /// The broker closes a channel, or its connection.
    pub(crate) fn close_channel(&mut self, id: ChannelId, exception: Exception) {
        let Some(channel) = self.channels.get(&id) else { return };
        if exception.ends_connection {
            return self.close_connection(channel.connection, exception);
        }
        self.send_on(id, Event::Closed { code: exception.code, text: exception.text });
        self.drop_channel(id);
    }

    /// A channel is gone: every queue that knew it hears so.
    pub(crate) fn drop_channel(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.remove(&id) else { return };
        if let Some(connection) = self.connections.get_mut(&channel.connection) {
            connection.channels.remove(&channel.number);
        }
        for queue in channel.queues {
            self.command(queue, Command::Leave { channel: id });
        }
    }
}

fn given_back(is_requeued: bool, how: Return) -> Settlement {
    if is_requeued { Settlement::Requeue(how) } else { Settlement::Discard(how) }
}

fn timed_out(channel: ChannelNumber, timeout: &str) -> Exception {
    Exception::precondition_failed(&format!(
        "delivery acknowledgement on channel {channel} timed out. Timeout value used: {timeout} ms. This timeout value can be \
         configured, see consumers doc guide to learn more"
    ))
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
