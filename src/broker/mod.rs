//! The broker: connections, and what is declared on it.

pub(crate) mod acks;
pub(crate) mod answer;
pub(crate) mod connection;
pub(crate) mod declare;
pub(crate) mod keeper;
pub(crate) mod look;
pub(crate) mod name;
pub(crate) mod open;
mod turn;
