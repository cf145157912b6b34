//! The spans of a chain. They are flat: every attempt and every wait is a child of the producer's context.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::trace::{Link, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, TraceState, Tracer};
use opentelemetry::{Context, KeyValue};

use super::names;
use super::propagation::{self, Incoming};
use crate::failure::Failure;
use crate::message::{Delivery, HeaderValue};
use crate::random::random;
use crate::retry::decision::Reason;
use crate::retry::ledger::{MAX_MESSAGE_BYTES, cut};
use crate::retry::outcome::Outcome;
use crate::timestamp::Timestamp;
use crate::wait::Path;
use crate::wait::ladder::legs;
use crate::wire::names::{BAGGAGE, PREVIOUS_ATTEMPT, TRACED_SINCE};
use crate::wire::{Ignored, TraceHeaders};

/// One queue's tracer, with the attributes that its spans share.
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
    /// What they link to: the previous attempt, and the old trace after a split.
    links: Vec<SpanContext>,
    /// Whether the producer gave no context. Then the first span becomes the root, and the first hop stores it.
    rootless: bool,
    /// When the present trace began. Without a split, this is when the chain was first seen.
    since: Timestamp,
    first_seen: Timestamp,
    baggage: Option<String>,
    /// Identifies the chain on every span.
    pub(crate) id: Cow<'static, str>,
}

impl QueueTracer {
    pub(crate) fn new(queue: &str, server: Option<(&str, u16)>, max_attempts: u64, max_age: Duration) -> Self {
        let mut common = vec![
            KeyValue::new(names::SYSTEM, names::RABBITMQ),
            KeyValue::new(names::DESTINATION_TEMPLATE, Arc::<str>::from(queue)),
            KeyValue::new(names::MAX_ATTEMPTS, i64::try_from(max_attempts).unwrap_or(i64::MAX)),
        ];
        if let Some((address, port)) = server {
            common.push(KeyValue::new(names::SERVER_ADDRESS, Arc::<str>::from(address)));
            common.push(KeyValue::new(names::SERVER_PORT, i64::from(port)));
        }
        Self {
            tracer: Arc::new(global::tracer("rehop")),
            queue: queue.to_owned(),
            process: format!("process {queue}"),
            common: common.into(),
            max_age,
        }
    }

    /// Reads the chain's context. A chain older than the limit continues in a new trace that links back.
    pub(crate) fn chain(&self, delivery: &Delivery, now: Timestamp, ignored: &mut Vec<Ignored>) -> Chain {
        let Incoming { parent, baggage } = propagation::read(delivery, ignored);
        let is_copy = delivery.ledger.is_copy;
        let text = |name| if is_copy { delivery.header(name).map(HeaderValue::of) } else { None };
        // After a first attempt that was the root, the previous attempt is the parent itself.
        let previous = text(PREVIOUS_ATTEMPT)
            .and_then(|value| propagation::parse(value.as_text()?, TraceState::default()))
            .filter(|previous| parent.as_ref().is_none_or(|parent| parent.span_id() != previous.span_id()));
        let since = text(TRACED_SINCE)
            .and_then(|value| value.as_text()?.parse().ok())
            .map_or(delivery.ledger.first_seen, Timestamp::from_millis);
        let first_seen = delivery.ledger.first_seen;
        let id = chain_id(delivery, parent.as_ref());
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
        Chain {
            parent: propagation::with_baggage(context, baggage.as_deref()),
            links,
            rootless,
            since,
            first_seen,
            baggage,
            id,
        }
    }

    fn start(&self, chain: &Chain, name: Cow<'static, str>, kind: SpanKind, attributes: Vec<KeyValue>) -> SpanBuilder {
        let mut all = Vec::with_capacity(self.common.len() + attributes.len() + 1);
        all.extend_from_slice(&self.common);
        all.push(KeyValue::new(names::CHAIN_ID, chain.id.clone()));
        all.extend(attributes);
        SpanBuilder::from_name(name).with_kind(kind).with_attributes(all)
    }

