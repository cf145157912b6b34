//! Tests of a service: handlers without a broker, and real brokers.
//!
//! [`message()`] builds what a handler takes, and [`chain()`] takes a handler through all attempts of a message in virtual time. The
//! feature `testing` adds real brokers, which rehop's own tests use as well.
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
//! | broker | if |
//! |---|---|
//! | the one named by `REHOP_TEST_AMQP_URL` | it is set (`REHOP_TEST_MANAGEMENT_URL` may be set too) |
//! | a container, `rabbitmq:4.3-management` or, if only that is there, `rehop-rabbitmq:4.3` | Docker answers; `REHOP_TEST_RABBITMQ_TAG` or [`BrokerBuilder::tag`] selects another tag |
//! | a private node of the installed `rabbitmq-server` | neither applies; it gets its own ports, directory, name and cookie |
//!
//! The choice is printed once on standard error. Everything listens only on 127.0.0.1.
//!
//! # What is left behind
//!
//! Nothing. A small shell process reads from a pipe that the test process holds open. When the test process ends,
//! even by SIGKILL, the pipe closes and the shell removes the container, or kills the node and deletes its directory.
//! This is also what makes [`Broker::shared`] possible, because Rust does not drop statics.
//!
//! # Faults
//!
//! A [`Broker`] can be restarted, stopped, killed and paused. A [`Cluster`] does the same with one of several nodes, and can cut a
//! node off from its peers. A [`Proxy`] between a client and a broker breaks, delays or silences single connections.

#[cfg(feature = "testing")]
mod brokers;
mod chain;
mod message;

#[cfg(feature = "testing")]
pub use brokers::{
    Broker, BrokerBuilder, BrokerError, Client, ClientError, Cluster, Namespace, NotInTime, Observed, Properties,
    Proxy, ProxyConnection, Publish, Received, TlsListener, eventually,
};
pub use chain::{AttemptRun, ChainRun, chain};
pub use message::{MessageBuilder, message};
