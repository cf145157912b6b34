//! The span of a message that an operator sends back.

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::trace::{Link, Span as _, SpanKind, Status, TraceState, Tracer};
use opentelemetry::{KeyValue, global::BoxedSpan};

use super::{names, propagation};

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
        let old = traceparent.and_then(|text| propagation::parse(text, TraceState::default()));
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
