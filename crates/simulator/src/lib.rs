//! A simulated RabbitMQ: a pure state machine that does what 3.10, 4.0 and 4.3 do with messages.

mod broker;
mod protocol;

pub use broker::{Alarm, Broker, Permissions, Policy, QueueView};
pub use protocol::{ChannelNumber, ConnectionId, Delivery, Event, Method, Sent, Time, Version};
