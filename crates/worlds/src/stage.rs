//! A world for the tests of a service: its own code and handlers, on a simulated broker, in virtual
//! time.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lapin::BasicProperties;
use lapin::types::ShortString;
use rehop::Outcome;
use rehop::internals::at_rest;
use rehop::internals::dial::dialing;
use rehop::internals::{Seeded, SimulatedDate};
use rehop_simulator::{Alarm, Broker, QueueView, Time, Version};
use serde::Serialize;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::attempt::{Attempt, AttemptLog};
use crate::ending::{ProcessEnd, failure_of};
use crate::network::{Arrival, Conditions, Dialer, Network, Process};
use crate::run::BEGINNING;

/// A simulated broker, and the processes that a test starts on it.
///
/// Time passes only in [`pass`](Self::pass) and [`settle`](Self::settle), and in
/// [`publish`](Self::publish) and [`limit`](Self::limit) until the queue exists, as fast as the
/// code runs: two hours take milliseconds. The same seed gives the same run.
///
/// What is simulated: the broker, the network, Tokio's clock, and the dates and random numbers that
/// rehop uses. Not simulated: a handler's own use of threads, files, random numbers and the
/// system's clock. A handler that blocks its thread blocks the world, and there is no network:
/// instead of databases and remote services, handlers get fakes.
///
/// A service has to run in the future that [`start`](Self::start) gets. One that this future spawns
/// in a task of its own is not in the world: its URL leads it to a real broker, and the world sees
/// none of its attempts.
///
/// ```
/// use std::time::Duration;
///
/// use rehop::{Consumer, Failure, Message, Settings};
/// use rehop_worlds::{Fate, Stop, World};
///
/// async fn serve(stop: Stop) -> Result<(), rehop::Error> {
///     let charge = |message: Message<u32>| async move {
///         match message.attempt() {
///             1 | 2 => Err(Failure::transient("the card service is away")),
///             _ => Ok(()),
///         }
///     };
///     let service = rehop::Service::new(&Settings::default()).with_graceful_shutdown(stop);
///     service.with_consumer(Consumer::new("orders", charge)).await.map(drop)
/// }
///
/// let mut world = World::new(7);
/// let billing = world.start(serve);
/// let order = world.publish("orders", &42);
/// world.pass(Duration::from_secs(1));
/// world.kill(billing);
/// world.start(serve);
/// world.pass(Duration::from_secs(2 * 60 * 60));
/// assert_eq!(world.fate(&order), Fate::Gone);
/// assert!(world.deliveries(&order).len() >= 3);
/// ```
pub struct World {
    runtime: Runtime,
    network: Network,
    version: Version,
    processes: Vec<Running>,
    /// Each message, when it was published, and to which queue.
    published: Vec<(MessageId, Time, String)>,
    pub(crate) told: AttemptLog,
    /// Queues that a test has limited.
    limited: Vec<String>,
    _alone: Alone,
    _seeded: Seeded,
    _dated: SimulatedDate,
}

/// Asks a process to stop, as SIGTERM does. Give it to
/// [`with_graceful_shutdown`](rehop::Service::with_graceful_shutdown).
#[derive(Debug)]
pub struct Stop(oneshot::Receiver<()>);

/// A message, by its `message_id`: one that the test published or, with [`From`], one that a service
/// did. If services have consumed messages of one id from several queues, the attempts are those in
/// the queue that the test published to, or in the first that was consumed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MessageId(String);

impl MessageId {
    /// The `message_id`, as handlers see it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for MessageId {
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

/// Where a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// In this queue, ready or delivered. In a parked queue it stays there.
    In(String),
    /// In no queue: it was handled, discarded, or expired. [`World::outcome`] says which.
    Gone,
}

/// A delivery of a message to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivered {
    /// The time since the world began.
    pub at: Time,
    /// Who got it.
    pub process: Process,
    /// Whether the broker says that it may have been delivered before.
    pub is_redelivered: bool,
}

