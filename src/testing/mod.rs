//! Tests of a service without a broker.
//!
//! [`message()`] builds what a handler takes, and [`outcome`](MessageBuilder::outcome) says what
//! rehop would do with it. The package `rehop-testing` has a prelude with this and the rest: whole
//! services in virtual time, and real brokers.

mod message;

pub use message::{MessageBuilder, message};
