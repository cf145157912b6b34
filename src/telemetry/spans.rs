//! The spans of a chain. Flat: every attempt and every wait is a child of the producer's context.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::trace::{Link, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, TraceState, Tracer};
use opentelemetry::{Context, KeyValue};

use super::metrics::Outcome;
use super::names;
use super::propagation::{self, Incoming};
use crate::failure::Failure;
use crate::headers::{Ignored, TraceHeaders};
use crate::ledger::{MAX_MESSAGE_BYTES, cut};
use crate::message::{Arrival, HeaderValue};
use crate::policy::Reason;
use crate::timestamp::Timestamp;

/// The span of the attempt before, in the form of a `traceparent`.
const PREVIOUS_ATTEMPT: &str = "rehop-previous-attempt";
/// When the chain's present trace began, in milliseconds since the epoch.
const TRACED_SINCE: &str = "rehop-traced-since";

/// One queue's tracer, with what its spans have in common.
#[derive(Clone)]
pub(crate) struct QueueTracer {
    tracer: Arc<BoxedTracer>,
    queue: String,
    process: String,
    common: Arc<[KeyValue]>,
    max_age: Duration,
}

/// A chain as this delivery continues it.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    /// Parent of this delivery's spans.
    parent: Context,
    /// What they link to: the attempt before, and the old trace after a split.
    links: Vec<SpanContext>,
    /// The producer gave no context: the first span becomes the root, and the first hop writes it down.
    rootless: bool,
    since: Timestamp,
    baggage: Option<String>,
    /// Names the chain on every span.
    pub(crate) id: Cow<'static, str>,
}

impl QueueTracer {
    pub(crate) fn new(queue: &str, server: (&str, u16), max_attempts: u64, max_age: Duration) -> Self {
        let (address, port) = server;
        let common = vec![
            KeyValue::new(names::SYSTEM, names::RABBITMQ),
            KeyValue::new(names::DESTINATION_TEMPLATE, Arc::<str>::from(queue)),
            KeyValue::new(names::SERVER_ADDRESS, Arc::<str>::from(address)),
            KeyValue::new(names::SERVER_PORT, i64::from(port)),
            KeyValue::new(names::MAX_ATTEMPTS, i64::try_from(max_attempts).unwrap_or(i64::MAX)),
        ];
        Self {
            tracer: Arc::new(global::tracer("rehop")),
            queue: queue.to_owned(),
            process: format!("process {queue}"),
            common: common.into(),
            max_age,
        }
    }

