//! rehop consumes from RabbitMQ and survives failing messages: they are requeued at once under the broker's delivery limit,
//! or wait out a backoff in TTL wait queues and come home with their routing key, a deadline and one OpenTelemetry trace.

mod backoff;
mod codec;
mod connection;
mod consumer;
mod duration;
mod error;
mod failure;
mod handler;
mod headers;
mod hop;
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
