//! The script: which orders there are, and how each should end.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use rehop_testing::Publish;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::policy::{ORDERS, REFUNDS};

/// The publisher's exchange, whose alternate exchange is the service's stray exchange.
pub(crate) const EXCHANGE: &str = "shop";
/// The service's queues, each with the routing keys that it is bound by.
pub(crate) const BINDINGS: [(&str, &str); 2] = [(ORDERS, "order.#"), (REFUNDS, "refund.#")];
/// The item that kills the handler's process.
pub(crate) const POISON: &str = "poison";
/// The class of the failures that the HTTP service's bug causes.
pub(crate) const BUG: &str = "http_500";
/// The HTTP service's outage, from the first order on: shorter than all waits together, so that
/// every order survives it.
pub(crate) const OUTAGE: Range<Duration> = Duration::from_millis(1500)..Duration::from_millis(3300);
/// The `Retry-After` in half of the answers during the outage.
pub(crate) const SHORT_BREAK: Duration = Duration::from_secs(1);
/// How long the hurried order has, in milliseconds.
const HURRY: i64 = 900;

/// What is special about an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrderKind {
    /// Nothing; it fails in the outage like any other.
    Ordinary,
    /// The service answers its first attempt with 409 or 423.
    Contended,
    /// The service answers 422.
    Refused,
    /// The service has a bug, and answers 500 until it is repaired.
    MeetsBug,
    /// The service always answers 503, and its deadline would pass while it waits.
    Hurried,
    /// Its deadline has already passed when it is published.
    Late,
    /// Its body is truncated.
    Undecodable,
    /// It kills the process that handles it.
    Poison,
    /// Its routing key matches no binding.
    Misrouted,
    /// It is a refund, and the service answers its first attempt with 503.
    Refund,
}

impl OrderKind {
    /// How it ends.
    pub(crate) fn fate(self) -> Fate {
        let parked = |reason: &str| Fate::Parked(reason.to_owned());
        match self {
            Self::Ordinary | Self::Contended | Self::Refund | Self::MeetsBug => Fate::Handled,
            Self::Refused => parked(PERMANENT),
            Self::Hurried | Self::Late => Fate::Expired,
            Self::Undecodable => parked(UNDECODABLE),
            Self::Poison => parked(DELIVERY_LIMIT),
            Self::Misrouted => Fate::Stray,
        }
    }

    /// Where it is before the replay.
    pub(crate) fn fate_before_replay(self) -> Fate {
        match self {
            Self::MeetsBug => Fate::Parked(EXHAUSTED.to_owned()),
            other => other.fate(),
        }
    }
}

const EXHAUSTED: &str = "exhausted";
const PERMANENT: &str = "permanent";
const UNDECODABLE: &str = "undecodable";
/// The broker's reason for parking, as in its `x-death` header.
const DELIVERY_LIMIT: &str = "delivery_limit";

/// Where a message was found. Real ends come before the others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// The HTTP service accepted it.
    Handled,
    /// It is in the parked queue, for this reason.
    Parked(String),
    /// It is in the parked queue because its deadline had passed.
    Expired,
    /// It is in the stray queue.
    Stray,
    /// It is in the work queue or a wait queue, and nobody consumes it.
    Left,
    /// It is nowhere.
    Lost,
}

impl Fate {
    /// Of a parked message with this reason.
    pub(crate) fn parked(reason: Option<&str>) -> Self {
        match reason {
            Some("expired") => Self::Expired,
            Some(reason) => Self::Parked(reason.to_owned()),
            None => Self::Parked("no reason given".to_owned()),
        }
    }

    /// Why orders of the script are there.
    pub(crate) fn why(&self) -> &'static str {
        match self {
            Self::Parked(reason) => match reason.as_str() {
                EXHAUSTED => "the service's bug; repaired, and sent back",
                PERMANENT => "the order is wrong, and stays parked",
                UNDECODABLE => "its body is cut off, and it stays parked",
                DELIVERY_LIMIT => "kills the process; the broker has parked it",
                _ => "",
            },
            Self::Expired => "too late to be of use, and stays parked",
            Self::Stray => "no queue takes its routing key",
            Self::Handled | Self::Left | Self::Lost => "",
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handled => f.write_str("handled"),
            Self::Parked(reason) if reason == DELIVERY_LIMIT => {
                f.write_str("parked: delivery limit")
            }
            Self::Parked(reason) => write!(f, "parked: {reason}"),
            Self::Expired => f.write_str("expired, and parked"),
            Self::Stray => f.write_str("stray"),
            Self::Left => f.write_str("still in a queue"),
            Self::Lost => f.write_str("lost"),
        }
    }
}

/// One order of the script.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) id: u32,
    pub(crate) kind: OrderKind,
    pub(crate) routing_key: &'static str,
}

/// The body of an order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Body {
    pub(crate) id: u32,
    pub(crate) item: String,
    pub(crate) quantity: u32,
}

