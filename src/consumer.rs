//! The builder that services see, and the run that it describes.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::codec::{Codec, Json};
use crate::connection::{self, Link, pause};
use crate::error::Error;
use crate::handler::{Handler, Process, Typed};
use crate::publisher::Publisher;
use crate::queue::{Queue, Warned};
use crate::session::{End, Session};
use crate::settings::{Declare, Plan, Settings, TopologyMode};
use crate::tally::{Stopped, Summary, Tally};
use crate::telemetry::metrics::{Instruments, QueueMetrics};
use crate::telemetry::spans::QueueTracer;
use crate::topology::watch::Watch;
use crate::topology::{self, Topology};

/// Connects to the broker, by two connections: an alarm blocks the acks of a connection that publishes (3.10, 4.0 and 4.3).
///
/// # Errors
///
/// When the settings contradict themselves, when the broker refuses the login, or when it stays away for longer than
/// `broker.startup_timeout`.
pub async fn connect(settings: &Settings) -> Result<Rehop, Error> {
    let plan = settings.plan()?;
    let link = |purpose| Arc::new(Link::new(format!("{} {purpose}", settings.namespace), settings.broker.clone()));
    let (consuming, publishing) = (link("consuming"), link("publishing"));
    consuming.start().await?;
    publishing.start().await?;
    Ok(Rehop { plan, consuming, publishing, consumers: Vec::new(), shutdown: None })
}

/// A connected service: give it handlers, then await it.
///
/// ```no_run
/// # use rehop::{Failure, Message};
/// # #[derive(serde::Deserialize)] struct Order { id: u64 }
/// # async fn charge(_: &Order) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn shutdown_signal() {}
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let settings = rehop::Settings::load()?;
/// let summary = rehop::connect(&settings)
///     .await?
///     .consumer("orders", |order: Message<Order>| async move { Ok(charge(&order).await?) })
///     .with_graceful_shutdown(shutdown_signal())
///     .await?;
/// println!("{summary}");
/// # Ok(()) }
/// ```
#[must_use = "nothing is consumed until it is awaited"]
pub struct Rehop {
    plan: Plan,
    consuming: Arc<Link>,
    publishing: Arc<Link>,
    consumers: Vec<(String, Box<dyn Process>)>,
    shutdown: Option<BoxFuture<'static, ()>>,
}

impl std::fmt::Debug for Rehop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queues: Vec<_> = self.consumers.iter().map(|(queue, _)| queue).collect();
        f.debug_struct("Rehop").field("queues", &queues).finish_non_exhaustive()
    }
}

