//! Sets up OpenTelemetry's SDK: traces, metrics and logs over OTLP (feature `otlp`).

mod environment;
mod error;
mod exporters;
mod health;
mod ids;
mod layer;
mod resource;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry::global;
use opentelemetry::propagation::{TextMapCompositePropagator, TextMapPropagator};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, SpanExporter, SpanProcessor,
};
use tokio::sync::oneshot;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

pub use error::{FlushError, InitError};
pub use ids::ChainIds;
pub use resource::resource;

use crate::telemetry::flush::flush_with;
use crate::telemetry::unrecorded;
use environment::{Environment, Signal};
use exporters::{Exporters, KeptRuntime};
use health::Health;

/// The default limit of [`Telemetry::shutdown`].
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// A longer limit is taken for this one. Added to a time, it does not overflow.
const LONGEST_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Exports traces, metrics and logs as configured by the standard `OTEL_*` variables, and installs
/// a `tracing` subscriber that writes lines to standard error, filtered by `RUST_LOG` (default
/// `info,lapin=off`). `service` is the service's name unless `OTEL_SERVICE_NAME` or
/// `OTEL_RESOURCE_ATTRIBUTES` set one.
///
/// That subscriber waits while nobody reads standard error, and handlers and the shutdown wait with
/// it. Where this may happen, use [`Builder::without_subscriber`], and a subscriber of your own
/// whose lines a thread writes:
/// [Logs must not hold up handlers](crate::docs::telemetry#logs-must-not-hold-up-handlers).
///
/// Call it once, before a [`Service`](crate::Service) starts, and [`shutdown`](Telemetry::shutdown)
/// at the end.
///
/// # Errors
///
/// When a variable has an unsupported value, when a client certificate is set without its key or a
/// key without its certificate, when a file that a variable names cannot be read, or when the
/// process already has a `tracing` subscriber ([`Builder::without_subscriber`]). A collector that
/// is unreachable is not an error.
pub fn init(service: impl Into<String>) -> Result<Telemetry, InitError> {
    builder(service).init()
}

/// [`init`] with settings made by the program.
pub fn builder(service: impl Into<String>) -> Builder {
    Builder {
        service: service.into(),
        version: None,
        endpoint: None,
        subscriber: true,
        limit: SHUTDOWN_LIMIT,
        processors: Vec::new(),
        #[cfg(feature = "monitoring")]
        prometheus: false,
    }
}

type Processor = Box<
    dyn FnOnce(
        opentelemetry_sdk::trace::TracerProviderBuilder,
    ) -> opentelemetry_sdk::trace::TracerProviderBuilder,
>;

/// Settings of [`init`] that the program makes, not the operator.
#[must_use = "nothing is set up until init is called"]
pub struct Builder {
    service: String,
    version: Option<String>,
    endpoint: Option<String>,
    subscriber: bool,
    limit: Duration,
    processors: Vec<Processor>,
    #[cfg(feature = "monitoring")]
    prometheus: bool,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("service", &self.service)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// The service's version, `service.version`: usually `env!("CARGO_PKG_VERSION")`. Default:
    /// none.
    pub fn service_version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// The collector's base URL for all signals, such as `http://localhost:4318`. It overrides the
    /// variables. For HTTP, the signals' paths (`/v1/traces` and so on) are appended.
    pub fn endpoint(mut self, url: impl Into<String>) -> Self {
        self.endpoint = Some(url.into());
        self
    }

    /// Installs no `tracing` subscriber. Add [`Telemetry::layer`] to your own; without it the
    /// handlers' `tracing` spans and the logs are not exported.
    pub fn without_subscriber(mut self) -> Self {
        self.subscriber = false;
        self
    }

    /// Records the metrics for Prometheus too, whether or not they are exported: see
    /// [`monitoring`](crate::monitoring). Once in a process.
    #[cfg(feature = "monitoring")]
    pub fn with_prometheus(mut self) -> Self {
        self.prometheus = true;
        self
    }

    /// How long [`Telemetry::shutdown`] may take. Default: 5 seconds; at most a year.
    pub fn shutdown_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Passes each span to this processor too, whether or not traces are exported.
    pub fn span_processor(mut self, processor: impl SpanProcessor + 'static) -> Self {
        self.processors.push(Box::new(|builder| builder.with_span_processor(processor)));
        self
    }

