//! What clients send: connections read it, channels handle it, and each method is carried out where
//! its subject is.

use crate::broker::Broker;
use crate::channel::{Channel, Mail};
use crate::error::Exception;
use crate::message::Message;
use crate::names::{ChannelId, QueueId, Tag};
use crate::protocol::{ChannelNumber, ConnectionId, Event, Method};
use crate::queue::{Command, ConsumeRequest, Effect, Return, Settlement};

impl Broker {
    /// Reads a method from a connection. A connection is only told of an alarm when it publishes.
    pub(crate) fn read(&mut self, id: ConnectionId, number: ChannelNumber, method: Method) {
        let alarm = self.alarm;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut is_newly_blocked = false;
        if let (Some(_), false, Method::Publish { .. }) = (alarm, connection.is_blocked, &method) {
            connection.is_blocked = true;
            is_newly_blocked = true;
        }
        if connection.is_blocked {
            connection.unread.push_back((number, method));
            if let Some(alarm) = alarm.filter(|_| is_newly_blocked) {
                self.send(id, 0, Event::Blocked { reason: alarm.reason().to_owned() });
            }
            return;
        }
        match (connection.channels.get(&number).copied(), method) {
            (None, Method::OpenChannel) => self.open_channel(id, number),
            (Some(channel), method) => self.handle_or_keep(channel, method),
            (None, _) => {}
        }
    }

    fn open_channel(&mut self, connection: ConnectionId, number: ChannelNumber) {
        if let Err(exception) = self.channel_limit(connection) {
            return self.close_connection(connection, exception);
        }
        let id = ChannelId(self.next_number());
        let consumer_timeout = self.consumer_timeout;
        self.channels
            .insert(id, Channel { connection, number, consumer_timeout, ..Channel::default() });
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.channels.insert(number, id);
        }
        self.send(connection, number, Event::Done);
    }

    /// The broker closes a connection.
    pub(crate) fn close_connection(&mut self, id: ConnectionId, exception: Exception) {
        self.send(id, 0, Event::Closed { code: exception.code, text: exception.text });
        self.drop_connection(id);
    }

    /// A connection is gone: its channels end, and its exclusive queues are deleted.
    pub(crate) fn drop_connection(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.remove(&id) else { return };
        for channel in connection.channels.into_values() {
            self.drop_channel(channel);
        }
        for queue in connection.exclusive_queues {
            self.remove_queue(queue);
        }
    }

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
            Method::OpenChannel => {
                return Err(Exception::channel_error("second 'channel.open' seen"));
            }
            Method::CloseChannel => {
                self.send_on(id, Event::Done);
                self.drop_channel(id);
            }
            Method::Flow => self.send_on(id, Event::Done),
            Method::ConfirmSelect => {
                channel.is_confirming = true;
                self.send_on(id, Event::Done);
            }
            Method::Qos { prefetch } => {
                channel.prefetch = prefetch;
                self.send_on(id, Event::Done);
            }
            Method::Consume { queue, consumer_tag, is_no_ack, is_exclusive, arguments } => {
                let tag = Tag::Subscription(consumer_tag.as_str().into());
                let request =
                    ConsumeRequest::new(id, tag, is_no_ack, is_exclusive, channel.prefetch);
                self.consume(id, &queue, request, &arguments)?;
            }
            Method::Cancel { consumer_tag } => self.cancel(id, &consumer_tag),
            Method::Get { queue, is_no_ack } => {
                let request =
                    ConsumeRequest::new(id, Tag::Get(channel.deliveries + 1), is_no_ack, false, 1);
                self.get(id, &queue, request)?;
            }
            Method::Ack { delivery_tag, is_multiple } => {
                self.settle(id, delivery_tag, is_multiple, Settlement::Ack)?
            }
            Method::Reject { delivery_tag, is_requeued } => {
                self.settle(id, delivery_tag, false, refusal(is_requeued, Return::Reject))?
            }
            Method::Nack { delivery_tag, is_multiple, is_requeued } => {
                self.settle(id, delivery_tag, is_multiple, refusal(is_requeued, Return::Nack))?;
            }
            Method::Publish { exchange, routing_key, is_mandatory, properties, body } => {
                self.publish(
                    id,
                    Message::new(&exchange, &routing_key, *properties, body),
                    is_mandatory,
                )?;
            }
            topology => self.change_topology(id, topology)?,
        }
        Ok(())
    }

    /// Something happens to a channel. While it waits, only the answer gets through.
    pub(crate) fn notify_channel(&mut self, id: ChannelId, queue: QueueId, effect: Effect) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if let Effect::Reply(_, answer) = effect {
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
            Effect::Confirm(_, sequence, is_taken) => self.confirm(id, sequence, is_taken),
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
