//! What the client's end of each connection and channel knows.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use lapin::message::{BasicReturnMessage, Delivery};
use lapin::types::ShortString;
use lapin::{Confirmation, Error};
use rehop_simulator::{self as simulator, ChannelNumber, Event, Method, Sent, Time};
use tokio::sync::{mpsc, oneshot};

use super::{Process, errors};

/// The answer to a method.
pub(super) type MethodReply = lapin::Result<Event>;

/// The client's end of a connection.
pub(super) struct End {
    pub(super) process: Process,
    /// Why it ended.
    pub(super) error: Option<Error>,
    /// When the client noticed that.
    pub(super) lost: Option<Time>,
    /// When the client noticed that the broker had closed channels, and why, by their keys.
    pub(super) lost_channels: HashMap<u64, (Time, Error)>,
    pub(super) is_blocked: bool,
    /// When the client heard of it last.
    pub(super) blocked_at: Time,
    /// Nothing passes.
    pub(super) is_silent: bool,
    /// The broker knows nothing of it any more.
    pub(super) is_forgotten: bool,
    pub(super) channels: BTreeMap<ChannelNumber, ChannelEnd>,
    pub(super) listeners: Vec<mpsc::UnboundedSender<lapin::Event>>,
    pub(super) closing: Option<oneshot::Sender<lapin::Result<()>>>,
    /// What lapin keeps while the broker blocks the connection.
    pub(super) held: VecDeque<(ChannelNumber, Method)>,
    pub(super) last_up: Time,
    pub(super) last_down: Time,
    /// When the broker sent something last.
    pub(super) sent_down: Option<Time>,
}

/// The client's end of a channel.
#[derive(Default)]
pub(super) struct ChannelEnd {
    /// Tells it from other channels of the same number.
    pub(super) key: u64,
    /// Why it ended; none while it is open.
    pub(super) error: Option<Error>,
    pub(super) is_closing: bool,
    /// Who waits for the answers to come, in their order.
    pub(super) awaiting: VecDeque<oneshot::Sender<MethodReply>>,
    pub(super) consumers: BTreeMap<ShortString, mpsc::UnboundedSender<lapin::Result<Delivery>>>,
    pub(super) tags: u32,
    pub(super) is_confirming: bool,
    pub(super) published: u64,
    pub(super) confirms: BTreeMap<u64, oneshot::Sender<lapin::Result<Confirmation>>>,
    /// lapin gives each confirm the first return there is, whoever it belongs to (4.12).
    pub(super) returns: VecDeque<BasicReturnMessage>,
    /// Nothing that was sent on this channel is applied before this time, except its end.
    pub(super) applied: Time,
    /// What was delivered and not settled, by its delivery tag.
    pub(super) unsettled: BTreeSet<u64>,
}

impl End {
    pub(super) fn is_open(&self) -> bool {
        self.error.is_none()
    }

    /// The connection has ended for its client, which is told why.
    pub(super) fn fail(&mut self, error: &Error, now: Time) {
        if self.error.is_none() {
            self.end(error, now);
            self.tell(&lapin::Event::Error(error.clone()));
        }
    }

    /// The connection has ended for its client. An end that the client has asked for is no event
    /// (lapin 4.12).
    pub(super) fn end(&mut self, error: &Error, now: Time) {
        self.error = Some(error.clone());
        self.lost = Some(now);
        self.is_blocked = false;
        self.held.clear();
        for channel in self.channels.values_mut() {
            channel.fail(error);
        }
    }

    fn tell(&mut self, event: &lapin::Event) {
        self.listeners.retain(|listener| listener.send(event.clone()).is_ok());
    }

