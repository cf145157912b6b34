//! The script: which orders there are, and what is meant to become of each.

use std::fmt;
use std::time::Duration;

use rehop::testing::Publish;
use rehop::{Backoff, Settings};
use serde::Serialize;
use serde_json::json;

/// The publisher's exchange, whose alternate exchange is the service's stray exchange.
pub(super) const EXCHANGE: &str = "shop";
/// What the service binds its queue with.
pub(super) const PATTERN: &str = "order.#";
pub(super) const QUEUE: &str = "orders";
pub(super) const PARKED: &str = "orders.parked";
pub(super) const NAMESPACE: &str = "billing";
pub(super) const STRAY: &str = "billing.stray";
/// The item that the handler cannot survive.
pub(super) const POISON: &str = "poison";
/// The HTTP service's outage, from the first order on: shorter than all waits together, so that every order outlives it.
pub(super) const OUTAGE: std::ops::Range<Duration> = Duration::from_millis(1500)..Duration::from_millis(3300);
/// What half of the outage's answers say in their `Retry-After`.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

const WAITS: [Duration; 3] = [Duration::from_millis(300), Duration::from_secs(1), Duration::from_secs(2)];
/// How long the hurried order has.
const HURRY: Duration = Duration::from_millis(900);

/// The policy of the service. All durations are short, so that nobody waits for the demo.
pub(super) fn settings(amqp_url: &str) -> Settings {
    let mut settings = Settings::default();
    settings.namespace = NAMESPACE.to_owned();
    settings.broker.url = amqp_url.to_owned().into();
    settings.retry.delivery_limit = Some(5);
    settings.retry.immediate = Some(1);
    settings.retry.delays = Some(Backoff::List(WAITS.to_vec()));
    settings.consume.prefetch = Some(50);
    settings.consume.concurrency = Some(10);
    settings.shutdown.grace = Duration::from_secs(5);
    settings
}

/// The queues in which messages wait.
pub(super) fn wait_queues() -> impl Iterator<Item = String> {
    WAITS.iter().map(|wait| format!("{NAMESPACE}.wait.{}", wait.as_millis()))
}

/// What is special about an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing; it fails in the outage like any other.
    Ordinary,
    /// The service says 409 or 423 to its first attempt.
    Contended,
    /// The service says 422 to it.
    Refused,
    /// The service says 503 to it for ever.
    Hopeless,
    /// The same, and its deadline passes while it waits.
    Hurried,
    /// Its deadline has passed when it is published.
    Late,
    /// Its body is cut off.
    Undecodable,
    /// It kills the process that handles it.
    Poison,
    /// Its routing key matches no binding.
    Misrouted,
}

impl Kind {
    pub(super) fn fate(self) -> Fate {
        let parked = |reason: &str| Fate::Parked(reason.to_owned());
        match self {
            Self::Ordinary | Self::Contended => Fate::Handled,
            Self::Refused => parked("permanent"),
            Self::Hopeless => parked("exhausted"),
            Self::Hurried | Self::Late => Fate::Expired,
            Self::Undecodable => parked("undecodable"),
            Self::Poison => parked(DELIVERY_LIMIT),
            Self::Misrouted => Fate::Stray,
        }
    }
}

/// The broker's own reason for parking, as its `x-death` header has it.
pub(super) const DELIVERY_LIMIT: &str = "delivery_limit";

/// Where a message's way ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// The HTTP service took it.
    Handled,
    /// It is in the parked queue, for this reason.
    Parked(String),
    /// It is in the parked queue because its time was over.
    Expired,
    /// It is in the stray queue.
    Stray,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handled => f.write_str("handled"),
            Self::Parked(reason) if reason == DELIVERY_LIMIT => f.write_str("parked: delivery limit (by the broker)"),
            Self::Parked(reason) => write!(f, "parked: {reason}"),
            Self::Expired => f.write_str("expired, and parked"),
            Self::Stray => f.write_str("stray"),
        }
    }
}

