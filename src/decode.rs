//! Decoders: from a body to the value that a handler takes.

use bytes::Bytes;
use serde::de::DeserializeOwned;

/// Decodes a message's body into the value that its handler takes.
///
/// [`Json`] is used unless [`Consumer::decode`](crate::Consumer::decode) names another. A message
/// whose body does not decode is parked at once, with its bytes untouched.
///
/// ```
/// use rehop::{Decode, DecodeError};
///
/// struct Utf8;
///
/// impl Decode<String> for Utf8 {
///     fn decode(&self, body: &bytes::Bytes, _content_type: Option<&str>) -> Result<String, DecodeError> {
///         String::from_utf8(body.to_vec()).map_err(|error| DecodeError::new(error.utf8_error()))
///     }
/// }
/// ```
pub trait Decode<T>: Send + Sync + 'static {
    /// Decodes one body. `content_type` is the message's property, as the producer set it.
    ///
    /// # Errors
    ///
    /// When the body does not have this format. The error's text is logged and stored with the
    /// parked message, so it must not quote the body.
    fn decode(&self, body: &Bytes, content_type: Option<&str>) -> Result<T, DecodeError>;
}

/// Why a body did not decode.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(String);

impl DecodeError {
    /// An error with this text, which must not quote the body.
    pub fn new(reason: impl std::fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

/// JSON bodies. The content type is ignored.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

impl<T: DeserializeOwned> Decode<T> for Json {
    /// The error says what is wrong with the body, and where. serde's own text may quote the body,
    /// so it is not used.
    fn decode(&self, body: &Bytes, _content_type: Option<&str>) -> Result<T, DecodeError> {
        serde_json::from_slice(body).map_err(|error| {
            let what = match error.classify() {
                serde_json::error::Category::Syntax => "not valid JSON",
                serde_json::error::Category::Eof => "JSON that ends too early",
                serde_json::error::Category::Data => "JSON that does not match the handler's type",
                serde_json::error::Category::Io => "unreadable",
            };
            DecodeError(format!(
                "the body is {what}, at line {} column {}",
                error.line(),
                error.column()
            ))
        })
    }
}

/// Bodies as bytes, not decoded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw;

impl Decode<Bytes> for Raw {
    fn decode(&self, body: &Bytes, _content_type: Option<&str>) -> Result<Bytes, DecodeError> {
        Ok(body.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decode_error_says_where_the_body_is_wrong_and_never_quotes_it() {
        let decode = |body: &'static str| {
            let result: Result<Vec<u32>, DecodeError> =
                Json.decode(&Bytes::from_static(body.as_bytes()), None);
            result.unwrap_err().to_string()
        };
        assert_eq!(decode("[1"), "the body is JSON that ends too early, at line 1 column 2");
        assert_eq!(
            decode("\"secret\""),
            "the body is JSON that does not match the handler's type, at line 1 column 8"
        );
        assert!(decode("secret").starts_with("the body is not valid JSON"));
    }
}
