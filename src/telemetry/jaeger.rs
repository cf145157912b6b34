//! The documented scenes in the JSON of Jaeger's API (`/api/traces`, 2.20): rows, their order,
//! warnings, and the searches that find them.
//!
//! Without `REHOP_TEST_JAEGER_URL` the answers are made here from the scenes' spans, by Jaeger's
//! rules: none were recorded from a Jaeger. With it, a real Jaeger gets the spans, and is asked.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt as _;
use lapin::BasicProperties;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceId};
use opentelemetry::{Array, KeyValue, Value as Attribute};
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use serde_json::{Value, json};

use super::clocks::doubted;
use super::names::WAS_PARKED;
use super::otlp;
use super::rows::Row;
use super::scenes::{self, End, PUBLISH, WAIT, as_rows, drawn, is_documented, timed, traced};
use super::tests::{nanos, text};
use crate::random::random;
use crate::retry::decision::Reason;

const URL: &str = "REHOP_TEST_JAEGER_URL";
const OTLP: &str = "REHOP_TEST_JAEGER_OTLP";

/// The values of `rehop.was_parked` in the scene, and the spans of each trace.
type Scene = (&'static [bool], Vec<Vec<SpanData>>);

/// The scenes of the documentation, in traces that are new with each scene and run.
fn played() -> Vec<Scene> {
    let play = |found, message: BasicProperties, ends: &[End]| -> Scene {
        let has_context = message.headers().is_some();
        let mut traces = scenes::played(message, ends);
        // Without a context, each delivery that came back has a trace of its own.
        assert_eq!(traces.len(), if has_context { 1 } else { ends.len() - 1 });
        if has_context {
            let publish = publish(&traces[0]);
            traces[0].insert(0, publish);
        }
        let salt = u128::from(random::<u64>()) << 64 | u128::from(random::<u64>());
        traces.iter_mut().flatten().for_each(|span| move_to_another_trace(span, salt));
        (found, traces)
    };
    let replayed = [End::Parked(Reason::Exhausted), End::Replayed, WAIT(3), End::Handled];
    vec![
        play(&[false], traced(), &[WAIT(3), WAIT(10), End::Handled]),
        play(&[false, true], traced(), &replayed),
        play(&[true], traced(), &[End::Death; 4]),
        play(&[true], BasicProperties::default(), &[End::Death; 4]),
        play(&[false], traced(), &[End::Death, End::Handled]),
        play(&[], traced(), &[WAIT(10)]),
    ]
}

/// The producer's span, on the same host.
fn publish(trace: &[SpanData]) -> SpanData {
    let begin = trace.iter().map(|span| span.start_time).min().unwrap();
    let mut publish = trace[0].clone();
    let id = SpanId::from(u64::from_str_radix(PUBLISH, 16).unwrap());
    publish.span_context = in_trace(&publish.span_context, trace[0].span_context.trace_id(), id);
    publish.parent_span_id = SpanId::INVALID;
    publish.span_kind = SpanKind::Producer;
    publish.name = "publish shop:order.created".into();
    publish.start_time = begin - Duration::from_millis(9);
    publish.end_time = begin - Duration::from_millis(1);
    publish.attributes.clear();
    publish.links.links.clear();
    publish.events.events.clear();
    publish.status = Status::Unset;
    publish
}

fn in_trace(context: &SpanContext, trace: TraceId, span: SpanId) -> SpanContext {
    let (flags, state) = (context.trace_flags(), context.trace_state().clone());
    SpanContext::new(trace, span, flags, context.is_remote(), state)
}

fn move_to_another_trace(span: &mut SpanData, salt: u128) {
    let moved = |context: &SpanContext| {
        let trace = u128::from_be_bytes(context.trace_id().to_bytes()) ^ salt;
        in_trace(context, TraceId::from(trace), context.span_id())
    };
    span.span_context = moved(&span.span_context);
    span.links.links.iter_mut().for_each(|link| link.span_context = moved(&link.span_context));
}

/// What the API answers for one trace, as Jaeger makes it of OTLP.
fn answer_for(trace: &[SpanData]) -> Value {
    let all: Vec<_> = trace.iter().map(timed).collect();
    let doubted = doubted(&all);
    let id = trace[0].span_context.trace_id().to_string();
    let reference = |kind: &str, of: SpanId, trace: TraceId| {
        let trace = trace.to_string();
        json!({ "refType": kind, "traceID": trace, "spanID": text(of) })
    };
    let span = |span: &SpanData| {
        let (own, trace) = (text(span.span_context.span_id()), span.span_context.trace_id());
        let parent = Some(span.parent_span_id).filter(|id| *id != SpanId::INVALID);
        let parent = parent.map(|parent| reference("CHILD_OF", parent, trace));
        let links = span.links.iter().map(|link| {
            let other = &link.span_context;
            reference("FOLLOWS_FROM", other.span_id(), other.trace_id())
        });
        let (start, end) = (nanos(span.start_time) / 1000, nanos(span.end_time) / 1000);
        let doubt = doubted.iter().find(|(id, _)| *id == own);
        let warnings = doubt.map(|(_, shift)| [format!("clock skew: {shift:?}")]);
        let mut tags: Vec<_> = span.attributes.iter().map(tag).collect();
        if matches!(span.status, Status::Error { .. }) {
            tags.push(json!({ "key": "error", "type": "bool", "value": true }));
        }
        json!({
            "traceID": trace.to_string(),
            "spanID": own,
            "operationName": span.name,
            "references": parent.into_iter().chain(links).collect::<Vec<_>>(),
            "startTime": start as u64,
            "duration": (end - start) as u64,
            "tags": tags,
            "logs": [],
            "processID": "p1",
            "warnings": warnings,
        })
    };
    let spans: Vec<_> = trace.iter().map(span).collect();
    let processes = json!({ "p1": { "serviceName": "orders", "tags": [] } });
    json!({ "data": [{ "traceID": id, "spans": spans, "processes": processes }] })
}

fn tag(KeyValue { key, value, .. }: &KeyValue) -> Value {
    let (kind, value) = match value {
        Attribute::Bool(value) => ("bool", json!(value)),
        Attribute::I64(value) => ("int64", json!(value)),
        Attribute::F64(value) => ("float64", json!(value)),
        Attribute::Array(Array::String(texts)) => ("string", json!(format!("{texts:?}"))),
        other => ("string", json!(other.as_str())),
    };
    json!({ "key": key.as_str(), "type": kind, "value": value })
}

/// A row of Jaeger's page, and whether it is red.
fn row(span: &Value) -> (Row, bool) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let references = span["references"].as_array().unwrap().iter();
    let row = Row {
        id: text(&span["spanID"]),
        name: text(&span["operationName"]),
        references: references.map(|reference| text(&reference["spanID"])).collect(),
        start: i128::from(span["startTime"].as_u64().unwrap()) * 1000,
    };
    (row, has_tag(span, "error", true))
}

