//! Why a copy was not taken, and what the end of a channel or a connection says about the copies
//! that were under way on it.

use lapin::ErrorKind;
use lapin::protocol::AMQPSoftError;

use crate::error::{Error, Problem};

/// Why the broker did not take a copy, or may not have taken it.
///
/// A lane reports the first four; only whoever opens lanes can know the other two.
#[derive(Debug, Clone)]
pub enum NotTaken {
    /// As by a full queue.
    Nacked,
    /// It found no queue, so the broker returned it.
    Returned,
    /// It was not sent: its lane had ended, or the broker blocked the connection.
    NotSent,
    /// Its lane ended while it was under way. It may be stored.
    LaneClosed(Cause),
    /// The same, because its connection ended.
    Disconnected(Cause),
    /// No lane could be opened for it.
    NoLane(Cause),
}

impl NotTaken {
    /// Why its lane ended, or could not be opened.
    pub(crate) fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Nacked | Self::Returned | Self::NotSent => None,
            Self::LaneClosed(cause) | Self::Disconnected(cause) | Self::NoLane(cause) => {
                Some(cause)
            }
        }
    }

    /// Whether its exchange is missing, or what that routes to.
    pub(crate) fn asks_for_repair(&self) -> bool {
        match self {
            Self::Returned => true,
            Self::LaneClosed(cause) => cause.code == Some(404),
            Self::Nacked | Self::NotSent | Self::Disconnected(_) | Self::NoLane(_) => false,
        }
    }
}

/// How the broker, or the network, ended a channel or a connection.
#[derive(Debug, Clone)]
pub struct Cause {
    /// The broker's reply code, if it was the broker that ended it.
    pub code: Option<u16>,
    pub problem: Problem,
}

/// Who or what is to blame for the end of a channel or connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Nothing that was published: the network, an operator, a broker that stops.
    Nobody,
    /// The exchange that the lane carries copies to.
    Exchange,
    /// One of the copies: something is wrong with the copy itself.
    Copy,
    /// Perhaps one of the copies.
    Unknown,
}

impl Cause {
    /// An end that the broker did not declare.
    pub(crate) fn of(text: &str) -> Self {
        Self { code: None, problem: text.to_owned().into() }
    }

    /// Whether the broker closed only the channel: a soft error, in AMQP's words.
    pub(crate) fn is_of_channel(&self) -> bool {
        self.code.is_some_and(|code| AMQPSoftError::from_id(code).is_some())
    }

    /// 403 and 404 are about an exchange as a whole: of the exchanges that copies go to, none is a
    /// topic exchange, for which users may have permissions by routing key.
    pub(crate) fn blame(&self) -> Blame {
        match self.code {
            Some(403 | 404) => Blame::Exchange,
            // A property or a size; a frame that the broker cannot read.
            Some(406 | 501 | 502) => Blame::Copy,
            // An operator closed it, the broker stops, or the virtual host is gone. 504: frames
            // followed that lapin had queued for a channel that was already closed.
            None | Some(320 | 402 | 504 | 530) => Blame::Nobody,
            Some(_) => Blame::Unknown,
        }
    }

    /// What it means for an operation. `what` reads like "publishing to exchange x".
    #[must_use]
    pub fn of_operation(self, what: String) -> Error {
        match self.problem.as_lapin() {
            Some(error) => Error::of_operation(what, error),
            None => Error::of_end(what, self.problem),
        }
    }
}

/// A copy that lapin cannot write ends the connection, as one that the broker cannot read does.
impl From<&lapin::Error> for Cause {
    fn from(error: &lapin::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::ProtocolError(answer) => Some(answer.get_id()),
            ErrorKind::SerialisationError(_) => Some(501),
            _ => None,
        };
        Self { code, problem: Problem::of_lapin(error) }
    }
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError};

    use super::*;

    #[test]
    fn an_end_is_put_down_to_what_the_broker_says() {
        let check = |code, text: &str, expected| {
            assert_eq!(Cause { code, ..Cause::of(text) }.blame(), expected)
        };
        check(
            Some(403),
            "ACCESS_REFUSED - access to exchange 'shop.park' in vhost '/' refused for user 'me'",
            Blame::Exchange,
        );
        check(Some(404), "NOT_FOUND - no exchange 'x y' in vhost '/'", Blame::Exchange);
        check(Some(406), "PRECONDITION_FAILED - invalid expiration", Blame::Copy);
        check(Some(501), "FRAME_ERROR - type 2", Blame::Copy);
        check(Some(502), "SYNTAX_ERROR", Blame::Copy);
        check(Some(541), "INTERNAL_ERROR", Blame::Unknown);
        check(Some(320), "CONNECTION_FORCED - Closed via management plugin", Blame::Nobody);
        check(Some(504), "CHANNEL_ERROR - expected 'channel.open'", Blame::Nobody);
        check(None, "connection reset by peer", Blame::Nobody);
    }

    #[test]
    fn the_end_of_a_channel_is_told_from_the_end_of_a_connection() {
        let cause = |kind: ErrorKind| Cause::from(&kind.into());
        let protocol =
            |kind: AMQPErrorKind| ErrorKind::ProtocolError(AMQPError::new(kind, "why".into()));
        assert!(cause(protocol(AMQPSoftError::PRECONDITIONFAILED.into())).is_of_channel());
        assert!(!cause(protocol(AMQPHardError::FRAMEERROR.into())).is_of_channel());
        assert!(!cause(ErrorKind::MissingHeartbeatError).is_of_channel());
    }

    #[test]
    fn an_operation_fails_for_what_the_broker_said_and_otherwise_because_the_connection_was_lost() {
        let refused = AMQPError::new(AMQPSoftError::PRECONDITIONFAILED.into(), "no".into());
        let refused = Cause::from(&ErrorKind::ProtocolError(refused).into());
        let error = |cause: Cause| cause.of_operation("publishing".to_owned());
        assert!(matches!(error(refused), Error::Refused { .. }));
        assert!(matches!(error(Cause::of("it ended")), Error::Lost { .. }));
    }
}
