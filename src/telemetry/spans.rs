//! The spans of a chain: the attempts before its first wait are children of the producer's context.
//! Each wait is in the same trace and has no parent, and the attempts after it are below it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::trace::{
    Link, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, Tracer,
};
use opentelemetry::{Context, KeyValue};

use super::chain::Chain;
use super::recorded::Recorded;
use super::titles::Titles;
use super::{ids, names, unrecorded};
use crate::clock;
use crate::failure::Failure;
use crate::message::Delivery;
use crate::retry::decision::Reason;
use crate::retry::ledger::{MAX_CLASS_BYTES, MAX_MESSAGE_BYTES, cut};
use crate::retry::outcome::Outcome;
use crate::settings::address::Server;
use crate::timestamp::Timestamp;
use crate::wait::Path;
use crate::wait::ladder::legs;
use crate::wire::Ignored;

/// One queue's tracer, with the attributes that its spans share.
#[derive(Clone)]
pub(crate) struct QueueTracer {
    tracer: Arc<BoxedTracer>,
    queue: String,
    titles: Arc<Titles>,
    common: Arc<[KeyValue]>,
    max_age: Duration,
    /// The waits of the messages that have gone back to the queue.
    requeued: Arc<Recorded<SpanContext>>,
    /// When the broker has confirmed the copies of the attempts.
    confirmed: Arc<Recorded<SystemTime>>,
}

/// What is known of a delivery that came back although this process has not given it back: its
/// process died or lost its connection, or another process gave it back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CameBack {
    /// How many deliveries before this one may have ended so.
    pub(crate) unanswered: u32,
    /// How often the queue may deliver the message again, if it counts that.
    pub(crate) limit: Option<u32>,
}

/// The end of a chain in the parked queue, whether rehop or the broker put it there.
const PARKED: &str = "parked";

/// What a person knows of a message, and searches for.
fn message_id(delivery: &Delivery) -> Option<KeyValue> {
    let id = delivery.properties.message_id().as_ref()?;
    Some(KeyValue::new(names::MESSAGE_ID, id.to_string()))
}

pub(super) fn server_attributes(server: Option<&Server>) -> impl Iterator<Item = KeyValue> {
    server.into_iter().flat_map(|(host, port)| {
        let host = KeyValue::new(names::SERVER_ADDRESS, Arc::<str>::from(host.as_str()));
        [host, KeyValue::new(names::SERVER_PORT, i64::from(*port))]
    })
}

impl QueueTracer {
    pub(crate) fn new(
        queue: &str,
        server: Option<&Server>,
        (max_attempts, delays): (u32, &[Duration]),
        max_age: Duration,
    ) -> Self {
        let mut common = vec![
            KeyValue::new(names::SYSTEM, names::RABBITMQ),
            KeyValue::new(names::DESTINATION_TEMPLATE, Arc::<str>::from(queue)),
            KeyValue::new(names::MAX_ATTEMPTS, i64::from(max_attempts)),
        ];
        common.extend(server_attributes(server));
        Self {
            tracer: Arc::new(global::tracer("rehop")),
            queue: queue.to_owned(),
            titles: Arc::new(Titles::new(queue, delays)),
            common: common.into(),
            max_age,
            requeued: Arc::default(),
            confirmed: Arc::default(),
        }
    }

    /// With the tracer of a provider that is not the global one.
    #[cfg(all(test, feature = "otlp"))]
    pub(super) fn with_tracer(self, tracer: BoxedTracer) -> Self {
        Self { tracer: Arc::new(tracer), ..self }
    }

    #[cfg(all(test, feature = "otlp"))]
    pub(super) fn tracer_for_tests(&self) -> &BoxedTracer {
        &self.tracer
    }

    /// Reads the chain's context. A chain older than the limit continues in a new trace that links
    /// back.
    pub(crate) fn chain(
        &self,
        delivery: &Delivery,
        now: Timestamp,
        ignored: &mut Vec<Ignored>,
    ) -> Chain {
        Chain::read(
            (delivery, &self.queue),
            (now, self.max_age),
            |attempt| self.requeued.take(attempt),
            ignored,
        )
    }

    /// The message goes back to its queue. If it comes to this process again, its attempt is below
    /// the same wait.
    pub(crate) fn requeued(&self, chain: &Chain) {
        if let Some((attempt, wait)) = chain.recorded_wait() {
            self.requeued.keep(attempt, wait);
        }
    }

