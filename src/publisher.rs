//! The publishing connection: one task that owns it, and confirms what it sent.
//!
//! Consumers hand their copies over and wait for the confirm. A copy that was not confirmed is sent again, on a new
//! connection if need be, for as long as its consumer still wants it: the original stays unacked meanwhile, so that nothing
//! is lost, and may be delivered again, so that duplicates happen.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ErrorKind, Event};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::connection::{Link, pause};
use crate::error::{Error, describe};
use crate::settings::TopologyMode;
use crate::topology::Topology;
use crate::topology::declare::answer;

/// A copy of a message, ready to be published.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) exchange: ShortString,
    pub(crate) routing_key: ShortString,
    pub(crate) properties: BasicProperties,
    pub(crate) body: Bytes,
}

/// The broker will not take this copy, however often it is sent.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the broker does not take the copy: {0}")]
pub(crate) struct Unpublishable(String);

/// A handle to the publishing task. The task ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct Publisher {
    requests: mpsc::Sender<Request>,
    healthy: watch::Receiver<bool>,
    topologies: Arc<Mutex<Vec<Topology>>>,
}

struct Request {
    copy: Arc<Copy>,
    done: oneshot::Sender<Result<(), Unpublishable>>,
    /// How often the broker closed the channel over this copy alone.
    strikes: u32,
    /// How often its confirm was awaited in vain. The wait doubles each time, because a cluster without a majority confirms
    /// late and not never, and every try leaves a duplicate behind.
    overdue: u32,
    sent_at: Instant,
}

impl Request {
    /// When its confirm is overdue.
    fn deadline(&self, patience: Duration) -> Instant {
        self.sent_at + patience.saturating_mul(1 << self.overdue.min(10)).min(MAX_PATIENCE)
    }
}

impl Publisher {
    /// Starts the task. `retried` is told the exchange of each copy that has to be sent again.
    pub(crate) fn start(link: Arc<Link>, mode: TopologyMode, retried: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let (requests, receiver) = mpsc::channel(1024);
        let (healthy_sender, healthy) = watch::channel(true);
        let topologies = Arc::new(Mutex::new(Vec::new()));
        let task = Task {
            link,
            mode,
            requests: receiver,
            healthy: healthy_sender,
            topologies: topologies.clone(),
            retried: Box::new(retried),
            backlog: VecDeque::new(),
            window: usize::MAX,
        };
        tokio::spawn(task.run());
        Self { requests, healthy, topologies }
    }

    /// Has this topology declared anew whenever the publishing channel is.
    pub(crate) fn look_after(&self, topology: Topology) {
        self.topologies.lock().unwrap_or_else(PoisonError::into_inner).push(topology);
    }

    /// Publishes a copy and returns when the broker has confirmed it, however long that takes. Dropping the future gives the
    /// copy up.
    ///
    /// # Errors
    ///
    /// When the broker closes the channel over this very copy each time.
    pub(crate) async fn publish(&self, copy: Copy) -> Result<(), Unpublishable> {
        let (done, confirmed) = oneshot::channel();
        let request = Request { copy: Arc::new(copy), done, strikes: 0, overdue: 0, sent_at: Instant::now() };
        // The publishing task ends before its handles only with the whole runtime: no verdict on the copy, so it is awaited on.
        match self.requests.send(request).await {
            Ok(()) => match confirmed.await {
                Ok(verdict) => verdict,
                Err(_) => std::future::pending().await,
            },
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns when copies can be published, as far as is known. Handlers are not started before: what they would have to
    /// send on would only pile up.
    pub(crate) async fn healthy(&self) {
        if !*self.healthy.borrow() {
            // An error means that the task has ended, and that shutdown is on its way.
            let _ = self.healthy.clone().wait_for(|healthy| *healthy).await;
        }
    }

    pub(crate) fn is_healthy(&self) -> bool {
        *self.healthy.borrow()
    }
}

struct Task {
    link: Arc<Link>,
    mode: TopologyMode,
    requests: mpsc::Receiver<Request>,
    healthy: watch::Sender<bool>,
    topologies: Arc<Mutex<Vec<Topology>>>,
    retried: Box<dyn Fn(&str) + Send + Sync>,
    /// To be sent, in this order, before anything new.
    backlog: VecDeque<Request>,
    /// How many copies may be unconfirmed. One after the broker closed the channel over a copy, so that the culprit shows.
    window: usize,
}

/// The longest that a confirm may take before the connection is given up, however often that was in vain.
const MAX_PATIENCE: Duration = Duration::from_secs(600);

/// Why a publishing channel is no longer used.
enum End {
    /// All handles are gone.
    Finished,
    /// It has to be replaced.
    Broken { connection_too: bool, cause: String },
}

type Outcome = (u64, lapin::Result<Confirmation>);

/// How often in a row copies may be refused on one channel, which takes some 5 seconds. A channel remembers that a quorum queue was
/// full, and refuses for it when its limit was lifted long ago (3.10).
const MAX_REFUSALS: u32 = 6;

/// How often the broker may close the channel over one copy before that counts as an answer.
const MAX_STRIKES: u32 = 3;

impl Task {
    async fn run(mut self) {
        let mut failures = 0;
        loop {
            let (connection, channel) = match self.open().await {
                Ok(open) => open,
                Err(error) => {
                    self.set_healthy(false);
                    let pause = pause(failures);
                    failures += 1;
                    tracing::warn!(%error, waiting = self.backlog.len(), "cannot publish; trying again in {pause:?}");
                    if self.collect_for(pause).await {
                        continue;
                    }
                    return;
                }
            };
            self.set_healthy(true);
            let confirmed_something = match self.serve(&connection, &channel).await {
                (End::Finished, _) => return,
                (End::Broken { connection_too, cause }, confirmed) => {
                    self.set_healthy(false);
                    tracing::warn!(%cause, unconfirmed = self.backlog.len(), "the publishing channel broke; opening another");
                    if connection_too {
                        self.link.abandon(&connection).await;
                    }
                    confirmed
                }
            };
            // Never without a pause: one copy that cannot be routed breaks each channel, though others are confirmed.
            failures = if confirmed_something { 0 } else { failures + 1 };
            if !self.collect_for(pause(failures)).await {
                return;
            }
        }
    }

    fn set_healthy(&self, healthy: bool) {
        self.healthy.send_if_modified(|current| std::mem::replace(current, healthy) != healthy);
    }

    /// Takes requests in while nothing can be sent. False when there will be none any more.
    async fn collect_for(&mut self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => break,
                request = self.requests.recv() => match request {
                    Some(request) => self.backlog.push_back(request),
                    None => return false,
                },
            }
        }
        self.backlog.retain(|request| !request.done.is_closed());
        true
    }

