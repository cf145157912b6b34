//! What a connection is, and why one is blocked.

use std::collections::{BTreeMap, VecDeque};

use crate::names::{ChannelId, QueueId};
use crate::protocol::{ChannelNumber, Method};

/// Why a broker blocks connections that publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// `low on memory`
    Memory,
    /// `low on disk`
    Disk,
}

#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub(crate) user: String,
    /// The `channel_max` of the moment when it was opened.
    pub(crate) channel_max: Option<u16>,
    pub(crate) channels: BTreeMap<ChannelNumber, ChannelId>,
    /// Queues that are exclusive to it, and go with it.
    pub(crate) exclusive_queues: Vec<QueueId>,
    /// It has published during an alarm, and nothing that it sends is read any more, its acks
    /// included.
    pub(crate) is_blocked: bool,
    pub(crate) unread: VecDeque<(ChannelNumber, Method)>,
}

impl Alarm {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Memory => "low on memory",
            Self::Disk => "low on disk",
        }
    }
}
