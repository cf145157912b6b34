//! What a client sees, without names, tags and times that differ from run to run.

use std::collections::BTreeMap;
use std::fmt;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};

use crate::naming::Naming;
use crate::script::Index;

/// What a client saw in one step, sorted into streams. Only within one stream does the order count:
/// RabbitMQ does not promise, for example, whether a confirm comes before or after a delivery, or
/// which of two queues delivers first.
pub(crate) type Seen = BTreeMap<Stream, Vec<Saw>>;

/// Where the order counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stream {
    /// The answers on a channel, and its end.
    Channel(Index),
    /// What a subscription was sent.
    Subscription(Index, String),
    /// What became of a message that was published on a channel.
    Published(Index, String),
    /// A connection as such.
    Connection(Index),
    /// What a queue holds at the end of the step.
    Queue(Index),
}

/// One thing that a client saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Saw {
    Done,
    Subscribed,
    Declared {
        ready: u32,
        consumers: u32,
    },
    Removed {
        messages: u32,
    },
    Empty,
    Got {
        copy: Copy,
        left: u32,
    },
    Delivered(Copy),
    Cancelled,
    Returned {
        code: u16,
        text: String,
        copy: Copy,
    },
    Confirmed,
    Refused,
    Closed {
        code: u16,
        text: String,
    },
    Cut,
    Holds {
        ready: u32,
        consumers: u32,
    },
    /// It could not be asked.
    Missing,
    Other(String),
}

/// A message as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) message: String,
    pub(crate) is_redelivered: bool,
    pub(crate) exchange: String,
    pub(crate) key: String,
    /// Headers, and properties that are set.
    pub(crate) properties: BTreeMap<String, String>,
    /// Empty unless it is not the body that was published.
    pub(crate) body: String,
}

impl Copy {
    pub(crate) fn new(
        naming: &Naming,
        is_redelivered: bool,
        exchange: &str,
        key: &str,
        properties: &BasicProperties,
        body: &[u8],
    ) -> Self {
        let message =
            properties.message_id().as_ref().map_or_else(|| "?".to_owned(), |id| format!("m{id}"));
        let body = String::from_utf8_lossy(body).into_owned();
        Self {
            body: if body == message { String::new() } else { body },
            is_redelivered,
            exchange: naming.normalised(exchange),
            key: naming.normalised(key),
            properties: normalised_properties(naming, properties),
            message,
        }
    }
}

fn normalised_properties(
    naming: &Naming,
    properties: &BasicProperties,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (key, value) in properties.headers().iter().flat_map(|headers| headers.inner()) {
        all.insert(key.to_string(), naming.normalised(&text(value)));
    }
    if properties.headers().is_none() {
        all.insert("(headers)".to_owned(), "none".to_owned());
    }
    let set = [
        ("expiration", properties.expiration().as_ref().map(ToString::to_string)),
        ("delivery_mode", properties.delivery_mode().map(|mode| mode.to_string())),
        ("priority", properties.priority().map(|priority| priority.to_string())),
        ("correlation_id", properties.correlation_id().as_ref().map(ToString::to_string)),
    ];
    all.extend(
        set.into_iter().filter_map(|(name, value)| value.map(|value| (format!("({name})"), value))),
    );
    all
}

/// A header's value with its type. A time says only that it is one.
fn text(value: &AMQPValue) -> String {
    match value {
        AMQPValue::LongString(it) => format!("'{it}'"),
        AMQPValue::LongLongInt(it) => format!("{it}"),
        AMQPValue::FieldArray(items) => {
            let items = items.as_slice().iter().map(text).collect::<Vec<_>>();
            format!("[{}]", items.join(", "))
        }
        AMQPValue::FieldTable(table) => format!("{{{}}}", fields(table)),
        AMQPValue::Timestamp(_) => "a time".to_owned(),
        other => format!("{other:?}"),
    }
}

fn fields(table: &FieldTable) -> String {
    let fields = table.inner().iter().map(|(key, value)| format!("{key}: {}", text(value)));
    fields.collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(channel) => write!(f, "c{channel}"),
            Self::Subscription(channel, tag) => write!(f, "c{channel} {tag}"),
            Self::Published(channel, message) => write!(f, "c{channel} {message}"),
            Self::Connection(connection) => write!(f, "connection {connection}"),
            Self::Queue(queue) => write!(f, "q{queue}"),
        }
    }
}

impl fmt::Display for Saw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Subscribed => f.write_str("subscribed"),
            Self::Declared { ready, consumers } => {
                write!(f, "declared: {ready} ready, {consumers} consumers")
            }
            Self::Removed { messages } => write!(f, "removed {messages} messages"),
            Self::Empty => f.write_str("empty"),
            Self::Got { copy, left } => write!(f, "got {copy}, {left} left"),
            Self::Delivered(copy) => write!(f, "delivered {copy}"),
            Self::Cancelled => f.write_str("cancelled by the broker"),
            Self::Returned { code, text, copy } => write!(f, "returned {code} {text} {copy}"),
            Self::Confirmed => f.write_str("confirmed"),
            Self::Refused => f.write_str("nacked"),
            Self::Closed { code, text } => write!(f, "closed: {code} {text}"),
            Self::Cut => f.write_str("cut"),
            Self::Holds { ready, consumers } => {
                write!(f, "holds {ready} ready, {consumers} consumers")
            }
            Self::Missing => f.write_str("is missing"),
            Self::Other(what) => f.write_str(what),
        }
    }
}

impl fmt::Display for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = if self.is_redelivered { " again" } else { "" };
        write!(f, "{}{again} by '{}' '{}'", self.message, self.exchange, self.key)?;
        if !self.properties.is_empty() {
            let properties = self
                .properties
                .iter()
                .map(|(key, value)| format!("{key}: {value}"))
                .collect::<Vec<_>>();
            write!(f, " {{{}}}", properties.join(", "))?;
        }
        if self.body.is_empty() { Ok(()) } else { write!(f, " body {:?}", self.body) }
    }
}
