//! Values as AMQP writes them, and how much room they take.

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, ShortString};

use crate::message::HeaderValue;
use crate::retry::ledger::{ErrorRecord, MAX_ERRORS};
use crate::timestamp::Timestamp;

/// The history, as JSON. Brokers and clients read and write every field of a header on each of its
/// ways, and a text is one field: as nested tables the history would cost several times as much.
pub(super) fn errors_value(records: &[ErrorRecord]) -> AMQPValue {
    // Numbers and texts always have a JSON form.
    text(&serde_json::to_string(records).unwrap_or_default())
}

/// `None` for anything but a list of failure records.
pub(super) fn error_records(value: &AMQPValue) -> Option<Vec<ErrorRecord>> {
    #[derive(serde::Deserialize)]
    struct Record {
        at: i64,
        attempt: u32,
        class: String,
        message: String,
    }
    let records: Vec<Record> = serde_json::from_str(HeaderValue::of(value).as_text()?).ok()?;
    let newest = records.into_iter().rev().take(MAX_ERRORS);
    let mut records: Vec<_> = newest
        .map(|it| {
            ErrorRecord::new(Timestamp::from_millis(it.at), it.attempt, &it.class, &it.message)
        })
        .collect();
    records.reverse();
    Some(records)
}

/// rehop's own names are short, and a configured one is checked with the settings.
pub(super) fn insert(headers: &mut BTreeMap<ShortString, AMQPValue>, name: &str, value: AMQPValue) {
    if let Ok(name) = ShortString::try_new(name) {
        headers.insert(name, value);
    }
}

pub(super) fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

pub(super) fn moment_value(moment: Timestamp) -> AMQPValue {
    AMQPValue::LongLongInt(moment.as_millis())
}

pub(crate) fn duration_value(duration: Duration) -> AMQPValue {
    AMQPValue::LongLongInt(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

/// How many bytes the properties of a message take on the wire: which there are, and each of them.
pub(crate) fn properties_size(properties: &BasicProperties) -> usize {
    const FLAGS: usize = 2;
    const LENGTH: usize = 4;
    let texts = [
        properties.content_type(),
        properties.content_encoding(),
        properties.correlation_id(),
        properties.reply_to(),
        properties.expiration(),
        properties.message_id(),
        properties.kind(),
        properties.user_id(),
        properties.app_id(),
        properties.cluster_id(),
    ];
    let texts: usize = texts.into_iter().flatten().map(|text| 1 + text.as_str().len()).sum();
    let headers =
        properties.headers().as_ref().map_or(0, |headers| LENGTH + table_size(headers.inner()));
    let bytes = [properties.delivery_mode(), properties.priority()].into_iter().flatten().count();
    let timestamp = properties.timestamp().map_or(0, |_| 8);
    FLAGS + texts + headers + bytes + timestamp
}

/// How many bytes the fields of a table take on the wire.
pub fn table_size(headers: &BTreeMap<ShortString, AMQPValue>) -> usize {
    headers.iter().map(|(name, value)| field_size(name, value)).sum()
}

pub(super) fn field_size(name: &ShortString, value: &AMQPValue) -> usize {
    1 + name.as_str().len() + value_size(value)
}

pub(super) fn value_size(value: &AMQPValue) -> usize {
    const TYPE: usize = 1;
    const LENGTH: usize = 4;
    TYPE + match value {
        AMQPValue::Void => 0,
        AMQPValue::Boolean(_) | AMQPValue::ShortShortInt(_) | AMQPValue::ShortShortUInt(_) => 1,
        AMQPValue::ShortInt(_) | AMQPValue::ShortUInt(_) => 2,
        AMQPValue::LongInt(_) | AMQPValue::LongUInt(_) | AMQPValue::Float(_) => 4,
        AMQPValue::DecimalValue(_) => 5,
        AMQPValue::LongLongInt(_) | AMQPValue::Double(_) | AMQPValue::Timestamp(_) => 8,
        AMQPValue::ShortString(text) => 1 + text.as_str().len(),
        AMQPValue::LongString(text) => LENGTH + text.len(),
        AMQPValue::ByteArray(bytes) => LENGTH + bytes.len(),
        AMQPValue::FieldArray(array) => {
            LENGTH + array.as_slice().iter().map(value_size).sum::<usize>()
        }
        AMQPValue::FieldTable(table) => LENGTH + table_size(table.inner()),
    }
}
