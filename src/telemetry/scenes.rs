//! Five scenes, as Jaeger's page shows their rows: the documentation of the telemetry has them as
//! they are here.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use opentelemetry::trace::{SpanBuilder, Status, TraceContextExt as _};
use opentelemetry_sdk::trace::SpanData;

use super::clocks::{Timed, doubted};
use super::rested::{self, TraceOf};
use super::rows::{Row, rows, title};
use super::spans::CameBack;
use super::tests::{Process, contract, nanos, text};
use crate::failure::Failure;
use crate::message::{Address, Delivery};
use crate::retry::decision::Reason;
use crate::retry::ledger::{Replay, Wait};
use crate::retry::outcome::Outcome;
use crate::timestamp::Timestamp;
use crate::wait::Path;
use crate::wire::Room;
use crate::wire::names::TRACEPARENT;
use crate::wire::parked::{self, Identity};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
pub(super) const PUBLISH: &str = "00f067aa0ba902b7";
const DOCUMENTATION: &str = include_str!("../docs/telemetry.md");

/// What becomes of a delivery.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Handled,
    Requeued,
    Waits(Duration),
    Parked(Reason),
    Death,
    /// It rests in the parked queue until an operator sends it back.
    Replayed,
}

/// A message on its way, and the only process that gets it.
struct Scene {
    process: Process,
    address: Address,
    properties: BasicProperties,
    deaths: u32,
    is_redelivered: bool,
}

impl Scene {
    fn new(properties: BasicProperties) -> Self {
        let address = Address { exchange: "shop".into(), routing_key: "order.created".into() };
        let seconds = [3, 10].map(Duration::from_secs);
        let process = Process::with_delays(&seconds);
        Self { process, address, properties, deaths: 0, is_redelivered: false }
    }

    fn delivery(&self) -> Delivery {
        let (ledger, origin, _) =
            contract().read(&self.address, self.is_redelivered, &self.properties, Timestamp::now());
        Delivery {
            address: self.address.clone(),
            origin,
            redelivered: self.is_redelivered,
            delivery_tag: 1,
            properties: self.properties.clone(),
            body: Bytes::new(),
            ledger,
        }
    }

    fn play(&mut self, end: End) {
        if matches!(end, End::Replayed) {
            return self.replay();
        }
        // A wait ends some time after it began.
        let (delivery, now) = (self.delivery(), Timestamp::now() + Duration::from_millis(5));
        let tracer = &self.process.tracer;
        let mut chain = tracer.chain(&delivery, now, &mut Vec::new());
        if delivery.ledger.wait.is_some() && !self.is_redelivered {
            tracer.waited(&mut chain, &delivery, "shop.wait", now);
        }
        if self.deaths > 0 {
            let came_back = CameBack { unanswered: self.deaths, limit: Some(3) };
            tracer.came_back(&mut chain, &delivery, came_back);
        }
        if matches!(end, End::Death) {
            self.deaths += 1;
            return self.comes_back();
        }
        let span = tracer.process(&chain, &delivery);
        let micros = if matches!(end, End::Requeued) { 1 } else { 2_000 };
        std::thread::sleep(Duration::from_micros(micros));
        let outcome = match end {
            End::Waits(delay) => Outcome::Wait(delay),
            End::Parked(reason) => Outcome::Park(reason),
            End::Requeued => Outcome::Requeue,
            _ => Outcome::Ack,
        };
        let failure = Failure::transient("down").with_class("http_503");
        let failure = Some(&failure).filter(|_| outcome != Outcome::Ack);
        span.end(outcome, failure, SystemTime::now());
        let (contract, since) = (contract(), Timestamp::now());
        let mut ledger = delivery.ledger.after(failure, since);
        ledger.chain_id = Some(chain.id.to_string());
        match end {
            End::Waits(delay) => {
                let wait = Wait { since, due: since + delay, leg: delay, path: Path::Tier };
                let mut ledger = delivery.ledger.waiting(failure, false, since);
                ledger.chain_id = Some(chain.id.to_string());
                let trace = chain.waiting_headers(span.context());
                let copy = contract.wait_copy(&delivery, &ledger, wait, &trace, Room::UNLIMITED);
                self.properties = copy;
                drop(tracer.sent(&chain, &span, "shop.wait", outcome));
                self.comes_home();
            }
            End::Parked(reason) => {
                let trace = chain.headers(span.context());
                let room = Room::UNLIMITED;
                let copy = contract.parked_copy(&delivery, &ledger, reason, since, &trace, room);
                self.properties = copy.properties;
                drop(tracer.sent(&chain, &span, "orders.parked", outcome));
            }
            End::Requeued => {
                tracer.requeued(&chain);
                self.comes_back();
            }
            _ => {}
        }
        let operation = if matches!(end, End::Requeued) { "reject" } else { "ack" };
        let tracer = &self.process.tracer;
        tracer.settled(&chain, &span, (operation, outcome), Duration::ZERO, None);
    }

