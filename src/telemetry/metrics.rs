//! Metrics, for dashboards and alerts. No attribute is unbounded: no ids, and no routing keys but
//! the names of queues.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};
use opentelemetry::{KeyValue, global};

use super::names;
use super::values::Values;
use crate::retry::ledger::{MAX_CLASS_BYTES, cut};
use crate::retry::outcome::Outcome;

/// The buckets that the semantic conventions recommend for durations.
const SECONDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
const LATENESS: [f64; 13] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
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
    replayed: Counter<u64>,
    lateness: Histogram<f64>,
    chain_seconds: Histogram<f64>,
    chain_attempts: Histogram<u64>,
    publish_retries: Counter<u64>,
    in_flight: UpDownCounter<i64>,
    consuming: Gauge<u64>,
    stray: Gauge<u64>,
    parked_depth: Gauge<u64>,
}

fn counter(
    meter: &Meter,
    name: &'static str,
    unit: &'static str,
    text: &'static str,
) -> Counter<u64> {
    meter.u64_counter(name).with_unit(unit).with_description(text).build()
}

fn gauge(meter: &Meter, name: &'static str, unit: &'static str, text: &'static str) -> Gauge<u64> {
    meter.u64_gauge(name).with_unit(unit).with_description(text).build()
}

/// Durations in seconds.
fn seconds(
    meter: &Meter,
    name: &'static str,
    buckets: &[f64],
    text: &'static str,
) -> Histogram<f64> {
    let builder = meter.f64_histogram(name).with_unit("s").with_boundaries(buckets.to_vec());
    builder.with_description(text).build()
}

impl Instruments {
    pub(crate) fn new() -> Self {
        Self::of(&global::meter("rehop"))
    }

    fn of(meter: &Meter) -> Self {
        let counter = |name, unit, text| counter(meter, name, unit, text);
        let gauge = |name, unit, text| gauge(meter, name, unit, text);
        let seconds = |name, buckets: &[f64], text| seconds(meter, name, buckets, text);
        Self {
            sent: counter(
                names::SENT_MESSAGES,
                "{message}",
                "Messages sent: copies to wait queues and parked queues, and what a Publisher sends",
            ),
            consumed: counter(names::CONSUMED_MESSAGES, "{message}", "Deliveries received"),
            operations: seconds(
                names::OPERATION_DURATION,
                &SECONDS,
                "Sending a message until it is confirmed, or settling",
            ),
            process: seconds(names::PROCESS_DURATION, &SECONDS, "One attempt of a handler"),
            settled: counter(names::SETTLED, "{message}", "Deliveries settled, by outcome"),
            parked: counter(names::PARKED, "{message}", "Messages parked by rehop, by reason"),
            replayed: counter(
                names::REPLAYED,
                "{message}",
                "Chains of replayed messages that ended, by outcome",
            ),
            lateness: seconds(
                names::WAIT_LATENESS,
                &LATENESS,
                "How much later than due a message returned",
            ),
            chain_seconds: seconds(
                names::CHAIN_DURATION,
                &CHAIN_SECONDS,
                "From the first delivery that is remembered to the end of the chain",
            ),
            chain_attempts: meter
                .u64_histogram(names::CHAIN_ATTEMPTS)
                .with_unit("{attempt}")
                .with_boundaries(ATTEMPTS.to_vec())
                .with_description("Attempts of a chain")
                .build(),
            publish_retries: counter(
                names::PUBLISH_RETRIES,
                "{publish}",
                "Copies that had to be sent again",
            ),
            in_flight: meter
                .i64_up_down_counter(names::IN_FLIGHT)
                .with_unit("{message}")
                .with_description("Deliveries held, whether waiting for a handler or being handled")
                .build(),
            consuming: gauge(
                names::CONSUMING,
                "{subscription}",
                "Whether the queue is consumed: 1, or 0",
            ),
            stray: gauge(names::STRAY, "{message}", "Messages in the stray queue"),
            parked_depth: gauge(names::PARKED_DEPTH, "{message}", "Messages in the parked queue"),
        }
    }

    /// A copy has to be sent again to this exchange.
    pub(crate) fn publish_retried(&self, exchange: &str) {
        self.publish_retries
            .add(1, &[KeyValue::new(names::DESTINATION_TEMPLATE, exchange.to_owned())]);
    }

    /// A message was sent, and confirmed unless there is an error.
    fn sent(
        &self,
        operation: &'static str,
        destination: String,
        took: Duration,
        error_type: Option<&str>,
    ) {
        let mut attributes = vec![
            KeyValue::new(names::SYSTEM, names::RABBITMQ),
            KeyValue::new(names::OPERATION_NAME, operation),
            KeyValue::new(names::DESTINATION_TEMPLATE, destination),
        ];
        if let Some(error_type) = error_type {
            attributes.push(KeyValue::new(names::ERROR_TYPE, error_type.to_owned()));
        }
        self.sent.add(1, &attributes);
        self.operations.record(took.as_secs_f64(), &attributes);
    }

    /// The depth of a work queue's parked queue. The attributes also tell which queue that is,
    /// because it may have any name.
    pub(crate) fn parked_depth(&self, work_queue: &str, parked: &str, depth: u64) {
        let queue = KeyValue::new(names::DESTINATION_TEMPLATE, work_queue.to_owned());
        self.parked_depth
            .record(depth, &[queue, KeyValue::new(names::PARKED_QUEUE, parked.to_owned())]);
    }

