//! Metrics: what wakes somebody up. No attribute is unbounded: no ids, no routing keys.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};
use opentelemetry::{KeyValue, global};

use super::names;
use crate::policy::Reason;

/// Buckets that the semantic conventions advise for durations.
const SECONDS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
const LATENESS: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
const CHAIN_SECONDS: [f64; 9] = [0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 14400.0, 86400.0];
const ATTEMPTS: [f64; 8] = [1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0];

/// The process's instruments.
#[derive(Debug, Clone)]
pub(crate) struct Instruments {
    sent: Counter<u64>,
    consumed: Counter<u64>,
    operations: Histogram<f64>,
    process: Histogram<f64>,
    settled: Counter<u64>,
    parked: Counter<u64>,
    lateness: Histogram<f64>,
    chain_seconds: Histogram<f64>,
    chain_attempts: Histogram<u64>,
    publish_retries: Counter<u64>,
    in_flight: UpDownCounter<i64>,
    stray: Gauge<u64>,
}

impl Instruments {
    pub(crate) fn new() -> Self {
        Self::of(&global::meter("rehop"))
    }

    fn of(meter: &Meter) -> Self {
        let counter = |name, unit, text| meter.u64_counter(name).with_unit(unit).with_description(text).build();
        let histogram = |name, buckets: &[f64], text| {
            meter.f64_histogram(name).with_unit("s").with_boundaries(buckets.to_vec()).with_description(text).build()
        };
        Self {
            sent: counter(names::SENT_MESSAGES, "{message}", "Copies sent to wait queues and parked queues"),
            consumed: counter(names::CONSUMED_MESSAGES, "{message}", "Deliveries received"),
            operations: histogram(
                names::OPERATION_DURATION,
                &SECONDS,
                "Sending a copy until it is confirmed, or settling",
            ),
            process: histogram(names::PROCESS_DURATION, &SECONDS, "One attempt of a handler"),
            settled: counter(names::SETTLED, "{message}", "Deliveries settled, by what became of them"),
            parked: counter(names::PARKED, "{message}", "Messages parked by rehop, by reason"),
            lateness: histogram(names::WAIT_LATENESS, &LATENESS, "How much later than due a message came home"),
            chain_seconds: histogram(
                names::CHAIN_DURATION,
                &CHAIN_SECONDS,
                "From first delivery to the end of the chain",
            ),
            chain_attempts: meter
                .u64_histogram(names::CHAIN_ATTEMPTS)
                .with_unit("{attempt}")
                .with_boundaries(ATTEMPTS.to_vec())
                .with_description("Attempts of a chain")
                .build(),
            publish_retries: counter(names::PUBLISH_RETRIES, "{publish}", "Copies that had to be sent again"),
            in_flight: meter
                .i64_up_down_counter(names::IN_FLIGHT)
                .with_unit("{message}")
                .with_description("Deliveries being handled")
                .build(),
            stray: meter
                .u64_gauge(names::STRAY)
                .with_unit("{message}")
                .with_description("Messages that matched no route")
                .build(),
        }
    }

    /// A copy has to be sent again through this exchange.
    pub(crate) fn publish_retried(&self, exchange: &str) {
        self.publish_retries.add(1, &[KeyValue::new(names::DESTINATION_TEMPLATE, exchange.to_owned())]);
    }

    /// The depth of a namespace's stray queue.
    pub(crate) fn stray(&self, namespace: &str, depth: u64) {
        self.stray.record(depth, &[KeyValue::new(names::NAMESPACE, namespace.to_owned())]);
    }
}

/// How a delivery ended, as metrics and spans call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Ack,
    Requeue,
    Wait,
    Park,
    Discard,
}

impl Outcome {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Requeue => "requeue",
            Self::Wait => "wait",
            Self::Park => "park",
            Self::Discard => "discard",
        }
    }

    /// Whether the chain ends with it.
    pub(crate) const fn is_final(self) -> bool {
        matches!(self, Self::Ack | Self::Park | Self::Discard)
    }
}

/// One queue's metrics, with their attributes made once.
#[derive(Debug, Clone)]
pub(crate) struct QueueMetrics {
    instruments: Instruments,
    queue: KeyValue,
    consumed: [KeyValue; 3],
    processed: [KeyValue; 3],
    classes: Arc<Mutex<HashSet<String>>>,
}

