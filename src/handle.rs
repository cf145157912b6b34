//! The handle: how a program controls its service while it runs.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::clock;
use crate::consume::inbox::{Flow, QueueIndex};
use crate::consume::intake::Intake;
use crate::lock::lock;
use crate::status::Status;

/// Controls a [`Service`](crate::Service) from anywhere in the program, before and while it runs.
/// Cloning it is cheap; dropping it changes nothing.
///
/// A request takes effect even if its [`InEffect`] is not awaited. It applies to this process only,
/// until the service ends; other processes that consume the same queues are unaffected. A paused
/// queue does not make the service unready.
///
/// ```no_run
/// # use std::future::IntoFuture;
/// # use rehop::{Failure, Message};
/// # async fn charge(_: Message<String>) -> Result<(), Failure> { Ok(()) }
/// # async fn run(settings: rehop::Settings) -> Result<(), Box<dyn std::error::Error>> {
/// let service = rehop::Service::new(&settings).consumer("orders", charge);
/// let handle = service.handle();
/// let running = tokio::spawn(service.into_future());
///
/// handle.pause("orders")?.await; // its handlers have finished
/// handle.set_concurrency("orders", 2)?.await;
/// handle.resume("orders")?;
/// handle.stop().await;
/// println!("{}", running.await??);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ServiceHandle(Arc<Controls>);

impl ServiceHandle {
    pub(crate) fn new(controls: Arc<Controls>) -> Self {
        Self(controls)
    }

    /// How the service is doing.
    pub fn status(&self) -> Status {
        self.0.status.clone()
    }

    /// Stops the service, as the future given to
    /// [`with_graceful_shutdown`](crate::Service::with_graceful_shutdown) would. In effect when the
    /// service has ended. Do not await it in a handler: the service waits for its handlers. If the
    /// service has not been awaited yet, it ends as soon as it is.
    pub fn stop(&self) -> InEffect {
        self.0.stop.cancel();
        let ended = self.0.ended.clone().cancelled_owned();
        InEffect(ended.map(|()| true).boxed())
    }

    /// Pauses a queue: no more messages are taken from it, and no handler starts. Running handlers
    /// finish, and their outcomes are carried out. In effect once their messages are settled, so do
    /// not await it in a handler of this queue.
    ///
    /// Messages that were taken but not started are kept for 10 s. After that they go back to the
    /// queue, where other processes may take them. RabbitMQ 3.10 and 4.0 count this towards
    /// `retry.delivery_limit`; 4.3 counts it only with the strategy `native`. A message within two
    /// deliveries of its limit is therefore kept longer: up to half of `broker.consumer_timeout`.
    /// So is one that has been tried and waited in the process (`in-process`). To handle what was
    /// taken instead, [`drain`](Self::drain) the queue.
    ///
    /// An ordered queue (`consume.order`) may still be sent up to its prefetch. 10 s after the
    /// pause, and once no handler runs, its channel closes, and everything it holds goes back in
    /// order. Every version counts this for each message; one that waited in the process starts its
    /// attempts again. If one of them is within two deliveries of its limit, all are kept for nearly
    /// all of `broker.consumer_timeout`.
    ///
    /// # Errors
    ///
    /// When the service has no such queue, or has ended.
    pub fn pause(&self, queue: &str) -> Result<InEffect, HandleError> {
        self.set_flow(queue, Wanted::Paused)
    }

    /// Drains a queue: no more messages are taken from it, and those already taken are handled. In
    /// effect once this process holds none of them, waiting or running, so do not await it in a
    /// handler of this queue. Nothing is taken until [`resume`](Self::resume).
    ///
    /// It costs no deliveries, unless handlers are so slow that messages have to be handed back. An
    /// ordered queue is [paused](Self::pause) instead: its subscription cannot end while messages
    /// are held without breaking their order. For it, this is in effect once no handler runs.
    ///
    /// # Errors
    ///
    /// When the service has no such queue, or has ended.
    pub fn drain(&self, queue: &str) -> Result<InEffect, HandleError> {
        self.set_flow(queue, Wanted::Drained)
    }

    /// Resumes a paused or drained queue. Does nothing if the queue is neither.
    ///
    /// # Errors
    ///
    /// When the service has no such queue, or has ended.
    pub fn resume(&self, queue: &str) -> Result<(), HandleError> {
        self.set_flow(queue, Wanted::Flowing).map(drop)
    }

