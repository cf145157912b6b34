//! Deliveries: how they are sent, settled, and given up when nobody settles them.

use std::collections::BTreeMap;

use crate::broker::{Broker, Timer};
use crate::channel::Unacked;
use crate::error::Exception;
use crate::headers::with_headers;
use crate::names::{ChannelId, QueueId, Tag, short};
use crate::protocol::{ChannelNumber, Delivery, Event, Time, Version};
use crate::queue::{Command, Entry, Handed, Return, Settlement};

/// How often a channel looks for deliveries that were not acked in time, until 4.2.
const TICK: Time = Time::from_secs(60);

impl Broker {
    /// A queue has given a message to a subscription.
    pub(crate) fn deliver(&mut self, queue: QueueId, handed: Handed, entry: &Entry) {
        let Handed { channel: id, delivery, is_no_ack, .. } = handed;
        let Tag::Subscription(tag) = &handed.tag else { return };
        if self.channels.get(&id).is_some_and(|channel| channel.consumers.contains_key(tag)) {
            let consumer_tag = short(tag);
            let delivery = self.delivery(queue, handed, entry);
            self.send_on(id, Event::Delivered { consumer_tag, delivery });
        } else if !is_no_ack {
            // It was cancelled meanwhile, so the client will never see the message.
            let settlement = Settlement::Requeue(Return::Nack);
            self.command(queue, Command::Settle(id, handed.tag, vec![delivery], settlement));
        }
    }

    /// The next delivery of a channel.
    pub(crate) fn delivery(&mut self, queue: QueueId, handed: Handed, entry: &Entry) -> Delivery {
        let (version, now) = (self.version, self.now);
        let is_classic = self.queues.get(&queue).is_some_and(|queue| queue.is_classic());
        let is_get = matches!(handed.tag, Tag::Get(_)) && !is_classic;
        let message = &entry.message;
        let properties = if entry.counts.has_headers(version, is_get) {
            with_headers(&message.properties, true, |headers| {
                entry.counts.set_headers(version, is_get, headers)
            })
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
        let Some(channel) = self.channels.get_mut(&handed.channel) else { return delivered };
        channel.deliveries += 1;
        delivered.tag = channel.deliveries;
        if !handed.is_no_ack {
            let id = handed.channel;
            channel.unacked.insert(delivered.tag, Unacked { queue, handed, since: now });
            if version < Version::V4_3 && !channel.has_tick {
                channel.has_tick = true;
                self.set_timer(now + TICK, Timer::Channel(id));
            }
        }
        delivered
    }

    /// The client settles deliveries. What was given back together comes back together, in the
    /// order of its delivery.
    pub(crate) fn settle(
        &mut self,
        id: ChannelId,
        tag: u64,
        is_multiple: bool,
        settlement: Settlement,
    ) -> Result<(), Exception> {
        let mut by_consumer: BTreeMap<(QueueId, Tag), Vec<u64>> = BTreeMap::new();
        for unacked in self.take_unacked(id, tag, is_multiple)? {
            let Unacked { queue, handed, .. } = unacked;
            by_consumer.entry((queue, handed.tag)).or_default().push(handed.delivery);
        }
        for ((queue, tag), deliveries) in by_consumer {
            self.command(queue, Command::Settle(id, tag, deliveries, settlement));
        }
        Ok(())
    }

    /// Takes the deliveries that a client settles, the oldest first. A tag that is not open is an
    /// error, also with `multiple`.
    fn take_unacked(
        &mut self,
        id: ChannelId,
        tag: u64,
        is_multiple: bool,
    ) -> Result<Vec<Unacked>, Exception> {
        let Some(channel) = self.channels.get_mut(&id) else { return Ok(Vec::new()) };
        let unacked = &mut channel.unacked;
        if tag == 0 && is_multiple {
            return Ok(std::mem::take(unacked).into_values().collect());
        }
        if !unacked.contains_key(&tag) {
            return Err(Exception::precondition_failed(&format!("unknown delivery tag {tag}")));
        }
        if !is_multiple {
            return Ok(unacked.remove(&tag).into_iter().collect());
        }
        let later = unacked.split_off(&(tag + 1));
        Ok(std::mem::replace(unacked, later).into_values().collect())
    }

    /// Looks, until 4.2, whether the oldest delivery of the channel was acked in time. The whole
    /// channel pays for it.
    pub(crate) fn tick_channel(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let number = channel.number;
        let oldest =
            channel.unacked.first_key_value().map(|(_, oldest)| (oldest.queue, oldest.since));
        channel.has_tick = oldest.is_some();
        let Some((queue, since)) = oldest else { return };
        let timeout = self.consumer_timeout_of(id, queue);
        if since + timeout <= self.now {
            self.close_channel(id, timed_out(number, &timeout.as_millis().to_string()));
        } else {
            self.set_timer(self.now + TICK, Timer::Channel(id));
        }
    }

    /// A delivery was taken back by its queue (4.3). The client hears of it by `basic.cancel`, once
    /// for each message, though the subscription is not over: the tag stays in use, and whoever
    /// acks late is served again. If the client has cancelled it, or it was a `basic.get`, there is
    /// nothing to cancel, and the channel is closed.
    pub(crate) fn time_out(&mut self, id: ChannelId, tag: &Tag) {
        let Some(channel) = self.channels.get(&id) else { return };
        match tag {
            Tag::Subscription(tag) if channel.consumers.contains_key(tag) => {
                self.send_on(id, Event::Cancelled { consumer_tag: short(tag) });
            }
            _ => self.close_channel(id, timed_out(channel.number, "-1")),
        }
    }
}

fn timed_out(channel: ChannelNumber, timeout: &str) -> Exception {
    Exception::precondition_failed(&format!(
        "delivery acknowledgement on channel {channel} timed out. Timeout value used: {timeout} ms. This timeout value can be \
         configured, see consumers doc guide to learn more"
    ))
}
