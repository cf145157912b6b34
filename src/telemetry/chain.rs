//! A chain as one delivery continues it: which trace its spans are in, what they hang below, and
//! what its copies carry.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceId, TraceState};

use super::ids;
use super::propagation::{self, Incoming};
use crate::clock;
use crate::message::{Delivery, HeaderValue};
use crate::random::random;
use crate::timestamp::Timestamp;
use crate::wire::names::{BAGGAGE, PREVIOUS_ATTEMPT, TRACED_SINCE, WAITING_SINCE_NANOS};
use crate::wire::{Ignored, TraceHeaders};

/// A copy is written within this time of the decision that it waits.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

/// A chain as this delivery continues it.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    /// What the next span hangs below, if anything, and the baggage.
    pub(super) parent: Context,
    /// The trace of a next span that has no parent.
    trace: Option<TraceId>,
    /// The context that copies carry: the producer's, or that of the trace's first span.
    origin: Option<SpanContext>,
    /// What the attempt links to: the previous attempt, and the old trace after a split.
    pub(super) links: Vec<SpanContext>,
    /// The attempt before the wait that this process has recorded. A later attempt after the same
    /// wait knows it by this.
    waited_after: Option<SpanId>,
    /// When the present trace began. Without a split, this is when the chain was first seen.
    since: Timestamp,
    first_seen: Timestamp,
    /// When the last wait began, more precisely than the ledger has it.
    waiting_since: Option<SystemTime>,
    baggage: Option<String>,
    /// Identifies the chain on every span.
    pub(crate) id: Cow<'static, str>,
}

impl Chain {
    /// Reads the chain's context. A chain older than `max_age` continues in a new trace that links
    /// back. `recorded` is the wait after this attempt, if this process has recorded it.
    pub(super) fn read(
        (delivery, queue): (&Delivery, &str),
        (now, max_age): (Timestamp, Duration),
        recorded: impl FnOnce(SpanId) -> Option<SpanContext>,
        ignored: &mut Vec<Ignored>,
    ) -> Self {
        let Incoming { parent: origin, baggage } = propagation::read(delivery, ignored);
        let ledger = &delivery.ledger;
        let text =
            |name| if ledger.is_copy { delivery.header(name).map(HeaderValue::of) } else { None };
        let previous = text(PREVIOUS_ATTEMPT)
            .and_then(|value| propagation::parse(value.as_text()?, TraceState::default()));
        let first_seen = ledger.first_seen;
        let since = text(TRACED_SINCE)
            .and_then(|value| value.as_text()?.parse().ok())
            .map_or(first_seen, Timestamp::from_millis);
        let mut chain = Self {
            parent: propagation::with_baggage(Context::new(), baggage.as_deref()),
            trace: None,
            origin: None,
            links: Vec::new(),
            waited_after: None,
            since,
            first_seen,
            waiting_since: text(WAITING_SINCE_NANOS).and_then(moment),
            id: chain_id(delivery, origin.as_ref()),
            baggage,
        };
        match origin {
            Some(origin) if now.since(since) > max_age => {
                chain.continue_in_new_trace(origin, previous, now)
            }
            Some(origin) => chain.continue_in_trace(origin, previous, delivery, recorded),
            None => {
                let (id, at) = (delivery.properties.message_id(), *delivery.properties.timestamp());
                let trace = ids::of_message(queue, id.as_ref().map(|id| id.as_str()), at);
                trace.into_iter().for_each(|trace| chain.begins(trace));
                chain.links = previous.into_iter().collect();
            }
        }
        chain
    }

    /// It goes on in a new trace, which links to the old one. Several processes may begin it: each
    /// that gets this copy before the next one is written.
    fn continue_in_new_trace(
        &mut self,
        origin: SpanContext,
        previous: Option<SpanContext>,
        now: Timestamp,
    ) {
        let old =
            [origin.trace_id().to_bytes().to_vec(), self.since.as_millis().to_be_bytes().to_vec()];
        let last = previous
            .as_ref()
            .map_or_else(Vec::new, |attempt| attempt.span_id().to_bytes().to_vec());
        self.begins(ids::computed(&[&old[0], &old[1], &last]));
        self.since = now;
        self.links = std::iter::once(origin).chain(previous).collect();
    }

