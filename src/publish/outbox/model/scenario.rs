//! What happens in a world, and what became of each copy.

use std::time::Duration;

pub(crate) const EXCHANGES: usize = 3;
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest that anything takes on its way, in ms.
pub(crate) const LATENCY: u64 = 10;

/// What an exchange, or the queue behind it, does with a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Open,
    Forbidden,
    Missing,
    Full,
    Unroutable,
    /// Stores and confirms when this is over, or nacks if the queue is full then.
    Slow,
}

/// A part of the topology that somebody deletes. Only a repair brings it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deleted {
    Exchange,
    /// The queue behind the exchange, and with it the binding.
    Queue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    Fine,
    /// Its channel is closed (406).
    Malformed,
    /// Its connection is closed (501).
    Deadly,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Weather {
    Drop,
    /// No connection can be made for so long, and the present one is dropped.
    Away(u64),
    /// An alarm: nothing that is sent is read for so long.
    Block(u64),
    /// Nothing that is sent is answered for so long.
    Hang(u64),
    /// No channel can be opened for so long.
    NoChannels(u64),
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) at: u64,
    pub(crate) exchange: usize,
    pub(crate) nature: Nature,
    pub(crate) withdrawn_after: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    /// A channel that was refused a copy by a full queue is refused all that follow (3.10).
    pub(crate) goes_on_refusing: bool,
    pub(crate) copies: Vec<Plan>,
    pub(crate) moods: Vec<(u64, usize, Mood)>,
    pub(crate) weather: Vec<(u64, Weather)>,
    pub(crate) deletions: Vec<(u64, usize, Deleted)>,
    /// After so many sends, and so long, the connection drops: while copies or their answers are on their way.
    pub(crate) cuts: Vec<(usize, u64)>,
}

/// What became of a copy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fate {
    pub(crate) submitted_at: Duration,
    pub(crate) confirmed_at: Option<Duration>,
    pub(crate) is_unpublishable: bool,
    pub(crate) is_withdrawn: bool,
    pub(crate) sent: u32,
    pub(crate) stored: u32,
    /// Losses of the connection, first closes by a new culprit, and confirms that did not come, each while it was under way.
    pub(crate) excuses: u32,
    /// How often the answer was no to it alone, and when it last was.
    pub(super) refusals: u32,
    pub(super) refused_at: Option<(Duration, bool)>,
    /// When it was sent last, the last answer was that its exchange takes nothing.
    pub(super) is_sent_to_closed: bool,
}
