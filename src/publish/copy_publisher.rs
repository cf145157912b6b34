//! The handle to the publishing task, and what keeps the task running.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::Unpublishable;
use super::request::{Pending, Request, Requests};
use super::task::Task;
use crate::broker::connection::{Link, pause};
use crate::broker::keeper::Keeper;
use crate::broker::lane::{CopyId, Outgoing};
use crate::clock;

/// A handle to the publishing task. The task ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct CopyPublisher {
    requests: mpsc::UnboundedSender<Request>,
    ids: Arc<AtomicU64>,
}

/// A task that ran this long is not in a loop of panics.
const STEADY_AFTER: Duration = Duration::from_secs(10);

impl CopyPublisher {
    /// Starts the task. `retried` is told the exchange of each copy that has to be sent again.
    pub(crate) fn start(link: Arc<Link>, keeper: Arc<Keeper>, retried: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let retried: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(retried);
        Self::spawn(move |requests| Task::new(link.clone(), keeper.clone(), retried.clone()).run(requests).boxed())
    }

    /// Runs the task, and another one whenever it panics. Without a task the service would hang, and say nothing.
    fn spawn(run: impl for<'a> Fn(&'a mut Requests) -> BoxFuture<'a, ()> + Send + 'static) -> Self {
        let (requests, mut receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut failures = 0;
            loop {
                let since = clock::now();
                // Only the receiver outlives a panic, and no request is half taken out of it.
                if AssertUnwindSafe(run(&mut receiver)).catch_unwind().await.is_ok() {
                    return;
                }
                tracing::error!(
                    "rehop itself panicked while it published; publishing all unconfirmed copies again; please report this"
                );
                failures = if clock::elapsed(since) < STEADY_AFTER { failures + 1 } else { 0 };
                tokio::time::sleep(pause(failures)).await;
            }
        });
        Self { requests, ids: Arc::default() }
    }

    /// Publishes a copy and returns when the broker has confirmed it, however long that takes. Dropping the future gives the
    /// copy up.
    ///
    /// # Errors
    ///
    /// When the broker closes the channel over this very copy each time.
    pub(crate) async fn publish(&self, copy: Arc<Outgoing>) -> Result<(), Unpublishable> {
        loop {
            let id = CopyId(self.ids.fetch_add(1, Ordering::Relaxed));
            let (done, verdict) = oneshot::channel();
            let mut interest = Interest { requests: &self.requests, id, is_settled: false };
            if self.requests.send(Request::Publish(id, Pending { copy: copy.clone(), done })).is_err() {
                // The task ends before its handles only when the runtime does. That says nothing about the copy.
                return std::future::pending().await;
            }
            let verdict = verdict.await;
            interest.is_settled = true;
            if let Ok(verdict) = verdict {
                return verdict;
            }
            // The task has panicked. It may have sent the copy, so sending it again may make a duplicate, as after a lost
            // connection.
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
            let _ = self.requests.send(Request::GiveUp(self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use bytes::Bytes;
    use lapin::BasicProperties;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_for_a_confirm_when_the_task_panics_gets_it_from_the_next_one() {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = runs.clone();
        let publisher = CopyPublisher::spawn(move |requests| {
            let run = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let mut taken = Vec::new();
                while let Some(request) = requests.recv().await {
                    let Request::Publish(_, pending) = request else { continue };
                    taken.push(pending);
                    assert!(run > 0 || taken.len() < 2, "a bug");
                    if run > 0 {
                        taken.drain(..).for_each(|pending| pending.done.send(Ok(())).unwrap());
                    }
                }
            }
            .boxed()
        });
        let copy = || {
            let properties = BasicProperties::default();
            Arc::new(Outgoing::new("x".into(), "key".into(), Bytes::new(), properties, BasicProperties::default))
        };
        let (one, other) = tokio::join!(publisher.publish(copy()), publisher.publish(copy()));
        one.unwrap();
        other.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }
}
