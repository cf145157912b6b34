//! Why something could not be done with messages at rest.

use crate::error::Error;
use crate::settings::SettingsError;

crate::debug::debug_is_display!(ParkedError);

/// Why something could not be done with messages at rest. Nothing is lost by any of these: what was taken is back in its queue.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ParkedError {
    /// The settings, the connection or a permission.
    #[error(transparent)]
    Broker(#[from] Error),
    /// Another operator works on this queue.
    #[error("somebody else is working on queue {queue:?}; try again when they have finished")]
    Busy {
        /// The queue.
        queue: String,
    },
    /// Looking could delete messages.
    #[error(
        "not looking at queue {queue:?}: a message in it was given back {returns} times, and looking may count as one more; where the queue \
         has no high x-delivery-limit, RabbitMQ 4.x deletes a message that was given back more than 20 times, and before 4.3 this look was one of them. Run `rehop doctor`, or move the \
         messages to a queue that rehop declares"
    )]
    NearLimit {
        /// The queue.
        queue: String,
        /// How often the broker says that the message was given back.
        returns: u32,
    },
    /// The operation was told to stop while it looked at messages.
    #[error("it was told to stop; every message that it looked at is back in its place")]
    Stopped,
    /// Not all messages could be looked at, and all are needed.
    #[error(
        "only {looked_at} of {wanted} messages in queue {queue:?} could be looked at: it took longer than half of broker.consumer_timeout, or \
         others took some"
    )]
    Incomplete {
        /// The queue.
        queue: String,
        /// How many were looked at.
        looked_at: u64,
        /// How many there were to look at.
        wanted: u64,
    },
    /// No message has this id.
    #[error("no message of chain {chain:?} among the {looked_at} that were looked at")]
    NoSuchMessage {
        /// The id.
        chain: String,
        /// How many were looked at.
        looked_at: u64,
    },
    /// Several messages have this id, and only one may be edited.
    #[error("{count} messages are of chain {chain:?}; editing needs one")]
    NotOne {
        /// The id.
        chain: String,
        /// How many there are.
        count: u64,
    },
    /// Nothing says which work queue the message belongs to.
    #[error("the message does not say which queue it belongs to; name it with --to")]
    NoDestination,
    /// A copy's headers do not fit into a frame.
    #[error("message {chain:?} cannot be copied: {problem}")]
    TooLarge {
        /// Its chain.
        chain: String,
        /// What is too large.
        problem: String,
    },
    /// A queue refused a copy, as a full one does. The original stays where it is.
    #[error("the broker refused a message to {to}: a queue is full, or something that it needs is missing")]
    Refused {
        /// Where it was sent.
        to: String,
    },
    /// Only discarded messages can be restored.
    #[error("messages can be restored only out of the discarded queue")]
    NotDiscarded,
    /// What is discarded already cannot be discarded again.
    #[error("messages of the discarded queue are discarded already")]
    AlreadyDiscarded,
    /// The message has changed since it was read.
    #[error("message {chain:?} is no longer what it was; look at it again")]
    Changed {
        /// Its chain.
        chain: String,
    },
    /// A line of an import cannot be imported; `problem` says why.
    #[error("line {line} cannot be imported: {problem}")]
    BadLine {
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        problem: String,
    },
}

impl ParkedError {
    /// What the log says of it: all of it, but for what a line of an import may quote of its message.
    pub(crate) fn in_log(&self) -> String {
        match self {
            Self::BadLine { line, .. } => {
                format!(
                    "line {line} cannot be imported; the reason is left out of the log, because it may quote the message"
                )
            }
            other => other.to_string(),
        }
    }
}

impl From<SettingsError> for ParkedError {
    fn from(error: SettingsError) -> Self {
        Self::Broker(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_which_line_is_bad_and_quotes_nothing_of_it() {
        let bad = ParkedError::BadLine { line: 7, problem: "invalid type: string \"hunter2\"".to_owned() };
        let logged = bad.in_log();
        assert!(logged.starts_with("line 7 cannot be imported") && !logged.contains("hunter2"), "{logged}");
        let refused = ParkedError::Refused { to: "queue orders.parked".to_owned() };
        assert_eq!(refused.in_log(), refused.to_string());
    }
}
