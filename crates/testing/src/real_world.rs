//! A whole service on a real broker, with what a test asserts of it.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lapin::BasicProperties;
use lapin::types::ShortString;
use rehop::settings::Secret;
use rehop::{Outcome, Settings};
use rehop_worlds::{AttemptLog, MessageId, Process, ProcessEnd, Stop, failure_of, rounded};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::url::{user_of, with_vhost};
use crate::{Broker, BrokerError, Client, ClientError, Namespace, NotInTime, Received, eventually};

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
/// world.finish().await;
/// # }
/// ```
///
/// A service has to run in the future that [`start`](Self::start) gets. One that this future spawns
/// in a task of its own serves its queues, but the world sees none of its attempts.
///
/// The broker needs its management API, by which the virtual host is made. [`finish`](Self::finish)
/// tries to delete it. After a test that fails before that, it is there for as long as the broker.
pub struct RealWorld {
    broker: &'static Broker,
    vhost: String,
    url: String,
    client: Client,
    began: Instant,
    processes: Vec<Running>,
    told: AttemptLog,
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
            told: AttemptLog::default(),
            published: HashMap::new(),
            taken: Vec::new(),
        })
    }

    /// Starts a process. It gets these settings with the URL of this world in place of theirs, and
    /// what asks it to stop. A service has to run in this future:
    /// [one in a task of its own](Self) is not seen.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    #[track_caller]
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
    /// When the message cannot be serialized as JSON, and as [`publish_raw`](Self::publish_raw).
    pub async fn publish(&mut self, queue: &str, message: &impl Serialize) -> MessageId {
        let body = serde_json::to_vec(message)
            .unwrap_or_else(|error| panic!("the message cannot be serialized as JSON: {error}"));
        let properties = BasicProperties::default()
            .with_content_type(ShortString::from("application/json"))
            .with_delivery_mode(2);
        self.publish_raw(queue, properties, body).await
    }

    /// The same with any body and any properties, as another program may publish. If the properties
    /// have no `message_id`, it gets one.
    ///
    /// # Panics
    ///
    /// When nobody declares the queue within a minute, or the test has already published a message
    /// with this `message_id`.
    pub async fn publish_raw(
        &mut self,
        queue: &str,
        properties: BasicProperties,
        body: impl Into<Vec<u8>>,
    ) -> MessageId {
        let given = properties.message_id().as_ref().map(ToString::to_string);
        let number = self.published.len() + 1;
        let text = given.unwrap_or_else(|| format!("{}-{number}", self.vhost));
        let id = MessageId::from(text.as_str());
        assert!(
            !self.published.contains_key(&id),
            "the test has already published a message with the message_id {text:?}"
        );
        let properties = properties.with_message_id(ShortString::from(text));
        let body: Vec<u8> = body.into();
        let published = eventually(WITHIN, "a queue takes the message", async || {
            let published = self.client.publish_raw("", queue, &body, properties.clone(), true);
            let published = published.await.map(|()| true);
            published.map_err(|error| format!("{error}{}", self.failures()))
        });
        if let Err(error) = published.await {
            panic!("the message was not published: {error}");
        }
        self.published.insert(id.clone(), queue.to_owned());
        id
    }

    /// The message is handled, within a minute. A message that comes to another end, or that no
    /// process is left to handle, is not waited for.
    ///
    /// # Panics
    ///
    /// When it is not, with what happened to it.
    #[track_caller]
    pub fn assert_handled(&self, message: &MessageId) -> impl Future<Output = ()> {
        let test = Location::caller();
        async move {
            let but = match self.end_of(message).await {
                Ok(Some(Outcome::Ack)) => return,
                Ok(Some(other)) => format!("was {} instead of handled", in_words(other)),
                Ok(None) => "was not handled, and all processes have ended".to_owned(),
                Err(_) => format!("came to no end within {WITHIN:?}"),
            };
            panic!("{test}: {}", self.failure(message, &but));
        }
    }

    /// The handler has begun this often with the message by now.
    ///
    /// # Panics
    ///
    /// When it has begun more often or less often, with what happened to the message; when the test
    /// has published no such message and no service told of it; and when no service told of
    /// anything.
    #[track_caller]
    pub fn assert_attempts(&self, message: &MessageId, attempts: usize) {
        let (id, published) = (message.as_str(), self.queue_published_to(message));
        assert!(
            published.is_some() || self.told.knows(id),
            "this test did not publish message {id}, and no service told of it{}",
            self.notes()
        );
        let found = self.told.attempts(id, published).len();
        let but = format!("had {found} attempts instead of {attempts}");
        let is_told = self.told.silence().is_empty();
        assert!(is_told && found == attempts, "{}", self.failure(message, &but));
    }

    /// The message comes to the parked queue within a minute, for this [`Reason`](rehop::Reason) or
    /// the broker's own, such as `"delivery_limit"`. Of a message that a service published, the
    /// queue is known once a service has told of it.
    ///
    /// This empties the parked queue. The world keeps what was in it for later assertions, so of a
    /// message that a test sends back, the next assertion may still see the first parking.
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
            let instead = match self.parked_for(message).await {
                Ok(found) if found == wanted => return,
                Ok(other) => format!("it was parked as {other}"),
                Err(instead) => instead,
            };
            let but = format!("was expected to be parked as {wanted}; {instead}");
            panic!("{test}: {}", self.failure(message, &but));
        }
    }

    /// Asks all processes to stop, waits for their end, and tries to delete the virtual host.
    ///
    /// # Panics
    ///
    /// When a process ends with an error or a panic, or does not stop within a minute. The virtual
    /// host is deleted before that, if the broker lets it.
    pub async fn finish(mut self) {
        for process in &mut self.processes {
            let _ = process.stop.take().map(|stop| stop.send(()));
        }
        let (until, mut late) = (tokio::time::Instant::now() + WITHIN, 0);
        for process in &mut self.processes {
            let ended = tokio::time::timeout_at(until, &mut process.task).await;
            late += usize::from(ended.is_err());
        }
        let failures = self.failures();
        if let Ok(management) = self.broker.management() {
            // If this fails, the test does not: the name is never used again.
            let _ = management.delete(&format!("vhosts/{}", self.vhost)).await;
        }
        assert!(late == 0, "{late} processes did not stop within {WITHIN:?}{failures}");
        assert!(failures.is_empty(), "not all processes stopped cleanly{failures}");
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
        let published = self.queue_published_to(message);
        let lines = self.told.lines(id, published);
        let published = published.map(|queue| format!(" in {queue}")).unwrap_or_default();
        format!("message {id}{published}:{lines}\n  {now:>10}  now")
    }

    fn queue_published_to(&self, message: &MessageId) -> Option<&str> {
        self.published.get(message).map(String::as_str)
    }

    /// Waits for the last outcome of a message. `None` if all processes have ended without one.
    async fn end_of(&self, message: &MessageId) -> Result<Option<Outcome>, NotInTime> {
        let published = self.queue_published_to(message);
        let end = eventually(WITHIN, "the message comes to an end", async || {
            // Asked first, because a process may tell of the message and then end.
            let are_gone = self.processes.iter().all(|running| running.ended.get().is_some());
            let outcome = self.told.outcome(message.as_str(), published);
            outcome.filter(|outcome| outcome.is_final()).map(Some).or(are_gone.then_some(None))
        });
        end.await
    }

    /// Why the message is parked.
    ///
    /// # Errors
    ///
    /// What happened instead, if it comes to another end, or is not parked in time.
    async fn parked_for(&mut self, message: &MessageId) -> Result<String, String> {
        let (id, published) = (message.as_str(), self.published.get(message).map(String::as_str));
        let (client, told, taken) = (&self.client, &self.told, &mut self.taken);
        let found = eventually(WITHIN, "the message is parked", async || {
            if let Some(queue) = told.queue_of(id, published) {
                let more = client.get_all(&format!("{queue}.parked")).await?;
                taken.extend(more.into_iter().map(|received| (queue.clone(), received)));
            }
            let is_it = |(_, received): &&(String, Received)| {
                received.properties.message_id.as_deref() == Some(id)
            };
            let reason =
                taken.iter().rev().find(is_it).map(|(queue, received)| reason(queue, received));
            let other = told
                .outcome(id, published)
                .filter(|outcome| matches!(outcome, Outcome::Ack | Outcome::Discard(_)));
            let instead = other.map(|outcome| Err(format!("it was {}", in_words(outcome))));
            Ok::<_, ClientError>(reason.map(Ok).or(instead))
        });
        found.await.unwrap_or_else(|error| Err(format!("it was not: {error}")))
    }

    /// The errors of all processes that have failed, to follow another text.
    fn failures(&self) -> String {
        let ended = self.processes.iter().map(|running| running.ended.get());
        let failed = (1..).zip(ended).filter_map(|(process, ended)| {
            Some(format!("; process {process} ended: {}", ended?.as_deref()?))
        });
        failed.collect()
    }

    /// What an assertion that fails says besides the history: which processes have failed, and
    /// whether no service told of anything.
    fn notes(&self) -> String {
        self.failures() + self.told.silence()
    }

    fn failure(&self, message: &MessageId, but: &str) -> String {
        let (id, notes) = (message.as_str(), self.notes());
        format!("message {id} {but}{notes}\n{}", self.history(message))
    }
}

/// The end of a message, to follow "it was".
fn in_words(end: Outcome) -> String {
    match end {
        Outcome::Ack => "handled".to_owned(),
        Outcome::Park(reason) => format!("parked as {reason}"),
        Outcome::Discard(reason) => format!("discarded as {reason}"),
        other => other.as_str().to_owned(),
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
