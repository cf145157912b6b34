//! A simulated RabbitMQ: a pure state machine that does what 3.10, 4.0 and 4.3 do with messages.
//!
//! Methods of AMQP 0.9.1 and the time go in, and what the broker would send comes out. Nothing else
//! happens: there are no tasks, no sockets, no clock and no random numbers, so a run can be
//! repeated exactly.
//!
//! ```
//! use lapin::types::{AMQPValue, FieldTable};
//! use rehop_simulator::{Broker, Event, Method, Time, Version};
//!
//! let mut broker = Broker::new(Version::V4_3);
//! let connection = broker.connect(Time::ZERO, "guest").expect("the node is up");
//! let mut arguments = FieldTable::default();
//! arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
//! arguments.insert("x-message-ttl".into(), AMQPValue::LongInt(1000));
//! let declare = Method::DeclareQueue {
//!     queue: "orders".into(),
//!     is_passive: false,
//!     is_durable: true,
//!     is_exclusive: false,
//!     is_auto_delete: false,
//!     arguments,
//! };
//! let publish = Method::Publish {
//!     exchange: "".into(),
//!     routing_key: "orders".into(),
//!     is_mandatory: true,
//!     properties: Box::default(),
//!     body: b"an order".to_vec(),
//! };
//! for method in [Method::OpenChannel, Method::ConfirmSelect, declare, publish] {
//!     broker.receive(Time::ZERO, connection, 1, method);
//! }
//! let last = broker.sent().last().expect("each method was answered");
//! assert_eq!(last.event, Event::Acked { delivery_tag: 1, is_multiple: false });
//!
//!  // The message expires after a second.
//! assert_eq!(broker.next_timer(), Some(Time::from_secs(1)));
//! broker.pass_time(Time::from_secs(1));
//! assert!(broker.queue("orders").expect("it was declared").ready.is_empty());
//! ```
//!
//! # How it is built
//!
//! From the bottom up: `protocol` is what a client and the broker say to each other; `message`,
//! `arguments`, `policy` and `exchange` are what there is. `queue` is a state machine of its own
//! that takes commands and returns effects, as RabbitMQ's quorum queue is. `connection`, `channel`
//! and `broker` are the state of a node. Above it each subject has a file: `topology` declares and
//! binds, `publish` routes and confirms, `subscribe` and `delivery` are about consumers, and
//! `dead_letter` is what happens to messages that a queue gives up. `methods` says which method
//! does what. `node` lets time pass and carries out what follows from it all. Where the versions
//! differ, the place says so, with the version.

mod arguments;
mod broker;
mod channel;
mod connection;
mod dead_letter;
mod death;
mod delivery;
mod error;
mod exchange;
mod headers;
mod limited;
mod limits;
mod message;
mod methods;
mod names;
mod node;
mod permissions;
mod policy;
mod protocol;
mod publish;
mod queue;
mod subscribe;
mod topology;

pub use broker::Broker;
pub use connection::Alarm;
pub use limits::Limits;
pub use permissions::Permissions;
pub use protocol::{ChannelNumber, ConnectionId, Delivery, Event, Method, Sent, Time, Version};
pub use queue::{QueueView, Turnover};

#[cfg(test)]
mod tests;
