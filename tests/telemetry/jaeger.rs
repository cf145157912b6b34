//! A real Jaeger, if its image is available: `REHOP_TEST_JAEGER=1`.

use rehop::{Failure, Message, Publish, Publisher};
use rehop_testing::eventually;
use serde_json::Value;
use testcontainers::core::{ContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{GenericImage, ImageExt};

use crate::alone;
use crate::support::{Fixture, Log, Running, SOON, not_tried};

const OPT_IN: &str = "REHOP_TEST_JAEGER";
const TAG: &str = "2.20.0";

#[tokio::test(flavor = "multi_thread")]
async fn jaeger_shows_the_chain_as_one_trace_and_doubts_no_clock() {
    if std::env::var_os(OPT_IN).is_none() {
        return not_tried(&format!(
            "Jaeger; set {OPT_IN}=1 where jaegertracing/jaeger:{TAG} is available"
        ));
    }
    let variables = [("OTEL_METRICS_EXPORTER", "none"), ("OTEL_LOGS_EXPORTER", "none")];
    if !alone("jaeger::jaeger_shows_the_chain_as_one_trace_and_doubts_no_clock", &variables).await {
        return;
    }
    let (otlp, queries) = (ContainerPort::Tcp(4318), ContainerPort::Tcp(16686));
    let jaeger = GenericImage::new("jaegertracing/jaeger", TAG)
        .with_exposed_port(otlp)
        .with_exposed_port(queries)
        .with_wait_for(WaitFor::message_on_either_std("Everything is ready"))
        .with_startup_timeout(SOON * 3)
        .start()
        .await
        .unwrap();
    let endpoint = format!("http://127.0.0.1:{}", jaeger.get_host_port_ipv4(otlp).await.unwrap());
    let telemetry = rehop::telemetry::builder("orders").endpoint(endpoint).init().unwrap();
    let (fixture, attempts) = (Fixture::new("jaeger").await, Log::default());
    let counter = attempts.clone();
    let handler = move |message: Message<u64>| {
        let headers = rehop::telemetry::current_headers();
        counter.push(headers.into_iter().find(|(name, _)| *name == "traceparent").unwrap().1);
        async move { if message.attempt() < 3 { Err(Failure::transient("not yet")) } else { Ok(()) } }
    };
    fixture.declare().await;
    let publisher = Publisher::connect(&fixture.settings).await.unwrap();
    let running = Running::start(fixture.service().consumer(fixture.queue.clone(), handler));
    publisher.publish(Publish::to_queue(&fixture.queue).json(&7).unwrap()).await.unwrap();
    attempts.reaches(3).await;
    running.stop().await;
    telemetry.shutdown().await.unwrap();
    let traceparent = attempts.all().remove(0);
    let trace = traceparent.split('-').nth(1).unwrap();
    let port = jaeger.get_host_port_ipv4(queries).await.unwrap();
    let url = format!("http://127.0.0.1:{port}/api/traces/{trace}");
    let spans = eventually(SOON, "the trace with eight spans", async || {
        let answer = reqwest::get(&url).await.map_err(|error| error.to_string())?;
        let answer: Value =
            serde_json::from_str(&answer.text().await.map_err(|error| error.to_string())?)
                .unwrap_or_default();
        let spans = answer["data"][0]["spans"].as_array().cloned().unwrap_or_default();
        if spans.len() == 8 { Ok(Some(spans)) } else { Err(format!("{spans:?}")) }
    })
    .await
    .unwrap();
    let names: Vec<_> = spans.iter().filter_map(|span| span["operationName"].as_str()).collect();
    let of = |start: &str| names.iter().filter(|name| name.starts_with(start)).count();
    let counts = ["publish ", "process ", "wait ", "waits "].map(of);
    assert_eq!(counts, [1, 3, 2, 2], "{names:?}");
    // Jaeger warns of clocks that it doubts, and of parents that it does not have.
    for span in &spans {
        assert!(span["warnings"].as_array().is_none_or(Vec::is_empty), "{span:#}");
        let is_below = span["references"][0]["refType"] == "CHILD_OF";
        let is_above = ["publish ", "wait "]
            .iter()
            .any(|start| span["operationName"].as_str().unwrap().starts_with(start));
        assert!(is_below != is_above, "{span:#}");
    }
}
