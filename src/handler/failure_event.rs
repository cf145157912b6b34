//! What a service is told of each failure.

use std::sync::Arc;

use crate::failure::Failure;
use crate::retry::outcome::Outcome;

/// A function of the service that is told of each failure.
pub(crate) type OnFailure = Arc<dyn Fn(&FailureEvent<'_>) + Send + Sync>;

/// An attempt that failed, or a message that was parked or discarded without one.
///
/// [`Consumer::on_failure`](crate::Consumer::on_failure) passes it on once the outcome is settled.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FailureEvent<'a> {
    /// The work queue.
    pub queue: &'a str,
    /// The message's `message_id` property. It is the same on every attempt.
    pub message_id: Option<&'a str>,
    /// Identifies the chain, as on spans and log lines.
    pub chain_id: &'a str,
    /// The number of the attempt, from 1. If no attempt was made, the number that it would have
    /// had.
    pub attempt: u32,
    /// What became of the message.
    pub outcome: Outcome,
    /// Why the attempt failed. `None` if the message had expired before it.
    pub failure: Option<&'a Failure>,
}