    fn build(&self, chain: &Chain, mut builder: SpanBuilder) -> Context {
        if let Some(producer) = chain.producer() {
            builder.links.get_or_insert_default().push(Link::with_context(producer));
        }
        ids::build(&self.tracer, builder, &chain.parent, (chain.trace(), chain.origin()))
    }

    fn start(
        &self,
        chain: &Chain,
        name: String,
        kind: SpanKind,
        attributes: Vec<KeyValue>,
    ) -> SpanBuilder {
        let mut all = Vec::with_capacity(self.common.len() + attributes.len() + 1);
        all.extend_from_slice(&self.common);
        all.push(KeyValue::new(names::CHAIN_ID, chain.id.clone()));
        all.extend(attributes);
        SpanBuilder::from_name(name).with_kind(kind).with_attributes(all)
    }

    /// The backdated span of a wait that is over, which the attempts after it are below. Only for
    /// the first delivery after the wait: on a redelivery the span has already been written.
    pub(crate) fn waited(
        &self,
        chain: &mut Chain,
        delivery: &Delivery,
        queue: &str,
        received: Timestamp,
    ) {
        let Some(wait) = delivery.ledger.wait else { return };
        let delay = wait.due.since(wait.since);
        let mut attributes = vec![
            KeyValue::new(names::DESTINATION_NAME, queue.to_owned()),
            KeyValue::new(names::HOP, i64::from(delivery.ledger.hop)),
            KeyValue::new(names::DELAY_MS, millis(delay)),
            KeyValue::new(names::LATENESS_MS, millis(received.since(wait.due))),
        ];
        attributes.extend(message_id(delivery));
        if let Path::Ladder { rung } = wait.path {
            attributes.push(KeyValue::new(names::LEGS, legs(wait.leg, rung).count() as i64));
        }
        // It begins when the broker has its copy. A process that has not sent it only knows when it
        // was written.
        let confirmed = chain.previous().and_then(|attempt| self.confirmed.take(attempt));
        let since = confirmed.unwrap_or_else(|| chain.waiting_since(wait.since));
        let skewed = Timestamp::from(since) > received;
        if skewed {
            attributes.push(KeyValue::new(names::CLOCK_SKEW, true));
        }
        let started = if skewed { received.into() } else { since };
        let builder = self
            .start(chain, self.titles.waited(delay), SpanKind::Internal, attributes)
            .with_start_time(started);
        let context = self.build(chain, builder);
        context.span().end_with_timestamp(ended_at(received.into(), started));
        chain.waited(context.span().span_context());
    }

    /// The span of a delivery that came back without an answer from this process, before its
    /// handler starts: if the process dies, nothing else tells of it. It is as short as can be, and
    /// the attempt is below it. Returns whether it is recorded.
    pub(crate) fn came_back(
        &self,
        chain: &mut Chain,
        delivery: &Delivery,
        CameBack { unanswered, limit }: CameBack,
    ) -> bool {
        let ledger = &delivery.ledger;
        let is_last = limit.is_some_and(|limit| ledger.redeliveries.unwrap_or(0) >= limit);
        let mut attributes = vec![
            KeyValue::new(names::OPERATION_NAME, "receive"),
            KeyValue::new(names::OPERATION_TYPE, "receive"),
            KeyValue::new(names::DESTINATION_NAME, self.queue.clone()),
            KeyValue::new(names::ATTEMPT, i64::from(ledger.attempt())),
            KeyValue::new(names::HOP, i64::from(ledger.hop)),
            KeyValue::new(names::UNANSWERED, i64::from(unanswered)),
            KeyValue::new(names::LAST_DELIVERY, is_last),
            KeyValue::new(names::ERROR_TYPE, "unanswered"),
        ];
        attributes
            .extend(limit.map(|limit| KeyValue::new(names::DELIVERY_LIMIT, i64::from(limit))));
        attributes.extend(message_id(delivery));
        // If nothing follows, the broker has parked it, and nobody else says so.
        attributes.extend(is_last.then(|| ended_as(PARKED)).into_iter().flatten());
        // As short as it is, it would never be within a span of another host.
        chain.set_apart();
        let now = clock::date();
        let builder = self
            .start(
                chain,
                self.titles.came_back(ledger.attempt(), is_last),
                SpanKind::Client,
                attributes,
            )
            .with_start_time(now);
        let context = self.build(chain, builder);
        let span = context.span();
        let is_recorded = span.is_recording();
        span.set_status(Status::error(came_back_text(unanswered, is_last)));
        span.end_with_timestamp(ended(now));
        if is_recorded {
            chain.came_back(span.span_context());
        }
        is_recorded
    }

