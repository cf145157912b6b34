//! What a client and the broker say to each other: AMQP 0.9.1's methods as plain data.

use lapin::BasicProperties;
use lapin::types::{FieldTable, ShortString};

/// The time since the simulation began.
pub type Time = std::time::Duration;

/// A RabbitMQ release whose behaviour is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 3.10.8.
    V3_10,
    /// 4.0.5.
    V4_0,
    /// 4.3.6.
    V4_3,
}

/// A client's connection. No number is used twice in the life of a broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A channel of a connection. As in AMQP, a number may be used again after its channel was closed.
/// Channel 0 is the connection itself.
pub type ChannelNumber = u16;

/// A method that a client sends on a channel. The broker answers the methods of one channel in
/// their order.
#[derive(Debug, Clone, PartialEq)]
pub enum Method {
    /// `channel.open`
    OpenChannel,
    /// `channel.close`
    CloseChannel,
    /// `channel.flow` with `active`, which only serves as a question whose answer comes after what
    /// was sent before it.
    Flow,
    /// `confirm.select`
    ConfirmSelect,
    /// `basic.qos` for the consumers that subscribe on this channel from now on.
    Qos {
        /// How many deliveries each of them may hold; 0 for any number.
        prefetch: u16,
    },
    /// `basic.consume`
    Consume {
        /// The queue.
        queue: ShortString,
        /// Names the subscription on this channel; empty to let the broker choose.
        consumer_tag: ShortString,
        /// Whether deliveries are settled as they are sent.
        is_no_ack: bool,
        /// Whether no other consumer may have the queue.
        is_exclusive: bool,
        /// The consumer's arguments.
        arguments: FieldTable,
    },
    /// `basic.cancel`
    Cancel {
        /// The subscription.
        consumer_tag: ShortString,
    },
    /// `basic.get`
    Get {
        /// The queue.
        queue: ShortString,
        /// Whether the message is settled as it is sent.
        is_no_ack: bool,
    },
    /// `basic.ack`
    Ack {
        /// The delivery; 0 with `is_multiple` for all.
        delivery_tag: u64,
        /// Whether earlier deliveries are acked as well.
        is_multiple: bool,
    },
    /// `basic.reject`
    Reject {
        /// The delivery.
        delivery_tag: u64,
        /// Whether it goes back to its queue instead of being dead-lettered.
        is_requeued: bool,
    },
    /// `basic.nack`
    Nack {
        /// The delivery; 0 with `is_multiple` for all.
        delivery_tag: u64,
        /// Whether earlier deliveries are included.
        is_multiple: bool,
        /// Whether they go back to their queue instead of being dead-lettered.
        is_requeued: bool,
    },
    /// `basic.publish` with its content.
    Publish {
        /// The exchange; empty for the default exchange.
        exchange: ShortString,
        /// The routing key.
        routing_key: ShortString,
        /// Whether a message that reaches no queue is returned.
        is_mandatory: bool,
        /// Properties and headers.
        properties: Box<BasicProperties>,
        /// The body.
        body: Vec<u8>,
    },
    /// `queue.declare`
    DeclareQueue {
        /// The queue; empty to let the broker choose a name.
        queue: ShortString,
        /// Whether it is only looked at.
        is_passive: bool,
        /// Whether it survives a restart.
        is_durable: bool,
        /// Whether only this connection may use it.
        is_exclusive: bool,
        /// Whether it is deleted after its last consumer.
        is_auto_delete: bool,
        /// The queue's arguments.
        arguments: FieldTable,
    },
    /// `queue.delete`
    DeleteQueue {
        /// The queue.
        queue: ShortString,
        /// Only if it has no message.
        if_empty: bool,
    },
    /// `queue.purge`
    PurgeQueue {
        /// The queue.
        queue: ShortString,
    },
    /// `queue.bind`
    BindQueue {
        /// The queue.
        queue: ShortString,
        /// The exchange.
        exchange: ShortString,
        /// The routing key.
        routing_key: ShortString,
        /// The binding's arguments.
        arguments: FieldTable,
    },
    /// `queue.unbind`
    UnbindQueue {
        /// The queue.
        queue: ShortString,
        /// The exchange.
        exchange: ShortString,
        /// The routing key.
        routing_key: ShortString,
        /// The binding's arguments.
        arguments: FieldTable,
    },
    /// `exchange.declare`
    DeclareExchange {
        /// The exchange.
        exchange: ShortString,
        /// Its type, such as `headers`.
        kind: String,
        /// Whether it is only looked at.
        is_passive: bool,
        /// Whether it survives a restart.
        is_durable: bool,
        /// The exchange's arguments.
        arguments: FieldTable,
    },
    /// `exchange.delete`
    DeleteExchange {
        /// The exchange.
        exchange: ShortString,
        /// Only if it has no binding.
        if_unused: bool,
    },
    /// `exchange.bind`
    BindExchange {
        /// Where the messages go.
        destination: ShortString,
        /// Where they come from.
        source: ShortString,
        /// The routing key.
        routing_key: ShortString,
        /// The binding's arguments.
        arguments: FieldTable,
    },
}

