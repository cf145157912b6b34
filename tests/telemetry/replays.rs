//! The spans of an operator: one for each run, in a trace of its own, and one for each message that
//! is moved, in the message's trace.

use std::future::pending;
use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use rehop_operator::parked::{
    DiscardRequest, EditRequest, Filter, Parked, ParkedError, Place, RampSettings, ReplayRequest,
    RestoreRequest,
};
use rehop_testing::Publish;
use serde_json::json;

use super::chain::{Chain, Producer, hex, spans};
use super::collector::attribute;
use crate::support::{Fixture, SOON};

/// At once, and followed until the fate is known.
fn everything() -> ReplayRequest {
    let mut request = ReplayRequest::default();
    (request.ramp, request.follow) = (RampSettings::none(), SOON);
    (request.who, request.why) = (Some("Ada".to_owned()), Some("ticket 7".to_owned()));
    request
}

/// The message's body is replaced.
fn mended(follow: Duration) -> EditRequest {
    let mut request = EditRequest::new("seven", "mended");
    (request.who, request.why) = (Some("Ada".to_owned()), Some("ticket 7".to_owned()));
    request.follow = follow;
    request
}

/// Puts a message with this producer's context to rest by this exchange.
async fn rest(fixture: &Fixture, producer: &Producer, exchange: &str, return_to: &str) {
    let message = at_rest(fixture, producer, exchange, return_to);
    fixture.client.publish(message).await.unwrap();
}

/// That message. Its trace is recorded.
fn at_rest(fixture: &Fixture, producer: &Producer, exchange: &str, return_to: &str) -> Publish {
    crate::set_up();
    let exchange = fixture.namespace.exchange(exchange);
    let message = Publish { exchange, ..producer.message(fixture) };
    let message = message.message_id("m-7");
    message.header("rehop-chain-id", "seven").header("rehop-return-to", return_to)
}

/// The run's only span and the message's, after the checks that hold for each.
async fn sent(
    operation: &str,
    (resting, queue): (&str, &str),
    producer: &Producer,
) -> (Span, Span) {
    let one = async |name: String| {
        let mut found = spans(&name, |span| span.name == name, 1).await;
        assert_eq!(found.len(), 1, "{name}");
        found.remove(0)
    };
    let states = ["stray", "discarded"];
    let state = states.into_iter().find(|it| resting.ends_with(&format!(".{it}")));
    let state = state.unwrap_or("parked");
    let (run, rest) = (
        one(format!("{operation} {resting}")).await,
        one(format!("{state} until the {operation}: {queue}")).await,
    );
    assert!(
        run.parent_span_id.is_empty() && hex(&run.trace_id) != producer.trace,
        "a trace of its own"
    );
    assert!(
        rest.parent_span_id.is_empty() && hex(&rest.trace_id) == producer.trace,
        "the message's trace"
    );
    let links: Vec<_> = rest.links.iter().map(|link| (&link.trace_id, &link.span_id)).collect();
    assert_eq!(links, [(&run.trace_id, &run.span_id)]);
    for span in [&run, &rest] {
        assert_eq!(span.kind, SpanKind::Internal as i32);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        for (key, expected) in [
            ("messaging.system", "rabbitmq"),
            ("rehop.operation", operation),
            ("rehop.parked_queue", resting),
            ("rehop.operator", "Ada"),
            ("rehop.why", "ticket 7"),
        ] {
            assert_eq!(attribute(&span.attributes, key).as_deref(), Some(expected), "{key}");
        }
    }
    for (key, expected) in [
        ("messaging.destination.template", queue),
        ("rehop.chain_id", "seven"),
        ("messaging.message.id", "m-7"),
        ("rehop.end", if operation == "discard" { "discarded" } else { state }),
    ] {
        assert_eq!(attribute(&rest.attributes, key).as_deref(), Some(expected), "{key}");
    }
    let was_parked = match state {
        "discarded" => None,
        state => Some((state == "parked").to_string()),
    };
    assert_eq!(attribute(&rest.attributes, "rehop.was_parked"), was_parked);
    (run, rest)
}

