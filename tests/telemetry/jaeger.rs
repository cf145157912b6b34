//! A real Jaeger, if its image is available: `REHOP_TEST_JAEGER=1`.

use rehop::Failure;
use rehop_testing::eventually;
use serde_json::Value;
use testcontainers::core::{ContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{GenericImage, ImageExt};

use super::chain::Producer;
use crate::alone;
use crate::support::{Fixture, Log, SOON, not_tried};

const OPT_IN: &str = "REHOP_TEST_JAEGER";
const TAG: &str = "2.11.0";

#[tokio::test(flavor = "multi_thread")]
async fn jaeger_shows_the_chain_as_one_trace() {
    if std::env::var_os(OPT_IN).is_none() {
        return not_tried(&format!("Jaeger; set {OPT_IN}=1 where jaegertracing/jaeger:{TAG} is available"));
    }
    let variables = [("OTEL_METRICS_EXPORTER", "none"), ("OTEL_LOGS_EXPORTER", "none")];
    if !alone("jaeger::jaeger_shows_the_chain_as_one_trace", &variables).await {
        return;
    }
    let (otlp, queries) = (ContainerPort::Tcp(4318), ContainerPort::Tcp(16686));
    let jaeger = GenericImage::new("jaegertracing/jaeger", TAG)
        .with_exposed_port(otlp)
        .with_exposed_port(queries)
        .with_wait_for(WaitFor::message_on_either_std("Everything is ready"))
        .with_startup_timeout(SOON * 6)
        .start()
        .await
        .unwrap();
    let endpoint = format!("http://127.0.0.1:{}", jaeger.get_host_port_ipv4(otlp).await.unwrap());
    let telemetry = rehop::telemetry::builder("orders").endpoint(endpoint).init().unwrap();
    let (fixture, producer, attempts) = (Fixture::new("jaeger").await, Producer::new(), Log::default());
    let counter = attempts.clone();
    let handler = move |_| {
        let attempt = counter.push(());
        async move { if attempt < 3 { Err(Failure::transient("not yet")) } else { Ok(()) } }
    };
    let running = fixture.serve(handler).await;
    fixture.client.publish(producer.message(&fixture)).await.unwrap();
    attempts.reaches(3).await;
    running.stop().await;
    telemetry.shutdown().await.unwrap();
    let port = jaeger.get_host_port_ipv4(queries).await.unwrap();
    let url = format!("http://127.0.0.1:{port}/api/traces/{}", producer.trace);
    let names = eventually(SOON, "the trace with ten spans", async || {
        let answer = reqwest::get(&url).await.map_err(|error| error.to_string())?;
        let answer: Value =
            serde_json::from_str(&answer.text().await.map_err(|error| error.to_string())?).unwrap_or_default();
        let spans = answer["data"][0]["spans"].as_array().cloned().unwrap_or_default();
        let names: Vec<_> = spans.iter().filter_map(|span| span["operationName"].as_str().map(str::to_owned)).collect();
        if names.len() == 10 { Ok(Some(names)) } else { Err(format!("{names:?}")) }
    })
    .await
    .unwrap();
    let of = |start: &str| names.iter().filter(|name| name.starts_with(start)).count();
    assert_eq!((of("process "), of("wait "), of("send "), of("ack ")), (3, 2, 2, 3), "{names:?}");
}
