//! The service: its builder, and its run from the first connection to the last.

mod defaults;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Fuse, try_join};
use lapin::types::ShortString;
use tokio::task::{JoinError, JoinSet};
use tokio_util::task::AbortOnDropHandle;

use crate::broker::connection::Link;
use crate::broker::keeper::Keeper;
use crate::broker::name::short;
use crate::broker::scout::Scout;
use crate::consume::ack_timeout::AckTimeout;
use crate::consume::attempt;
use crate::consume::context::{self, QueueContext};
use crate::consume::failure_log::{FailureLog, log_counts};
use crate::consume::inbox::{QueueIndex, Rules};
use crate::consume::intake::Intake;
use crate::consume::receipts::Receipts;
use crate::consume::summary::{LiveSummary, Summary};
use crate::consume::work_queue::WorkQueue;
use crate::consumer::{AnyConsumer, Consumer, Defaults, check_classes};
use crate::decode::{Decode, Json};
use crate::error::Error;
use crate::handle::{Controls, EndsOnDrop, ServiceHandle};
use crate::handler::{AnyHandler, Handler};
use crate::publish::{self, CopyPublisher};
use crate::pulse;
use crate::settings::{QueueConfig, Resolved, Settings, SettingsError};
use crate::shutdown::Shutdown;
use crate::status::Status;
use crate::telemetry::metrics::Instruments;
use crate::topology::{self, Names};

/// A service that consumes queues. Give it handlers and a future that stops it, then await it.
///
/// ```no_run
/// # use rehop::Message;
/// # #[derive(serde::Deserialize)] struct Order { id: u64 }
/// # async fn charge(_: Message<Order>) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let shutdown = rehop::shutdown_signal();
/// let settings = rehop::Settings::load()?;
/// let summary =
///     rehop::Service::new(&settings).consumer("orders", charge).with_graceful_shutdown(shutdown).await?;
/// println!("{summary}");
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Awaiting it fails when it has no consumer, when the settings contradict themselves, when a queue
/// has two handlers, when the broker refuses the login or cannot be reached within
/// `broker.startup_timeout`, or when a queue cannot be declared or consumed as the settings say. If
/// only the permission to read a queue is missing, the service goes on trying, and its
/// [status](Self::status) says why. A connection that is lost later is not an error: the service
/// reconnects.
#[must_use = "nothing is consumed until it is awaited"]
pub struct Service {
    /// An error is returned when the service is awaited.
    resolved: Result<Resolved, SettingsError>,
    consuming: Arc<Link>,
    publishing: Arc<Link>,
    scout: Arc<Scout>,
    consumers: Vec<AnyConsumer>,
    defaults: Defaults,
    status: Status,
    shutdown: Option<BoxFuture<'static, ()>>,
    controls: EndsOnDrop,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queues: Vec<_> = self.consumers.iter().map(|consumer| &consumer.queue).collect();
        f.debug_struct("Service").field("queues", &queues).finish_non_exhaustive()
    }
}

impl Service {
    /// A service with these settings, and without queues: add at least one consumer. Awaiting it
    /// opens three connections. One consumes and one publishes: during an alarm the broker blocks a
    /// connection that publishes, and acks on it too (3.10, 4.0 and 4.3). The third one looks and
    /// declares: the broker closes a connection that opens one channel too many.
    pub fn new(settings: &Settings) -> Self {
        let link = |purpose| {
            Arc::new(Link::new(
                format!("{} {purpose}", settings.namespace),
                settings.broker.clone(),
            ))
        };
        let (consuming, publishing) = (link("consuming"), link("publishing"));
        let scout = Arc::new(Scout::new(link("keeping")));
        let status = Status::new(&consuming, &publishing);
        let controls = EndsOnDrop(Controls::new(status.clone()));
        Self {
            resolved: settings.resolve(),
            consuming,
            publishing,
            scout,
            consumers: Vec::new(),
            defaults: Defaults::default(),
            status,
            shutdown: None,
            controls,
        }
    }

    /// Consumes a queue as the settings say. Bodies are JSON, of any type that is
    /// [`DeserializeOwned`](serde::de::DeserializeOwned).
    pub fn consumer<T, H>(self, queue: impl Into<String>, handler: H) -> Self
    where
        T: Send + 'static,
        H: Handler<T>,
        Json: Decode<T>,
    {
        self.with_consumer(Consumer::new(queue, handler))
    }

