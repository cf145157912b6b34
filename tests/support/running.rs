//! A service that runs in the background of a test.

use rehop::{Service, Summary};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::SOON;

/// A service that runs until it is stopped.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Summary, rehop::Error>>,
}

impl Running {
    pub(crate) fn start(rehop: Service) -> Self {
        let (stop, stopped) = oneshot::channel();
        let run = rehop.with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let task = tokio::spawn(async {
            let ended = run.await;
            if let Err(error) = &ended {
                // A test that waits for what the service should do would not learn why it waits in
                // vain.
                eprintln!("a service ended: {error}");
            }
            ended
        });
        Self { stop, task }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    pub(crate) async fn stop(self) -> Summary {
        let _ = self.stop.send(());
        tokio::time::timeout(SOON, self.task)
            .await
            .expect("the service stops in time")
            .unwrap()
            .unwrap()
    }

    /// Tells it to stop, without waiting for it.
    pub(crate) fn begin_stop(self) -> Self {
        let _ = self.stop.send(());
        let (stop, _) = oneshot::channel();
        Self { stop, task: self.task }
    }

    /// Drops the service, whatever it is doing.
    pub(crate) async fn abort(self) {
        self.task.abort();
        let ended =
            tokio::time::timeout(SOON, self.task).await.expect("the service is dropped in time");
        assert!(ended.is_err_and(|error| error.is_cancelled()), "it was still running");
    }

    /// Waits for a service that ends by itself.
    pub(crate) async fn ended(self) -> Result<Summary, rehop::Error> {
        tokio::time::timeout(SOON, self.task).await.expect("the service ends in time").unwrap()
    }
}
