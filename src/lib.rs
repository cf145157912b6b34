//! rehop consumes from RabbitMQ and survives failing messages: they are requeued at once under the broker's delivery limit,
//! or wait out a backoff in TTL wait queues and come home with their routing key, a deadline and one OpenTelemetry trace.
//!
//! ```no_run
//! use rehop::{Failure, Message, Settings};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     amount: String,
//! }
//!
//! async fn charge(order: &Order) -> Result<(), Failure> {
//!     let amount: u32 = order.amount.parse()?; // any error: tried again, as the settings say
//!     if amount == 0 {
//!         return Err(Failure::permanent("an order of nothing")); // parked now
//!     }
//!     Ok(())
//! }
//!
//! # async fn shutdown_signal() {}
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::load()?;
//! let summary = rehop::connect(&settings)
//!     .await?
//!     .consumer("orders", |order: Message<Order>| async move { charge(&order).await })
//!     .with_graceful_shutdown(shutdown_signal())
//!     .await?;
//! println!("{summary}");
//! # Ok(()) }
//! ```
//!
//! # A message's way
//!
//! ```text
//!                    at once, within `immediate`
//!                 ┌──────── reject ◄────────┐
//!                 ▼                         │
//! publisher ─► work queue ─► delivery ─► handler ─► ack
//!                 ▲  │                      │ │
//!                 │  │ delivery limit       │ └─ park ──► <queue>.parked
//!                 │  └──────────────────────┼────────────►     ▲
//!                 │                         ▼                  │ no attempt left
//!                 └── return exchange ◄─ wait queue (TTL) ─────┘
//! ```
//!
//! What finds no route on this way is kept in the stray queue.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | delivery | one `basic.deliver` of a message |
//! | attempt | one run of the handler |
//! | requeue | to give a message back for another attempt at once |
//! | hop | one trip through wait queues and back |
//! | chain | all attempts and hops of one message |
//! | tier | a wait queue with one fixed TTL |
//! | park | to move to `<queue>.parked`, with the reason and the history |
//! | stray | what matched no route; kept in `<namespace>.stray` |
//! | settle | to ack, reject or nack: what ends a delivery |
//!
//! # Where to read on
//!
//! [`connect`] and [`Rehop`] run a service, [`Failure`] is what its handlers say, [`Message`] what they get. [`Settings`] has the
//! layers of settings, [`telemetry`] traces and metrics. Pages: [how it works, and why](docs::architecture), [what is
//! promised](docs::guarantees), [moving a service over](docs::migration), [changes](docs::changelog).
//!
//! # Features
//!
//! | feature | gives |
//! |---|---|
//! | `tls-ring` (default), `tls-aws-lc` | TLS, by one of the two |
//! | `otlp` | `telemetry::init`: the OpenTelemetry SDK with OTLP exporters |
//! | `testing` | the module `testing`: real brokers for tests |
//! | `cli` | the tool `rehop` |

mod backoff;
mod codec;
mod connection;
mod consumer;
pub mod docs;
mod duration;
mod error;
mod failure;
mod handler;
mod headers;
mod hop;
#[cfg(test)]
mod inputs;
mod ledger;
mod message;
mod policy;
mod publisher;
mod queue;
mod session;
mod settings;
mod settle;
mod tally;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod tiers;
mod timestamp;
mod topology;
mod window;

#[cfg(all(doctest, feature = "otlp"))]
#[doc = include_str!("../README.md")]
struct Readme;

pub use backoff::{Backoff, MAX_DELAY, MAX_WAITS};
pub use codec::{Codec, DecodeError, Json, Raw};
pub use consumer::{Rehop, connect};
pub use error::Error;
pub use failure::Failure;
pub use handler::Handler;
pub use ledger::ErrorRecord;
pub use message::{HeaderValue, Message};
pub use policy::{Ending, Reason, RetryPolicy, Treatment};
pub use settings::{
    BindingSettings, BrokerSettings, ConsumeSettings, Declare, Entry, Loader, MaxAge, QueueSettings, QueueType,
    RetrySettings, Settings, SettingsError, ShutdownSettings, TlsSettings, TopologyMode, TraceSettings,
};
pub use tally::{Stopped, Summary};
pub use timestamp::Timestamp;
pub use topology::{Argument, Arguments, Binding, Exchange, ExchangeKind, Queue, Role, Topology};
