//! The library on a real broker: one broker for all tests, a namespace and a queue per test.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

mod concurrency;
mod endings;
mod main_job;
mod outages;
mod requeue;
mod routing;
mod shutdown;
mod sizes;
mod start;
mod support;
mod topology;
mod traps;
mod waiting;
