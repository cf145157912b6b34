//! Why a message could not be published.

use std::time::Duration;

use crate::broker::lane::NotTaken;
use crate::error::{Error, Problem};
use crate::timestamp::Timestamp;

crate::debug::debug_is_display!(PublishError);

/// Why a message could not be published.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// No queue takes the message, so the broker returned it.
    #[error(
        "no queue takes a message to {}; {}",
        destination(exchange, routing_key),
        remedy(exchange, routing_key)
    )]
    Unroutable {
        /// The exchange; empty for the default exchange.
        exchange: String,
        /// The routing key.
        routing_key: String,
    },
    /// The exchange does not exist.
    #[error("there is no exchange {exchange:?}: {problem}; check its name, and declare it first")]
    NoExchange {
        /// The exchange.
        exchange: String,
        /// What the broker said.
        problem: Problem,
    },
    /// The broker refused the message, as a full queue does.
    #[error(
        "the broker refused a message to {}: a queue is full, or cannot store it; check its length limits",
        destination(exchange, routing_key)
    )]
    Refused {
        /// The exchange; empty for the default exchange.
        exchange: String,
        /// The routing key.
        routing_key: String,
    },
    /// The message's deadline has passed. It was not sent, because nobody would handle it.
    #[error("the deadline of the message was {} ago; it was not sent", ago(now.since(*deadline)))]
    Expired {
        /// The deadline.
        deadline: Timestamp,
        /// When the message was to be sent.
        now: Timestamp,
    },
    /// A header has a number that is not finite. The broker would close the connection, and other
    /// messages under way would fail (4.3).
    #[error("the header {header:?} has a number that is not finite; send it as text")]
    NotFinite {
        /// The header's name. The number may be in its table or list.
        header: String,
    },
    /// A name or property of the message is longer than AMQP allows.
    #[error("{what} has {bytes} bytes, and may have {limit}")]
    TooLong {
        /// What is too long.
        what: String,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// The connection failed, the broker did not answer, or the user may not publish here.
    #[error(transparent)]
    Broker(#[from] Error),
}

impl PublishError {
    /// Whether publishing the same message again can help. It may have been published already.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Broker(error) => error.is_transient(),
            Self::Refused { .. } => true,
            Self::Unroutable { .. }
            | Self::NoExchange { .. }
            | Self::Expired { .. }
            | Self::NotFinite { .. }
            | Self::TooLong { .. } => false,
        }
    }

    /// For `error.type`.
    pub(super) fn class(&self) -> &'static str {
        match self {
            Self::Unroutable { .. } => "unroutable",
            Self::NoExchange { .. } => "no_exchange",
            Self::Refused { .. } => "refused",
            Self::Expired { .. } => "expired",
            Self::NotFinite { .. } => "not_finite",
            Self::TooLong { .. } => "too_long",
            Self::Broker(_) => "broker",
        }
    }

    /// Why a message was not published that the broker did not take.
    pub(super) fn not_taken(why: NotTaken, exchange: String, routing_key: String) -> Self {
        let what = format!("publishing to {}", destination(&exchange, &routing_key));
        match why {
            NotTaken::Returned => Self::Unroutable { exchange, routing_key },
            NotTaken::Nacked => Self::Refused { exchange, routing_key },
            NotTaken::NotSent => {
                let problem = "its channel was gone before it was sent".to_owned().into();
                Error::Lost { what, problem }.into()
            }
            NotTaken::LaneClosed(cause)
            | NotTaken::Disconnected(cause)
            | NotTaken::NoLane(cause) => {
                // Alike on 3.10, 4.0 and 4.3.
                if cause.problem.text().starts_with("NOT_FOUND - no exchange ") {
                    return Self::NoExchange { exchange, problem: cause.problem };
                }
                cause.of_operation(what).into()
            }
        }
    }
}

/// Where a message goes, as an error says it.
pub(super) fn destination(exchange: &str, routing_key: &str) -> String {
    if exchange.is_empty() {
        return format!("queue {routing_key:?}");
    }
    format!("exchange {exchange:?} with routing key {routing_key:?}")
}

/// A time span without the fractions of a second, which nobody needs of a long one.
fn ago(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(if time < Duration::from_secs(1) {
        time
    } else {
        Duration::from_secs(time.as_secs())
    })
}

fn remedy(exchange: &str, routing_key: &str) -> String {
    if exchange.is_empty() {
        return format!(
            "start its service, or declare it with `rehop topology declare --queue {routing_key}`"
        );
    }
    "bind a queue that takes this routing key".to_owned()
}

#[cfg(test)]
mod tests {
    use lapin::ErrorKind;
    use lapin::protocol::AMQPError;

    use super::*;
    use crate::broker::lane::Cause;

    #[test]
    fn an_error_says_what_the_broker_did_with_the_message() {
        let error = |why| PublishError::not_taken(why, "shop".to_owned(), "paid".to_owned());
        let closed = |code, text: &str| {
            let answer = AMQPError::from_id(code, text.into()).unwrap();
            error(NotTaken::LaneClosed(Cause::from(&ErrorKind::ProtocolError(answer).into())))
        };
        assert!(matches!(error(NotTaken::Returned), PublishError::Unroutable { .. }));
        assert!(matches!(error(NotTaken::Nacked), PublishError::Refused { .. }));
        let missing = closed(404, "NOT_FOUND - no exchange 'shop' in vhost '/'");
        assert!(matches!(missing, PublishError::NoExchange { .. }), "{missing}");
        let forbidden = closed(403, "ACCESS_REFUSED - write access");
        assert!(matches!(forbidden, PublishError::Broker(Error::Permission { .. })));
        let says = "publishing to exchange \"shop\" with routing key \"paid\" needs a permission";
        assert!(forbidden.to_string().starts_with(says), "{forbidden}");
        let not_sent = error(NotTaken::NotSent);
        assert!(not_sent.is_transient() && not_sent.to_string().contains("lost"), "{not_sent}");
    }
}
