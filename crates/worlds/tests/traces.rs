//! The traces of worlds, judged as Jaeger judges clocks.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

/// Jaeger's rule, as the library's own tests apply it.
#[path = "../../../src/telemetry/clocks.rs"]
mod clocks;
/// How its page orders rows.
#[path = "../../../src/telemetry/rows.rs"]
mod rows;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use clocks::{Timed, doubted};
use opentelemetry::trace::{SpanId, SpanKind, TraceId};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanProcessor};
use rehop_worlds::{Scenario, run};
use rows::{Row, rows, title};

const WORLDS: u64 = 60;

/// Keeps what all processes of a world record.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanProcessor for Kept {
    fn on_start(&self, _: &mut Span, _: &opentelemetry::Context) {}

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

fn text(id: SpanId) -> String {
    if id == SpanId::INVALID { String::new() } else { id.to_string() }
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    span.attributes
        .iter()
        .find(|attribute| attribute.key.as_str() == name)
        .map(|attribute| attribute.value.to_string())
}

fn timed(span: &SpanData, publisher: &str) -> Timed {
    let nanos =
        |at: std::time::SystemTime| at.duration_since(UNIX_EPOCH).unwrap().as_nanos() as i128;
    Timed {
        id: text(span.span_context.span_id()),
        parent: text(span.parent_span_id),
        host: if span.name.starts_with("publish ") { publisher } else { "service" }.to_owned(),
        start: nanos(span.start_time),
        end: nanos(span.end_time),
    }
}

/// Whether the span is an attempt before the first wait, or below one.
fn is_early(id: &str, trace: &[SpanData]) -> bool {
    let find = |id: &str| trace.iter().find(|span| text(span.span_context.span_id()) == id);
    let mut span = find(id).unwrap();
    while attribute(span, "rehop.hop").is_none() {
        span = find(&text(span.parent_span_id)).unwrap();
    }
    attribute(span, "rehop.hop").as_deref() == Some("0")
}

/// The spans as rows, after Jaeger has moved those that it doubts by less than 10 s.
fn as_rows(spans: &[SpanData], publisher: &str) -> Vec<Row> {
    let timed: Vec<_> = spans.iter().map(|span| timed(span, publisher)).collect();
    let moved: HashMap<_, _> = (doubted(&timed).into_iter())
        .filter_map(|(id, shift)| Some((id, shift?)))
        .filter(|(_, shift)| shift.abs() <= 10_000_000_000)
        .collect();
    let row = |(span, timed): (&SpanData, &Timed)| {
        let parent = (!timed.parent.is_empty()).then(|| timed.parent.clone());
        let links = span.links.iter().map(|link| text(link.span_context.span_id()));
        Row {
            id: timed.id.clone(),
            name: span.name.to_string(),
            references: parent.into_iter().chain(links).collect(),
            start: timed.start + moved.get(timed.id.as_str()).unwrap_or(&0),
        }
    };
    spans.iter().zip(&timed).map(row).collect()
}

/// The waits before each attempt and its number, in the order of the rows.
fn attempts(spans: &[SpanData], rows: &[(usize, &Row)]) -> Vec<(u32, u32)> {
    let attempt = |row: &Row| {
        let span = spans.iter().find(|span| text(span.span_context.span_id()) == row.id)?;
        let number = |name| attribute(span, name).and_then(|text| text.parse().ok());
        let is_attempt = span.span_kind == SpanKind::Consumer;
        is_attempt.then_some((number("rehop.hop")?, number("rehop.attempt")?))
    };
    rows.iter().filter_map(|(_, row)| attempt(row)).collect()
}

/// The attempts are shown in the same order on one host and on two, and the trace is named after
/// its first span also where the producer is traced elsewhere.
fn check_rows(spans: &[SpanData]) {
    let is_publish = |span: &SpanData| span.span_kind == SpanKind::Producer;
    let [on_one, on_two] = ["service", "producer"].map(|publisher| {
        let all = as_rows(spans, publisher);
        attempts(spans, &rows(&all))
    });
    assert_eq!(on_one, on_two, "{spans:#?}");
    let rest: Vec<_> = spans.iter().filter(|span| !is_publish(span)).cloned().collect();
    let all = as_rows(&rest, "service");
    let begins_with_a_wait =
        rows(&all).first().is_some_and(|(_, row)| row.name.starts_with("wait "));
    assert!(begins_with_a_wait || !title(&all).starts_with("wait "), "{rest:#?}");
    let depth = rows(&all).into_iter().map(|(depth, _)| depth).max();
    assert!(depth.unwrap_or(0) <= 3, "{rest:#?}");
}

#[test]
fn in_no_world_is_a_clock_doubted_on_one_host_or_after_a_wait_on_two_and_no_chain_is_in_two_traces()
{
    let kept = Kept::default();
    let builder = SdkTracerProvider::builder().with_id_generator(rehop::telemetry::ChainIds::new());
    opentelemetry::global::set_tracer_provider(builder.with_span_processor(kept.clone()).build());
    let (mut waits, mut deaths) = (0, 0);
    for seed in 0..WORLDS {
        run(&Scenario::draw(seed)).unwrap();
        let (mut traces, mut chains) =
            (HashMap::<TraceId, Vec<SpanData>>::new(), HashMap::<String, TraceId>::new());
        for span in kept.0.lock().unwrap().drain(..) {
            let trace = span.span_context.trace_id();
            if let Some(chain) = attribute(&span, "rehop.chain_id") {
                assert_eq!(*chains.entry(chain).or_insert(trace), trace, "world {seed}: {span:?}");
            }
            assert!(span.start_time < span.end_time, "world {seed}: {span:?}");
            waits += u32::from(span.name.starts_with("wait "));
            deaths += u32::from(span.name.starts_with("died? "));
            traces.entry(trace).or_default().push(span);
        }
        for spans in traces.values() {
            let on = |publisher: &str| {
                spans.iter().map(|span| timed(span, publisher)).collect::<Vec<_>>()
            };
            assert_eq!(doubted(&on("service")), [], "world {seed}: {spans:#?}");
            check_rows(spans);
            for (id, shift) in doubted(&on("producer")) {
                assert!(
                    is_early(id, spans),
                    "world {seed}: {id} would be moved by {shift:?}: {spans:#?}"
                );
            }
        }
    }
    assert!(waits > 100 && deaths > 10, "{waits} waits and {deaths} deaths");
}
