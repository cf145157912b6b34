//! The span and the metrics of a message that a service publishes. The span is the parent of the
//! chain's attempts.

use std::time::SystemTime;

use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue, global};

use super::titles::one_line;
use super::{names, propagation, spans};
use crate::clock;
use crate::retry::ledger::{MAX_MESSAGE_BYTES, cut};
use crate::settings::address::Server;
use crate::wire::stand_in::MAX_SHORT_STRING;

/// From the call until the confirm. It ends when it is dropped.
pub(crate) struct PublishSpan {
    context: Context,
    started: SystemTime,
}

impl PublishSpan {
    /// A child of the current span. The program may give texts that no broker takes.
    pub(crate) fn start(
        exchange: &str,
        routing_key: &str,
        message_id: &str,
        server: Option<&Server>,
    ) -> Self {
        let [exchange, routing_key, message_id] =
            [exchange, routing_key, message_id].map(|text| cut(text, MAX_SHORT_STRING));
        let (template, destination) = if exchange.is_empty() {
            (routing_key, routing_key.to_owned())
        } else {
            (exchange, format!("{exchange}:{routing_key}"))
        };
        let tracer = global::tracer("rehop");
        // Routing keys may be ids, so the name has only the exchange.
        let attributes = [
            KeyValue::new(names::SYSTEM, names::RABBITMQ),
            KeyValue::new(names::OPERATION_NAME, "publish"),
            KeyValue::new(names::OPERATION_TYPE, "send"),
            KeyValue::new(names::DESTINATION_NAME, destination),
            KeyValue::new(names::ROUTING_KEY, routing_key.to_owned()),
            KeyValue::new(names::MESSAGE_ID, message_id.to_owned()),
        ];
        let attributes = attributes.into_iter().chain(spans::server_attributes(server));
        let builder = tracer
            .span_builder(format!("publish {}", one_line(template)))
            .with_kind(SpanKind::Producer);
        let builder = builder.with_attributes(attributes);
        let parent = Context::current();
        let started = clock::date();
        let span = tracer.build_with_context(builder.with_start_time(started), &parent);
        Self { context: parent.with_span(span), started }
    }

    /// The headers that make the message's attempts children of this span.
    pub(crate) fn headers(&self) -> Vec<(&'static str, String)> {
        propagation::headers_of(&self.context)
    }

    pub(crate) fn failed(&self, error_type: &'static str, text: String) {
        self.context.span().set_attribute(KeyValue::new(names::ERROR_TYPE, error_type));
        self.context.span().set_status(Status::error(cut(&text, MAX_MESSAGE_BYTES).to_owned()));
    }
}

impl Drop for PublishSpan {
    fn drop(&mut self) {
        self.context.span().end_with_timestamp(spans::ended(self.started));
    }
}
