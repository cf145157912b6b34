//! How many messages a subscription may bring at a time. Pure.

use lapin::BasicProperties;

use rehop::internals::table_size;

/// How many bytes of messages may be on their way to this process, and again as many of bodies on their way from it.
pub(super) const BYTES_UNDER_WAY: u64 = 64 * 1024 * 1024;
/// The first subscription brings one message. The second brings this many, or as many as are moved at a time, unless the first message
/// shows that these would be too large.
const SECOND: u64 = 256;

/// What the next subscription's prefetch follows from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// How many subscriptions there are already.
    pub(super) subscriptions: usize,
    /// How many more messages are wanted.
    pub(super) wanted: u64,
    /// `None` if messages are only looked at.
    pub(super) moving: Option<Moving>,
    /// How many messages have come.
    pub(super) received: u64,
    /// Their [size].
    pub(super) bytes: u64,
}

/// The size of a message. Anyone may have filled its headers, up to a frame, and left its body empty.
pub(super) fn size(properties: &BasicProperties, body: &[u8]) -> u64 {
    let headers = properties.headers().as_ref().map_or(0, |headers| table_size(headers.inner()));
    (headers + body.len()) as u64
}

/// For messages that are moved.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moving {
    /// How many are moved at a time.
    pub(super) at_once: u64,
    /// How many have stayed.
    pub(super) kept: u64,
}

impl Demand {
    /// How many messages the next subscription may bring. One message first, for its delivery count and its size; then as many as are
    /// wanted and memory allows, by the average size of those that have come.
    pub(super) fn prefetch(self) -> u16 {
        let most = match self.subscriptions {
            0 => 1,
            1 => self.moving.map_or(0, |moving| moving.at_once).max(SECOND),
            _ => u64::MAX,
        };
        let moved = self.moving.map_or(u64::MAX, |moving| moving.at_once.max(moving.kept / 4));
        let in_memory = BYTES_UNDER_WAY / (self.bytes / self.received.max(1)).max(1);
        u16::try_from(most.min(self.wanted).min(moved).min(in_memory)).unwrap_or(u16::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use lapin::types::{AMQPValue, FieldTable};

    use super::*;

    #[test]
    fn a_message_is_as_large_as_its_body_and_its_headers() {
        assert_eq!(size(&BasicProperties::default(), b"body"), 4);
        let mut headers = FieldTable::default();
        headers.insert("name".into(), AMQPValue::LongString("x".repeat(100_000).as_str().into()));
        let size = size(&BasicProperties::default().with_headers(headers), b"body");
        assert!((100_008..100_030).contains(&size), "{size}");
    }

    #[test]
    fn a_subscription_brings_no_more_than_memory_allows_but_always_one_message() {
        const MIB: u64 = 1024 * 1024;
        const AFTER_ONE: Demand = Demand { subscriptions: 1, wanted: 100_000, moving: None, received: 1, bytes: 1_000 };
        let moving = |at_once, kept| Some(Moving { at_once, kept });
        for (demand, expected) in [
            (Demand { subscriptions: 0, received: 0, bytes: 0, ..AFTER_ONE }, 1),
            (Demand { bytes: 0, ..AFTER_ONE }, 256),
            (Demand { wanted: 7, ..AFTER_ONE }, 7),
            (Demand { bytes: 16 * MIB, ..AFTER_ONE }, 4),
            (Demand { bytes: 100 * MIB, ..AFTER_ONE }, 1),
            (Demand { subscriptions: 2, received: 257, bytes: 257 * 1_024, ..AFTER_ONE }, u16::MAX),
            (Demand { subscriptions: 2, received: 257, bytes: 257 * MIB, ..AFTER_ONE }, 64),
            (Demand { moving: moving(500, 0), ..AFTER_ONE }, 500),
            (Demand { moving: moving(500, 0), bytes: 16 * MIB, ..AFTER_ONE }, 4),
            (Demand { moving: moving(100, 0), ..AFTER_ONE }, 100),
            (
                Demand { subscriptions: 2, moving: moving(100, 4_000), received: 4_100, bytes: 4_100, ..AFTER_ONE },
                1_000,
            ),
            (Demand { subscriptions: 2, wanted: 0, bytes: 1, ..AFTER_ONE }, 1),
        ] {
            assert_eq!(demand.prefetch(), expected, "{demand:?}");
        }
    }
}
