//! What an operator leaves in traces and metrics.

use std::time::SystemTime;

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::metrics::Counter;
use opentelemetry::trace::{
    Link, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, Tracer,
};
use opentelemetry::{Context, KeyValue};
use rehop::Timestamp;
use rehop::internals::date;
use rehop::internals::rested::{self, TraceOf};
use rehop::internals::{Values, attributes as names, cut};

/// The longest text of an operator in a span.
const MAX_TEXT: usize = 1_024;

/// One operation: a trace with one span, which says who moves what, why, and how it ended.
pub(crate) struct RunSpan {
    context: Context,
    started: SystemTime,
    tracer: RestTracer,
}

/// Who began an operation, why, and which messages it is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) operation: &'static str,
    /// The queue in which the messages rest.
    pub(crate) resting: &'a str,
    /// As what they rest there, in one word.
    pub(crate) rests_as: &'static str,
    /// Whether they were parked, if the place tells.
    pub(crate) was_parked: Option<bool>,
    /// How a chain ends when its message is moved, if this ends it.
    pub(crate) ends: Option<&'static str>,
    pub(crate) run: &'a str,
    pub(crate) who: Option<&'a str>,
    pub(crate) why: Option<&'a str>,
    pub(crate) selection: &'a str,
}

impl RunSpan {
    pub(crate) fn start(about: About<'_>) -> Self {
        let (tracer, started) = (global::tracer("rehop"), date());
        let text = |name, value: &str| KeyValue::new(name, cut(value, MAX_TEXT).to_owned());
        let mut shared = vec![
            KeyValue::new(names::SYSTEM, names::RABBITMQ),
            KeyValue::new(names::OPERATION, about.operation),
            KeyValue::new(names::PARKED_QUEUE, about.resting.to_owned()),
            KeyValue::new(names::REPLAY_RUN, about.run.to_owned()),
        ];
        let who = about.who.map(str::to_owned).or_else(user);
        shared.extend(who.map(|who| text(names::OPERATOR, &who)));
        shared.extend(about.why.filter(|why| !why.is_empty()).map(|why| text(names::WHY, why)));
        let attributes = [&shared[..], &[text(names::SELECTION, about.selection)]].concat();
        let name = format!("{} {}", about.operation, rested::one_line(about.resting));
        let builder = SpanBuilder::from_name(name)
            .with_kind(SpanKind::Internal)
            .with_start_time(started)
            .with_attributes(attributes);
        let parent = Context::current();
        let context = parent.with_span(tracer.build_with_context(builder, &parent));
        let run = context.span().span_context().clone();
        shared.extend(about.was_parked.map(|it| KeyValue::new(names::WAS_PARKED, it)));
        let name = format!("{} until the {}", about.rests_as, about.operation);
        let ends = (about.rests_as, about.ends);
        let queues = Values::default();
        Self { context, started, tracer: RestTracer { tracer, name, queues, ends, run, shared } }
    }

    /// Makes the spans of the messages.
    pub(crate) fn into_parts(self) -> (Run, RestTracer) {
        (Run { context: self.context, started: self.started }, self.tracer)
    }
}

/// The span of a run. It ends when this is dropped.
pub(crate) struct Run {
    context: Context,
    started: SystemTime,
}

impl Run {
    /// So many of the messages ended so.
    pub(crate) fn counted(&self, counts: &[(&'static str, u64)]) {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.context.span().set_attributes(
            counts.iter().map(|(name, count)| KeyValue::new(*name, number(*count))),
        );
    }

    /// It ended before it had moved everything.
    pub(crate) fn stopped(&self, why: String) {
        self.context
            .span()
            .set_attribute(KeyValue::new(names::STOPPED, cut(&why, MAX_TEXT).to_owned()));
    }

    pub(crate) fn failed(&self, error: &impl std::fmt::Display) {
        self.context.span().set_attribute(KeyValue::new(names::ERROR_TYPE, "failed"));
        self.context.span().set_status(Status::error(cut(&error.to_string(), MAX_TEXT).to_owned()));
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.context.span().end_with_timestamp(rested::ended(self.started));
    }
}

/// Makes the spans of the messages of one run, each in the trace of its chain, with a link to the
/// run.
pub(crate) struct RestTracer {
    tracer: BoxedTracer,
    name: String,
    /// Bounds how many names spans have: messages say where they belong, and anyone may have
    /// written a message.
    queues: Values,
    /// How a chain has ended, and how it ends when its message is moved, if this ends it.
    ends: (&'static str, Option<&'static str>),
    run: SpanContext,
    shared: Vec<KeyValue>,
}

/// A message that is moved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resting<'a> {
    pub(crate) chain: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) since: Option<Timestamp>,
    pub(crate) trace: TraceOf<'a>,
}