/// How many error classes a queue's metrics tell apart. A service that makes classes of ids must not grow without bound.
const MAX_CLASSES: usize = 50;
/// What the semantic conventions call the rest.
const OTHER_CLASS: &str = "_OTHER";

impl QueueMetrics {
    pub(crate) fn new(instruments: Instruments, queue: &str) -> Self {
        let queue = KeyValue::new(names::DESTINATION_TEMPLATE, Arc::<str>::from(queue));
        let operation = |name: &'static str| {
            [KeyValue::new(names::SYSTEM, names::RABBITMQ), KeyValue::new(names::OPERATION_NAME, name), queue.clone()]
        };
        Self {
            instruments,
            consumed: operation("receive"),
            processed: operation("process"),
            queue,
            classes: Arc::default(),
        }
    }

    pub(crate) fn received(&self) {
        self.instruments.consumed.add(1, &self.consumed);
        self.instruments.in_flight.add(1, std::slice::from_ref(&self.queue));
    }

    pub(crate) fn released(&self) {
        self.instruments.in_flight.add(-1, std::slice::from_ref(&self.queue));
    }

    pub(crate) fn came_home(&self, lateness: Duration) {
        self.instruments.lateness.record(lateness.as_secs_f64(), std::slice::from_ref(&self.queue));
    }

    pub(crate) fn processed(&self, took: Duration, error_type: Option<&str>) {
        let seconds = took.as_secs_f64();
        match error_type {
            None => self.instruments.process.record(seconds, &self.processed),
            Some(error_type) => {
                let [system, operation, queue] = self.processed.clone();
                let error_type = KeyValue::new(names::ERROR_TYPE, self.bounded(error_type));
                self.instruments.process.record(seconds, &[system, operation, queue, error_type]);
            }
        }
    }

    fn bounded(&self, class: &str) -> String {
        let mut classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        if classes.contains(class) || (classes.len() < MAX_CLASSES && classes.insert(class.to_owned())) {
            return class.to_owned();
        }
        OTHER_CLASS.to_owned()
    }

    /// An ack or a reject was given to the channel, or could not be any more.
    pub(crate) fn operated(&self, operation: &'static str, took: Duration, error_type: Option<&'static str>) {
        let seconds = took.as_secs_f64();
        let operation = KeyValue::new(names::OPERATION_NAME, operation);
        let [system, _, queue] = &self.processed;
        match error_type.map(|error_type| KeyValue::new(names::ERROR_TYPE, error_type)) {
            None => self.instruments.operations.record(seconds, &[system.clone(), operation, queue.clone()]),
            Some(error_type) => {
                let attributes = [system.clone(), operation, queue.clone(), error_type];
                self.instruments.operations.record(seconds, &attributes);
            }
        }
    }

    pub(crate) fn sent(&self, destination: &str, took: Duration, error_type: Option<&str>) {
        let mut attributes = vec![
            KeyValue::new(names::SYSTEM, names::RABBITMQ),
            KeyValue::new(names::OPERATION_NAME, "send"),
            KeyValue::new(names::DESTINATION_TEMPLATE, destination.to_owned()),
        ];
        if let Some(error_type) = error_type {
            attributes.push(KeyValue::new(names::ERROR_TYPE, error_type.to_owned()));
        }
        self.instruments.sent.add(1, &attributes);
        self.instruments.operations.record(took.as_secs_f64(), &attributes);
    }

    /// A delivery was settled. The chain's length is recorded where it ends.
    pub(crate) fn settled(&self, outcome: Outcome, reason: Option<Reason>, attempts: u32, age: Duration) {
        let attributes = [self.queue.clone(), KeyValue::new(names::OUTCOME, outcome.as_str())];
        self.instruments.settled.add(1, &attributes);
        if outcome.is_final() {
            self.instruments.chain_attempts.record(u64::from(attempts), &attributes);
            self.instruments.chain_seconds.record(age.as_secs_f64(), &attributes);
        }
        if let (Outcome::Park, Some(reason)) = (outcome, reason) {
            let attributes = [self.queue.clone(), KeyValue::new(names::REASON, reason.as_str())];
            self.instruments.parked.add(1, &attributes);
        }
    }
}
