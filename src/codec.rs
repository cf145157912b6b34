//! How a body becomes a value.

use bytes::Bytes;
use serde::de::DeserializeOwned;

/// Turns a message's body into the value that its handler takes.
///
/// [`Json`] is used unless [`consumer_with`](crate::Rehop::consumer_with) names another. A body that does not decode is
/// parked at once, with its bytes untouched.
///
/// ```
/// use rehop::{Codec, DecodeError};
///
/// struct Utf8;
///
/// impl Codec<String> for Utf8 {
///     fn decode(&self, body: &bytes::Bytes, _content_type: Option<&str>) -> Result<String, DecodeError> {
///         String::from_utf8(body.to_vec()).map_err(|error| DecodeError::new(error.utf8_error()))
///     }
/// }
/// ```
pub trait Codec<T>: Send + Sync + 'static {
    /// Decodes one body. `content_type` is the message's property, as the producer set it.
    ///
    /// # Errors
    ///
    /// When the body is none of this codec's. The error's text is logged and kept with the parked message: it must not quote
    /// the body.
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

/// Bodies in JSON, whatever their content type says.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

impl<T: DeserializeOwned> Codec<T> for Json {
    /// Says where and in which way the body is wrong; serde's own text may quote the body, so it is not used.
    fn decode(&self, body: &Bytes, _content_type: Option<&str>) -> Result<T, DecodeError> {
        serde_json::from_slice(body).map_err(|error| {
            let what = match error.classify() {
                serde_json::error::Category::Syntax => "no valid JSON",
                serde_json::error::Category::Eof => "JSON that ends too early",
                serde_json::error::Category::Data => "JSON of another shape than the handler takes",
                serde_json::error::Category::Io => "unreadable",
            };
            DecodeError(format!("the body is {what}, at line {} column {}", error.line(), error.column()))
        })
    }
}

/// Bodies as they are, in no format at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw;

impl Codec<Bytes> for Raw {
    fn decode(&self, body: &Bytes, _content_type: Option<&str>) -> Result<Bytes, DecodeError> {
        Ok(body.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decode_error_says_where_and_never_quotes_the_body() {
        let decode = |body: &'static str| {
            let result: Result<Vec<u32>, DecodeError> = Json.decode(&Bytes::from_static(body.as_bytes()), None);
            result.unwrap_err().to_string()
        };
        assert_eq!(decode("[1"), "the body is JSON that ends too early, at line 1 column 2");
        assert_eq!(
            decode("\"secret\""),
            "the body is JSON of another shape than the handler takes, at line 1 column 8"
        );
        assert!(decode("secret").starts_with("the body is no valid JSON"));
    }
}
