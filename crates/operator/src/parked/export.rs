//! Exports messages as JSON, one per line, as an import reads them.

use std::ops::ControlFlow;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::format::hex;
use crate::parked::error::ParkedError;
use crate::parked::filter::{Content, Filter};
use crate::parked::mask::{MASKED, Mask, headers_json};
use crate::parked::message::ParkedMessage;
use crate::parked::operator::Parked;
use rehop::internals::Room;
use rehop::internals::at_rest::Original;

/// One exported message.
///
/// Headers keep their AMQP types: `{"$amqp": …}` stands for those that JSON does not have. A body
/// that is not UTF-8 is in `body_hex`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Exported {
    /// The version of this format: 1.
    pub rehop_export: u32,
    /// The id of its chain.
    pub chain: String,
    /// Why it was parked.
    pub reason: String,
    /// When it was parked, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked_at: Option<i64>,
    /// The work queue that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// The exchange that it was first published to.
    pub exchange: String,
    /// The routing key that it was first published with.
    pub routing_key: String,
    /// Whether something is masked. Such a message cannot be imported.
    pub masked: bool,
    /// Its properties, without headers.
    pub properties: Properties,
    /// Its headers.
    pub headers: Map<String, Value>,
    /// Its body, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Its body in hexadecimal digits, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_hex: Option<String>,
}

/// The AMQP properties of an exported message, except those that a copy must not have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Properties {
    /// `content_type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// `content_encoding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_encoding: Option<String>,
    /// `priority`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// `correlation_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// `reply_to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// `message_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// `timestamp`, in seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<u64>,
    /// `type`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `app_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_id: Option<String>,
    /// `cluster_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
}

impl Parked {
    /// Hands each message that passes the filter to `sink`, which ends the export by returning
    /// `false`. The messages stay in the queue. `scan` limits how many are looked at, as for a
    /// list. Returns how many were exported.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list), and [`ParkedError::Incomplete`] if fewer could be looked at. `sink`
    /// may have been given some messages before an error.
    pub async fn export(
        &self,
        filter: &Filter,
        scan: Option<u64>,
        mut sink: impl FnMut(Exported) -> bool,
    ) -> Result<u64, ParkedError> {
        let session = self.session().await?;
        let mut exported = 0;
        let scanned = self
            .scan(&session, scan, &mut self.stop.clone(), |message, held| {
                let (properties, body) = (&held.delivery.properties, &held.delivery.data[..]);
                let headers = || headers_json(properties);
                if filter.limit.is_some_and(|limit| exported >= limit) {
                    return ControlFlow::Break(());
                }
                if !filter.passes(&message, &Content::new(body, &headers)) {
                    return ControlFlow::Continue(());
                }
                let believed =
                    self.interpreter.believed(held.delivery.exchange.as_str(), properties);
                let original = Original { properties: &believed, body_bytes: body.len() };
                let copy = self.interpreter.imported(&message, original, Room::UNLIMITED);
                exported += 1;
                match sink(Exported::of(&message, &copy.properties, body, &self.mask)) {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })
            .await;
        session.close().await;
        scanned?.complete(&self.queue)?;
        Ok(exported)
    }
}

impl Exported {
    /// `properties` are those of a copy: without the broker's headers.
    pub(crate) fn of(
        message: &ParkedMessage,
        properties: &BasicProperties,
        body: &[u8],
        mask: &Mask,
    ) -> Self {
        let mut headers = properties.headers().as_ref().map(typed_table).unwrap_or_default();
        let mut masked = false;
        for (name, value) in &mut headers {
            if mask.hides(name) {
                *value = Value::String(MASKED.to_owned());
                masked = true;
            }
        }
        let masked_body = mask.json(body).map(|json| json.to_string());
        masked |= masked_body.is_some();
        let text = masked_body.or_else(|| std::str::from_utf8(body).ok().map(str::to_owned));
        Self {
            rehop_export: 1,
            chain: message.chain.clone(),
            reason: message.reason.clone(),
            parked_at: message.parked_at.map(rehop::Timestamp::as_millis),
            destination: message.destination.clone(),
            exchange: message.exchange.clone(),
            routing_key: message.routing_key.clone(),
            masked,
            properties: Properties::of(properties),
            headers,
            body_hex: text.is_none().then(|| hex(body)),
            body: text,
        }
    }

