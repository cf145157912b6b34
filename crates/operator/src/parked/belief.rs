//! Whether the headers with rehop's names in a message at rest are rehop's own. Pure.

use std::borrow::Cow;

use lapin::BasicProperties;

use rehop::internals::Names;
use rehop::internals::at_rest::{published_to, read, without_own};

/// The properties to read: without what only looks like rehop's headers. As a service does, the
/// tools believe them only of what came by rehop's exchanges: a message that the broker parks
/// before rehop has handled it, or that somebody puts straight into the queue, still has whatever
/// its producer wrote.
pub(crate) fn believed<'a>(
    names: &Names,
    exchange: &str,
    properties: &'a BasicProperties,
    expiry_header: &str,
) -> Cow<'a, BasicProperties> {
    match is_believed(names, exchange, properties, expiry_header) {
        true => Cow::Borrowed(properties),
        false => Cow::Owned(without_own(properties, expiry_header)),
    }
}

fn is_believed(
    names: &Names,
    exchange: &str,
    properties: &BasicProperties,
    expiry_header: &str,
) -> bool {
    let deaths = read(properties, expiry_header).deaths;
    is_ours(names, published_to(&deaths, exchange, |name| rests(names, name)))
}

/// Whether messages come by this exchange to a queue in which they rest.
fn rests(names: &Names, exchange: &str) -> bool {
    [names.park(), names.stray(), names.discarded()].iter().any(|own| own == exchange)
}

/// Whether rehop alone publishes to this exchange.
fn is_ours(names: &Names, exchange: &str) -> bool {
    rests(names, exchange)
        || [names.return_(), names.delay()].iter().any(|own| own == exchange)
        || names.of_wait_exchange(exchange).is_some()
        || names.of_after(exchange).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_by_an_exchange_of_rehops_is_believed() {
        let names = Names::new("ns");
        for ours in [
            "ns.return",
            "ns.wait",
            "ns.after.400",
            "ns.wait.orders",
            "ns.after.orders.400",
            "ns.delay",
            "ns.ladder",
            "ns.park",
            "ns.stray",
            "ns.discarded",
        ] {
            assert!(is_ours(&names, ours), "{ours}");
        }
        for other in ["shop", "", "ns.after.x", "ns.aftermath", "other.after.400", "ns.report"] {
            assert!(!is_ours(&names, other), "{other}");
        }
    }
    #[test]
    fn what_somebody_puts_straight_into_a_queue_is_not_believed() {
        let names = Names::new("ns");
        let properties = BasicProperties::default();
        for (exchange, expected) in [("", false), ("shop", false), ("ns.park", true)] {
            let is_believed = is_believed(&names, exchange, &properties, "rehop-expires-at");
            assert_eq!(is_believed, expected, "{exchange:?}");
        }
    }
}
