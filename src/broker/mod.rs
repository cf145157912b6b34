//! The broker: connections, what is declared on it, and how acks are combined.

pub(crate) mod acks;
pub(crate) mod answer;
pub(crate) mod channel;
pub mod client;
pub(crate) mod connection;
pub(crate) mod declare;
pub(crate) mod delayed_retry;
pub mod dial;
mod end_runtime;
mod given_up_channels;
pub(crate) mod keeper;
pub(crate) mod lane;
mod lapin_client;
pub(crate) mod look;
pub(crate) mod name;
pub(crate) mod open;
mod queue_kind;
pub(crate) mod queued;
mod rotation;
pub(crate) mod scout;
mod transport;