struct Running {
    process: Process,
    task: AbortHandle,
    stop: Option<oneshot::Sender<()>>,
    /// Once its future has ended: how it failed, if it did.
    ended: Arc<OnceLock<Option<String>>>,
}

/// The user by which a world publishes.
const USER: &str = "guest";

/// The process number of the world itself.
const ITSELF: Process = Process(0);

impl World {
    /// A world with RabbitMQ 4.3 and a quick network.
    ///
    /// # Panics
    ///
    /// When there is another world on this thread, or it runs in a Tokio runtime: a world has a
    /// runtime of its own, so its test is a plain `#[test]`.
    #[track_caller]
    pub fn new(seed: u64) -> Self {
        Self::of(seed, Version::V4_3, Conditions::default())
    }

    /// A world with this release of RabbitMQ, and this network.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    #[track_caller]
    pub fn of(seed: u64, version: Version, conditions: Conditions) -> Self {
        assert!(
            tokio::runtime::Handle::try_current().is_err(),
            "a world has a Tokio runtime of its own: make its test a plain #[test] instead of #[tokio::test]"
        );
        let alone = Alone::enter();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.unwrap_or_else(|error| panic!("no runtime can be made: {error}"));
        let seeded = rehop::internals::seed(seed);
        let (network, dated) = {
            let _entered = runtime.enter();
            let mut broker = Broker::new(version);
            broker.epoch = BEGINNING;
            let network = Network::new(broker, conditions, seed);
            (network, rehop::internals::simulate(UNIX_EPOCH + BEGINNING))
        };
        Self {
            runtime,
            network,
            version,
            processes: Vec::new(),
            published: Vec::new(),
            told: AttemptLog::default(),
            limited: Vec::new(),
            _alone: alone,
            _seeded: seeded,
            _dated: dated,
        }
    }

    /// Starts a process: it runs from the next time that time passes, and ends with this future, or
    /// when it is killed.
    ///
    /// If it ends with an error, [`error`](Self::error) has it. A service has to run in this
    /// future: [one in a task of its own](Self) is not seen.
    pub fn start<F, R>(&mut self, process: F) -> Process
    where
        F: FnOnce(Stop) -> R,
        R: Future<Output: ProcessEnd> + Send + 'static,
    {
        let id = Process(u32::try_from(self.processes.len()).unwrap_or(u32::MAX - 1) + 1);
        let (sender, stop) = Stop::channel();
        let dialer =
            Arc::new(Dialer { network: self.network.clone(), process: id, user: USER.to_owned() });
        let running = process(stop);
        let (network, ended) = (self.network.clone(), Arc::new(OnceLock::new()));
        let (how, told, clock) = (ended.clone(), self.told.clone(), self.network.clone());
        let task = self.runtime.spawn(async move {
            let running = told.of(id, move || clock.now(), dialing(dialer, running));
            let _ = how.set(failure_of(running).await);
            // What it has left behind does nothing any more.
            network.kill(id);
        });
        self.processes.push(Running {
            process: id,
            task: task.abort_handle(),
            stop: Some(sender),
            ended,
        });
        id
    }

    /// Publishes a message as JSON to a queue that exists, and lets the services that were started
    /// declare it first.
    ///
    /// # Panics
    ///
    /// When the message cannot be serialized as JSON, and as [`publish_raw`](Self::publish_raw).
    #[track_caller]
    pub fn publish(&mut self, queue: &str, message: &impl Serialize) -> MessageId {
        let body = match serde_json::to_vec(message) {
            Ok(body) => body,
            Err(error) => panic!("the message cannot be serialized as JSON: {error}"),
        };
        let properties = BasicProperties::default()
            .with_content_type(name("application/json"))
            .with_delivery_mode(2);
        self.publish_raw(queue, properties, body)
    }