    /// Opens the span of an attempt, or of a decision without an attempt.
    pub(crate) fn process(&self, chain: &Chain, delivery: &Delivery) -> ProcessSpan {
        let attributes = vec![
            KeyValue::new(names::OPERATION_NAME, "process"),
            KeyValue::new(names::OPERATION_TYPE, "process"),
            KeyValue::new(names::ATTEMPT, i64::from(delivery.ledger.attempt())),
            KeyValue::new(names::HOP, i64::from(delivery.ledger.hop)),
        ];
        let started = clock::date();
        // Jaeger shows a span that links to its parent as one that follows from it, and no longer
        // as its child (2.20).
        let parent = chain.parent.span().span_context().span_id();
        let links = chain.links.iter().filter(|link| link.span_id() != parent);
        let ledger = &delivery.ledger;
        let name = self.titles.attempt(ledger.attempt(), ledger.replay.is_some());
        let builder = self
            .start(chain, name, SpanKind::Consumer, attributes)
            .with_start_time(started)
            .with_links(links.cloned().map(Link::with_context).collect());
        let context = self.build(chain, builder);
        let span = context.span();
        if !chain.is_recorded(span.span_context()) {
            unrecorded::hint_once();
        }
        let (mut id, mut titles) = (None, None);
        if span.is_recording() {
            id = message_id(delivery);
            titles = Some(self.titles.clone());
            let (exchange, routing_key) =
                (delivery.origin.exchange.as_str(), delivery.origin.routing_key.as_str());
            let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            let destination = format!("{exchange}:{routing_key}:{}", self.queue);
            let mut attributes = vec![
                KeyValue::new(names::DESTINATION_NAME, destination),
                KeyValue::new(names::ROUTING_KEY, routing_key.to_owned()),
                KeyValue::new(names::DELIVERY_TAG, number(delivery.delivery_tag)),
                KeyValue::new(names::BODY_SIZE, number(delivery.body.len() as u64)),
            ];
            let conversation = delivery.properties.correlation_id().as_ref();
            attributes.extend(
                conversation.map(|id| KeyValue::new(names::CONVERSATION_ID, id.to_string())),
            );
            span.set_attributes(attributes.into_iter().chain(id.clone()));
        }
        ProcessSpan { context, started, message_id: id, titles }
    }

    /// The span of a copy that is sent, a child of the attempt that led to it. An unsampled attempt
    /// has none, because these spans are most of the cost of tracing when little is sampled.
    pub(crate) fn sent(
        &self,
        chain: &Chain,
        process: &ProcessSpan,
        destination: &str,
        outcome: Outcome,
    ) -> ClientSpan {
        if !process.is_sampled() {
            return ClientSpan::unsampled();
        }
        let title = self.titles.moved(outcome).unwrap_or_else(|| self.titles.settled("send"));
        let mut attributes = client("send", "send", destination, outcome);
        attributes.extend(process.message_id.clone());
        let mut builder = self.start(chain, title, SpanKind::Client, attributes);
        if let Some(origin) = chain.origin().cloned() {
            builder = builder.with_links(vec![Link::with_context(origin)]);
        }
        let started = clock::date();
        let span =
            self.tracer.build_with_context(builder.with_start_time(started), &process.context);
        let attempt = process.context.span().span_context().span_id();
        ClientSpan {
            context: Some(process.context.with_span(span)),
            started,
            is_confirmed: AtomicBool::new(false),
            confirms: outcome.delay().map(|_| (attempt, self.confirmed.clone())),
        }
    }

