//! Spans as they came over the wire.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::Value;

/// One exported span.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub(super) trace_id: String,
    pub(super) span_id: String,
    /// Empty at the root.
    pub(super) parent_id: String,
    pub(super) name: String,
    /// In nanoseconds since the epoch.
    pub(super) start: u64,
    /// In nanoseconds since the epoch.
    pub(super) end: u64,
    /// Whether its status is Error.
    pub(super) failed: bool,
    pub(super) attributes: BTreeMap<String, Value>,
}

impl Span {
    pub(super) fn text(&self, attribute: &str) -> Option<&str> {
        self.attributes.get(attribute)?.as_str()
    }

    pub(super) fn number(&self, attribute: &str) -> Option<u64> {
        self.attributes.get(attribute)?.as_u64()
    }

    /// Whether it is an attempt, or what was decided without one.
    pub(super) fn is_process(&self) -> bool {
        self.text("messaging.operation.type") == Some("process")
    }

    pub(super) fn is_wait(&self) -> bool {
        self.attributes.contains_key("rehop.lateness_ms")
    }
}

/// The spans of one export.
pub(super) fn spans_of(export: ExportTraceServiceRequest) -> impl Iterator<Item = Span> {
    let scopes = export.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).map(|span| Span {
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent_id: hex(&span.parent_span_id),
        name: span.name,
        start: span.start_time_unix_nano,
        end: span.end_time_unix_nano,
        failed: span.status.is_some_and(|status| status.code == StatusCode::Error as i32),
        attributes: span.attributes.into_iter().filter_map(|pair| Some((pair.key, json(pair.value?.value?)))).collect(),
    })
}

fn json(value: AnyValue) -> Value {
    match value {
        AnyValue::StringValue(text) => Value::from(text),
        AnyValue::BoolValue(it) => Value::from(it),
        AnyValue::IntValue(number) => Value::from(number),
        AnyValue::DoubleValue(number) => Value::from(number),
        // None of rehop's attributes is one of the others.
        other => Value::from(format!("{other:?}")),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