    /// Sets everything up.
    ///
    /// # Errors
    ///
    /// As [`init`].
    pub fn init(self) -> Result<Telemetry, InitError> {
        let environment = Environment::of_the_process();
        let health = Arc::<Health>::default();
        let mut telemetry = Telemetry {
            traces: None,
            metrics: None,
            logs: None,
            health: health.clone(),
            runtime: None,
            limit: self.limit,
        };
        if !environment.disabled() {
            let resource = resource::of(&environment, &self.service, self.version.as_deref());
            let mut exporters = Exporters::new(&environment, self.endpoint.as_deref(), health);
            let (spans, metrics, logs) =
                (exporters.spans()?, exporters.metrics()?, exporters.logs()?);
            telemetry.runtime = exporters.into_runtime();
            if spans.is_some() || !self.processors.is_empty() {
                let mut builder = SdkTracerProvider::builder()
                    .with_resource(resource.clone())
                    .with_id_generator(ChainIds::new());
                for add in self.processors {
                    builder = add(builder);
                }
                builder = match spans {
                    Some(exporter) => {
                        builder.with_span_processor(batches(exporter, environment.span_delay()))
                    }
                    None => builder,
                };
                telemetry.traces = Some(builder.build());
            }
            let mut readers = SdkMeterProvider::builder().with_resource(resource.clone());
            let mut is_read = false;
            if let Some(exporter) = metrics {
                readers = readers.with_periodic_exporter(exporter);
                is_read = true;
            }
            #[cfg(feature = "monitoring")]
            if self.prometheus {
                let reader = super::prometheus::reader()
                    .map_err(|error| InitError::exporter(Signal::Metrics, error))?;
                readers = readers.with_reader(reader);
                is_read = true;
            }
            telemetry.metrics = is_read.then(|| readers.build());
            telemetry.logs = logs.map(|exporter| {
                SdkLoggerProvider::builder()
                    .with_resource(resource)
                    .with_batch_exporter(exporter)
                    .build()
            });
        }
        if self.subscriber {
            layer::install(telemetry.layer()).map_err(|_| InitError::Subscriber)?;
        }
        telemetry.make_global(&environment.propagators());
        Ok(telemetry)
    }
}

/// What [`init`] has set up. Keep it until the end, and await [`shutdown`](Self::shutdown). If it
/// is dropped without that, what is still in the buffers is lost.
#[must_use = "await its shutdown at the end, or the last telemetry is lost"]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
    logs: Option<SdkLoggerProvider>,
    health: Arc<Health>,
    runtime: Option<KeptRuntime>,
    limit: Duration,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("traces", &self.traces.is_some())
            .field("metrics", &self.metrics.is_some())
            .field("logs", &self.logs.is_some())
            .finish_non_exhaustive()
    }
}

impl Telemetry {
    /// A layer for your own `tracing` subscriber: spans become children of the attempt in which
    /// they were opened, and events become log records. It filters out only the exporters' own
    /// events and the span around a handler, so combine it with an
    /// [`EnvFilter`](tracing_subscriber::EnvFilter).
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        layer::exporting(self.traces.as_ref(), self.logs.as_ref())
    }

    fn make_global(&self, propagators: &[String]) {
        unrecorded::suppress_unrecorded_hint();
        if let Some(provider) = &self.traces {
            global::set_tracer_provider(provider.clone());
            let provider = provider.clone();
            // How it went is in the exporter's own log lines.
            flush_with(move || drop(provider.force_flush()));
        }
        if let Some(provider) = &self.metrics {
            global::set_meter_provider(provider.clone());
        }
        let mut composed: Vec<Box<dyn TextMapPropagator + Send + Sync>> = Vec::new();
        for name in propagators {
            match name.as_str() {
                "tracecontext" => composed.push(Box::new(TraceContextPropagator::new())),
                "baggage" => composed.push(Box::new(BaggagePropagator::new())),
                "none" | "" => {}
                unknown => tracing::warn!(
                    propagator = unknown,
                    "ignoring an unknown name in OTEL_PROPAGATORS; expected tracecontext, baggage or none"
                ),
            }
        }
        global::set_text_map_propagator(TextMapCompositePropagator::new(composed));
    }

    /// Exports what is in the buffers, within [`Builder::shutdown_limit`].
    ///
    /// # Errors
    ///
    /// When a signal could not be exported; what was in its buffers is lost.
    pub async fn flush(&self) -> Result<(), FlushError> {
        self.export(false).await
    }

    /// Exports what is in the buffers, then shuts down. It takes no longer than
    /// [`Builder::shutdown_limit`], and blocks no thread of the runtime.
    ///
    /// # Errors
    ///
    /// When a signal could not be exported completely; what was left in its buffers is lost.
    /// Earlier losses, while the collector was unreachable, were logged then and are not reported
    /// again.
    pub async fn shutdown(self) -> Result<(), FlushError> {
        self.export(true).await
    }

    async fn export(&self, end: bool) -> Result<(), FlushError> {
        let deadline = Instant::now() + self.limit.min(LONGEST_LIMIT);
        let start = |signal, provider: Box<dyn Provider>| {
            flush(signal, provider, self.health.clone(), deadline, end)
        };
        let running = [
            self.traces
                .clone()
                .map(|provider| (Signal::Traces, start(Signal::Traces, Box::new(provider)))),
            self.metrics
                .clone()
                .map(|provider| (Signal::Metrics, start(Signal::Metrics, Box::new(provider)))),
            self.logs
                .clone()
                .map(|provider| (Signal::Logs, start(Signal::Logs, Box::new(provider)))),
        ];
        let mut failures = Vec::new();
        for (signal, done) in running.into_iter().flatten() {
            let problem = match tokio::time::timeout_at(deadline.into(), done).await {
                Ok(Ok(problem)) => problem,
                Ok(Err(_)) => Some("its thread ended early".to_owned()),
                Err(_) => {
                    Some(format!("not done within {}", humantime::format_duration(self.limit)))
                }
            };
            failures.extend(problem.map(|problem| (signal, problem)));
        }
        if failures.is_empty() { Ok(()) } else { Err(FlushError { failures }) }
    }
}

