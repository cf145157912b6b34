//! The page: what protects it, what it shows, and what it does, by HTTP and in a real browser.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]
#![allow(dead_code, reason = "the helpers are those of the tool's tests")]

mod acting;
mod browser;
mod door;
mod ending;
#[path = "../tool/endpoint.rs"]
mod endpoint;
mod http;
mod looking;
#[path = "../tool/process.rs"]
mod process;
mod sights;
mod stock;
#[path = "../../../../tests/support/mod.rs"]
mod support;
mod tool;
