//! Headers that do not fit into the frame of a message at rest: they follow its body.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use lapin::BasicProperties;
use lapin::types::generation::gen_field_table;
use lapin::types::parsing::parse_field_table;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use super::encoding::{Field, Readable, Reader, fields};
use super::names::*;
use super::values::{field_size, insert, table_size};

/// A copy in a queue at rest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resting {
    /// Its properties, which always fit into a frame.
    pub properties: BasicProperties,
    /// What follows the message's body: the headers that do not fit into the frame, as an AMQP
    /// table. Usually nothing.
    pub overflow: Vec<u8>,
}

/// These say why and since when the message is here, where it came from, and what its chain is.
/// They fit into any frame.
const STAYS: [&str; 6] = [REASON, PARKED_AT, EXCHANGE, ROUTING_KEY, CHAIN_ID, BODY_BYTES];

/// Removes the largest headers until the others take no more than `limit` bytes, and returns what
/// follows the body instead: a body can be as large as a message may be.
pub(super) fn make_room(
    headers: &mut BTreeMap<ShortString, AMQPValue>,
    body_bytes: usize,
    limit: usize,
) -> Vec<u8> {
    if table_size(headers) <= limit {
        return Vec::new();
    }
    insert(
        headers,
        BODY_BYTES,
        AMQPValue::LongLongInt(i64::try_from(body_bytes).unwrap_or(i64::MAX)),
    );
    let mut bytes = table_size(headers);
    let mut left: Vec<_> =
        headers.iter().map(|(name, value)| (field_size(name, value), name.clone())).collect();
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

/// Puts the headers that are behind the body back to the others. A message that does not look like
/// a copy whose headers were moved stays as it is.
pub fn reunite(properties: &mut BasicProperties, body: &mut Vec<u8>) {
    let Some(headers) = properties.headers() else { return };
    let Some(AMQPValue::LongLongInt(bytes)) = headers.inner().get(BODY_BYTES) else { return };
    let Some((end, overflow)) =
        usize::try_from(*bytes).ok().and_then(|end| Some((end, body.get(end..)?)))
    else {
        return;
    };
    if !is_table(overflow) {
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

/// Whether these bytes are a table that lapin can be trusted with. Anyone may have written a body,
/// and a table takes many times its size once it is parsed; what rehop moved behind a body came in
/// one frame.
fn is_table(bytes: &[u8]) -> bool {
    const LARGEST: usize = 2 * 1024 * 1024;
    if bytes.len() > LARGEST {
        return false;
    }
    let mut reader = Reader(bytes);
    let Some(content) = reader.sized() else { return false };
    let are_readable =
        |all: Vec<Field<'_>>| all.into_iter().all(|field| field.readable() == Readable::Yes);
    reader.0.is_empty() && fields(content).is_some_and(are_readable)
}
