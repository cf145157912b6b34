//! How a channel or a connection ended, and what that says about the copies that were under way on it.

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
    /// The confirm is late although the connection is alive, as with a quorum queue that has no majority.
    Unconfirmed,
    /// A property or a size that the broker does not accept.
    Malformed,
    /// Something else closed the channel.
    Closed,
}

/// Who or what is to blame for the end of a channel or connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Nothing that was published: the network, an operator, a broker that stops.
    Nobody,
    /// Every copy to this exchange.
    Exchange(String, Trouble),
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

    pub(crate) fn blame(&self) -> Blame {
        let exchange = |trouble| exchange_in(&self.text).map(|name| Blame::Exchange(name.to_owned(), trouble));
        match self.code {
            Some(403) => exchange(Trouble::Forbidden).unwrap_or(Blame::Unknown),
            Some(404) => exchange(Trouble::Missing).unwrap_or(Blame::Unknown),
            // A property or a size; a frame that the broker cannot read.
            Some(406 | 501 | 502) => Blame::Copy,
            // An operator closed it, the broker stops, or the virtual host is gone.
            None | Some(320 | 402 | 530) => Blame::Nobody,
            Some(_) => Blame::Unknown,
        }
    }
}

/// Reads `... access to exchange 'x' in vhost '/' refused for user 'u'` (403) and `... no exchange 'x' in vhost '/'` (404),
/// alike on 3.10, 4.0 and 4.3.
fn exchange_in(text: &str) -> Option<&str> {
    let (name, _) = text.split_once("exchange '")?.1.split_once("' in vhost '")?;
    // The broker's name for the exchange that publishers call "".
    Some(if name == "amq.default" { "" } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_put_down_to_what_the_broker_says() {
        let check = |code, text: &str, expected| assert_eq!(Cause { code, text: text.to_owned() }.blame(), expected);
        let exchange = |name: &str, trouble| Blame::Exchange(name.to_owned(), trouble);
        check(
            Some(403),
            "ACCESS_REFUSED - access to exchange 'shop.park' in vhost '/' refused for user 'reader'",
            exchange("shop.park", Trouble::Forbidden),
        );
        check(
            Some(403),
            "ACCESS_REFUSED - access to topic 'a.b' in exchange 'it's' in vhost '/' refused for user 'reader'",
            exchange("it's", Trouble::Forbidden),
        );
        check(
            Some(403),
            "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'reader'",
            exchange("", Trouble::Forbidden),
        );
        check(Some(404), "NOT_FOUND - no exchange 'x y' in vhost '/'", exchange("x y", Trouble::Missing));
        check(Some(403), "ACCESS_REFUSED - for a reason of its own", Blame::Unknown);
        check(Some(406), "PRECONDITION_FAILED - invalid expiration", Blame::Copy);
        check(Some(501), "FRAME_ERROR - type 2", Blame::Copy);
        check(Some(502), "SYNTAX_ERROR", Blame::Copy);
        check(Some(541), "INTERNAL_ERROR", Blame::Unknown);
        check(Some(320), "CONNECTION_FORCED - Closed via management plugin", Blame::Nobody);
        check(None, "connection reset by peer", Blame::Nobody);
    }
}