    /// Changes how many handlers of the queue may run at a time in this process: from 1 to
    /// [`Settings::max_unsettled`](crate::Settings::max_unsettled), which is `consume.prefetch`
    /// unless the queue is ordered. If more are running, they finish, and the change is in effect
    /// once enough have: do not await it in a handler of this queue. Messages already taken may
    /// have to wait longer; those that wait too long are handed back. It overrides the settings and
    /// [`Consumer::concurrency`](crate::Consumer::concurrency).
    ///
    /// # Errors
    ///
    /// When the service has no such queue or has ended, or the number is out of range. Before the
    /// service runs, the upper bound is unknown. A number that is too large then makes the service
    /// fail when it starts; if it is requested while the service connects, the bound applies
    /// instead.
    pub fn set_concurrency(&self, queue: &str, handlers: u16) -> Result<InEffect, HandleError> {
        let mut state = self.0.until_ended()?;
        let State { queues, intake } = &mut *state;
        let controlled = find(queues, queue)?;
        let running = intake.as_ref().zip(controlled.index);
        let most = running.map_or(u16::MAX, |(intake, index)| intake.most_handlers(index));
        if handlers == 0 || handlers > most {
            let queue = queue.to_owned();
            return Err(HandleError::Concurrency { queue, handlers, most });
        }
        if controlled.concurrency.replace(handlers) != Some(handlers) {
            controlled.concurrency_asked.send_modify(|asked| *asked += 1);
            tracing::info!(queue, handlers, "changed the concurrency");
        }
        let asked = controlled.concurrency_asked.subscribe();
        let ended = self.0.ended.clone().cancelled_owned();
        Ok(match running {
            Some((intake, index)) => {
                InEffect::unless_changed(asked, ended, intake.set_concurrency(index, handlers))
            }
            None => InEffect::unless_changed(asked, ended, std::future::ready(true)),
        })
    }

    fn set_flow(&self, queue: &str, wanted: Wanted) -> Result<InEffect, HandleError> {
        let mut state = self.0.until_ended()?;
        let State { queues, intake } = &mut *state;
        let controlled = find(queues, queue)?;
        if std::mem::replace(&mut controlled.wanted, wanted) != wanted {
            controlled.flow_asked.send_modify(|asked| *asked += 1);
            tracing::info!(queue, "{}", wanted.said());
            self.0.status.state(queue).paused(wanted != Wanted::Flowing);
        }
        let asked = controlled.flow_asked.subscribe();
        let ended = self.0.ended.clone().cancelled_owned();
        let Some((intake, index)) = intake.as_ref().zip(controlled.index) else {
            return Ok(InEffect::unless_changed(asked, ended, std::future::ready(true)));
        };
        intake.set_flow(index, wanted.flow());
        Ok(InEffect::unless_changed(asked, ended, intake.rested(index)))
    }
}

/// What a program wants of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Flowing,
    Drained,
    Paused,
}

impl Wanted {
    fn flow(self) -> Flow {
        match self {
            Self::Flowing => Flow::On,
            Self::Drained => Flow::Draining,
            Self::Paused => Flow::Paused { since: clock::now() },
        }
    }

    fn said(self) -> &'static str {
        match self {
            Self::Flowing => "resumed",
            Self::Drained => "draining",
            Self::Paused => "paused",
        }
    }
}

impl std::fmt::Debug for ServiceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceHandle").field("status", &self.0.status).finish_non_exhaustive()
    }
}

/// The effect of a request to a [`ServiceHandle`]. It comes whether or not this is awaited.
///
/// Returns true once the request is in effect; false if another request has taken its place, or the
/// service has ended, before.
pub struct InEffect(BoxFuture<'static, bool>);

impl InEffect {
    /// Until a request of the same kind takes its place, or the service ends.
    fn unless_changed(
        mut asked: watch::Receiver<u64>,
        ended: WaitForCancellationFutureOwned,
        in_effect: impl Future<Output = bool> + Send + 'static,
    ) -> Self {
        let in_effect = async move {
            tokio::select! {
                biased;
                _ = asked.changed() => false,
                in_effect = in_effect => in_effect,
                // A handler that blocks its thread may outlive the service.
                () = ended => false,
            }
        };
        Self(in_effect.boxed())
    }
}

impl Future for InEffect {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        self.0.as_mut().poll(context)
    }
}

