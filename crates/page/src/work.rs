//! What pages have begun, and what goes on without them: looks, and what moves messages.

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;

/// What goes on when the browser is gone. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Work {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Work {
    /// Begins something that no request cuts off.
    pub(super) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(task)
    }

    /// Completes when everything is to end.
    pub(super) fn stopped(&self) -> WaitForCancellationFutureOwned {
        self.stop.clone().cancelled_owned()
    }

    /// A token that stops one operation alone. It is also cancelled when everything is stopped.
    pub(super) fn stop_token(&self) -> CancellationToken {
        self.stop.child_token()
    }

    /// Tells everything to end.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until everything has ended.
    pub(super) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn everything_is_stopped_together_and_its_end_is_waited_for() {
        let work = Work::default();
        let (one, other) = (work.stop_token(), work.stop_token());
        one.cancel();
        assert!(!other.is_cancelled() && work.stopped().now_or_never().is_none());
        let (stopped, may_end) = (work.stopped(), CancellationToken::new());
        let told = may_end.clone();
        work.spawn(async move {
            stopped.await;
            told.cancelled().await;
        });
        assert!(work.ended().now_or_never().is_none());
        work.stop();
        assert!(other.is_cancelled() && work.ended().now_or_never().is_none());
        may_end.cancel();
        work.ended().await;
    }
}
