//! The first signal starts a clean shutdown, the second stops immediately.

use anyhow::Context;
use rehop::signals::Signals;
use tokio_util::sync::CancellationToken;

use super::logging;

/// A token that the first signal cancels. The second ends the process, with the exit status that a
/// shell reports for a process killed by that signal: 130 or 143. Unsettled messages stay with the
/// broker.
pub(super) fn watch() -> anyhow::Result<CancellationToken> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        let first = signals.next().await;
        stopping.cancel();
        tracing::info!("{first}: shutting down; a second signal stops immediately");
        let second = signals.next().await;
        tracing::warn!("{second}: stopping immediately; unfinished messages stay with the broker");
        logging::finish();
        std::process::exit(second.exit_status().into());
    });
    Ok(stop)
}