    /// It goes on in its trace.
    fn continue_in_trace(
        &mut self,
        origin: SpanContext,
        previous: Option<SpanContext>,
        delivery: &Delivery,
        recorded: impl FnOnce(SpanId) -> Option<SpanContext>,
    ) {
        let ledger = &delivery.ledger;
        // A redelivery follows an attempt that nothing in the message names.
        let known = previous.as_ref().map(SpanContext::span_id).filter(|_| delivery.redelivered);
        self.links = previous.into_iter().filter(|_| !delivery.redelivered).collect();
        if let Some((attempt, wait)) = known.and_then(|attempt| Some((attempt, recorded(attempt)?)))
        {
            self.below(wait);
            self.waited_after = Some(attempt);
        } else if ledger.is_copy || ledger.hop > 0 || ledger.attempt() > 1 {
            // Jaeger may move each child of a span of another host, and so change their order. Only
            // one can be below it.
            self.beside(&origin);
        } else {
            self.below(origin.clone());
        }
        self.origin = Some(origin);
    }

    /// The next span is the first one of this trace, if that can be done.
    fn begins(&mut self, trace: TraceId) {
        self.trace = Some(trace).filter(|_| ids::are_chosen());
    }

    /// The attempt before this one, if that is known.
    pub(super) fn previous(&self) -> Option<SpanId> {
        self.links.last().map(SpanContext::span_id)
    }

    /// When the wait began that the ledger has in milliseconds. A header that does not agree with
    /// it, because another version wrote one of the two, is ignored.
    pub(super) fn waiting_since(&self, since: Timestamp) -> SystemTime {
        let precise = self.waiting_since.filter(|precise| {
            let precise = Timestamp::from(*precise);
            precise >= since && precise.since(since) <= WRITTEN_WITHIN
        });
        precise.unwrap_or_else(|| since.into())
    }

    /// The trace of a next span that has no parent.
    pub(super) fn trace(&self) -> Option<TraceId> {
        self.trace
    }

    /// The context that copies carry.
    pub(super) fn origin(&self) -> Option<&SpanContext> {
        self.origin.as_ref()
    }

    /// The next span is a child of this one.
    pub(super) fn below(&mut self, span: SpanContext) {
        self.parent = propagation::with_baggage(Context::new(), self.baggage.as_deref())
            .with_remote_span_context(span);
        self.trace = None;
    }

    /// The next span is in this span's trace and below no span, because the clock of what it would
    /// be below may be another one.
    fn beside(&mut self, span: &SpanContext) {
        let context = propagation::with_baggage(Context::new(), self.baggage.as_deref());
        (self.parent, self.trace) = ids::beside(span, &context);
    }

    /// The attempts that follow are below the wait that this process has recorded.
    pub(super) fn waited(&mut self, wait: &SpanContext) {
        if !wait.is_valid() {
            return;
        }
        // In a new trace, it is the first span.
        self.origin.get_or_insert_with(|| wait.clone());
        self.waited_after = self.previous();
        self.below(wait.clone());
    }

    /// The next span is in the chain's trace and below no span, whatever it would be below
    /// otherwise.
    pub(super) fn set_apart(&mut self) {
        self.waited_after = None;
        if let Some(origin) = self.origin.clone() {
            self.beside(&origin);
        }
    }

    /// The attempt is below the span of its delivery.
    pub(super) fn came_back(&mut self, delivery: &SpanContext) {
        self.origin.get_or_insert_with(|| delivery.clone());
        self.below(delivery.clone());
    }

    /// The attempt before the wait that the attempts are below, and that wait.
    pub(super) fn recorded_wait(&self) -> Option<(SpanId, SpanContext)> {
        Some((self.waited_after?, self.parent.span().span_context().clone()))
    }

    /// The attempt's span is the first one of its trace.
    fn begins_with(&self, attempt: &SpanContext) -> Option<SpanContext> {
        (self.origin.is_none() && attempt.is_valid()).then(|| attempt.clone())
    }

    /// Whether the attempt is below no span but the producer's.
    fn is_at_the_top(&self) -> bool {
        let parent = self.parent.span().span_context().span_id();
        let is_below = |origin: &SpanContext| origin.span_id() == parent;
        self.trace.is_some() || self.origin.as_ref().is_none_or(is_below)
    }

