//! The library and the tool on a real broker: one broker for all tests, a namespace and a queue per test.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]
#![allow(
    clippy::disallowed_methods,
    reason = "no connection here opens many channels, and no subscription is dropped before it is answered"
)]

mod integration;
mod support;
#[cfg(feature = "cli")]
mod tool;
