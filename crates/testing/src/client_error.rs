//! Why a call of the test client failed.

use std::time::Duration;

use super::eventually::NotInTime;

crate::debug_is_display!(ClientError);

/// Why a call of the test client failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The broker refused, or the connection is lost.
    #[error("cannot {what}: {reason}")]
    Broker {
        /// What was tried.
        what: String,
        /// The broker's or the connection's error.
        reason: String,
    },
    /// The broker did not answer.
    #[error("cannot {what}: no answer within {limit:?}")]
    NoAnswer {
        /// What was tried.
        what: String,
        /// How long it may take.
        limit: Duration,
    },
    /// The broker refused to keep a message.
    #[error(
        "the broker refused a message to exchange '{exchange}' with routing key '{routing_key}' (basic.nack)"
    )]
    Refused {
        /// Where it was published.
        exchange: String,
        /// With which key.
        routing_key: String,
    },
    /// A message matched no queue.
    #[error(
        "no queue for a message to exchange '{exchange}' with routing key '{routing_key}'; declare and bind one first"
    )]
    Unroutable {
        /// Where it was published.
        exchange: String,
        /// With which key.
        routing_key: String,
    },
    /// JSON that is not an AMQP field.
    #[error("{field} is not an AMQP field: {reason}")]
    Field {
        /// The JSON.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// AMQP's short strings have at most 255 bytes.
    #[error("the text that starts with '{text}' is longer than 255 bytes")]
    TooLong {
        /// Its start.
        text: String,
    },
    /// Fewer messages came than were awaited.
    #[error(transparent)]
    TooFew(#[from] NotInTime),
}
