//! How long a copy is still tried once its queue stops.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// How long a copy that is not under way may wait to be sent, if its queue stops. That is enough to
/// open a lane, or for a short doubt about its exchange to end.
pub(super) const LAST_CHANCE: Duration = Duration::from_secs(1);

/// Ends, [`LAST_CHANCE`] after the stop, what keeps one copy from being sent.
pub(super) struct Patience<'a> {
    stopping: &'a CancellationToken,
    until: Option<Instant>,
}

impl<'a> Patience<'a> {
    pub(super) fn new(stopping: &'a CancellationToken) -> Self {
        Self { stopping, until: None }
    }

    /// Returns when the copy is not to be sent any more. Counts from the first call after the stop,
    /// and for all calls together.
    pub(super) async fn over(&mut self) {
        self.stopping.cancelled().await;
        sleep_until(*self.until.get_or_insert_with(|| Instant::now() + LAST_CHANCE)).await;
    }

    /// Returns at the stop.
    pub(super) async fn stop(&self) {
        self.stopping.cancelled().await;
    }
}
