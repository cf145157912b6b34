//! Logs, on standard error.

use std::io::{self, IsTerminal};

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use super::options::{LogFormat, Options};

/// Starts the process's logs and telemetry.
pub(super) fn start(options: &Options) -> anyhow::Result<()> {
    let logs = tracing_subscriber::fmt().with_env_filter(filter(options)?).with_writer(io::stderr);
    let started = match options.log_format {
        LogFormat::Text => logs.with_ansi(colours()).try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
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
