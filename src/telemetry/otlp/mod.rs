//! Set-up of OpenTelemetry's SDK: traces, metrics and logs over OTLP (feature `otlp`).

mod environment;
mod exporters;
mod health;
mod layer;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry::propagation::{TextMapCompositePropagator, TextMapPropagator};
use opentelemetry::{KeyValue, global};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanProcessor};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use environment::{Environment, Signal};
use exporters::Exporters;
use health::Health;

/// How long [`Telemetry::shutdown`] takes at most, by default.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// Exports traces, metrics and logs as the standard `OTEL_*` variables say, and installs a `tracing` subscriber: lines on
/// standard error, filtered by `RUST_LOG` (default `info,lapin=error`). `service` is the service's name where
/// `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` give none.
///
/// Call it once, before [`connect`](crate::connect), and [`shutdown`](Telemetry::shutdown) at the end.
///
/// # Errors
///
/// When a variable has a value that cannot be honoured, when a file that one names cannot be read, or when the process already
/// has a `tracing` subscriber ([`Builder::without_subscriber`]). A collector that is away is no error.
pub fn init(service: impl Into<String>) -> Result<Telemetry, InitError> {
    builder(service).init()
}

/// [`init`] with settings of the program's own.
pub fn builder(service: impl Into<String>) -> Builder {
    Builder { service: service.into(), endpoint: None, subscriber: true, limit: SHUTDOWN_LIMIT, processors: Vec::new() }
}

type Processor =
    Box<dyn FnOnce(opentelemetry_sdk::trace::TracerProviderBuilder) -> opentelemetry_sdk::trace::TracerProviderBuilder>;

/// Settings of [`init`] that are the program's, not the operator's.
#[must_use = "nothing is set up until init is called"]
pub struct Builder {
    service: String,
    endpoint: Option<String>,
    subscriber: bool,
    limit: Duration,
    processors: Vec<Processor>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("service", &self.service).field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Builder {
    /// Where all signals go, whatever the variables say: the collector's base URL, such as `http://localhost:4318`. For HTTP
    /// the signals' paths (`/v1/traces` and so on) are added.
    pub fn endpoint(mut self, url: impl Into<String>) -> Self {
        self.endpoint = Some(url.into());
        self
    }

    /// Installs no `tracing` subscriber. Add [`Telemetry::layer`] to your own; without it the handlers' `tracing` spans and
    /// the logs are not exported.
    pub fn without_subscriber(mut self) -> Self {
        self.subscriber = false;
        self
    }

    /// The longest that [`Telemetry::shutdown`] may take. Default: 5 seconds.
    pub fn shutdown_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Hands each span to this processor too, whether or not traces are exported.
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
            let resource = resource(&environment, self.service);
            let mut exporters = Exporters::new(&environment, self.endpoint.as_deref(), health);
            let (spans, metrics, logs) = (exporters.spans()?, exporters.metrics()?, exporters.logs()?);
            telemetry.runtime = exporters.into_runtime().map(KeptRuntime::new);
            if spans.is_some() || !self.processors.is_empty() {
                let mut builder = SdkTracerProvider::builder().with_resource(resource.clone());
                for add in self.processors {
                    builder = add(builder);
                }
                builder = match spans {
                    Some(exporter) => builder.with_batch_exporter(exporter),
                    None => builder,
                };
                telemetry.traces = Some(builder.build());
            }
            telemetry.metrics = metrics.map(|exporter| {
                SdkMeterProvider::builder().with_resource(resource.clone()).with_periodic_exporter(exporter).build()
            });
            telemetry.logs = logs.map(|exporter| {
                SdkLoggerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build()
            });
        }
        if self.subscriber {
            layer::install(telemetry.layer()).map_err(|_| InitError::Subscriber)?;
        }
        telemetry.make_global(&environment.propagators());
        Ok(telemetry)
    }
}

/// The operator's names go before the program's.
fn resource<F: Fn(&str) -> Option<String>>(environment: &Environment<F>, service: String) -> Resource {
    let mut builder = Resource::builder();
    if !environment.names_service() {
        builder = builder.with_service_name(service);
    }
    if !environment.has_resource_attribute("service.instance.id") {
        builder = builder.with_attribute(KeyValue::new("service.instance.id", random_uuid()));
    }
    builder.build()
}

