//! Logs on standard error, and telemetry if it is configured.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use rehop::telemetry::{self, Telemetry};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::log_lines::LogLines;
use super::options::{LogFormat, Options};

/// The log of a process that runs until it is told to stop.
static LINES: Mutex<Option<LogLines>> = Mutex::new(None);

/// How long a command runs, which decides what it logs by default.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lifetime {
    /// Until it is told to stop. Only its log shows what it does.
    LongRunning,
    /// Until it has done one thing. Its output says what it did, so its log has warnings and
    /// errors.
    OneShot,
}

impl Lifetime {
    const fn default_filter(self) -> &'static str {
        match self {
            Self::LongRunning => "rehop=info",
            // `rehop::signals` says that a signal was heard, and `rehop_operator::parked` what is
            // done to messages, and why.
            Self::OneShot => "rehop=warn,rehop::signals=info,rehop_operator::parked=info",
        }
    }
}

/// Starts the process's logs.
pub(super) fn start(options: &Options, lifetime: Lifetime) -> anyhow::Result<()> {
    init(options, lifetime, None)
}

/// Starts the process's logs and, if a variable asks for it, OpenTelemetry. By default
/// OpenTelemetry would look for a local collector, and warn that there is none.
///
/// `is_scraped`: Prometheus reads the metrics from this process.
pub(super) fn start_with_telemetry(
    options: &Options,
    lifetime: Lifetime,
    service: &str,
    is_scraped: bool,
) -> anyhow::Result<Option<Telemetry>> {
    let is_exported =
        std::env::vars_os().any(|(name, _)| name.to_str().is_some_and(asks_for_telemetry));
    let telemetry = match (is_exported, is_scraped) {
        (true, true) => Some(
            telemetry::builder(service)
                .service_version(env!("CARGO_PKG_VERSION"))
                .without_subscriber()
                .with_prometheus()
                .init()?,
        ),
        (true, false) => Some(
            telemetry::builder(service)
                .service_version(env!("CARGO_PKG_VERSION"))
                .without_subscriber()
                .init()?,
        ),
        (false, true) => {
            rehop::monitoring::record_metrics(service)?;
            None
        }
        (false, false) => None,
    };
    // Variables switch the tool's telemetry on, so a hint to call `init` would not help.
    rehop::internals::suppress_unrecorded_hint();
    init(options, lifetime, telemetry.as_ref())?;
    Ok(telemetry)
}

/// Writes the log lines that are left, for a bounded time. Later ones are lost.
pub(super) fn finish() {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(lines) = lines {
        lines.finish();
    }
}

/// Exports what is left. A failure does not change the exit status, because the messages are safe.
pub(super) async fn shut_down(telemetry: Option<Telemetry>) {
    if let Some(telemetry) = telemetry
        && let Err(error) = telemetry.shutdown().await
    {
        tracing::warn!("{error}");
    }
}

fn asks_for_telemetry(variable: &str) -> bool {
    variable.starts_with("OTEL_EXPORTER_OTLP_")
        || ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"]
            .contains(&variable)
}

fn init(
    options: &Options,
    lifetime: Lifetime,
    telemetry: Option<&Telemetry>,
) -> anyhow::Result<()> {
    let writer = match lifetime {
        Lifetime::OneShot => BoxMakeWriter::new(io::stderr),
        Lifetime::LongRunning => {
            let (writer, lines) = LogLines::start(io::stderr());
            tokio::spawn(lines.watch());
            LINES.lock().unwrap_or_else(PoisonError::into_inner).replace(lines);
            // The default hook writes to standard error, and would wait for its reader.
            std::panic::set_hook(Box::new(|panic| {
                tracing::error!(target: "rehop::panic", "{}", panic.to_string().replace('\n', " "));
            }));
            BoxMakeWriter::new(writer)
        }
    };
    let lines = tracing_subscriber::fmt::layer::<Registry>().with_writer(writer);
    let lines = match options.log_format {
        LogFormat::Text => lines.with_ansi(colours()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let exported = telemetry.map(Telemetry::layer);
    let subscriber =
        tracing_subscriber::registry().with(lines).with(exported).with(filter(options, lifetime)?);
    subscriber.try_init().context("cannot start logging")
}

fn filter(options: &Options, lifetime: Lifetime) -> anyhow::Result<EnvFilter> {
    let said = std::env::var("RUST_LOG").ok().filter(|said| !said.trim().is_empty());
    let directives = match (&said, options.verbose) {
        // lapin's warnings print the payload of returned messages, so they must be requested by
        // name.
        (Some(said), _) if said.contains("lapin") => said.clone(),
        (Some(said), _) => format!("{said},lapin=off"),
        // rehop logs lapin's errors itself.
        (None, 0) => lifetime.default_filter().to_owned(),
        (None, 1) => "rehop=debug,lapin=off".to_owned(),
        (None, _) => "rehop=trace,lapin=off".to_owned(),
    };
    EnvFilter::builder()
        .parse(directives)
        .context("RUST_LOG is not a valid log filter; an example is rehop=debug")
}

/// Colours on a terminal, unless NO_COLOR is set: <https://no-color.org>.
fn colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
