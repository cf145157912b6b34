//! What a handler sees of a message.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::ledger::{ErrorRecord, Ledger};
use crate::timestamp::Timestamp;

/// A delivery as it came: nothing decoded, nothing trusted.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) exchange: ShortString,
    pub(crate) routing_key: ShortString,
    pub(crate) redelivered: bool,
    pub(crate) delivery_tag: u64,
    pub(crate) properties: BasicProperties,
    pub(crate) body: Bytes,
}

impl Envelope {
    pub(crate) fn header(&self, name: &str) -> Option<&AMQPValue> {
        self.properties.headers().as_ref()?.inner().get(name)
    }
}

/// An envelope, what is known of its chain, and where the message was first published.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) envelope: Envelope,
    pub(crate) ledger: Ledger,
    pub(crate) exchange: ShortString,
    pub(crate) routing_key: ShortString,
}

/// A message in the hands of its handler: the decoded body, and whatever else came with it.
///
/// It dereferences to its body.
///
/// ```
/// # use rehop::{Failure, Message};
/// # #[derive(serde::Deserialize)] struct Order { id: u64 }
/// async fn ship(order: Message<Order>) -> Result<(), Failure> {
///     println!("attempt {} for order {}, sent to {:?}", order.attempt(), order.id, order.routing_key());
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Message<T> {
    body: T,
    arrival: Arc<Arrival>,
}

impl<T> Message<T> {
    pub(crate) fn new(body: T, arrival: Arc<Arrival>) -> Self {
        Self { body, arrival }
    }

    /// The decoded body.
    pub fn body(&self) -> &T {
        &self.body
    }

    /// The decoded body, owned.
    pub fn into_body(self) -> T {
        self.body
    }

    /// The body's bytes, as they came.
    pub fn raw_body(&self) -> &Bytes {
        &self.arrival.envelope.body
    }

    /// The number of this attempt, from 1. Deliveries that ended in a crash count too, as the broker counts them.
    pub fn attempt(&self) -> u32 {
        self.arrival.ledger.attempt()
    }

    /// How many waits lie behind this message.
    pub fn hop(&self) -> u32 {
        self.arrival.ledger.hop
    }

    /// The moment from which on the message is expired: it gets no further attempt then.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.arrival.ledger.deadline
    }

    /// When this chain's first delivery was seen; this delivery's own time on the first attempt.
    pub fn first_seen(&self) -> Timestamp {
        self.arrival.ledger.first_seen
    }

    /// The failures before the last wait, oldest first; the last ten at most.
    pub fn errors(&self) -> &[ErrorRecord] {
        &self.arrival.ledger.errors
    }

    /// The exchange that the message was first published to, however many waits lie between. Empty for the default exchange.
    pub fn exchange(&self) -> &str {
        self.arrival.exchange.as_str()
    }

    /// The routing key that the message was first published with.
    pub fn routing_key(&self) -> &str {
        self.arrival.routing_key.as_str()
    }

    /// Whether the broker has delivered this message before, to this consumer or another.
    pub fn redelivered(&self) -> bool {
        self.arrival.envelope.redelivered
    }

    /// The `message_id` property, which stays the same over all waits.
    pub fn message_id(&self) -> Option<&str> {
        text(self.properties().message_id())
    }

    /// The `content_type` property.
    pub fn content_type(&self) -> Option<&str> {
        text(self.properties().content_type())
    }

    /// The `content_encoding` property.
    pub fn content_encoding(&self) -> Option<&str> {
        text(self.properties().content_encoding())
    }

    /// The `correlation_id` property.
    pub fn correlation_id(&self) -> Option<&str> {
        text(self.properties().correlation_id())
    }

    /// The `reply_to` property.
    pub fn reply_to(&self) -> Option<&str> {
        text(self.properties().reply_to())
    }

    /// The `type` property.
    pub fn kind(&self) -> Option<&str> {
        text(self.properties().kind())
    }

    /// The `app_id` property.
    pub fn app_id(&self) -> Option<&str> {
        text(self.properties().app_id())
    }

    /// The `user_id` property, which the broker has checked. It is kept in a header over a wait.
    pub fn user_id(&self) -> Option<&str> {
        text(self.properties().user_id()).or_else(|| match self.header(crate::headers::USER_ID)? {
            HeaderValue::Text(user_id) if self.hop() > 0 => Some(user_id),
            _ => None,
        })
    }

    /// The `priority` property.
    pub fn priority(&self) -> Option<u8> {
        *self.properties().priority()
    }

    /// The `timestamp` property, in seconds since the epoch.
    pub fn timestamp(&self) -> Option<u64> {
        *self.properties().timestamp()
    }

    /// One header.
    pub fn header(&self, name: &str) -> Option<HeaderValue<'_>> {
        self.arrival.envelope.header(name).map(HeaderValue::of)
    }

    /// All headers, in the order of their names.
    pub fn headers(&self) -> impl Iterator<Item = (&str, HeaderValue<'_>)> {
        self.properties().headers().iter().flat_map(entries)
    }

    fn properties(&self) -> &BasicProperties {
        &self.arrival.envelope.properties
    }
}

