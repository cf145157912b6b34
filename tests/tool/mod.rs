//! The tool as users meet it: a process, a real broker, a real HTTP server.

mod broker_api;
mod cli;
mod cluster;
mod doctor;
mod endpoint;
mod examined;
mod kills;
mod monitoring;
mod parked;
mod process;
mod producers;
mod publish;
mod relay;
mod shutdown;
mod topology;
mod traps;
