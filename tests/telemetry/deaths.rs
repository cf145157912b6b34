//! Deliveries that came back without an answer: what a trace says of them although their processes
//! export nothing any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use opentelemetry_proto::tonic::trace::v1::Span;
use rehop::{Failure, Message};
use tokio::sync::Semaphore;

use super::chain::{Chain, Producer, hex};
use super::collector::attribute;
use crate::support::raw_amqp::RawClient;
use crate::support::{Fixture, Log, PROMPTLY};
use crate::{alone, collector};

/// A process takes the message and dies.
async fn dies(fixture: &Fixture) {
    fixture.has_depth(&fixture.queue, 1).await;
    RawClient::connect(fixture.settings.broker.url.expose()).await.look(&fixture.queue).await;
}

/// What the span says of deaths: how many, the limit, and whether this is the last delivery.
fn deaths(span: &Span) -> [Option<String>; 3] {
    ["rehop.unanswered", "rehop.delivery_limit", "rehop.last_delivery"]
        .map(|name| attribute(&span.attributes, name))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_is_exported_before_the_next_handler_starts() {
    crate::set_up();
    // The handler waits for half a second at most, in which a busy machine may not export anything.
    for _ in 0..5 {
        if a_death_is_exported().await {
            return;
        }
    }
    panic!("in five tries nothing was exported when the handler started");
}

/// Whether the death was exported when the handler started.
async fn a_death_is_exported() -> bool {
    let (mut fixture, producer) = (Fixture::new("deaths").await, Producer::new());
    fixture.retry().delivery_limit = Some(2);
    fixture.declare().await;
    fixture.client.publish(producer.message(&fixture)).await.unwrap();
    dies(&fixture).await;
    dies(&fixture).await;
    // As the handler sees it when it starts: what the collector has then would be left if it killed
    // the process.
    let (trace, seen) = (producer.trace.clone(), Log::default());
    let log = seen.clone();
    let running = fixture
        .serve(move |_: Message<Bytes>| {
            let spans = collector().arrived().spans.clone();
            log.push(
                spans.into_iter().filter(|span| hex(&span.trace_id) == trace).collect::<Vec<_>>(),
            );
            async { Ok::<_, Failure>(()) }
        })
        .await;
    seen.reaches(1).await;
    running.stop().await;
    let seen = seen.all().remove(0);
    if seen.is_empty() {
        return false;
    }
    let names: Vec<_> =
        seen.iter().map(|span| span.name.replace(fixture.namespace.name(), "ns")).collect();
    assert_eq!(names, ["died? ns.orders #2, parked unless answered"]);
    assert_eq!(deaths(&seen[0]), ["2", "2", "true"].map(|text| Some(text.to_owned())));
    assert!(seen[0].start_time_unix_nano < seen[0].end_time_unix_nano);
    let chain = Chain::of(&producer, &fixture, 2).await;
    let mut ends = chain.ends();
    ends.sort();
    assert_eq!(ends, [["handled", "false"], ["parked", "true"]], "parked unless it is answered");
    assert_eq!(
        chain.outline(),
        "died? ns.orders #2, parked unless answered CLIENT parent=none attempt=3 hop=0 error=unanswered link=producer\n\
         \x20 process ns.orders: handled CONSUMER attempt=3 hop=0 outcome=ack\n"
    );
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_after_a_wait_is_in_the_chains_trace_and_so_is_what_follows() {
    crate::set_up();
    let (fixture, producer) = (Fixture::new("death-later").await, Producer::new());
    // The service stops while the handler runs, so it is gone when the wait ends.
    let (attempts, gate) = (Log::default(), Arc::new(Semaphore::new(0)));
    let (log, handlers_gate) = (attempts.clone(), gate.clone());
    let handler = move |_: Message<Bytes>| {
        log.push(());
        let gate = handlers_gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Err(Failure::transient("not yet"))
        }
    };
    let running = fixture.serve(handler).await;
    fixture.client.publish(producer.message(&fixture)).await.unwrap();
    attempts.reaches(1).await;
    let running = running.begin_stop();
    gate.add_permits(1);
    running.ended().await.unwrap();
    dies(&fixture).await;
    let running = fixture.serve_always(Ok(())).await;
    let chain = Chain::of(&producer, &fixture, 4).await;
    running.stop().await;
    let received = chain.named("died? ")[0];
    assert!(received.parent_span_id.is_empty());
    assert_eq!(deaths(received)[0].as_deref(), Some("1"));
    let attempt = chain.process().max_by_key(|span| span.start_time_unix_nano).unwrap();
    assert_eq!(attempt.parent_span_id, received.span_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_delays_the_handler_by_half_a_second_and_no_other_message() {
    // Takes connections and never answers.
    let hangs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", hangs.local_addr().unwrap());
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "60000"),
    ];
    if !alone(
        "deaths::a_collector_that_hangs_delays_the_handler_by_half_a_second_and_no_other_message",
        &variables,
    )
    .await
    {
        return;
    }
    let telemetry = rehop::telemetry::builder("orders")
        .without_subscriber()
        .shutdown_limit(Duration::ZERO)
        .init()
        .unwrap();
    let fixture = Fixture::new("hanging").await;
    fixture.declare().await;
    fixture.publish("suspect").await;
    dies(&fixture).await;
    fixture.publish("fresh").await;
    let handled = Log::default();
    let log = handled.clone();
    let running = fixture
        .serve(move |message: Message<Bytes>| {
            log.push(message.raw_body().clone());
            async { Ok::<_, Failure>(()) }
        })
        .await;
    let started = Instant::now();
    handled.reaches(2).await;
    assert!(started.elapsed() < PROMPTLY, "far from the exporter's own limit");
    running.stop().await;
    let _ = telemetry.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_a_provider_of_its_own_gives_the_flush() {
    if !alone(
        "deaths::a_service_with_a_provider_of_its_own_gives_the_flush",
        &[("OTEL_TRACES_EXPORTER", "none")],
    )
    .await
    {
        return;
    }
    let telemetry = rehop::telemetry::builder("orders")
        .without_subscriber()
        .span_processor(Nothing)
        .init()
        .unwrap();
    // The handler waits for half a second at most, in which a busy machine may not even begin to
    // flush.
    let mut said = Vec::new();
    for _ in 0..5 {
        said = said_around_a_death().await;
        if said == ["flushed", "suspect", "fresh"] {
            break;
        }
    }
    assert_eq!(said, ["flushed", "suspect", "fresh"]);
    let _ = telemetry.shutdown().await;
}

/// What the flush and the handler of a message that came back without an answer, and of another
/// one, have said, in their order.
async fn said_around_a_death() -> Vec<&'static str> {
    let said = Log::default();
    let (in_flush, in_handler) = (said.clone(), said.clone());
    rehop::telemetry::flush_with(move || {
        in_flush.push("flushed");
    });
    let fixture = Fixture::new("own-flush").await;
    fixture.declare().await;
    fixture.publish("suspect").await;
    dies(&fixture).await;
    fixture.publish("fresh").await;
    let running = fixture
        .serve(move |message: Message<Bytes>| {
            in_handler.push(if message.raw_body() == "suspect" { "suspect" } else { "fresh" });
            async { Ok::<_, Failure>(()) }
        })
        .await;
    said.reaches(3).await;
    running.stop().await;
    said.all()
}

/// Makes the provider record spans, and exports nothing.
#[derive(Debug)]
struct Nothing;

impl opentelemetry_sdk::trace::SpanProcessor for Nothing {
    fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &opentelemetry::Context) {}

    fn on_end(&self, _: opentelemetry_sdk::trace::SpanData) {}

    fn force_flush(&self) -> opentelemetry_sdk::error::OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> opentelemetry_sdk::error::OTelSdkResult {
        Ok(())
    }
}