    /// The properties and the body.
    ///
    /// # Errors
    ///
    /// Why it cannot be imported: it is masked, malformed, or of another version.
    pub(crate) fn content(&self) -> Result<(BasicProperties, Vec<u8>), String> {
        if self.rehop_export != 1 {
            return Err(format!(
                "its version is {}, and this program knows version 1",
                self.rehop_export
            ));
        }
        if self.masked {
            return Err("something in it is masked; export with --reveal to import".to_owned());
        }
        let body = match (&self.body, &self.body_hex) {
            (Some(text), None) => text.clone().into_bytes(),
            (None, Some(digits)) => unhex(digits).ok_or("body_hex is not hexadecimal")?,
            _ => return Err("it needs either body or body_hex".to_owned()),
        };
        Ok((self.properties.to_amqp()?.with_headers(untyped_table(&self.headers)?), body))
    }
}

impl Properties {
    fn of(properties: &BasicProperties) -> Self {
        let text = |property: &Option<ShortString>| property.as_ref().map(ToString::to_string);
        Self {
            content_type: text(properties.content_type()),
            content_encoding: text(properties.content_encoding()),
            priority: *properties.priority(),
            correlation_id: text(properties.correlation_id()),
            reply_to: text(properties.reply_to()),
            message_id: text(properties.message_id()),
            timestamp: *properties.timestamp(),
            kind: text(properties.kind()),
            app_id: text(properties.app_id()),
            cluster_id: text(properties.cluster_id()),
        }
    }

    fn to_amqp(&self) -> Result<BasicProperties, String> {
        let short = |text: &String| {
            ShortString::try_new(text.as_str()).map_err(|_| "a property is longer than 255 bytes")
        };
        let mut all = BasicProperties::default();
        if let Some(text) = &self.content_type {
            all = all.with_content_type(short(text)?);
        }
        if let Some(text) = &self.content_encoding {
            all = all.with_content_encoding(short(text)?);
        }
        if let Some(priority) = self.priority {
            all = all.with_priority(priority);
        }
        if let Some(text) = &self.correlation_id {
            all = all.with_correlation_id(short(text)?);
        }
        if let Some(text) = &self.reply_to {
            all = all.with_reply_to(short(text)?);
        }
        if let Some(text) = &self.message_id {
            all = all.with_message_id(short(text)?);
        }
        if let Some(timestamp) = self.timestamp {
            all = all.with_timestamp(timestamp);
        }
        if let Some(text) = &self.kind {
            all = all.with_type(short(text)?);
        }
        if let Some(text) = &self.app_id {
            all = all.with_app_id(short(text)?);
        }
        if let Some(text) = &self.cluster_id {
            all = all.with_cluster_id(short(text)?);
        }
        Ok(all)
    }
}

/// The bytes of hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    if digits.len() % 2 == 1 {
        return None;
    }
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// A header with its type. The plain types of JSON stand for the usual ones of AMQP; `{"$amqp": …}`
/// is exactly what it says.
fn typed(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Void => Value::Null,
        AMQPValue::Boolean(value) => json!(value),
        AMQPValue::LongLongInt(value) => json!(value),
        AMQPValue::LongString(text) => match std::str::from_utf8(text.as_bytes()) {
            Ok(text) => json!(text),
            Err(_) => exact(value),
        },
        AMQPValue::FieldArray(array) => Value::Array(array.as_slice().iter().map(typed).collect()),
        AMQPValue::FieldTable(table) if !table.inner().contains_key(EXACT) => {
            Value::Object(typed_table(table))
        }
        other => exact(other),
    }
}

const EXACT: &str = "$amqp";
const TABLE: &str = "Table";

