//! The wire contract: the headers that a message carries through its waits.
//!
//! Other versions of rehop, and other programs, read these from the queue. What is read here may
//! have been written by anyone: nothing panics, and wrong types and absurd numbers are ignored or
//! bounded. Pure: no I/O, no clock.

pub(crate) mod encoding;
mod moment;
pub mod names;
mod overflow;
pub mod parked;
pub(crate) mod priority;
mod read;
pub mod receipt;
mod room;
pub(crate) mod stand_in;
mod values;
mod write;

use std::time::Duration;

pub(crate) use overflow::Resting;
pub(crate) use read::Ignored;
pub use room::{HeadersTooLarge, Room};
pub(crate) use values::properties_size;
pub use values::table_size;
pub(crate) use write::TraceHeaders;

/// What is needed to read and write one queue's headers.
#[derive(Debug, Clone)]
pub(crate) struct Contract {
    /// The work queue.
    pub(crate) queue: String,
    /// A message that one of these exchanges delivers is our own copy. The ledger of any other
    /// message is not read.
    pub(crate) homes: Homes,
    /// The name of the expiry header.
    pub(crate) expiry_header: String,
    /// The time from the delivery before its first wait to a message's deadline, if it brings none.
    pub(crate) max_age: Option<Duration>,
    /// Whether the queue counts deliveries, as quorum queues do. On a classic queue a count could
    /// only be a producer's.
    pub(crate) counts_deliveries: bool,
    /// Whether messages wait in the queue itself. Then the broker's counts tell how often.
    pub(crate) counts_waits: bool,
}

/// The exchanges that deliver copies after a wait. All of them count, whatever the present strategy
/// is and whose the wait queues are, so that this can be changed while messages wait elsewhere.
#[derive(Debug, Clone)]
pub struct Homes {
    /// The return exchange.
    pub return_exchange: String,
    /// Begin the names of the exchanges behind the rungs of the ladder that queues share, and of
    /// the queue's own; the rest is the TTL in milliseconds.
    pub after_prefixes: [String; 2],
    /// The delayed exchange.
    pub delay_exchange: String,
}

#[cfg(test)]
mod tests;
