//! Messages for the unit tests of handlers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::consume::handled::caught;
use crate::failure::{Classify, VerdictOf, verdict_of};
use crate::handler::Handler;
use crate::message::{Address, Delivery, HeaderValue, Message, Source};
use crate::retry::ledger::{ErrorRecord, Ledger};
use crate::retry::outcome::Outcome;
use crate::retry::policy::RetryPolicy;
use crate::settings::RetrySettings;
use crate::shutdown::Shutdown;
use crate::timestamp::Timestamp;
use crate::topology::Names;

/// The namespace of a message that has waited.
const NAMESPACE: &str = "rehop";

/// The default of `consume.handler_timeout`.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(60);

/// The default of `shutdown.grace`.
const GRACE: Duration = Duration::from_secs(30);

/// Starts a message with this body, to call a handler without a broker.
///
/// It is the first attempt of a message that was published to the queue `queue` through the default
/// exchange, without a deadline, under the default policy. Its methods change that.
///
/// ```
/// use rehop::testing::message;
/// use rehop::{Failure, Message};
///
/// async fn greet(name: Message<String>) -> Result<(), Failure> {
///     match name.header("lang").and_then(|lang| lang.as_text()) {
///         Some("en") => Ok(()),
///         _ if name.attempt() >= 3 => Err(Failure::permanent("no language")),
///         _ => Err(Failure::transient("no language yet")),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let english = message("Ada".to_owned()).header("lang", "en").build();
/// assert!(greet(english).await.is_ok());
///
/// let third = message("Ada".to_owned()).attempt(3).build();
/// assert_eq!(greet(third).await.unwrap_err().class(), "permanent");
/// # }
/// ```
///
/// # Panics
///
/// Its methods panic if a text is longer than AMQP carries, 255 bytes.
pub fn message<T>(body: T) -> MessageBuilder<T> {
    let policy =
        RetryPolicy::new(&RetrySettings::default()).unwrap_or_else(|error| panic!("{error}"));
    MessageBuilder {
        body,
        raw_body: Bytes::new(),
        queue: "queue".to_owned(),
        policy,
        origin: None,
        properties: BasicProperties::default(),
        headers: BTreeMap::new(),
        attempt: None,
        hop: None,
        deadline: None,
        errors: Vec::new(),
        handler_timeout: HANDLER_TIMEOUT,
        shutdown: Shutdown::new(GRACE),
        error_types: Vec::new(),
    }
}

/// A message for a test, started by [`message`]. It does nothing until [`build`](Self::build) or
/// [`outcome`](Self::outcome).
#[derive(Debug, Clone)]
#[must_use = "it does nothing until `build()` or `outcome()`"]
pub struct MessageBuilder<T> {
    body: T,
    raw_body: Bytes,
    queue: String,
    policy: RetryPolicy,
    origin: Option<Address>,
    properties: BasicProperties,
    headers: BTreeMap<ShortString, AMQPValue>,
    attempt: Option<u32>,
    hop: Option<u32>,
    deadline: Option<Timestamp>,
    errors: Vec<ErrorRecord>,
    handler_timeout: Duration,
    shutdown: Shutdown,
    error_types: Vec<VerdictOf>,
}