fn exact(value: &AMQPValue) -> Value {
    let exact = match value {
        // JSON has no such numbers.
        AMQPValue::Float(number) if !number.is_finite() => json!({ "Float": number.to_string() }),
        AMQPValue::Double(number) if !number.is_finite() => json!({ "Double": number.to_string() }),
        AMQPValue::FieldTable(table) => json!({ TABLE: typed_table(table) }),
        other => serde_json::to_value(other).unwrap_or(Value::Null),
    };
    json!({ EXACT: exact })
}

/// What [`exact`] wrote.
fn from_exact(exact: &Value) -> Result<AMQPValue, String> {
    let only = exact
        .as_object()
        .filter(|fields| fields.len() == 1)
        .and_then(|fields| fields.iter().next());
    let number = |text: &str| text.parse::<f64>().map_err(|error| error.to_string());
    match only {
        Some((kind, Value::String(text))) if kind == "Float" => {
            Ok(AMQPValue::Float(number(text)? as f32))
        }
        Some((kind, Value::String(text))) if kind == "Double" => {
            Ok(AMQPValue::Double(number(text)?))
        }
        Some((kind, Value::Object(fields))) if kind == TABLE => {
            Ok(AMQPValue::FieldTable(untyped_table(fields)?))
        }
        // Its error would quote the value.
        _ => serde_json::from_value(exact.clone())
            .map_err(|_| format!("{EXACT:?} needs a type of AMQP and its value")),
    }
}

fn typed_table(table: &FieldTable) -> Map<String, Value> {
    table.inner().iter().map(|(name, value)| (name.as_str().to_owned(), typed(value))).collect()
}

/// What [`typed`] wrote.
fn untyped(value: &Value) -> Result<AMQPValue, String> {
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
            (Some(exact), 1) => from_exact(exact)?,
            _ => AMQPValue::FieldTable(untyped_table(fields)?),
        },
    })
}

