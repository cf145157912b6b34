//! Headers and properties as JSON, for people and for exports. Pure.

use std::collections::BTreeMap;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use serde_json::{Map, Value, json};

use crate::parked::mask::{MASKED, Mask};
use rehop::HeaderValue;

/// All headers as plain JSON, in which bytes are hexadecimal.
pub(crate) fn headers_json(properties: &BasicProperties) -> Value {
    let fields = properties.headers().iter().flat_map(|table| table.inner().iter());
    Value::Object(fields.map(|(name, value)| (name.as_str().to_owned(), plain(&HeaderValue::of(value)))).collect())
}

/// The same with masked values.
pub(crate) fn masked_headers(properties: &BasicProperties, mask: &Mask) -> BTreeMap<String, Value> {
    let Value::Object(mut headers) = headers_json(properties) else { return BTreeMap::new() };
    for (name, value) in &mut headers {
        if mask.hides(name) {
            *value = Value::String(MASKED.to_owned());
        }
    }
    headers.into_iter().collect()
}

fn plain(value: &HeaderValue<'_>) -> Value {
    match value {
        HeaderValue::Void => Value::Null,
        HeaderValue::Bool(value) => json!(value),
        HeaderValue::Int(value) => json!(value),
        HeaderValue::Float(value) => json!(value),
        HeaderValue::Decimal { scale, value } => json!(format!("{value}e-{scale}")),
        HeaderValue::Timestamp(seconds) => json!(seconds),
        HeaderValue::Text(text) => json!(text),
        HeaderValue::Bytes(bytes) => json!(hex(bytes)),
        HeaderValue::List(values) => Value::Array(values.iter().map(plain).collect()),
        HeaderValue::Table(entries) => {
            Value::Object(entries.iter().map(|(name, value)| ((*name).to_owned(), plain(value))).collect())
        }
        other => json!(format!("{other:?}")),
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of hexadecimal digits.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    if digits.len() % 2 == 1 {
        return None;
    }
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// A header with its type. The plain types of JSON stand for the usual ones of AMQP; `{"$amqp": …}` is exactly what it says.
pub(crate) fn typed(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Void => Value::Null,
        AMQPValue::Boolean(value) => json!(value),
        AMQPValue::LongLongInt(value) => json!(value),
        AMQPValue::LongString(text) => match std::str::from_utf8(text.as_bytes()) {
            Ok(text) => json!(text),
            Err(_) => exact(value),
        },
        AMQPValue::FieldArray(array) => Value::Array(array.as_slice().iter().map(typed).collect()),
        AMQPValue::FieldTable(table) if !table.inner().contains_key(EXACT) => Value::Object(typed_table(table)),
        other => exact(other),
    }
}

const EXACT: &str = "$amqp";

fn exact(value: &AMQPValue) -> Value {
    json!({ EXACT: serde_json::to_value(value).unwrap_or(Value::Null) })
}

pub(crate) fn typed_table(table: &FieldTable) -> Map<String, Value> {
    table.inner().iter().map(|(name, value)| (name.as_str().to_owned(), typed(value))).collect()
}

/// What [`typed`] wrote.
pub(crate) fn untyped(value: &Value) -> Result<AMQPValue, String> {
    Ok(match value {
        Value::Null => AMQPValue::Void,
        Value::Bool(value) => AMQPValue::Boolean(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => AMQPValue::LongLongInt(whole),
            None => AMQPValue::Double(number.as_f64().ok_or("a number fits no type")?),
        },
        Value::String(text) => AMQPValue::LongString(text.as_str().into()),
        Value::Array(items) => {
            let items = items.iter().map(untyped).collect::<Result<Vec<_>, _>>()?;
            AMQPValue::FieldArray(items.into())
        }
        Value::Object(fields) => match (fields.get(EXACT), fields.len()) {
            (Some(exact), 1) => serde_json::from_value(exact.clone()).map_err(|error| error.to_string())?,
            _ => AMQPValue::FieldTable(untyped_table(fields)?),
        },
    })
}

pub(crate) fn untyped_table(fields: &Map<String, Value>) -> Result<FieldTable, String> {
    let mut table = FieldTable::default();
    for (name, value) in fields {
        let name = lapin::types::ShortString::try_new(name.as_str()).map_err(|_| "a header's name is too long")?;
        table.insert(name, untyped(value)?);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rehop::settings::MaskSettings;

    fn table<const N: usize>(fields: [(&str, AMQPValue); N]) -> FieldTable {
        let mut table = FieldTable::default();
        for (name, value) in fields {
            table.insert(name.into(), value);
        }
        table
    }

    #[test]
    fn people_see_headers_as_plain_json_without_what_is_masked() {
        let text = |text: &str| AMQPValue::LongString(text.into());
        let inner = table([("bytes", AMQPValue::LongString(vec![0xff, 0x0a].into()))]);
        let headers =
            table([("tenant", text("a")), ("authorization", text("secret")), ("of", AMQPValue::FieldTable(inner))]);
        let properties = BasicProperties::default().with_headers(headers);
        let seen =
            |authorization: &str| json!({ "tenant": "a", "authorization": authorization, "of": { "bytes": "ff0a" } });
        assert_eq!(headers_json(&properties), seen("secret"));
        let masked = masked_headers(&properties, &Mask::new(&MaskSettings::default()).unwrap());
        assert_eq!(serde_json::to_value(masked).unwrap(), seen(MASKED));
        assert_eq!(headers_json(&BasicProperties::default()), json!({}));
    }

    #[test]
    fn people_see_numbers_below_zero_and_times_before_1970() {
        let decimal = lapin::types::DecimalValue { scale: 2, value: (-1_250_i32).cast_unsigned() };
        let time = AMQPValue::Timestamp((-86_400_i64).cast_unsigned());
        let headers = table([("price", AMQPValue::DecimalValue(decimal)), ("born", time)]);
        let properties = BasicProperties::default().with_headers(headers);
        assert_eq!(headers_json(&properties), json!({ "price": "-1250e-2", "born": -86_400 }));
    }

    /// It would be read as the value that it describes.
    #[test]
    fn a_table_that_looks_like_an_exact_value_is_written_exactly() {
        let looks_exact = AMQPValue::FieldTable(table([(EXACT, AMQPValue::Void)]));
        assert_eq!(untyped(&typed(&looks_exact)), Ok(looks_exact));
        let plain = AMQPValue::FieldTable(table([("a", AMQPValue::Boolean(true))]));
        assert_eq!(typed(&plain), json!({ "a": true }));
    }
}