/// An exporter to this endpoint, for spans of this service that were recorded already. A
/// developer's `OTEL_*` variables are for other services: `tests/scripts/jaeger` unsets them,
/// because the SDK reads some itself.
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]
pub(super) fn exporter_for_tests(endpoint: &str, service: &str) -> impl SpanExporter + use<> {
    let environment = Environment(|_: &str| None);
    let mut exporters = Exporters::new(&environment, Some(endpoint), Arc::default());
    let mut exporter = exporters.spans().unwrap().unwrap();
    exporter.set_resource(&resource::of(&environment, service, None));
    exporter
}

/// Exports spans in batches, after this delay unless a variable says otherwise.
fn batches(exporter: impl SpanExporter + 'static, delay: Option<Duration>) -> BatchSpanProcessor {
    let mut config = BatchConfigBuilder::default();
    if let Some(delay) = delay {
        config = config.with_scheduled_delay(delay);
    }
    BatchSpanProcessor::builder(exporter).with_batch_config(config.build()).build()
}

/// The operations that the SDK's three providers share.
trait Provider: Send {
    fn flush(&self) -> OTelSdkResult;
    fn end(&self, limit: Duration) -> OTelSdkResult;
}

macro_rules! provider {
    ($($provider:ty),*) => {$(
        impl Provider for $provider {
            fn flush(&self) -> OTelSdkResult {
                self.force_flush()
            }

            fn end(&self, limit: Duration) -> OTelSdkResult {
                self.shutdown_with_timeout(limit)
            }
        }
    )*};
}

provider!(SdkTracerProvider, SdkMeterProvider, SdkLoggerProvider);

/// Flushes, and reports what went wrong. It runs on a thread of its own, because the SDK blocks and
/// would deadlock on a runtime with one thread. The result of the SDK's shutdown is ignored,
/// because it is Ok even after a failed export (0.33).
fn flush(
    signal: Signal,
    provider: Box<dyn Provider>,
    health: Arc<Health>,
    deadline: Instant,
    end: bool,
) -> oneshot::Receiver<Option<String>> {
    let (sender, done) = oneshot::channel();
    let work = move || {
        let (before, _) = health.failures(signal);
        let flushed = loop {
            match provider.flush() {
                // The SDK's own time limit may be shorter than ours.
                Err(OTelSdkError::Timeout(_)) if Instant::now() < deadline => {}
                result => break result,
            }
        };
        let (after, last_error) = health.failures(signal);
        if end {
            let _ = provider.end(deadline.saturating_duration_since(Instant::now()));
        }
        let problem = match flushed {
            _ if after > before => Some(last_error),
            Err(error) => Some(error.to_string()),
            Ok(()) => None,
        };
        // After the limit nobody is waiting for it.
        let _ = sender.send(problem);
    };
    // If no thread can be started, the sender is dropped with the closure, and this is reported.
    let _ = std::thread::Builder::new().name("rehop-flush".to_owned()).spawn(work);
    done
}