/// What the broker sends to a client.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    /// To which connection.
    pub connection: ConnectionId,
    /// On which channel; 0 for the connection itself.
    pub channel: ChannelNumber,
    /// What it says.
    pub event: Event,
}

/// What the broker says on a channel, or to a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The answer to a method that has no result of its own, such as `basic.qos-ok` or
    /// `queue.bind-ok`.
    Done,
    /// `basic.consume-ok`
    Subscribed {
        /// The subscription.
        consumer_tag: ShortString,
    },
    /// `queue.declare-ok`
    Queue {
        /// The queue.
        queue: ShortString,
        /// Messages that are ready.
        messages: u32,
        /// Its consumers.
        consumers: u32,
    },
    /// `queue.delete-ok` and `queue.purge-ok`
    Removed {
        /// How many messages went with it.
        messages: u32,
    },
    /// `basic.get-empty`
    Empty,
    /// `basic.get-ok`
    Got {
        /// The message.
        delivery: Delivery,
        /// How many are left.
        messages: u32,
    },
    /// `basic.deliver`
    Delivered {
        /// The subscription.
        consumer_tag: ShortString,
        /// The message.
        delivery: Delivery,
    },
    /// `basic.cancel`, by which the broker ends a subscription.
    Cancelled {
        /// The subscription.
        consumer_tag: ShortString,
    },
    /// `basic.return`
    Returned {
        /// Such as 312.
        code: u16,
        /// Such as `NO_ROUTE`.
        text: String,
        /// Where it was published.
        exchange: ShortString,
        /// Its routing key.
        routing_key: ShortString,
        /// Its properties.
        properties: Box<BasicProperties>,
        /// Its body.
        body: Vec<u8>,
    },
    /// `basic.ack`: a confirm.
    Acked {
        /// The number of the publish on its channel, from 1.
        delivery_tag: u64,
        /// Whether earlier ones are confirmed as well.
        is_multiple: bool,
    },
    /// `basic.nack`: the broker did not take a publish.
    Nacked {
        /// The number of the publish on its channel, from 1.
        delivery_tag: u64,
        /// Whether earlier ones are meant as well.
        is_multiple: bool,
    },
    /// `channel.close`, or `connection.close` on channel 0. Nothing follows on this channel.
    Closed {
        /// The reply code, such as 406.
        code: u16,
        /// The reply text, such as `PRECONDITION_FAILED - inequivalent arg ...`.
        text: String,
    },
    /// The connection ended without a word, as when the node is killed.
    Cut,
    /// `connection.blocked`
    Blocked {
        /// Such as `low on memory`.
        reason: String,
    },
    /// `connection.unblocked`
    Unblocked,
}

/// A message as it is delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// The delivery's number on its channel, from 1.
    pub tag: u64,
    /// Whether it may have been delivered before.
    pub is_redelivered: bool,
    /// The exchange that routed it.
    pub exchange: ShortString,
    /// Its routing key.
    pub routing_key: ShortString,
    /// Properties and headers, with those that the broker adds.
    pub properties: Box<BasicProperties>,
    /// The body.
    pub body: Vec<u8>,
}
