//! A small OTLP receiver, and the spans that it received or that a simulated demo recorded.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::trace::v1::{Span as Exported, status::StatusCode};
use opentelemetry_sdk::trace::SpanData;
use prost::Message as _;
use rehop_operator::format::hex;
use serde::Serialize;
use serde_json::Value;

use super::clocks::{self, Timed};
use super::lock::lock;

/// Keeps each export of traces unchanged.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    exports: Mutex<Vec<Bytes>>,
}

impl Receiver {
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        let keep = async |State(receiver): State<Arc<Self>>, export: Bytes| {
            lock(&receiver.exports).push(export)
        };
        Router::new().route("/v1/traces", post(keep)).fallback(async || ()).with_state(self.clone())
    }

    pub(crate) fn spans(&self) -> anyhow::Result<Vec<Span>> {
        let mut spans = Vec::new();
        for export in lock(&self.exports).iter() {
            for resource in ExportTraceServiceRequest::decode(export.clone())?.resource_spans {
                let host = host(resource.resource.unwrap_or_default().attributes);
                let exported = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                spans.extend(exported.map(|span| Span { host: host.clone(), ..Span::from(span) }));
            }
        }
        Ok(spans)
    }

    /// Sends the same exports to a real collector.
    pub(crate) async fn pass_on(&self, collector: &str) -> anyhow::Result<()> {
        let client = reqwest::Client::builder().timeout(Duration::from_secs(3)).build()?;
        let (url, exports) =
            (format!("{}/v1/traces", collector.trim_end_matches('/')), lock(&self.exports).clone());
        for export in exports {
            let request =
                client.post(&url).header(CONTENT_TYPE, "application/x-protobuf").body(export);
            let taken = request.send().await.and_then(reqwest::Response::error_for_status);
            taken.map_err(reqwest::Error::without_url)?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Span {
    pub(crate) trace_id: String,
    pub(crate) span_id: String,
    /// Empty at the root.
    pub(crate) parent_id: String,
    pub(crate) name: String,
    /// Who exported it.
    pub(crate) host: String,
    /// In nanoseconds since the epoch.
    pub(crate) start: u64,
    /// In nanoseconds since the epoch.
    pub(crate) end: u64,
    /// Whether its status is Error.
    pub(crate) failed: bool,
    pub(crate) attributes: BTreeMap<String, Value>,
}

impl Span {
    pub(crate) fn text(&self, attribute: &str) -> Option<&str> {
        self.attributes.get(attribute)?.as_str()
    }

    pub(crate) fn number(&self, attribute: &str) -> Option<u64> {
        self.attributes.get(attribute)?.as_u64()
    }

    pub(crate) fn time(&self) -> RangeInclusive<u64> {
        self.start..=self.end
    }

    /// Whether it is an attempt, or a decision without one.
    pub(crate) fn is_process(&self) -> bool {
        self.text("messaging.operation.type") == Some("process")
    }

    pub(crate) fn is_wait(&self) -> bool {
        self.attributes.contains_key("rehop.lateness_ms")
    }
}

/// The `host.name` of a resource, which rehop sets.
fn host(attributes: Vec<KeyValue>) -> String {
    let name = attributes.into_iter().find(|attribute| attribute.key == "host.name");
    match name.and_then(|attribute| attribute.value?.value) {
        Some(AnyValue::StringValue(name)) => name,
        _ => String::new(),
    }
}

/// How many traces there are, and in how many of them Jaeger doubts a clock.
pub(crate) fn doubted(spans: &[Span]) -> (usize, usize) {
    let mut traces = BTreeMap::<&str, Vec<Timed>>::new();
    for span in spans {
        traces.entry(&span.trace_id).or_default().push(Timed {
            id: span.span_id.clone(),
            parent: span.parent_id.clone(),
            host: span.host.clone(),
            start: span.start.into(),
            end: span.end.into(),
        });
    }
    (traces.len(), traces.values().filter(|trace| !clocks::doubted(trace).is_empty()).count())
}

impl From<Exported> for Span {
    fn from(span: Exported) -> Self {
        let attributes = span.attributes.into_iter();
        Self {
            trace_id: hex(&span.trace_id),
            span_id: hex(&span.span_id),
            parent_id: hex(&span.parent_span_id),
            name: span.name,
            host: String::new(),
            start: span.start_time_unix_nano,
            end: span.end_time_unix_nano,
            failed: span.status.is_some_and(|status| status.code == StatusCode::Error as i32),
            attributes: attributes
                .filter_map(|pair| Some((pair.key, json(pair.value?.value?))))
                .collect(),
        }
    }
}

impl From<SpanData> for Span {
    /// A span that this process has recorded. All processes of a world have one clock, and so one
    /// host.
    fn from(span: SpanData) -> Self {
        let attributes = span.attributes.into_iter();
        let id = |id: SpanId| if id == SpanId::INVALID { String::new() } else { id.to_string() };
        Self {
            trace_id: span.span_context.trace_id().to_string(),
            span_id: id(span.span_context.span_id()),
            parent_id: id(span.parent_span_id),
            name: span.name.into_owned(),
            host: "simulated".to_owned(),
            start: nanos(span.start_time),
            end: nanos(span.end_time),
            failed: matches!(span.status, Status::Error { .. }),
            attributes: attributes
                .map(|pair| (pair.key.to_string(), recorded_json(pair.value)))
                .collect(),
        }
    }
}

fn recorded_json(value: opentelemetry::Value) -> Value {
    match value {
        opentelemetry::Value::Bool(it) => Value::from(it),
        opentelemetry::Value::I64(number) => Value::from(number),
        opentelemetry::Value::F64(number) => Value::from(number),
        other => Value::from(other.as_str().into_owned()),
    }
}

fn json(value: AnyValue) -> Value {
    match value {
        AnyValue::StringValue(text) => Value::from(text),
        AnyValue::BoolValue(it) => Value::from(it),
        AnyValue::IntValue(number) => Value::from(number),
        AnyValue::DoubleValue(number) => Value::from(number),
        // rehop's attributes have no other types.
        other => Value::from(format!("{other:?}")),
    }
}

/// The time in the unit of spans: nanoseconds since the epoch. In a simulated world it is that
/// world's.
pub(crate) fn now_nanos() -> u64 {
    nanos(rehop::internals::date())
}

pub(crate) fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