/// Version 4, as the semantic conventions advise for an instance. Two instances with one id would overwrite each other's metrics.
fn random_uuid() -> String {
    let bits = rand::random::<u128>() & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// What [`init`] has set up. Keep it until the end, and await [`shutdown`](Self::shutdown): what is still in the buffers when
/// it is dropped without that is lost.
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
    /// A layer for a `tracing` subscriber of your own: spans become children of the attempt that they were opened in, and
    /// events become log records. It filters nothing but what the exporters say themselves; put an
    /// [`EnvFilter`](tracing_subscriber::EnvFilter) beside it.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        layer::exporting(self.traces.as_ref(), self.logs.as_ref())
    }

    fn make_global(&self, propagators: &[String]) {
        if let Some(provider) = &self.traces {
            global::set_tracer_provider(provider.clone());
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
                    "ignoring a name in OTEL_PROPAGATORS; known are tracecontext, baggage and none"
                ),
            }
        }
        global::set_text_map_propagator(TextMapCompositePropagator::new(composed));
    }

    /// Exports what is in the buffers now, within [`Builder::shutdown_limit`].
    ///
    /// # Errors
    ///
    /// For each signal that could not be exported: what was in its buffers is lost.
    pub async fn flush(&self) -> Result<(), FlushError> {
        self.export(false).await
    }

    /// Exports what is in the buffers and ends. It takes no longer than [`Builder::shutdown_limit`], and blocks no thread of
    /// the runtime.
    ///
    /// # Errors
    ///
    /// For each signal that could not be exported to the end: what was in its buffers is lost. Losses from before, while the
    /// collector was away, were logged then and are not reported again.
    pub async fn shutdown(self) -> Result<(), FlushError> {
        self.export(true).await
    }

    async fn export(&self, end: bool) -> Result<(), FlushError> {
        let deadline = Instant::now() + self.limit;
        let start = |signal, provider: Box<dyn Provider>| flush(signal, provider, self.health.clone(), deadline, end);
        let running = [
            self.traces.clone().map(|provider| (Signal::Traces, start(Signal::Traces, Box::new(provider)))),
            self.metrics.clone().map(|provider| (Signal::Metrics, start(Signal::Metrics, Box::new(provider)))),
            self.logs.clone().map(|provider| (Signal::Logs, start(Signal::Logs, Box::new(provider)))),
        ];
        let mut failures = Vec::new();
        for (signal, done) in running.into_iter().flatten() {
            let problem = match tokio::time::timeout_at(deadline.into(), done).await {
                Ok(Ok(problem)) => problem,
                Ok(Err(_)) => Some("its thread ended early".to_owned()),
                Err(_) => Some(format!("not done within {}", humantime::format_duration(self.limit))),
            };
            failures.extend(problem.map(|problem| (signal, problem)));
        }
        if failures.is_empty() { Ok(()) } else { Err(FlushError { failures }) }
    }
}

/// What the SDK's three providers have in common.
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

/// Says what went wrong, if anything did. On a thread of its own: the SDK blocks, and would deadlock in a runtime of one
/// thread. The result of its shutdown says nothing, because that is Ok after a failed export too (0.33).
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
                // The SDK has a limit of its own, which may be shorter than ours.
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
        // Nobody waits any more when the limit has passed.
        let _ = sender.send(problem);
    };
    // If no thread can be had, the sender is dropped with the closure, and that is reported.
    let _ = std::thread::Builder::new().name("rehop-flush".to_owned()).spawn(work);
    done
}

/// A runtime may not be dropped in an asynchronous context, which is where a service ends.
struct KeptRuntime(Option<Runtime>);

impl KeptRuntime {
    fn new(runtime: Runtime) -> Self {
        Self(Some(runtime))
    }
}

impl Drop for KeptRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Telemetry could not be set up. The service can run without.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// A variable's value cannot be honoured.
    #[error("{name} is {value:?}, and must be {expected}")]
    Variable {
        /// The variable.
        name: String,
        /// What it says.
        value: String,
        /// What it may say.
        expected: &'static str,
    },
    /// A file that a variable names cannot be read.
    #[error("cannot read {path}, which {variable} names")]
    File {
        /// The variable.
        variable: String,
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A signal's exporter cannot be built.
    #[error("cannot export {signal}")]
    #[non_exhaustive]
    Exporter {
        /// `traces`, `metrics` or `logs`.
        signal: &'static str,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The runtime for gRPC cannot be started.
    #[error("cannot start the exporters' runtime")]
    Runtime {
        /// Why.
        source: std::io::Error,
    },
    /// The process already has a `tracing` subscriber.
    #[error(
        "a tracing subscriber is installed already; use telemetry::builder(..).without_subscriber() and add Telemetry::layer() to yours"
    )]
    Subscriber,
}

impl InitError {
    fn exporter(signal: Signal, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Exporter { signal: signal.as_str(), source: source.into() }
    }
}

/// Some telemetry was lost.
#[derive(Debug)]
pub struct FlushError {
    failures: Vec<(Signal, String)>,
}

impl FlushError {
    /// The signals that were not exported to the end (`traces`, `metrics`, `logs`), each with the reason.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.failures.iter().map(|(signal, problem)| (signal.as_str(), problem.as_str()))
    }
}

impl fmt::Display for FlushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("telemetry could not be exported")?;
        for (index, (signal, problem)) in self.failures.iter().enumerate() {
            write!(f, "{} {signal}: {problem}", if index == 0 { ";" } else { "," })?;
        }
        Ok(())
    }
}

impl Error for FlushError {}