impl std::fmt::Debug for InEffect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InEffect").finish_non_exhaustive()
    }
}

/// Why a request to a [`ServiceHandle`] failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The service has ended.
    #[error("the service has ended")]
    Ended,
    /// The service does not consume this queue.
    #[error(
        "the service does not consume queue {queue:?}; it consumes {}",
        if known.is_empty() { "none".to_owned() } else { known.join(", ") }
    )]
    UnknownQueue {
        /// The queue.
        queue: String,
        /// The queues that it consumes.
        known: Vec<String>,
    },
    /// The requested concurrency is out of range.
    #[error("concurrency {handlers} for queue {queue:?} is out of range: it must be 1 to {most}")]
    Concurrency {
        /// The queue.
        queue: String,
        /// The number that was requested.
        handlers: u16,
        /// The largest possible number; 65535 before the service runs.
        most: u16,
    },
}

/// What the handles of a service share with it.
pub(crate) struct Controls {
    status: Status,
    stop: CancellationToken,
    ended: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queues: Vec<Controlled>,
    /// While the service runs.
    intake: Option<Arc<Intake>>,
}

/// What was asked for of a queue.
struct Controlled {
    queue: String,
    wanted: Wanted,
    concurrency: Option<u16>,
    /// How often what is wanted has changed.
    flow_asked: watch::Sender<u64>,
    concurrency_asked: watch::Sender<u64>,
    /// While the service runs.
    index: Option<QueueIndex>,
}

impl Controls {
    pub(crate) fn new(status: Status) -> Arc<Self> {
        Arc::new(Self {
            status,
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
            state: Mutex::default(),
        })
    }

    pub(crate) fn add(&self, queue: &str) {
        lock(&self.state).queues.push(Controlled {
            queue: queue.to_owned(),
            wanted: Wanted::Flowing,
            concurrency: None,
            flow_asked: watch::Sender::new(0),
            concurrency_asked: watch::Sender::new(0),
            index: None,
        });
    }

    /// Completes when the service is to stop.
    pub(crate) fn stop_requested(&self) -> impl Future<Output = ()> + Send + 'static {
        self.stop.clone().cancelled_owned()
    }

    /// The concurrency that was asked for before the start.
    pub(crate) fn concurrency(&self, queue: &str) -> Option<u16> {
        let mut state = lock(&self.state);
        find(&mut state.queues, queue).ok().and_then(|controlled| controlled.concurrency)
    }

    /// The service runs: what was asked for before applies, and so does what is asked for later.
    pub(crate) fn begin<'a>(
        &self,
        intake: &Arc<Intake>,
        queues: impl IntoIterator<Item = (&'a str, QueueIndex)>,
    ) {
        let mut state = lock(&self.state);
        for (queue, index) in queues {
            if let Ok(controlled) = find(&mut state.queues, queue) {
                controlled.index = Some(index);
                intake.set_flow(index, controlled.wanted.flow());
                // It may have been asked for since the settings were read.
                if let Some(handlers) = controlled.concurrency {
                    drop(intake.set_concurrency(index, handlers));
                }
            }
        }
        state.intake = Some(intake.clone());
    }

    fn until_ended(&self) -> Result<MutexGuard<'_, State>, HandleError> {
        let state = lock(&self.state);
        if self.ended.is_cancelled() { Err(HandleError::Ended) } else { Ok(state) }
    }
}

fn find<'a>(queues: &'a mut [Controlled], queue: &str) -> Result<&'a mut Controlled, HandleError> {
    match queues.iter().position(|controlled| controlled.queue == queue) {
        Some(position) => Ok(&mut queues[position]),
        None => Err(HandleError::UnknownQueue {
            queue: queue.to_owned(),
            known: queues.iter().map(|controlled| controlled.queue.clone()).collect(),
        }),
    }
}

/// Tells the handles that the service has ended when this is dropped.
pub(crate) struct EndsOnDrop(pub(crate) Arc<Controls>);

impl Drop for EndsOnDrop {
    fn drop(&mut self) {
        let intake = {
            let mut state = lock(&self.0.state);
            self.0.ended.cancel();
            state.intake.take()
        };
        drop(intake);
    }
}
