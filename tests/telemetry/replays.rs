//! The spans of messages that an operator sends back: in traces of their own, linked to those of the messages.

use std::future::pending;
use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use rehop_operator::parked::{EditRequest, Parked, ParkedError, Place, RampSettings, ReplayRequest};
use rehop_testing::Publish;
use serde_json::json;

use super::chain::{Producer, hex, spans};
use super::collector::attribute;
use crate::support::{Fixture, SOON};

/// At once, and followed until the fate is known.
fn everything() -> ReplayRequest {
    let mut request = ReplayRequest::default();
    (request.ramp, request.follow) = (RampSettings::none(), SOON);
    request
}

/// Puts a message with this producer's context to rest by this exchange.
async fn rest(fixture: &Fixture, producer: &Producer, exchange: &str, return_to: &str) {
    crate::set_up();
    let exchange = fixture.namespace.exchange(exchange);
    let message = Publish { exchange, ..producer.message(fixture) };
    let message = message.header("rehop-chain-id", "seven").header("rehop-return-to", return_to);
    fixture.client.publish(message).await.unwrap();
}

/// The operator's only span of this name, after the checks that hold for each.
async fn sent(name: &str, queue: &str, producer: &Producer) -> Span {
    let mut found = spans(name, |span| span.name == format!("{name} {queue}"), 1).await;
    assert_eq!(found.len(), 1);
    let span = found.remove(0);
    assert_eq!(span.kind, SpanKind::Producer as i32);
    assert!(span.parent_span_id.is_empty() && hex(&span.trace_id) != producer.trace, "a trace of its own");
    let links: Vec<_> = span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect();
    assert_eq!(links, [(producer.trace.clone(), producer.span.clone())]);
    for (key, expected) in [
        ("messaging.system", "rabbitmq"),
        ("messaging.operation.name", name),
        ("messaging.operation.type", "send"),
        ("messaging.destination.template", queue),
        ("rehop.chain_id", "seven"),
    ] {
        assert_eq!(attribute(&span.attributes, key).as_deref(), Some(expected), "{key}");
    }
    span
}

fn is_failed(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_and_an_edit_leave_a_span_of_each_message_with_their_run_and_a_link_to_its_trace() {
    for name in ["replay", "edit"] {
        let (fixture, producer) = (Fixture::new(name).await, Producer::new());
        fixture.declare().await;
        rest(&fixture, &producer, "park", "").await;
        fixture.has_depth(&fixture.parked(), 1).await;
        let serving = fixture.serve_always(Ok(())).await;
        let operator = Parked::open(&fixture.settings, Place::queue(&fixture.queue)).unwrap();
        let (run, fates) = if name == "replay" {
            let replayed = operator.replay(&everything(), |_| {}, pending()).await.unwrap();
            (replayed.run, replayed.fates)
        } else {
            let mut request = EditRequest::new("seven", "mended");
            request.follow = SOON;
            let edited = operator.edit(&request).await.unwrap();
            (edited.run, edited.fates)
        };
        assert_eq!(fates.handled, 1);
        let span = sent(name, &fixture.queue, &producer).await;
        assert_eq!(attribute(&span.attributes, "rehop.replay_run"), Some(run));
        assert!(!is_failed(&span) && attribute(&span.attributes, "error.type").is_none(), "{span:?}");
        // The message goes on in its own trace.
        let attempts = |span: &Span| hex(&span.trace_id) == producer.trace && span.name.starts_with("process ");
        spans("the attempt", attempts, 1).await;
        serving.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_span_of_a_copy_that_its_queue_refuses_says_so() {
    for name in ["replay", "edit"] {
        let (fixture, producer) = (Fixture::new(&format!("{name}-refused")).await, Producer::new());
        fixture.declare().await;
        // It has room for one message, and has it.
        let full = fixture.namespace.queue("full");
        let arguments = json!({ "x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish" });
        fixture.client.declare_queue(&full, arguments).await.unwrap();
        let home = json!({ "x-match": "all", "rehop-return-to": full });
        fixture.client.bind(&full, &fixture.namespace.exchange("return"), "", home).await.unwrap();
        fixture.client.publish(Publish::to_queue(&full).body("first")).await.unwrap();
        rest(&fixture, &producer, "stray", &full).await;
        fixture.has_depth(&fixture.stray(), 1).await;
        let operator = Parked::open(&fixture.settings, Place::Stray).unwrap();
        let refused = if name == "replay" {
            operator.replay(&everything(), |_| {}, pending()).await.err()
        } else {
            let mut request = EditRequest::new("seven", "mended");
            request.follow = Duration::ZERO;
            operator.edit(&request).await.err()
        };
        assert!(matches!(refused, Some(ParkedError::Refused { .. })), "{refused:?}");
        let span = sent(name, &full, &producer).await;
        assert_eq!(attribute(&span.attributes, "error.type").as_deref(), Some("unconfirmed"));
        assert!(is_failed(&span), "{span:?}");
        fixture.has_depth(&fixture.stray(), 1).await;
    }
}
