//! What a channel knows: its consumers, its deliveries, its publishes, and what has to wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lapin::types::ShortString;

use crate::names::{Name, QueueId};
use crate::protocol::{ChannelNumber, ConnectionId, Method, Time};
use crate::queue::{Effect, Handed};

#[derive(Debug, Default)]
pub(crate) struct Channel {
    pub(crate) connection: ConnectionId,
    pub(crate) number: ChannelNumber,
    pub(crate) prefetch: u16,
    /// How many it has sent to its client.
    pub(crate) deliveries: u64,
    pub(crate) consumers: BTreeMap<Name, QueueId>,
    /// By their delivery tag.
    pub(crate) unacked: BTreeMap<u64, Unacked>,
    pub(crate) is_confirming: bool,
    /// How many it has numbered since `confirm.select`.
    pub(crate) publishes: u64,
    /// Publishes, and how many queues have not taken them yet.
    pub(crate) unconfirmed: BTreeMap<u64, usize>,
    pub(crate) confirmed: Vec<u64>,
    pub(crate) refused: Vec<u64>,
    /// Queues that have to hear when the channel ends.
    pub(crate) queues: BTreeSet<QueueId>,
    /// What an empty queue name means.
    pub(crate) last_declared: ShortString,
    /// The queue whose answer it waits for. Nothing else happens on the channel meanwhile.
    pub(crate) waits_for: Option<QueueId>,
    pub(crate) mailbox: VecDeque<Mail>,
    pub(crate) consumer_timeout: Time,
    pub(crate) has_tick: bool,
}

/// A delivery that a channel has to settle.
#[derive(Debug)]
pub(crate) struct Unacked {
    pub(crate) queue: QueueId,
    pub(crate) handed: Handed,
    pub(crate) since: Time,
}

/// What comes while a channel waits.
#[derive(Debug)]
pub(crate) enum Mail {
    Method(Method),
    Effect(QueueId, Effect),
}
