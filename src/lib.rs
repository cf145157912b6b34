//! rehop consumes from RabbitMQ and retries failed messages: immediately, within the broker's
//! delivery limit, or after a delay. A message keeps its routing key, deadline and history. Its
//! attempts share one OpenTelemetry trace, if it has an id or a trace context.
//!
//! ```no_run
//! use rehop::{Failure, Message, Settings};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     amount: String,
//! }
//!
//! async fn charge(order: Message<Order>) -> Result<(), Failure> {
//!     let amount: u32 = order.body.amount.parse()?; // any error is retried as configured
//!     if amount == 0 {
//!         return Err(Failure::permanent("the amount is zero")); // parked now
//!     }
//!     Ok(())
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let shutdown = rehop::shutdown_signal(); // SIGTERM counts from here on
//! let settings = Settings::load()?;
//! let summary =
//!     rehop::Service::new(&settings).consumer("orders", charge).with_graceful_shutdown(shutdown).await?;
//! println!("{summary}");
//! # Ok(()) }
//! ```
//!
//! # The path of a message
//!
//! ```text
//!                    at once, within `immediate`
//!                 ┌──────── reject ◄────────┐
//!                 ▼                         │
//! publisher ─► work queue ─► delivery ─► handler ─► ack
//!                 ▲  │                      │ │
//!                 │  │                      │ └─ park ──► <queue>.parked
//!                 │  └─── delivery limit ───┼───────────────┘
//!                 │                         ▼ wait
//!                 └── return exchange ◄─ wait queue (TTL)
//! ```
//!
//! Unroutable messages go to the stray queue.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | delivery | one `basic.deliver` of a message |
//! | attempt | one run of the handler; its number also counts deliveries that ended without a run, for instance in a crash |
//! | requeue | to give a message back for an immediate attempt |
//! | hop | one wait of a message, from a failed attempt until its next one |
//! | chain | all attempts and hops of one message |
//! | tier | a wait queue whose TTL is one of `retry.delays` |
//! | rung | one of the wait queues of the ladder, whose TTLs double and add up to any delay |
//! | defer | to let a message wait without using up an attempt or a wait of the policy |
//! | park | to move a message to `<queue>.parked`, with the reason and the history |
//! | stray | a message that matched no route; kept in `<namespace>.stray` |
//! | settle | to ack, reject or nack a delivery, which ends it |
//! | copy | a message that rehop publishes in place of the one that it settles |
//! | stand-in | the text that is shown for a property or a routing key that is not UTF-8 |
//! | leg | one of several waits in a row that make up one hop |
//! | charge | one delivery counted by the broker against a message's delivery limit |
//! | suspect | a message that came back, and may have killed a process |
//! | slot | the right to run one handler of a queue; there are `concurrency` of them |
//! | window | how many deliveries of a queue a process may have unsettled now, at most `prefetch` |
//! | hold | to keep a delivery in the process between two attempts (strategy `in-process`) |
//! | session | the life of one channel that consumes a queue |
//! | lane | a confirming channel that copies are published on |
//! | ledger | what a message's headers say about its attempts, waits and failures |
//!
//! # Where to read on
//!
//! [`Service`] consumes queues, [`Failure`] is what handlers return, [`Message`] what they get, and
//! [`Publisher`] publishes. With [`Classify`] an error type of your own says what becomes of the
//! message, and [`Decode`] reads bodies that are not JSON. [`ServiceHandle`] pauses queues and stops
//! the service. [`Settings`] has the layers of settings, [`telemetry`] traces and metrics.
//!
//! Pages: [tutorial](docs::tutorial), [cookbook](docs::cookbook), [questions, by
//! symptom](docs::faq), [how it works](docs::architecture), [why](docs::decisions), [what is
//! promised](docs::guarantees), [alternatives](docs::comparison), [settings](docs::settings),
//! [which way to wait](docs::waiting), [queues, exchanges and permissions](docs::topology),
//! [sizing](docs::sizing), [headers](docs::headers), [producers in other
//! languages](docs::producers), [moving a service over](docs::migration),
//! [runbooks](docs::runbooks), [testing a service](docs::testing), [how rehop is
//! tested](docs::proof), [versions](docs::versions), [changes](docs::changelog).
//!
//! # Packages
//!
//! | package | for | gives |
//! |---|---|---|
//! | `rehop` | services | this library, and nothing else |
//! | `rehop-testing` | tests of services | a prelude with all of them: one attempt, virtual time, real brokers with faults |
//! | `rehop-worlds` | tests of services | whole services on a simulated broker, in virtual time: faults, restarts and hours in milliseconds |
//! | `rehop-simulator` | tests | the simulated broker alone |
//! | `rehop-cli` | operators | the tool `rehop`, with the relay |
//! | `rehop-operator` | programs for operators | parked messages, the doctor, the comparison of topologies |
//! | `rehop-page` | programs for operators | a local web page over these |
//!
//! # Features
//!
//! | feature | gives |
//! |---|---|
//! | `tls-ring` (default), `tls-aws-lc` | TLS through rustls, with ring or aws-lc |
//! | `otlp` | `telemetry::init`: the OpenTelemetry SDK with OTLP exporters |
//! | `monitoring` | the module `monitoring`: probes and Prometheus metrics over HTTP |
//! | `anyhow`, `eyre` | downcasts of the errors inside an `anyhow::Error` or `eyre::Report`: [`Failure::source`] |
//! | `gzip` | `Gzip`: a decoder for compressed bodies |
//! | `tower` | `layered`: layers of tower around a handler |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[allow(missing_docs, reason = "no part of the API, although `internals` shares some of it")]
mod broker;
mod clock;
mod consume;
mod consumer;
mod debug;
mod decode;
pub mod docs;
mod duration;
mod error;
mod failure;
mod handle;
mod handler;
#[cfg(test)]
mod inputs;
#[doc(hidden)]
pub mod internals;
mod lobby;
mod lock;
mod message;
#[cfg(feature = "monitoring")]
pub mod monitoring;
mod pause;
mod publish;
mod publisher;
mod pulse;
mod random;
mod retry;
mod service;
pub mod settings;
mod shutdown;
pub mod signals;
mod status;
pub mod telemetry;
pub mod testing;
mod timestamp;
pub mod topology;
mod wait;
#[allow(missing_docs, reason = "no part of the API, although `internals` shares some of it")]
mod wire;

