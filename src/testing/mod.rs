//! Real brokers for tests: yours and this crate's own (feature `testing`).
//!
//! ```no_run
//! use std::time::Duration;
//! use rehop::testing::{Broker, Namespace, Publish, eventually};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = Broker::shared().await;
//! let namespace = Namespace::new("orders");
//! let queue = namespace.queue("orders");
//!
//! let client = broker.client().await?;
//! client.declare_queue(&queue, serde_json::json!({ "x-queue-type": "quorum" })).await?;
//! client.publish(Publish::to_queue(&queue).body("hello").header("tries", 3)).await?;
//!
//! let received = client.drain(&queue, 1, Duration::from_secs(5)).await?;
//! assert_eq!(received[0].body, b"hello");
//! eventually(Duration::from_secs(5), "the queue is empty", async || {
//!     client.depth(&queue).await.map(|depth| depth == 0)
//! })
//! .await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Which broker
//!
//! | taken | when |
//! |---|---|
//! | the one that `REHOP_TEST_AMQP_URL` names | it is set (`REHOP_TEST_MANAGEMENT_URL` may be set beside it) |
//! | a container, `rabbitmq:4.3-management` | Docker answers; `REHOP_TEST_RABBITMQ_TAG` or [`BrokerBuilder::tag`] selects another tag |
//! | a private node of the installed `rabbitmq-server` | neither of the above; it gets its own ports, directory, name and cookie |
//!
//! Which one was taken is said once on standard error. Everything listens on 127.0.0.1 only.
//!
//! # What is left behind
//!
//! Nothing. A small shell process waits at the end of a pipe that the test process holds open. When that process ends,
//! even by SIGKILL, the pipe closes and the shell removes the container, or kills the node and deletes its directory.
//! This is also what makes [`Broker::shared`] possible: Rust drops no statics.
//!
//! # Faults
//!
//! [`Broker`] restarts, stops, kills and pauses; [`Cluster`] does the same to one of several nodes and cuts a node off from
//! its peers; [`Proxy`] stands between a client and a broker and breaks, delays or silences single connections.

mod broker;
mod client;
mod cluster;
mod command;
mod container;
mod error;
mod eventually;
mod fields;
mod namespace;
mod node;
mod probe;
mod properties;
mod proxy;
mod url;
mod watchdog;

pub use broker::{Broker, BrokerBuilder, TlsListener};
pub use client::{Client, ClientError, Publish, Received};
pub use cluster::Cluster;
pub use error::BrokerError;
pub use eventually::{NotInTime, Observed, eventually};
pub use namespace::Namespace;
pub use properties::Properties;
pub use proxy::{Proxy, ProxyConnection};