    /// The depth of a namespace's stray queue.
    pub(crate) fn stray(&self, namespace: &str, depth: u64) {
        self.stray.record(depth, &[KeyValue::new(names::NAMESPACE, namespace.to_owned())]);
    }
}

/// One queue's metrics. Their attributes are built once.
#[derive(Debug, Clone)]
pub(crate) struct QueueMetrics {
    instruments: Instruments,
    queue: KeyValue,
    consumed: [KeyValue; 3],
    processed: [KeyValue; 3],
    classes: Values,
}

impl QueueMetrics {
    pub(crate) fn new(instruments: Instruments, queue: &str) -> Self {
        let queue = KeyValue::new(names::DESTINATION_TEMPLATE, Arc::<str>::from(queue));
        let operation = |name: &'static str| {
            [
                KeyValue::new(names::SYSTEM, names::RABBITMQ),
                KeyValue::new(names::OPERATION_NAME, name),
                queue.clone(),
            ]
        };
        Self {
            instruments,
            consumed: operation("receive"),
            processed: operation("process"),
            queue,
            classes: Values::default(),
        }
    }

    pub(crate) fn consuming(&self, is_consuming: bool) {
        self.instruments
            .consuming
            .record(u64::from(is_consuming), std::slice::from_ref(&self.queue));
    }

    pub(crate) fn received(&self) {
        self.instruments.consumed.add(1, &self.consumed);
        self.instruments.in_flight.add(1, std::slice::from_ref(&self.queue));
    }

    pub(crate) fn released(&self) {
        self.instruments.in_flight.add(-1, std::slice::from_ref(&self.queue));
    }

    pub(crate) fn wait_ended(&self, lateness: Duration) {
        self.instruments.lateness.record(lateness.as_secs_f64(), std::slice::from_ref(&self.queue));
    }

    pub(crate) fn processed(&self, took: Duration, error_type: Option<&str>) {
        let seconds = took.as_secs_f64();
        match error_type {
            None => self.instruments.process.record(seconds, &self.processed),
            Some(error_type) => {
                let [system, operation, queue] = self.processed.clone();
                // As in spans: a service may take a text for a class.
                let class = self.classes.bounded(cut(error_type, MAX_CLASS_BYTES));
                let error_type = KeyValue::new(names::ERROR_TYPE, class);
                self.instruments.process.record(seconds, &[system, operation, queue, error_type]);
            }
        }
    }

    /// An ack or a reject was passed to the channel, or the channel was already closed.
    pub(crate) fn operated(
        &self,
        operation: &'static str,
        took: Duration,
        error_type: Option<&'static str>,
    ) {
        let seconds = took.as_secs_f64();
        let operation = KeyValue::new(names::OPERATION_NAME, operation);
        let [system, _, queue] = &self.processed;
        match error_type.map(|error_type| KeyValue::new(names::ERROR_TYPE, error_type)) {
            None => self
                .instruments
                .operations
                .record(seconds, &[system.clone(), operation, queue.clone()]),
            Some(error_type) => {
                let attributes = [system.clone(), operation, queue.clone(), error_type];
                self.instruments.operations.record(seconds, &attributes);
            }
        }
    }

    pub(crate) fn sent(&self, destination: &str, took: Duration, error_type: Option<&str>) {
        self.instruments.sent("send", destination.to_owned(), took, error_type);
    }

    /// A replayed message was settled. Counted if this ends its chain.
    pub(crate) fn replayed(&self, outcome: Outcome) {
        if outcome.is_final() {
            let attributes = [self.queue.clone(), KeyValue::new(names::OUTCOME, outcome.as_str())];
            self.instruments.replayed.add(1, &attributes);
        }
    }

    /// A delivery was settled. If this ends the chain, its length is recorded.
    pub(crate) fn settled(&self, outcome: Outcome, attempts: u32, age: Duration) {
        let attributes = [self.queue.clone(), KeyValue::new(names::OUTCOME, outcome.as_str())];
        if outcome.is_defer() {
            let [queue, outcome] = attributes.clone();
            self.instruments.settled.add(1, &[queue, outcome, KeyValue::new(names::DEFER, true)]);
        } else {
            self.instruments.settled.add(1, &attributes);
        }
        if outcome.is_final() {
            self.instruments.chain_attempts.record(u64::from(attempts), &attributes);
            self.instruments.chain_seconds.record(age.as_secs_f64(), &attributes);
        }
        if let Outcome::Park(reason) = outcome {
            let attributes = [self.queue.clone(), KeyValue::new(names::REASON, reason.as_str())];
            self.instruments.parked.add(1, &attributes);
        }
    }
}

/// A publisher's metrics.
#[derive(Debug, Clone)]
pub(crate) struct PublisherMetrics {
    instruments: Instruments,
    /// Messages may go to queues that live as short as a request.
    destinations: Values,
}

impl PublisherMetrics {
    pub(crate) fn new(instruments: Instruments) -> Self {
        Self { instruments, destinations: Values::default() }
    }

    /// A message was published, or could not be. Its destination is its exchange, or the queue if
    /// it goes to the default exchange.
    pub(crate) fn published(
        &self,
        destination: &str,
        took: Duration,
        error_type: Option<&'static str>,
    ) {
        self.instruments.sent("publish", self.destinations.bounded(destination), took, error_type);
    }
}
