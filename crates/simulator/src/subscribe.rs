//! `basic.consume`, `basic.cancel` and `basic.get`, and what a channel hears of its queues.

use lapin::types::{FieldTable, ShortString};

use crate::arguments;
use crate::broker::Broker;
use crate::error::{Exception, queue_in_vhost};
use crate::headers::integer_of;
use crate::names::{ChannelId, Name, QueueId, Tag, count, short};
use crate::permissions::{Access, Resource};
use crate::protocol::{Event, Time, Version};
use crate::queue::{Command, ConsumeRequest, Effect, QueueReply};

impl Broker {
    pub(crate) fn consume(
        &mut self,
        id: ChannelId,
        queue: &ShortString,
        mut request: ConsumeRequest,
        arguments: &FieldTable,
    ) -> Result<(), Exception> {
        let Tag::Subscription(tag) = &request.tag else { return Ok(()) };
        if self.channels.get(&id).is_some_and(|channel| channel.consumers.contains_key(tag)) {
            return Err(Exception::not_allowed(&format!("attempt to reuse consumer tag '{tag}'")));
        }
        self.consumer_limit(id)?;
        if tag.is_empty() {
            request.tag = Tag::Subscription(format!("amq.ctag-{}", self.next_number()).into());
        }
        let queue = self.readable_queue(id, queue)?;
        if let Some(found) = self.queues.get(&queue) {
            let kind = found.declaration.kind;
            arguments::check_consumer(self.version, &found.name, kind, arguments)?;
        }
        request.priority = integer_of(arguments, "x-priority").unwrap_or_default();
        // Only 4.3 knows a consumer's own timeout.
        let own =
            integer_of(arguments, "x-consumer-timeout").filter(|_| self.version >= Version::V4_3);
        let own = own.and_then(|timeout| u64::try_from(timeout).ok()).map(Time::from_millis);
        request.timeout = own.unwrap_or_else(|| self.consumer_timeout_of(id, queue));
        self.ask(id, queue, Command::Subscribe(request));
        Ok(())
    }

    fn readable_queue(&self, id: ChannelId, queue: &ShortString) -> Result<QueueId, Exception> {
        let queue = self.expand_queue_name(id, queue)?;
        self.check_access(id, Access::Read, Resource::Queue(&queue))?;
        self.accessible_queue(id, &queue)
    }

    /// The node's timeout, unless the queue has its own.
    pub(crate) fn consumer_timeout_of(&self, id: ChannelId, queue: QueueId) -> Time {
        let own = self.queues.get(&queue).and_then(|queue| queue.settings.consumer_timeout);
        let node = self
            .channels
            .get(&id)
            .map_or(self.consumer_timeout, |channel| channel.consumer_timeout);
        own.unwrap_or(node)
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
    pub(crate) fn cancel(&mut self, id: ChannelId, tag: &ShortString) {
        let queue =
            self.channels.get_mut(&id).and_then(|channel| channel.consumers.remove(tag.as_str()));
        match queue.filter(|queue| self.queues.contains_key(queue)) {
            Some(queue) => {
                let tag = Tag::Subscription(tag.as_str().into());
                self.ask(id, queue, Command::Cancel(id, tag));
            }
            // Nobody is told that there was no such subscription.
            None => self.send_on(id, Event::Done),
        }
    }

    pub(crate) fn get(
        &mut self,
        id: ChannelId,
        queue: &ShortString,
        mut request: ConsumeRequest,
    ) -> Result<(), Exception> {
        let queue = self.readable_queue(id, queue)?;
        request.timeout = self.consumer_timeout_of(id, queue);
        if let Some(queue) = self.queues.get(&queue)
            && queue.settings.is_single_active_consumer
            && !queue.is_classic()
        {
            let kind = if self.version == Version::V4_3 { "<<\"quorum\">>" } else { "quorum" };
            let name = queue_in_vhost(&queue.name);
            let why = format!(
                "basic.get operations are not supported by {kind} queues with single active consumer"
            );
            return Err(Exception::resource_locked(&format!(
                "cannot obtain access to locked {name}. {why}"
            )));
        }
        self.ask(id, queue, Command::Get(request));
        Ok(())
    }

    /// A queue has answered the channel that waits for it.
    pub(crate) fn answer_channel(&mut self, id: ChannelId, queue: QueueId, answer: QueueReply) {
        match answer {
            QueueReply::Subscribed { tag } => {
                self.send_on(id, Event::Subscribed { consumer_tag: short(&tag) });
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.consumers.insert(tag, queue);
                }
            }
            QueueReply::Cancelled => self.send_on(id, Event::Done),
            QueueReply::Empty => self.send_on(id, Event::Empty),
            QueueReply::Got { entry, handed, left } => {
                let delivery = self.delivery(queue, handed, &entry);
                self.send_on(id, Event::Got { delivery, messages: count(left) });
            }
            QueueReply::Purged { messages } => {
                self.send_on(id, Event::Removed { messages: count(messages) })
            }
            QueueReply::Counted { messages, consumers } => {
                self.send_counts(id, queue, messages, consumers)
            }
            QueueReply::Refused(exception) => self.close_channel(id, exception),
        }
    }

    /// Answers a declaration.
    pub(crate) fn send_counts(
        &mut self,
        id: ChannelId,
        queue: QueueId,
        messages: usize,
        consumers: usize,
    ) {
        let Some(queue) = self.queues.get(&queue).map(|queue| short(&queue.name)) else { return };
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.last_declared = queue.clone();
        }
        self.send_on(
            id,
            Event::Queue { queue, messages: count(messages), consumers: count(consumers) },
        );
    }

    /// A queue has not said within 250 ms how many messages it has: then it has none, and no
    /// consumers.
    pub(crate) fn give_up_count(&mut self, id: ChannelId, queue: QueueId) {
        if self.queues.get_mut(&queue).is_some_and(|queue| queue.forget_count(id)) {
            let answer = QueueReply::Counted { messages: 0, consumers: 0 };
            self.notify_channel(id, queue, Effect::Reply(id, answer));
        }
    }

    /// The queue of a subscription is gone.
    pub(crate) fn end_subscription(&mut self, id: ChannelId, tag: &Name) {
        if let Some(channel) = self.channels.get_mut(&id)
            && channel.consumers.remove(tag).is_some()
        {
            self.send_on(id, Event::Cancelled { consumer_tag: short(tag) });
        }
    }
}