#[cfg(all(doctest, feature = "otlp"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The crate whose [`Bytes`](bytes::Bytes) are in this interface.
pub use bytes;
pub use consume::summary::{Stopped, Summary};
pub use consumer::Consumer;
#[cfg(feature = "gzip")]
pub use decode::Gzip;
pub use decode::{Decode, DecodeError, Json, Raw};
pub use error::{Error, Limit, Problem, QueueKind};
pub use failure::{Classify, Failure, Verdict};
/// The crate whose [`Figment`](figment::Figment) is in this interface.
pub use figment;
pub use handle::{HandleError, InEffect, ServiceHandle};
pub use handler::{FailureEvent, Handler, with_state};
#[cfg(feature = "tower")]
pub use handler::{HandlerError, HandlerService, layered};
pub use message::{Encoded, HeaderValue, Message};
pub use publisher::{Publish, PublishError, Publisher};
pub use retry::backoff::{Backoff, MAX_WAITS};
pub use retry::decision::Reason;
pub use retry::ledger::ErrorRecord;
pub use retry::outcome::Outcome;
pub use retry::policy::RetryPolicy;
pub use service::Service;
pub use settings::{Settings, SettingsError};
pub use signals::shutdown_signal;
pub use status::{ConnectionStatus, QueueStatus, Status};
pub use timestamp::Timestamp;
pub use topology::Topology;
pub use wait::MAX_DELAY;
