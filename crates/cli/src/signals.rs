//! The first signal starts a clean shutdown, the second stops immediately.

use anyhow::Context;
use rehop::signals::{Signal, Signals};
use tokio_util::sync::CancellationToken;

use super::logging;

/// A token that the first signal cancels. The second ends the process, with the exit status that a
/// shell reports for a process killed by that signal. Unsettled messages stay with the broker.
pub(super) fn watch() -> anyhow::Result<CancellationToken> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        let first = signals.next().await;
        stopping.cancel();
        tracing::info!("{first}: shutting down; a second signal stops immediately");
        let second = second(&mut signals, first).await;
        tracing::warn!("{second}: stopping immediately; unfinished messages stay with the broker");
        logging::finish();
        std::process::exit(second.exit_status().into());
    });
    Ok(stop)
}

/// The signal that somebody sends who cannot wait. A terminal that closes sends several SIGHUPs, by
/// the system and by the shell, and systemd adds one to its SIGTERM.
async fn second(signals: &mut Signals, first: Signal) -> Signal {
    let mut last = first;
    loop {
        let next = signals.next().await;
        if next != Signal::Hangup && last != Signal::Hangup {
            return next;
        }
        if next != Signal::Hangup {
            last = next;
        }
    }
}