impl Rehop {
    /// Handles a queue's messages, whose bodies are JSON.
    pub fn consumer<T, H>(self, queue: impl Into<String>, handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Handler<T>,
    {
        self.consumer_with(queue, Json, handler)
    }

    /// Handles a queue's messages, whose bodies another codec reads: [`Raw`](crate::Raw), or your own.
    pub fn consumer_with<T, C, H>(mut self, queue: impl Into<String>, codec: C, handler: H) -> Self
    where
        T: Send + 'static,
        C: Codec<T>,
        H: Handler<T>,
    {
        self.consumers.push((queue.into(), Box::new(Typed::new(codec, handler))));
        self
    }

    /// Stops when this future is ready: nothing more is taken, what no handler has seen is handed back, and running handlers
    /// have `shutdown.grace` to finish. Without it the service runs for ever.
    pub fn with_graceful_shutdown(mut self, shutdown: impl Future<Output = ()> + Send + 'static) -> Self {
        self.shutdown = Some(shutdown.boxed());
        self
    }

    async fn run(self) -> Result<Summary, Error> {
        let Self { plan, consuming, publishing, consumers, shutdown } = self;
        let (stop, instruments) = (CancellationToken::new(), Instruments::new());
        let (tally, mode) = (Arc::new(Tally::default()), plan.settings.topology);
        let retried = instruments.clone();
        let publisher = Publisher::start(publishing.clone(), mode, move |exchange| retried.publish_retried(exchange));
        let (mut workers, mut topologies) = (JoinSet::new(), Vec::new());
        for (name, process) in consumers {
            let queue = queue(&plan, &name, process, &publisher, &instruments, &tally)?;
            let topology = topology::build(&plan.names, std::slice::from_ref(&queue.plan));
            publisher.look_after(topology.clone());
            topologies.push(topology.clone());
            let worker = Worker {
                queue: Arc::new(queue),
                topology,
                mode,
                link: consuming.clone(),
                stop: stop.clone(),
                grace: plan.settings.shutdown.grace,
            };
            workers.spawn(worker.run());
        }
        // Ends with the run.
        let mut background = JoinSet::new();
        let watch = Watch {
            link: consuming.clone(),
            topologies,
            mode,
            stray: plan.names.stray(),
            namespace: plan.settings.namespace.clone(),
            instruments,
        };
        background.spawn(watch.run());
        let ended = supervise(&mut workers, &stop, shutdown).await;
        background.shutdown().await;
        drop(publisher);
        consuming.close().await;
        publishing.close().await;
        ended.map(|()| tally.summary())
    }
}

impl IntoFuture for Rehop {
    type Output = Result<Summary, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

fn queue(
    plan: &Plan,
    name: &str,
    process: Box<dyn Process>,
    publisher: &Publisher,
    instruments: &Instruments,
    tally: &Arc<Tally>,
) -> Result<Queue, Error> {
    let queue_plan = plan.queue(name)?;
    let uri = connection::uri(&plan.settings.broker).ok();
    let server = uri.as_ref().map_or(("", 0), |uri| (uri.authority.host.as_str(), uri.authority.port));
    let max_age = plan.settings.trace.max_age;
    if queue_plan.declare == Declare::Existing {
        tracing::info!(
            queue = name,
            "taking the queue as it is; its delivery limit, and where that leads, cannot be checked"
        );
    }
    Ok(Queue {
        tracer: QueueTracer::new(name, server, queue_plan.policy.max_attempts(), max_age),
        metrics: QueueMetrics::new(instruments.clone(), name),
        names: plan.names.clone(),
        plan: queue_plan,
        process,
        publisher: publisher.clone(),
        tally: tally.clone(),
        warned: Warned::default(),
    })
}

/// Waits for the shutdown, or for the first consumer that cannot start: the others are stopped then, in order.
async fn supervise(
    workers: &mut JoinSet<Result<(), Error>>,
    stop: &CancellationToken,
    shutdown: Option<BoxFuture<'static, ()>>,
) -> Result<(), Error> {
    let mut shutdown = shutdown.unwrap_or_else(|| std::future::pending().boxed()).fuse();
    let mut ended = Ok(());
    loop {
        tokio::select! {
            () = &mut shutdown => stop.cancel(),
            worker = workers.join_next() => match worker {
                None => return ended,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => {
                    stop.cancel();
                    ended = ended.and(Err(error));
                }
                Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            },
        }
    }
}

/// A session that was lost sooner than this, without a single delivery, counts as one more failure in a row: a message that
/// breaks the connection when it is delivered, as headers over the frame limit do, would break it several times a second.
const STEADY: Duration = Duration::from_secs(10);

/// How long a channel stays open after the last ack: quorum queues lose the acks of a channel, or of a connection, that closes
/// right after them (4.3; 50 ms were enough).
const LINGER: Duration = Duration::from_millis(200);

/// One consumer's life over all its sessions.
struct Worker {
    queue: Arc<Queue>,
    topology: Topology,
    mode: TopologyMode,
    link: Arc<Link>,
    stop: CancellationToken,
    grace: Duration,
}

impl Worker {
    /// # Errors
    ///
    /// Before the first session only. Afterwards everything is tried again, for ever.
    async fn run(self) -> Result<(), Error> {
        let mut running = JoinSet::new();
        let (mut failures, mut started) = (0, false);
        loop {
            let opened = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                opened = self.open() => opened,
            };
            let error = match opened {
                Err(error) if !started && !error.is_transient() => return Err(error),
                Err(error) => error,
                Ok(mut session) => {
                    tracing::info!(queue = %self.queue.plan.queue, "consuming");
                    started = true;
                    let since = Instant::now();
                    match session.run(&mut running, &self.stop).await {
                        End::Stopped => {
                            self.finish(&mut running).await;
                            tokio::time::sleep(LINGER).await;
                            return Ok(());
                        }
                        End::Lost(error) => {
                            if session.has_taken() || since.elapsed() > STEADY {
                                failures = 0;
                            }
                            error
                        }
                    }
                }
            };
            let pause = pause(failures);
            failures += 1;
            tracing::warn!(queue = %self.queue.plan.queue, %error, "not consuming; trying again in {pause:?}");
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => {}
            }
        }
        self.finish(&mut running).await;
        Ok(())
    }

    async fn open(&self) -> Result<Session<'_>, Error> {
        let connection = self.link.get().await?;
        let opened =
            Session::open(&self.queue, &self.topology, self.mode, connection.clone(), self.link.patience()).await;
        if let Err(Error::Timeout { .. }) = &opened {
            // A connection that does not answer may look alive for long.
            self.link.abandon(&connection).await;
        }
        opened
    }

    /// Waits for the running handlers. What is still running when the grace time is over is dropped, and left to the broker.
    async fn finish(&self, running: &mut JoinSet<()>) {
        let deadline = Instant::now() + self.grace;
        while !running.is_empty() {
            if tokio::time::timeout_at(deadline, running.join_next()).await.is_err() {
                let unfinished = running.len() as u64;
                tracing::warn!(queue = %self.queue.plan.queue, unfinished, "the grace time is over; leaving messages to the broker");
                self.queue.tally.update(|summary| {
                    summary.unfinished += unfinished;
                    summary.stopped = Stopped::GraceOver;
                });
                running.abort_all();
                return;
            }
        }
    }
}
