//! A whole service on a real broker, with what a test asserts of it.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rehop::settings::Secret;
use rehop::{Outcome, Settings};
use rehop_worlds::{MessageId, Process, ProcessEnd, Stop, Told, failure_of, rounded};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::url::{user_of, with_vhost};
use crate::{Broker, BrokerError, Client, ClientError, Namespace, Publish, Received, eventually};

/// How long an assertion waits for what it asserts.
const WITHIN: Duration = Duration::from_secs(60);

/// A service on the [shared broker](Broker::shared), in a virtual host of its own: the counterpart
/// of [`World`](rehop_worlds::World), in real time.
///
/// Its tests see what a simulation cannot show: a real broker, and what else the service talks to.
/// Waits take their time, so give the service short ones. Assertions wait for up to a minute.
///
/// ```no_run
/// use rehop::{Failure, Message};
/// use rehop_testing::prelude::*;
///
/// async fn serve(settings: Settings, stop: Stop) -> Result<(), rehop::Error> {
///     let charge = |_: Message<u32>| async { Err(Failure::permanent("nothing to charge")) };
///     let service = rehop::Service::new(&settings).consumer("orders", charge);
///     service.with_graceful_shutdown(stop).await.map(drop)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mut world = RealWorld::new().await;
/// world.start(Settings::default(), serve);
/// let order = world.publish("orders", &0).await;
/// world.assert_parked(&order, Reason::Permanent).await;
/// world.stop().await;
/// # }
/// ```
///
/// The broker needs its management API, by which the virtual host is made. [`stop`](Self::stop)
/// deletes it; after a test that fails, it is there for as long as the broker.
pub struct RealWorld {
    broker: &'static Broker,
    vhost: String,
    url: String,
    client: Client,
    began: Instant,
    processes: Vec<Running>,
    told: Told,
    /// Each message, with its queue.
    published: HashMap<MessageId, String>,
    /// What assertions have taken out of parked queues, by its queue.
    taken: Vec<(String, Received)>,
}

struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    /// Once its future has ended: how it failed, if it did.
    ended: Arc<OnceLock<Option<String>>>,
}

