//! A lane that runs: sends copies in their order, and tells whoever waits for one what the broker has answered.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};

use super::session::Session;
use crate::broker::lane::cause::Cause;
use crate::broker::lane::{self, CopyId, Lane, Outgoing, PublishResult};

/// What became of one send of a copy.
#[derive(Debug)]
pub(super) enum Answer {
    Confirmed,
    /// A nack, as a full queue gives.
    Refused,
    /// The exchange found no queue.
    Returned,
    /// The lane was closed while it was under way.
    Closed(Cause),
}

/// A handle to a lane. The lane is closed when nobody has a handle to it or waits for an answer any more.
#[derive(Clone)]
pub(super) struct RunningLane {
    requests: mpsc::UnboundedSender<Request>,
    session: Arc<Session>,
    has_refused: Arc<AtomicBool>,
}

struct Request {
    copy: Arc<Outgoing>,
    answer: oneshot::Sender<Answer>,
}

impl RunningLane {
    /// # Errors
    ///
    /// Why it could not be opened.
    pub(super) async fn open(session: &Arc<Session>) -> Result<Self, Cause> {
        let in_use = session.lanes.load(Ordering::Relaxed);
        let lanes = Counted::new(session);
        // In a task, because whoever needs the lane may give up meanwhile, and lapin would keep the channel.
        let opening = tokio::spawn(Lane::open(session.connection.clone(), in_use));
        let opened = session.answer("no answer to opening a channel", opening).await?;
        let lane = opened.map_err(|ended| Cause::of(ended.to_string()))?.map_err(|error| lane::cause(&error))?;
        let (requests, receiver) = mpsc::unbounded_channel();
        let has_refused = Arc::new(AtomicBool::new(false));
        let run = Run { lane, lanes, has_refused: has_refused.clone(), waiting: HashMap::new(), sent: 0 };
        session.spawn(run.run(receiver));
        Ok(Self { requests, session: session.clone(), has_refused })
    }

    /// Whether copies of this session can be sent on it.
    pub(super) fn serves(&self, session: &Arc<Session>) -> bool {
        Arc::ptr_eq(&self.session, session) && !self.requests.is_closed()
    }

    /// Whether a full queue has refused a copy on it. 3.10 goes on refusing on it if the limit of the queue is removed.
    pub(super) fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::Relaxed)
    }

    /// Sends a copy after those before it. An answer that never comes means that it was not sent: nobody waited any longer, the broker blocked the
    /// connection, or the lane had ended.
    pub(super) fn send(&self, copy: Arc<Outgoing>) -> oneshot::Receiver<Answer> {
        let (answer, receiver) = oneshot::channel();
        // Without a lane, the sender is dropped.
        let _ = self.requests.send(Request { copy, answer });
        receiver
    }
}

struct Run {
    lane: Lane,
    lanes: Counted,
    has_refused: Arc<AtomicBool>,
    waiting: HashMap<CopyId, oneshot::Sender<Answer>>,
    sent: u64,
}

impl Run {
    async fn run(mut self, mut requests: mpsc::UnboundedReceiver<Request>) {
        // Each is awaited to its end, because lapin keeps those that are dropped.
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
                        // lapin fails all of them together.
                        let rest: Vec<_> = results.collect().await;
                        self.take(rest);
                        self.waiting.into_values().for_each(|waiting| drop(waiting.send(Answer::Closed(cause.clone()))));
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
        // A channel that is gone needs no close.
        let _ = self.lane.channel.close("done").await;
        while results.next().await.is_some() {}
    }

    /// lapin would keep what is sent while the broker blocks the connection, and send it after the alarm, although its delivery may have gone back
    /// meanwhile.
    fn send(&mut self, Request { copy, answer }: Request) -> Option<BoxFuture<'static, PublishResult>> {
        if answer.is_closed() || self.lanes.0.connection.is_blocked() {
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
            (judgement.returned, (|| Answer::Returned) as fn() -> Answer),
            (judgement.nacked, || Answer::Refused),
            (judgement.confirmed, || Answer::Confirmed),
        ] {
            for waiting in ids.iter().filter_map(|id| self.waiting.remove(id)) {
                // If nobody waits any longer, the copy was given up and is a duplicate.
                let _ = waiting.send(answer());
            }
        }
        judgement.closed
    }
}

/// Returns when nobody waits for an answer any more.
async fn given_up(waiting: &mut HashMap<CopyId, oneshot::Sender<Answer>>) {
    poll_fn(|context| {
        waiting.retain(|_, answer| answer.poll_closed(context).is_pending());
        if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Counts a lane of the session.
struct Counted(Arc<Session>);

impl Counted {
    fn new(session: &Arc<Session>) -> Self {
        session.lanes.fetch_add(1, Ordering::Relaxed);
        Self(session.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.lanes.fetch_sub(1, Ordering::Relaxed);
    }
}
