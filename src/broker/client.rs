//! What the engine asks of a broker's client: the operations on a connection and its channels that
//! it needs.
//!
//! There are two clients: lapin's (`lapin_client.rs`), and that of a simulated broker, which runs
//! whole services in virtual time. Apart from `open.rs`, no other file names a handle of lapin's;
//! its plain data is used everywhere.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Confirmation, Event, ExchangeKind};

use super::acks::Frame;

/// The answer to a request, which is sent when this is first polled.
pub type Answer<'a, T> = BoxFuture<'a, lapin::Result<T>>;

/// A connection to a broker. When it ends, so does everything on it.
pub trait Connection: Send + Sync {
    /// Whether requests can be sent.
    fn is_open(&self) -> bool;

    /// Whether the broker reads nothing from it, as during a memory or disk alarm. A connection
    /// that has ended is not blocked.
    fn is_blocked(&self) -> bool;

    /// The largest frame that was agreed upon, in bytes; 0 for any size.
    fn frame_max(&self) -> u32;

    /// How many channels it may have at the same time.
    fn channel_max(&self) -> u16;

    /// What happens to the connection, from now on: it is blocked, it ends. The end of a channel is
    /// reported here, too.
    fn events(&self) -> BoxStream<'static, Event>;

    /// Opens a channel.
    ///
    /// # Errors
    ///
    /// When the connection is lost, or has no number left for another channel. `is_used_up` in
    /// `error` recognises the latter; the connection then has to be replaced.
    fn open_channel(&self) -> Answer<'_, Arc<dyn Channel>>;

    /// Closes the connection, and says why.
    fn close(&self, why: &'static str) -> Answer<'_, ()>;
}

/// A channel. It is closed when its last handle is dropped.
pub trait Channel: Send + Sync {
    /// Whether requests can be sent.
    fn is_open(&self) -> bool;

    /// What the broker said when it closed the channel. None while it is open, or if it ended in
    /// another way, such as with its connection.
    fn closed_by_broker(&self) -> Option<lapin::Error>;

    /// Sets the prefetch of the subscriptions that follow.
    fn set_prefetch(&self, count: u16) -> Answer<'_, ()>;

    /// Subscribes under a tag that is chosen for it. Its owner closes the channel if it does not
    /// wait for the answer: the subscription may come into being all the same.
    fn consume(
        &self,
        queue: ShortString,
        options: BasicConsumeOptions,
        arguments: FieldTable,
    ) -> Answer<'_, Subscription>;

    /// Ends a subscription. What is under way still arrives before the answer.
    fn cancel(&self, tag: ShortString) -> Answer<'_, ()>;

    /// Takes one message from a queue. It goes back when the channel is closed.
    fn get(&self, queue: ShortString) -> Answer<'_, Option<Delivery>>;

    /// Queues a frame that settles deliveries, after those that were queued before. False if the
    /// channel was gone and nothing was queued.
    fn send_settlement(&self, frame: Frame) -> bool;

    /// Ends when the broker has read all that was queued before.
    fn flush(&self) -> Answer<'static, ()>;

    /// Asks for a confirm of each message that is published from now on.
    fn confirm_select(&self) -> Answer<'_, ()>;

    /// Publishes a message, and ends with its confirm. The return in it may be of another message
    /// of this channel.
    fn publish<'a>(
        &'a self,
        exchange: ShortString,
        routing_key: ShortString,
        body: &'a [u8],
        properties: BasicProperties,
        is_mandatory: bool,
    ) -> Answer<'a, Confirmation>;

    /// Declares a queue or, with `passive`, looks at it.
    fn declare_queue(
        &self,
        queue: ShortString,
        options: QueueDeclareOptions,
        arguments: FieldTable,
    ) -> Answer<'_, QueueCounts>;

    /// Declares an exchange or, with `passive`, looks whether it exists.
    fn declare_exchange(
        &self,
        exchange: ShortString,
        kind: ExchangeKind,
        options: ExchangeDeclareOptions,
        arguments: FieldTable,
    ) -> Answer<'_, ()>;

    /// Binds a queue to an exchange.
    fn bind_queue(
        &self,
        queue: ShortString,
        exchange: ShortString,
        routing_key: ShortString,
        arguments: FieldTable,
    ) -> Answer<'_, ()>;

    /// Removes such a binding.
    fn unbind_queue(
        &self,
        queue: ShortString,
        exchange: ShortString,
        routing_key: ShortString,
        arguments: FieldTable,
    ) -> Answer<'_, ()>;

    /// Binds an exchange to another one, from which it gets messages.
    fn bind_exchange(&self, exchange: ShortString, source: ShortString) -> Answer<'_, ()>;

    /// Deletes a queue, whatever it holds.
    fn delete_queue(&self, queue: ShortString) -> Answer<'_, ()>;

    /// Deletes an exchange.
    fn delete_exchange(&self, exchange: ShortString, if_unused: bool) -> Answer<'_, ()>;

    /// Closes the channel, and says why. The broker gives back what was delivered on it and not
    /// settled.
    fn close(&self, why: &'static str) -> Answer<'_, ()>;
}

/// What is ready in a queue, and who consumes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueCounts {
    /// Messages that are ready.
    pub messages: u32,
    /// Consumers.
    pub consumers: u32,
}

/// A subscription's deliveries. An error says how its channel ended; the end of the stream without
/// one means that the broker has ended the subscription. It is cancelled when it is dropped.
pub struct Subscription {
    pub tag: ShortString,
    pub deliveries: Pin<Box<dyn Stream<Item = lapin::Result<Delivery>> + Send + Sync>>,
}
