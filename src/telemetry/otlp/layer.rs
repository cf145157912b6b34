//! The layers between a service's `tracing` calls and the exporters.

use std::io::IsTerminal;

use opentelemetry::trace::TracerProvider;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer};

use crate::telemetry::handler_span;

/// lapin's warnings print the bodies of returned messages, and rehop reports its errors.
const DEFAULT_FILTER: &str = "info,lapin=off";

/// Exports spans and events, except those of the exporters and their clients: exporting these would
/// create more of them, endlessly. The span around a handler is left out as well, because the
/// attempt has a span of its own.
pub(super) fn exporting<S>(
    traces: Option<&SdkTracerProvider>,
    logs: Option<&SdkLoggerProvider>,
) -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let spans = traces.map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("tracing"))
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_location(false)
    });
    let events = logs.map(OpenTelemetryTracingBridge::new);
    Layer::and_then(spans, events).with_filter(filter_fn(|metadata| {
        !is_the_exporters_own(metadata) && metadata.target() != handler_span::TARGET
    }))
}

fn is_the_exporters_own(metadata: &Metadata<'_>) -> bool {
    const OURS: [&str; 9] =
        ["opentelemetry", "hyper", "reqwest", "tonic", "tower", "h2", "rustls", "want", "mio"];
    let target = metadata.target();
    let krate = target.split_once("::").map_or(target, |(krate, _)| krate);
    // The SDK's internal logs have targets such as opentelemetry_sdk and opentelemetry-otlp.
    krate.starts_with("opentelemetry") || OURS.contains(&krate) || krate.starts_with("hyper_")
}

/// Installs a subscriber for services that have none: readable lines on standard error, and
/// everything to the exporters.
pub(super) fn install(
    exporting: impl Layer<Registry> + Send + Sync + 'static,
) -> Result<(), TryInitError> {
    let wanted = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|filter| !filter.is_empty());
    let asked_for = wanted.as_deref().is_some_and(|filter| filter.contains("opentelemetry"));
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse_lossy(wanted.as_deref().unwrap_or(DEFAULT_FILTER));
    let stderr = std::io::stderr();
    let colours =
        stderr.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    tracing_subscriber::registry()
        .with(exporting)
        .with(lines.with_filter(filter_fn(move |metadata| asked_for || !is_noise(metadata))))
        .with(filter)
        .try_init()
}

pub(super) type Registry = tracing_subscriber::Registry;

/// The SDK logs every lost batch. A single warning of ours replaces these, but its messages about
/// the configuration are kept.
fn is_noise(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("opentelemetry") && !metadata.name().contains(".Config.")
}
