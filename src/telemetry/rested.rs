//! The span of a message's rest in a parked, stray or discarded queue, in the trace of its chain.

use std::time::SystemTime;

use opentelemetry::Context;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::{Link, SpanBuilder, SpanContext, TraceContextExt, TraceState};

use super::chain::named_after;
use super::{ids, propagation};
use crate::wire::names::{PREVIOUS_ATTEMPT, TRACEPARENT};

/// What tells which trace a message's chain is in.
#[derive(Debug, Clone, Copy)]
pub struct TraceOf<'a> {
    /// Its trace context.
    pub traceparent: Option<&'a str>,
    /// The id of its chain.
    pub chain: &'a str,
    /// Its work queue.
    pub queue: &'a str,
    /// Its `message_id` property.
    pub message_id: Option<&'a str>,
    /// Its `timestamp` property.
    pub timestamp: Option<u64>,
}

/// When a span of an operator ends that began at this time, if that is now.
pub fn ended(started: SystemTime) -> SystemTime {
    super::spans::ended(started)
}

/// The name of a queue in the name of a span.
pub fn one_line(queue: &str) -> String {
    super::titles::one_line(queue)
}

/// Builds a span in the trace of a message's chain, and says which headers its copy carries on, so
/// that the next attempt is in this trace and links to the span.
pub fn build(
    tracer: &BoxedTracer,
    mut builder: SpanBuilder,
    of: TraceOf<'_>,
) -> (Context, Vec<(&'static str, String)>) {
    let origin = of.traceparent.and_then(|text| propagation::parse(text, TraceState::default()));
    let (parent, trace) = match &origin {
        Some(origin) => ids::beside(origin, &Context::new()),
        None => {
            let trace = ids::of_message(of.queue, of.message_id, of.timestamp);
            (Context::new(), trace.filter(|_| ids::are_chosen()))
        }
    };
    // As every span without a parent.
    let producer = origin.as_ref().filter(|it| trace.is_some() && named_after(it) == of.chain);
    builder.links.get_or_insert_default().extend(producer.cloned().map(Link::with_context));
    let context = ids::build(tracer, builder, &parent, (trace, origin.as_ref()));
    let headers = headers(context.span().span_context(), origin.as_ref());
    (context, headers)
}

fn headers(span: &SpanContext, origin: Option<&SpanContext>) -> Vec<(&'static str, String)> {
    // Without a provider, the span's context is its parent's.
    if !span.is_valid() || origin.is_some_and(|origin| origin.span_id() == span.span_id()) {
        return Vec::new();
    }
    let first = origin.is_none().then(|| (TRACEPARENT, propagation::format(span)));
    first.into_iter().chain([(PREVIOUS_ATTEMPT, propagation::format(span))]).collect()
}
