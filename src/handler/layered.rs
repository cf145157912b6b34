//! Handlers inside layers of tower.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use super::Handler;
use crate::failure::Failure;
use crate::lock::lock;
use crate::message::Message;

/// A handler inside a layer of tower, or several in a `ServiceBuilder`: a limit that several queues
/// share, load shedding, a layer of your own.
///
/// The handler's failures pass through layers unchanged. An error of a layer itself becomes a
/// failure by `Failure::from`, so the queue's policy decides how it is treated, and
/// [`Consumer::classify`](crate::Consumer::classify) can name its class.
///
/// A message that waits in a layer occupies one of the queue's handlers, and its wait counts
/// towards `consume.handler_timeout`. For a limit of one queue alone, use `consume.concurrency`.
///
/// The layered service is cloned for each message (`ClonedPerMessage`). If it is not `Clone`, as with
/// a rate limit, put a buffer around it.
///
/// ```
/// use rehop::testing::message;
/// use rehop::{Failure, Handler, Message, layered};
/// use std::time::Duration;
/// use tower::timeout::TimeoutLayer;
///
/// async fn charge(seconds: Message<u64>) -> Result<(), Failure> {
///     tokio::time::sleep(Duration::from_secs(seconds.body)).await;
///     Err(Failure::permanent("the amount is zero"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let handler = layered(TimeoutLayer::new(Duration::from_millis(50)), charge);
/// let failure = |seconds| handler.handle(message(seconds).build());
/// assert_eq!(failure(0).await.unwrap_err().class(), "permanent");
/// assert_eq!(failure(9).await.unwrap_err().message(), "request timed out");
/// # }
/// ```
pub fn layered<T, H, L>(layer: L, handler: H) -> impl Handler<T>
where
    T: Send + 'static,
    H: Handler<T>,
    L: Layer<HandlerService<H>>,
    L::Service: Service<Message<T>, Response = ()> + ClonedPerMessage + Send + 'static,
    <L::Service as Service<Message<T>>>::Error: Into<Box<dyn Error + Send + Sync>>,
    <L::Service as Service<Message<T>>>::Future: Send,
{
    Layered(Mutex::new(layer.layer(HandlerService(Arc::new(handler)))))
}

/// [`Clone`], which explains itself where it is missing.
#[diagnostic::on_unimplemented(
    message = "the layered service `{Self}` cannot be cloned",
    label = "the service of this layer is not `Clone`",
    note = "it is cloned for each message, so put a buffer around it: `ServiceBuilder::new().buffer(100).layer(layer)`"
)]
pub trait ClonedPerMessage: Clone {}

#[diagnostic::do_not_recommend]
impl<S: Clone> ClonedPerMessage for S {}

/// A service is cloned from here for each message; the lock makes one that is not `Sync` usable.
struct Layered<S>(Mutex<S>);

impl<T, S> Handler<T> for Layered<S>
where
    T: Send + 'static,
    S: Service<Message<T>, Response = ()> + ClonedPerMessage + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
{
    async fn handle(&self, message: Message<T>) -> Result<(), Failure> {
        let mut service = lock(&self.0).clone();
        let failure = |error: S::Error| failure_of(error.into());
        poll_fn(|context| service.poll_ready(context).map_err(failure)).await?;
        service.call(message).await.map_err(failure)
    }
}

/// A handler as a service, for [`layered`].
#[derive(Debug)]
pub struct HandlerService<H>(Arc<H>);

impl<H> Clone for HandlerService<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send + 'static, H: Handler<T>> Service<Message<T>> for HandlerService<H> {
    type Response = ();
    type Error = HandlerError;
    type Future = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), HandlerError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, message: Message<T>) -> Self::Future {
        let handler = self.0.clone();
        Box::pin(async move { handler.handle(message).await.map_err(HandlerError) })
    }
}

/// A [`Failure`] on its way through layers, which take only errors.
#[derive(Debug, Clone)]
pub struct HandlerError(Failure);

impl HandlerError {
    /// The failure that the handler returned.
    pub fn failure(&self) -> &Failure {
        &self.0
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.message())
    }
}

impl Error for HandlerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// The handler's failure, also if a layer put an error of its own around it.
fn failure_of(error: Box<dyn Error + Send + Sync>) -> Failure {
    let outermost: &(dyn Error + 'static) = &*error;
    let mut errors = std::iter::successors(Some(outermost), |error| (*error).source());
    match errors.find_map(|error| error.downcast_ref::<HandlerError>()) {
        Some(HandlerError(failure)) => failure.clone(),
        None => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tower::ServiceBuilder;
    use tower::limit::GlobalConcurrencyLimitLayer;

    use super::*;
    use crate::testing::message;

    #[tokio::test]
    async fn a_failure_passes_through_layers_with_all_that_the_handler_asked_for() {
        let fail = |_: Message<String>| async {
            Err(Failure::requeue("locked").with_class("lock").after(Duration::from_secs(7)))
        };
        let layers = ServiceBuilder::new().timeout(Duration::from_secs(60)).concurrency_limit(1);
        let failure =
            layered(layers, fail).handle(message("x".to_owned()).build()).await.unwrap_err();
        assert_eq!((failure.class(), failure.message()), ("lock", "locked"));
        assert_eq!(failure.retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(failure.kind(), crate::failure::Kind::Requeue);
    }

    #[tokio::test]
    async fn a_failure_inside_a_layers_error_is_found() {
        #[derive(Debug, thiserror::Error)]
        #[error("the circuit is open")]
        struct Open(#[source] HandlerError);
        let failure = failure_of(Box::new(Open(HandlerError(Failure::permanent("never")))));
        assert_eq!((failure.class(), failure.message()), ("permanent", "never"));
        assert_eq!(failure_of("shed".into()).message(), "shed");
    }

    #[tokio::test]
    async fn handlers_of_two_queues_share_a_limit() {
        let limit = GlobalConcurrencyLimitLayer::new(1);
        let (enter, mut entered) = tokio::sync::mpsc::unbounded_channel();
        let wait = move |_: Message<String>| {
            enter.send(()).unwrap();
            std::future::pending::<Result<(), Failure>>()
        };
        let (first, second) = (layered(limit.clone(), wait.clone()), layered(limit, wait));
        let message = || message("x".to_owned()).build();
        let mut first = Box::pin(first.handle(message()));
        let mut second = Box::pin(second.handle(message()));
        assert!(futures_util::poll!(&mut first).is_pending() && entered.try_recv().is_ok());
        assert!(
            futures_util::poll!(&mut second).is_pending() && entered.try_recv().is_err(),
            "it waits for the limit"
        );
        drop(first);
        assert!(futures_util::poll!(&mut second).is_pending() && entered.try_recv().is_ok());
    }
}
