//! The shutdown: one deadline that all its steps share.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::broker::answer::answer;
use crate::error::Error;

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

    /// When everything must be over.
    pub(crate) fn ends_at(&self) -> Instant {
        *self.requested_at.get_or_init(Instant::now) + self.grace
    }

    /// Returns when the grace time is over.
    pub(crate) async fn over(&self) {
        self.requested().await;
        tokio::time::sleep_until(self.ends_at()).await;
    }

    /// Until when handlers may run. The rest of the grace time is for settling, and for closing the
    /// connections.
    pub(crate) fn handlers_until(&self) -> Instant {
        self.ends_at() - closing_time(self.grace)
    }

    /// One answer of the broker, within `limit`. A shutdown shortens the limit.
    pub(crate) async fn answer<T>(
        &self,
        what: &str,
        limit: Duration,
        operation: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, Error> {
        self.shorten(what, answer(what, limit, operation)).await
    }

    /// Several answers of the broker. A shutdown leaves them as much time as a single one.
    pub(crate) async fn shorten<T>(
        &self,
        what: &str,
        answers: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let limit_when_stopping = closing_time(self.grace);
        let mut answered = std::pin::pin!(answers);
        tokio::select! {
            biased;
            result = &mut answered => result,
            () = self.requested() => match timeout(limit_when_stopping, answered).await {
                Ok(result) => result,
                Err(_) => Err(Error::Timeout { what: what.to_owned(), limit: limit_when_stopping }),
            }
        }
    }

    /// Awaits a future until the shutdown's end, then drops it.
    pub(crate) async fn within<F: Future>(&self, future: F) -> Option<F::Output> {
        timeout_at(self.ends_at(), future).await.ok()
    }
}

/// How much of the grace time is reserved for the broker's answers.
fn closing_time(grace: Duration) -> Duration {
    (grace / 5).min(Duration::from_secs(2))
}
