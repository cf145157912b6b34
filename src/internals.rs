//! What the packages around the library share with it: the client, the broker, the headers, the
//! names of queues and exchanges.
//!
//! No part of the API. It changes in any release, so those packages pin the exact version.

pub use crate::broker::acks::{Frame, SettledTags};
pub use crate::broker::answer::answer;
pub use crate::broker::channel::open_confirming;
pub use crate::broker::client;
pub use crate::broker::connection::Link;
pub use crate::broker::declare::table;
pub use crate::broker::delayed_retry::knows_delayed_retry;
pub use crate::broker::dial;
pub use crate::broker::lane::{Lane, NotTaken, Outgoing};
pub use crate::broker::look::{look_at, look_on};
pub use crate::broker::name::short;
pub use crate::broker::open::password;
pub use crate::broker::queued::queued;
pub use crate::clock::{SimulatedDate, date, simulate};
pub use crate::consume::onlooker::{Sighting, watched};
pub use crate::error::{describe, namespace_of};
pub use crate::lobby::{Guest, Lobby};
pub use crate::message::Address;
pub use crate::random::{Seeded, random, seed};
pub use crate::retry::ledger::{Replay, cut};
pub use crate::settings::address::{InvalidUrl, uris};
pub use crate::settings::resolve::{QueueConfig, Resolved};
pub use crate::telemetry::unrecorded::suppress_unrecorded_hint;
pub use crate::telemetry::values::Values;
pub use crate::topology::{
    CONSUMER_TIMEOUT, NAMESPACE, Names, WAITS_IN, ask_for, build, copies_go_to, discarded,
};
pub use crate::wire::{HeadersTooLarge, Room, names, parked as at_rest, receipt, table_size};

/// The names of attributes and metrics.
pub mod attributes {
    pub use crate::telemetry::names::*;
}

/// The rest of a message in the trace of its chain.
pub mod rested {
    pub use crate::telemetry::rested::{TraceOf, build, ended, one_line};
}
