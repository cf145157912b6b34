//! What tells a delivery of a message from deliveries of others.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::consume::inbox::Fingerprint;
use crate::consume::taken::Taken;
use crate::message::{Delivery, HeaderValue};
use crate::settings::Order;
use crate::wire::names::ATTEMPT;

/// How much of a body is hashed: enough to tell messages apart without reading all of a large one.
const READ: usize = 16 * 1024;

impl Fingerprint for Taken {
    fn fingerprint(&self) -> u64 {
        self.delivery.fingerprint()
    }

    fn order_key(&self) -> u64 {
        let delivery = &self.delivery;
        match &self.context.config.order {
            Order::None | Order::Queue => 0,
            Order::RoutingKey => key(delivery.origin.routing_key.as_str()),
            Order::Header(name) => match delivery.header(name).map(HeaderValue::of) {
                Some(HeaderValue::Int(number)) => key(&number.to_string()),
                Some(HeaderValue::Bool(flag)) => key(&flag.to_string()),
                Some(other) => other.as_text().map_or(0, key),
                None => 0,
            },
        }
    }

    fn has_waited_in_queue(&self) -> bool {
        self.context.contract.counts_waits
            && self.delivery.redelivered
            && self.delivery.ledger.hop > 0
    }
}

/// Two keys that share a hash only wait for each other needlessly.
fn key(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Fingerprint for Delivery {
    /// Covers nothing that the broker changes when it delivers a message again.
    fn fingerprint(&self) -> u64 {
        let properties = &self.properties;
        let mut hasher = DefaultHasher::new();
        for name in [&self.address.exchange, &self.address.routing_key] {
            name.as_str().hash(&mut hasher);
        }
        for id in [properties.message_id(), properties.correlation_id()].into_iter().flatten() {
            id.as_str().hash(&mut hasher);
        }
        properties.timestamp().hash(&mut hasher);
        // As it is in the headers: the ledger also counts what the broker, or this process, has
        // added since.
        if let Some(HeaderValue::Int(attempts)) = self.header(ATTEMPT).map(HeaderValue::of) {
            attempts.hash(&mut hasher);
        }
        self.ledger.chain_id.hash(&mut hasher);
        self.body.len().hash(&mut hasher);
        self.body[..self.body.len().min(READ)].hash(&mut hasher);
        hasher.finish()
    }
}
