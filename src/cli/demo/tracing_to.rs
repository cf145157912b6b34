//! Where the demo's two processes send their spans.

use std::time::Duration;

use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider};

/// Exports this process's spans to an OTLP endpoint, soon after they end: what a crash finds unsent is lost.
pub(super) fn tracing_to(endpoint: &str, service: &'static str) -> anyhow::Result<SdkTracerProvider> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("{endpoint}/v1/traces"))
        .with_timeout(Duration::from_secs(5))
        .build()?;
    let config = BatchConfigBuilder::default()
        .with_scheduled_delay(Duration::from_millis(50))
        .with_max_queue_size(20_000)
        .build();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(config).build())
        .with_resource(Resource::builder().with_service_name(service).build())
        .build();
    opentelemetry::global::set_tracer_provider(provider.clone());
    Ok(provider)
}

/// Sends what is left. It blocks, so it gets a thread of its own.
pub(super) async fn flush(provider: SdkTracerProvider) -> anyhow::Result<()> {
    tokio::task::spawn_blocking(move || {
        provider.force_flush()?;
        provider.shutdown()
    })
    .await??;
    Ok(())
}
