//! Tests of services that consume from RabbitMQ.
//!
//! The `prelude` (feature `rehop`, on by default) has all that a test of a service of rehop needs:
//! one attempt, the whole service in virtual time, and the same on a real broker.
//!
//! The rest is real RabbitMQ brokers, a small client for them, and faults. It knows nothing of
//! rehop, and with `default-features = false` it is all that there is.
//!
//! ```no_run
//! use std::time::Duration;
//! use rehop_testing::{Broker, Namespace, Publish, eventually};
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
//! The first of these that is possible:
//!
//! - The one named by `REHOP_TEST_AMQP_URL`, if that is set. `REHOP_TEST_MANAGEMENT_URL` may be set
//!   too.
//! - The running container named by `REHOP_TEST_CONTAINER`, if that is set, so that several test
//!   processes can share one broker. `REHOP_TEST_MANAGEMENT_URL` counts if the container does not
//!   publish 15672.
//! - A container of its own, `rabbitmq:4.3-management` or, if only that is there,
//!   `rehop-rabbitmq:4.3`, if Docker answers. `REHOP_TEST_RABBITMQ_TAG` or [`BrokerBuilder::tag`]
//!   selects another tag.
//! - A private node of the installed `rabbitmq-server`. It gets its own ports, directory, name and
//!   cookie.
//!
//! The choice is printed once on standard error. Everything listens only on 127.0.0.1.
//!
//! # What is left behind
//!
//! Of a broker that the tests started, nothing. A small shell process reads from a pipe that the
//! test process holds open. When the test process ends, even by SIGKILL, the pipe closes and the
//! shell removes the container, or kills the node and deletes its directory. This is also what makes
//! [`Broker::shared`] possible, because Rust does not drop statics.
//!
//! On a broker that ran already, what tests declare stays until they delete it. `RealWorld::finish`
//! tries to delete the world's virtual host, also if it then panics; a test that fails before that
//! leaves it behind, under a name that begins with `t-`.
//!
//! # Faults
//!
//! A [`Broker`] can be restarted, stopped, killed and paused. [`Management`] sets policies and
//! permissions, and closes connections. A [`Cluster`] does the same with one of several nodes, and
//! can cut a node off from its peers. A [`Proxy`] between a client and a broker breaks, delays or
//! silences single connections.

mod broker;
mod channel;
mod client;
mod client_error;
mod cluster;
mod command;
mod container;
mod error;
mod eventually;
mod fields;
mod management;
mod namespace;
mod node;
mod not_tried;
mod ports;
#[cfg(feature = "rehop")]
pub mod prelude;
mod probe;
mod properties;
mod proxy;
#[cfg(feature = "rehop")]
mod real_world;
mod recipe;
mod url;
mod watchdog;

pub use broker::{Broker, BrokerBuilder};
pub use client::{Client, Publish, Received};
pub use client_error::ClientError;
pub use cluster::Cluster;
pub use error::BrokerError;
pub use eventually::{NotInTime, Observed, eventually};
pub use management::Management;
pub use namespace::Namespace;
pub use not_tried::not_tried;
pub use ports::Port;
pub use properties::Properties;
pub use proxy::{Proxy, ProxyConnection};
#[cfg(feature = "rehop")]
pub use real_world::RealWorld;
pub use recipe::TlsListener;

#[cfg(all(doctest, feature = "rehop"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// `unwrap()`, and a `main` that returns an error, print it with `Debug`. What to do next is in its
/// text.
macro_rules! debug_is_display {
    ($error:ty) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, formatter)
            }
        }
    };
}
use debug_is_display;