    fn comes_back(&mut self) {
        self.is_redelivered = true;
        let mut headers = self.properties.headers().clone().unwrap_or_default();
        let count = match headers.inner().get("x-delivery-count") {
            Some(AMQPValue::LongLongInt(count)) => *count,
            _ => 0,
        };
        headers.insert("x-delivery-count".into(), AMQPValue::LongLongInt(count + 1));
        self.properties = std::mem::take(&mut self.properties).with_headers(headers);
    }

    fn comes_home(&mut self) {
        (self.is_redelivered, self.deaths) = (false, 0);
        self.address.exchange = "ns.return".into();
    }

    fn replay(&mut self) {
        let at_rest = parked::read(&self.properties, "rehop-expires-at");
        let trace = TraceOf {
            traceparent: at_rest.traceparent.as_deref(),
            queue: "orders",
            chain: at_rest.chain_id.as_deref().unwrap(),
            message_id: None,
            timestamp: None,
        };
        let builder = SpanBuilder::from_name("parked until the replay: orders")
            .with_start_time(SystemTime::from(at_rest.parked_at.unwrap()));
        let (context, headers) =
            rested::build(self.process.tracer.tracer_for_tests(), builder, trace);
        context.span().end();
        let identity = Identity { chain_id: trace.chain, origin: &self.delivery().origin };
        let replay = Replay { run: "run".to_owned(), number: 0, count: 1, is_canary: false };
        let deadline = ("rehop-expires-at", None);
        let room = Room::UNLIMITED;
        let copy = parked::replayed(&self.properties, &identity, "orders", &replay, deadline, room);
        self.properties = parked::traced(copy.unwrap(), &headers);
        self.comes_home();
    }
}

/// A message of a producer that traces, or has an id, or neither.
pub(super) fn traced() -> BasicProperties {
    let traceparent = AMQPValue::LongString(format!("00-{TRACE}-{PUBLISH}-01").into());
    let mut headers = FieldTable::default();
    headers.insert(TRACEPARENT.into(), traceparent);
    BasicProperties::default().with_headers(headers)
}

fn with_id() -> BasicProperties {
    BasicProperties::default().with_message_id("order-7".into())
}

/// The rows of each trace that the deliveries leave. `publisher` is the host of the producer's span,
/// which is first, if it is traced here.
fn traces(
    message: BasicProperties,
    ends: &[End],
    publisher: Option<&str>,
) -> Vec<Vec<(Row, bool)>> {
    played(message, ends).iter().map(|trace| as_rows(trace, publisher)).collect()
}

/// The spans of each trace that the deliveries leave, in the order of the traces' starts.
pub(super) fn played(message: BasicProperties, ends: &[End]) -> Vec<Vec<SpanData>> {
    let mut scene = Scene::new(message);
    for end in ends {
        scene.play(*end);
    }
    let spans: Vec<SpanData> = scene.process.take();
    let mut traces: Vec<Vec<SpanData>> = Vec::new();
    for span in spans {
        let of = |trace: &&mut Vec<SpanData>| {
            trace[0].span_context.trace_id() == span.span_context.trace_id()
        };
        match traces.iter_mut().find(of) {
            Some(trace) => trace.push(span),
            None => traces.push(vec![span]),
        }
    }
    traces.sort_by_key(|trace| trace.iter().map(|span| span.start_time).min());
    traces
}

/// On the service's host.
pub(super) fn timed(span: &SpanData) -> Timed {
    Timed {
        id: text(span.span_context.span_id()),
        parent: text(span.parent_span_id),
        host: "service".to_owned(),
        start: nanos(span.start_time),
        end: nanos(span.end_time),
    }
}

/// As Jaeger shows them after it has moved what it doubts, whatever its limit is.
pub(super) fn as_rows(spans: &[SpanData], publisher: Option<&str>) -> Vec<(Row, bool)> {
    let begin = spans.iter().map(|span| nanos(span.start_time)).min().unwrap();
    let publish = publisher.map(|host| Timed {
        id: PUBLISH.to_owned(),
        parent: String::new(),
        host: host.to_owned(),
        start: begin - 9_000_000,
        end: begin - 1_000_000,
    });
    let all: Vec<_> = publish.iter().cloned().chain(spans.iter().map(timed)).collect();
    let moved = doubted(&all);
    let shift = |id: &str| {
        let found = moved.iter().find(|(moved, _)| *moved == id);
        found.and_then(|(_, shift)| *shift).unwrap_or(0)
    };
    let row = |span: &SpanData| {
        let id = text(span.span_context.span_id());
        let links = span.links.iter().map(|link| text(link.span_context.span_id()));
        let parent = Some(text(span.parent_span_id)).filter(|id| !id.is_empty());
        let row = Row {
            start: nanos(span.start_time) + shift(&id),
            id,
            name: span.name.to_string(),
            references: parent.into_iter().chain(links).collect(),
        };
        (row, matches!(span.status, Status::Error { .. }))
    };
    let first = publish.map(|publish| {
        let name = "publish shop:order.created".to_owned();
        (Row { id: publish.id, name, references: Vec::new(), start: publish.start }, false)
    });
    first.into_iter().chain(spans.iter().map(row)).collect()
}

