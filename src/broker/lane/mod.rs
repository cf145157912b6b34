//! The one way to publish with confirms. A *lane* is a confirming channel: it sends copies in their
//! order, and tells whoever waits for one whether the broker has taken it.
//!
//! [`outstanding`] is what the lane knows of the copies under way, and decides without I/O;
//! [`returns`] finds the returned ones; [`not_taken`] says why the broker did not take a copy.

mod not_taken;
mod outgoing;
mod outstanding;
mod returns;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};

pub use self::not_taken::NotTaken;
pub(crate) use self::not_taken::{Blame, Cause};
pub use self::outgoing::Outgoing;
use self::outstanding::{Outstanding, PublishResult};
use super::channel::open_confirming;
use super::client::{Channel, Connection};

/// A handle to a lane. The lane is closed when nobody has a handle to it or waits for an answer any
/// more.
#[derive(Clone)]
pub struct Lane {
    requests: mpsc::UnboundedSender<Request>,
    connection: Arc<dyn Connection>,
    has_refused: Arc<AtomicBool>,
}

struct Request {
    copy: Arc<Outgoing>,
    unless_blocked: bool,
    answer: Waiting,
}

/// Whoever waits for the answer to a copy.
type Waiting = oneshot::Sender<Result<(), NotTaken>>;

/// A copy on its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct CopyId(u64);

impl Lane {
    /// Opens a lane. Returns it with what runs it, which its owner spawns in a task.
    ///
    /// # Errors
    ///
    /// As [`Connection::open_channel`].
    pub async fn open(
        connection: Arc<dyn Connection>,
    ) -> lapin::Result<(Self, impl Future<Output = ()> + Send + 'static)> {
        let channel = open_confirming(&*connection).await?;
        let (requests, receiver) = mpsc::unbounded_channel();
        let lane = Self { requests, connection: connection.clone(), has_refused: Arc::default() };
        let running = Running {
            channel,
            connection,
            has_refused: lane.has_refused.clone(),
            outstanding: Outstanding::default(),
            waiting: BTreeMap::new(),
        };
        Ok((lane, running.run(receiver)))
    }

    /// Whether copies can be sent on it.
    pub(crate) fn is_open(&self) -> bool {
        self.connection.is_open() && !self.requests.is_closed()
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.requests.same_channel(&other.requests)
    }

    pub(crate) fn connection(&self) -> &Arc<dyn Connection> {
        &self.connection
    }

    /// Whether a full queue has refused a copy on it. 3.10 goes on refusing on it if the limit of
    /// the queue is removed.
    pub(crate) fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::Relaxed)
    }

    /// Sends a copy after those before it. While the broker blocks the connection, lapin keeps it,
    /// and sends it after the alarm. The copy is not sent if the returned future is dropped before.
    pub fn send(
        &self,
        copy: Arc<Outgoing>,
    ) -> impl Future<Output = Result<(), NotTaken>> + Send + Unpin + 'static {
        self.request(copy, false)
    }

    /// The same, but while the broker blocks the connection, the copy is not sent: its delivery may
    /// have gone back before the end of the alarm.
    pub(crate) fn send_unless_blocked(
        &self,
        copy: Arc<Outgoing>,
    ) -> impl Future<Output = Result<(), NotTaken>> + Send + Unpin + 'static {
        self.request(copy, true)
    }

    fn request(
        &self,
        copy: Arc<Outgoing>,
        unless_blocked: bool,
    ) -> impl Future<Output = Result<(), NotTaken>> + Send + Unpin + 'static {
        let (answer, receiver) = oneshot::channel();
        // Without a lane, the sender is dropped.
        let _ = self.requests.send(Request { copy, unless_blocked, answer });
        receiver.map(|answer| answer.unwrap_or(Err(NotTaken::NotSent)))
    }
}

struct Running {
    channel: Arc<dyn Channel>,
    connection: Arc<dyn Connection>,
    has_refused: Arc<AtomicBool>,
    outstanding: Outstanding,
    waiting: BTreeMap<CopyId, Waiting>,
}

impl Running {
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
                    if let Some(cause) = self.answer(arrived) {
                        requests.close();
                        // lapin fails all of them together, except for those that it has not
                        // written yet.
                        let remaining: Vec<_> = results.collect().await;
                        self.answer(remaining);
                        for waiting in self.waiting.into_values() {
                            let _ = waiting.send(Err(NotTaken::LaneClosed(cause.clone())));
                        }
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
        let _ =
            tokio::join!(self.channel.close("done"), results.for_each(|_| std::future::ready(())));
    }

    /// The returned future sends the copy when it is first polled, and ends with its confirm. There
    /// is none if nobody waits for the copy any longer, or it must not be sent now.
    fn send(&mut self, request: Request) -> Option<BoxFuture<'static, PublishResult>> {
        let Request { copy, unless_blocked, answer } = request;
        if answer.is_closed() || (unless_blocked && self.connection.is_blocked()) {
            return None;
        }
        let id = self.outstanding.sent(copy.clone());
        self.waiting.insert(id, answer);
        let channel = self.channel.clone();
        let publishing = async move {
            let (exchange, routing_key) = (copy.exchange.clone(), copy.routing_key.clone());
            let (properties, mandatory) = (copy.properties(), copy.mandatory);
            (id, channel.publish(exchange, routing_key, &copy.body, properties, mandatory).await)
        };
        Some(publishing.boxed())
    }

    /// Passes on all answers that have come by now. Returns why the lane has ended, if it has.
    fn answer(&mut self, results: Vec<PublishResult>) -> Option<Cause> {
        let (answers, end) = self.outstanding.judge(results);
        for (id, answer) in answers {
            if matches!(answer, Err(NotTaken::Nacked)) {
                self.has_refused.store(true, Ordering::Relaxed);
            }
            if let Some(waiting) = self.waiting.remove(&id) {
                // If nobody waits any longer, the copy was given up and is a duplicate.
                let _ = waiting.send(answer);
            }
        }
        end
    }
}

/// Returns when nobody waits for an answer any more.
async fn given_up(waiting: &mut BTreeMap<CopyId, Waiting>) {
    poll_fn(|context| {
        waiting.retain(|_, answer| answer.poll_closed(context).is_pending());
        if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