    /// A confirming channel, with everything declared that it may publish to.
    async fn open(&self) -> Result<(Arc<Connection>, Channel), Error> {
        let (connection, limit) = (self.link.get().await?, self.link.patience());
        let topologies = self.topologies.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for topology in topologies {
            topology.establish(&connection, self.mode, limit).await?;
        }
        let channel = answer("opening a channel to publish", limit, connection.create_channel()).await?;
        let confirms = channel.confirm_select(ConfirmSelectOptions::default());
        answer("switching confirms on", limit, confirms).await?;
        Ok((connection, channel))
    }

    /// Publishes and confirms until the channel breaks. Whatever is unconfirmed then is in the backlog again.
    async fn serve(&mut self, connection: &Connection, channel: &Channel) -> (End, bool) {
        let mut events = std::pin::pin!(connection.events_listener());
        let mut sent: BTreeMap<u64, Request> = BTreeMap::new();
        let mut confirms: FuturesUnordered<BoxFuture<'static, Outcome>> = FuturesUnordered::new();
        let (mut next, mut blocked, mut confirmed) = (0u64, false, false);
        let mut refused = Refused::default();
        let mut unblocked_at = Instant::now();
        let end = loop {
            while sent.len() < self.window {
                let Some(mut request) = self.backlog.pop_front() else { break };
                if request.done.is_closed() {
                    continue;
                }
                request.sent_at = Instant::now();
                confirms.push(send(channel.clone(), next, request.copy.clone()).boxed());
                sent.insert(next, request);
                next += 1;
            }
            // The first of them was sent first.
            let oldest = sent.first_key_value().map(|(_, request)| request.deadline(self.link.patience()));
            let overdue_at = oldest.unwrap_or(unblocked_at).max(unblocked_at);
            tokio::select! {
                outcome = confirms.next(), if !confirms.is_empty() => {
                    let Some(outcome) = outcome else { continue };
                    let outcomes = ready(outcome, &mut confirms);
                    match self.judge(outcomes, &mut sent, &mut refused) {
                        Ok(0) => {}
                        Ok(_) => {
                            confirmed = true;
                            self.window = usize::MAX;
                        }
                        Err(end) => break end,
                    }
                    self.set_healthy(!blocked && refused.requests.is_empty());
                }
                () = tokio::time::sleep_until(refused.again_at), if !refused.requests.is_empty() => {
                    if refused.times > MAX_REFUSALS && sent.is_empty() {
                        break End::Broken { connection_too: false, cause: "the broker keeps refusing copies".to_owned() };
                    }
                    self.backlog.extend(refused.requests.drain(..));
                }
                request = self.requests.recv(), if sent.len() < self.window && self.backlog.is_empty() => match request {
                    Some(request) => self.backlog.push_back(request),
                    None => break End::Finished,
                },
                event = events.next() => match event {
                    Some(Event::ConnectionBlocked(cause)) => {
                        tracing::warn!(%cause, "the broker blocks publishing; waiting");
                        blocked = true;
                        self.set_healthy(false);
                    }
                    Some(Event::ConnectionUnblocked) => {
                        tracing::info!("the broker takes copies again");
                        blocked = false;
                        unblocked_at = Instant::now() + self.link.patience();
                        self.set_healthy(true);
                    }
                    Some(Event::Error(error)) => break End::Broken { connection_too: true, cause: describe(&error) },
                    Some(_) => {}
                    None => break End::Broken { connection_too: true, cause: "the connection ended".to_owned() },
                },
                () = tokio::time::sleep_until(overdue_at), if !sent.is_empty() && !blocked => {
                    let now = Instant::now();
                    for request in sent.values_mut().filter(|request| request.deadline(self.link.patience()) <= now) {
                        request.overdue += 1;
                    }
                    break End::Broken { connection_too: true, cause: "no confirm came in time".to_owned() };
                }
            }
        };
        for request in sent.values() {
            (self.retried)(request.copy.exchange.as_str());
        }
        for request in sent.into_values().rev() {
            self.backlog.push_front(request);
        }
        self.backlog.extend(refused.requests);
        (end, confirmed)
    }

