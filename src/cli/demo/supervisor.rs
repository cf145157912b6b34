//! Keeps the consumer process running, as systemd or Kubernetes would.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::clock::now_nanos;
use super::service::{BROKER_VARIABLE, DYING};

/// The death of a consumer process.
#[derive(Debug, Clone)]
pub(super) struct Crash {
    /// When, in nanoseconds since the epoch.
    pub(super) at: u64,
    /// The order that it had in hand.
    pub(super) order: u32,
}

/// What it takes to start the consumer process.
#[derive(Debug, Clone)]
pub(super) struct Consumer {
    pub(super) broker: String,
    pub(super) orders: String,
    pub(super) otlp: String,
    pub(super) crashes: Arc<Mutex<Vec<Crash>>>,
}

impl Consumer {
    pub(super) fn crashes(&self) -> Vec<Crash> {
        self.crashes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts the process, and starts it again whenever poison has killed it, until `stop`.
    ///
    /// # Errors
    ///
    /// When it cannot be started, or ends by anything but poison: the demo would never end then.
    pub(super) async fn keep_running(self, stop: CancellationToken) -> anyhow::Result<()> {
        while !stop.is_cancelled() {
            self.run_once(&stop).await?;
        }
        Ok(())
    }

    async fn run_once(&self, stop: &CancellationToken) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("this program's own file is not to be found")?;
        let mut process = Command::new(program)
            .args(["demo-service", "--orders", &self.orders, "--otlp", &self.otlp])
            .env(BROKER_VARIABLE, &self.broker)
            // Where the system writes core files into the working directory, they shall not lie in the user's.
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the consumer process does not start")?;
        let mut lifeline = process.stdin.take();
        let stderr = process.stderr.take().context("the consumer process has no standard error")?;
        let (mut lines, mut words) = (BufReader::new(stderr).lines(), Vec::new());
        let status = loop {
            tokio::select! {
                line = lines.next_line() => match line? {
                    Some(line) => words.push(line),
                    None => break process.wait().await?,
                },
                () = stop.cancelled(), if lifeline.is_some() => drop(lifeline.take()),
            }
        };
        let killed_by = words.iter().find_map(|line| line.strip_prefix(DYING)?.parse().ok());
        match killed_by {
            Some(order) => {
                let mut crashes = self.crashes.lock().unwrap_or_else(PoisonError::into_inner);
                crashes.push(Crash { at: now_nanos(), order });
                Ok(())
            }
            None if stop.is_cancelled() && status.success() => Ok(()),
            None => bail!("the consumer process ended by itself ({status}): {}", words.join(" | ")),
        }
    }
}
