//! The settings of one queue.

use serde::{Deserialize, Serialize};

use super::{ConsumeSettings, RetrySettings, values};

/// One queue.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct QueueSettings {
    /// Its name, at most 255 bytes.
    #[serde(deserialize_with = "values::text")]
    pub queue: String,
    /// Whether rehop declares it, or uses it as it is. Default `own`.
    pub declare: Declare,
    /// The type of an `existing` queue: `quorum`, or `classic`, the default. A classic queue does
    /// not count deliveries, so its redelivered messages get no immediate attempts. A service does
    /// not start if this says `quorum` and the queue is not a
    /// quorum queue. Queues that rehop declares are quorum
    /// queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_type: Option<QueueType>,
    /// The queue for parked messages. Default `<queue>.parked`.
    #[serde(deserialize_with = "values::optional_text", skip_serializing_if = "Option::is_none")]
    pub parked: Option<String>,
    /// Bindings of the queue to the publishers' exchanges, which must exist.
    pub bindings: Vec<BindingSettings>,
    /// Its retry policy.
    pub retry: RetrySettings,
    /// How it is consumed.
    pub consume: ConsumeSettings,
}

/// Who declares a work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Declare {
    /// rehop does, with its own arguments.
    #[default]
    Own,
    /// It is declared elsewhere, and rehop uses it as it is. Its delivery limit and dead-letter
    /// exchange cannot be checked.
    Existing,
}

/// The type of a queue that is declared elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum QueueType {
    /// Counts deliveries.
    Quorum,
    /// Does not count deliveries.
    Classic,
}

/// A binding to a publisher's exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BindingSettings {
    /// The exchange.
    #[serde(deserialize_with = "values::text")]
    pub exchange: String,
    /// The routing key or pattern. Default empty.
    #[serde(default, deserialize_with = "values::text")]
    pub routing_key: String,
}

impl BindingSettings {
    /// A binding to this exchange, with this routing key or pattern.
    pub fn new(exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        Self { exchange: exchange.into(), routing_key: routing_key.into() }
    }
}
