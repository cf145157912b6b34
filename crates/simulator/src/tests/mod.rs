//! What the real versions were measured to do, one file for each subject.

mod consuming;
mod counts;
mod dead_lettering;
mod declaring;
mod invariants;
mod limits;
mod node;
mod publishing;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::{Broker, ConnectionId, Delivery, Event, Method, Time, Version};

const VERSIONS: [Version; 3] = [Version::V3_10, Version::V4_0, Version::V4_3];

/// A broker, a client that does as it is told, and the time.
struct World {
    broker: Broker,
    now: Time,
    connection: ConnectionId,
    channel: u16,
}

fn ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

fn number(value: i64) -> AMQPValue {
    AMQPValue::LongLongInt(value)
}

fn table<const N: usize>(fields: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (key, value) in fields {
        table.insert(ShortString::from(key), value);
    }
    table
}

/// The arguments of a quorum queue.
fn quorum<const N: usize>(fields: [(&str, AMQPValue); N]) -> FieldTable {
    let mut arguments = table(fields);
    arguments.insert("x-queue-type".into(), text("quorum"));
    arguments
}

/// A message of that id and headers.
fn properties(id: &str) -> BasicProperties {
    BasicProperties::default().with_message_id(id.into()).with_delivery_mode(2)
}

impl World {
    fn new(version: Version) -> Self {
        let mut broker = Broker::new(version);
        let connection = broker.connect(Time::ZERO, "guest").unwrap();
        let mut world = Self { broker, now: Time::ZERO, connection, channel: 1 };
        assert_eq!(world.call(Method::OpenChannel), [Event::Done]);
        world
    }

    /// Sends a method on the present channel, and returns what came for that channel.
    fn call(&mut self, method: Method) -> Vec<Event> {
        self.broker.receive(self.now, self.connection, self.channel, method);
        self.heard()
    }

    fn heard(&mut self) -> Vec<Event> {
        let (connection, channel) = (self.connection, self.channel);
        self.broker
            .sent()
            .filter(|sent| {
                sent.connection == connection && (sent.channel == channel || sent.channel == 0)
            })
            .map(|sent| sent.event)
            .collect()
    }

    /// Lets time pass, and returns what came.
    fn pass(&mut self, time: Time) -> Vec<Event> {
        self.now += time;
        self.broker.pass_time(self.now);
        self.heard()
    }

    fn declare(&mut self, queue: &str, arguments: FieldTable) -> Vec<Event> {
        self.call(Method::DeclareQueue {
            queue: queue.into(),
            is_passive: false,
            is_durable: true,
            is_exclusive: false,
            is_auto_delete: false,
            arguments,
        })
    }

    fn declare_exchange(&mut self, exchange: &str, kind: &str) {
        let method = Method::DeclareExchange {
            exchange: exchange.into(),
            kind: kind.to_owned(),
            is_passive: false,
            is_durable: true,
            arguments: FieldTable::default(),
        };
        assert_eq!(self.call(method), [Event::Done]);
    }

    fn bind(
        &mut self,
        queue: &str,
        exchange: &str,
        key: &str,
        arguments: FieldTable,
    ) -> Vec<Event> {
        self.call(Method::BindQueue {
            queue: queue.into(),
            exchange: exchange.into(),
            routing_key: key.into(),
            arguments,
        })
    }

    fn publish_with(
        &mut self,
        exchange: &str,
        key: &str,
        properties: BasicProperties,
    ) -> Vec<Event> {
        self.call(Method::Publish {
            exchange: exchange.into(),
            routing_key: key.into(),
            is_mandatory: true,
            properties: Box::new(properties),
            body: b"body".to_vec(),
        })
    }

    /// Publishes a message by the default exchange.
    fn publish(&mut self, queue: &str, id: &str) -> Vec<Event> {
        self.publish_with("", queue, properties(id))
    }

    fn prefetch(&mut self, prefetch: u16) {
        assert_eq!(self.call(Method::Qos { prefetch }), [Event::Done]);
    }

    fn consume(&mut self, queue: &str, tag: &str) -> Vec<Event> {
        self.call(Method::Consume {
            queue: queue.into(),
            consumer_tag: tag.into(),
            is_no_ack: false,
            is_exclusive: false,
            arguments: FieldTable::default(),
        })
    }

    fn get(&mut self, queue: &str) -> Option<Delivery> {
        match self.call(Method::Get { queue: queue.into(), is_no_ack: false }).into_iter().next() {
            Some(Event::Got { delivery, .. }) => Some(delivery),
            _ => None,
        }
    }

    fn ready(&self, queue: &str) -> Vec<String> {
        self.broker.queue(queue).map(|view| view.ready).unwrap_or_default()
    }

    fn ack(&mut self, tag: u64) -> Vec<Event> {
        self.call(Method::Ack { delivery_tag: tag, is_multiple: false })
    }

    fn reject(&mut self, tag: u64) -> Vec<Event> {
        self.call(Method::Reject { delivery_tag: tag, is_requeued: true })
    }

    fn nack(&mut self, tag: u64) -> Vec<Event> {
        self.call(Method::Nack { delivery_tag: tag, is_multiple: false, is_requeued: true })
    }

    /// From now on another connection is meant.
    fn connect(&mut self) {
        self.connection = self.broker.connect(self.now, "guest").unwrap();
        self.call(Method::OpenChannel);
    }

    fn disconnect(&mut self) {
        self.broker.disconnect(self.now, self.connection);
    }

    /// Closes the present channel, and opens it again.
    fn reopen(&mut self) {
        self.call(Method::CloseChannel);
        self.call(Method::OpenChannel);
    }
}

fn deliveries(events: Vec<Event>) -> Vec<Delivery> {
    events
        .into_iter()
        .filter_map(|event| match event {
            Event::Delivered { delivery, .. } => Some(delivery),
            _ => None,
        })
        .collect()
}

fn id(delivery: &Delivery) -> String {
    delivery.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default()
}

fn ids(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(id).collect()
}

fn header(delivery: &Delivery, key: &str) -> Option<AMQPValue> {
    delivery.properties.headers().as_ref().and_then(|headers| headers.inner().get(key).cloned())
}

/// A header that is a number.
fn count(delivery: &Delivery, key: &str) -> Option<i64> {
    header(delivery, key).as_ref().and_then(crate::headers::integer)
}

/// The reason of a closed channel or connection
fn closed(events: &[Event]) -> Option<(u16, String)> {
    events.iter().find_map(|event| match event {
        Event::Closed { code, text } => Some((*code, text.clone())),
        _ => None,
    })
}