    /// The same with any body and any properties, as another program may publish. If the properties
    /// have no `message_id`, it gets one.
    ///
    /// # Panics
    ///
    /// When nobody declares the queue within a minute, and when the broker is stopped, has an alarm,
    /// or the queue has a [limit](Self::limit): it might not take the message. When the test has
    /// already published a message with this `message_id`.
    #[track_caller]
    pub fn publish_raw(
        &mut self,
        queue: &str,
        properties: BasicProperties,
        body: impl Into<Vec<u8>>,
    ) -> MessageId {
        assert!(
            self.on_broker(|broker, _| broker.takes_messages()),
            "the broker takes no message while it is stopped or has an alarm: publish before that, or after it"
        );
        assert!(
            !self.limited.iter().any(|limited| limited == queue),
            "{queue:?} has a limit and may refuse the message: publish before that, or lift it"
        );
        let given = properties.message_id().as_ref().map(ToString::to_string);
        let id = given.unwrap_or_else(|| self.unused_id());
        assert!(
            !self.has_published(&id),
            "the test has already published a message with the message_id {id:?}"
        );
        assert!(
            self.comes_to_exist(queue),
            "there is no queue {queue:?}: start a service that consumes it{}",
            self.failures()
        );
        let properties = properties.with_message_id(name(&id));
        self.on_network(|network| network.publish(ITSELF, name(queue), properties, body.into()));
        let id = MessageId(id);
        self.published.push((id.clone(), self.now(), queue.to_owned()));
        id
    }

    /// Lets time pass until there is such a queue, for a minute at most.
    fn comes_to_exist(&mut self, queue: &str) -> bool {
        for _ in 0..600 {
            if self.queue(queue).is_some() {
                return true;
            }
            self.pass(Duration::from_millis(100));
        }
        self.queue(queue).is_some()
    }

    fn has_published(&self, id: &str) -> bool {
        self.published.iter().any(|(message, ..)| message.as_str() == id)
    }

    /// The `message_id` of a message that has none.
    fn unused_id(&self) -> String {
        let mut number = self.published.len() + 1;
        while self.has_published(&number.to_string()) {
            number += 1;
        }
        number.to_string()
    }