/// The task of a process whose test has failed ends with its world.
impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RealWorld {
    /// An empty virtual host on the shared broker.
    ///
    /// # Panics
    ///
    /// When no broker is available, or its management API refuses. The text says what to do.
    pub async fn new() -> Self {
        Self::on(Broker::shared().await)
            .await
            .unwrap_or_else(|error| panic!("no virtual host for this test: {error}"))
    }

    async fn on(broker: &'static Broker) -> Result<Self, Refused> {
        let test = std::thread::current().name().unwrap_or("test").to_owned();
        let test = test.rsplit("::").next().unwrap_or_default();
        let vhost = Namespace::new(test).name().to_owned();
        let (management, url) = (broker.management()?, with_vhost(broker.amqp_url(), &vhost)?);
        management.put(&format!("vhosts/{vhost}"), &json!({})).await?;
        let permissions = json!({ "configure": ".*", "write": ".*", "read": ".*" });
        let user = user_of(broker.amqp_url());
        management.put(&format!("permissions/{vhost}/{user}"), &permissions).await?;
        Ok(Self {
            client: Client::connect(&url).await?,
            broker,
            vhost,
            url,
            began: Instant::now(),
            processes: Vec::new(),
            told: Told::default(),
            published: HashMap::new(),
            taken: Vec::new(),
        })
    }

    /// Starts a process. It gets these settings with the URL of this world in place of theirs, and
    /// what asks it to stop.
    pub fn start<F, R>(&mut self, mut settings: Settings, process: F) -> Process
    where
        F: FnOnce(Settings, Stop) -> R,
        R: Future<Output: ProcessEnd> + Send + 'static,
    {
        settings.broker.url = Secret::from(self.url.as_str());
        settings.broker.urls.clear();
        let id = Process(u32::try_from(self.processes.len()).unwrap_or(u32::MAX - 1) + 1);
        let (sender, stop) = Stop::channel();
        let (running, ended) = (process(settings, stop), Arc::new(OnceLock::new()));
        let (how, told, began) = (ended.clone(), self.told.clone(), self.began);
        let task = tokio::spawn(async move {
            let running = told.of(id, move || began.elapsed(), running);
            let _ = how.set(failure_of(running).await);
        });
        self.processes.push(Running { stop: Some(sender), task, ended });
        id
    }

    /// Publishes a message as JSON to a queue, as soon as a service has declared it.
    ///
    /// # Panics
    ///
    /// When nobody declares the queue within a minute, or the message is no JSON.
    pub async fn publish(&mut self, queue: &str, message: &impl Serialize) -> MessageId {
        let body = serde_json::to_value(message)
            .unwrap_or_else(|error| panic!("the message is no JSON: {error}"));
        let id = format!("{}-{}", self.vhost, self.published.len() + 1);
        let publish = Publish::to_queue(queue).json(&body).message_id(&id);
        let published = eventually(WITHIN, "a queue takes the message", async || {
            let published = self.client.publish(publish.clone()).await.map(|()| true);
            published.map_err(|error| format!("{error}{}", self.failures()))
        });
        if let Err(error) = published.await {
            panic!("the message was not published: {error}");
        }
        let id = MessageId::from(id.as_str());
        self.published.insert(id.clone(), queue.to_owned());
        id
    }

    /// The message is handled, within a minute.
    ///
    /// # Panics
    ///
    /// When it is not, with what happened to it.
    #[track_caller]
    pub fn assert_handled(&self, message: &MessageId) -> impl Future<Output = ()> {
        let test = Location::caller();
        async move {
            if !self.comes_to(message, |outcome| outcome == Outcome::Ack).await {
                panic!("{test}: {}", self.failure(message, "was not handled"));
            }
        }
    }

    /// The handler has begun this often with the message by now.
    ///
    /// # Panics
    ///
    /// When it has begun more often or less often, with what happened to the message.
    #[track_caller]
    pub fn assert_attempts(&self, message: &MessageId, attempts: usize) {
        let found = self.told.attempts(message.as_str()).len();
        let but = format!("had {found} attempts instead of {attempts}");
        assert!(found == attempts, "{}", self.failure(message, &but));
    }

    /// The message comes to the parked queue within a minute, for this [`Reason`](rehop::Reason) or
    /// the broker's own, such as `"delivery_limit"`. This takes it out of the parked queue.
    ///
    /// # Panics
    ///
    /// When it is not parked, or for another reason, with what happened to it.
    #[track_caller]
    pub fn assert_parked(
        &mut self,
        message: &MessageId,
        reason: impl fmt::Display,
    ) -> impl Future<Output = ()> {
        let (test, wanted) = (Location::caller(), reason.to_string());
        async move {
            let found = self.parked_for(message).await;
            if found.as_deref() != Some(&*wanted) {
                let but = found.map(|other| format!(", but for {other}")).unwrap_or_default();
                let but = format!("was not parked for {wanted}{but}");
                panic!("{test}: {}", self.failure(message, &but));
            }
        }
    }

    /// Asks all processes to stop, waits for their end, and deletes the virtual host.
    ///
    /// # Panics
    ///
    /// When a process ends with an error or a panic, or not within a minute.
    pub async fn stop(mut self) {
        for process in &mut self.processes {
            let _ = process.stop.take().map(|stop| stop.send(()));
        }
        for process in &mut self.processes {
            let ended = tokio::time::timeout(WITHIN, &mut process.task).await;
            assert!(ended.is_ok(), "a process did not stop within {WITHIN:?}");
        }
        let failures = self.failures();
        assert!(failures.is_empty(), "not all processes stopped cleanly{failures}");
        if let Ok(management) = self.broker.management() {
            // The rest of the test has passed, and the name is never used again.
            let _ = management.delete(&format!("vhosts/{}", self.vhost)).await;
        }
    }

    /// A client in this world's virtual host.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The broker, which other tests use, too.
    pub fn broker(&self) -> &'static Broker {
        self.broker
    }

    /// What happened to a message: one line for each attempt. For the text of an assertion.
    pub fn history(&self, message: &MessageId) -> String {
        let (id, now) = (message.as_str(), rounded(self.began.elapsed()));
        let published = self.published.get(message).map(|queue| format!(" in {queue}"));
        let lines = self.told.lines(id);
        format!("message {id}{}:{lines}\n  {now:>10}  now", published.unwrap_or_default())
    }

    /// Waits for an outcome. False if the message comes to another end, or to none in time.
    async fn comes_to(&self, message: &MessageId, wanted: impl Fn(Outcome) -> bool) -> bool {
        let outcome = eventually(WITHIN, "the message comes to an end", async || {
            let outcome = self.told.outcome(message.as_str());
            outcome.filter(|outcome| outcome.is_final() || !self.failures().is_empty())
        });
        outcome.await.is_ok_and(wanted)
    }

    /// Why the message is parked. `None` if it is not in time, or comes to another end.
    async fn parked_for(&mut self, message: &MessageId) -> Option<String> {
        let queue = self.published.get(message)?.clone();
        let parked = format!("{queue}.parked");
        let (client, told, taken) = (&self.client, &self.told, &mut self.taken);
        let found = eventually(WITHIN, "the message is parked", async || {
            let more = client.get_all(&parked).await?;
            taken.extend(more.into_iter().map(|received| (queue.clone(), received)));
            let is_it = |(_, received): &&(String, Received)| {
                received.properties.message_id.as_deref() == Some(message.as_str())
            };
            let reason = taken.iter().find(is_it).map(|(queue, received)| reason(queue, received));
            let is_elsewhere =
                matches!(told.outcome(message.as_str()), Some(Outcome::Ack | Outcome::Discard(_)));
            Ok::<_, ClientError>(reason.map(Some).or(is_elsewhere.then_some(None)))
        });
        found.await.ok().flatten()
    }

    /// The errors of all processes that have failed, to follow another text.
    fn failures(&self) -> String {
        let ended = self.processes.iter().map(|running| running.ended.get());
        let failed = (1..).zip(ended).filter_map(|(process, ended)| {
            Some(format!("; process {process} ended: {}", ended?.as_deref()?))
        });
        failed.collect()
    }

    fn failure(&self, message: &MessageId, but: &str) -> String {
        let (id, failures) = (message.as_str(), self.failures());
        format!("message {id} {but}{failures}\n{}", self.history(message))
    }
}

/// Why a message is in the parked queue of this queue, in words.
fn reason(queue: &str, parked: &Received) -> String {
    let death = &parked.headers.get("x-death").unwrap_or(&Value::Null)[0];
    let is_of_broker = death["queue"] == *queue;
    let own = parked.headers.get("rehop-reason").filter(|_| !is_of_broker);
    let reason = own.unwrap_or(&death["reason"]).as_str();
    reason.unwrap_or("unknown").to_owned()
}

impl fmt::Debug for RealWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("RealWorld");
        debug.field("broker", &self.broker.version()).field("vhost", &self.vhost);
        debug.field("failures", &self.failures()).finish_non_exhaustive()
    }
}

/// Why there is no virtual host.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error(transparent)]
    Client(#[from] ClientError),
}
