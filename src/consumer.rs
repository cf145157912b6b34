//! One queue's handler, and how the queue is consumed.

mod classes;
mod defaults;

use std::collections::BTreeSet;
use std::error::Error;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use classes::check as check_classes;
pub(crate) use defaults::Defaults;

use crate::decode::{Decode, Json};
#[cfg(doc)]
use crate::failure::Failure;
use crate::failure::{Classify, verdict_of};
use crate::handler::{AnyHandler, FailureEvent, Handler, OfFailures, Typed};
use crate::retry::policy::RetryPolicy;
use crate::settings::{ConsumeSettings, Order};

/// A queue, its handler, and what is set in code for it.
///
/// What is set here overrides the settings.
///
/// ```
/// use std::time::Duration;
/// use rehop::bytes::Bytes;
/// use rehop::{Consumer, Failure, Message, Raw};
///
/// async fn archive(message: Message<Bytes>) -> Result<(), Failure> {
///     println!("{} bytes", message.body.len());
///     Ok(())
/// }
///
/// let consumer = Consumer::new("orders", archive).decode(Raw).concurrency(20).handler_timeout(Duration::from_secs(5));
/// # let _ = consumer;
/// ```
#[must_use = "nothing is consumed until it is added to a service"]
pub struct Consumer<T, H, D = Json> {
    queue: String,
    handler: H,
    decoder: D,
    options: Options,
    decodes: PhantomData<fn() -> T>,
}

/// What is set in code for a queue, apart from its types.
#[derive(Default)]
struct Options {
    consume: ConsumeSettings,
    retry: Option<RetryPolicy>,
    of_failures: OfFailures,
    classes: Option<BTreeSet<&'static str>>,
}

impl<T, H: Handler<T>> Consumer<T, H> {
    /// Handles this queue's messages. Bodies are JSON, unless [`decode`](Self::decode) says
    /// otherwise.
    pub fn new(queue: impl Into<String>, handler: H) -> Self {
        Self {
            queue: queue.into(),
            handler,
            decoder: Json,
            options: Options::default(),
            decodes: PhantomData,
        }
    }
}

impl<T, H, D> Consumer<T, H, D> {
    /// How bodies are decoded: [`Raw`](crate::Raw), or a [`Decode`] of your own.
    pub fn decode<E: Decode<T>>(self, decoder: E) -> Consumer<T, H, E> {
        let Self { queue, handler, options, decodes, .. } = self;
        Consumer { queue, handler, decoder, options, decodes }
    }

    /// How many handlers run at a time, from 1 to the prefetch. Overrides `consume.concurrency`.
    pub fn concurrency(mut self, handlers: u16) -> Self {
        self.options.consume.concurrency = Some(handlers);
        self
    }

    /// How many messages the broker sends ahead, at least 1. Overrides `consume.prefetch`.
    pub fn prefetch(mut self, messages: u16) -> Self {
        self.options.consume.prefetch = Some(messages);
        self
    }

