//! Names, and the numbers by which the parts of a broker know each other.

use std::sync::Arc;

use lapin::types::ShortString;

/// The name of a queue or exchange, a routing key or a consumer tag.
pub(crate) type Name = Arc<str>;

/// A queue. A queue that is declared again after its deletion is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueId(pub(crate) u64);

/// A channel. Other than its number on the connection, this is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChannelId(pub(crate) u64);

/// What a queue knows a consumer by, together with its channel. What several consumers settle at
/// once is settled in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tag {
    /// A `basic.get` is a consumer of one message, known by its delivery tag.
    Get(u64),
    /// A subscription.
    Subscription(Name),
}

/// Who sends a message to a queue, and hears what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Publisher {
    /// A client's channel.
    Channel(ChannelId),
    /// The dead-letter worker of a queue.
    Worker(QueueId),
}

/// A name as AMQP sends it. What is too long for that cannot be the name of anything.
pub(crate) fn short(name: &str) -> ShortString {
    ShortString::try_new(name).unwrap_or_default()
}

/// A count as AMQP sends it.
pub(crate) fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