    /// Reads the chain's context. A chain older than the limit goes on in a new trace that links back.
    pub(crate) fn chain(&self, arrival: &Arrival, now: Timestamp, ignored: &mut Vec<Ignored>) -> Chain {
        let Incoming { parent, baggage } = propagation::read(&arrival.envelope, ignored);
        let home = arrival.ledger.hop > 0;
        let text = |name| if home { arrival.envelope.header(name).map(HeaderValue::of) } else { None };
        // After a first attempt that was the root, the attempt before is the parent itself.
        let previous = text(PREVIOUS_ATTEMPT)
            .and_then(|value| propagation::parse(value.as_text()?, TraceState::default()))
            .filter(|previous| parent.as_ref().is_none_or(|parent| parent.span_id() != previous.span_id()));
        let since = text(TRACED_SINCE)
            .and_then(|value| value.as_text()?.parse().ok())
            .map_or(arrival.ledger.first_seen, Timestamp::from_millis);
        let id = chain_id(arrival, parent.as_ref());
        let mut links: Vec<_> = previous.into_iter().collect();
        let split = now.since(since) > self.max_age;
        let parent = match parent {
            Some(origin) if split => {
                links.insert(0, origin);
                None
            }
            parent => parent,
        };
        let since = if split { now } else { since };
        let rootless = parent.is_none();
        let context = parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent));
        Chain { parent: propagation::with_baggage(context, baggage.as_deref()), links, rootless, since, baggage, id }
    }

    fn start(&self, chain: &Chain, name: Cow<'static, str>, kind: SpanKind, attributes: Vec<KeyValue>) -> SpanBuilder {
        let mut all = Vec::with_capacity(self.common.len() + attributes.len() + 1);
        all.extend_from_slice(&self.common);
        all.push(KeyValue::new(names::CHAIN_ID, chain.id.clone()));
        all.extend(attributes);
        SpanBuilder::from_name(name).with_kind(kind).with_attributes(all)
    }

    /// The span of a wait that is over, backdated. Only for a message that is home for the first time: one that was given
    /// back since had its span then.
    pub(crate) fn waited(&self, chain: &Chain, arrival: &Arrival, queue: &str, received: Timestamp) {
        let Some(wait) = arrival.ledger.wait else { return };
        let mut attributes = vec![
            KeyValue::new(names::HOP, i64::from(arrival.ledger.hop)),
            KeyValue::new(names::DELAY_MS, millis(wait.due.since(wait.since))),
            KeyValue::new(names::LATENESS_MS, millis(received.since(wait.due))),
        ];
        let skewed = wait.since > received;
        if skewed {
            attributes.push(KeyValue::new(names::CLOCK_SKEW, true));
        }
        let started = if skewed { received } else { wait.since };
        let builder = self
            .start(chain, Cow::Owned(format!("wait {queue}")), SpanKind::Internal, attributes)
            .with_start_time(SystemTime::from(started));
        let context = chain.parent.with_span(self.tracer.build_with_context(builder, &chain.parent));
        context.span().end_with_timestamp(SystemTime::from(received));
    }

    /// Opens the span of an attempt, or of what is decided without one.
    pub(crate) fn process(&self, chain: &Chain, arrival: &Arrival) -> ProcessSpan {
        let envelope = &arrival.envelope;
        let attributes = vec![
            KeyValue::new(names::OPERATION_NAME, "process"),
            KeyValue::new(names::OPERATION_TYPE, "process"),
            KeyValue::new(names::ATTEMPT, i64::from(arrival.ledger.attempt())),
            KeyValue::new(names::HOP, i64::from(arrival.ledger.hop)),
        ];
        let links = chain.links.iter().map(|context| Link::with_context(context.clone())).collect();
        let builder =
            self.start(chain, Cow::Owned(self.process.clone()), SpanKind::Consumer, attributes).with_links(links);
        let context = chain.parent.with_span(self.tracer.build_with_context(builder, &chain.parent));
        let span = context.span();
        if span.is_recording() {
            let (exchange, routing_key) = (arrival.exchange.as_str(), arrival.routing_key.as_str());
            let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let destination = format!("{exchange}:{routing_key}:{}", self.queue);
            let mut attributes = vec![
                KeyValue::new(names::DESTINATION_NAME, destination),
                KeyValue::new(names::ROUTING_KEY, routing_key.to_owned()),
                KeyValue::new(names::DELIVERY_TAG, number(envelope.delivery_tag)),
                KeyValue::new(names::BODY_SIZE, number(envelope.body.len() as u64)),
            ];
            let properties = &envelope.properties;
            attributes.extend(
                [(names::MESSAGE_ID, properties.message_id()), (names::CONVERSATION_ID, properties.correlation_id())]
                    .into_iter()
                    .filter_map(|(name, id)| Some(KeyValue::new(name, id.as_ref()?.to_string()))),
            );
            span.set_attributes(attributes);
        }
        ProcessSpan { context }
    }

    /// The span of a settlement or a copy: a child of the attempt that led to it. An attempt that is not sampled has none:
    /// they are most of what tracing costs where little is sampled.
    pub(crate) fn client(
        &self,
        chain: &Chain,
        process: &ProcessSpan,
        operation: &'static str,
        destination: &str,
    ) -> ClientSpan {
        if !process.context.span().span_context().is_sampled() {
            return ClientSpan { context: None };
        }
        let kind = if operation == "send" { "send" } else { "settle" };
        let attributes = vec![
            KeyValue::new(names::OPERATION_NAME, operation),
            KeyValue::new(names::OPERATION_TYPE, kind),
            KeyValue::new(names::DESTINATION_NAME, destination.to_owned()),
        ];
        let mut builder =
            self.start(chain, Cow::Owned(format!("{operation} {destination}")), SpanKind::Client, attributes);
        if operation == "send" {
            let origin = chain.parent.span().span_context().clone();
            let origin = if origin.is_valid() { origin } else { process.context.span().span_context().clone() };
            builder = builder.with_links(vec![Link::with_context(origin)]);
        }
        let span = self.tracer.build_with_context(builder, &process.context);
        ClientSpan { context: Some(process.context.with_span(span)) }
    }
}