fn untyped_table(fields: &Map<String, Value>) -> Result<FieldTable, String> {
    let mut table = FieldTable::default();
    for (name, value) in fields {
        let name =
            ShortString::try_new(name.as_str()).map_err(|_| "a header's name is too long")?;
        table.insert(name, untyped(value)?);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::inputs::inputs;
    use crate::parked::samples::sample;
    use rehop::settings::MaskSettings;

    fn table(name: &str, value: AMQPValue) -> FieldTable {
        let mut table = FieldTable::default();
        table.insert(name.into(), value);
        table
    }

    fn with_headers(
        headers: impl IntoIterator<Item = (&'static str, AMQPValue)>,
    ) -> BasicProperties {
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert(name.into(), value);
        }
        BasicProperties::default()
            .with_headers(table)
            .with_message_id("seven".into())
            .with_priority(3)
    }

    fn round_trip(properties: &BasicProperties, body: &[u8]) -> (BasicProperties, Vec<u8>) {
        let line =
            serde_json::to_string(&Exported::of(&sample(), properties, body, &Mask::nothing()))
                .unwrap();
        serde_json::from_str::<Exported>(&line).unwrap().content().unwrap()
    }

    #[test]
    fn a_message_is_imported_as_it_was_exported() {
        let properties = with_headers([
            ("text", AMQPValue::LongString("a".into())),
            ("bytes", AMQPValue::LongString(vec![0xff, 0].into())),
            ("short", AMQPValue::ShortString("b".into())),
            ("int", AMQPValue::LongInt(7)),
            ("long", AMQPValue::LongLongInt(i64::MIN)),
            ("time", AMQPValue::Timestamp(5)),
            ("float", AMQPValue::Double(1.5)),
            ("nothing", AMQPValue::Void),
            ("list", AMQPValue::FieldArray(vec![AMQPValue::Boolean(true)].into())),
        ]);
        for body in [&b"text"[..], &[0xff, 0x00], b""] {
            assert_eq!(round_trip(&properties, body), (properties.clone(), body.to_vec()));
        }
    }

    /// Otherwise one such header would keep the whole file from being imported.
    #[test]
    fn numbers_that_json_does_not_have_are_imported_as_they_were_exported() {
        for number in [f64::INFINITY, f64::NEG_INFINITY] {
            let values = [AMQPValue::Double(number), AMQPValue::Float(number as f32)];
            let headers = with_headers([("number", AMQPValue::FieldArray(values.to_vec().into()))]);
            assert_eq!(round_trip(&headers, b"").0, headers);
        }
        let (imported, _) =
            round_trip(&with_headers([("number", AMQPValue::Double(f64::NAN))]), b"");
        let number = &imported.headers().as_ref().unwrap().inner()["number"];
        assert!(matches!(number, AMQPValue::Double(number) if number.is_nan()), "{number:?}");
    }

    #[test]
    fn every_property_is_imported_as_it_was_exported() {
        let [a, b, c, d, e, f, g, h] =
            ["a", "b", "c", "d", "e", "f", "g", "h"].map(ShortString::from);
        let all = with_headers([])
            .with_content_type(a)
            .with_content_encoding(b)
            .with_correlation_id(c)
            .with_reply_to(d)
            .with_message_id(e)
            .with_type(f)
            .with_app_id(g)
            .with_cluster_id(h)
            .with_timestamp(1_700_000_000);
        assert_eq!(round_trip(&all, b"").0, all);
    }

    #[test]
    fn a_masked_message_is_not_imported() {
        let mask = Mask::new(&MaskSettings::default()).unwrap();
        let properties = with_headers([("authorization", AMQPValue::LongString("hunter2".into()))]);
        let exported = Exported::of(&sample(), &properties, b"{\"password\":\"hunter2\"}", &mask);
        let line = serde_json::to_string(&exported).unwrap();
        assert!(exported.masked && !line.contains("hunter2"), "{line}");
        assert!(exported.content().unwrap_err().contains("--reveal"));
        assert!(Exported::of(&sample(), &properties, b"no JSON", &mask).masked, "a header is");
        let nothing_secret =
            Exported::of(&sample(), &BasicProperties::default(), b"{\"a\":1}", &mask);
        assert!(!nothing_secret.masked);
    }

    #[test]
    fn a_malformed_line_says_what_is_wrong() {
        let good = Exported::of(&sample(), &BasicProperties::default(), b"x", &Mask::nothing());
        for (bad, problem) in [
            (Exported { rehop_export: 2, ..good.clone() }, "version"),
            (Exported { body: None, ..good.clone() }, "body"),
            (
                Exported { body: None, body_hex: Some("0".to_owned()), ..good.clone() },
                "hexadecimal",
            ),
            (Exported { body_hex: Some("00".to_owned()), ..good }, "either"),
        ] {
            assert!(bad.content().unwrap_err().contains(problem), "{problem}");
        }
    }

    /// It would be read as the value that it describes.
    #[test]
    fn a_table_that_looks_like_an_exact_value_is_written_exactly() {
        let looks_exact = AMQPValue::FieldTable(table(EXACT, AMQPValue::Void));
        assert_eq!(untyped(&typed(&looks_exact)), Ok(looks_exact));
        let with_infinity = AMQPValue::FieldTable(table(EXACT, AMQPValue::Double(f64::INFINITY)));
        assert_eq!(untyped(&typed(&with_infinity)), Ok(with_infinity));
        let plain = AMQPValue::FieldTable(table("a", AMQPValue::Boolean(true)));
        assert_eq!(typed(&plain), json!({ "a": true }));
    }

    proptest! {
        #![proptest_config(inputs(500))]

        #[test]
        fn any_body_comes_back(body in prop::collection::vec(any::<u8>(), 0..100), text in ".{0,40}") {
            prop_assert_eq!(round_trip(&BasicProperties::default().with_headers(FieldTable::default()), &body).1, body);
            let headers = with_headers([("a", AMQPValue::LongString(text.as_str().into()))]);
            prop_assert_eq!(round_trip(&headers, text.as_bytes()).0, headers);
        }
    }
}