    /// Tells the consumers whose copies are safe.
    ///
    /// lapin hands a return to whichever confirm comes first after it, so a return means that some copy of this batch, or a
    /// later one, is in no queue: none of them is believed, and all are sent again once the topology is whole.
    fn judge(
        &mut self,
        outcomes: Vec<Outcome>,
        sent: &mut BTreeMap<u64, Request>,
        refused: &mut Refused,
    ) -> Result<usize, End> {
        let returned = outcomes
            .iter()
            .any(|(_, outcome)| matches!(outcome, Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)))));
        if returned {
            let cause = "a copy was returned: an exchange has lost its alternate exchange, or the stray queue is gone"
                .to_owned();
            return Err(End::Broken { connection_too: false, cause });
        }
        let (mut confirmed, mut broken) = (0, None);
        for (id, outcome) in outcomes {
            match outcome {
                Ok(Confirmation::Ack(_)) => {
                    confirmed += 1;
                    if let Some(request) = sent.remove(&id) {
                        // Nobody waits any more when the delivery was lost meanwhile: the copy is a duplicate then.
                        let _ = request.done.send(Ok(()));
                    }
                }
                Ok(Confirmation::Nack(_)) => {
                    if let Some(request) = sent.remove(&id) {
                        (self.retried)(request.copy.exchange.as_str());
                        refused.add(request);
                    }
                }
                Ok(Confirmation::NotRequested) => broken = Some("confirms are off".to_owned()),
                Err(error) => {
                    if is_about_the_copy(&error) {
                        self.strike(&error, sent);
                    }
                    broken = Some(describe(&error));
                }
            }
        }
        match broken {
            Some(cause) => Err(End::Broken { connection_too: false, cause }),
            None => {
                if confirmed > 0 && refused.requests.is_empty() {
                    refused.times = 0;
                }
                Ok(confirmed)
            }
        }
    }

    /// The broker closed the channel over what a copy is. With several under way the culprit is unknown, so they are sent one
    /// by one from now on, until one is confirmed.
    fn strike(&mut self, error: &lapin::Error, sent: &mut BTreeMap<u64, Request>) {
        self.window = 1;
        if sent.len() != 1 {
            return;
        }
        let Some((id, mut request)) = sent.pop_first() else { return };
        request.strikes += 1;
        if request.strikes < MAX_STRIKES {
            sent.insert(id, request);
        } else {
            let _ = request.done.send(Err(Unpublishable(describe(error))));
        }
    }
}

/// Copies that the broker nacked, as a full queue does. Without a pause before the next try that would be a hot loop.
struct Refused {
    requests: Vec<Request>,
    again_at: Instant,
    times: u32,
}

impl Default for Refused {
    fn default() -> Self {
        Self { requests: Vec::new(), again_at: Instant::now(), times: 0 }
    }
}

impl Refused {
    fn add(&mut self, request: Request) {
        if self.requests.is_empty() {
            if self.times == 0 {
                let exchange = request.copy.exchange.as_str();
                tracing::warn!(exchange, "the broker refuses a copy; is a queue full? trying again until it takes it");
            }
            self.again_at = Instant::now() + pause(self.times);
            self.times += 1;
        }
        self.requests.push(request);
    }
}

async fn send(channel: Channel, id: u64, copy: Arc<Copy>) -> Outcome {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let (exchange, routing_key) = (copy.exchange.clone(), copy.routing_key.clone());
    let confirm = match channel.basic_publish(exchange, routing_key, options, &copy.body, copy.properties.clone()).await
    {
        Ok(confirm) => confirm.await,
        Err(error) => Err(error),
    };
    (id, confirm)
}

/// Everything that is confirmed by now. They are judged together: a return that belongs to one of them has then arrived.
fn ready(first: Outcome, confirms: &mut FuturesUnordered<BoxFuture<'static, Outcome>>) -> Vec<Outcome> {
    let mut outcomes = vec![first];
    while let Some(Some(outcome)) = confirms.next().now_or_never() {
        outcomes.push(outcome);
    }
    outcomes
}

/// 406: a property or a size that the broker does not accept. 501, 502: a frame that it cannot read. Anything else is about
/// the topology, permissions or the connection, and may be mended.
fn is_about_the_copy(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(answer) if [406, 501, 502].contains(&answer.get_id()))
}
