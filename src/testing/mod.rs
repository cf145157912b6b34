//! Tests of a service without a broker.
//!
//! [`message()`] builds what a handler takes. For whole services on a simulated broker, through all
//! attempts of a message in virtual time, there is the package `rehop-worlds`, and for real brokers
//! `rehop-testing`.

mod message;

pub use message::{MessageBuilder, message};
