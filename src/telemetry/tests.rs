//! Whole chains over several hosts, as random worlds: whatever happens to a message, its spans are
//! one trace that Jaeger does not doubt after the first wait.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use opentelemetry::KeyValue;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::{SpanId, Status, TracerProvider as _};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanProcessor};
use proptest::prelude::*;

use super::clocks::{Timed, doubted};
use super::names;
use super::otlp::ChainIds;
use super::spans::{CameBack, QueueTracer};
use crate::failure::Failure;
use crate::inputs::inputs;
use crate::message::{Address, Delivery};
use crate::retry::decision::Reason;
use crate::retry::ledger::Wait;
use crate::retry::outcome::Outcome;
use crate::timestamp::Timestamp;
use crate::wait::Path;
use crate::wire::names::{BAGGAGE, TRACEPARENT};
use crate::wire::{Contract, Homes, Room};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PUBLISH: &str = "00f067aa0ba902b7";
const HOSTS: usize = 3;

/// What becomes of one delivery, and on which host.
#[derive(Debug, Clone, Copy)]
struct Step {
    host: usize,
    end: End,
}

#[derive(Debug, Clone, Copy)]
enum End {
    Requeue,
    Wait(u64),
    /// The process dies.
    Death,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = prop_oneof![Just(End::Requeue), (1..500_u64).prop_map(End::Wait), Just(End::Death)];
    prop::collection::vec((0..HOSTS, end).prop_map(|(host, end)| Step { host, end }), 1..12)
}

/// What a host exports.
#[derive(Debug, Clone, Default)]
struct Exported(Arc<Mutex<Vec<SpanData>>>);

impl SpanProcessor for Exported {
    fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &opentelemetry::Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.lock().unwrap().push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

pub(super) struct Process {
    pub(super) tracer: QueueTracer,
    exported: Exported,
}

impl Process {
    fn new() -> Self {
        Self::with_delays(&[])
    }

    /// What was recorded so far.
    pub(super) fn take(&self) -> Vec<SpanData> {
        self.exported.0.lock().unwrap().drain(..).collect()
    }

    pub(super) fn with_delays(delays: &[Duration]) -> Self {
        Self::of("orders", delays)
    }