/// The positions of the special orders, as fractions of the script. The refunds come together, so
/// that they fail together.
const SPECIAL: [(f64, OrderKind); 26] = [
    (0.03, OrderKind::MeetsBug),
    (0.04, OrderKind::Refund),
    (0.04, OrderKind::Refund),
    (0.04, OrderKind::Refund),
    (0.04, OrderKind::Refund),
    (0.04, OrderKind::Refund),
    (0.04, OrderKind::Refund),
    (0.04, OrderKind::Refund),
    (0.04, OrderKind::Refund),
    (0.05, OrderKind::Refused),
    (0.08, OrderKind::MeetsBug),
    (0.10, OrderKind::Misrouted),
    (0.12, OrderKind::MeetsBug),
    (0.16, OrderKind::Undecodable),
    (0.20, OrderKind::Late),
    (0.25, OrderKind::MeetsBug),
    (0.35, OrderKind::Refused),
    (0.38, OrderKind::MeetsBug),
    (0.46, OrderKind::MeetsBug),
    (0.54, OrderKind::MeetsBug),
    (0.56, OrderKind::Hurried),
    (0.58, OrderKind::Refused),
    (0.62, OrderKind::MeetsBug),
    (0.80, OrderKind::Poison),
    (0.85, OrderKind::Refused),
    (0.90, OrderKind::Misrouted),
];

/// This many orders, with the special ones spread among them.
pub(crate) fn orders(count: u32) -> Vec<Order> {
    let mut kinds = vec![OrderKind::Ordinary; count as usize];
    for (part, kind) in SPECIAL {
        let from = (f64::from(count) * part) as usize;
        if let Some(place) = kinds.iter_mut().skip(from).find(|kind| **kind == OrderKind::Ordinary)
        {
            *place = kind;
        }
    }
    for kind in kinds.iter_mut().step_by(5).filter(|kind| **kind == OrderKind::Ordinary) {
        *kind = OrderKind::Contended;
    }
    let keys =
        ["order.created", "order.changed", "order.paid.eu", "order.paid.us"].into_iter().cycle();
    let order = |((kind, key), id): ((OrderKind, &'static str), u32)| Order {
        id,
        kind,
        routing_key: match kind {
            OrderKind::Misrouted => "invoice.created",
            OrderKind::Refund => "refund.created",
            _ => key,
        },
    };
    kinds.into_iter().zip(keys).zip(1..).map(order).collect()
}

const ID_PREFIX: &str = "order-";

impl Order {
    /// The message that is published at this time, in nanoseconds since the epoch.
    pub(crate) fn message(&self, now: u64) -> Publish {
        let item = if self.kind == OrderKind::Poison { POISON } else { "a box of screws" };
        let body = Body { id: self.id, item: item.to_owned(), quantity: 1 + self.id % 5 };
        let id = format!("{ID_PREFIX}{}", self.id);
        let mut message = Publish::to(EXCHANGE, self.routing_key).json(&json!(body)).message_id(id);
        let now_millis = i64::try_from(now / 1_000_000).unwrap_or(i64::MAX);
        match self.kind {
            OrderKind::Undecodable => message.body.truncate(message.body.len() / 2),
            OrderKind::Late => message = message.header("rehop-expires-at", now_millis - 60_000),
            OrderKind::Hurried => message = message.header("rehop-expires-at", now_millis + HURRY),
            _ => {}
        }
        message
    }
}

/// The order that a message belongs to, whatever its body is.
pub(crate) fn id_of(message_id: &str) -> Option<u32> {
    message_id.strip_prefix(ID_PREFIX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::policy::WAITS;
    use super::*;

    #[test]
    fn the_smallest_and_the_largest_script_have_every_kind_and_mostly_ordinary_orders() {
        for count in [100, 300, 5000] {
            let orders = orders(count);
            let of = |kind| orders.iter().filter(|order| order.kind == kind).count();
            assert_eq!(orders.len(), count as usize);
            assert_eq!(
                (
                    of(OrderKind::Poison),
                    of(OrderKind::Late),
                    of(OrderKind::Hurried),
                    of(OrderKind::Undecodable)
                ),
                (1, 1, 1, 1)
            );
            assert_eq!(
                (
                    of(OrderKind::Misrouted),
                    of(OrderKind::MeetsBug),
                    of(OrderKind::Refused),
                    of(OrderKind::Refund)
                ),
                (2, 8, 4, 8)
            );
            assert!(of(OrderKind::Contended) >= 10 && of(OrderKind::Ordinary) > count as usize / 2);
        }
    }

    #[test]
    fn the_outage_is_shorter_than_all_waits_together() {
        assert!(OUTAGE.end - OUTAGE.start < WAITS.iter().sum::<Duration>());
    }

    #[test]
    fn the_replay_changes_only_what_met_the_bug() {
        let changed = |order: &Order| order.kind.fate() != order.kind.fate_before_replay();
        assert!(
            orders(100).iter().all(|order| changed(order) == (order.kind == OrderKind::MeetsBug))
        );
    }
}
