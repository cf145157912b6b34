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

/// The generator is that of a provider which another one has replaced.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_providers_the_one_that_was_made_global_last_gets_the_whole_chain() {
    let test = "providers::of_two_providers_the_one_that_was_made_global_last_gets_the_whole_chain";
    let exporters = ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"];
    if !alone(test, &exporters.map(|name| (name, "none"))).await {
        return;
    }
    let (own, other) = (Kept::default(), Kept::default());
    let init = || {
        let builder = rehop::telemetry::builder("orders").without_subscriber();
        builder.span_processor(own.clone()).init().unwrap()
    };
    let replaced = init();
    let provider = SdkTracerProvider::builder().with_span_processor(other.clone()).build();
    opentelemetry::global::set_tracer_provider(provider);
    let producer = Producer::new();
    waits_once("other-is-last", producer.traceparent()).await;
    assert_eq!(own.0.lock().unwrap().len(), 0);
    // The span by which the replacement is noticed is written twice, once in a trace of its own.
    let is_of_chain = |span: &SpanData| span.span_context.trace_id().to_string() == producer.trace;
    other.0.lock().unwrap().retain(is_of_chain);
    let wait = other.one("wait ");
    assert_eq!(wait.parent_span_id.to_string(), producer.span);
    assert!(wait.links.is_empty(), "Jaeger takes a link to the parent for another relation");
    assert_eq!(other.0.lock().unwrap().len(), 4);
    other.0.lock().unwrap().clear();

    let last = init();
    let producer = Producer::new();
    waits_once("own-is-last", producer.traceparent()).await;
    assert_eq!(other.0.lock().unwrap().len(), 0);
    let wait = own.one("wait ");
    assert_eq!(wait.span_context.trace_id().to_string(), producer.trace);
    assert_eq!(wait.parent_span_id, opentelemetry::trace::SpanId::INVALID);
    for telemetry in [replaced, last] {
        telemetry.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sampler_that_drops_all_exports_nothing_and_passes_the_trace_on_as_not_sampled() {
    let collector = Collector::start();
    let url = collector.url();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_TRACES_SAMPLER", "always_off"),
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_LOGS_EXPORTER", "none"),
    ];
    let test = "providers::a_sampler_that_drops_all_exports_nothing_and_passes_the_trace_on_as_not_sampled";
    if alone(test, &variables).await {
        let telemetry = rehop::telemetry::builder("orders").without_subscriber().init().unwrap();
        let producer = Producer::new();
        for passed_on in waits_once("dropped", producer.traceparent()).await {
            let is_of_trace = passed_on.contains(&producer.trace);
            assert!(is_of_trace && passed_on.ends_with("-00"), "{passed_on}");
        }
        telemetry.shutdown().await.unwrap();
        return;
    }
    assert_eq!(collector.arrived().spans.len(), 0);
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
