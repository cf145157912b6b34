//! How much of a message fits into a frame, and what becomes of the rest.
//!
//! All properties of a message, with its headers, are in one frame. A larger one closes the connection (3.10, 4.0 and 4.3). The
//! broker does not hold itself to that limit when it adds headers of its own, and then no client can receive the message.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use lapin::BasicProperties;
use lapin::types::generation::gen_field_table;
use lapin::types::parsing::parse_field_table;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use super::names::*;
use super::values::{field_size, insert, properties_size, table_size};

/// A frame's type, channel, size and end, and before the properties the class, the weight and the size of the body.
const FRAME_AROUND_PROPERTIES: usize = (1 + 2 + 4 + 1) + (2 + 2 + 8);

/// For the death headers of the wait queues, of which a ladder has several.
const RESERVED_FOR_WAITS: usize = 4096;

/// For the counts of a message that is looked at, and for the death headers of a policy that moves it on.
const RESERVED_AT_REST: usize = 1024;

/// For `x-delivery-count` and `x-acquired-count`, and for the header table if there is none yet.
const RESERVED_FOR_COUNTS: usize = 64;

/// How many bytes the properties of a message may take, with its headers, on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    frame: usize,
    /// A small frame must not be reserved as a whole.
    most_reserved: usize,
}

impl Room {
    /// On a connection to a broker that allows what RabbitMQ allows unless it is configured otherwise (3.10, 4.0 and 4.3).
    pub(crate) const DEFAULT: Self = Self::of_frame(128 * 1024);

    /// For what is not sent in a frame.
    pub const UNLIMITED: Self = Self { frame: usize::MAX, most_reserved: 0 };

    /// On a connection that has negotiated this limit.
    pub const fn of_frame(frame_max: u32) -> Self {
        let frame = frame_max as usize;
        Self { frame: frame.saturating_sub(FRAME_AROUND_PROPERTIES), most_reserved: frame / 4 }
    }

    /// For a message that other queues dead-letter.
    pub(crate) fn to_wait(self) -> usize {
        self.without(RESERVED_FOR_WAITS)
    }

    /// For a message in a queue at rest.
    pub(super) fn at_rest(self) -> usize {
        self.without(RESERVED_AT_REST)
    }

    /// Whether the broker can deliver a message with these properties once more, with its counts.
    pub(crate) fn lets_return(self, properties: &BasicProperties) -> bool {
        properties_size(properties) <= self.without(RESERVED_FOR_COUNTS)
    }

    fn without(self, reserved: usize) -> usize {
        self.frame.saturating_sub(reserved.min(self.most_reserved))
    }
}

/// The headers of a copy leave no room for rehop's, so it cannot wait or be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its properties and headers would take {bytes} bytes, and a frame has room for {limit}")]
pub struct HeadersTooLarge {
    pub(super) bytes: usize,
    pub(super) limit: usize,
}

/// The properties of a copy, unless its headers do not fit into a frame.
pub(super) fn checked(copy: BasicProperties, room: Room) -> Result<BasicProperties, HeadersTooLarge> {
    let (bytes, limit) = (properties_size(&copy), room.to_wait());
    if bytes > limit { Err(HeadersTooLarge { bytes, limit }) } else { Ok(copy) }
}

/// A copy in a queue at rest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resting {
    /// Its properties, which always fit into a frame.
    pub properties: BasicProperties,
    /// What follows the message's body: the headers that do not fit into the frame, as an AMQP table. Usually nothing.
    pub overflow: Vec<u8>,
}

/// These say why the message is here, where it came from, and what its chain is. They fit into any frame.
const STAYS: [&str; 5] = [REASON, EXCHANGE, ROUTING_KEY, CHAIN_ID, BODY_BYTES];

/// Removes the largest headers until the others take no more than `limit` bytes, and returns what follows the body instead: a body
/// can be as large as a message may be.
pub(super) fn make_room(headers: &mut BTreeMap<ShortString, AMQPValue>, body_bytes: usize, limit: usize) -> Vec<u8> {
    if table_size(headers) <= limit {
        return Vec::new();
    }
    insert(headers, BODY_BYTES, AMQPValue::LongLongInt(i64::try_from(body_bytes).unwrap_or(i64::MAX)));
    let mut bytes = table_size(headers);
    let mut left: Vec<_> = headers.iter().map(|(name, value)| (field_size(name, value), name.clone())).collect();
    left.retain(|(_, name)| !STAYS.contains(&name.as_str()));
    left.sort_by_key(|(size, _)| Reverse(*size));
    let mut moved = BTreeMap::new();
    for (size, name) in left {
        if bytes <= limit {
            break;
        }
        bytes -= size;
        moved.extend(headers.remove_entry(&name));
    }
    let moved = FieldTable::from(moved);
    // Only writing to memory, which cannot fail.
    gen_field_table(&moved)(Vec::new().into()).map(|written| written.write).unwrap_or_default()
}

/// Puts the headers that are behind the body back to the others. A message that does not look like a copy whose headers were moved
/// stays as it is.
pub fn reunite(properties: &mut BasicProperties, body: &mut Vec<u8>) {
    let Some(headers) = properties.headers() else { return };
    let Some(AMQPValue::LongLongInt(bytes)) = headers.inner().get(BODY_BYTES) else { return };
    let Some((end, overflow)) = usize::try_from(*bytes).ok().and_then(|end| Some((end, body.get(end..)?))) else {
        return;
    };
    if !is_shallow_table(overflow) {
        return;
    }
    let Ok((rest, moved)) = parse_field_table(overflow) else { return };
    if !rest.is_empty() {
        return;
    }
    let mut all: BTreeMap<ShortString, AMQPValue> = moved.inner().clone();
    all.extend(headers.inner().clone());
    all.remove(BODY_BYTES);
    *properties = std::mem::take(properties).with_headers(FieldTable::from(all));
    body.truncate(end);
}

/// Whether these bytes may be a table that is nested less than a hundred deep. lapin parses tables by recursion (4.12), so the stack could
/// overflow; and anyone may have written a body.
fn is_shallow_table(bytes: &[u8]) -> bool {
    const DEEPEST: usize = 100;
    let mut containers = vec![(bytes, true, 0)];
    while let Some((container, is_table, depth)) = containers.pop() {
        let Some((mut fields, [])) = sized(container) else { return false };
        while !fields.is_empty() {
            if is_table {
                let Some((_, rest)) = fields.split_first().and_then(|(length, rest)| rest.split_at_checked((*length).into()))
                else {
                    return false;
                };
                fields = rest;
            }
            let Some((tag, value)) = fields.split_first() else { return false };
            let size = match tag {
                b'F' | b'A' | b'S' | b'x' => sized(value).map(|(held, _)| 4 + held.len()),
                b't' | b'b' | b'B' => Some(1),
                b's' | b'u' | b'U' => Some(2),
                b'I' | b'i' | b'f' => Some(4),
                b'D' => Some(5),
                b'L' | b'l' | b'd' | b'T' => Some(8),
                b'V' => Some(0),
                _ => None,
            };
            let Some((value, rest)) = size.and_then(|size| value.split_at_checked(size)) else { return false };
            if matches!(tag, b'F' | b'A') {
                if depth == DEEPEST {
                    return false;
                }
                containers.push((value, *tag == b'F', depth + 1));
            }
            fields = rest;
        }
    }
    true
}

/// What a table, an array or a long string holds, and what follows it.
fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}
