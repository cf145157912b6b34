//! How a channel or a connection ended, and what that says about the copies that were under way on
//! it.

use lapin::protocol::AMQPSoftError;

/// How the broker, or the network, ended a channel or a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    /// The broker's reply code, if it was the broker that ended it.
    pub(crate) code: Option<u16>,
    pub(crate) text: String,
}

/// Why the broker did not take a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A nack, as a full queue gives.
    Refused,
    /// The user may not write to the exchange.
    Forbidden,
    /// The exchange does not exist.
    Missing,
    /// The exchange found no queue, and has no alternate exchange that did.
    Unroutable,
    /// The confirm is late although the connection is alive, as with a quorum queue that has no
    /// majority.
    Unconfirmed,
    /// A property or a size that the broker does not accept.
    Malformed,
    /// No channel can be opened for it.
    NoChannel,
    /// Something else closed the channel.
    Closed,
}

impl Trouble {
    /// Whether a part of the topology is missing.
    pub(crate) fn asks_for_repair(self) -> bool {
        matches!(self, Self::Missing | Self::Unroutable)
    }
}

/// Who or what is to blame for the end of a channel or connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Nothing that was published: the network, an operator, a broker that stops.
    Nobody,
    /// The exchange that the lane carries copies to.
    Exchange(Trouble),
    /// One of the copies: something is wrong with the copy itself.
    Copy,
    /// Perhaps one of the copies.
    Unknown,
}

impl Cause {
    /// An end that the broker did not declare.
    pub(crate) fn of(text: impl Into<String>) -> Self {
        Self { code: None, text: text.into() }
    }

    /// Whether the broker closed only the channel: a soft error, in AMQP's words.
    pub(crate) fn is_of_channel(&self) -> bool {
        self.code.is_some_and(|code| AMQPSoftError::from_id(code).is_some())
    }

    /// 403 and 404 are about an exchange as a whole: of the exchanges that copies go to, none is a
    /// topic exchange, for which users may have permissions by routing key.
    pub(crate) fn blame(&self) -> Blame {
        match self.code {
            Some(403) => Blame::Exchange(Trouble::Forbidden),
            Some(404) => Blame::Exchange(Trouble::Missing),
            // A property or a size; a frame that the broker cannot read.
            Some(406 | 501 | 502) => Blame::Copy,
            // An operator closed it, the broker stops, or the virtual host is gone. 504: frames
            // followed that lapin had queued for a channel that was already closed.
            None | Some(320 | 402 | 504 | 530) => Blame::Nobody,
            Some(_) => Blame::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_put_down_to_what_the_broker_says() {
        let check = |code, text: &str, expected| {
            assert_eq!(Cause { code, text: text.to_owned() }.blame(), expected)
        };
        check(
            Some(403),
            "ACCESS_REFUSED - access to exchange 'shop.park' in vhost '/' refused for user 'reader'",
            Blame::Exchange(Trouble::Forbidden),
        );
        check(
            Some(404),
            "NOT_FOUND - no exchange 'x y' in vhost '/'",
            Blame::Exchange(Trouble::Missing),
        );
        check(Some(406), "PRECONDITION_FAILED - invalid expiration", Blame::Copy);
        check(Some(501), "FRAME_ERROR - type 2", Blame::Copy);
        check(Some(502), "SYNTAX_ERROR", Blame::Copy);
        check(Some(541), "INTERNAL_ERROR", Blame::Unknown);
        check(Some(320), "CONNECTION_FORCED - Closed via management plugin", Blame::Nobody);
        check(Some(504), "CHANNEL_ERROR - expected 'channel.open'", Blame::Nobody);
        check(None, "connection reset by peer", Blame::Nobody);
    }
}