    /// Consumes a queue as `consumer` specifies. What it leaves out is taken from the settings.
    pub fn with_consumer<T, H, D>(mut self, consumer: Consumer<T, H, D>) -> Self
    where
        T: Send + 'static,
        H: Handler<T>,
        D: Decode<T>,
    {
        let consumer = AnyConsumer::from(consumer);
        self.status.add(&consumer.queue);
        self.controls.0.add(&consumer.queue);
        self.consumers.push(consumer);
        self
    }

    /// Stops when this future completes, such as [`shutdown_signal`](crate::shutdown_signal):
    /// consuming ends, messages that no handler has seen are handed back, and running handlers may
    /// finish within `shutdown.grace`, of which the last fifth, 2 s at most, is for closing. A
    /// message that can neither wait nor be parked, because the broker refuses that, is handed
    /// back, too. If the
    /// broker has not been reached by then, the service closes what it has opened and ends with an
    /// empty summary. Without this the service runs until its task is dropped.
    pub fn with_graceful_shutdown(
        mut self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        self.shutdown = Some(shutdown.boxed());
        self
    }

    /// How the service is doing. Take it before the service is awaited; until then it is not ready.
    pub fn status(&self) -> Status {
        self.status.clone()
    }

    /// A handle that controls the service: it pauses queues, changes their concurrency, and stops
    /// the service. Get it before the service is awaited.
    pub fn handle(&self) -> ServiceHandle {
        ServiceHandle::new(self.controls.0.clone())
    }

    async fn run(self) -> Result<Summary, Error> {
        let Self { resolved, consuming, publishing, scout, consumers, .. } = self;
        let Self { status, shutdown, controls, .. } = self;
        let resolved = resolved?;
        let settings = &resolved.settings;
        let names = Names::new(&settings.namespace);
        let plans = plan(&resolved, consumers, &controls.0)?;
        let configs: Vec<_> = plans.iter().map(|(config, _)| config.clone()).collect();
        let exchanges = topology::copies_go_to(&names, &configs);
        let mut requested = stop_request(shutdown, &controls.0);
        let lanes = exchanges.len();
        publishing.require(move |connection| publish::lanes_fit(connection, lanes));
        let reach = async {
            consuming.start().await?;
            publishing.start().await
        };
        tokio::select! {
            biased;
            () = &mut requested => {
                // One of them may have been opened.
                tokio::join!(consuming.close(), publishing.close());
                return Ok(Summary::default());
            }
            reached = reach => if let Err(error) = reached {
                tokio::join!(consuming.close(), publishing.close());
                return Err(error);
            },
        }
        let instruments = Instruments::new();
        let keeper = Arc::new(Keeper::new(
            scout.clone(),
            settings.topology,
            topology::shared(&names, &configs),
            configs.iter().map(|config| topology::own(&names, config)).collect(),
        ));
        let retried = instruments.clone();
        let retried = move |exchange: &str| retried.publish_retried(exchange);
        let (publisher, publishing_task) =
            CopyPublisher::start(publishing.clone(), keeper.clone(), exchanges, retried);
        let receipts = Receipts::start(publishing.clone(), scout.clone(), &names.report())?;
        let summary = Arc::new(LiveSummary::default());
        let shutdown = Shutdown::new(settings.shutdown.grace);
        let run = Run {
            queues: context::ServiceParts {
                settings,
                publisher,
                publishing: publishing.clone(),
                receipts,
                instruments,
                summary: summary.clone(),
                shutdown: shutdown.clone(),
            },
            consuming: consuming.clone(),
            keeper,
            shutdown: shutdown.clone(),
            controls: controls.0.clone(),
        };
        let ended = run.to_the_end(plans, &status, &names, publishing_task, &mut requested).await;
        drop(run);
        let closing = async {
            tokio::join!(consuming.close(), publishing.close(), scout.close());
        };
        shutdown.within(closing).await;
        ended.map(|()| summary.so_far())
    }
}

/// A service that runs.
struct Run<'a> {
    /// What its queues share.
    queues: context::ServiceParts<'a>,
    consuming: Arc<Link>,
    keeper: Arc<Keeper>,
    shutdown: Shutdown,
    controls: Arc<Controls>,
}

/// The tasks that consume, one for each queue.
type Workers = JoinSet<Result<(), Error>>;

