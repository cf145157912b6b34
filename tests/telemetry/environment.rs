//! The standard variables, with a process for each case.

use std::time::{Duration, Instant};

use super::collector::{Collector, GrpcCollector, attribute};
use crate::alone;
use crate::support::PROMPTLY;

/// A service with the usual set-up.
async fn work() {
    let telemetry = rehop::telemetry::init("orders").unwrap();
    tracing::info_span!("work").in_scope(|| tracing::info!("working"));
    telemetry.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_variables_decide_on_endpoints_and_the_services_name() {
    let collector = Collector::start();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("{}/elsewhere/v1/traces", collector.url())),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-test=shop".to_owned()),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "service.name=shop,deployment.environment.name=test".to_owned(),
        ),
        ("OTEL_METRICS_EXPORTER", "none".to_owned()),
        ("RUST_LOG", "trace".to_owned()),
    ];
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let test = "environment::the_variables_decide_on_endpoints_and_the_services_name";
    if alone(test, &variables).await {
        return work().await;
    }
    let arrived = collector.arrived();
    let requests: Vec<_> =
        arrived.requests.iter().map(|(path, header)| (path.as_str(), header.as_str())).collect();
    assert_eq!(requests, [("/elsewhere/v1/traces", "shop"), ("/v1/logs", "shop")]);
    let texts: Vec<_> = arrived.logs.iter().map(|log| format!("{:?}", log.body)).collect();
    assert!(texts.iter().any(|text| text.contains("working")), "{texts:?}");
    assert!(
        texts.len() < 10,
        "the exporters' own events are not exported, whatever the filter: {texts:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_name_for_the_service_is_the_default_and_each_instance_is_unique() {
    let collector = Collector::start();
    let test =
        "environment::the_programs_name_for_the_service_is_the_default_and_each_instance_is_unique";
    for _ in 0..2 {
        if alone(
            test,
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url()), ("OTEL_LOGS_EXPORTER", "none")],
        )
        .await
        {
            return work().await;
        }
    }
    let arrived = collector.arrived();
    let spans: Vec<_> = arrived.spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(spans, ["work", "work"]);
    let mut instances: Vec<_> = arrived
        .resources
        .iter()
        .map(|it| {
            assert_eq!(attribute(it, "service.name").as_deref(), Some("orders"));
            assert!(attribute(it, "host.name").is_some_and(|name| !name.is_empty()));
            attribute(it, "service.instance.id").unwrap()
        })
        .collect();
    instances.sort();
    instances.dedup();
    assert_eq!(instances.len(), 2, "{instances:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_sdk_exports_nothing() {
    let collector = Collector::start();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()),
        ("OTEL_SDK_DISABLED", "true".to_owned()),
    ];
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    if alone("environment::a_disabled_sdk_exports_nothing", &variables).await {
        return work().await;
    }
    assert!(collector.arrived().requests.is_empty());
}

/// Uses a runtime with one thread, on which a blocking flush would never end.
#[tokio::test]
async fn grpc_can_be_chosen_and_its_shutdown_does_not_hang() {
    let collector = GrpcCollector::start().await;
    let url = collector.url();
    let variables = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_LOGS_EXPORTER", "none"),
    ];
    if alone("environment::grpc_can_be_chosen_and_its_shutdown_does_not_hang", &variables).await {
        let started = Instant::now();
        work().await;
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
        return;
    }
    let arrived = collector.arrived();
    let spans: Vec<_> = arrived.spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(spans, ["work"]);
}

#[tokio::test]
async fn a_collector_that_is_unreachable_or_without_tls_is_reported_in_time_and_by_name() {
    let collector = Collector::start();
    let closed = Collector::start();
    closed.kill();
    let test = "environment::a_collector_that_is_unreachable_or_without_tls_is_reported_in_time_and_by_name";
    if !alone(test, &[("OTEL_METRICS_EXPORTER", "none"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "60000")])
        .await
    {
        return;
    }
    for (protocol, url) in
        [("closed", closed.url()), ("tls", collector.url().replace("http:", "https:"))]
    {
        let limit = Duration::from_secs(2);
        let builder =
            rehop::telemetry::builder("orders").endpoint(url.clone()).shutdown_limit(limit);
        let telemetry = builder.without_subscriber().init().unwrap();
        {
            use opentelemetry::trace::{Tracer, TracerProvider};
            let tracer = opentelemetry::global::tracer_provider().tracer("test");
            drop(tracer.start("work"));
        }
        let started = Instant::now();
        let error = telemetry.shutdown().await.unwrap_err();
        assert!(started.elapsed() < limit + PROMPTLY, "{protocol}: {:?}", started.elapsed());
        let failures: Vec<_> = error.failures().collect();
        assert!(matches!(failures[..], [("traces", _)]), "{protocol}: {error}");
    }
}

/// The runtime of the gRPC exporters is gone again by then, and must not be dropped where tasks
/// run.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_variable_is_an_error_also_beside_grpc() {
    let variables = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_LOGS_EXPORTER", "nonsense")];
    if !alone("environment::a_wrong_variable_is_an_error_also_beside_grpc", &variables).await {
        return;
    }
    let error = rehop::telemetry::init("orders").unwrap_err().to_string();
    assert!(error.contains("OTEL_LOGS_EXPORTER"), "{error}");
}
