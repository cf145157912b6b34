//! The page: what protects it, what it shows, and what it does, by HTTP and in a real browser.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]
#![allow(dead_code, reason = "the helpers are those of the other tests")]

#[path = "tool/endpoint.rs"]
mod endpoint;
#[path = "page/mod.rs"]
mod page;
#[path = "tool/process.rs"]
mod process;
mod support;
