//! What a queue's arguments are, as the broker's refusals to declare it with others tell: whose the
//! queue is, and whether looking could do harm, because the broker moves or deletes a message that
//! is given back too often. Pure.

use std::collections::BTreeSet;

use crate::parked::error::ParkedError;
use rehop::internals::namespace_of;
use rehop::topology::{Argument, Arguments};

const DELIVERY_LIMIT: &str = "x-delivery-limit";
const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";

/// The broker's default limit on 4.x.
const DEFAULT_LIMIT: i64 = 20;
/// From this many returns on, the default limit is near.
const NEAR_DEFAULT: u32 = 15;

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
    /// The namespace that the queue's dead-letter exchange names, if that is another exchange than
    /// rehop would declare.
    pub(crate) namespace: Option<String>,
    /// Whether the queue has the arguments that rehop declares it with.
    pub(crate) is_own: bool,
    /// The queue's own limit.
    pub(crate) limit: OwnDeliveryLimit,
    differing: BTreeSet<String>,
}

/// How often a queue lets a message return.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum OwnDeliveryLimit {
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
    pub(crate) fn of_limit(limit: OwnDeliveryLimit) -> Self {
        Self { limit, ..Self::default() }
    }

    /// The broker has named a difference. Its value replaces the one that was asked for. Returns
    /// whether asking again can tell more.
    pub(crate) fn differs(&mut self, asked: &mut Arguments, argument: &str, value: &str) -> bool {
        if !TAKEN_OVER.contains(&argument) || !self.differing.insert(argument.to_owned()) {
            return false;
        }
        let value = parse(value);
        if let (DEAD_LETTER_EXCHANGE, Some(Argument::Text(exchange))) = (argument, &value) {
            self.namespace = namespace_of(exchange).map(str::to_owned);
        }
        if let (DELIVERY_LIMIT, Some(Argument::Number(limit))) = (argument, &value) {
            self.limit = OwnDeliveryLimit::At(*limit);
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
            self.limit = OwnDeliveryLimit::OutOfReach;
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

/// What is known of the delivery limit of a queue that is looked at.
#[derive(Debug)]
pub(crate) struct DeliveryLimit {
    queue: String,
    /// The queue's own limit. A policy may still set a lower one, which AMQP does not show.
    limit: OwnDeliveryLimit,
    /// Whether the queue has the arguments that rehop declares it with.
    is_own: bool,
    /// Giving back counts towards the limit: before 4.3.
    is_counted: bool,
    /// From how many returns on a policy's limit may be near.
    warns_from: u32,
    was_warned_of: bool,
}

impl DeliveryLimit {
    /// `has_management`: whether a management API is known, which shows policies. Without it, any
    /// message that was looked at before may leave the queue at this look.
    pub(crate) fn new(queue: &str, found: &Found, is_counted: bool, has_management: bool) -> Self {
        let warns_from = if has_management { NEAR_DEFAULT } else { 1 };
        let Found { limit, is_own, .. } = *found;
        Self {
            queue: queue.to_owned(),
            limit,
            is_own,
            is_counted,
            warns_from,
            was_warned_of: false,
        }
    }

    /// Whether the queue has the arguments that rehop declares it with.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// To be asked before the first of so many messages is taken. Where giving back counts, a
    /// refusal after a message was taken counts, too, because the message is given back. So a queue
    /// with a limit below the default is refused before.
    ///
    /// # Errors
    ///
    /// When the queue has such a limit.
    pub(crate) fn check_first(&self, wanted: u64) -> Result<(), ParkedError> {
        match self.limit {
            OwnDeliveryLimit::At(limit)
                if limit < DEFAULT_LIMIT && self.is_counted && wanted > 0 =>
            {
                Err(ParkedError::LowLimit { queue: self.queue.clone(), limit })
            }
            OwnDeliveryLimit::At(_) | OwnDeliveryLimit::Unknown | OwnDeliveryLimit::OutOfReach => {
                Ok(())
            }
        }
    }

    /// To be asked before a message that was given back so often is given back once more.
    ///
    /// # Errors
    ///
    /// When the queue may have a limit that is near.
    pub(crate) fn check(&mut self, returns: u32) -> Result<(), ParkedError> {
        let is_near = match self.limit {
            OwnDeliveryLimit::OutOfReach => false,
            // A negative one is none where giving back does not count.
            OwnDeliveryLimit::At(limit) => limit >= 0 && i64::from(returns) >= limit - limit / 4,
            OwnDeliveryLimit::Unknown => returns >= NEAR_DEFAULT,
        };
        if is_near {
            return Err(ParkedError::NearLimit { queue: self.queue.clone(), returns });
        }
        if self.is_counted
            && returns >= self.warns_from
            && !std::mem::replace(&mut self.was_warned_of, true)
        {
            tracing::warn!(
                queue = self.queue,
                returns,
                "this broker counts how often messages are looked at; where a policy sets a delivery-limit, they leave the queue when they \
                 exceed it. With broker.management_url, `rehop parked` and `rehop doctor` find such a policy"
            );
        }
        Ok(())
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
        for (value, expected) in [
            ("'billing.stray'", Some("billing")),
            ("'theirs'", None),
            ("none", None),
            ("'.stray'", None),
        ] {
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
        assert_eq!(limit(&[theirs, (DELIVERY_LIMIT, "'5'")], true), OwnDeliveryLimit::At(5));
        assert_eq!(limit(&[(DELIVERY_LIMIT, "'-1'"), theirs], true), OwnDeliveryLimit::At(-1));
        assert_eq!(
            limit(&[(DELIVERY_LIMIT, "'5'")], false),
            OwnDeliveryLimit::At(5),
            "whatever the broker refuses next"
        );
        assert_eq!(limit(&[(DELIVERY_LIMIT, "none")], true), OwnDeliveryLimit::Unknown);
        assert_eq!(limit(&[theirs], true), OwnDeliveryLimit::OutOfReach);
        assert_eq!(limit(&[theirs], false), OwnDeliveryLimit::Unknown);
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
        assert!(
            !found.differs(&mut asked, "x-queue-type", "'classic'"),
            "another type has other arguments"
        );
    }

    fn at(limit: OwnDeliveryLimit, is_counted: bool, has_management: bool) -> DeliveryLimit {
        DeliveryLimit::new("orders.parked", &Found::of_limit(limit), is_counted, has_management)
    }

    #[test]
    fn no_message_is_given_back_until_it_is_deleted() {
        for (limit, fine, near) in [
            (OwnDeliveryLimit::Unknown, 14, Some(15)),
            (OwnDeliveryLimit::At(20), 14, Some(15)),
            (OwnDeliveryLimit::At(30), 22, Some(23)),
            (OwnDeliveryLimit::At(5), 3, Some(4)),
            (OwnDeliveryLimit::At(1), 0, Some(1)),
            (OwnDeliveryLimit::At(-1), 1_000, None),
            (OwnDeliveryLimit::OutOfReach, 1_000, None),
        ] {
            let mut limit = at(limit, false, true);
            assert!(limit.check(fine).is_ok(), "{limit:?}");
            if let Some(near) = near {
                assert!(
                    matches!(limit.check(near), Err(ParkedError::NearLimit { .. })),
                    "{limit:?}"
                );
            }
        }
        assert!(at(OwnDeliveryLimit::At(0), false, true).check(0).is_err());
    }

    #[test]
    fn where_looks_count_a_low_or_negative_limit_keeps_all_messages_from_being_taken() {
        for (limit, is_low) in [
            (OwnDeliveryLimit::At(-1), true),
            (OwnDeliveryLimit::At(0), true),
            (OwnDeliveryLimit::At(19), true),
            (OwnDeliveryLimit::At(20), false),
            (OwnDeliveryLimit::Unknown, false),
            (OwnDeliveryLimit::OutOfReach, false),
        ] {
            let refused = at(limit, true, true).check_first(1);
            assert_eq!(matches!(refused, Err(ParkedError::LowLimit { .. })), is_low, "{limit:?}");
            assert!(
                at(limit, true, true).check_first(0).is_ok(),
                "nothing is taken of an empty queue"
            );
            assert!(at(limit, false, true).check_first(1).is_ok(), "looks do not count");
        }
    }

    #[test]
    fn a_queue_is_rehops_own_if_nothing_of_it_differs() {
        let is_own =
            |found: Found| DeliveryLimit::new("orders.parked", &found, false, true).is_own();
        assert!(
            is_own(Found::default().complete())
                && !is_own(Found::of_limit(OwnDeliveryLimit::OutOfReach))
        );
    }

    #[test]
    fn the_warning_comes_once_and_only_where_looks_count() {
        let warned = |is_counted, has_management, returns: &[u32]| {
            let mut limit = at(OwnDeliveryLimit::OutOfReach, is_counted, has_management);
            returns.iter().for_each(|returns| limit.check(*returns).unwrap());
            limit.was_warned_of
        };
        for (is_counted, has_management, returns, expected) in [
            (true, true, &[0, 14][..], false),
            (true, true, &[15, 16], true),
            (true, false, &[0], false),
            (true, false, &[0, 1], true),
            (false, false, &[0, 1, 15], false),
            (false, true, &[15], false),
        ] {
            assert_eq!(
                warned(is_counted, has_management, returns),
                expected,
                "{is_counted} {has_management} {returns:?}"
            );
        }
    }
}