    /// The backdated span of a wait that is over. Only for the first delivery after the wait: on a redelivery the span has
    /// already been written.
    pub(crate) fn waited(&self, chain: &Chain, delivery: &Delivery, queue: &str, received: Timestamp) {
        let Some(wait) = delivery.ledger.wait else { return };
        let mut attributes = vec![
            KeyValue::new(names::HOP, i64::from(delivery.ledger.hop)),
            KeyValue::new(names::DELAY_MS, millis(wait.due.since(wait.since))),
            KeyValue::new(names::LATENESS_MS, millis(received.since(wait.due))),
        ];
        if let Path::Ladder { rung } = wait.path {
            attributes.push(KeyValue::new(names::LEGS, legs(wait.leg, rung).count() as i64));
        }
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

    /// Opens the span of an attempt, or of a decision without an attempt.
    pub(crate) fn process(&self, chain: &Chain, delivery: &Delivery) -> ProcessSpan {
        let attributes = vec![
            KeyValue::new(names::OPERATION_NAME, "process"),
            KeyValue::new(names::OPERATION_TYPE, "process"),
            KeyValue::new(names::ATTEMPT, i64::from(delivery.ledger.attempt())),
            KeyValue::new(names::HOP, i64::from(delivery.ledger.hop)),
        ];
        let links = chain.links.iter().map(|context| Link::with_context(context.clone())).collect();
        let builder =
            self.start(chain, Cow::Owned(self.process.clone()), SpanKind::Consumer, attributes).with_links(links);
        let context = chain.parent.with_span(self.tracer.build_with_context(builder, &chain.parent));
        let span = context.span();
        if span.is_recording() {
            let (exchange, routing_key) = (delivery.origin.exchange.as_str(), delivery.origin.routing_key.as_str());
            let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let destination = format!("{exchange}:{routing_key}:{}", self.queue);
            let mut attributes = vec![
                KeyValue::new(names::DESTINATION_NAME, destination),
                KeyValue::new(names::ROUTING_KEY, routing_key.to_owned()),
                KeyValue::new(names::DELIVERY_TAG, number(delivery.delivery_tag)),
                KeyValue::new(names::BODY_SIZE, number(delivery.body.len() as u64)),
            ];
            let properties = &delivery.properties;
            attributes.extend(
                [(names::MESSAGE_ID, properties.message_id()), (names::CONVERSATION_ID, properties.correlation_id())]
                    .into_iter()
                    .filter_map(|(name, id)| Some(KeyValue::new(name, id.as_ref()?.to_string()))),
            );
            span.set_attributes(attributes);
        }
        ProcessSpan { context }
    }

    /// The span of a settlement or a copy, a child of the attempt that led to it. An unsampled attempt has none, because these
    /// spans are most of the cost of tracing when little is sampled.
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
        // Where the attempt is the chain's root, it is also the parent. Jaeger shows a span that links to its parent as one that follows
        // from it, and no longer as its child (2.20).
        let origin = chain.parent.span().span_context().clone();
        if operation == "send" && origin.is_valid() {
            builder = builder.with_links(vec![Link::with_context(origin)]);
        }
        let span = self.tracer.build_with_context(builder, &process.context);
        ClientSpan { context: Some(process.context.with_span(span)) }
    }
}

impl Chain {
    /// The chain of the next attempt, if this process makes it: what a copy would carry in its headers.
    pub(crate) fn next(&self, process: &ProcessSpan) -> Self {
        let attempt = process.context.span().span_context().clone();
        let recorded = attempt.is_valid() && attempt.span_id() != self.parent.span().span_context().span_id();
        let parent = match self.rootless && attempt.is_valid() {
            true => propagation::with_baggage(
                Context::new().with_remote_span_context(attempt.clone()),
                self.baggage.as_deref(),
            ),
            false => self.parent.clone(),
        };
        // After a first attempt that was the root, the previous attempt is the parent itself.
        let links = if recorded && !self.rootless { vec![attempt.clone()] } else { Vec::new() };
        Self { parent, links, rootless: self.rootless && !attempt.is_valid(), ..self.clone() }
    }

    /// The headers of a copy: the parent of the next spans, and the attempt that made the copy.
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
            headers.push((BAGGAGE, baggage.clone()));
        }
        // If nothing is recorded, the attempt's context is its parent's.
        if attempt.is_valid() && attempt.span_id() != self.parent.span().span_context().span_id() {
            headers.push((PREVIOUS_ATTEMPT, propagation::format(attempt)));
        }
        if self.since != self.first_seen {
            headers.push((TRACED_SINCE, self.since.as_millis().to_string()));
        }
        TraceHeaders(headers)
    }
}

/// The id in the header, else one that is the same on each delivery, else a new one.
fn chain_id(delivery: &Delivery, parent: Option<&SpanContext>) -> Cow<'static, str> {
    if let Some(id) = &delivery.ledger.chain_id {
        return Cow::Owned(id.clone());
    }
    match (parent, delivery.properties.message_id()) {
        (Some(parent), _) => Cow::Owned(format!("{}-{}", parent.trace_id(), parent.span_id())),
        (None, Some(id)) if !id.as_str().is_empty() => Cow::Owned(id.to_string()),
        (None, _) => Cow::Owned(format!("{:016x}", random::<u64>())),
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

    /// Ends it with the decision.
    pub(crate) fn end(&self, outcome: Outcome, failure: Option<&Failure>, decided_at: SystemTime) {
        let reason = outcome.reason();
        let span = self.context.span();
        if span.is_recording() {
            span.set_attribute(KeyValue::new(names::OUTCOME, outcome.as_str()));
            if let Some(delay) = outcome.delay() {
                span.set_attribute(KeyValue::new(names::DELAY_MS, millis(delay)));
            }
            if let Some(reason) = reason {
                span.set_attribute(KeyValue::new(names::REASON, reason.as_str()));
            }
            if outcome.is_defer() {
                span.set_attribute(KeyValue::new(names::DEFER, true));
            }
            let failed = failure.filter(|_| !outcome.is_defer());
            let error_type = failed.map(Failure::class).or_else(|| reason.map(Reason::as_str));
            if let Some(error_type) = error_type {
                span.set_attribute(KeyValue::new(names::ERROR_TYPE, error_type.to_owned()));
                span.set_attribute(KeyValue::new(names::FINAL, outcome.is_final()));
                let text = failed.map_or(error_type, Failure::message);
                span.set_status(Status::error(cut(text, MAX_MESSAGE_BYTES).to_owned()));
            }
        }
        span.end_with_timestamp(decided_at);
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