fn has_tag(span: &Value, key: &str, value: bool) -> bool {
    span["tags"].as_array().unwrap().iter().any(|tag| tag["key"] == key && tag["value"] == value)
}

/// Each trace reads as documented, without a warning, and is found by the searches that are said to
/// find it. `trace` answers for one trace, and `search` says which have `rehop.was_parked` so.
fn assert_answers(
    scenes: &[Scene],
    trace: impl Fn(&[SpanData]) -> Value,
    search: impl Fn(bool) -> BTreeSet<String>,
) {
    let found = [false, true].map(|value| (value, search(value)));
    for (was_parked, traces) in scenes {
        for (number, spans) in traces.iter().enumerate() {
            let answer = trace(spans);
            assert_eq!(answer["data"].as_array().map(Vec::len), Some(1), "{answer:#}");
            let answered = answer["data"][0]["spans"].as_array().unwrap();
            assert_eq!(answered.len(), spans.len(), "{answer:#}");
            for span in answered {
                let warnings = span["warnings"].as_array();
                assert!(warnings.is_none_or(Vec::is_empty), "{span:#}");
                assert!(span["duration"].as_u64().unwrap() > 0, "{span:#}");
            }
            let shown = drawn(&answered.iter().map(row).collect::<Vec<_>>());
            assert_eq!(shown, drawn(&as_rows(spans, None)));
            // Of a message that nothing identifies, only the first trace is documented.
            assert!(number > 0 || is_documented(&shown), "{shown}");
        }
        for (value, found) in &found {
            let id = |trace: &Vec<SpanData>| trace[0].span_context.trace_id().to_string();
            let is_found = traces.iter().map(id).any(|id| found.contains(&id));
            let last = &traces[0].last().unwrap().name;
            assert_eq!(is_found, was_parked.contains(value), "{value}: {last}");
        }
    }
}

