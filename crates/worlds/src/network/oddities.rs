//! Copies that a process should not have sent as it did, and messages that operators have sent
//! back.

use lapin::BasicProperties;
use rehop::internals::at_rest::{self, AtRest};
use rehop::internals::names::EXPIRES_AT;
use rehop_simulator::Time;

use super::Process;

/// A copy tells no more failures than this.
const MOST_FAILURES_TOLD: usize = 10;

/// A copy that a process should not have sent as it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OddCopy {
    /// When it was sent.
    pub sent: Time,
    /// Who sent it.
    pub process: Process,
    /// The message.
    pub message: String,
    /// What is odd about it.
    pub oddity: Oddity,
}

/// What is odd about a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oddity {
    /// The process had lost the channel that brought the original, so that the broker has two.
    AfterLoss {
        /// When.
        lost: Time,
    },
    /// The broker had said that it reads nothing on this connection. lapin keeps the copy and sends
    /// it later, even if it is given up meanwhile.
    WhileBlocked,
    /// It tells fewer failures than the message had.
    WithoutHistory {
        /// How often the message has waited, as the copy says.
        waits: u32,
        /// How many failures the copy tells.
        failures: usize,
        /// Whether it says that an attempt has just failed.
        has_failed: bool,
    },
}

/// A message that an operator has sent back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// When.
    pub at: Time,
    /// By which replay.
    pub process: Process,
    /// The message.
    pub message: usize,
}

/// Each wait follows a failure, and so does the end of a message that no attempt could help.
pub(super) fn without_history(properties: &BasicProperties) -> Option<Oddity> {
    let AtRest { reason, hops, errors, .. } = at_rest::read(properties, EXPIRES_AT);
    let has_failed = matches!(reason.as_deref(), Some("exhausted" | "permanent"));
    let (waits, failures) = (hops, errors.len());
    let least = (waits as usize).max(usize::from(has_failed)).min(MOST_FAILURES_TOLD);
    (failures < least).then_some(Oddity::WithoutHistory { waits, failures, has_failed })
}