impl Run<'_> {
    /// Consumes until the shutdown is requested and done, or a consumer cannot start.
    async fn to_the_end(
        &self,
        plans: Vec<Plan>,
        status: &Status,
        names: &Names,
        publishing_task: AbortOnDropHandle<()>,
        requested: &mut Fuse<BoxFuture<'static, ()>>,
    ) -> Result<(), Error> {
        let ack_timeout = self.queues.settings.broker.consumer_timeout;
        let rules = plans.iter().map(|(config, _)| Rules::of(config, ack_timeout));
        let (intake, indexes) = Intake::new(self.shutdown.clone(), rules, attempt::spawn);
        // Aborts the running handlers even if the caller drops this future.
        let _aborted = intake.abort_on_drop();
        let queues = plans.iter().map(|(config, _)| config.queue.as_str());
        self.controls.begin(&intake, queues.zip(indexes.iter().copied()));
        let (mut workers, mut failure_logs) = (JoinSet::new(), Vec::new());
        for (index, plan) in indexes.into_iter().zip(plans) {
            failure_logs.push(self.consume(plan, index, &intake, status, &mut workers)?);
        }
        // Ends with the run.
        let mut background = self.watch(short(&names.stray())?);
        background.spawn(log_counts(failure_logs.clone()));
        background.spawn(pulse::watch());
        let timer = AbortOnDropHandle::new(tokio::spawn(intake.clone().keep_time()));
        let tasks = try_join(publishing_task, timer);
        let summary = &self.queues.summary;
        let ended =
            supervise(&mut workers, tasks, &self.shutdown, requested, &intake, summary).await;
        background.shutdown().await;
        failure_logs.iter().for_each(|log| log.log(Duration::ZERO));
        ended
    }

    /// Starts to consume a queue. Returns the log of its failures.
    fn consume(
        &self,
        (config, handler): Plan,
        index: QueueIndex,
        intake: &Arc<Intake>,
        status: &Status,
        workers: &mut Workers,
    ) -> Result<Arc<FailureLog>, Error> {
        let state = status.state(&config.queue);
        let settling_waits = intake.settling_waits(index);
        let context = QueueContext::new(&self.queues, config, handler, settling_waits, state)?;
        let failures = context.failures.clone();
        let queue = WorkQueue {
            context: Arc::new(context),
            intake: intake.clone(),
            index,
            keeper: self.keeper.clone(),
            shutdown: self.shutdown.clone(),
            consuming: self.consuming.clone(),
            ack_timeout: AckTimeout::new(self.queues.settings.broker.consumer_timeout),
        };
        workers.spawn(queue.run());
        Ok(failures)
    }

    /// Looks at the stray queue and the parked queues from time to time.
    fn watch(&self, stray: ShortString) -> JoinSet<()> {
        let mut background = JoinSet::new();
        let (keeper, namespace) = (self.keeper.clone(), self.queues.settings.namespace.clone());
        let publisher = self.queues.publisher.clone();
        let (of_stray, of_parked) =
            (self.queues.instruments.clone(), self.queues.instruments.clone());
        background.spawn(async move {
            let observe_stray = |depth| of_stray.stray(&namespace, depth);
            let observe_parked =
                |work: &str, queue: &str, depth| of_parked.parked_depth(work, queue, depth);
            let spare = || publisher.idle_connection();
            keeper.watch(&stray, spare, observe_stray, observe_parked).await;
        });
        background
    }
}

impl IntoFuture for Service {
    type Output = Result<Summary, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        self.defaults.apply(&mut self.consumers);
        Box::pin(self.run())
    }
}

/// One queue's settings and handler.
type Plan = (QueueConfig, Box<dyn AnyHandler>);

/// Checks what was set in code, before anything is declared or consumed.
fn plan(
    resolved: &Resolved,
    consumers: Vec<AnyConsumer>,
    controls: &Controls,
) -> Result<Vec<Plan>, Error> {
    if consumers.is_empty() {
        return Err(Error::NoConsumer);
    }
    check_classes(&resolved.settings, &consumers)?;
    let mut plans: Vec<Plan> = Vec::new();
    for AnyConsumer { queue, handler, mut consume, retry, .. } in consumers {
        if plans.iter().any(|(other, _)| other.queue == queue) {
            return Err(Error::TwoHandlers { queue });
        }
        consume.concurrency = controls.concurrency(&queue).or(consume.concurrency);
        let config = resolved.queue_with(&queue, &consume, retry.as_ref())?;
        plans.push((config, handler));
    }
    let consumed: Vec<_> = plans.iter().map(|(config, _)| config.queue.as_str()).collect();
    if let Some((unlisted, without_handler)) = mistyped(&resolved.settings, &consumed) {
        tracing::warn!(
            ?unlisted,
            ?without_handler,
            "the settings do not list a queue that is consumed, and list one that has no handler: is a name mistyped?"
        );
    }
    Ok(plans)
}

