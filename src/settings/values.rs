//! How serde reads and writes single values.

use std::fmt;

use serde::{Deserializer, Serializer};

use super::Secret;

/// Reads a string. figment parses a list of queues in a variable, so a name that consists of digits
/// arrives here as a number. A fraction is refused, because it might not be printed as it was
/// written.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Visitor;

    impl serde::de::Visitor<'_> for Visitor {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_bool<E>(self, value: bool) -> Result<String, E> {
            Ok(value.to_string())
        }

        fn visit_i64<E>(self, number: i64) -> Result<String, E> {
            Ok(number.to_string())
        }

        fn visit_u64<E>(self, number: u64) -> Result<String, E> {
            Ok(number.to_string())
        }
    }

    deserializer.deserialize_any(Visitor)
}

pub(super) fn optional_text<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    text(deserializer).map(Some)
}

pub(super) fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    text(deserializer).map(Secret::from)
}

pub(super) fn optional_secret<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Secret>, D::Error> {
    secret(deserializer).map(Some)
}

/// Reads a list of strings.
pub(super) fn secrets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Secret>, D::Error> {
    #[derive(serde::Deserialize)]
    struct One(#[serde(deserialize_with = "secret")] Secret);

    let secrets: Vec<One> = serde::Deserialize::deserialize(deserializer)?;
    Ok(secrets.into_iter().map(|One(secret)| secret).collect())
}

pub(super) const MASK: &str = "***";

pub(super) fn masked<S: Serializer>(_: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(MASK)
}

pub(super) fn masked_url<S: Serializer>(url: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&mask_url(url.expose()))
}

pub(super) fn optional_masked_url<S: Serializer>(
    url: &Option<Secret>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match url {
        Some(url) => masked_url(url, serializer),
        None => serializer.serialize_none(),
    }
}

pub(super) fn masked_urls<S: Serializer>(
    urls: &[Secret],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(urls.iter().map(|url| mask_url(url.expose())))
}

/// A text that is JSON as the value that it describes, and any other as a string.
pub(super) fn json_text<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(value) => serde::Serialize::serialize(&value, serializer),
        Err(_) => serializer.serialize_str(text),
    }
}

/// The URL with its password masked. Something that is not a URL is masked as a whole.
pub(super) fn mask_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return MASK.to_owned() };
    // A password may contain an `@` that should have been encoded, so only the last one ends it.
    let Some((user_info, host)) = rest.rsplit_once('@') else { return url.to_owned() };
    match user_info.split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:{MASK}@{host}"),
        None => url.to_owned(),
    }
}

pub(super) mod optional_duration {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use crate::duration;

    pub(in super::super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => duration::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        duration::deserialize(deserializer).map(Some)
    }
}