    /// Takes what the broker has sent. Returns whether the broker reads again.
    pub(super) fn receive(&mut self, Sent { channel, event, .. }: Sent, now: Time) -> bool {
        match (channel, event) {
            (0, Event::Closed { code, text }) => self.fail(&errors::closed(code, &text), now),
            (0, Event::Cut) => self.fail(&errors::reset(), now),
            (0, Event::Blocked { reason }) => {
                (self.is_blocked, self.blocked_at) = (true, now);
                self.tell(&lapin::Event::ConnectionBlocked(reason));
            }
            (0, Event::Unblocked) => {
                self.is_blocked = false;
                self.tell(&lapin::Event::ConnectionUnblocked);
                return true;
            }
            (0, _) => {}
            (_, Event::Closed { code, text }) => {
                let error = errors::closed(code, &text);
                // lapin forgets the channel, and its number is free again.
                if let Some(mut channel) = self.channels.remove(&channel) {
                    self.lost_channels.insert(channel.key, (now, error.clone()));
                    channel.fail(&error);
                }
                self.tell(&lapin::Event::Error(error));
            }
            (number, event) => {
                if let Some(channel) = self.channels.get_mut(&number)
                    && channel.receive(event)
                {
                    self.channels.remove(&number);
                }
            }
        }
        false
    }
}

impl ChannelEnd {
    /// The client sends this.
    pub(super) fn settle_by(&mut self, method: &Method) {
        match *method {
            Method::Ack { delivery_tag, is_multiple }
            | Method::Nack { delivery_tag, is_multiple, .. }
                if is_multiple =>
            {
                self.unsettled = self.unsettled.split_off(&(delivery_tag + 1));
            }
            Method::Ack { delivery_tag, .. }
            | Method::Nack { delivery_tag, .. }
            | Method::Reject { delivery_tag, .. } => {
                self.unsettled.remove(&delivery_tag);
            }
            _ => {}
        }
    }

    fn fail(&mut self, error: &Error) {
        self.error.get_or_insert_with(|| error.clone());
        for awaiting in std::mem::take(&mut self.awaiting) {
            let _ = awaiting.send(Err(error.clone()));
        }
        for consumer in std::mem::take(&mut self.consumers).into_values() {
            let _ = consumer.send(Err(error.clone()));
        }
        for confirm in std::mem::take(&mut self.confirms).into_values() {
            let _ = confirm.send(Err(error.clone()));
        }
    }

    /// Takes what the broker has sent. Returns whether it was the last that there will be.
    fn receive(&mut self, event: Event) -> bool {
        match event {
            Event::Delivered { consumer_tag: consumer, delivery } => {
                if let Some(consumer) = self.consumers.get(&consumer) {
                    let _ = consumer.send(Ok(delivered(delivery)));
                }
            }
            Event::Cancelled { consumer_tag: tag } => {
                self.consumers.remove(&tag);
            }
            Event::Returned { code, text, exchange, routing_key, properties, body } => {
                let mut delivery = Delivery::mock(0, exchange, routing_key, false, body);
                delivery.properties = *properties;
                let reply_text = ShortString::try_new(text.as_str()).unwrap_or_default();
                self.returns.push_back(BasicReturnMessage {
                    delivery,
                    reply_code: code,
                    reply_text,
                });
            }
            Event::Acked { delivery_tag: tag, is_multiple } => {
                self.confirm(tag, is_multiple, Confirmation::Ack)
            }
            Event::Nacked { delivery_tag: tag, is_multiple } => {
                self.confirm(tag, is_multiple, Confirmation::Nack)
            }
            answer => {
                if let Some(awaiting) = self.awaiting.pop_front() {
                    let _ = awaiting.send(Ok(answer));
                }
                if self.is_closing && self.awaiting.is_empty() {
                    self.fail(&errors::channel_is_closed());
                    return true;
                }
            }
        }
        false
    }

    fn confirm(
        &mut self,
        tag: u64,
        is_multiple: bool,
        how: fn(Option<BasicReturnMessage>) -> Confirmation,
    ) {
        let first =
            if is_multiple { self.confirms.keys().next().copied().unwrap_or(tag) } else { tag };
        for tag in first..=tag {
            if let Some(confirm) = self.confirms.remove(&tag) {
                let _ = confirm.send(Ok(how(self.returns.pop_front())));
            }
        }
    }
}

pub(super) fn delivered(delivery: simulator::Delivery) -> Delivery {
    let simulator::Delivery { tag, is_redelivered, exchange, routing_key, properties, body } =
        delivery;
    let mut delivered = Delivery::mock(tag, exchange, routing_key, is_redelivered, body);
    delivered.properties = *properties;
    delivered
}
