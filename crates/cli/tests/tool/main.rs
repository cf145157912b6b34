//! The tool as users meet it: a process, a real broker, a real HTTP server.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]
#![allow(
    clippy::disallowed_methods,
    reason = "no connection here opens many channels, and no subscription is dropped before it is answered"
)]

mod broker_api;
mod cli;
mod cluster;
mod doctor;
mod endpoint;
mod examined;
mod first_hour;
mod folder;
mod hostile;
mod kills;
mod limits;
mod machine;
mod management_users;
mod monitoring;
mod names;
mod parked;
mod poor_views;
mod process;
mod producers;
mod publish;
mod readme;
mod relay;
mod relay_answers;
mod relay_connections;
mod relay_http2;
mod relay_tls;
mod relay_url;
mod scripting;
mod shutdown;
mod statistics;
#[allow(dead_code, reason = "the library's tests use all of it")]
#[path = "../../../../tests/support/mod.rs"]
mod support;
mod topology;
mod traps;
mod vhost;