impl<T> MessageBuilder<T> {
    /// The number of the attempt, from 1. Without [`hop`](Self::hop), the message has waited as
    /// often as the policy makes it wait by then.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = Some(attempt.max(1));
        self
    }

    /// How often the message has waited. Without [`attempt`](Self::attempt), this is the first
    /// attempt after the last wait.
    pub fn hop(mut self, hop: u32) -> Self {
        self.hop = Some(hop);
        self
    }

    /// The queue that the message was consumed from.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// The policy of that queue, for [`Message::is_last_attempt`] and [`outcome`](Self::outcome).
    /// `Settings::policy` has that of a service's queue.
    pub fn policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// How long the handler may take, for [`Message::time_left`] and [`outcome`](Self::outcome).
    /// Default 1m.
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.handler_timeout = limit;
        self
    }

    /// The service has just been asked to stop, and has this `shutdown.grace`, of which the last
    /// fifth, 2 s at most, is not for handlers.
    ///
    /// ```
    /// use rehop::testing::message;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let order = message(7).stopping(Duration::from_secs(10)).build();
    /// order.stopping().await;
    /// assert!(order.time_left() <= Duration::from_secs(8));
    /// # }
    /// ```
    pub fn stopping(mut self, grace: Duration) -> Self {
        self.shutdown = Shutdown::new(grace);
        self.shutdown.request();
        self
    }

    /// When the message expires. A message of its own has no deadline, unless the policy has a
    /// `max_age`.
    pub fn deadline(mut self, deadline: Timestamp) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The exchange and the routing key that the message was published to.
    pub fn published_to(mut self, exchange: &str, routing_key: &str) -> Self {
        self.origin = Some(Address { exchange: short(exchange), routing_key: short(routing_key) });
        self
    }

    /// A failure of an earlier attempt, as [`Message::errors`] lists it. Each call adds one.
    pub fn error(mut self, class: &str, message: &str) -> Self {
        let attempt = u32::try_from(self.errors.len()).unwrap_or(u32::MAX).saturating_add(1);
        self.errors.push(ErrorRecord::new(
            Timestamp::from(SystemTime::now()),
            attempt,
            class,
            message,
        ));
        self
    }

    /// A header: text, a number, a boolean, or any other [`HeaderValue`].
    pub fn header<'a>(mut self, name: &str, value: impl Into<HeaderValue<'a>>) -> Self {
        self.headers.insert(short(name), value.into().to_amqp());
        self
    }

    /// The bytes that [`Message::raw_body`] returns, and that a decoder sees in
    /// [`Message::encoded`]. They are empty by default, and not decoded.
    pub fn raw_body(mut self, bytes: impl Into<Bytes>) -> Self {
        self.raw_body = bytes.into();
        self
    }

    /// The `message_id` property.
    pub fn message_id(mut self, id: &str) -> Self {
        self.properties = self.properties.with_message_id(short(id));
        self
    }

    /// The `correlation_id` property.
    pub fn correlation_id(mut self, id: &str) -> Self {
        self.properties = self.properties.with_correlation_id(short(id));
        self
    }

    /// The `content_type` property.
    pub fn content_type(mut self, content_type: &str) -> Self {
        self.properties = self.properties.with_content_type(short(content_type));
        self
    }

    /// The `content_encoding` property.
    pub fn content_encoding(mut self, encoding: &str) -> Self {
        self.properties = self.properties.with_content_encoding(short(encoding));
        self
    }

    /// The `type` property.
    pub fn message_type(mut self, message_type: &str) -> Self {
        self.properties = self.properties.with_type(short(message_type));
        self
    }

    /// The `reply_to` property.
    pub fn reply_to(mut self, queue: &str) -> Self {
        self.properties = self.properties.with_reply_to(short(queue));
        self
    }

    /// The message, as a handler gets it.
    pub fn build(self) -> Message<T> {
        let (body, delivery, source) = self.parts();
        Message::new(body, delivery, source)
    }

    fn parts(self) -> (T, Arc<Delivery>, Arc<Source>) {
        let delivery = self.delivery(Timestamp::from(SystemTime::now()));
        let source = Source {
            queue: self.queue,
            policy: self.policy,
            handler_timeout: self.handler_timeout,
            shutdown: self.shutdown,
        };
        (self.body, Arc::new(delivery), Arc::new(source))
    }

    /// Lets errors of this type say what becomes of the message, as
    /// [`Service::errors`](crate::Service::errors) does. For [`outcome`](Self::outcome); each call
    /// adds a type.
    pub fn errors<E: Classify>(mut self) -> Self {
        self.error_types.push(verdict_of::<E>);
        self
    }

    /// Runs one attempt of a handler at this message, and returns what rehop would do with the
    /// message: ack it, requeue it, let it wait, park it, or discard it.
    ///
    /// The decision is the one that services make, under the message's [`policy`](Self::policy),
    /// with jitter from the middle of its range. As in a service, a panic and an attempt that takes
    /// longer than the [`handler_timeout`](Self::handler_timeout) are failures, and an expired
    /// message is not attempted.
    ///
    /// ```
    /// use rehop::testing::message;
    /// use rehop::{Failure, Message, Outcome, Reason};
    /// use std::time::Duration;
    ///
    /// async fn charge(amount: Message<u32>) -> Result<(), Failure> {
    ///     match amount.body {
    ///         0 => Err(Failure::permanent("nothing to charge")),
    ///         1 => panic!("no account"),
    ///         _ => Err(Failure::transient("busy")),
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// assert_eq!(message(0).outcome(charge).await, Outcome::Park(Reason::Permanent));
    /// assert_eq!(message(1).outcome(charge).await, Outcome::Requeue);
    /// let second = message(9).attempt(2);
    /// assert_eq!(second.outcome(charge).await, Outcome::Wait(Duration::from_secs(10)));
    /// # }
    /// ```
    ///
    /// Bodies are not decoded, and `Consumer::classify` names no classes. A `World` of the package
    /// `rehop-worlds` runs all of a service.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime with a timer, as `#[tokio::test]` provides it.
    pub async fn outcome(self, handler: impl Handler<T>) -> Outcome {
        let (policy, limit) = (self.policy.clone(), self.handler_timeout);
        let error_types = self.error_types.clone();
        let (body, delivery, source) = self.parts();
        if let Some(outcome) = policy.outcome_before(&delivery) {
            return outcome;
        }
        let message = Message::new(body, delivery.clone(), source);
        // A handler that is no async function may panic before there is a future.
        let result = caught(async { handler.handle(message).await }, limit).await;
        policy.outcome_after(&delivery, &result.map_err(|failure| failure.judged(&error_types)))
    }

    /// The delivery of this message, at this time.
    fn delivery(&self, now: Timestamp) -> Delivery {
        let attempt =
            self.attempt.unwrap_or_else(|| self.policy.first_attempt_after(self.hop.unwrap_or(0)));
        let (waits, redeliveries) = self.policy.before_attempt(attempt);
        let hop = self.hop.unwrap_or(waits);
        let to_queue =
            || Address { exchange: ShortString::default(), routing_key: short(&self.queue) };
        let origin = self.origin.clone().unwrap_or_else(to_queue);
        let returned = || Address {
            exchange: short(&Names::new(NAMESPACE).return_()),
            routing_key: origin.routing_key.clone(),
        };
        Delivery {
            address: if hop > 0 { returned() } else { origin.clone() },
            redelivered: redeliveries > 0,
            delivery_tag: 1,
            properties: self
                .properties
                .clone()
                .with_headers(FieldTable::from(self.headers.clone())),
            body: self.raw_body.clone(),
            ledger: Ledger {
                attempts: attempt - 1 - redeliveries,
                hop,
                is_copy: hop > 0,
                redeliveries: Some(redeliveries),
                deadline: self
                    .deadline
                    .or_else(|| self.policy.max_age.map(|max_age| now + max_age)),
                first_failed: (hop > 0).then_some(now),
                errors: self.errors.clone(),
                ..Ledger::new(now)
            },
            origin,
        }
    }
}

