//! The age that messages may reach.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::values::text;
use crate::duration;

/// The age at which messages expire, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxAge(pub Option<Duration>);

impl From<Duration> for MaxAge {
    fn from(max_age: Duration) -> Self {
        Self(Some(max_age))
    }
}

impl Serialize for MaxAge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(max_age) => duration::serialize(&max_age, serializer),
            None => serializer.serialize_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for MaxAge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = text(deserializer)?;
        if text == "none" {
            return Ok(Self(None));
        }
        let wrong = || serde::de::Error::custom("expected a duration such as \"1d\", or \"none\"");
        humantime::parse_duration(&text).map(|max_age| Self(Some(max_age))).map_err(|_| wrong())
    }
}
