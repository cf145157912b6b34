//! The handle: how a program controls its service while it runs.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::consume::inbox::{Flow, QueueIndex};
use crate::consume::intake::Intake;
use crate::lock::lock;
use crate::status::Status;

/// Controls a [`Service`](crate::Service) from anywhere in the program: before it is awaited, and
/// while it runs. It is cheap to clone, and dropping it does nothing.
///
/// Whatever is asked for happens at once, whether or not the returned [`InEffect`] is awaited. It
/// holds for this process, until the service ends: other processes that consume the same queues go
/// on. A paused queue does not make the service unready.
///
/// ```no_run
/// # use rehop::{Failure, Message};
/// # async fn charge(_: Message<String>) -> Result<(), Failure> { Ok(()) }
/// # async fn run(settings: rehop::Settings) -> Result<(), Box<dyn std::error::Error>> {
/// let service = rehop::Service::new(&settings).consumer("orders", charge);
/// let handle = service.handle();
/// let running = tokio::spawn(service.into_future());
///
/// handle.pause("orders")?.await; // no handler of the queue runs any more
/// handle.set_concurrency("orders", 2)?.await;
/// handle.resume("orders")?;
/// handle.stop().await;
/// println!("{}", running.await??);
/// # Ok(()) }
/// # use std::future::IntoFuture;
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

    /// Stops the service, as [the future that stops it](crate::Service::with_graceful_shutdown)
    /// would. In effect when the service has ended, so a handler must not await that: the service
    /// waits for its handlers. If the service is not awaited yet, it ends as soon as it is.
    pub fn stop(&self) -> InEffect {
        self.0.stop.cancel();
        InEffect::when(self.0.ended.clone().cancelled_owned())
    }

    /// Pauses a queue: nothing is taken from it any more, and no handler of it starts. Handlers
    /// that run go on, and what they decide is carried out. In effect when none of them runs, so a
    /// handler of the queue must not await that.
    ///
    /// What was taken and has not started is kept for 10 s, and then goes back to the queue, where
    /// other processes may take it. The broker counts that as a delivery (3.10 and 4.0; 4.3 does
    /// not), so messages that came back nearly as often as `retry.delivery_limit` allows are kept
    /// for longer: up to half of `broker.consumer_timeout`. To handle what was taken instead,
    /// [`drain`](Self::drain) the queue.
    ///
    /// A queue that is kept in order (`consume.order`) gives back all that no handler has seen when
    /// the last handler has ended, in its order. Every version counts that.
    ///
    /// # Errors
    ///
    /// When the service has no such queue, or has ended.
    pub fn pause(&self, queue: &str) -> Result<InEffect, HandleError> {
        self.set_flow(queue, Flow::Paused, "paused")
    }

    /// Drains a queue: nothing is taken from it any more, and what was taken is handled. In effect
    /// when nothing of it is held here, neither for a handler nor between two attempts in the
    /// process. Then nothing is taken until [`resume`](Self::resume).
    ///
    /// This costs no message a delivery. But a queue that is kept in order is
    /// [paused](Self::pause): what is taken from it could not be ended otherwise.
    ///
    /// # Errors
    ///
    /// When the service has no such queue, or has ended.
    pub fn drain(&self, queue: &str) -> Result<InEffect, HandleError> {
        self.set_flow(queue, Flow::Draining, "draining")
    }

    /// Takes from a paused or drained queue again, at once. Does nothing to other queues.
    ///
    /// # Errors
    ///
    /// When the service has no such queue, or has ended.
    pub fn resume(&self, queue: &str) -> Result<(), HandleError> {
        self.set_flow(queue, Flow::On, "resumed").map(drop)
    }

    /// How many handlers of the queue run at a time in this process from now on: 1 to what the
    /// process may hold ([`Settings::max_unsettled`](crate::Settings::max_unsettled), as a rule
    /// `consume.prefetch`). If more run, they go on, and this is in effect when enough of them have
    /// ended.
    ///
    /// # Errors
    ///
    /// When the service has no such queue, has ended, or may not run so many. Before the service is
    /// awaited, too large a number is an error of the service.
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
        controlled.concurrency = Some(handlers);
        tracing::info!(queue, handlers, "changed the concurrency");
        Ok(match running {
            Some((intake, index)) => InEffect::when(intake.set_concurrency(index, handlers)),
            None => InEffect::when(std::future::ready(())),
        })
    }

    fn set_flow(&self, queue: &str, flow: Flow, said: &str) -> Result<InEffect, HandleError> {
        let mut state = self.0.until_ended()?;
        let State { queues, intake } = &mut *state;
        let controlled = find(queues, queue)?;
        if std::mem::replace(&mut controlled.flow, flow) != flow {
            tracing::info!(queue, "{said}");
            self.0.status.state(queue).paused(flow != Flow::On);
        }
        let Some((intake, index)) = intake.as_ref().zip(controlled.index) else {
            return Ok(InEffect::when(std::future::ready(())));
        };
        intake.set_flow(index, flow);
        Ok(InEffect::when(intake.rested(index)))
    }
}

impl std::fmt::Debug for ServiceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceHandle").field("status", &self.0.status).finish_non_exhaustive()
    }
}

/// What a [`ServiceHandle`] was asked for, which happens in any case. Await it to know that it is
/// in effect, or that something else was asked for meanwhile, or that the service has ended.
pub struct InEffect(BoxFuture<'static, ()>);

impl InEffect {
    fn when(in_effect: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(in_effect.boxed())
    }
}

impl Future for InEffect {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl std::fmt::Debug for InEffect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InEffect").finish_non_exhaustive()
    }
}

/// Why a service does not do what its [`ServiceHandle`] was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The service has ended.
    #[error("the service has ended")]
    Ended,
    /// The service does not consume this queue.
    #[error("the service does not consume queue {queue:?}, but {}", known.join(", "))]
    UnknownQueue {
        /// The queue.
        queue: String,
        /// The queues that it consumes.
        known: Vec<String>,
    },
    /// So many handlers of the queue cannot run at a time.
    #[error(
        "the concurrency of queue {queue:?} would be {handlers}, but must be 1 to {most}, as many messages as the process may hold"
    )]
    Concurrency {
        /// The queue.
        queue: String,
        /// How many were asked for.
        handlers: u16,
        /// The most that are possible.
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
    flow: Flow,
    concurrency: Option<u16>,
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
        let queue = queue.to_owned();
        let controlled = Controlled { queue, flow: Flow::On, concurrency: None, index: None };
        lock(&self.state).queues.push(controlled);
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
                intake.set_flow(index, controlled.flow);
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
