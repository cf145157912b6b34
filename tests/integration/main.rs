//! The library as services use it, in this process, on a real broker: one broker for all tests, a
//! namespace and a queue per test.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]
#![allow(
    clippy::disallowed_methods,
    reason = "no connection here opens many channels, and no subscription is dropped before it is answered"
)]

mod addresses;
mod advice;
mod bytes;
mod chains;
mod concurrency;
mod deferring;
mod delayed;
mod endings;
mod full;
mod get_messages;
mod handle;
mod handlers;
mod holding;
mod jitter;
mod keeping;
mod kinds;
mod ladder;
mod late;
mod main_job;
mod native;
mod order;
mod outages;
mod parked;
mod publisher;
mod publishing;
mod requeue;
mod routing;
mod shutdown;
mod sizes;
mod start;
mod status;
#[path = "../support/mod.rs"]
mod support;
mod switching;
mod topology;
mod traps;
mod waiting;
