//! The tool as users meet it: a process, a real broker, a real HTTP server.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

mod cli;
mod kills;
mod relay;
mod shutdown;
mod support;
