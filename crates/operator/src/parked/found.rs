//! What the broker tells of a queue's arguments when somebody declares the queue with others. Pure.

use std::collections::BTreeSet;

use rehop::internals::namespace_of;
use rehop::topology::{Argument, Arguments};

const DELIVERY_LIMIT: &str = "x-delivery-limit";
const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";

/// The arguments whose values can be taken over, so that the broker compares the next one.
const TAKEN_OVER: [&str; 11] = [
    DELIVERY_LIMIT,
    DEAD_LETTER_EXCHANGE,
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-message-ttl",
    "x-overflow",
    "x-queue-leader-locator",
    "x-single-active-consumer",
];

/// What is known of the arguments of a queue.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The namespace that the queue's dead-letter exchange names, if that is another exchange than rehop would declare.
    pub(crate) namespace: Option<String>,
    /// Whether the queue has the arguments that rehop declares it with.
    pub(crate) is_own: bool,
    /// The queue's own limit.
    pub(crate) limit: Limit,
    differing: BTreeSet<String>,
}

/// How often a queue lets a message return.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Limit {
    /// It has none of its own, or it is not known.
    #[default]
    Unknown,
    At(i64),
    /// The one that rehop declares.
    OutOfReach,
}

impl Found {
    /// Of a queue that differs in its limit alone.
    #[cfg(test)]
    pub(crate) fn of_limit(limit: Limit) -> Self {
        Self { limit, ..Self::default() }
    }

    /// The broker has named a difference. Its value replaces the one that was asked for. Returns whether asking again can tell more.
    pub(crate) fn differs(&mut self, asked: &mut Arguments, argument: &str, value: &str) -> bool {
        if !TAKEN_OVER.contains(&argument) || !self.differing.insert(argument.to_owned()) {
            return false;
        }
        let value = parse(value);
        if let (DEAD_LETTER_EXCHANGE, Some(Argument::Text(exchange))) = (argument, &value) {
            self.namespace = namespace_of(exchange).map(str::to_owned);
        }
        if let (DELIVERY_LIMIT, Some(Argument::Number(limit))) = (argument, &value) {
            self.limit = Limit::At(*limit);
        }
        match value {
            Some(value) => asked.insert(argument.to_owned(), value),
            None => asked.remove(argument),
        };
        true
    }

    /// The broker has named no further difference.
    pub(crate) fn complete(mut self) -> Self {
        self.is_own = self.differing.is_empty();
        if !self.differing.contains(DELIVERY_LIMIT) {
            self.limit = Limit::OutOfReach;
        }
        self
    }
}

/// A value in the broker's words; `None` if the queue does not have the argument.
fn parse(value: &str) -> Option<Argument> {
    let text = value.trim_matches('\'');
    match value {
        "none" => None,
        "true" | "'true'" => Some(true.into()),
        "false" | "'false'" => Some(false.into()),
        _ => Some(text.parse::<i64>().map_or_else(|_| text.into(), Argument::from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Arguments {
        let argument = |name: &str, value: Argument| (name.to_owned(), value);
        Arguments::from([
            argument("x-queue-type", "quorum".into()),
            argument("x-delivery-limit", Argument::Number(1 << 31)),
            argument(DEAD_LETTER_EXCHANGE, "orders.stray".into()),
        ])
    }

    #[test]
    fn the_dead_letter_exchange_names_the_namespace_of_a_queue() {
        for (value, expected) in
            [("'billing.stray'", Some("billing")), ("'theirs'", None), ("none", None), ("'.stray'", None)]
        {
            let (mut asked, mut found) = (asked(), Found::default());
            assert!(found.differs(&mut asked, DEAD_LETTER_EXCHANGE, value));
            let found = found.complete();
            assert_eq!((found.namespace.as_deref(), found.is_own), (expected, false), "{value}");
        }
        assert!(Found::default().complete().is_own);
    }

    #[test]
    fn the_limit_is_found_behind_other_differences_and_is_rehops_if_nothing_else_is_said() {
        let limit = |differences: &[(&str, &str)], is_complete: bool| {
            let (mut asked, mut found) = (asked(), Found::default());
            for (argument, value) in differences {
                assert!(found.differs(&mut asked, argument, value));
            }
            if is_complete { found.complete().limit } else { found.limit }
        };
        let theirs = (DEAD_LETTER_EXCHANGE, "none");
        assert_eq!(limit(&[theirs, (DELIVERY_LIMIT, "'5'")], true), Limit::At(5));
        assert_eq!(limit(&[(DELIVERY_LIMIT, "'-1'"), theirs], true), Limit::At(-1));
        assert_eq!(limit(&[(DELIVERY_LIMIT, "'5'")], false), Limit::At(5), "whatever the broker refuses next");
        assert_eq!(limit(&[(DELIVERY_LIMIT, "none")], true), Limit::Unknown);
        assert_eq!(limit(&[theirs], true), Limit::OutOfReach);
        assert_eq!(limit(&[theirs], false), Limit::Unknown);
    }

    #[test]
    fn what_differs_is_asked_for_next_and_an_argument_that_goes_on_differing_ends_it() {
        let (mut asked, mut found) = (asked(), Found::default());
        assert!(found.differs(&mut asked, DEAD_LETTER_EXCHANGE, "none"));
        assert!(found.differs(&mut asked, "x-message-ttl", "'3'"));
        assert!(found.differs(&mut asked, "x-single-active-consumer", "'true'"));
        assert!(found.differs(&mut asked, "x-overflow", "'drop-head'"));
        assert_eq!(asked.get("x-overflow"), Some(&"drop-head".into()));
        assert_eq!(asked.get(DEAD_LETTER_EXCHANGE), None);
        assert_eq!(asked.get("x-message-ttl"), Some(&Argument::Number(3)));
        assert_eq!(asked.get("x-single-active-consumer"), Some(&Argument::Flag(true)));
        assert_eq!(parse("'false'"), Some(Argument::Flag(false)));
        assert!(!found.differs(&mut asked, "x-message-ttl", "'4'"), "it was taken over already");
        assert!(!found.differs(&mut asked, "x-queue-type", "'classic'"), "another type has other arguments");
    }
}