fn is_failed(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_and_an_edit_say_in_the_messages_trace_who_sent_it_back_and_the_next_attempt_links_to_that()
 {
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
            let edited = operator.edit(&mended(SOON)).await.unwrap();
            (edited.run, edited.fates)
        };
        assert_eq!(fates.handled, 1);
        let (of_run, rest) = sent(name, (&fixture.parked(), &fixture.queue), &producer).await;
        for span in [&of_run, &rest] {
            assert_eq!(attribute(&span.attributes, "rehop.replay_run").as_ref(), Some(&run));
            assert!(
                !is_failed(span) && attribute(&span.attributes, "error.type").is_none(),
                "{span:?}"
            );
        }
        assert_eq!(attribute(&of_run.attributes, "rehop.sent").as_deref(), Some("1"));
        let selection = if name == "replay" { "all" } else { "chains=seven" };
        assert_eq!(attribute(&of_run.attributes, "rehop.selection").as_deref(), Some(selection));
        // The message goes on in its own trace.
        let chain = Chain::of(&producer, &fixture, 2).await;
        let attempt = chain.attempt(1);
        let links: Vec<_> = attempt.links.iter().map(|link| &link.span_id).collect();
        assert!(attempt.parent_span_id.is_empty() && links == [&rest.span_id], "{attempt:?}");
        serving.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discard_and_a_restore_say_so_in_the_messages_trace_and_leave_its_headers_as_they_are() {
    let (fixture, producer) = (Fixture::new("discard").await, Producer::new());
    fixture.declare().await;
    let parked_at = 1_700_000_000_000_u64;
    let message = at_rest(&fixture, &producer, "park", "").header("rehop-parked-at", parked_at);
    fixture.client.publish(message).await.unwrap();
    fixture.has_depth(&fixture.parked(), 1).await;
    let operator = Parked::open(&fixture.settings, Place::queue(&fixture.queue)).unwrap();
    let mut discard = DiscardRequest::default();
    (discard.who, discard.why) = (Some("Ada".to_owned()), Some("ticket 7".to_owned()));
    let discarded = operator.discard(&discard, |_| {}, pending()).await.unwrap();
    let places = [fixture.parked(), fixture.namespace.queue("discarded")];
    let (run, before) = sent("discard", (&places[0], &fixture.queue), &producer).await;
    for (key, expected) in [
        ("rehop.replay_run", discarded.run.as_str()),
        ("rehop.selection", "all"),
        ("rehop.matched", "1"),
        ("rehop.sent", "1"),
        ("rehop.stayed", "0"),
    ] {
        assert_eq!(attribute(&run.attributes, key).as_deref(), Some(expected), "{key}");
    }
    let mut restore = RestoreRequest::default();
    restore.filter = Filter::run(discarded.run);
    (restore.who, restore.why) = (Some("Ada".to_owned()), Some("ticket 7".to_owned()));
    let bin = Parked::open(&fixture.settings, Place::Discarded).unwrap();
    bin.restore(&restore, |_| {}, pending()).await.unwrap();
    let (_, rest) = sent("restore", (&places[1], &fixture.queue), &producer).await;
    assert!(!is_failed(&rest), "{rest:?}");
    assert_eq!(before.start_time_unix_nano, parked_at * 1_000_000);
    assert!(rest.start_time_unix_nano > before.start_time_unix_nano, "{before:?}, {rest:?}");
    let back = fixture.client.drain(&fixture.parked(), 1, SOON).await.unwrap();
    let headers = &back[0].headers;
    assert_eq!(headers["traceparent"], producer.traceparent());
    assert!(!headers.contains_key("rehop-previous-attempt"), "{headers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_span_of_a_copy_that_its_queue_refuses_says_so() {
    for name in ["replay", "edit"] {
        let (fixture, producer) = (Fixture::new(&format!("{name}-refused")).await, Producer::new());
        fixture.declare().await;
        // It has room for one message, and has it.
        let full = fixture.namespace.queue("full");
        let arguments =
            json!({ "x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish" });
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
            operator.edit(&mended(Duration::ZERO)).await.err()
        };
        let is_expected = matches!(
            refused,
            Some(ParkedError::Refused { .. } | ParkedError::EditUnconfirmed { .. })
        );
        assert!(is_expected, "{refused:?}");
        let (run, rest) = sent(name, (&fixture.stray(), &full), &producer).await;
        assert_eq!(attribute(&rest.attributes, "error.type").as_deref(), Some("unconfirmed"));
        assert!(is_failed(&rest) && is_failed(&run), "{run:?}, {rest:?}");
        fixture.has_depth(&fixture.stray(), 1).await;
    }
}

/// As one that the broker has parked after deaths, or one whose producer does not trace.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_a_context_is_replayed_into_the_trace_of_its_other_attempts() {
    crate::set_up();
    let fixture = Fixture::new("replay-no-context").await;
    fixture.declare().await;
    let message = |at: Publish| {
        at.body("7").message_id("order-9").properties(|it| it.timestamp = Some(1_700_000_000))
    };
    fixture
        .client
        .publish(message(Publish::to(fixture.namespace.exchange("park"), &fixture.queue)))
        .await
        .unwrap();
    fixture.has_depth(&fixture.parked(), 1).await;
    let serving = fixture.serve_always(Ok(())).await;
    // The same message as if it had never been parked.
    fixture.client.publish(message(fixture.to_queue())).await.unwrap();
    let first = Chain::of_queue(&fixture, 1).await;
    let operator = Parked::open(&fixture.settings, Place::queue(&fixture.queue)).unwrap();
    assert_eq!(operator.replay(&everything(), |_| {}, pending()).await.unwrap().fates.handled, 1);
    let all = Chain::of_queue(&fixture, 3).await;
    serving.stop().await;
    assert!(
        all.spans.iter().all(|span| span.trace_id == first.spans[0].trace_id),
        "{}",
        all.outline()
    );
    let rest = all.named("parked ")[0];
    assert!(
        all.process().any(|span| span.links.iter().any(|link| link.span_id == rest.span_id)),
        "{}",
        all.outline()
    );
}
