//! The broker: connections, what is declared on it, and how acks are combined.

pub(crate) mod acks;
pub(crate) mod answer;
pub mod channel;
pub(crate) mod connection;
pub(crate) mod declare;
pub(crate) mod keeper;
pub(crate) mod lane;
pub(crate) mod look;
pub(crate) mod name;
pub(crate) mod open;
pub(crate) mod queued;
mod transport;
mod turn;
