//! The standard variables, each case in a process of its own.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use rehop::testing::eventually;
use tokio::net::TcpListener;

use crate::alone;
use crate::collector::{Collector, attribute};
use crate::support::SOON;

/// A service with three lines of set-up.
async fn work() {
    let telemetry = rehop::telemetry::init("orders").unwrap();
    tracing::info_span!("work").in_scope(|| tracing::info!("working"));
    telemetry.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_goes_where_the_variables_say_under_the_name_that_they_give() {
    let collector = Collector::start();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("{}/elsewhere/v1/traces", collector.url())),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-test=shop".to_owned()),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop,deployment.environment.name=test".to_owned()),
        ("OTEL_METRICS_EXPORTER", "none".to_owned()),
        ("RUST_LOG", "trace".to_owned()),
    ];
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let test = "environment::everything_goes_where_the_variables_say_under_the_name_that_they_give";
    if alone(test, &variables).await {
        return work().await;
    }
    let arrived = collector.arrived();
    let requests: Vec<_> = arrived.requests.iter().map(|(path, header)| (path.as_str(), header.as_str())).collect();
    assert_eq!(requests, [("/elsewhere/v1/traces", "shop"), ("/v1/logs", "shop")]);
    let texts: Vec<_> = arrived.logs.iter().map(|log| format!("{:?}", log.body)).collect();
    assert!(texts.iter().any(|text| text.contains("working")), "{texts:?}");
    assert!(texts.len() < 10, "the exporters' own events are not exported, whatever the filter: {texts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_name_for_the_service_is_the_default_and_each_instance_is_unique() {
    let collector = Collector::start();
    let test = "environment::the_programs_name_for_the_service_is_the_default_and_each_instance_is_unique";
    for _ in 0..2 {
        if alone(test, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url()), ("OTEL_LOGS_EXPORTER", "none")]).await {
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
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()), ("OTEL_SDK_DISABLED", "true".to_owned())];
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    if alone("environment::a_disabled_sdk_exports_nothing", &variables).await {
        return work().await;
    }
    assert!(collector.arrived().requests.is_empty());
}

#[derive(Clone, Default)]
struct Grpc(Arc<Mutex<Vec<String>>>);

#[tonic::async_trait]
impl TraceService for Grpc {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let spans =
            request.into_inner().resource_spans.into_iter().flat_map(|it| it.scope_spans).flat_map(|it| it.spans);
        self.0.lock().unwrap().extend(spans.map(|span| span.name));
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

/// In a runtime of one thread, where a flush that blocks it would never end.
#[tokio::test]
async fn grpc_by_choice_and_its_shutdown_does_not_hang() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, received) = (free.local_addr().unwrap(), Grpc::default());
    drop(free);
    let server =
        tonic::transport::Server::builder().add_service(TraceServiceServer::new(received.clone())).serve(address);
    let server = tokio::spawn(server);
    eventually(SOON, "the receiver listens", async || tokio::net::TcpStream::connect(address).await.is_ok())
        .await
        .unwrap();
    let endpoint = format!("http://{address}");
    let variables = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_LOGS_EXPORTER", "none"),
    ];
    if alone("environment::grpc_by_choice_and_its_shutdown_does_not_hang", &variables).await {
        let started = Instant::now();
        work().await;
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
        return;
    }
    assert_eq!(*received.0.lock().unwrap(), ["work"]);
    server.abort();
}

#[tokio::test]
async fn a_collector_that_is_not_there_or_speaks_no_tls_is_reported_in_time_and_by_name() {
    let collector = Collector::start();
    let closed = Collector::start();
    closed.kill();
    let test = "environment::a_collector_that_is_not_there_or_speaks_no_tls_is_reported_in_time_and_by_name";
    if !alone(test, &[("OTEL_METRICS_EXPORTER", "none")]).await {
        return;
    }
    for (protocol, url) in [("closed", closed.url()), ("tls", collector.url().replace("http:", "https:"))] {
        let limit = Duration::from_secs(2);
        let builder = rehop::telemetry::builder("orders").endpoint(url.clone()).shutdown_limit(limit);
        let telemetry = builder.without_subscriber().init().unwrap();
        {
            use opentelemetry::trace::{Tracer, TracerProvider};
            let tracer = opentelemetry::global::tracer_provider().tracer("test");
            drop(tracer.start("work"));
        }
        let started = Instant::now();
        let error = telemetry.shutdown().await.unwrap_err();
        assert!(started.elapsed() < limit + Duration::from_secs(1), "{protocol}: {:?}", started.elapsed());
        let failures: Vec<_> = error.failures().collect();
        assert!(matches!(failures[..], [("traces", _)]), "{protocol}: {error}");
    }
}