impl<T> Deref for Message<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.body
    }
}

fn text(property: &Option<ShortString>) -> Option<&str> {
    property.as_ref().map(ShortString::as_str)
}

fn entries(table: &FieldTable) -> impl Iterator<Item = (&str, HeaderValue<'_>)> {
    table.inner().iter().map(|(name, value)| (name.as_str(), HeaderValue::of(value)))
}

/// The value of a header, borrowed from its message.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum HeaderValue<'a> {
    /// No value.
    Void,
    /// A truth value.
    Bool(bool),
    /// Any of AMQP's integers.
    Int(i64),
    /// A float or a double.
    Float(f64),
    /// A decimal number: value × 10^-scale.
    Decimal {
        /// How many digits stand behind the point.
        scale: u8,
        /// The number without its point.
        value: u32,
    },
    /// Seconds since the epoch.
    Timestamp(u64),
    /// A string in UTF-8.
    Text(&'a str),
    /// A byte array, or a string in no UTF-8.
    Bytes(&'a [u8]),
    /// An array.
    List(Vec<HeaderValue<'a>>),
    /// A table.
    Table(Vec<(&'a str, HeaderValue<'a>)>),
}

impl<'a> HeaderValue<'a> {
    pub(crate) fn of(value: &'a AMQPValue) -> Self {
        match value {
            AMQPValue::Void => Self::Void,
            AMQPValue::Boolean(value) => Self::Bool(*value),
            AMQPValue::ShortShortInt(value) => Self::Int(i64::from(*value)),
            AMQPValue::ShortShortUInt(value) => Self::Int(i64::from(*value)),
            AMQPValue::ShortInt(value) => Self::Int(i64::from(*value)),
            AMQPValue::ShortUInt(value) => Self::Int(i64::from(*value)),
            AMQPValue::LongInt(value) => Self::Int(i64::from(*value)),
            AMQPValue::LongUInt(value) => Self::Int(i64::from(*value)),
            AMQPValue::LongLongInt(value) => Self::Int(*value),
            AMQPValue::Float(value) => Self::Float(f64::from(*value)),
            AMQPValue::Double(value) => Self::Float(*value),
            AMQPValue::DecimalValue(decimal) => Self::Decimal { scale: decimal.scale, value: decimal.value },
            AMQPValue::Timestamp(seconds) => Self::Timestamp(*seconds),
            AMQPValue::ShortString(text) => Self::Text(text.as_str()),
            AMQPValue::LongString(text) => Self::of_bytes(text.as_bytes()),
            AMQPValue::ByteArray(bytes) => Self::Bytes(bytes.as_slice()),
            AMQPValue::FieldArray(array) => Self::List(array.as_slice().iter().map(Self::of).collect()),
            AMQPValue::FieldTable(table) => Self::Table(entries(table).collect()),
        }
    }

    fn of_bytes(bytes: &'a [u8]) -> Self {
        std::str::from_utf8(bytes).map_or(Self::Bytes(bytes), Self::Text)
    }

    /// The text of a string, whether it was sent as a string or as bytes.
    pub fn as_text(&self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}
