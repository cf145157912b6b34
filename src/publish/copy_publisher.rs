//! The handle to the publishing task.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::Unpublishable;
use super::request::{Pending, Request};
use super::task::Task;
use crate::broker::connection::Link;
use crate::broker::keeper::Keeper;
use crate::broker::lane::{CopyId, Outgoing};

/// A handle to the publishing task. The task ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct CopyPublisher {
    requests: mpsc::UnboundedSender<Request>,
    ids: Arc<AtomicU64>,
}

impl CopyPublisher {
    /// Starts the task, which ends by itself only if it panics. Copies go to these `exchanges`, as a rule. `retried` is told the exchange of
    /// each copy that has to be sent again.
    pub(crate) fn start(
        link: Arc<Link>,
        keeper: Arc<Keeper>,
        exchanges: &BTreeSet<String>,
        retried: impl Fn(&str) + Send + Sync + 'static,
    ) -> (Self, JoinHandle<()>) {
        let (requests, mut receiver) = mpsc::unbounded_channel();
        let task = Task::new(link, keeper, exchanges, Arc::new(retried));
        let running = tokio::spawn(async move { task.run(&mut receiver).await });
        (Self { requests, ids: Arc::default() }, running)
    }

    /// Publishes a copy and returns when the broker has confirmed it, however long that takes. Dropping the future gives the
    /// copy up.
    ///
    /// # Errors
    ///
    /// When the broker closes the channel over this very copy each time.
    pub(crate) async fn publish(&self, copy: Arc<Outgoing>) -> Result<(), Unpublishable> {
        let id = CopyId(self.ids.fetch_add(1, Ordering::Relaxed));
        let (done, verdict) = oneshot::channel();
        let mut interest = Interest { requests: &self.requests, id, is_settled: false };
        let is_sent = self.requests.send(Request::Publish(id, Pending { copy, done })).is_ok();
        let verdict = if is_sent { verdict.await.ok() } else { None };
        interest.is_settled = true;
        match verdict {
            Some(verdict) => verdict,
            // The task is gone, and with it the service or the runtime. That says nothing about the copy.
            None => std::future::pending().await,
        }
    }
}

/// Gives a copy up when whoever waits for it does.
struct Interest<'a> {
    requests: &'a mpsc::UnboundedSender<Request>,
    id: CopyId,
    is_settled: bool,
}

impl Drop for Interest<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            // Without a task there is nothing to give up.
            let _ = self.requests.send(Request::Withdraw(self.id));
        }
    }
}
