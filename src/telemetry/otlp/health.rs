//! Logs once that the collector is unreachable, and once that it is back, which is when every
//! failed signal has exported again.
//!
//! The SDK logs each failed batch itself. Those logs are switched off by default, and these replace
//! them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::logs::{LogBatch, LogExporter};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use super::environment::Signal;

use crate::lock::lock;

/// Whether the exports of all signals succeed.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<Exports>);

#[derive(Debug, Default)]
struct Exports {
    away_since: Option<Instant>,
    signals: [SignalExports; 3],
}

#[derive(Debug, Default, Clone)]
struct SignalExports {
    failing: bool,
    /// The number of failed exports since the start.
    failures: u64,
    last_error: String,
}

impl Health {
    fn failed(&self, signal: Signal, endpoint: &str, error: &OTelSdkError) {
        let first = {
            let mut state = lock(&self.0);
            let of_signal = &mut state.signals[signal as usize];
            of_signal.failing = true;
            of_signal.failures += 1;
            of_signal.last_error = format!("{endpoint}: {error}");
            let first = state.away_since.is_none();
            state.away_since.get_or_insert_with(Instant::now);
            first
        };
        if first {
            tracing::warn!(
                %signal, endpoint, %error,
                "telemetry cannot be exported; the service continues, and telemetry that does not fit into the buffers is dropped"
            );
        }
    }

    fn worked(&self, signal: Signal) {
        let away = {
            let mut state = lock(&self.0);
            let recovered = std::mem::take(&mut state.signals[signal as usize].failing);
            if !recovered || state.signals.iter().any(|signal| signal.failing) {
                return;
            }
            state.away_since.take().map(|since| since.elapsed())
        };
        if let Some(away) = away {
            tracing::info!(?away, "telemetry is exported again");
        }
    }

    /// How many exports of this signal have failed, and the last error.
    pub(super) fn failures(&self, signal: Signal) -> (u64, String) {
        let state = lock(&self.0);
        let of_signal = &state.signals[signal as usize];
        (of_signal.failures, of_signal.last_error.clone())
    }
}

/// An exporter whose failures are counted and logged.
#[derive(Debug)]
pub(super) struct Watched<E> {
    pub(super) exporter: E,
    pub(super) signal: Signal,
    /// The endpoint for messages, without credentials.
    pub(super) endpoint: String,
    pub(super) health: Arc<Health>,
}

impl<E> Watched<E> {
    fn noticed(&self, result: OTelSdkResult) -> OTelSdkResult {
        match &result {
            Ok(()) => self.health.worked(self.signal),
            Err(error) => self.health.failed(self.signal, &self.endpoint, error),
        }
        result
    }
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.noticed(self.exporter.export(batch).await)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E: LogExporter> LogExporter for Watched<E> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        self.noticed(self.exporter.export(batch).await)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E: PushMetricExporter> PushMetricExporter for Watched<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.noticed(self.exporter.export(metrics).await)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}
