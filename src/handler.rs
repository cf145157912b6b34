//! Handlers, and how one is called without letting it take others down.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;

use crate::codec::{Codec, DecodeError};
use crate::failure::Failure;
use crate::message::{Arrival, Message};

/// Handles messages of one queue: one async function.
///
/// Every `Fn(Message<T>) -> impl Future<Output = Result<(), Failure>>` is a handler. Implement it by hand to keep state:
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
/// A handler must not block its thread: its time limit cannot interrupt that.
pub trait Handler<T>: Send + Sync + 'static {
    /// Handles one message. `Ok` acks it; see [`Failure`] for the rest.
    fn handle(&self, message: Message<T>) -> impl Future<Output = Result<(), Failure>> + Send;
}

impl<T, F, R> Handler<T> for F
where
    F: Fn(Message<T>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send,
{
    fn handle(&self, message: Message<T>) -> impl Future<Output = Result<(), Failure>> + Send {
        self(message)
    }
}

/// A running attempt.
pub(crate) type Attempt = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A handler with its codec, without its types.
pub(crate) trait Process: Send + Sync {
    /// Decodes the body and gives the attempt to run.
    fn attempt(&self, arrival: &Arc<Arrival>) -> Result<Attempt, DecodeError>;
}

pub(crate) struct Typed<T, C, H> {
    codec: C,
    handler: Arc<H>,
    decodes: PhantomData<fn() -> T>,
}

impl<T, C, H> Typed<T, C, H> {
    pub(crate) fn new(codec: C, handler: H) -> Self {
        Self { codec, handler: Arc::new(handler), decodes: PhantomData }
    }
}

impl<T: Send + 'static, C: Codec<T>, H: Handler<T>> Process for Typed<T, C, H> {
    fn attempt(&self, arrival: &Arc<Arrival>) -> Result<Attempt, DecodeError> {
        let content_type =
            arrival.envelope.properties.content_type().as_ref().map(|content_type| content_type.as_str());
        let decode = || self.codec.decode(&arrival.envelope.body, content_type);
        let body = std::panic::catch_unwind(AssertUnwindSafe(decode))
            .unwrap_or_else(|_| Err(DecodeError::new("the codec panicked")))?;
        let message = Message::new(body, arrival.clone());
        let handler = self.handler.clone();
        let attempt = async move { handler.handle(message).await };
        // A panic is this message's failure alone. What it may have left half done is the handler's own state.
        let caught = AssertUnwindSafe(attempt).catch_unwind();
        Ok(Box::pin(caught.map(|result| result.unwrap_or_else(|payload| Err(Failure::panic(payload.as_ref()))))))
    }
}