    /// What the next span links to because it has no parent: the producer's span. Jaeger names a
    /// trace after the span with the fewest references, and shows this one below the producer's if
    /// that is in the trace. It would show it below an attempt, too, if that had begun the trace.
    pub(super) fn producer(&self) -> Option<SpanContext> {
        let origin = self.origin.as_ref().filter(|_| self.trace.is_some())?;
        (*self.id == named_after(origin)).then(|| origin.clone())
    }

    /// Whether the span was recorded. Without a provider, its context is its parent's.
    pub(super) fn is_recorded(&self, span: &SpanContext) -> bool {
        let other = |context: &SpanContext| context.span_id() != span.span_id();
        span.is_valid()
            && other(self.parent.span().span_context())
            && self.origin().is_none_or(other)
    }

    /// The chain of the next attempt, if this process makes it: what a copy would carry in its
    /// headers. `attempt` has the span of this one. Without a wait, the next one is beside this
    /// one, below the same wait if there is one.
    pub(crate) fn next(&self, attempt: &Context, waits: bool) -> Self {
        let attempt = attempt.span().span_context().clone();
        let mut next = self.clone();
        next.links = if self.is_recorded(&attempt) { vec![attempt.clone()] } else { Vec::new() };
        next.origin = self.origin.clone().or_else(|| self.begins_with(&attempt));
        match &next.origin.clone() {
            Some(origin) if waits => {
                next.beside(origin);
                next.waited_after = None;
                next.waiting_since = Some(clock::date());
            }
            Some(origin) if self.is_at_the_top() => {
                next.beside(origin);
                // Jaeger would show it below the previous attempt, and so each a level deeper.
                next.links.clear();
            }
            _ => {}
        }
        next
    }

    /// The headers of a copy that waits. Its wait begins when they are written, after the attempt
    /// has ended.
    pub(crate) fn waiting_headers(&self, attempt: &Context) -> TraceHeaders {
        let mut headers = self.headers(attempt);
        if self.is_recorded(attempt.span().span_context())
            && let Ok(since) = clock::date().duration_since(UNIX_EPOCH)
        {
            headers.0.push((WAITING_SINCE_NANOS, since.as_nanos().to_string()));
        }
        headers
    }

    /// The headers of a copy: the parent of the next spans, and the attempt that made the copy.
    pub(crate) fn headers(&self, attempt: &Context) -> TraceHeaders {
        let span = attempt.span();
        let attempt = span.span_context();
        let origin = self.origin.clone().or_else(|| self.begins_with(attempt));
        let mut headers = origin.map_or_else(Vec::new, |origin| {
            propagation::headers_of(&Context::new().with_remote_span_context(origin))
        });
        if let Some(baggage) = &self.baggage {
            headers.push((BAGGAGE, baggage.clone()));
        }
        if self.is_recorded(attempt) {
            headers.push((PREVIOUS_ATTEMPT, propagation::format(attempt)));
        }
        if self.since != self.first_seen {
            headers.push((TRACED_SINCE, self.since.as_millis().to_string()));
        }
        TraceHeaders(headers)
    }
}

/// The id of a chain whose producer has this context.
pub(super) fn named_after(producer: &SpanContext) -> String {
    format!("{}-{}", producer.trace_id(), producer.span_id())
}

/// A time in nanoseconds since the epoch, as a text.
fn moment(value: HeaderValue<'_>) -> Option<SystemTime> {
    let nanos = value.as_text()?.parse().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_nanos(nanos))
}

/// The id in the header, else one that is the same on each delivery, else a new one.
fn chain_id(delivery: &Delivery, parent: Option<&SpanContext>) -> Cow<'static, str> {
    if let Some(id) = &delivery.ledger.chain_id {
        return Cow::Owned(id.clone());
    }
    match (parent, delivery.properties.message_id()) {
        (Some(parent), _) => Cow::Owned(named_after(parent)),
        (None, Some(id)) if !id.as_str().is_empty() => Cow::Owned(id.to_string()),
        (None, _) => Cow::Owned(format!("{:016x}", random::<u64>())),
    }
}
