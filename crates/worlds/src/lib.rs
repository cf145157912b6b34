//! Whole rehop services on a simulated RabbitMQ, in virtual time.

mod network;

pub use network::{Network, Process, Weather};
