//! The shutdown: one deadline that all its steps share.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Longer than any service lives. The settings allow less.
const LONGEST_GRACE: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Whether the service is to stop, and by when.
#[derive(Debug, Clone)]
pub(crate) struct Shutdown {
    grace: Duration,
    requested: CancellationToken,
    requested_at: Arc<OnceLock<Instant>>,
}

impl Shutdown {
    pub(crate) fn new(grace: Duration) -> Self {
        Self { grace, requested: CancellationToken::new(), requested_at: Arc::default() }
    }

    /// Starts the shutdown. Its time runs from the first request.
    pub(crate) fn request(&self) {
        self.requested_at.get_or_init(Instant::now);
        self.requested.cancel();
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.is_cancelled()
    }

    pub(crate) async fn requested(&self) {
        self.requested.cancelled().await;
    }

    /// As [`requested`](Self::requested), and outlives this value.
    pub(crate) fn requested_for_long(&self) -> impl Future<Output = ()> + Send + 'static {
        self.requested.clone().cancelled_owned()
    }

    /// When everything must be over.
    pub(crate) fn ends_at(&self) -> Instant {
        let requested_at = *self.requested_at.get_or_init(Instant::now);
        requested_at.checked_add(self.grace).unwrap_or(requested_at + LONGEST_GRACE)
    }

    /// Returns when the grace time is over.
    pub(crate) async fn over(&self) {
        self.requested().await;
        tokio::time::sleep_until(self.ends_at()).await;
    }

    /// Until when handlers may run. The rest of the grace time is for settling, and for closing the
    /// connections.
    pub(crate) fn handlers_until(&self) -> Instant {
        self.ends_at() - self.closing_time()
    }

    /// How much of the grace time is reserved for the broker's answers.
    pub(crate) fn closing_time(&self) -> Duration {
        (self.grace / 5).min(Duration::from_secs(2))
    }

    /// Awaits a future until the shutdown's end, then drops it.
    pub(crate) async fn within<F: Future>(&self, future: F) -> Option<F::Output> {
        timeout_at(self.ends_at(), future).await.ok()
    }
}
