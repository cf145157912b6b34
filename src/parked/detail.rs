//! One message with its headers and its body, for people. Pure.

use std::collections::BTreeMap;

use lapin::BasicProperties;
use serde::Serialize;
use serde_json::Value;

use crate::parked::headers::{hex, masked_headers};
use crate::parked::mask::Mask;
use crate::parked::message::ParkedMessage;

/// How many bytes of a body are shown.
const MAX_BODY: usize = 64 * 1024;

/// One message with its headers and its body.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Detail {
    /// What is known of it.
    #[serde(flatten)]
    pub message: ParkedMessage,
    /// Its headers, with masked values.
    pub headers: BTreeMap<String, Value>,
    /// Its other properties, by their AMQP names.
    pub properties: BTreeMap<String, String>,
    /// Its body, with masked values.
    pub body: Body,
    /// How many bytes of the body are not shown.
    pub omitted: u64,
}

/// A body as it is shown. It comes from outside, and may hold anything: escape it for a terminal or a page.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Body {
    /// JSON.
    Json(Value),
    /// UTF-8.
    Text(String),
    /// Anything else, as hexadecimal digits.
    Hex(String),
}

impl Detail {
    pub(crate) fn of(message: ParkedMessage, properties: &BasicProperties, body: &[u8], mask: &Mask) -> Self {
        let (body, omitted) = shown(body, mask);
        Self { message, headers: masked_headers(properties, mask), properties: others(properties), body, omitted }
    }
}

fn shown(body: &[u8], mask: &Mask) -> (Body, u64) {
    if let Some(masked) = mask.json(body) {
        return (Body::Json(masked), 0);
    }
    if body.len() <= MAX_BODY
        && let Ok(json) = serde_json::from_slice(body)
    {
        return (Body::Json(json), 0);
    }
    let part = &body[..body.len().min(MAX_BODY)];
    let text = match std::str::from_utf8(part) {
        Ok(text) => Some(text),
        // The cut may be inside a character.
        Err(error) if error.error_len().is_none() && part.len() < body.len() => {
            std::str::from_utf8(&part[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    match text {
        Some(text) => (Body::Text(text.to_owned()), (body.len() - text.len()) as u64),
        None => (Body::Hex(hex(part)), (body.len() - part.len()) as u64),
    }
}

fn others(properties: &BasicProperties) -> BTreeMap<String, String> {
    let texts = [
        ("content_type", properties.content_type()),
        ("content_encoding", properties.content_encoding()),
        ("correlation_id", properties.correlation_id()),
        ("reply_to", properties.reply_to()),
        ("expiration", properties.expiration()),
        ("message_id", properties.message_id()),
        ("type", properties.kind()),
        ("user_id", properties.user_id()),
        ("app_id", properties.app_id()),
        ("cluster_id", properties.cluster_id()),
    ];
    let mut all: BTreeMap<_, _> =
        texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text.as_ref()?.to_string()))).collect();
    if let Some(priority) = properties.priority() {
        all.insert("priority".to_owned(), priority.to_string());
    }
    if let Some(timestamp) = properties.timestamp() {
        all.insert("timestamp".to_owned(), timestamp.to_string());
    }
    all
}
