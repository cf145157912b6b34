//! What a handler sees of a message.

mod delivery;
mod encoded;
mod header_value;
mod source;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::ShortString;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::retry::decision::{Limits, decide, decide_before};
use crate::retry::ledger::ErrorRecord;
use crate::retry::outcome::Outcome;
use crate::retry::policy::RetryPolicy;
use crate::timestamp::Timestamp;
use crate::wait::jitter::Draw;
pub use delivery::Address;
pub(crate) use delivery::{Delivery, header};
pub use encoded::Encoded;
pub use header_value::HeaderValue;
use header_value::entries;
pub(crate) use source::Source;

/// A message as its handler gets it: the decoded body, and everything that came with it.
///
/// ```
/// # use rehop::{Failure, Message};
/// # #[derive(serde::Deserialize)] struct Order { id: u64 }
/// async fn ship(order: Message<Order>) -> Result<(), Failure> {
///     println!("attempt {} for order {}, sent to {:?}", order.attempt(), order.body.id, order.routing_key());
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Message<T> {
    /// The decoded body.
    pub body: T,
    delivery: Arc<Delivery>,
    source: Arc<Source>,
    began: Instant,
}

impl<T> Message<T> {
    pub(crate) fn new(body: T, delivery: Arc<Delivery>, source: Arc<Source>) -> Self {
        Self { body, delivery, source, began: Instant::now() }
    }

    /// The bytes of the body, as they came.
    pub fn raw_body(&self) -> &Bytes {
        &self.delivery.body
    }

    /// The message as its decoder sees it, for tests of decoders: see [`Encoded`].
    pub fn encoded(&self) -> Encoded<'_> {
        Encoded::new(&self.delivery, &self.source.queue)
    }

    /// The number of this attempt, from 1. Deliveries that ended in a crash are included, because
    /// the broker counts them.
    pub fn attempt(&self) -> u32 {
        self.delivery.ledger.attempt()
    }

    /// The most attempts that the queue's policy allows a message: see
    /// [`RetryPolicy::max_attempts`](crate::RetryPolicy::max_attempts). Deliveries that ended in a
    /// crash come on top, so [`attempt`](Self::attempt) can be higher.
    pub fn max_attempts(&self) -> u32 {
        self.source.policy.max_attempts()
    }

    /// Whether a [transient](crate::Failure::transient) failure of this attempt would be the last:
    /// no attempt is left, or the deadline comes before the end of the next wait. Then the message
    /// is parked or discarded, as the policy says.
    ///
    /// The answer may change while the handler runs, if the message has a deadline. It does not
    /// know of a delay that the handler will ask for by [`Failure::after`](crate::Failure::after).
    ///
    /// ```
    /// # use rehop::{Failure, Message};
    /// # async fn send(_: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn tell_support(_: &str) {}
    /// async fn notify(address: Message<String>) -> Result<(), Failure> {
    ///     if let Err(error) = send(&address.body).await {
    ///         if address.is_last_attempt() {
    ///             tell_support(&address.body).await;
    ///         }
    ///         return Err(error.into());
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn is_last_attempt(&self) -> bool {
        self.source.is_last_attempt(&self.delivery.ledger, Timestamp::now())
    }

    /// How many times this message has waited, without its defers. With strategy `native` the
    /// broker counts, and includes defers and deliveries that were lost.
    pub fn hop(&self) -> u32 {
        self.delivery.ledger.hop
    }

    /// How often its handler has [deferred](crate::Failure::defer) this message.
    pub fn defers(&self) -> u32 {
        self.delivery.ledger.defers
    }

    /// When the message expires. It gets no attempt from then on.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.delivery.ledger.deadline
    }

    /// How long the handler may still run before it is dropped: the rest of
    /// `consume.handler_timeout` or, once the service stops, of the part of `shutdown.grace` that is
    /// for handlers, if that is shorter. In an ordered queue it is also dropped when its channel is
    /// lost.
    pub fn time_left(&self) -> Duration {
        let ends_at = self.source.ends_at(self.began);
        ends_at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    /// Completes when the service stops. A handler that still runs when its
    /// [`time_left`](Self::time_left) is over is dropped, and its message is delivered again. So one
    /// that takes long can end early instead, and go on from there at its next attempt.
    ///
    /// ```
    /// use rehop::{Failure, Message};
    /// use std::time::Duration;
    ///
    /// # struct Part;
    /// # async fn parts_left(_: &u64) -> Vec<Part> { vec![Part] }
    /// # async fn upload(_: Part) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn upload_in_parts(file: Message<u64>) -> Result<(), Failure> {
    ///     let mut stopping = std::pin::pin!(file.stopping());
    ///     for part in parts_left(&file.body).await {
    ///         tokio::select! {
    ///             // The part under way is dropped, and uploaded again. A defer costs no attempt.
    ///             () = &mut stopping => return Err(Failure::defer(Duration::from_secs(10))),
    ///             uploaded = upload(part) => uploaded?,
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// # let file = rehop::testing::message(7).build();
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(upload_in_parts(file)).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// The future may be polled again after it has completed. In an ordered queue, the stop itself
    /// costs each message that the process holds an attempt.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static {
        self.source.shutdown.requested_for_long()
    }

    /// When the delivery before the first wait was seen. Until a message has waited, and always
    /// with strategy `native`, this is the present delivery, because only copies carry the time.
    /// With `in-process` it is the first delivery since a crash.
    pub fn first_seen(&self) -> Timestamp {
        self.delivery.ledger.first_seen
    }

    /// When an attempt first failed. `None` before the first wait, because only copies carry this
    /// time: an immediate attempt knows nothing of the one before.
    pub fn first_failed(&self) -> Option<Timestamp> {
        self.delivery.ledger.first_failed
    }

    /// The failures before the last wait, oldest first, at most ten.
    pub fn errors(&self) -> &[ErrorRecord] {
        &self.delivery.ledger.errors
    }

    /// The queue that the message was consumed from.
    pub fn queue(&self) -> &str {
        &self.source.queue
    }

    /// The exchange that the message was first published to, however often it has waited since.
    /// Empty for the default exchange.
    pub fn exchange(&self) -> &str {
        self.delivery.origin.exchange.as_str()
    }

    /// The routing key that the message was first published with.
    pub fn routing_key(&self) -> &str {
        self.delivery.origin.routing_key.as_str()
    }

    /// Whether the broker has delivered this message before, to this consumer or another.
    pub fn redelivered(&self) -> bool {
        self.delivery.redelivered
    }

    /// The `message_id` property. It stays the same through all waits.
    pub fn message_id(&self) -> Option<&str> {
        text(self.properties().message_id())
    }

    /// The `content_type` property.
    pub fn content_type(&self) -> Option<&str> {
        text(self.properties().content_type())
    }

    /// The `content_encoding` property.
    pub fn content_encoding(&self) -> Option<&str> {
        text(self.properties().content_encoding())
    }

    /// The `correlation_id` property.
    pub fn correlation_id(&self) -> Option<&str> {
        text(self.properties().correlation_id())
    }

    /// The `reply_to` property.
    pub fn reply_to(&self) -> Option<&str> {
        text(self.properties().reply_to())
    }

    /// The `type` property.
    pub fn message_type(&self) -> Option<&str> {
        text(self.properties().kind())
    }

    /// The `app_id` property.
    pub fn app_id(&self) -> Option<&str> {
        text(self.properties().app_id())
    }

    /// The `user_id` property, which the broker has checked. A header keeps it through a wait.
    pub fn user_id(&self) -> Option<&str> {
        text(self.properties().user_id()).or_else(|| {
            match self.header(crate::wire::names::USER_ID)? {
                HeaderValue::Text(user_id) if self.delivery.ledger.is_copy => Some(user_id),
                _ => None,
            }
        })
    }

    /// The `priority` property.
    pub fn priority(&self) -> Option<u8> {
        *self.properties().priority()
    }

    /// The `timestamp` property, in seconds since the epoch.
    pub fn timestamp(&self) -> Option<u64> {
        *self.properties().timestamp()
    }

    /// One header.
    pub fn header(&self, name: &str) -> Option<HeaderValue<'_>> {
        self.delivery.header(name).map(HeaderValue::of)
    }

    /// All headers, in the order of their names.
    pub fn headers(&self) -> impl Iterator<Item = (&str, HeaderValue<'_>)> {
        self.properties().headers().iter().flat_map(entries)
    }

    fn properties(&self) -> &BasicProperties {
        &self.delivery.properties
    }
}

