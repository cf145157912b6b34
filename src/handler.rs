//! Handlers, and how one is called when its types are erased.

mod failure_event;
mod function;
#[cfg(feature = "tower")]
mod layered;
mod state;

use std::future::Future;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::TryFutureExt as _;

use crate::decode::{Decode, DecodeError};
use crate::failure::{Failure, NameClass, VerdictOf};
use crate::message::{Delivery, Encoded, Message, Source};
pub use failure_event::FailureEvent;
pub(crate) use failure_event::OnFailure;
use function::HandlerFunction;
#[cfg(feature = "tower")]
pub use layered::{HandlerError, HandlerService, layered};
pub use state::with_state;

/// Handles the messages of one queue: one async function.
///
/// Every async function from a `Message<T>` to a `Result<(), E>` is a handler, if `E` converts into
/// a [`Failure`]: an error of your own, `anyhow::Error`, `Box<dyn Error + Send + Sync>`, or
/// `Failure` itself. For a function that also takes a state, such as a connection pool, see
/// [`with_state`].
///
/// ```
/// # use rehop::{Consumer, Failure, Message};
/// async fn check(amount: Message<String>) -> Result<(), std::num::ParseIntError> {
///     amount.body.parse::<u32>().map(drop)
/// }
/// let consumer = Consumer::new("amounts", check);
/// # let _ = consumer;
///
///  // A closure has to name its error type, unless it returns the result of a function that does.
/// let consumer = Consumer::new("logs", |line: Message<String>| async move {
///     println!("{}", line.body);
///     Ok::<_, Failure>(())
/// });
/// # let _ = consumer;
/// ```
///
/// A type of your own may implement it as well:
///
/// ```
/// use rehop::{Failure, Handler, Message};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// struct Count(AtomicU64);
///
/// impl Handler<String> for Count {
///     async fn handle(&self, _message: Message<String>) -> Result<(), Failure> {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         Ok(())
///     }
/// }
/// ```
///
/// A handler must not block its thread: its time limit cannot interrupt blocking code.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not handle a `Message<{T}>`",
    label = "not a handler",
    note = "a handler takes a `Message`: `async fn handle(message: Message<Body>) -> Result<(), Failure>`",
    note = "if it also takes a state, pass `rehop::with_state(state, handle)` in its place",
    note = "if it takes a body, let it take a `Message` of the body's type: `message.body` is the body"
)]
pub trait Handler<T>: Send + Sync + 'static {
    /// Handles one message. `Ok` acks it; see [`Failure`] for the rest.
    fn handle(&self, message: Message<T>) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// A function or closure from a `Message<T>` to a future, which is all that `HandlerFunction` says.
impl<T, F, R, E> Handler<T> for F
where
    F: HandlerFunction<T, R> + Fn(Message<T>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), E>> + Send,
    E: Into<Failure>,
{
    fn handle(&self, message: Message<T>) -> impl Future<Output = Result<(), Failure>> + Send {
        self(message).map_err(Into::into)
    }
}

/// The handler's future for one decoded message. It does nothing until it is polled.
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A type-erased handler, its decoder, and what the service does with its failures.
pub(crate) trait AnyHandler: Send + Sync {
    /// Decodes the body, and returns the handler's future for it.
    fn prepare(
        &self,
        delivery: &Arc<Delivery>,
        source: &Arc<Source>,
    ) -> Result<HandlerFuture, DecodeError>;

    /// Takes from these what the queue does not say itself.
    fn default_to(&mut self, of_all: &OfFailures);

    /// Tells the service of a failure.
    fn failed(&self, event: &FailureEvent<'_>);
}

/// What the service does with the failures of a queue.
#[derive(Clone, Default)]
pub(crate) struct OfFailures {
    /// The types of errors that say what becomes of their message.
    pub(crate) errors: Vec<VerdictOf>,
    /// Names their classes.
    pub(crate) classify: Option<NameClass>,
    pub(crate) on_failure: Option<OnFailure>,
}

impl OfFailures {
    /// Types add up; the rest holds where the queue says nothing.
    fn default_to(&mut self, of_all: &Self) {
        self.errors.extend_from_slice(&of_all.errors);
        self.classify = self.classify.take().or_else(|| of_all.classify.clone());
        self.on_failure = self.on_failure.take().or_else(|| of_all.on_failure.clone());
    }

    fn classified(&self, failure: Failure) -> Failure {
        let failure = failure.judged(&self.errors);
        match &self.classify {
            Some(classify) => failure.classified(classify),
            None => failure,
        }
    }
}

pub(crate) struct Typed<T, D, H> {
    decoder: D,
    handler: Arc<H>,
    of_failures: Arc<OfFailures>,
    decodes: PhantomData<fn() -> T>,
}

impl<T, D, H> Typed<T, D, H> {
    pub(crate) fn new(decoder: D, handler: H, of_failures: OfFailures) -> Self {
        let (handler, of_failures) = (Arc::new(handler), Arc::new(of_failures));
        Self { decoder, handler, of_failures, decodes: PhantomData }
    }
}

impl<T: Send + 'static, D: Decode<T>, H: Handler<T>> AnyHandler for Typed<T, D, H> {
    fn prepare(
        &self,
        delivery: &Arc<Delivery>,
        source: &Arc<Source>,
    ) -> Result<HandlerFuture, DecodeError> {
        let decode = || self.decoder.decode(&Encoded::new(delivery, &source.queue));
        let body = std::panic::catch_unwind(AssertUnwindSafe(decode))
            .unwrap_or_else(|_| Err(DecodeError::new("the decoder panicked")))?;
        let message = Message::new(body, delivery.clone(), source.clone());
        let (handler, of_failures) = (self.handler.clone(), self.of_failures.clone());
        Ok(Box::pin(async move {
            handler.handle(message).await.map_err(|failure| of_failures.classified(failure))
        }))
    }

    fn default_to(&mut self, of_all: &OfFailures) {
        Arc::make_mut(&mut self.of_failures).default_to(of_all);
    }

    /// A panic in the service's function is caught: what becomes of the message is decided already.
    fn failed(&self, event: &FailureEvent<'_>) {
        let Some(on_failure) = &self.of_failures.on_failure else { return };
        if std::panic::catch_unwind(AssertUnwindSafe(|| on_failure(event))).is_err() {
            tracing::error!(
                queue = event.queue,
                chain = event.chain_id,
                "the function set by on_failure panicked"
            );
        }
    }
}