fn ids(answer: &Value) -> BTreeSet<String> {
    let traces = answer["data"].as_array().into_iter().flatten();
    traces.filter_map(|trace| trace["traceID"].as_str()).map(str::to_owned).collect()
}

/// The traces with a span that has `rehop.was_parked` so.
fn with_was_parked(spans: &[SpanData], value: bool) -> BTreeSet<String> {
    let has_it = |span: &&SpanData| {
        let is_it = |it: &KeyValue| it.key.as_str() == WAS_PARKED && it.value == value.into();
        span.attributes.iter().any(is_it)
    };
    spans.iter().filter(has_it).map(|span| span.span_context.trace_id().to_string()).collect()
}

/// The times between which a search finds the spans, in microseconds: a second more on each side.
fn searched(spans: &[SpanData]) -> [i128; 2] {
    let start = spans.iter().map(|span| nanos(span.start_time)).min().unwrap();
    let end = spans.iter().map(|span| nanos(span.end_time)).max().unwrap();
    [start / 1000 - 1_000_000, end / 1000 + 1_000_000]
}

/// A variable's value. One that is empty is not set.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Where that Jaeger takes OTLP unless it is told otherwise.
fn otlp_beside(url: &str) -> String {
    let parsed = reqwest::Url::parse(url);
    let mut otlp = parsed.unwrap_or_else(|error| panic!("{URL}={url}: {error}"));
    otlp.set_port(Some(4318)).unwrap_or_else(|()| panic!("{URL}={url} has no port"));
    otlp.origin().ascii_serialization()
}

fn get(url: &str) -> Value {
    let answer = reqwest::blocking::get(url).and_then(reqwest::blocking::Response::text);
    let answer = answer.unwrap_or_else(|error| panic!("{url}: {error}"));
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{url}: {error}: {answer}"))
}

/// What Jaeger answers once this is enough: it stores what it has taken some time later.
fn answer_of(url: &str, is_enough: impl Fn(&Value) -> bool) -> Value {
    let mut answer = get(url);
    for _ in 0..300 {
        if is_enough(&answer) {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(100));
        answer = get(url);
    }
    panic!("{url} is incomplete after 30 s: {answer:#}")
}

#[test]
fn the_documented_scenes_read_the_same_in_answers_in_the_form_of_jaegers_api() {
    let scenes = played();
    let answers: Vec<_> =
        scenes.iter().flat_map(|(_, traces)| traces).map(|it| answer_for(it)).collect();
    let search = |value| {
        let is_found = |answer: &&Value| {
            let spans = answer["data"][0]["spans"].as_array().unwrap();
            spans.iter().any(|span| has_tag(span, WAS_PARKED, value))
        };
        answers.iter().filter(is_found).flat_map(ids).collect()
    };
    assert_answers(&scenes, answer_for, search);
}

#[test]
fn a_real_jaeger_shows_the_documented_scenes() {
    let Some(url) = variable(URL) else {
        eprintln!("NOT TRIED: a real Jaeger; `make jaeger` says what to set");
        return;
    };
    let otlp = variable(OTLP).unwrap_or_else(|| otlp_beside(&url));
    let service = format!("rehop-scenes-{:08x}", random::<u32>());
    let (scenes, url) = (played(), url.trim_end_matches('/'));
    let exporter = otlp::exporter_for_tests(&otlp, &service);
    let spans: Vec<_> = scenes.iter().flat_map(|(_, traces)| traces.concat()).collect();
    // The blocking client has the answer when it returns.
    let exported = exporter.export(spans.clone()).now_or_never().unwrap();
    exported.unwrap_or_else(|error| panic!("{otlp}: {error}"));
    let trace = |spans: &[SpanData]| {
        let url = format!("{url}/api/traces/{}", spans[0].span_context.trace_id());
        let stored = |answer: &Value| answer["data"][0]["spans"].as_array().map_or(0, Vec::len);
        answer_of(&url, |answer| stored(answer) >= spans.len())
    };
    let [start, end] = searched(&spans);
    let search = |value: bool| {
        let tags = format!("%7B%22{WAS_PARKED}%22%3A%22{value}%22%7D");
        let times = format!("start={start}&end={end}");
        let url = format!("{url}/api/traces?service={service}&{times}&limit=100&tags={tags}");
        let expected = with_was_parked(&spans, value);
        ids(&answer_of(&url, |answer| expected.is_subset(&ids(answer))))
    };
    assert_answers(&scenes, trace, search);
}
