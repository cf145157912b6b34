//! Keeps the consumer process running, as systemd or Kubernetes would.

use std::process::Stdio;

use anyhow::{Context, bail};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::crash::{Crash, Crashes};
use super::lock::lock;
use super::service::{BROKER, DYING};
use super::traces::now_nanos;

/// Starts the consumer process and records its crashes.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) broker: String,
    pub(crate) orders: String,
    pub(crate) otlp: String,
    pub(crate) crashes: Crashes,
}

impl Consumer {
    /// Starts the process, and starts it again whenever poison has killed it, until `stop`.
    ///
    /// # Errors
    ///
    /// When it cannot be started, or ends for any reason but poison: otherwise the demo would never
    /// end.
    pub(crate) async fn keep_running(&self, stop: &CancellationToken) -> anyhow::Result<()> {
        while !stop.is_cancelled() {
            self.run_once(stop).await?;
        }
        Ok(())
    }

    async fn run_once(&self, stop: &CancellationToken) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut process = Command::new(program)
            .args(["--consume-for", &self.orders])
            .env(BROKER, &self.broker)
            .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("{}/v1/traces", self.otlp))
            .env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
            // Spans that are not exported before a crash are lost.
            .env("OTEL_BSP_SCHEDULE_DELAY", "50")
            .env("OTEL_METRICS_EXPORTER", "none")
            .env("OTEL_LOGS_EXPORTER", "none")
            // Some systems write core files into the working directory. They should not end up in
            // the user's.
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the consumer process")?;
        let lifeline = process.stdin.take();
        let mut output = std::pin::pin!(process.wait_with_output());
        let output = tokio::select! {
            output = &mut output => output?,
            () = stop.cancelled() => {
                drop(lifeline);
                output.await?
            }
        };
        let words = String::from_utf8_lossy(&output.stderr);
        match words.lines().find_map(|line| line.strip_prefix(DYING)?.parse().ok()) {
            Some(order) => lock(&self.crashes).push(Crash { at: now_nanos(), order }),
            None if stop.is_cancelled() && output.status.success() => {}
            None => bail!(
                "the consumer process ended unexpectedly ({}): {}",
                output.status,
                words.trim_end()
            ),
        }
        Ok(())
    }
}