impl Chain {
    /// What a copy carries on: the parent of what comes, and the attempt that it comes from.
    pub(crate) fn headers(&self, process: &ProcessSpan) -> TraceHeaders {
        let span = process.context.span();
        let attempt = span.span_context();
        let mut headers = if self.rootless {
            propagation::headers_of(&Context::new().with_remote_span_context(attempt.clone()))
        } else {
            let origin = self.parent.span().span_context().clone();
            propagation::headers_of(&Context::new().with_remote_span_context(origin))
        };
        if let Some(baggage) = &self.baggage {
            headers.push((propagation::BAGGAGE, baggage.clone()));
        }
        // Where nothing is recorded, the attempt's context is its parent's.
        if attempt.is_valid() && attempt.span_id() != self.parent.span().span_context().span_id() {
            headers.push((PREVIOUS_ATTEMPT, propagation::format(attempt)));
        }
        headers.push((TRACED_SINCE, self.since.as_millis().to_string()));
        TraceHeaders(headers)
    }
}

/// From the header, else something that is the same on each delivery, else something new.
fn chain_id(arrival: &Arrival, parent: Option<&SpanContext>) -> Cow<'static, str> {
    if let Some(id) = &arrival.ledger.chain_id {
        return Cow::Owned(id.clone());
    }
    match (parent, arrival.envelope.properties.message_id()) {
        (Some(parent), _) => Cow::Owned(format!("{}-{}", parent.trace_id(), parent.span_id())),
        (None, Some(id)) if !id.as_str().is_empty() => Cow::Owned(id.to_string()),
        (None, _) => Cow::Owned(format!("{:016x}", rand::random::<u64>())),
    }
}

/// The span of one attempt, and the context that its handler runs in.
pub(crate) struct ProcessSpan {
    context: Context,
}

impl ProcessSpan {
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Ends it with what was decided.
    pub(crate) fn end(
        &self,
        outcome: Outcome,
        reason: Option<Reason>,
        failure: Option<&Failure>,
        delay: Option<Duration>,
    ) {
        let span = self.context.span();
        if span.is_recording() {
            span.set_attribute(KeyValue::new(names::OUTCOME, outcome.as_str()));
            if let Some(delay) = delay {
                span.set_attribute(KeyValue::new(names::DELAY_MS, millis(delay)));
            }
            if let Some(reason) = reason {
                span.set_attribute(KeyValue::new(names::REASON, reason.as_str()));
            }
            let error_type = failure.map(Failure::class).or_else(|| reason.map(Reason::as_str));
            if let Some(error_type) = error_type {
                span.set_attribute(KeyValue::new(names::ERROR_TYPE, error_type.to_owned()));
                span.set_attribute(KeyValue::new(names::FINAL, outcome.is_final()));
                let text = failure.map_or(error_type, Failure::message);
                span.set_status(Status::error(cut(text, MAX_MESSAGE_BYTES).to_owned()));
            }
        }
        span.end();
    }
}

/// The span of one settlement or copy, if it is sampled. It ends when it is dropped.
pub(crate) struct ClientSpan {
    context: Option<Context>,
}

impl ClientSpan {
    pub(crate) fn failed(&self, error_type: &'static str, text: String) {
        if let Some(context) = &self.context {
            context.span().set_attribute(KeyValue::new(names::ERROR_TYPE, error_type));
            context.span().set_status(Status::error(text));
        }
    }
}

impl Drop for ClientSpan {
    fn drop(&mut self) {
        if let Some(context) = &self.context {
            context.span().end();
        }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