    /// How long one attempt may take, from 1 ms to 1 day. Overrides `consume.handler_timeout`.
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.options.consume.handler_timeout = Some(limit);
        self
    }

    /// Which messages are handled one after the other, in the order of the queue. Overrides
    /// `consume.order`.
    ///
    /// It needs the strategy `in-process`; with another one the service does not start. It also
    /// needs a queue with a single active consumer: a service declares its own queue so, and the
    /// owner of an existing queue must. The command-line tool sees only the settings: where it
    /// declares the queue, set `consume.order` there too.
    ///
    /// ```
    /// # use rehop::{Consumer, Failure, Message};
    /// # async fn book(_: Message<String>) -> Result<(), Failure> { Ok(()) }
    /// use rehop::settings::Order;
    ///
    /// let consumer = Consumer::new("ledger", book).order(Order::Header("customer".to_owned()));
    /// # let _ = consumer;
    /// ```
    pub fn order(mut self, order: Order) -> Self {
        self.options.consume.order = Some(order);
        self
    }

    /// The retry policy. Overrides everything under `retry`.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = Some(policy);
        self
    }

    /// Lets errors of this type say what becomes of the message: see
    /// [`Classify`](crate::Classify). Each call adds a type. Of an error and its sources the
    /// outermost one that is of such a type decides. Types of
    /// [`Service::errors`](crate::Service::errors) are known here, too.
    pub fn errors<E: Classify>(mut self) -> Self {
        self.options.of_failures.errors.push(verdict_of::<E>);
        self
    }

    /// Names the classes of the errors that the handler returns. The function is called with the
    /// error of a failure, then with its sources, until it returns a name. A failure for which it
    /// returns none keeps its default class, and so does one that was named by
    /// [`Failure::with_class`].
    ///
    /// The policy's `errors` know a failure by this name, and so do metrics and the history of a
    /// message. Errors inside an `anyhow::Error` or an `eyre::Report` are found if the feature
    /// `anyhow` or `eyre` is enabled. rehop's own errors have no source; their variants and
    /// [`Problem::cause`](crate::Problem::cause) tell them apart.
    ///
    /// ```
    /// # use rehop::{Consumer, Failure, Message};
    /// # async fn import(_: Message<String>) -> Result<(), Failure> { Ok(()) }
    /// let consumer = Consumer::new("imports", import).classify(|error| {
    ///     let error = error.downcast_ref::<std::io::Error>()?;
    ///     Some(if error.kind() == std::io::ErrorKind::NotFound { "file_missing" } else { "io" })
    /// });
    /// # let _ = consumer;
    /// ```
    pub fn classify<F>(mut self, classify: F) -> Self
    where
        F: Fn(&(dyn Error + 'static)) -> Option<&'static str> + Send + Sync + 'static,
    {
        self.options.of_failures.classify = Some(Arc::new(classify));
        self
    }

    /// Declares all names of classes that [`classify`](Self::classify) and [`Failure::with_class`]
    /// give the handler's failures.
    ///
    /// The service then does not start if `retry.errors` names a class that no failure can have.
    /// `timeout`, `panic` and `error` need not be declared, and names of types such as
    /// `ParseIntError` and `io::Error` are not checked. Classes in the service's own `retry.errors`
    /// are checked if every consumer declares its classes. Without this, no class is checked.
    ///
    /// ```
    /// # use rehop::{Consumer, Failure, Message};
    /// # async fn import(_: Message<String>) -> Result<(), Failure> { Ok(()) }
    /// # let consumer = Consumer::new("imports", import);
    /// let consumer = consumer.classes(["file_missing", "io"]);
    /// # let _ = consumer;
    /// ```
    pub fn classes(mut self, names: impl IntoIterator<Item = &'static str>) -> Self {
        self.options.classes = Some(names.into_iter().collect());
        self
    }

    /// Calls this function for each failed attempt, and for each message that is parked or
    /// discarded without one, once the outcome is settled: a copy is confirmed by then, and the ack
    /// or the reject leaves at once. It is meant for alerts and counts of your own.
    ///
    /// It runs between two messages and must not block. A panic in it is logged and changes
    /// nothing. A requeued message may be attempted again before its requeue is reported. Messages
    /// that could not be settled are not reported, because they come again, nor are defers, nor
    /// messages that the broker parks at the delivery limit.
    ///
    /// ```
    /// # use rehop::{Consumer, Failure, Message};
    /// # async fn charge(_: Message<String>) -> Result<(), Failure> { Ok(()) }
    /// let consumer = Consumer::new("orders", charge).on_failure(|event| {
    ///     if let Some(reason) = event.outcome.reason() {
    ///         eprintln!("{}: gave up on {:?}: {reason}", event.queue, event.message_id);
    ///     }
    /// });
    /// # let _ = consumer;
    /// ```
    pub fn on_failure(
        mut self,
        on_failure: impl Fn(&FailureEvent<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.options.of_failures.on_failure = Some(Arc::new(on_failure));
        self
    }
}

/// A type-erased consumer.
pub(crate) struct AnyConsumer {
    pub(crate) queue: String,
    pub(crate) handler: Box<dyn AnyHandler>,
    pub(crate) consume: ConsumeSettings,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) classes: Option<BTreeSet<&'static str>>,
}

impl<T, H, D> From<Consumer<T, H, D>> for AnyConsumer
where
    T: Send + 'static,
    H: Handler<T>,
    D: Decode<T>,
{
    fn from(consumer: Consumer<T, H, D>) -> Self {
        let Consumer { queue, handler, decoder, options, .. } = consumer;
        let Options { consume, retry, of_failures, classes } = options;
        Self {
            queue,
            handler: Box::new(Typed::new(decoder, handler, of_failures)),
            consume,
            retry,
            classes,
        }
    }
}

impl<T, H, D> std::fmt::Debug for Consumer<T, H, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("queue", &self.queue).finish_non_exhaustive()
    }
}