    /// A delivery was settled. The attempt says how; a settlement has a span of its own only if it
    /// failed or replaces a copy. It is a child of the attempt.
    pub(crate) fn settled(
        &self,
        chain: &Chain,
        process: &ProcessSpan,
        (operation, outcome): (&'static str, Outcome),
        took: Duration,
        error_type: Option<&'static str>,
    ) {
        let replaces_a_copy = match outcome {
            Outcome::Wait(_) | Outcome::Defer(_) => operation == "nack",
            Outcome::Park(_) => operation == "reject",
            Outcome::Ack | Outcome::Requeue | Outcome::Discard(_) => false,
        };
        if !(replaces_a_copy || error_type.is_some()) || !process.is_sampled() {
            return;
        }
        let moved = self.titles.moved(outcome).filter(|_| replaces_a_copy);
        let title = moved.unwrap_or_else(|| self.titles.settled(operation));
        let mut attributes = client(operation, "settle", &self.queue, outcome);
        attributes.extend(process.message_id.clone());
        if replaces_a_copy && error_type.is_none() {
            // The attempt may have been about to wait.
            attributes.extend(end(outcome).map(ended_as).into_iter().flatten());
        }
        attributes.extend(error_type.map(|class| KeyValue::new(names::ERROR_TYPE, class)));
        let ended = clock::date();
        let started = ended.checked_sub(took).unwrap_or(ended);
        let builder = self.start(chain, title, SpanKind::Client, attributes);
        let span =
            self.tracer.build_with_context(builder.with_start_time(started), &process.context);
        let context = process.context.with_span(span);
        if error_type.is_some() {
            let text = format!("the channel was closed before the {operation}");
            context.span().set_status(Status::error(text));
        }
        context.span().end_with_timestamp(ended_at(ended, started));
    }
}

/// The attributes of a copy or a settlement.
fn client(
    operation: &'static str,
    kind: &'static str,
    destination: &str,
    outcome: Outcome,
) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new(names::OPERATION_NAME, operation),
        KeyValue::new(names::OPERATION_TYPE, kind),
        KeyValue::new(names::DESTINATION_NAME, destination.to_owned()),
    ];
    attributes.extend(outcome.delay().and_then(|delay| until(clock::date(), delay)));
    attributes
}

/// When a wait that begins now is over, as people write dates, in UTC. `None` for a date that has
/// no such form, because a clock is wrong.
fn until(now: SystemTime, delay: Duration) -> Option<KeyValue> {
    const YEAR_10000: u64 = 253_402_300_800;
    let date = now.checked_add(delay)?;
    let seconds = date.duration_since(UNIX_EPOCH).ok()?.as_secs();
    (seconds < YEAR_10000)
        .then(|| KeyValue::new(names::UNTIL, humantime::format_rfc3339_seconds(date).to_string()))
}

/// How an outcome ends a chain, if it does.
const fn end(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Ack => Some("handled"),
        Outcome::Park(_) => Some(PARKED),
        Outcome::Discard(_) => Some("discarded"),
        Outcome::Requeue | Outcome::Wait(_) | Outcome::Defer(_) => None,
    }
}

/// The attributes by which a search finds a chain that ended this way.
fn ended_as(end: &'static str) -> [KeyValue; 2] {
    [KeyValue::new(names::END, end), KeyValue::new(names::WAS_PARKED, end == PARKED)]
}

/// What is known of the deliveries before one that came back, and no more: another process may have
/// answered them.
fn came_back_text(unanswered: u32, is_last: bool) -> String {
    let deliveries = match unanswered {
        1 => "1 delivery".to_owned(),
        count => format!("{count} deliveries"),
    };
    let last = if is_last { "; the broker parks it unless this delivery is answered" } else { "" };
    format!(
        "the message came back after {deliveries} that this process has not answered: a process died or lost its connection, or another \
         one gave it back{last}"
    )
}

/// The span of one attempt, and the context that its handler runs in.
pub(crate) struct ProcessSpan {
    context: Context,
    started: SystemTime,
    /// The message's id, as an attribute, if the span is recorded.
    message_id: Option<KeyValue>,
    /// The names of the queue's spans, if the span is recorded.
    titles: Option<Arc<Titles>>,
}