    fn of(queue: &str, delays: &[Duration]) -> Self {
        let exported = Exported::default();
        let provider = SdkTracerProvider::builder()
            .with_id_generator(ChainIds::new())
            .with_span_processor(exported.clone())
            .build();
        let tracer = QueueTracer::new(queue, None, (9, delays), Duration::from_secs(86_400));
        Self {
            tracer: tracer.with_tracer(BoxedTracer::new(Box::new(provider.tracer("rehop")))),
            exported,
        }
    }
}

pub(super) fn contract() -> Contract {
    Contract {
        queue: "orders".to_owned(),
        homes: Homes {
            return_exchange: "ns.return".to_owned(),
            after_prefixes: ["ns.after.".to_owned(), "ns.after.orders.".to_owned()],
            delay_exchange: "ns.delay".to_owned(),
        },
        expiry_header: "rehop-expires-at".to_owned(),
        max_age: None,
        counts_deliveries: true,
        counts_waits: false,
    }
}

/// The spans of one message, each with its host, after these deliveries and a last one that is
/// acked.
fn trace_of(message: BasicProperties, steps: &[Step]) -> Vec<(usize, SpanData)> {
    let (contract, processes) = (contract(), [(); HOSTS].map(|()| Process::new()));
    let mut address = Address { exchange: "shop".into(), routing_key: "order".into() };
    let (mut properties, mut redelivered, mut deaths, mut now) =
        (message, false, 0, Timestamp::now());
    for step in steps.iter().copied().map(Some).chain([None]) {
        let Process { tracer, .. } = &processes[step.map_or(0, |step| step.host)];
        let (ledger, origin, _) = contract.read(&address, redelivered, &properties, now);
        let delivery = Delivery {
            address: address.clone(),
            origin,
            redelivered,
            delivery_tag: 1,
            properties: properties.clone(),
            body: Bytes::new(),
            ledger,
        };
        let mut chain = tracer.chain(&delivery, now, &mut Vec::new());
        if delivery.ledger.wait.is_some() && !redelivered {
            tracer.waited(&mut chain, &delivery, "ns.wait", now);
        }
        if deaths > 0 {
            tracer.came_back(
                &mut chain,
                &delivery,
                CameBack { unanswered: deaths, limit: Some(9) },
            );
        }
        let end = step.map(|step| step.end);
        if matches!(end, Some(End::Death)) {
            (redelivered, deaths) = (true, deaths + 1);
            continue;
        }
        let span = tracer.process(&chain, &delivery);
        // Long enough for any clock to tell its begin from its end.
        std::thread::sleep(Duration::from_micros(1));
        let outcome = match end {
            Some(End::Wait(millis)) => Outcome::Wait(Duration::from_millis(millis)),
            Some(_) => Outcome::Requeue,
            None => Outcome::Ack,
        };
        // One host's clock is set back meanwhile.
        let ahead = Duration::from_secs(u64::from(step.is_some_and(|step| step.host == 2)));
        span.end(outcome, None, SystemTime::now() - ahead);
        drop(tracer.sent(&chain, &span, "ns.wait", outcome));
        if let Some(End::Wait(millis)) = end {
            let delay = Duration::from_millis(millis);
            // By a clock that may be ahead of the one that ends the wait.
            let since = now
                + Duration::from_millis(100)
                    * u32::try_from(step.map_or(0, |step| step.host)).unwrap();
            let wait = Wait { since, due: since + delay, leg: delay, path: Path::Tier };
            let ledger = delivery.ledger.waiting(None, false, since);
            let trace = chain.waiting_headers(span.context());
            properties = contract.wait_copy(&delivery, &ledger, wait, &trace, Room::UNLIMITED);
            address.exchange = "ns.return".into();
            (redelivered, deaths, now) = (false, 0, now + delay);
        } else {
            tracer.requeued(&chain);
            redelivered = true;
        }
    }
    (0..HOSTS)
        .flat_map(|host| processes[host].take().into_iter().map(move |span| (host, span)))
        .collect()
}

/// Whatever people name their queues, and whatever a handler says.
#[test]
fn spans_of_odd_names_and_long_texts_are_short_and_their_names_are_one_line() {
    let queue = "{q}\n\u{1b}[1m".repeat(32).split_at(255).0.to_owned();
    let process = Process::of(&queue, &[]);
    let text = |byte: &str| ShortString::try_new(byte.repeat(255)).unwrap();
    let address = Address { exchange: text("{"), routing_key: text("\n") };
    let headers = [(TRACEPARENT, &*format!("00-{TRACE}-{PUBLISH}-01")), (BAGGAGE, "a=secret")];
    let headers =
        headers.map(|(name, value)| (ShortString::from(name), AMQPValue::LongString(value.into())));
    let properties = BasicProperties::default()
        .with_message_id(text("i"))
        .with_correlation_id(text("\r"))
        .with_headers(FieldTable::from(BTreeMap::from(headers)));
    let now = Timestamp::now();
    let (ledger, origin, _) =
        Contract { queue: queue.clone(), ..contract() }.read(&address, true, &properties, now);
    let delivery = Delivery {
        address,
        origin,
        redelivered: true,
        delivery_tag: u64::MAX,
        properties,
        body: Bytes::from_static(b"a secret"),
        ledger,
    };
    let long = "\u{e9}".repeat(5 * 1024);
    let failure = Failure::permanent(long.clone()).with_class(long.clone());
    let mut chain = process.tracer.chain(&delivery, now, &mut Vec::new());
    process.tracer.came_back(&mut chain, &delivery, CameBack { unanswered: 1, limit: Some(1) });
    let span = process.tracer.process(&chain, &delivery);
    let outcome = Outcome::Park(Reason::Permanent);
    span.end(outcome, Some(&failure), SystemTime::now());
    let copy = process.tracer.sent(&chain, &span, &queue, outcome);
    copy.failed("unpublishable", long);
    drop(copy);
    process.tracer.settled(&chain, &span, ("reject", outcome), Duration::ZERO, Some("closed"));
    let spans = process.take();
    assert_eq!(spans.len(), 4);
    for span in spans {
        let name = &span.name;
        assert!(name.len() <= 310 && !name.contains(char::is_control), "{name:?}");
        for KeyValue { key, value, .. } in &span.attributes {
            // The destination has the exchange, the routing key and the queue.
            let most = if key.as_str() == names::ERROR_TYPE { 128 } else { 3 * 255 + 2 };
            assert!(value.as_str().len() <= most, "{key}={value}");
        }
        // It is in the body and in the baggage, which the spans of the handler may have.
        assert!(!format!("{span:?}").contains("secret"), "{span:?}");
        let template = names::DESTINATION_TEMPLATE;
        let of_queue = span.attributes.iter().find(|it| it.key.as_str() == template).unwrap();
        assert_eq!(of_queue.value.as_str(), queue, "an attribute is as it is");
        let Status::Error { description } = &span.status else { panic!("{span:?}") };
        assert!(description.len() <= 1_024, "{description}");
    }
}

pub(super) fn text(id: SpanId) -> String {
    if id == SpanId::INVALID { String::new() } else { id.to_string() }
}

pub(super) fn nanos(at: SystemTime) -> i128 {
    at.duration_since(UNIX_EPOCH).unwrap().as_nanos() as i128
}

/// How many spans are above this one.
fn depth(span: &SpanData, spans: &[(usize, SpanData)]) -> usize {
    let parent =
        spans.iter().find(|(_, other)| other.span_context.span_id() == span.parent_span_id);
    parent.map_or(0, |(_, parent)| 1 + depth(parent, spans))
}

proptest! {
    #![proptest_config(inputs(64))]

    #[test]
    fn a_chain_over_any_hosts_is_one_trace_of_constant_depth_and_nothing_after_a_wait_is_doubted(
        steps in steps(),
        has_context: bool,
        publish_millis in 0..2_000_i128,
        offsets in prop::collection::vec(-50_000_000..50_000_000_i128, HOSTS),
    ) {
        let message = match has_context {
            true => {
                let traceparent = AMQPValue::LongString(format!("00-{TRACE}-{PUBLISH}-01").into());
                BasicProperties::default().with_headers(FieldTable::from(BTreeMap::from([(TRACEPARENT.into(), traceparent)])))
            }
            false => BasicProperties::default().with_message_id("order-7".into()).with_timestamp(1_700_000_000),
        };
        let spans = trace_of(message, &steps);
        let traces: BTreeSet<_> = spans.iter().map(|(_, span)| span.span_context.trace_id().to_string()).collect();
        prop_assert_eq!(traces.len(), 1);
        prop_assert!(!has_context || traces.contains(TRACE));
        let begin = spans.iter().map(|(_, span)| nanos(span.start_time)).min().unwrap();
        // The producer's span, before which no attempt begins.
        let publish = |host: &str| Timed {
            id: PUBLISH.to_owned(),
            parent: String::new(),
            host: host.to_owned(),
            start: begin - 200_000_000,
            end: begin - 200_000_000 + publish_millis * 1_000_000,
        };
        let timed = |host: &dyn Fn(usize) -> String, offset: &dyn Fn(usize) -> i128| {
            spans
                .iter()
                .map(|(at, span)| Timed {
                    id: text(span.span_context.span_id()),
                    parent: text(span.parent_span_id),
                    host: host(*at),
                    start: nanos(span.start_time) + offset(*at),
                    end: nanos(span.end_time) + offset(*at),
                })
                .collect::<Vec<_>>()
        };
        let mut one = timed(&|_| "host".to_owned(), &|_| 0);
        one.push(publish("host"));
        prop_assert_eq!(doubted(&one), vec![]);
        let mut several = timed(&|at| at.to_string(), &|at| offsets[at]);
        several.push(publish("producer"));
        let early: BTreeSet<_> = spans
            .iter()
            .filter(|(_, span)| span.parent_span_id.to_string() == PUBLISH)
            .map(|(_, span)| text(span.span_context.span_id()))
            .collect();
        for (id, shift) in doubted(&several) {
            let span = several.iter().find(|span| span.id == id).unwrap();
            prop_assert!(early.contains(id) || early.contains(&span.parent), "{} would be moved by {:?}", id, shift);
        }
        for (_, span) in &spans {
            let hop = span.attributes.iter().find(|it| it.key.as_str() == "rehop.hop").map(|it| it.value.to_string());
            prop_assert!(span.start_time < span.end_time && depth(span, &spans) <= 2);
            let is_early = early.contains(&text(span.span_context.span_id()));
            prop_assert!(!is_early || hop.as_deref() == Some("0"), "an attempt after a wait is below the producer's span");
        }
    }
}
