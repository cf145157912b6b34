//! One trace for a message: its publisher, its attempts and its waits.
//!
//! Traces, metrics and logs go to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names.
//! `observability/` starts one, with a dashboard.

#![allow(clippy::print_stdout, reason = "an example is read on standard output")]

use std::time::Duration;

use rehop::{Backoff, Failure, HeaderValue, Message, Publish, Publisher, Settings, Topology};

/// The trace id in a `traceparent`: `00-<trace id>-<span id>-<flags>`.
fn trace_id(traceparent: &str) -> &str {
    traceparent.split('-').nth(1).unwrap_or_default()
}

async fn handle(order: Message<String>) -> Result<(), Failure> {
    // Send these along with requests and messages, and the receiver's spans join the trace.
    let current = rehop::telemetry::current_headers();
    let current =
        current.iter().find(|(name, _)| *name == "traceparent").map(|(_, value)| trace_id(value));
    let published = order
        .header("traceparent")
        .and_then(|value: HeaderValue<'_>| value.as_text())
        .map(trace_id);
    println!(
        "attempt {} is in its publisher's trace: {}",
        order.attempt(),
        current.is_some() && current == published
    );
    if order.attempt() == 1 { Err(Failure::transient("not yet")) } else { Ok(()) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = rehop::shutdown_signal();
    let telemetry = rehop::telemetry::init("telemetry")?;
    let mut settings = Settings::load()?;
    settings.namespace = "telemetry".to_owned();
    settings.queue_mut("telemetry.orders");
    settings.retry.immediate = Some(0);
    settings.retry.delays = Some(Backoff::List(vec![Duration::from_millis(100)]));

    Topology::of(&settings)?.declare(&settings).await?;
    let publisher = Publisher::connect(&settings).await?;
    publisher.publish(Publish::to_queue("telemetry.orders").json(&"order 7")?).await?;

    let summary = rehop::Service::new(&settings)
        .consumer("telemetry.orders", handle)
        .with_graceful_shutdown(shutdown)
        .await?;
    println!("{summary}");
    // Sends what is still buffered.
    if let Err(error) = telemetry.shutdown().await {
        eprintln!("{error}");
    }
    Ok(())
}
