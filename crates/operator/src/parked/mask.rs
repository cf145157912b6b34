//! Masks what an operator should not see: headers by name, and values in JSON bodies by path. Pure.

use serde_json::Value;

use crate::parked::json_path::JsonPath;
use rehop::SettingsError;
use rehop::settings::MaskSettings;

/// What is shown in place of a masked value.
pub(crate) const MASKED: &str = "***";

/// What is masked.
#[derive(Debug, Clone)]
pub(crate) struct Mask {
    headers: Vec<String>,
    json: Vec<JsonPath>,
}

impl Mask {
    /// # Errors
    ///
    /// When a path is malformed.
    pub(crate) fn new(settings: &MaskSettings) -> Result<Self, SettingsError> {
        let path = |(index, path): (usize, &String)| {
            path.parse().map_err(|problem| SettingsError::invalid(format!("mask.json.{index}"), problem))
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

    /// The body with its masked values; `None` if it is not JSON, or nothing in it is masked. A body that begins like JSON and is not is
    /// masked as a whole: nobody can tell where its secrets are.
    pub(crate) fn json(&self, body: &[u8]) -> Option<Value> {
        if self.json.is_empty() {
            return None;
        }
        let Ok(mut document) = serde_json::from_slice::<Value>(body) else {
            let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
            return matches!(text.first(), Some(b'{' | b'[')).then(|| Value::String(MASKED.to_owned()));
        };
        let before = document.clone();
        for path in &self.json {
            path.replace(&mut document, &Value::String(MASKED.to_owned()));
        }
        (document != before).then_some(document)
    }
}

/// Whether a text matches a pattern in which `*` is any text.
fn wildcard(pattern: &str, text: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::inputs::inputs;

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
        let masked = mask.json(br#"{"user": {"password": {"a": 1}}, "card": {"number": 4, "type": "x"}}"#).unwrap();
        assert_eq!(masked, json!({"user": {"password": "***"}, "card": {"number": "***", "type": "x"}}));
        assert_eq!(mask.json(b"{\"a\": 1}"), None);
        assert_eq!(mask.json(b"not JSON"), None);
        for broken in [&b"{\"password\": \"x\""[..], b" [{\"password\": 1},]", b"\xef\xbb\xbf{\"password\": 1}"] {
            assert_eq!(mask.json(broken), Some(json!("***")));
        }
        assert_eq!(Mask::nothing().json(b"{\"password\": 1}"), None);
    }

    #[test]
    fn the_defaults_hide_credentials() {
        let mask = Mask::new(&MaskSettings::default()).unwrap();
        assert!(mask.hides("Authorization") && mask.hides("X-Api-Key") && !mask.hides("traceparent"));
        assert!(mask.json(br#"{"a": {"password": "hunter2"}}"#).is_some());
    }

    proptest! {
        #![proptest_config(inputs(1_000))]

        #[test]
        fn a_pattern_matches_what_it_was_made_from(parts in prop::collection::vec("[a-c]{0,3}", 1..5), fill in "[a-c]{0,3}") {
            prop_assert!(wildcard(&parts.join("*"), &parts.join(&fill)));
        }
    }
}
