//! SIGINT and SIGTERM: the first asks for an orderly stop, the second stops at once.

use std::io;

use anyhow::Context;
use tokio_util::sync::CancellationToken;

/// A token that is cancelled by the first signal. The second ends the process, with the exit status that a shell gives to one
/// that the signal killed: 130 or 143. What was not settled stays with the broker.
pub(super) fn watch() -> anyhow::Result<CancellationToken> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        let first = signals.next().await;
        tracing::info!("{}: stopping in order; a second signal stops at once", first.name);
        stopping.cancel();
        let second = signals.next().await;
        tracing::warn!("{}: stopping at once; what is unfinished stays with the broker", second.name);
        std::process::exit(second.status);
    });
    Ok(stop)
}

struct Signal {
    name: &'static str,
    status: i32,
}

const INTERRUPT: Signal = Signal { name: "SIGINT", status: 130 };

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPT,
            _ = self.terminate.recv() => Signal { name: "SIGTERM", status: 143 },
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        INTERRUPT
    }
}
