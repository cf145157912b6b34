//! What happened in a world, as its handlers and its driver saw it.

use rehop_simulator::Time;

use crate::network::Process;
use crate::scenario::AttemptEnd;

/// An event, and when it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// When.
    pub at: Time,
    /// What.
    pub event: Happened,
}

/// One attempt at a message. Numbers are given in the order in which attempts start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub usize);

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// A process began to run.
    Started(Process),
    /// A process was asked to stop.
    AskedToStop(Process),
    /// A process has stopped, with a summary or an error.
    Stopped(Process, Result<String, String>),
    /// A process was killed.
    Killed(Process),
    /// The broker confirmed a message.
    Published(usize),
    /// A message was not published, because its deadline had passed.
    Expired(usize),
    /// A message could not be published, or its confirm was lost, so it is published again.
    NotPublished(usize, String),
    /// A handler began.
    Began {
        /// The attempt.
        attempt: AttemptId,
        /// Where.
        process: Process,
        /// The message.
        message: usize,
        /// What the service calls this attempt.
        number: u32,
        /// How often the message has waited, as the service says.
        waits: u32,
        /// In an ordered queue: the messages that stand in the queue at this moment, and have no
        /// copy among the parked ones.
        queued: Vec<usize>,
    },
    /// A handler has come to its end.
    Ended(AttemptId, AttemptEnd),
    /// A handler was dropped before its end.
    Dropped(AttemptId),
    /// An operator began to replay the parked messages of a queue.
    ReplayBegan(Process, usize),
    /// A replay has ended, and says how, or was killed.
    ReplayEnded(Process, Result<String, String>),
    /// A process was asked to pause a queue.
    Paused(Process, usize),
    /// A process was asked to go on with a queue, or to drain it.
    Resumed(Process, usize),
    /// Something broke, or was repaired.
    Fault(String),
    /// Nothing breaks from now on.
    Quiet,
    /// Nothing moves any more.
    AtRest,
}