    /// Lets this time pass.
    pub fn pass(&mut self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Lets time pass until every message has come to an end: handled, parked or gone. False if
    /// that takes longer than `most`.
    #[must_use = "it is false if not every message has come to an end"]
    pub fn settle(&mut self, most: Duration) -> bool {
        let until = self.now().saturating_add(most);
        loop {
            let left = until.saturating_sub(self.now());
            self.pass(left.min(Duration::from_secs(1)));
            if self.unsettled_queues().is_empty() {
                return true;
            }
            if self.now() >= until {
                return false;
            }
        }
    }

    /// The queues with messages that have come to no end, and how many these are.
    pub(crate) fn unsettled_queues(&self) -> Vec<(String, usize)> {
        self.on_broker(|broker, _| {
            let moving = broker.queues().filter(|(name, _)| !crate::run::is_final(name));
            let counted = moving.map(|(name, view)| (name.to_owned(), view.messages().count()));
            counted.filter(|(_, count)| *count > 0).collect()
        })
    }

    /// Kills a process: it does nothing any more, and the broker notices at once.
    pub fn kill(&mut self, process: Process) {
        self.on_network(|network| network.kill(process));
        if let Some(running) = self.processes.iter().find(|running| running.process == process) {
            running.task.abort();
        }
        self.pass(Duration::ZERO);
    }

    /// Asks a process to stop, as SIGTERM does. It goes on until its future ends.
    pub fn stop(&mut self, process: Process) {
        let running = self.processes.iter_mut().find(|running| running.process == process);
        if let Some(stop) = running.and_then(|running| running.stop.take()) {
            let _ = stop.send(());
        }
    }

    /// Whether the future of a process has ended, or it was killed.
    pub fn has_ended(&self, process: Process) -> bool {
        self.processes
            .iter()
            .any(|running| running.process == process && running.task.is_finished())
    }

    /// Why a process ended, if it ended with an error or a panic.
    pub fn error(&self, process: Process) -> Option<&str> {
        let running = self.processes.iter().find(|running| running.process == process)?;
        running.ended.get()?.as_deref()
    }

    /// The errors of all processes that have failed, to follow another text.
    pub(crate) fn failures(&self) -> String {
        let failed = self.processes.iter().filter_map(|running| {
            let error = self.error(running.process)?;
            Some(format!("; process {} ended: {error}", running.process.0))
        });
        failed.collect()
    }

    /// What an assertion that fails says besides the history: which processes have failed, and
    /// whether no service told of anything.
    pub(crate) fn notes(&self) -> String {
        self.failures() + self.told.silence()
    }

    /// Cuts all connections of a process.
    pub fn cut_connections(&mut self, process: Process) {
        self.on_network(|network| {
            for connection in network.connections(process) {
                network.cut(connection);
            }
        });
    }

    /// The broker goes down. It keeps what is durable.
    pub fn stop_broker(&mut self) {
        self.on_broker(|broker, now| broker.stop(now));
    }

    /// The broker is there again.
    pub fn start_broker(&mut self) {
        self.on_broker(|broker, now| broker.start(now));
    }

    /// A memory alarm blocks connections that publish.
    pub fn raise_alarm(&mut self) {
        self.on_broker(|broker, now| broker.set_alarm(now, Some(Alarm::Memory)));
    }

    /// The alarm is over.
    pub fn clear_alarm(&mut self) {
        self.on_broker(|broker, now| broker.set_alarm(now, None));
    }

    /// A full queue: a policy limits the queue to this many messages, and lets it refuse others,
    /// with `overflow: reject-publish`. `None` lifts the limit.
    ///
    /// As in RabbitMQ, a quorum queue takes one message more than its limit before it refuses the
    /// next.
    ///
    /// # Panics
    ///
    /// When nobody declares the queue within a minute.
    #[track_caller]
    pub fn limit(&mut self, queue: &str, messages: Option<u32>) {
        if !self.comes_to_exist(queue) {
            let known: Vec<_> = self
                .on_broker(|broker, _| broker.queues().map(|(name, _)| name.to_owned()).collect());
            let known = known.join(", ");
            panic!("there is no queue {queue:?}, but these: {known}{}", self.failures());
        }
        let policy = messages.map(crate::run::no_more_than);
        self.on_broker(|broker, now| broker.set_policy(now, queue, policy));
        self.limited.retain(|limited| limited != queue);
        self.limited.extend(messages.map(|_| queue.to_owned()));
    }

    /// The time since the world began.
    pub fn now(&self) -> Time {
        self.on_network(Network::now)
    }

    /// The date and time of day in this world, as rehop takes it. Worlds begin in November 2023.
    pub fn date(&self) -> SystemTime {
        self.on_network(|_| rehop::internals::date())
    }

    /// The broker's release.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where a message is now. If several queues hold messages of one id, this is the first of them
    /// by name.
    pub fn fate(&self, message: &MessageId) -> Fate {
        self.on_broker(|broker, _| {
            let holds = |view: &QueueView| view.messages().any(|held| held == message.0);
            let found = broker.queues().find(|(_, view)| holds(view));
            found.map_or(Fate::Gone, |(name, _)| Fate::In(name.to_owned()))
        })
    }

    /// When and to whom a message was delivered.
    pub fn deliveries(&self, message: &MessageId) -> Vec<Delivered> {
        let of = |arrival: &&Arrival| arrival.message == message.0;
        let arrivals = self.network.arrivals();
        let delivered = arrivals.iter().filter(of);
        delivered
            .map(|arrival| Delivered {
                at: arrival.at,
                process: arrival.process,
                is_redelivered: arrival.is_redelivered,
            })
            .collect()
    }

    /// The attempts at a message so far, in the order in which they began.
    ///
    /// Unlike [`deliveries`](Self::deliveries), these are runs of its handler.
    pub fn attempts(&self, message: &MessageId) -> Vec<Attempt> {
        self.told.attempts(&message.0, self.queue_published_to(message))
    }

    /// The last outcome of a message that its service has settled: of an attempt, or of a message
    /// that had expired before one. A message that the broker has parked keeps its outcome before
    /// that.
    pub fn outcome(&self, message: &MessageId) -> Option<Outcome> {
        self.told.outcome(&message.0, self.queue_published_to(message))
    }

    /// When a message was published, and to which queue.
    pub(crate) fn published(&self, message: &MessageId) -> Option<(Time, &str)> {
        let of = |(id, ..): &&(MessageId, Time, String)| id == message;
        self.published.iter().find(of).map(|(_, at, queue)| (*at, queue.as_str()))
    }

    pub(crate) fn queue_published_to(&self, message: &MessageId) -> Option<&str> {
        self.published(message).map(|(_, queue)| queue)
    }

    /// The test's messages that have come to no end.
    pub(crate) fn unsettled(&self) -> Vec<MessageId> {
        let is_moving = |id: &MessageId| match self.fate(id) {
            Fate::In(queue) => !crate::run::is_final(&queue),
            Fate::Gone => false,
        };
        let published = self.published.iter().map(|(id, ..)| id.clone());
        published.filter(is_moving).collect()
    }

    /// Why a message is parked, if it is: a [`Reason`](rehop::Reason) in words, the broker's own
    /// word such as `delivery_limit`, or `unknown`.
    pub fn parked_for(&self, message: &MessageId) -> Option<String> {
        let Fate::In(parked) = self.fate(message) else { return None };
        let queue = parked.strip_suffix(".parked")?;
        let at_rest = self.on_broker(|broker, _| {
            broker
                .properties_of(&parked, &message.0)
                .map(|properties| at_rest::read(properties, ""))
        })?;
        let death = at_rest.deaths.first();
        // What the broker has moved from the work queue keeps the headers of its last wait.
        let by_broker = death.filter(|death| death.queue == queue).map(|death| &death.reason);
        let reason = by_broker.or(at_rest.reason.as_ref()).or(death.map(|death| &death.reason));
        Some(reason.map_or_else(|| "unknown".to_owned(), String::clone))
    }

    /// With the world's clock.
    fn on_network<T>(&self, act: impl FnOnce(&Network) -> T) -> T {
        let _entered = self.runtime.enter();
        act(&self.network)
    }

    fn on_broker<T>(&self, act: impl FnOnce(&mut Broker, Time) -> T) -> T {
        self.on_network(|network| network.broker(act))
    }

    /// What a queue holds, if it exists.
    pub fn queue(&self, name: &str) -> Option<QueueView> {
        self.on_broker(|broker, _| broker.queue(name))
    }
}

#[track_caller]
fn name(text: &str) -> ShortString {
    match ShortString::try_new(text) {
        Ok(name) => name,
        Err(_) => panic!("a name has at most 255 bytes, unlike {text:?}"),
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<_> = self
            .processes
            .iter()
            .filter_map(|of| Some((of.process, self.error(of.process)?)))
            .collect();
        f.debug_struct("World")
            .field("version", &self.version)
            .field("errors", &errors)
            .finish_non_exhaustive()
    }
}

impl Stop {
    /// What asks a process to stop, and what the process gets.
    #[doc(hidden)]
    pub fn channel() -> (oneshot::Sender<()>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(receiver))
    }
}

impl Future for Stop {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}

thread_local! {
    static IS_OCCUPIED: Cell<bool> = const { Cell::new(false) };
}

/// The only world on its thread.
struct Alone(PhantomData<*const ()>);

impl Alone {
    #[track_caller]
    fn enter() -> Self {
        assert!(
            !IS_OCCUPIED.replace(true),
            "there is another world on this thread: drop it first, or use another thread"
        );
        Self(PhantomData)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        IS_OCCUPIED.set(false);
    }
}
