//! A message as the broker keeps it, independent of the queue in which it is.

use std::sync::Arc;

use lapin::BasicProperties;
use lapin::types::ShortString;

use crate::death::Death;
use crate::headers::{strings, with_headers};
use crate::names::Name;
use crate::protocol::Time;

/// What was published. Queues share it; whatever changes per queue is in their entries.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// Where it was published, by a client or by dead-lettering. Alternate exchanges do not change
    /// it.
    pub(crate) exchange: Name,
    /// The routing key, then those of the `CC` and `BCC` headers.
    pub(crate) routing_keys: Vec<Name>,
    /// How many of the routing keys are of `BCC`, which nobody is told.
    pub(crate) bcc: usize,
    pub(crate) properties: Arc<BasicProperties>,
    pub(crate) body: Arc<Vec<u8>>,
    /// The publisher's `expiration`.
    pub(crate) ttl: Option<Time>,
    /// What 4.x knows about dead-lettering apart from the headers, the latest first. A client
    /// cannot set it.
    pub(crate) deaths: Vec<Death>,
    /// 4.x passes the delivery count on when a message is dead-lettered, and the next quorum queue
    /// counts on from there.
    pub(crate) delivery_count: Option<u64>,
}

impl Message {
    /// What a client publishes. `CC` and `BCC` are further routing keys, and nobody but the broker
    /// sees `BCC`.
    pub(crate) fn new(
        exchange: &ShortString,
        routing_key: &ShortString,
        mut properties: BasicProperties,
        body: Vec<u8>,
    ) -> Self {
        let mut routing_keys = vec![Name::from(routing_key.as_str())];
        let mut bcc = 0;
        if let Some(headers) = properties.headers() {
            let keys_of =
                |header: &str| headers.inner().get(header).map(strings).unwrap_or_default();
            routing_keys.extend(keys_of("CC"));
            bcc = keys_of("BCC").len();
            routing_keys.extend(keys_of("BCC"));
            if headers.contains_key("BCC") {
                properties = with_headers(&properties, true, |headers| _ = headers.remove("BCC"));
            }
        }
        Self {
            exchange: Name::from(exchange.as_str()),
            routing_keys,
            bcc,
            ttl: None,
            properties: Arc::new(properties),
            body: Arc::new(body),
            deaths: Vec::new(),
            delivery_count: None,
        }
    }

    /// The first routing key is the one that deliveries show.
    pub(crate) fn routing_key(&self) -> &str {
        self.routing_keys.first().map_or("", |key| key)
    }

    /// What `x-death` shows: `CC` but not `BCC`.
    pub(crate) fn shown_routing_keys(&self) -> &[Name] {
        self.routing_keys
            .get(..self.routing_keys.len().saturating_sub(self.bcc))
            .unwrap_or_default()
    }

    /// Whether it survives a restart in a classic queue.
    pub(crate) fn is_persistent(&self) -> bool {
        *self.properties.delivery_mode() == Some(2)
    }
}