fn short(text: &str) -> ShortString {
    ShortString::try_new(text)
        .unwrap_or_else(|_| panic!("{text:?} is longer than AMQP carries: 255 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Failure, Verdict};
    use crate::retry::decision::Reason;

    #[test]
    fn a_message_is_the_attempt_that_was_asked_for_with_the_waits_that_the_policy_makes() {
        // The default policy makes two attempts between waits.
        let check = |builder: MessageBuilder<()>, attempt, hop, redelivered, is_last| {
            let message = builder.build();
            let seen = (
                message.attempt(),
                message.hop(),
                message.redelivered(),
                message.is_last_attempt(),
            );
            assert_eq!(seen, (attempt, hop, redelivered, is_last));
        };
        check(message(()), 1, 0, false, false);
        check(message(()).attempt(2), 2, 0, true, false);
        check(message(()).attempt(3), 3, 1, false, false);
        check(message(()).hop(2), 5, 2, false, false);
        check(message(()).attempt(8), 8, 3, true, true);
        check(message(()).attempt(1).hop(1), 1, 1, false, false);
        check(message(()).attempt(0), 1, 0, false, false);
    }

    #[test]
    fn a_message_has_what_it_was_given() {
        let deadline = Timestamp::from_millis(1_700_000_000_000);
        let built = message(7)
            .queue("orders")
            .published_to("shop", "order.created")
            .deadline(deadline)
            .message_id("id")
            .correlation_id("correlation")
            .content_type("text/plain")
            .message_type("order")
            .reply_to("answers")
            .raw_body("seven")
            .header("tries", 3)
            .header("lang", "en")
            .error("busy", "try later")
            .build();
        assert_eq!(
            (built.body, built.queue(), built.exchange(), built.routing_key()),
            (7, "orders", "shop", "order.created")
        );
        assert_eq!((built.deadline(), built.message_id()), (Some(deadline), Some("id")));
        assert_eq!(
            (built.correlation_id(), built.content_type()),
            (Some("correlation"), Some("text/plain"))
        );
        assert_eq!((built.message_type(), built.reply_to()), (Some("order"), Some("answers")));
        assert_eq!(built.raw_body(), "seven");
        assert_eq!(built.header("tries"), Some(HeaderValue::Int(3)));
        assert_eq!(built.header("lang"), Some(HeaderValue::Text("en")));
        assert_eq!((built.errors()[0].class.as_str(), built.errors()[0].attempt), ("busy", 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_is_what_a_service_would_do() {
        let fails = |_: Message<()>| async { Err(Failure::transient("busy")) };
        let hangs = |_: Message<()>| std::future::pending::<Result<(), Failure>>();
        let panics = |_: Message<()>| -> std::future::Ready<Result<(), Failure>> { panic!("no") };
        let handles = |_: Message<()>| async { Ok::<_, Failure>(()) };
        let past = Timestamp::from_millis(1_000);
        assert_eq!(message(()).outcome(handles).await, Outcome::Ack);
        assert_eq!(message(()).outcome(fails).await, Outcome::Requeue);
        assert_eq!(message(()).outcome(hangs).await, Outcome::Requeue);
        assert_eq!(message(()).outcome(panics).await, Outcome::Requeue);
        let wait = |seconds| Outcome::Wait(Duration::from_secs(seconds));
        assert_eq!(message(()).attempt(4).outcome(fails).await, wait(60));
        assert_eq!(message(()).attempt(8).outcome(fails).await, Outcome::Park(Reason::Exhausted));
        let expired = message(()).deadline(past);
        assert_eq!(expired.outcome(handles).await, Outcome::Park(Reason::Expired));
    }

    #[tokio::test]
    async fn an_error_type_is_asked_only_if_it_is_named() {
        #[derive(Debug, thiserror::Error)]
        #[error("the card was declined")]
        struct Declined;
        impl Classify for Declined {
            fn classify(&self) -> Verdict {
                Verdict::permanent()
            }
        }
        let decline = |_: Message<()>| async { Err(Declined) };
        assert_eq!(message(()).outcome(decline).await, Outcome::Requeue);
        let parked = Outcome::Park(Reason::Permanent);
        assert_eq!(message(()).errors::<Declined>().outcome(decline).await, parked);
    }
}
