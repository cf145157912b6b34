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
            AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok().map(Name::from),
            _ => None,
        })
        .collect()
}

/// The same properties with other headers.
pub(crate) fn with_headers(
    properties: &BasicProperties,
    change: impl FnOnce(&mut BTreeMap<ShortString, AMQPValue>),
) -> BasicProperties {
    let changed = without_expiration(properties, change);
    match properties.expiration().clone() {
        Some(expiration) => changed.with_expiration(expiration),
        None => changed,
    }
}

/// The same properties with other headers and without `expiration`: lapin's type can set a property but not remove it.
pub(crate) fn without_expiration(
    properties: &BasicProperties,
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
    let mut headers = properties.headers().as_ref().map(|headers| headers.inner().clone()).unwrap_or_default();
    change(&mut headers);
    if headers.is_empty() && properties.headers().is_none() {
        return changed;
    }
    changed.with_headers(FieldTable::from(headers))
}

/// Whether a header exchange takes two values for the same. RabbitMQ compares what they hold, not their types:
/// a string equals a byte array, and integers of different widths are equal.
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

/// How many bytes the payload of a content header frame has.
pub(crate) fn header_frame_size(properties: &BasicProperties) -> usize {
    // Class, weight, body size and the flags that say which properties follow.
    const FIXED: usize = 2 + 2 + 8 + 2;
    let short = |text: &Option<ShortString>| text.as_ref().map_or(0, |text| 1 + text.as_str().len());
    let strings = short(properties.content_type())
        + short(properties.content_encoding())
        + short(properties.correlation_id())
        + short(properties.reply_to())
        + short(properties.expiration())
        + short(properties.message_id())
        + short(properties.kind())
        + short(properties.user_id())
        + short(properties.app_id())
        + short(properties.cluster_id());
    let numbers = usize::from(properties.delivery_mode().is_some())
        + usize::from(properties.priority().is_some())
        + properties.timestamp().map_or(0, |_| 8);
    FIXED + strings + numbers + properties.headers().as_ref().map_or(0, table_size)
}

fn table_size(table: &FieldTable) -> usize {
    4 + table.inner().iter().map(|(key, value)| 1 + key.as_str().len() + value_size(value)).sum::<usize>()
}

fn value_size(value: &AMQPValue) -> usize {
    1 + match value {
        AMQPValue::Void => 0,
        AMQPValue::Boolean(_) | AMQPValue::ShortShortInt(_) | AMQPValue::ShortShortUInt(_) => 1,
        AMQPValue::ShortInt(_) | AMQPValue::ShortUInt(_) => 2,
        AMQPValue::LongInt(_) | AMQPValue::LongUInt(_) | AMQPValue::Float(_) => 4,
        AMQPValue::DecimalValue(_) => 5,
        AMQPValue::LongLongInt(_) | AMQPValue::Double(_) | AMQPValue::Timestamp(_) => 8,
        AMQPValue::ShortString(text) => 1 + text.as_str().len(),
        AMQPValue::LongString(text) => 4 + text.len(),
        AMQPValue::ByteArray(bytes) => 4 + bytes.len(),
        AMQPValue::FieldArray(values) => 4 + values.as_slice().iter().map(value_size).sum::<usize>(),
        AMQPValue::FieldTable(table) => table_size(table),
    }
}
