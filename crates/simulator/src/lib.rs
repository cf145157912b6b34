//! A simulated RabbitMQ: a pure state machine that does what 3.10, 4.0 and 4.3 do with messages.

mod arguments;
mod broker;
mod channel;
mod connection;
mod dead_letter;
mod delivery;
mod error;
mod exchange;
mod headers;
mod message;
mod names;
mod permissions;
mod policy;
mod protocol;
mod publish;
mod queue;
mod subscribe;
mod topology;

pub use broker::{Alarm, Broker, Permissions, Policy, QueueView};
pub use protocol::{ChannelNumber, ConnectionId, Delivery, Event, Method, Sent, Time, Version};

#[cfg(test)]
mod tests;