impl ProcessSpan {
    fn is_sampled(&self) -> bool {
        self.context.span().span_context().is_sampled()
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Ends it with the decision.
    pub(crate) fn end(&self, outcome: Outcome, failure: Option<&Failure>, decided_at: SystemTime) {
        let reason = outcome.reason();
        let span = self.context.span();
        if span.is_recording() {
            span.set_attribute(KeyValue::new(names::OUTCOME, outcome.as_str()));
            if let Some(end) = end(outcome) {
                span.set_attributes(ended_as(end));
            }
            if let Some(delay) = outcome.delay() {
                // Whatever becomes of the wait, the trace says that it began.
                let until = until(decided_at, delay);
                span.add_event_with_timestamp("waits", decided_at, until.iter().cloned().collect());
                span.set_attributes(
                    until.into_iter().chain([KeyValue::new(names::DELAY_MS, millis(delay))]),
                );
            }
            if let Some(reason) = reason {
                span.set_attribute(KeyValue::new(names::REASON, reason.as_str()));
            }
            if outcome.is_defer() {
                span.set_attribute(KeyValue::new(names::DEFER, true));
            }
            let failed = failure.filter(|_| !outcome.is_defer());
            let decided =
                self.titles.as_ref().and_then(|it| it.decided(outcome, failure.is_some()));
            if let Some(name) = decided {
                span.update_name(name);
            }
            let error_type = failed.map(Failure::class).or_else(|| reason.map(Reason::as_str));
            if let Some(error_type) = error_type {
                let class = cut(error_type, MAX_CLASS_BYTES).to_owned();
                span.set_attribute(KeyValue::new(names::ERROR_TYPE, class));
                span.set_attribute(KeyValue::new(names::FINAL, outcome.is_final()));
                let text = failed.map_or(error_type, Failure::message);
                span.set_status(Status::error(cut(text, MAX_MESSAGE_BYTES).to_owned()));
            }
        }
        span.end_with_timestamp(ended_at(decided_at, self.started));
    }
}

/// The span of one copy, if it is sampled. It ends when it is dropped.
pub(crate) struct ClientSpan {
    context: Option<Context>,
    started: SystemTime,
    is_confirmed: AtomicBool,
    /// The attempt whose copy this is, if that waits.
    confirms: Option<(SpanId, Arc<Recorded<SystemTime>>)>,
}

impl ClientSpan {
    fn unsampled() -> Self {
        let (started, is_confirmed) = (SystemTime::UNIX_EPOCH, AtomicBool::new(false));
        Self { context: None, started, is_confirmed, confirms: None }
    }

    pub(crate) fn failed(&self, error_type: &'static str, text: String) {
        if let Some(context) = &self.context {
            context.span().set_attribute(KeyValue::new(names::ERROR_TYPE, error_type));
            context.span().set_status(Status::error(cut(&text, MAX_MESSAGE_BYTES).to_owned()));
        }
    }

    /// The broker has confirmed the copy.
    pub(crate) fn confirmed(&self) {
        self.is_confirmed.store(true, Ordering::Relaxed);
    }
}

impl Drop for ClientSpan {
    fn drop(&mut self) {
        let Some(context) = &self.context else { return };
        let ended = ended(self.started);
        context.span().end_with_timestamp(ended);
        if let Some((attempt, confirmed)) = &self.confirms
            && self.is_confirmed.load(Ordering::Relaxed)
        {
            confirmed.keep(*attempt, ended);
        }
    }
}

/// Jaeger warns of a negative duration if a span ends when it begins (2.20), and shows
/// microseconds.
const SHORTEST: Duration = Duration::from_micros(1);

/// Now, for a span that began at this time.
pub(crate) fn ended(started: SystemTime) -> SystemTime {
    ended_at(clock::date(), started)
}

/// When a span ends that began at this time. A clock that was set back ends no span before its
/// start.
fn ended_at(at: SystemTime, started: SystemTime) -> SystemTime {
    at.max(started + SHORTEST)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_has_a_date_for_its_end_unless_a_clock_is_absurd() {
        let second = Duration::from_secs(1);
        let date = until(UNIX_EPOCH + second * 1_700_000_000, second).unwrap();
        assert_eq!(date.value.as_str(), "2023-11-14T22:13:21Z");
        for absurd in [UNIX_EPOCH + second * u32::MAX * 100, UNIX_EPOCH - second * 10] {
            assert_eq!(until(absurd, second), None);
        }
        assert_eq!(until(UNIX_EPOCH, Duration::MAX), None);
    }

    #[test]
    fn nothing_is_claimed_of_deliveries_that_another_process_may_have_answered() {
        let (one, last) = (came_back_text(1, false), came_back_text(2, true));
        assert!(one.contains("after 1 delivery that this process has not answered"), "{one}");
        assert!(last.contains("after 2 deliveries") && last.contains("parks it unless"), "{last}");
        for text in [one, last] {
            assert!(text.contains("or another one gave it back"), "{text}");
            assert!(!text.contains("without an answer"), "{text}");
        }
    }
}
