//! Channels: which method does what, and what a channel does when it waits for a queue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lapin::types::ShortString;

use crate::broker::Broker;
use crate::delivery::Unacked;
use crate::error::Exception;
use crate::message::Message;
use crate::names::{ChannelId, Name, QueueId, Tag};
use crate::protocol::{ChannelNumber, ConnectionId, Event, Method, Time};
use crate::queue::{Command, Effect, Return, Settlement, Subscription};

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) connection: ConnectionId,
    pub(crate) number: ChannelNumber,
    prefetch: u16,
    pub(crate) next_delivery: u64,
    pub(crate) consumers: BTreeMap<Name, QueueId>,
    /// By their delivery tag.
    pub(crate) unacked: BTreeMap<u64, Unacked>,
    pub(crate) is_confirming: bool,
    pub(crate) next_publish: u64,
    /// Publishes, and how many queues have not taken them yet.
    pub(crate) unconfirmed: BTreeMap<u64, usize>,
    pub(crate) confirmed: Vec<u64>,
    pub(crate) refused: Vec<u64>,
    /// Queues that have to hear when the channel ends.
    pub(crate) queues: BTreeSet<QueueId>,
    /// What an empty queue name means.
    pub(crate) last_declared: ShortString,
    /// The queue whose answer it waits for. Nothing else happens on the channel meanwhile.
    pub(crate) waits_for: Option<QueueId>,
    mailbox: VecDeque<Mail>,
    pub(crate) consumer_timeout: Time,
    pub(crate) has_tick: bool,
}

/// What comes while a channel waits.
#[derive(Debug)]
enum Mail {
    Method(Method),
    Effect(QueueId, Effect),
}

impl Channel {
    pub(crate) fn new(connection: ConnectionId, number: ChannelNumber, consumer_timeout: Time) -> Self {
        Self {
            connection,
            number,
            prefetch: 0,
            next_delivery: 1,
            consumers: BTreeMap::new(),
            unacked: BTreeMap::new(),
            is_confirming: false,
            next_publish: 1,
            unconfirmed: BTreeMap::new(),
            confirmed: Vec::new(),
            refused: Vec::new(),
            queues: BTreeSet::new(),
            last_declared: ShortString::default(),
            waits_for: None,
            mailbox: VecDeque::new(),
            consumer_timeout,
            has_tick: false,
        }
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
        let Some(channel) = self.channels.get_mut(&id) else { return Ok(()) };
        match method {
            Method::OpenChannel => return Err(Exception::channel_error("second 'channel.open' seen")),
            Method::CloseChannel => {
                self.send_on(id, Event::Done);
                self.drop_channel(id);
            }
            Method::Flow { is_active: false } => return Err(Exception::not_implemented("active=false")),
            Method::Flow { is_active: true } => self.send_on(id, Event::Done),
            Method::ConfirmSelect => {
                channel.is_confirming = true;
                self.send_on(id, Event::Done);
            }
            Method::Qos { prefetch } => {
                channel.prefetch = prefetch;
                self.send_on(id, Event::Done);
            }
            Method::Consume { queue, tag, is_no_ack, is_exclusive, arguments } => {
                let tag = Tag::Subscription(tag.as_str().into());
                let subscription = Subscription::new(id, tag, is_no_ack, is_exclusive, channel.prefetch);
                self.consume(id, &queue, subscription, &arguments)?;
            }
            Method::Cancel { tag } => self.cancel(id, &tag),
            Method::Get { queue, is_no_ack } => {
                let subscription = Subscription::new(id, Tag::Get(channel.next_delivery), is_no_ack, false, 1);
                self.get(id, &queue, subscription)?;
            }
            Method::Ack { tag, is_multiple } => self.settle(id, tag, is_multiple, Settlement::Ack)?,
            Method::Reject { tag, is_requeued } => self.settle(id, tag, false, refusal(is_requeued, Return::Reject))?,
            Method::Nack { tag, is_multiple, is_requeued } => {
                self.settle(id, tag, is_multiple, refusal(is_requeued, Return::Nack))?;
            }
            Method::Publish { exchange, routing_key, is_mandatory, properties, body } => {
                self.publish(id, Message::new(&exchange, &routing_key, *properties, body), is_mandatory)?;
            }
            topology => self.change_topology(id, topology)?,
        }
        Ok(())
    }

    /// Something happens to a channel. While it waits, only the answer gets through.
    pub(crate) fn notify_channel(&mut self, id: ChannelId, queue: QueueId, effect: Effect) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if let Effect::Answer(_, answer) = effect {
            if channel.waits_for == Some(queue) {
                channel.waits_for = None;
                self.answer_channel(id, queue, answer);
                self.read_mailbox(id);
            }
        } else if channel.waits_for.is_some() {
            channel.mailbox.push_back(Mail::Effect(queue, effect));
        } else {
            self.tell_channel(id, queue, effect);
        }
    }

    fn read_mailbox(&mut self, id: ChannelId) {
        while let Some(channel) = self.channels.get_mut(&id)
            && channel.waits_for.is_none()
            && let Some(mail) = channel.mailbox.pop_front()
        {
            match mail {
                Mail::Method(method) => self.handle_or_keep(id, method),
                Mail::Effect(queue, effect) => self.tell_channel(id, queue, effect),
            }
        }
    }

    fn tell_channel(&mut self, id: ChannelId, queue: QueueId, effect: Effect) {
        match effect {
            Effect::Deliver(handed, entry) => self.deliver(queue, handed, &entry),
            Effect::Taken(_, sequence) => self.confirm(id, sequence, true),
            Effect::Refused(_, sequence) => self.confirm(id, sequence, false),
            Effect::TimedOut(_, tag) => self.time_out(id, &tag),
            // The others are not about channels.
            _ => {}
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
            self.command(queue, Command::Leave(id));
        }
    }
}

fn refusal(is_requeued: bool, how: Return) -> Settlement {
    if is_requeued { Settlement::Requeue(how) } else { Settlement::Discard(how) }
}