/// One line for each row; what failed is red in Jaeger.
pub(super) fn drawn(trace: &[(Row, bool)]) -> String {
    let only: Vec<_> = trace.iter().map(|(row, _)| row.clone()).collect();
    let line = |(depth, shown): (usize, &Row)| {
        let failed = trace.iter().any(|(row, failed)| row.id == shown.id && *failed);
        let mark = if failed { "  (red)" } else { "" };
        format!("{}{}{mark}\n", "    ".repeat(depth), shown.name)
    };
    rows(&only).into_iter().map(line).collect()
}

pub(super) fn is_documented(rows: &str) -> bool {
    DOCUMENTATION.replace("\r\n", "\n").contains(&format!("```text\n{rows}```\n"))
}

/// The documentation shows these rows, above the sentence.
fn documented(rows: &str, sentence: &str) {
    let rows = format!("```text\n{rows}```\n\n");
    let documentation = DOCUMENTATION.replace("\r\n", "\n");
    let is_said = |after: &str| {
        after
            .split("\n\n")
            .next()
            .is_some_and(|said| said.replace('\n', " ") == format!("*{sentence}*"))
    };
    assert!(
        documentation.split(&rows).skip(1).any(is_said),
        "expected in src/docs/telemetry.md:\n{rows}*{sentence}*"
    );
}

pub(super) const WAIT: fn(u64) -> End = |seconds| End::Waits(Duration::from_secs(seconds));

#[test]
fn a_message_that_ends_well_after_two_waits_says_so_on_its_last_row() {
    for publisher in ["service", "elsewhere"] {
        let traces = traces(traced(), &[WAIT(3), WAIT(10), End::Handled], Some(publisher));
        assert_eq!(traces.len(), 1);
        documented(
            &drawn(&traces[0]),
            "It failed, waited 3 s, failed again, waited 10 s, and was handled.",
        );
    }
}

#[test]
fn a_parked_message_that_an_operator_replayed_says_both() {
    let ends = [End::Parked(Reason::Exhausted), End::Replayed, WAIT(3), End::Handled];
    let traces = traces(traced(), &ends, Some("service"));
    assert_eq!(traces.len(), 1);
    documented(
        &drawn(&traces[0]),
        "It was parked, somebody replayed it, and after one more wait it was handled.",
    );
}

#[test]
fn a_message_that_kills_its_process_four_times_is_told_by_what_came_after_each_death() {
    let ends = [End::Death; 4];
    let with_context = traces(traced(), &ends, Some("service"));
    documented(
        &drawn(&with_context[0]),
        "It may have killed its process three times. The last delivery was not answered either, so \
         the broker parked it.",
    );
    let by_id = traces(with_id(), &ends, None);
    assert_eq!(by_id.len(), 1, "one trace, by the message_id");
    let without = traces(BasicProperties::default(), &ends, None);
    assert_eq!(without.len(), 3, "nothing tells that these are one message");
    documented(&drawn(&without[0]), "Something died, and nobody knows what came of it.");
}

#[test]
fn a_message_that_was_killed_once_and_then_handled_says_both() {
    let traces = traces(traced(), &[End::Death, End::Handled], Some("service"));
    documented(&drawn(&traces[0]), "The first attempt may have died; the next one handled it.");
}

#[test]
fn a_message_that_still_waits_says_so_on_its_last_row() {
    let traces = traces(traced(), &[WAIT(10)], Some("service"));
    documented(&drawn(&traces[0]), "It failed, and waits 10 s.");
}

#[test]
fn attempts_keep_their_order_and_the_trace_its_name_wherever_the_producer_is_traced() {
    let ends = [End::Requeued, End::Requeued, WAIT(3), End::Requeued, WAIT(10), End::Handled];
    for publisher in [Some("service"), Some("another host"), None] {
        let traces = traces(traced(), &ends, publisher);
        let only: Vec<_> = traces[0].iter().map(|(row, _)| row.clone()).collect();
        let names: Vec<_> = rows(&only).into_iter().map(|(_, row)| row.name.as_str()).collect();
        let attempts: Vec<_> = names.iter().filter(|it| it.starts_with("process ")).collect();
        assert_eq!(
            attempts,
            [
                &"process orders #1",
                &"process orders #2",
                &"process orders #3",
                &"process orders #4",
                &"process orders #5",
                &"process orders: handled"
            ],
            "{publisher:?}"
        );
        let first =
            if publisher.is_some() { "publish shop:order.created" } else { "process orders #1" };
        assert_eq!(title(&only), first);
    }
}

#[test]
fn ten_thousand_attempts_are_one_trace_of_three_levels_with_as_many_names_as_a_dozen() {
    let mut ends = vec![End::Requeued; 9_999];
    ends.push(End::Handled);
    let traces = traces(traced(), &ends, None);
    let only: Vec<_> = traces[0].iter().map(|(row, _)| row.clone()).collect();
    let names: std::collections::BTreeSet<_> = only.iter().map(|row| &row.name).collect();
    assert_eq!((only.len(), names.len()), (10_000, 11), "{names:?}");
    assert!(only.iter().all(|row| row.references.len() == 1));
}
