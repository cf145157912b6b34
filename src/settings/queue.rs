//! The settings of one queue.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ConsumeSettings, Order, RetrySettings, values};

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

/// Builder methods, for settings in code. Whatever is not set is taken from the service's settings,
/// then from the defaults. Values are checked when the service starts.
impl QueueSettings {
    /// A queue that rehop declares.
    pub fn new(queue: impl Into<String>) -> Self {
        Self { queue: queue.into(), ..Self::default() }
    }

    /// An existing queue of this type, declared elsewhere.
    pub fn existing(queue: impl Into<String>, queue_type: QueueType) -> Self {
        let (declare, queue_type) = (Declare::Existing, Some(queue_type));
        Self { declare, queue_type, ..Self::new(queue) }
    }

    /// The queue for parked messages, at most 255 bytes. Default `<queue>.parked`.
    #[must_use = "it returns the settings"]
    pub fn parked(mut self, queue: impl Into<String>) -> Self {
        self.parked = Some(queue.into());
        self
    }

    /// Binds the queue to a publisher's exchange, which must exist, with this routing key or
    /// pattern. May be called more than once.
    #[must_use = "it returns the settings"]
    pub fn bind(mut self, exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        self.bindings.push(BindingSettings::new(exchange, routing_key));
        self
    }

    /// The retry policy: a [`PolicyBuilder`](super::PolicyBuilder) from
    /// [`RetryPolicy::builder`](crate::RetryPolicy::builder).
    #[must_use = "it returns the settings"]
    pub fn retry(mut self, retry: impl Into<RetrySettings>) -> Self {
        self.retry = retry.into();
        self
    }

    /// How many unsettled messages the broker sends at most: 1 to 65535, by default 100. An ordered
    /// queue may be sent fewer.
    #[must_use = "it returns the settings"]
    pub fn prefetch(mut self, messages: u16) -> Self {
        self.consume.prefetch = Some(messages);
        self
    }

    /// How many handlers run at a time: from 1 to the prefetch, by default 10.
    #[must_use = "it returns the settings"]
    pub fn concurrency(mut self, handlers: u16) -> Self {
        self.consume.concurrency = Some(handlers);
        self
    }

    /// How long one attempt may take: 1 ms to a day, and a little less than
    /// `broker.consumer_timeout`. Default 1 min.
    #[must_use = "it returns the settings"]
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.consume.handler_timeout = Some(limit);
        self
    }

    /// Which messages are handled in order. Needs the strategy `in-process`.
    #[must_use = "it returns the settings"]
    pub fn order(mut self, order: Order) -> Self {
        self.consume.order = Some(order);
        self
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::policy::RetryPolicy;
    use crate::settings::Settings;

    fn problem(settings: &Settings) -> String {
        settings.resolve().unwrap_err().to_string()
    }

    #[test]
    fn what_code_says_has_the_bounds_of_files() {
        let with = |queue| Settings::new("billing", "amqp://b/%2f").with_queue(queue);
        let orders = || QueueSettings::new("orders");
        for (queue, key) in [
            (orders().prefetch(0), "consume.prefetch"),
            (orders().concurrency(0), "consume.concurrency"),
            (orders().concurrency(101), "consume.concurrency"),
            (orders().handler_timeout(Duration::ZERO), "consume.handler_timeout"),
            (orders().retry(RetryPolicy::builder().immediate(10)), "retry.immediate"),
            (orders().order(Order::Queue), "consume.order"),
            (orders().parked("x".repeat(256)), "parked"),
            (orders().bind("x".repeat(256), ""), "bindings"),
            (QueueSettings::new(""), "queue"),
        ] {
            let problem = problem(&with(queue));
            assert!(problem.contains(key), "{key}: {problem}");
        }
        assert!(problem(&Settings::new("", "amqp://b")).contains("namespace"));
        assert!(problem(&Settings::new("billing", "http://b")).contains("broker.url"));
    }

    #[test]
    fn a_queue_takes_the_place_of_one_with_its_name() {
        let settings = Settings::new("billing", "amqp://b/%2f")
            .with_queue(QueueSettings::new("orders").concurrency(2))
            .with_queue(QueueSettings::existing("mails", QueueType::Quorum))
            .with_queue(QueueSettings::new("orders").prefetch(7).concurrency(3));
        assert_eq!(settings.queues.len(), 2);
        let resolved = settings.resolve().unwrap();
        let [orders, mails] = ["orders", "mails"].map(|queue| resolved.queue(queue).unwrap());
        assert_eq!((orders.prefetch, orders.concurrency, orders.declare), (7, 3, Declare::Own));
        assert_eq!((mails.declare, mails.counts_deliveries), (Declare::Existing, true));
    }
}