impl RestTracer {
    /// From when the message came to rest until the broker has confirmed its copy. Also returns the
    /// trace headers of the copy.
    pub(crate) fn start(&self, resting: Resting<'_>) -> (RestSpan, Vec<(&'static str, String)>) {
        let now = date();
        // Another host may have written the time.
        let started = resting.since.map_or(now, SystemTime::from).min(now);
        let mut attributes = self.shared.clone();
        attributes.extend([
            KeyValue::new(names::DESTINATION_TEMPLATE, resting.trace.queue.to_owned()),
            KeyValue::new(names::CHAIN_ID, resting.chain.to_owned()),
            KeyValue::new(names::REASON, resting.reason.to_owned()),
        ]);
        let id = resting.trace.message_id.map(str::to_owned);
        attributes.extend(id.map(|id| KeyValue::new(names::MESSAGE_ID, id)));
        let name = match resting.trace.queue {
            // Nothing in a stray message may tell where it belongs.
            "" => self.name.clone(),
            queue => format!("{}: {}", self.name, rested::one_line(&self.queues.bounded(queue))),
        };
        let builder = SpanBuilder::from_name(name)
            .with_kind(SpanKind::Internal)
            .with_start_time(started)
            .with_links(vec![Link::with_context(self.run.clone())])
            .with_attributes(attributes);
        let (context, headers) = rested::build(&self.tracer, builder, resting.trace);
        (RestSpan { context, started, ends: self.ends, is_confirmed: false }, headers)
    }
}

/// Ends when it is dropped.
pub(crate) struct RestSpan {
    context: Context,
    started: SystemTime,
    ends: (&'static str, Option<&'static str>),
    is_confirmed: bool,
}

impl RestSpan {
    /// The broker has the copy.
    pub(crate) fn confirmed(&mut self) {
        self.is_confirmed = true;
    }

    pub(crate) fn failed(&mut self, error_type: &'static str) {
        self.context.span().set_attribute(KeyValue::new(names::ERROR_TYPE, error_type));
        self.context.span().set_status(Status::error(error_type));
    }
}

impl Drop for RestSpan {
    fn drop(&mut self) {
        let (before, moved) = self.ends;
        let end = moved.filter(|_| self.is_confirmed).unwrap_or(before);
        self.context.span().set_attribute(KeyValue::new(names::END, end));
        self.context.span().end_with_timestamp(rested::ended(self.started));
    }
}

/// Who runs this process: what the environment says, else the name of its user, else the user's
/// number.
fn user() -> Option<String> {
    ["USER", "LOGNAME", "USERNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()))
        .or_else(owner)
}

/// The user whom the system says that this process belongs to, as in a container or a service,
/// which have none of the variables.
#[cfg(unix)]
fn owner() -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let number = std::fs::metadata("/proc/self").ok()?.uid();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    Some(name_of(number, &users).unwrap_or_else(|| format!("uid {number}")))
}

#[cfg(not(unix))]
fn owner() -> Option<String> {
    None
}

/// The name of the user with this number, in lines as `/etc/passwd` has them.
#[cfg(unix)]
fn name_of(number: u32, users: &str) -> Option<String> {
    let name = |line: &str| {
        let mut fields = line.split(':');
        let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
        (id.parse() == Ok(number) && !name.is_empty()).then(|| name.to_owned())
    };
    users.lines().find_map(name)
}

/// The metric of one operation of an operator. Its attributes are built once.
#[derive(Debug, Clone)]
pub(crate) struct MoveMetrics {
    moved: Counter<u64>,
    attributes: Vec<KeyValue>,
    /// Bounds how many queues are told apart: messages name them, and anyone may have written a
    /// message.
    restored_to: Values,
}

impl MoveMetrics {
    /// `resting` is the queue in which the messages rest. Parked ones belong to a work queue; stray
    /// and discarded ones may belong to any, and only their headers, which anyone can write, say to
    /// which.
    pub(crate) fn new(operation: &'static str, resting: &str, work_queue: Option<&str>) -> Self {
        let moved = global::meter("rehop")
            .u64_counter(names::PARKED_MOVED)
            .with_unit("{message}")
            .with_description("Messages that operators moved, by operation")
            .build();
        let mut attributes = vec![
            KeyValue::new(names::OPERATION, operation),
            KeyValue::new(names::PARKED_QUEUE, resting.to_owned()),
        ];
        attributes.extend(
            work_queue.map(|queue| KeyValue::new(names::DESTINATION_TEMPLATE, queue.to_owned())),
        );
        Self { moved, attributes, restored_to: Values::default() }
    }

    /// So many messages were published elsewhere, or imported, and confirmed.
    pub(crate) fn moved(&self, count: u64) {
        self.moved.add(count, &self.attributes);
    }

    /// A message was moved back to this queue. It counts under this queue's name, not the discarded
    /// queue's.
    pub(crate) fn restored(&self, queue: &str) {
        let queue = KeyValue::new(names::PARKED_QUEUE, self.restored_to.bounded(queue));
        let others = self.attributes.iter().filter(|it| it.key != queue.key).cloned();
        let attributes: Vec<_> = others.chain([queue.clone()]).collect();
        self.moved.add(1, &attributes);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_variables_has_a_user_all_the_same() {
        let users =
            "# users\nroot:x:0:0:root:/root:/bin/sh\n:x:7::\nbroken\nada:x:1000:1000::/:/bin/sh\n";
        assert_eq!(name_of(0, users).as_deref(), Some("root"));
        assert_eq!(name_of(1000, users).as_deref(), Some("ada"));
        assert_eq!([7, 1001].map(|number| name_of(number, users)), [None, None]);
        if std::path::Path::new("/proc/self").exists() {
            assert!(owner().is_some_and(|user| !user.is_empty()));
        }
    }
}
