//! A message to publish. Pure: no I/O, no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use serde::Serialize;

use super::error::PublishError;
use crate::broker::lane::Outgoing;
use crate::message::HeaderValue;
use crate::random::random;
use crate::timestamp::Timestamp;
use crate::wire::names::{TRACEPARENT, is_trace_context};
use crate::wire::{Room, properties_size};

/// A message to publish: where to, a body, and properties.
///
/// It gets its id here, so that a consumer can recognise a second publish of the same value. There
/// is no `expiration`: see [`deadline`](Self::deadline).
///
/// ```
/// use rehop::Publish;
/// let message = Publish::to("shop", "order.created").bytes("7");
/// let message = message.message_id("order-7").header("tenant", "a");
/// assert_eq!(message.id(), "order-7");
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until Publisher::publish"]
pub struct Publish {
    exchange: String,
    routing_key: String,
    body: Bytes,
    id: String,
    content_type: Option<String>,
    content_encoding: Option<String>,
    correlation_id: Option<String>,
    reply_to: Option<String>,
    message_type: Option<String>,
    app_id: Option<String>,
    priority: Option<u8>,
    deadline: Option<Timestamp>,
    headers: BTreeMap<String, AMQPValue>,
}

/// Sets a property that is a text.
type SetText = fn(BasicProperties, ShortString) -> BasicProperties;

impl Publish {
    /// To an exchange, with a routing key.
    pub fn to(exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        Self {
            exchange: exchange.into(),
            routing_key: routing_key.into(),
            body: Bytes::new(),
            id: format!("{:032x}", random::<u128>()),
            content_type: None,
            content_encoding: None,
            correlation_id: None,
            reply_to: None,
            message_type: None,
            app_id: None,
            priority: None,
            deadline: None,
            headers: BTreeMap::new(),
        }
    }

    /// Directly to a queue, through the default exchange.
    pub fn to_queue(queue: impl Into<String>) -> Self {
        Self::to("", queue)
    }

    /// With this body, as it is. The default is an empty body.
    pub fn bytes(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// With this value as JSON, and the content type `application/json`.
    ///
    /// # Errors
    ///
    /// When the value cannot be written as JSON, for instance a map whose keys are not text.
    pub fn json(self, body: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(self.bytes(serde_json::to_vec(body)?).content_type("application/json"))
    }

    /// The `content_type` property.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// The `content_encoding` property, such as `gzip`. It says what the body is; nothing is
    /// compressed.
    pub fn content_encoding(mut self, encoding: impl Into<String>) -> Self {
        self.content_encoding = Some(encoding.into());
        self
    }

    /// The `message_id` property: the same for each copy of one message, so that a consumer can
    /// recognise duplicates. The default is a random id.
    pub fn message_id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// The `correlation_id` property.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// The `reply_to` property: the queue for an answer.
    pub fn reply_to(mut self, queue: impl Into<String>) -> Self {
        self.reply_to = Some(queue.into());
        self
    }

    /// The `type` property.
    pub fn message_type(mut self, message_type: impl Into<String>) -> Self {
        self.message_type = Some(message_type.into());
        self
    }

    /// The `app_id` property: the application that publishes.
    pub fn app_id(mut self, id: impl Into<String>) -> Self {
        self.app_id = Some(id.into());
        self
    }

    /// The `priority` property. A classic queue with `x-max-priority` obeys it, and a quorum queue
    /// from RabbitMQ 4.0 on prefers messages above 4.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// The message gets no attempt from this time on. The default is the consuming service's
    /// `retry.max_age`.
    pub fn deadline(mut self, deadline: impl Into<Timestamp>) -> Self {
        self.deadline = Some(deadline.into());
        self
    }

    /// A header. `traceparent`, `tracestate` and `baggage` are replaced if there is a current trace
    /// context. Numbers must be finite.
    pub fn header<'a>(
        mut self,
        name: impl Into<String>,
        value: impl Into<HeaderValue<'a>>,
    ) -> Self {
        self.headers.insert(name.into(), value.into().to_amqp());
        self
    }

