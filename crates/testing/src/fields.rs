//! Converts between JSON and AMQP's field tables.

use lapin::types::{AMQPValue, FieldArray, FieldTable, LongString, ShortString};
use serde_json::{Map, Number, Value, json};

use super::client_error::ClientError;

/// The key that marks a value given with its exact AMQP type.
const EXACT: &str = "$amqp";

pub(super) fn short(text: &str) -> Result<ShortString, ClientError> {
    ShortString::try_new(text)
        .map_err(|_| ClientError::TooLong { text: text.chars().take(40).collect() })
}

/// A JSON object as a field table; `null` is an empty one.
pub(super) fn table(value: &Value) -> Result<FieldTable, ClientError> {
    match value {
        Value::Null => Ok(FieldTable::default()),
        Value::Object(fields) => table_of(fields),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(ClientError::Field {
                field: value.to_string(),
                reason: "expected a JSON object".to_owned(),
            })
        }
    }
}

pub(super) fn table_of(fields: &Map<String, Value>) -> Result<FieldTable, ClientError> {
    let mut table = FieldTable::default();
    for (key, value) in fields {
        table.insert(short(key)?, field(value)?);
    }
    Ok(table)
}

fn field(value: &Value) -> Result<AMQPValue, ClientError> {
    Ok(match value {
        Value::Null => AMQPValue::Void,
        Value::Bool(it) => AMQPValue::Boolean(*it),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => AMQPValue::LongLongInt(whole),
            (None, Some(float)) => AMQPValue::Double(float),
            (None, None) => return Err(wrong(value, "the number fits no AMQP type")),
        },
        Value::String(text) => AMQPValue::LongString(LongString::from(text.as_bytes())),
        Value::Array(items) => AMQPValue::FieldArray(FieldArray::from(
            items.iter().map(field).collect::<Result<Vec<_>, _>>()?,
        )),
        Value::Object(fields) => match (fields.get(EXACT), fields.len()) {
            (Some(exact), 1) => serde_json::from_value(exact.clone())
                .map_err(|error| wrong(exact, &error.to_string()))?,
            _ => AMQPValue::FieldTable(table_of(fields)?),
        },
    })
}

fn wrong(value: &Value, reason: &str) -> ClientError {
    ClientError::Field { field: value.to_string(), reason: reason.to_owned() }
}

/// The plain form, which is easy to read but does not distinguish all types.
pub(super) fn plain(table: &FieldTable) -> Map<String, Value> {
    table.inner().iter().map(|(key, value)| (key.to_string(), plain_value(value))).collect()
}

fn plain_value(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Boolean(it) => json!(it),
        AMQPValue::ShortShortInt(it) => json!(it),
        AMQPValue::ShortShortUInt(it) => json!(it),
        AMQPValue::ShortInt(it) => json!(it),
        AMQPValue::ShortUInt(it) => json!(it),
        AMQPValue::LongInt(it) => json!(it),
        AMQPValue::LongUInt(it) => json!(it),
        AMQPValue::LongLongInt(it) => json!(it),
        AMQPValue::Timestamp(it) => json!(it),
        AMQPValue::Float(it) => float(f64::from(*it)),
        AMQPValue::Double(it) => float(*it),
        AMQPValue::DecimalValue(it) => {
            float(f64::from(it.value) / 10_f64.powi(i32::from(it.scale)))
        }
        AMQPValue::ShortString(it) => json!(it.as_str()),
        AMQPValue::LongString(it) => json!(it.to_string()),
        AMQPValue::ByteArray(it) => json!(String::from_utf8_lossy(it.as_slice())),
        AMQPValue::FieldArray(items) => items.as_slice().iter().map(plain_value).collect(),
        AMQPValue::FieldTable(table) => Value::Object(plain(table)),
        AMQPValue::Void => Value::Null,
    }
}

fn float(it: f64) -> Value {
    Number::from_f64(it).map_or(Value::Null, Value::Number)
}

/// The exact form of each field, with `$amqp`.
pub(super) fn exact(table: &FieldTable) -> Map<String, Value> {
    let exact = |value: &AMQPValue| {
        serde_json::to_value(value).map_or(Value::Null, |it| json!({ EXACT: it }))
    };
    table.inner().iter().map(|(key, value)| (key.to_string(), exact(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::{exact, plain, table};
    use serde_json::{Value, json};

    #[test]
    fn plain_json_comes_back_unchanged() {
        let headers = json!({ "a": 1, "b": "text", "c": [true, null, 1.5], "d": { "e": -1 } });
        assert_eq!(table(&headers).map(|table| Value::Object(plain(&table))).ok(), Some(headers));
    }

    #[test]
    fn an_exact_type_comes_back_exactly() {
        let headers = json!({
            "byte": { "$amqp": { "ShortShortInt": -5 } },
            "bytes": { "$amqp": { "ByteArray": [1, 255] } },
            "decimal": { "$amqp": { "DecimalValue": { "scale": 2, "value": 150 } } },
            "nothing": { "$amqp": "Void" },
            "when": { "$amqp": { "Timestamp": 5 } },
        });
        let table = table(&headers);
        assert_eq!(table.as_ref().map(|table| Value::Object(exact(table))).ok(), Some(headers));
        assert_eq!(table.map(|table| plain(&table)["decimal"].clone()).ok(), Some(json!(1.5)));
    }

    #[test]
    fn an_unknown_exact_type_is_an_error_that_names_it() {
        let error =
            table(&json!({ "x": { "$amqp": { "Word": 1 } } })).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("Word")));
    }
}
