//! What a topology consists of.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::settings::{Declare, QueueType};

/// The exchanges, queues and bindings that a configuration needs.
///
/// ```
/// let settings = rehop::Settings::default();
/// let topology = rehop::Topology::of(&settings)?;
/// assert!(topology.exchanges.iter().any(|exchange| exchange.name == "rehop.wait"));
/// # Ok::<(), rehop::SettingsError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Topology {
    /// In the order in which they are declared.
    pub exchanges: Vec<Exchange>,
    /// In the order in which they are declared.
    pub queues: Vec<Queue>,
    /// Declared after them.
    pub bindings: Vec<Binding>,
    /// Declared last.
    pub exchange_bindings: Vec<ExchangeBinding>,
}

/// An exchange. All of rehop's are durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Exchange {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: ExchangeKind,
    /// Its arguments.
    pub arguments: Arguments,
}

/// The type of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ExchangeKind {
    /// Routes by headers, so that the routing key stays unchanged.
    Headers,
    /// Routes by the whole routing key.
    Direct,
    /// Routes to every binding.
    Fanout,
    /// Keeps each message for as long as its header `x-delay` says, then routes to every binding.
    /// It comes with the delayed-message plugin.
    #[serde(rename = "x-delayed-message")]
    Delayed,
}

impl ExchangeKind {
    /// The type's name in AMQP.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Headers => "headers",
            Self::Direct => "direct",
            Self::Fanout => "fanout",
            Self::Delayed => "x-delayed-message",
        }
    }
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Whether rehop declares it, or uses it as it is.
    pub declare: Declare,
    /// `Quorum` if rehop uses the queue as it is, and the settings say that it is a quorum queue.
    #[serde(skip)]
    pub queue_type: Option<QueueType>,
    /// The arguments that it is declared with; empty if rehop uses it as it is.
    pub arguments: Arguments,
}

/// What a queue is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Handlers consume from it.
    Work,
    /// Messages wait in it.
    Wait,
    /// It keeps parked messages.
    Parked,
    /// It keeps unroutable messages.
    Stray,
    /// It keeps for a time what an operator has discarded.
    Discarded,
}

impl Role {
    /// The role in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Wait => "wait",
            Self::Parked => "parked",
            Self::Stray => "stray",
            Self::Discarded => "discarded",
        }
    }
}

/// A binding of a queue to an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Binding {
    /// The exchange.
    pub exchange: String,
    /// The queue.
    pub queue: String,
    /// The binding's routing key.
    pub routing_key: String,
    /// The binding's arguments.
    pub arguments: Arguments,
}

/// A binding of an exchange to another: what the source routes, the destination routes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExchangeBinding {
    /// The exchange that routes first.
    pub source: String,
    /// The exchange that routes on.
    pub destination: String,
}

/// The arguments of an exchange, queue or binding, by name.
pub type Arguments = BTreeMap<String, Argument>;

/// The value of an argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Argument {
    /// A number.
    Number(i64),
    /// A string.
    Text(String),
    /// A boolean.
    Flag(bool),
}

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for Argument {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<i64> for Argument {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Argument {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl std::fmt::Display for Argument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
        }
    }
}
