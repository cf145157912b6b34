//! The simulator does what RabbitMQ does: the same scripts run on both, and everything that a
//! client sees is compared.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

mod amqp;
mod bench;
mod check;
mod client;
mod generate;
mod lockstep;
mod named;
mod naming;
mod play;
mod random;
mod real;
mod rehearsal;
mod report;
mod sample;
mod script;
mod seen;
mod simulated;
mod words;