/// One order of the script.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) id: u32,
    pub(super) kind: Kind,
    pub(super) routing_key: &'static str,
}

/// What is in an order's body.
#[derive(Debug, Serialize, serde::Deserialize)]
pub(super) struct Body {
    pub(super) id: u32,
    pub(super) item: String,
    pub(super) quantity: u32,
}

/// So many orders, the special ones spread among them.
pub(super) fn orders(count: u32) -> Vec<Order> {
    let mut kinds = vec![Kind::Ordinary; count as usize];
    let places = [
        (0.05, Kind::Refused),
        (0.10, Kind::Misrouted),
        (0.12, Kind::Hopeless),
        (0.16, Kind::Undecodable),
        (0.20, Kind::Late),
        (0.35, Kind::Refused),
        (0.56, Kind::Hurried),
        (0.58, Kind::Refused),
        (0.62, Kind::Hopeless),
        (0.80, Kind::Poison),
        (0.85, Kind::Refused),
        (0.90, Kind::Misrouted),
    ];
    for (part, kind) in places {
        let from = (f64::from(count) * part) as usize;
        if let Some(place) = kinds.iter_mut().skip(from).find(|kind| **kind == Kind::Ordinary) {
            *place = kind;
        }
    }
    for kind in kinds.iter_mut().step_by(5).filter(|kind| **kind == Kind::Ordinary) {
        *kind = Kind::Contended;
    }
    let keys = ["order.created", "order.changed", "order.paid.eu", "order.paid.us"];
    let order = |(index, kind): (usize, Kind)| Order {
        id: index as u32 + 1,
        kind,
        routing_key: if kind == Kind::Misrouted { "invoice.created" } else { keys[index % keys.len()] },
    };
    kinds.into_iter().enumerate().map(order).collect()
}

impl Order {
    pub(super) fn message(&self, now_millis: i64) -> Publish {
        let item = if self.kind == Kind::Poison { POISON } else { "a box of screws" };
        let body = Body { id: self.id, item: item.to_owned(), quantity: 1 + self.id % 5 };
        let mut message =
            Publish::to(EXCHANGE, self.routing_key).json(&json!(body)).message_id(format!("{ID_PREFIX}{}", self.id));
        if self.kind == Kind::Undecodable {
            message.body.truncate(message.body.len() / 2);
        }
        let hurry = i64::try_from(HURRY.as_millis()).unwrap_or(i64::MAX);
        match self.kind {
            Kind::Late => message.header("rehop-expires-at", now_millis - 60_000),
            Kind::Hurried => message.header("rehop-expires-at", now_millis + hurry),
            Kind::Ordinary
            | Kind::Contended
            | Kind::Refused
            | Kind::Hopeless
            | Kind::Undecodable
            | Kind::Poison
            | Kind::Misrouted => message,
        }
    }
}

const ID_PREFIX: &str = "order-";

/// The order that a message belongs to, whatever became of its body.
pub(super) fn id_of(message_id: &str) -> Option<u32> {
    message_id.strip_prefix(ID_PREFIX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_and_the_largest_script_have_every_kind_and_mostly_ordinary_orders() {
        for count in [50, 300, 5000] {
            let orders = orders(count);
            let of = |kind| orders.iter().filter(|order| order.kind == kind).count();
            assert_eq!(orders.len(), count as usize);
            assert_eq!((of(Kind::Poison), of(Kind::Late), of(Kind::Hurried), of(Kind::Undecodable)), (1, 1, 1, 1));
            assert_eq!((of(Kind::Misrouted), of(Kind::Hopeless), of(Kind::Refused)), (2, 2, 4));
            assert!(of(Kind::Contended) >= 5 && of(Kind::Ordinary) > count as usize / 2);
        }
    }

    #[test]
    fn the_outage_is_shorter_than_all_waits_together() {
        assert!(OUTAGE.end - OUTAGE.start < WAITS.iter().sum::<Duration>());
    }
}
