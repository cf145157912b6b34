//! Samplers, and providers that are not rehop's own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanProcessor};
use rehop::{Failure, Message};

use super::chain::Producer;
use super::collector::Collector;
use crate::alone;
use crate::support::{Fixture, Log};

/// Runs a service whose first attempt fails, and returns the `traceparent` that each attempt passes
/// on.
async fn waits_once(name: &str, traceparent: String) -> Vec<String> {
    let (fixture, attempts) = (Fixture::new(name).await, Log::default());
    let counter = attempts.clone();
    let handler = move |message: Message<Bytes>| {
        counter
            .push(rehop::telemetry::current_headers().into_iter().collect::<BTreeMap<_, _>>()["traceparent"].clone());
        async move { if message.attempt() == 1 { Err(Failure::transient("not yet")) } else { Ok(()) } }
    };
    let running = fixture.serve(handler).await;
    fixture
        .client
        .publish(fixture.to_queue().body("7").header("traceparent", traceparent))
        .await
        .unwrap();
    attempts.reaches(2).await;
    running.stop().await;
    attempts.all()
}

/// Keeps what it is given.
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

impl Kept {
    /// The only span with this name, by its start.
    fn one(&self, start: &str) -> SpanData {
        let spans = self.0.lock().unwrap();
        let mut found = spans.iter().filter(|span| span.name.starts_with(start));
        let (one, other) = (found.next(), found.next());
        assert!(other.is_none(), "{other:?}");
        one.unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_without_rehops_id_generator_gets_the_wait_below_the_producers_span() {
    if !alone(
        "providers::a_provider_without_rehops_id_generator_gets_the_wait_below_the_producers_span",
        &[],
    )
    .await
    {
        return;
    }
    let kept = Kept::default();
    let provider = SdkTracerProvider::builder().with_span_processor(kept.clone()).build();
    opentelemetry::global::set_tracer_provider(provider);
    let producer = Producer::new();
    let passed_on = waits_once("foreign", producer.traceparent()).await;
    assert!(
        passed_on.iter().all(|traceparent| traceparent.contains(&producer.trace)),
        "{passed_on:?}"
    );
    let wait = kept.one("wait ");
    assert_eq!(wait.parent_span_id.to_string(), producer.span);
    let spans = kept.0.lock().unwrap();
    assert!(
        spans.iter().all(|span| span.span_context.trace_id().to_string() == producer.trace),
        "{spans:?}"
    );
    let after = spans.iter().filter(|span| span.name.starts_with("process "));
    assert_eq!(after.filter(|span| span.parent_span_id == wait.span_context.span_id()).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_with_rehops_id_generator_gets_the_wait_below_no_span() {
    if !alone("providers::a_provider_with_rehops_id_generator_gets_the_wait_below_no_span", &[])
        .await
    {
        return;
    }
    let kept = Kept::default();
    let builder = SdkTracerProvider::builder().with_id_generator(rehop::telemetry::ChainIds::new());
    opentelemetry::global::set_tracer_provider(builder.with_span_processor(kept.clone()).build());
    let producer = Producer::new();
    waits_once("own", producer.traceparent()).await;
    let wait = kept.one("wait ");
    assert_eq!(wait.span_context.trace_id().to_string(), producer.trace);
    assert_eq!(wait.parent_span_id, opentelemetry::trace::SpanId::INVALID);
}

/// Nothing is recorded, and the generator belongs to a provider that nobody uses.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_provider_the_context_is_passed_on_as_it_came() {
    if !alone("providers::without_a_provider_the_context_is_passed_on_as_it_came", &[]).await {
        return;
    }
    let _unused = rehop::telemetry::ChainIds::new();
    let producer = Producer::new();
    assert_eq!(
        waits_once("no-provider", producer.traceparent()).await,
        [producer.traceparent(), producer.traceparent()]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_producer_decides_what_is_sampled_also_after_a_wait() {
    let collector = Collector::start();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()),
        ("OTEL_TRACES_SAMPLER", "parentbased_always_off".to_owned()),
        ("OTEL_METRICS_EXPORTER", "none".to_owned()),
        ("OTEL_LOGS_EXPORTER", "none".to_owned()),
    ];
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    if alone("providers::the_producer_decides_what_is_sampled_also_after_a_wait", &variables).await
    {
        let telemetry = rehop::telemetry::builder("orders").without_subscriber().init().unwrap();
        for (name, flags) in [("sampled", "01"), ("unsampled", "00")] {
            let producer = Producer::new();
            let traceparent = format!("00-{}-{}-{flags}", producer.trace, producer.span);
            for passed_on in waits_once(name, traceparent).await {
                assert!(
                    passed_on.contains(&producer.trace) && passed_on.ends_with(flags),
                    "{passed_on}"
                );
            }
        }
        telemetry.shutdown().await.unwrap();
        return;
    }
    let arrived = collector.arrived();
    let names: Vec<_> =
        arrived.spans.iter().map(|span| span.name.split(' ').next().unwrap()).collect();
    let of = |name: &str| names.iter().filter(|other| **other == name).count();
    assert_eq!([of("process"), of("wait"), of("waits"), names.len()], [2, 1, 1, 4], "{names:?}");
}
