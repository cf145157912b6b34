//! Tests of a service without a broker.
//!
//! [`message()`] builds what a handler takes, and [`chain()`] takes a handler through all attempts of a message in virtual time. For
//! real brokers there is the package `rehop-testing`, and for whole services on a simulated one `rehop-worlds`.

mod chain;
mod message;

pub use chain::{AttemptRun, ChainRun, chain};
pub use message::{MessageBuilder, message};
