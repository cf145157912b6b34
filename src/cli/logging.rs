//! Logs on standard error, and telemetry where it is asked for.

use std::io::{self, IsTerminal};

use anyhow::Context;
use rehop::telemetry::{self, Telemetry};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::options::{LogFormat, Options};

/// Starts the process's logs.
pub(super) fn start(options: &Options) -> anyhow::Result<()> {
    init(options, None)
}

/// Starts the process's logs and, where a variable asks for it, OpenTelemetry. Unasked it would look for a collector on this
/// machine, and warn that there is none.
pub(super) fn start_with_telemetry(options: &Options, service: &str) -> anyhow::Result<Option<Telemetry>> {
    let telemetry = match std::env::vars_os().any(|(name, _)| name.to_str().is_some_and(asks_for_telemetry)) {
        true => Some(telemetry::builder(service).without_subscriber().init()?),
        false => None,
    };
    init(options, telemetry.as_ref())?;
    Ok(telemetry)
}

/// Sends what is left. What cannot be sent is no reason for another exit status: the messages are safe.
pub(super) async fn shut_down(telemetry: Option<Telemetry>) {
    if let Some(telemetry) = telemetry
        && let Err(error) = telemetry.shutdown().await
    {
        tracing::warn!("{error}");
    }
}

fn asks_for_telemetry(variable: &str) -> bool {
    variable.starts_with("OTEL_EXPORTER_OTLP_")
        || ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"].contains(&variable)
}

fn init(options: &Options, telemetry: Option<&Telemetry>) -> anyhow::Result<()> {
    let lines = tracing_subscriber::fmt::layer::<Registry>().with_writer(io::stderr);
    let lines = match options.log_format {
        LogFormat::Text => lines.with_ansi(colours()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let exported = telemetry.map(Telemetry::layer);
    let subscriber = tracing_subscriber::registry().with(lines).with(exported).with(filter(options)?);
    subscriber.try_init().context("cannot start logging")
}

fn filter(options: &Options) -> anyhow::Result<EnvFilter> {
    let said = std::env::var("RUST_LOG").ok().filter(|said| !said.trim().is_empty());
    let directives = match (&said, options.verbose) {
        // lapin's warnings print the payload of returned messages, so they are for those who ask for them by name.
        (Some(said), _) if said.contains("lapin") => said.clone(),
        (Some(said), _) => format!("{said},lapin=error"),
        // Its errors are ours too, in our words.
        (None, 0) => "rehop=info".to_owned(),
        (None, 1) => "rehop=debug,lapin=error".to_owned(),
        (None, _) => "rehop=trace,lapin=error".to_owned(),
    };
    EnvFilter::builder().parse(directives).context("RUST_LOG is no log filter: expected for instance rehop=debug")
}

/// On a terminal, unless the user wants none: <https://no-color.org>.
fn colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