/// The queues that are consumed and not listed, and those that are listed and not consumed. If
/// there are some of both, a name may be mistyped. Either alone is as it may be: queues need no
/// settings, and services may share a file.
fn mistyped<'a>(
    settings: &'a Settings,
    consumed: &[&'a str],
) -> Option<(Vec<&'a str>, Vec<&'a str>)> {
    let listed: Vec<_> = settings.queues.iter().map(|queue| queue.queue.as_str()).collect();
    let but = |these: &[&'a str], others: &[&'a str]| -> Vec<&'a str> {
        these.iter().copied().filter(|queue| !others.contains(queue)).collect()
    };
    let (unlisted, without_handler) = (but(consumed, &listed), but(&listed, consumed));
    (!unlisted.is_empty() && !without_handler.is_empty()).then_some((unlisted, without_handler))
}

/// Completes when the service is to stop, as a future or a handle asks for it.
fn stop_request(
    shutdown: Option<BoxFuture<'static, ()>>,
    controls: &Controls,
) -> Fuse<BoxFuture<'static, ()>> {
    let by_handle = controls.stop_requested();
    let by_future = shutdown.unwrap_or_else(|| std::future::pending().boxed());
    async move {
        tokio::select! {
            biased;
            () = by_future => {}
            () = by_handle => {}
        }
    }
    .boxed()
    .fuse()
}

/// Waits for the shutdown. A consumer that cannot start stops the others as well. A panic of
/// rehop's own ends the service: without one of its tasks it would hang.
async fn supervise<T>(
    workers: &mut Workers,
    tasks: impl Future<Output = Result<T, JoinError>> + Unpin,
    shutdown: &Shutdown,
    requested: &mut Fuse<BoxFuture<'static, ()>>,
    intake: &Intake,
    summary: &LiveSummary,
) -> Result<(), Error> {
    let mut tasks = tasks.fuse();
    let mut ended = Ok(());
    loop {
        tokio::select! {
            biased;
            () = &mut *requested => shutdown.request(),
            () = shutdown.over() => {
                let unfinished = intake.running_in_all() as u64;
                // Workers add their own unfinished deliveries, so they must have ended before this
                // takes the maximum.
                workers.shutdown().await;
                summary.update(|summary| summary.overrun(unfinished));
                return ended;
            }
            worker = workers.join_next() => match worker {
                None => return ended,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => {
                    shutdown.request();
                    ended = ended.and(Err(error));
                }
                Some(Err(error)) => resume_panic(error),
            },
            Err(error) = &mut tasks => resume_panic(error),
        }
    }
}

/// A task that the end of the runtime has cancelled did not panic.
fn resume_panic(error: JoinError) {
    if let Ok(panic) = error.try_into_panic() {
        std::panic::resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::QueueSettings;

    #[test]
    fn a_name_may_be_mistyped_if_one_is_not_listed_and_another_has_no_handler() {
        let settings = ["orders", "mails"]
            .into_iter()
            .fold(Settings::default(), |all, queue| all.with_queue(QueueSettings::new(queue)));
        let found = |consumed: &[&'static str]| mistyped(&settings, consumed);
        assert_eq!(found(&["order", "mails"]), Some((vec!["order"], vec!["orders"])));
        assert_eq!(found(&["orders"]), None, "services may share a file");
        assert_eq!(found(&["orders", "mails", "others"]), None, "a queue needs no settings");
    }

    #[tokio::test]
    #[should_panic = "a fault of rehop's own"]
    async fn a_panic_of_the_publishing_task_ends_the_service() {
        let mut workers = JoinSet::new();
        workers.spawn(std::future::pending());
        let publishing_task: AbortOnDropHandle<()> =
            AbortOnDropHandle::new(tokio::spawn(async { panic!("a fault of rehop's own") }));
        let shutdown = Shutdown::new(std::time::Duration::from_secs(30));
        let (intake, _) = Intake::new(shutdown.clone(), [], attempt::spawn);
        let mut never = std::future::pending().boxed().fuse();
        let _ = supervise(
            &mut workers,
            publishing_task,
            &shutdown,
            &mut never,
            &intake,
            &LiveSummary::default(),
        )
        .await;
    }
}
