//! Tables of headers and arguments: reading, changing, comparing, measuring.

use std::collections::BTreeMap;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::names::Name;

/// A string, in either of the two types that clients use for it.
pub(crate) fn string<'a>(table: &'a FieldTable, key: &str) -> Option<&'a str> {
    match table.inner().get(key)? {
        AMQPValue::LongString(value) => std::str::from_utf8(value.as_bytes()).ok(),
        AMQPValue::ShortString(value) => Some(value.as_str()),
        _ => None,
    }
}

/// An integer of any width.
pub(crate) fn integer(value: &AMQPValue) -> Option<i64> {
    match *value {
        AMQPValue::ShortShortInt(value) => Some(value.into()),
        AMQPValue::ShortShortUInt(value) => Some(value.into()),
        AMQPValue::ShortInt(value) => Some(value.into()),
        AMQPValue::ShortUInt(value) => Some(value.into()),
        AMQPValue::LongInt(value) => Some(value.into()),
        AMQPValue::LongUInt(value) => Some(value.into()),
        AMQPValue::LongLongInt(value) => Some(value),
        _ => None,
    }
}

/// The integer under a key.
pub(crate) fn integer_of(table: &FieldTable, key: &str) -> Option<i64> {
    table.inner().get(key).and_then(integer)
}

/// A string value as the broker writes it.
pub(crate) fn long_string(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

/// The strings of an array, such as those of `CC`.
pub(crate) fn strings(value: &AMQPValue) -> Vec<Name> {
    let AMQPValue::FieldArray(values) = value else { return Vec::new() };
    values
        .as_slice()
        .iter()
        .filter_map(|value| match value {
            AMQPValue::LongString(text) => {
                std::str::from_utf8(text.as_bytes()).ok().map(Name::from)
            }
            _ => None,
        })
        .collect()
}

/// The same properties with other headers, and perhaps without `expiration`: lapin's type can set a
/// property but not remove it.
pub(crate) fn with_headers(
    properties: &BasicProperties,
    keeps_expiration: bool,
    change: impl FnOnce(&mut BTreeMap<ShortString, AMQPValue>),
) -> BasicProperties {
    let mut changed = BasicProperties::default();
    macro_rules! keep {
        ($($get:ident $with:ident),*) => {
            $(if let Some(value) = properties.$get().clone() { changed = changed.$with(value); })*
        };
    }
    keep!(
        content_type with_content_type, content_encoding with_content_encoding, delivery_mode with_delivery_mode,
        priority with_priority, correlation_id with_correlation_id, reply_to with_reply_to, message_id with_message_id,
        timestamp with_timestamp, kind with_type, user_id with_user_id, app_id with_app_id, cluster_id with_cluster_id
    );
    if let Some(expiration) = properties.expiration().clone().filter(|_| keeps_expiration) {
        changed = changed.with_expiration(expiration);
    }
    let mut headers =
        properties.headers().as_ref().map(|headers| headers.inner().clone()).unwrap_or_default();
    change(&mut headers);
    if headers.is_empty() && properties.headers().is_none() {
        return changed;
    }
    changed.with_headers(FieldTable::from(headers))
}

/// Whether a header exchange takes two values for the same. RabbitMQ compares what they hold, not
/// their types: a string equals a byte array, and integers of different widths are equal.
pub(crate) fn is_same_value(left: &AMQPValue, right: &AMQPValue) -> bool {
    if let (Some(left), Some(right)) = (integer(left), integer(right)) {
        return left == right;
    }
    if let (Some(left), Some(right)) = (bytes(left), bytes(right)) {
        return left == right;
    }
    left == right
}

fn bytes(value: &AMQPValue) -> Option<&[u8]> {
    match value {
        AMQPValue::LongString(value) => Some(value.as_bytes()),
        AMQPValue::ShortString(value) => Some(value.as_str().as_bytes()),
        AMQPValue::ByteArray(value) => Some(value.as_slice()),
        _ => None,
    }
}
