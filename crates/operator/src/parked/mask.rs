//! What an operator sees of headers and bodies: as JSON, and without what is masked. Headers are
//! masked by name, and values in JSON bodies by path. Pure.

use std::collections::BTreeMap;

use lapin::BasicProperties;
use serde_json::{Value, json};

use crate::format::hex;
use crate::parked::json_path::JsonPath;
use rehop::HeaderValue;
use rehop::SettingsError;
use rehop::settings::MaskSettings;

/// What is shown in place of a masked value.
pub(crate) const MASKED: &str = "***";

/// What is masked.
#[derive(Debug, Clone)]
pub struct Mask {
    headers: Vec<String>,
    json: Vec<JsonPath>,
}

impl Mask {
    /// # Errors
    ///
    /// When a path is malformed.
    pub fn new(settings: &MaskSettings) -> Result<Self, SettingsError> {
        let path = |(index, path): (usize, &String)| {
            path.parse()
                .map_err(|problem| SettingsError::invalid(format!("mask.json.{index}"), problem))
        };
        Ok(Self {
            headers: settings.headers.iter().map(|pattern| pattern.to_lowercase()).collect(),
            json: settings.json.iter().enumerate().map(path).collect::<Result<_, _>>()?,
        })
    }

    /// Shows everything.
    pub(crate) fn nothing() -> Self {
        Self { headers: Vec::new(), json: Vec::new() }
    }

    /// Whether a header's value is masked. Case does not matter.
    pub(crate) fn hides(&self, header: &str) -> bool {
        let header = header.to_lowercase();
        self.headers.iter().any(|pattern| wildcard(pattern, &header))
    }

    /// The body with its masked values; `None` if it is not JSON, or nothing in it is masked. A
    /// body that begins like JSON and is not is masked as a whole: nobody can tell where its
    /// secrets are.
    pub fn json(&self, body: &[u8]) -> Option<Value> {
        if self.json.is_empty() {
            return None;
        }
        let Ok(mut document) = serde_json::from_slice::<Value>(body) else {
            let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
            return matches!(text.first(), Some(b'{' | b'['))
                .then(|| Value::String(MASKED.to_owned()));
        };
        let before = document.clone();
        for path in &self.json {
            path.replace(&mut document, &Value::String(MASKED.to_owned()));
        }
        (document != before).then_some(document)
    }
}

/// Whether a text matches a pattern in which `*` is any text.
pub fn wildcard(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(part) = last.replace(part) {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |last| rest.ends_with(last))
}

/// All headers as plain JSON, in which bytes are hexadecimal.
pub(crate) fn headers_json(properties: &BasicProperties) -> Value {
    let fields = properties.headers().iter().flat_map(|table| table.inner().iter());
    Value::Object(
        fields
            .map(|(name, value)| (name.as_str().to_owned(), plain(&HeaderValue::of(value))))
            .collect(),
    )
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

/// A header's value as plain JSON, in which bytes are hexadecimal.
pub fn plain(value: &HeaderValue<'_>) -> Value {
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
        HeaderValue::Table(entries) => Value::Object(
            entries.iter().map(|(name, value)| ((*name).to_owned(), plain(value))).collect(),
        ),
        other => json!(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use lapin::types::{AMQPValue, FieldTable};
    use proptest::prelude::*;

    use super::*;
    use crate::inputs::inputs;

    fn table<const N: usize>(fields: [(&str, AMQPValue); N]) -> FieldTable {
        let mut table = FieldTable::default();
        for (name, value) in fields {
            table.insert(name.into(), value);
        }
        table
    }

    fn mask(headers: &[&str], json: &[&str]) -> Mask {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let mut settings = MaskSettings::default();
        (settings.headers, settings.json) = (owned(headers), owned(json));
        Mask::new(&settings).unwrap()
    }

    #[test]
    fn headers_are_masked_by_name_whatever_their_case() {
        let mask = mask(&["Authorization", "*token*", "x-*-key"], &[]);
        for (header, hidden) in [
            ("authorization", true),
            ("AUTHORIZATION", true),
            ("authorization-2", false),
            ("Csrf-Token-2", true),
            ("token", true),
            ("x-api-key", true),
            ("x-key", false),
            ("tenant", false),
        ] {
            assert_eq!(mask.hides(header), hidden, "{header}");
        }
    }

    #[test]
    fn json_values_are_masked_by_path_and_other_bodies_stay_as_they_are() {
        let mask = mask(&[], &["**.password", "card.number"]);
        let masked = mask
            .json(br#"{"user": {"password": {"a": 1}}, "card": {"number": 4, "type": "x"}}"#)
            .unwrap();
        assert_eq!(
            masked,
            json!({"user": {"password": "***"}, "card": {"number": "***", "type": "x"}})
        );
        assert_eq!(mask.json(b"{\"a\": 1}"), None);
        assert_eq!(mask.json(b"not JSON"), None);
        for broken in [
            &b"{\"password\": \"x\""[..],
            b" [{\"password\": 1},]",
            b"\xef\xbb\xbf{\"password\": 1}",
        ] {
            assert_eq!(mask.json(broken), Some(json!("***")));
        }
        assert_eq!(Mask::nothing().json(b"{\"password\": 1}"), None);
    }

    #[test]
    fn the_defaults_hide_credentials() {
        let mask = Mask::new(&MaskSettings::default()).unwrap();
        assert!(
            mask.hides("Authorization") && mask.hides("X-Api-Key") && !mask.hides("traceparent")
        );
        assert!(mask.json(br#"{"a": {"password": "hunter2"}}"#).is_some());
    }

    #[test]
    fn people_see_headers_as_plain_json_without_what_is_masked() {
        let text = |text: &str| AMQPValue::LongString(text.into());
        let inner = table([("bytes", AMQPValue::LongString(vec![0xff, 0x0a].into()))]);
        let headers = table([
            ("tenant", text("a")),
            ("authorization", text("secret")),
            ("of", AMQPValue::FieldTable(inner)),
        ]);
        let properties = BasicProperties::default().with_headers(headers);
        let seen = |authorization: &str| json!({ "tenant": "a", "authorization": authorization, "of": { "bytes": "ff0a" } });
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

    proptest! {
        #![proptest_config(inputs(1_000))]

        #[test]
        fn a_pattern_matches_what_it_was_made_from(parts in prop::collection::vec("[a-c]{0,3}", 1..5), fill in "[a-c]{0,3}") {
            prop_assert!(wildcard(&parts.join("*"), &parts.join(&fill)));
        }
    }
}
