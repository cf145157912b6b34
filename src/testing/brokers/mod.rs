//! Real brokers, a client for them, and faults.

mod broker;
mod client;
mod client_error;
mod cluster;
mod command;
mod container;
mod error;
mod eventually;
mod fields;
mod namespace;
mod node;
mod ports;
mod probe;
mod properties;
mod proxy;
mod recipe;
mod url;
mod watchdog;

pub use broker::{Broker, BrokerBuilder};
pub use client::{Client, Publish, Received};
pub use client_error::ClientError;
pub use cluster::Cluster;
pub use error::BrokerError;
pub use eventually::{NotInTime, Observed, eventually};
pub use namespace::Namespace;
pub use properties::Properties;
pub use proxy::{Proxy, ProxyConnection};
pub use recipe::TlsListener;