    /// The message id.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn exchange(&self) -> &str {
        &self.exchange
    }

    pub(super) fn routing_key(&self) -> &str {
        &self.routing_key
    }

    /// The message as it is sent, with its deadline and its trace context. A trace context that was
    /// set as a header stays if there is no current one.
    pub(super) fn write(
        self,
        expiry_header: &str,
        trace: Vec<(&'static str, String)>,
        now: Timestamp,
        room: Room,
    ) -> Result<Outgoing, PublishError> {
        if let Some(deadline) = self.deadline
            && deadline.since(now) == Duration::ZERO
        {
            return Err(PublishError::Expired { deadline, now });
        }
        let mut table = table(self.headers, trace)?;
        if let Some(deadline) = self.deadline {
            table.insert(
                short("expiry_header", expiry_header)?,
                AMQPValue::LongLongInt(deadline.as_millis()),
            );
        }
        let mut properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_message_id(short("the message id", self.id)?)
            .with_headers(FieldTable::from(table));
        let texts: [(_, _, SetText); 6] = [
            ("the content type", self.content_type, BasicProperties::with_content_type),
            ("the content encoding", self.content_encoding, BasicProperties::with_content_encoding),
            ("the correlation id", self.correlation_id, BasicProperties::with_correlation_id),
            ("the queue to reply to", self.reply_to, BasicProperties::with_reply_to),
            ("the type", self.message_type, BasicProperties::with_type),
            ("the application's id", self.app_id, BasicProperties::with_app_id),
        ];
        for (what, text, set) in texts {
            if let Some(text) = text {
                properties = set(properties, short(what, text)?);
            }
        }
        if let Some(priority) = self.priority {
            properties = properties.with_priority(priority);
        }
        // The broker would close the connection, and with it whatever else is being published.
        let (bytes, limit) = (properties_size(&properties), room.to_wait());
        if bytes > limit {
            return Err(PublishError::TooLong {
                what: "the content header".to_owned(),
                bytes,
                limit,
            });
        }
        let exchange = short("the exchange's name", self.exchange)?;
        let routing_key = short("the routing key", self.routing_key)?;
        // It is sent once, and what is returned on its lane is this message, whatever its
        // properties are.
        let again = BasicProperties::default;
        Ok(Outgoing::new(exchange, routing_key, self.body, properties, again))
    }
}

