//! Where the context of a chain comes from, how it is passed on, and what a handler sees of it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rehop::{Failure, Message};
use rehop_testing::Publish;
use serde_json::{Value, json};
use tracing::Instrument;

use super::chain::{Chain, Producer, hex};
use super::collector::attribute;
use crate::support::{Fixture, Log, millis};

type Headers = BTreeMap<&'static str, String>;

/// Runs a service that fails once, in its own `tracing` span, and returns the result of
/// `current_headers` for each attempt.
async fn run(fixture: &Fixture, message: Publish) -> Vec<Headers> {
    crate::set_up();
    let seen = Log::default();
    let log = seen.clone();
    let handler = move |message: Message<Bytes>| {
        let log = log.clone();
        async move {
            let headers: Headers = rehop::telemetry::current_headers().into_iter().collect();
            let charging = tracing::info_span!("charge the card", amount = 7);
            async { tracing::info!("charging") }.instrument(charging).await;
            log.push(headers);
            if message.attempt() == 1 { Err(Failure::transient("not yet")) } else { Ok(()) }
        }
    };
    let running = fixture.serve(handler).await;
    fixture.client.publish(message).await.unwrap();
    seen.reaches(2).await;
    running.stop().await;
    assert_eq!(seen.owners(), 1, "a handler still exists after the run");
    let seen = seen.all();
    assert_eq!(seen.len(), 2);
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn the_handlers_spans_and_headers_belong_to_its_attempt() {
    let (fixture, producer) = (Fixture::new("handlers-spans").await, Producer::new());
    let seen = run(&fixture, producer.message(&fixture).header("tracestate", "vendor=1")).await;
    let chain = Chain::of(&producer, &fixture, 6).await;
    let charges = chain.named("charge the card");
    for (number, headers) in [(1, &seen[0]), (2, &seen[1])] {
        let attempt = chain.attempt(number);
        assert!(
            charges.iter().any(|charge| charge.parent_span_id == attempt.span_id),
            "attempt {number}"
        );
        assert_eq!(
            headers["traceparent"],
            format!("00-{}-{}-01", producer.trace, hex(&attempt.span_id))
        );
        assert_eq!(headers["tracestate"], "vendor=1");
        assert_eq!(attempt.trace_state, "vendor=1");
    }
    let arrived = crate::collector().arrived();
    let told =
        arrived.logs.iter().find(|log| charges.iter().any(|charge| charge.span_id == log.span_id));
    assert!(told.is_some(), "the handler's events are logs of its span");
}

#[tokio::test(flavor = "multi_thread")]
async fn context_and_baggage_travel_as_text_and_as_bytes_and_are_never_doubled() {
    let bytes = |text: &str| json!({ "$amqp": { "ByteArray": text.as_bytes() } });
    let plain = |text: &str| json!(text);
    for (name, form) in [("text", &plain as &dyn Fn(&str) -> Value), ("bytes", &bytes)] {
        let (fixture, producer) = (Fixture::new(name).await, Producer::new());
        let message = fixture
            .to_queue()
            .body("7")
            .header("traceparent", form(&producer.traceparent()))
            .header("tracestate", form("vendor=1"))
            .header("baggage", form("tenant=a%20b,plan=gold;secret"));
        let seen = run(&fixture, message).await;
        Chain::of(&producer, &fixture, 6).await;
        for headers in &seen {
            assert!(headers["traceparent"].contains(&producer.trace), "{name}: {headers:?}");
            assert_eq!(headers["tracestate"], "vendor=1", "{name}");
            let mut members: Vec<_> = headers["baggage"].split(',').collect();
            members.sort_unstable();
            assert_eq!(members, ["plan=gold;secret", "tenant=a%20b"], "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_producers_context_the_first_attempt_is_the_root() {
    let malformed = [("traceparent", "00-nonsense"), ("tracestate", ",,="), ("baggage", "\u{1}=1")];
    let forbidden = [("traceparent", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")];
    let long = "x".repeat(10 * 1024);
    let long = [
        ("traceparent", long.as_str()),
        ("message_id", long.as_str()),
        ("rehop-chain-id", long.as_str()),
    ];
    for (name, headers) in [
        ("no-context", &[][..]),
        ("malformed", &malformed[..]),
        ("version-ff", &forbidden[..]),
        ("long", &long[..]),
    ] {
        let fixture = Fixture::new(name).await;
        let mut message = fixture.to_queue().body("7").message_id("order-7");
        for (header, value) in headers {
            message = message.header(*header, *value);
        }
        let seen = run(&fixture, message).await;
        let chain = Chain::of_queue(&fixture, 4).await;
        assert_eq!(
            chain.outline(),
            "process ns.orders #1 CONSUMER parent=none attempt=1 hop=0 outcome=wait error=transient final=false\n\
             \x20 waits 100ms CLIENT\n\
             wait 100ms, then ns.orders INTERNAL parent=none hop=1\n\
             \x20 process ns.orders: handled CONSUMER attempt=2 hop=1 outcome=ack link=attempt-1\n",
            "{name}"
        );
        assert!(
            chain.spans.iter().all(|span| span.trace_id == chain.spans[0].trace_id),
            "{name}: one trace"
        );
        assert!(seen.iter().all(|headers| !headers.contains_key("baggage")), "{name}");
        assert_eq!(
            attribute(&chain.attempt(1).attributes, "rehop.chain_id").as_deref(),
            Some("order-7"),
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_is_too_old_continues_in_a_new_trace_that_links_back() {
    let (mut fixture, producer) = (Fixture::new("split").await, Producer::new());
    fixture.settings.trace.max_age = Duration::from_secs(1);
    fixture.settings.retry.delays = millis([1200]);
    run(&fixture, producer.message(&fixture)).await;
    // The second attempt has another trace, so its spans are found by the queue.
    let chain = Chain::of_queue(&fixture, 4).await;
    let (first, second) = (chain.attempt(1), chain.attempt(2));
    assert_eq!(hex(&first.trace_id), producer.trace);
    assert_ne!(second.trace_id, first.trace_id);
    let wait = chain.named("wait ")[0];
    assert_eq!((&second.parent_span_id, &second.trace_id), (&wait.span_id, &wait.trace_id));
    assert!(wait.parent_span_id.is_empty());
    let links: Vec<_> =
        second.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect();
    assert_eq!(
        links,
        [
            (producer.trace.clone(), producer.span.clone()),
            (producer.trace.clone(), hex(&first.span_id))
        ]
    );
    let id = |number| attribute(&chain.attempt(number).attributes, "rehop.chain_id");
    assert_eq!(id(1), id(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_of_another_version_or_with_unknown_flags_is_the_parent() {
    for (name, version, rest) in [("version-7", "07", "01-more"), ("flags", "00", "ff")] {
        let (fixture, producer) = (Fixture::new(name).await, Producer::new());
        let traceparent = format!("{version}-{}-{}-{rest}", producer.trace, producer.span);
        let seen =
            run(&fixture, fixture.to_queue().body("7").header("traceparent", traceparent)).await;
        let chain = Chain::of(&producer, &fixture, 6).await;
        assert_eq!(hex(&chain.attempt(1).parent_span_id), producer.span, "{name}");
        assert!(
            seen.iter().all(|headers| headers["traceparent"].starts_with("00-")),
            "{name}: {seen:?}"
        );
    }
}

/// As a service that is started again after a crash, or a second one, would find the message.
#[tokio::test(flavor = "multi_thread")]
async fn all_attempts_of_a_message_with_an_id_are_in_one_trace_whichever_process_makes_them() {
    crate::set_up();
    let mut fixture = Fixture::new("no-context-requeued").await;
    fixture.retry().immediate = Some(1);
    let message = |id: &str| {
        fixture
            .to_queue()
            .body("7")
            .message_id(id)
            .properties(|it| it.timestamp = Some(1_700_000_000))
    };
    for (id, attempts) in [("order-7", 3), ("order-8", 1)] {
        let seen = Log::default();
        let counter = seen.clone();
        let running = fixture
            .serve(move |_: Message<Bytes>| {
                let last = counter.push(()) >= attempts;
                async move { if last { Ok(()) } else { Err(Failure::transient("not yet")) } }
            })
            .await;
        fixture.client.publish(message(id)).await.unwrap();
        seen.reaches(attempts).await;
        running.stop().await;
    }
    let chain = Chain::of_queue(&fixture, 6).await;
    let traces = |id: &str| {
        let of_id = chain
            .spans
            .iter()
            .filter(|span| attribute(&span.attributes, "rehop.chain_id").as_deref() == Some(id));
        of_id.map(|span| hex(&span.trace_id)).collect::<std::collections::BTreeSet<_>>()
    };
    let (seventh, eighth) = (traces("order-7"), traces("order-8"));
    assert_eq!((seventh.len(), eighth.len()), (1, 1));
    assert_ne!(seventh, eighth);
    let requeued = chain.attempt(2);
    assert!(requeued.parent_span_id.is_empty() && requeued.links.is_empty(), "{requeued:?}");
}
