//! What an operator leaves in traces and metrics.

use opentelemetry::KeyValue;
use opentelemetry::global::BoxedSpan;
use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::metrics::Counter;
use opentelemetry::trace::{Link, Span as _, SpanKind, Status, TraceState, Tracer};
use rehop::internals::{Values, attributes as names, parse_traceparent};

/// Makes the spans of one replay or edit. Each is in a trace of its own that links to its message's: the message keeps its trace.
pub(crate) struct ReplayTracer {
    tracer: BoxedTracer,
    operation: &'static str,
    run: String,
}

impl ReplayTracer {
    pub(crate) fn new(operation: &'static str, run: &str) -> Self {
        Self { tracer: global::tracer("rehop"), operation, run: run.to_owned() }
    }

    /// From here until the confirm.
    pub(crate) fn start(&self, queue: &str, chain: &str, traceparent: Option<&str>) -> ReplaySpan {
        let old = traceparent.and_then(|text| parse_traceparent(text, TraceState::default()));
        let builder = self
            .tracer
            .span_builder(format!("{} {queue}", self.operation))
            .with_kind(SpanKind::Producer)
            .with_links(old.into_iter().map(Link::with_context).collect())
            .with_attributes([
                KeyValue::new(names::SYSTEM, names::RABBITMQ),
                KeyValue::new(names::OPERATION_NAME, self.operation),
                KeyValue::new(names::OPERATION_TYPE, "send"),
                KeyValue::new(names::DESTINATION_TEMPLATE, queue.to_owned()),
                KeyValue::new(names::CHAIN_ID, chain.to_owned()),
                KeyValue::new(names::REPLAY_RUN, self.run.clone()),
            ]);
        ReplaySpan(self.tracer.build(builder))
    }
}

/// Ends when it is dropped.
pub(crate) struct ReplaySpan(BoxedSpan);

impl ReplaySpan {
    pub(crate) fn failed(&mut self, error_type: &'static str) {
        self.0.set_attribute(KeyValue::new(names::ERROR_TYPE, error_type));
        self.0.set_status(Status::error(error_type));
    }
}

impl Drop for ReplaySpan {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The metric of one operation of an operator. Its attributes are built once.
#[derive(Debug, Clone)]
pub(crate) struct MoveMetrics {
    moved: Counter<u64>,
    attributes: Vec<KeyValue>,
    /// Bounds how many queues are told apart: messages name them, and anyone may have written a message.
    restored_to: Values,
}

impl MoveMetrics {
    /// `resting` is the queue in which the messages rest. Parked ones belong to a work queue; stray and discarded ones may belong to any,
    /// and only their headers, which anyone can write, say to which.
    pub(crate) fn new(operation: &'static str, resting: &str, work_queue: Option<&str>) -> Self {
        let moved = global::meter("rehop")
            .u64_counter(names::PARKED_MOVED)
            .with_unit("{message}")
            .with_description("Messages that operators moved, by operation")
            .build();
        let mut attributes =
            vec![KeyValue::new(names::OPERATION, operation), KeyValue::new(names::PARKED_QUEUE, resting.to_owned())];
        attributes.extend(work_queue.map(|queue| KeyValue::new(names::DESTINATION_TEMPLATE, queue.to_owned())));
        Self { moved, attributes, restored_to: Values::default() }
    }

    /// So many messages were published elsewhere, or imported, and confirmed.
    pub(crate) fn moved(&self, count: u64) {
        self.moved.add(count, &self.attributes);
    }

    /// A message was moved back to this queue. It counts under this queue's name, not the discarded queue's.
    pub(crate) fn restored(&self, queue: &str) {
        let queue = KeyValue::new(names::PARKED_QUEUE, self.restored_to.bounded(queue));
        let others = self.attributes.iter().filter(|it| it.key != queue.key).cloned();
        let attributes: Vec<_> = others.chain([queue.clone()]).collect();
        self.moved.add(1, &attributes);
    }
}
