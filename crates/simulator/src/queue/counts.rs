//! How often a message was delivered, as the queue counts it and as consumers are told.
//!
//! 3.10 has one count, of everything that came back. 4.0 counts two things: how often a message was
//! acquired, which is what the limit is about and what `x-delivery-count` shows, and how often a
//! delivery failed. 4.3 shows both, and its limit is about failures only: a `basic.nack` with
//! requeue hands a message back without blame.

use std::collections::BTreeMap;

use lapin::types::{AMQPValue, ShortString};

use crate::protocol::Version;

/// How a message comes back from a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Return {
    /// `basic.nack`
    Nack,
    /// `basic.reject`
    Reject,
    /// The channel or connection of its consumer is gone.
    Lost,
    /// It was not acked in time (4.3).
    TimedOut,
}

/// The counts of one message in one queue. A count that is absent is not shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    acquired: Option<u64>,
    delivery: Option<u64>,
}

impl Counts {
    /// The counts of a message that arrives, which 4.x had counted before it was dead-lettered.
    pub(crate) fn of_arrival(delivery_count: Option<u64>) -> Self {
        Self { acquired: None, delivery: delivery_count }
    }

    /// What is passed on when the message is dead-lettered (4.x).
    pub(crate) fn delivery(self) -> Option<u64> {
        self.delivery
    }

    /// Counts that the message came back.
    pub(crate) fn count_return(&mut self, version: Version, how: Return) {
        let is_failure = match (version, how) {
            (Version::V3_10, _) => true,
            (Version::V4_0, Return::Lost) | (Version::V4_3, Return::Lost | Return::Reject) => true,
            (Version::V4_0, _) | (Version::V4_3, Return::Nack | Return::TimedOut) => false,
        };
        self.count(version, is_failure);
    }

    /// Counts that a consumer had the message dead-lettered.
    pub(crate) fn count_discard(&mut self, version: Version, how: Return) {
        match version {
            // Seen in the source of 3.10.8: the header of a discarded message is left alone.
            Version::V3_10 => {}
            Version::V4_0 => self.count(version, true),
            Version::V4_3 => self.count(version, how != Return::Nack),
        }
    }

    fn count(&mut self, version: Version, is_failure: bool) {
        if version >= Version::V4_0 {
            self.acquired = Some(self.acquired.unwrap_or_default() + 1);
        }
        if is_failure {
            self.delivery = Some(self.delivery.unwrap_or_default() + 1);
        }
    }

    /// Whether the message came back more often than the limit allows. A limit below 0 means none
    /// on 4.x, whereas 3.10 takes it at its word and dead-letters at the first return.
    pub(crate) fn is_over(self, version: Version, limit: Option<i64>) -> bool {
        let Some(limit) = limit else { return false };
        let count = match version {
            Version::V4_0 => self.acquired,
            Version::V3_10 | Version::V4_3 => self.delivery,
        };
        count.is_some_and(|count| i64::try_from(count).is_ok_and(|count| count > limit))
    }

    /// Whether a delivery is marked as redelivered. On 4.x the first delivery of a dead-lettered
    /// message is, if its count was passed on.
    pub(crate) fn is_redelivered(self, version: Version) -> bool {
        let count = match version {
            Version::V3_10 => self.delivery,
            Version::V4_0 | Version::V4_3 => self.acquired.or(self.delivery),
        };
        count.is_some_and(|count| count > 0)
    }

    /// Whether a delivery gets headers of the counts.
    pub(crate) fn has_headers(self, version: Version, is_get: bool) -> bool {
        self.acquired.or(self.delivery).is_some() || (version == Version::V3_10 && is_get)
    }

    /// Sets the headers of a delivery. What is absent stays as the publisher sent it, a stale count
    /// included (all versions).
    pub(crate) fn set_headers(
        self,
        version: Version,
        is_get: bool,
        headers: &mut BTreeMap<ShortString, AMQPValue>,
    ) {
        let (acquired, delivery) = match version {
            // basic.get on 3.10 says 0 where a subscription says nothing.
            Version::V3_10 => (None, self.delivery.or(is_get.then_some(0))),
            Version::V4_0 => (None, self.acquired.or(self.delivery)),
            Version::V4_3 => (self.acquired.or(self.delivery), self.delivery),
        };
        for (name, count) in [("x-acquired-count", acquired), ("x-delivery-count", delivery)] {
            if let Some(count) = count {
                headers.insert(
                    name.into(),
                    AMQPValue::LongLongInt(i64::try_from(count).unwrap_or(i64::MAX)),
                );
            }
        }
    }
}