/// The headers of a message with this trace context, if there is one.
fn table(
    mut headers: BTreeMap<String, AMQPValue>,
    trace: Vec<(&'static str, String)>,
) -> Result<BTreeMap<ShortString, AMQPValue>, PublishError> {
    if trace.iter().any(|(name, _)| *name == TRACEPARENT) {
        // A forwarded trace context must not be mixed with the current one.
        headers.retain(|name, _| !is_trace_context(name));
    }
    if let Some((name, _)) = headers.iter().find(|(_, value)| !is_finite(value)) {
        return Err(PublishError::NotFinite { header: name.clone() });
    }
    let trace = trace
        .into_iter()
        .map(|(name, value)| (name.to_owned(), AMQPValue::LongString(value.into())));
    headers.extend(trace);
    headers.into_iter().map(|(name, value)| Ok((short("a header's name", name)?, value))).collect()
}

fn is_finite(value: &AMQPValue) -> bool {
    match value {
        AMQPValue::Float(number) => number.is_finite(),
        AMQPValue::Double(number) => number.is_finite(),
        AMQPValue::FieldArray(values) => values.as_slice().iter().all(is_finite),
        AMQPValue::FieldTable(table) => table.inner().values().all(is_finite),
        _ => true,
    }
}

fn short(what: &str, text: impl Into<String>) -> Result<ShortString, PublishError> {
    let text = text.into();
    let bytes = text.len();
    ShortString::try_new(text).map_err(|_| PublishError::TooLong {
        what: what.to_owned(),
        bytes,
        limit: 255,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn a_message_is_written_with_its_deadline_and_the_current_trace_context() {
        let message =
            Publish::to_queue("orders").header("traceparent", "old").header("tracestate", "old");
        let message = message.header("baggage", "old").header("tenant", "a");
        let message =
            message.json(&7).unwrap().deadline(NOW + Duration::from_secs(1)).message_type("Order");
        let message =
            message.content_encoding("gzip").reply_to("answers").app_id("shop").priority(9);
        let id = message.id().to_owned();
        let written = message
            .write("deadline", vec![("traceparent", "new".to_owned())], NOW, Room::DEFAULT)
            .unwrap();
        let properties = written.properties();
        let headers = properties.headers().as_ref().unwrap().inner();
        let names: Vec<_> = headers.keys().map(ShortString::as_str).collect();
        assert_eq!(names, ["deadline", "tenant", "traceparent"]);
        assert_eq!(headers["deadline"], AMQPValue::LongLongInt(1_700_000_001_000));
        assert_eq!(headers["traceparent"], AMQPValue::LongString("new".into()));
        assert_eq!(properties.message_id().as_ref().unwrap().as_str(), id);
        assert_eq!((*properties.delivery_mode(), *properties.priority()), (Some(2), Some(9)));
        for (text, expected) in [
            (properties.content_type(), "application/json"),
            (properties.content_encoding(), "gzip"),
            (properties.reply_to(), "answers"),
            (properties.kind(), "Order"),
            (properties.app_id(), "shop"),
        ] {
            assert_eq!(text.as_ref().map(ShortString::as_str), Some(expected));
        }
        assert_eq!(
            (written.exchange.as_str(), written.routing_key.as_str(), &*written.body),
            ("", "orders", &b"7"[..])
        );
    }

    #[test]
    fn each_message_has_an_id_of_its_own_and_its_copies_share_it() {
        let (one, other) = (Publish::to_queue("orders"), Publish::to_queue("orders"));
        assert_ne!(one.id(), other.id());
        assert_eq!(one.clone().id(), one.id());
    }

    #[test]
    fn what_cannot_be_published_is_an_error_before_it_is_sent() {
        let check = |message: Publish, expected: &str| {
            let error =
                message.write("rehop-expires-at", Vec::new(), NOW, Room::DEFAULT).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert!(!error.is_transient());
        };
        let message = || Publish::to_queue("orders");
        let long = "x".repeat(256);
        check(
            message().deadline(Timestamp::from_millis(NOW.as_millis() - 1_500)),
            "the deadline of the message was 1s ago; it was not sent",
        );
        check(message().deadline(NOW), "the deadline of the message was 0s ago; it was not sent");
        check(Publish::to_queue(&long), "the routing key has 256 bytes, and may have 255");
        check(Publish::to(&long, ""), "the exchange's name has 256 bytes, and may have 255");
        check(message().message_id(&long), "the message id has 256 bytes, and may have 255");
        check(message().reply_to(&long), "the queue to reply to has 256 bytes, and may have 255");
        check(message().header(&long, ""), "a header's name has 256 bytes, and may have 255");
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let nested =
                HeaderValue::Table(vec![("b", HeaderValue::List(vec![1.into(), number.into()]))]);
            for message in [message().header("a", number), message().header("a", nested)] {
                check(message, "the header \"a\" has a number that is not finite; send it as text");
            }
        }
        let large = || message().header("h", &*"x".repeat(200_000));
        let error = large().write("e", Vec::new(), NOW, Room::DEFAULT).unwrap_err().to_string();
        assert!(error.starts_with("the content header has 200"), "{error}");
        assert!(
            large().write("e", Vec::new(), NOW, Room::of_frame(1024 * 1024)).is_ok(),
            "a larger frame has room"
        );
    }
}
