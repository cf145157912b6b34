//! A lane that runs: sends copies in their order, and tells whoever waits for one what the broker
//! has answered.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};

use super::publishing_connection::PublishingConnection;
use crate::broker::channel::is_replaced;
use crate::broker::lane::cause::Cause;
use crate::broker::lane::{self, CopyId, Lane, Outgoing, PublishResult};

/// What became of one send of a copy.
#[derive(Debug, Clone)]
pub(super) enum SendAnswer {
    Confirmed,
    /// A nack, as a full queue gives.
    Refused,
    /// The exchange found no queue.
    Returned,
    /// The lane was closed while it was under way.
    Closed(Cause),
}

/// A handle to a lane. The lane is closed when nobody has a handle to it or waits for an answer any
/// more.
#[derive(Clone)]
pub(super) struct RunningLane {
    requests: mpsc::UnboundedSender<Request>,
    connection: Arc<PublishingConnection>,
    has_refused: Arc<AtomicBool>,
}

struct Request {
    copy: Arc<Outgoing>,
    answer: oneshot::Sender<SendAnswer>,
}

impl RunningLane {
    /// # Errors
    ///
    /// Why it could not be opened.
    pub(super) async fn open(connection: &Arc<PublishingConnection>) -> Result<Self, Cause> {
        connection.try_channel().await.map_err(|error| Cause::of(error.to_string()))?;
        let counted = connection.lanes.clone();
        let in_use = Arc::strong_count(&connection.lanes) - 2;
        let (requests, receiver) = mpsc::unbounded_channel();
        let running =
            Self { requests, connection: connection.clone(), has_refused: Arc::default() };
        let (opened, opening) = oneshot::channel();
        let (of, has_refused) = (connection.clone(), running.has_refused.clone());
        // In a task, because whoever needs the lane may give up meanwhile, and lapin would keep the
        // channel.
        connection.spawn(async move {
            match Lane::open(of.connection.clone(), in_use).await {
                Ok(lane) => {
                    let _ = opened.send(Ok(()));
                    let waiting = BTreeMap::new();
                    let run = Run {
                        lane,
                        connection: of,
                        _counted: counted,
                        has_refused,
                        waiting,
                        sent: 0,
                    };
                    run.run(receiver).await;
                }
                Err(error) => {
                    let cause = lane::cause(&error);
                    if is_replaced(&*of.connection, &error, in_use) {
                        // lapin tells nothing of an end that was asked for here.
                        of.end(cause.clone());
                    }
                    let _ = opened.send(Err(cause));
                }
            }
        });
        match connection.answer("no answer to opening a channel", opening).await? {
            Ok(opened) => opened.map(|()| running),
            // The task has panicked, which ends the connection.
            Err(_) => Err(connection.ended().await),
        }
    }

    /// Whether copies can be sent on it, and it is one of this connection.
    pub(super) fn serves(&self, connection: &Arc<PublishingConnection>) -> bool {
        Arc::ptr_eq(&self.connection, connection) && !self.requests.is_closed()
    }

    /// Whether a full queue has refused a copy on it. 3.10 goes on refusing on it if the limit of
    /// the queue is removed.
    pub(super) fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::Relaxed)
    }

    /// Sends a copy after those before it. An answer that never comes means that it was not sent:
    /// nobody waited any longer, the broker blocked the connection, or the lane had ended.
    pub(super) fn send(&self, copy: Arc<Outgoing>) -> oneshot::Receiver<SendAnswer> {
        let (answer, receiver) = oneshot::channel();
        // Without a lane, the sender is dropped.
        let _ = self.requests.send(Request { copy, answer });
        receiver
    }
}

struct Run {
    lane: Lane,
    connection: Arc<PublishingConnection>,
    _counted: Arc<()>,
    has_refused: Arc<AtomicBool>,
    waiting: BTreeMap<CopyId, oneshot::Sender<SendAnswer>>,
    sent: u64,
}

impl Run {
    async fn run(mut self, mut requests: mpsc::UnboundedReceiver<Request>) {
        // Each publish is awaited to its end: lapin keeps one that is dropped.
        let mut results = FuturesUnordered::new();
        let mut is_needed = true;
        loop {
            tokio::select! {
                biased;
                Some(first) = results.next(), if !results.is_empty() => {
                    let mut arrived = vec![first];
                    while let Some(Some(result)) = results.next().now_or_never() {
                        arrived.push(result);
                    }
                    if let Some(cause) = self.take(arrived) {
                        requests.close();
                        // lapin fails all of them together, except for those that it has not
                        // written yet.
                        let remaining: Vec<_> = results.collect().await;
                        self.take(remaining);
                        self.waiting.into_values().for_each(|waiting| drop(waiting.send(SendAnswer::Closed(cause.clone()))));
                        return;
                    }
                }
                request = requests.recv(), if is_needed => match request {
                    Some(request) => results.extend(self.send(request)),
                    None => is_needed = false,
                },
                () = given_up(&mut self.waiting), if !is_needed => break,
            }
        }
        // Beside each other: the close waits for lapin to write what was sent, and lapin tells that
        // to those who wait for results.
        let _ = tokio::join!(
            self.lane.channel.close("done"),
            results.for_each(|_| std::future::ready(()))
        );
    }

    /// lapin would keep what is sent while the broker blocks the connection, and send it after the
    /// alarm, although its delivery may have gone back meanwhile.
    fn send(
        &mut self,
        Request { copy, answer }: Request,
    ) -> Option<BoxFuture<'static, PublishResult>> {
        if answer.is_closed() || self.connection.connection.is_blocked() {
            return None;
        }
        let id = CopyId(self.sent);
        self.sent += 1;
        self.waiting.insert(id, answer);
        Some(self.lane.send(id, copy).boxed())
    }

    /// Passes on all answers that have come by now. Returns why the lane has ended, if it has.
    fn take(&mut self, results: Vec<PublishResult>) -> Option<Cause> {
        let judgement = self.lane.sort_results(results);
        self.has_refused.fetch_or(!judgement.nacked.is_empty(), Ordering::Relaxed);
        for (ids, answer) in [
            (judgement.returned, SendAnswer::Returned),
            (judgement.nacked, SendAnswer::Refused),
            (judgement.confirmed, SendAnswer::Confirmed),
        ] {
            for waiting in ids.iter().filter_map(|id| self.waiting.remove(id)) {
                // If nobody waits any longer, the copy was given up and is a duplicate.
                let _ = waiting.send(answer.clone());
            }
        }
        judgement.closed
    }
}

/// Returns when nobody waits for an answer any more.
async fn given_up(waiting: &mut BTreeMap<CopyId, oneshot::Sender<SendAnswer>>) {
    poll_fn(|context| {
        waiting.retain(|_, answer| answer.poll_closed(context).is_pending());
        if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