impl RetryPolicy {
    /// What becomes of a message under this policy if an attempt of it ends like this. For tests of
    /// policies and handlers. Nothing is random here: jitter is drawn from the middle of its range.
    ///
    /// ```
    /// use rehop::testing::message;
    /// use rehop::{Failure, Outcome, Reason, RetryPolicy, settings::RetrySettings};
    /// use std::time::Duration;
    ///
    /// let policy = RetryPolicy::new(&RetrySettings::default())?;
    /// let second = message("order").attempt(2).build();
    /// let outcome = |result| policy.outcome_of(&second, &result);
    ///
    /// assert_eq!(outcome(Ok(())), Outcome::Ack);
    /// assert_eq!(outcome(Err(Failure::transient("busy"))), Outcome::Wait(Duration::from_secs(10)));
    /// assert_eq!(outcome(Err(Failure::permanent("wrong"))), Outcome::Park(Reason::Permanent));
    /// # Ok::<(), rehop::SettingsError>(())
    /// ```
    pub fn outcome_of<T>(&self, message: &Message<T>, result: &Result<(), Failure>) -> Outcome {
        self.outcome_after(&message.delivery, result)
    }

    /// The same for a delivery.
    pub(crate) fn outcome_after(
        &self,
        delivery: &Delivery,
        result: &Result<(), Failure>,
    ) -> Outcome {
        let (now, limits) = (Timestamp::now(), || Limits { hold: None, lets_return: true });
        Outcome::of(decide(self, &delivery.ledger, result, now, limits, Draw::MIDDLE))
    }

    /// What becomes of a delivery without an attempt, if it gets none.
    pub(crate) fn outcome_before(&self, delivery: &Delivery) -> Option<Outcome> {
        let (now, limits) = (Timestamp::now(), || Limits { hold: None, lets_return: true });
        decide_before(self, &delivery.ledger, now, limits).map(Outcome::of)
    }
}

fn text(property: &Option<ShortString>) -> Option<&str> {
    property.as_ref().map(ShortString::as_str)
}
