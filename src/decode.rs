//! Decoders: from a body to the value that a handler takes.

#[cfg(feature = "gzip")]
mod gzip;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::message::Encoded;
#[cfg(feature = "gzip")]
pub use gzip::Gzip;

/// Decodes a message's body into the value that its handler takes.
///
/// [`Json`] is used unless [`Consumer::decode`](crate::Consumer::decode) names another. A message
/// whose body does not decode is parked at once, with its bytes untouched.
///
/// The decoder sees the headers and the properties, too. So one queue can carry several types:
///
/// ```
/// use rehop::{Decode, DecodeError, Encoded, Json, testing::message};
///
/// #[derive(serde::Deserialize)]
/// struct Order { id: u64 }
///
/// enum Event {
///     Ordered(Order),
///     Cancelled(Order),
/// }
///
/// struct ByType;
///
/// impl Decode<Event> for ByType {
///     fn decode(&self, encoded: &Encoded<'_>) -> Result<Event, DecodeError> {
///         match encoded.message_type() {
///             Some("ordered") => Json.decode(encoded).map(Event::Ordered),
///             Some("cancelled") => Json.decode(encoded).map(Event::Cancelled),
///             _ => Err(DecodeError::new("the type is neither ordered nor cancelled")),
///         }
///     }
/// }
///
/// let cancelled = message(()).message_type("cancelled").raw_body(r#"{"id": 7}"#).build();
/// assert!(matches!(ByType.decode(&cancelled.encoded()), Ok(Event::Cancelled(Order { id: 7 }))));
/// ```
///
/// A panic of a decoder is caught, and its message is parked, too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not decode bodies to `{T}`",
    label = "does not decode to `{T}`",
    note = "`Json`, the default, decodes to types with `#[derive(serde::Deserialize)]` that own what they hold",
    note = "`Raw` decodes to `Bytes`, `Vec<u8>` and `String`: `Consumer::new(queue, handler).decode(rehop::Raw)`"
)]
pub trait Decode<T>: Send + Sync + 'static {
    /// Decodes one body.
    ///
    /// # Errors
    ///
    /// When the body does not have this format. The error's text is logged and stored with the
    /// parked message, so it must not quote the body.
    fn decode(&self, encoded: &Encoded<'_>) -> Result<T, DecodeError>;
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

// A type that serde does not know would be reported with a list of those that it knows.
#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> Decode<T> for Json {
    /// The error says what is wrong with the body, and where. serde's own text may quote the body,
    /// so it is not used.
    fn decode(&self, encoded: &Encoded<'_>) -> Result<T, DecodeError> {
        serde_json::from_slice(encoded.body()).map_err(|error| {
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

/// Bodies as they are: as [`Bytes`], as a `Vec<u8>`, or as text. `Bytes` share what was received;
/// the others copy it. Text that is not UTF-8 does not decode.
///
/// ```
/// use rehop::bytes::Bytes;
/// use rehop::{Decode, DecodeError, Raw, testing::message};
///
/// let hello = message(()).raw_body("hello").build();
/// let bytes: Bytes = Raw.decode(&hello.encoded())?;
/// let vec: Vec<u8> = Raw.decode(&hello.encoded())?;
/// let text: String = Raw.decode(&hello.encoded())?;
/// assert_eq!((&bytes[..], &vec[..], &text[..]), (&b"hello"[..], &b"hello"[..], "hello"));
/// # Ok::<(), DecodeError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw;

impl Decode<Bytes> for Raw {
    fn decode(&self, encoded: &Encoded<'_>) -> Result<Bytes, DecodeError> {
        Ok(encoded.body().clone())
    }
}

impl Decode<Vec<u8>> for Raw {
    fn decode(&self, encoded: &Encoded<'_>) -> Result<Vec<u8>, DecodeError> {
        Ok(encoded.body().to_vec())
    }
}

impl Decode<String> for Raw {
    /// The error says where the valid UTF-8 ends.
    fn decode(&self, encoded: &Encoded<'_>) -> Result<String, DecodeError> {
        match std::str::from_utf8(encoded.body()) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(DecodeError(format!(
                "the body is not UTF-8 after its first {} bytes",
                error.valid_up_to()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::message;

    /// What the decoder makes of this body.
    fn decode<T, D: Decode<T>>(decoder: D, body: impl Into<Bytes>) -> Result<T, String> {
        let message = message(()).raw_body(body).build();
        decoder.decode(&message.encoded()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_decode_error_says_where_the_body_is_wrong_and_never_quotes_it() {
        let error = |body: &'static str| decode::<Vec<u32>, _>(Json, body).unwrap_err();
        assert_eq!(error("[1"), "the body is JSON that ends too early, at line 1 column 2");
        assert_eq!(
            error("\"secret\""),
            "the body is JSON that does not match the handler's type, at line 1 column 8"
        );
        assert!(error("secret").starts_with("the body is not valid JSON"));
    }

    #[test]
    fn a_raw_body_is_bytes_a_vector_or_text() {
        assert_eq!(decode::<Bytes, _>(Raw, "é"), Ok(Bytes::from("é")));
        assert_eq!(decode::<Vec<u8>, _>(Raw, vec![0xff]), Ok(vec![0xff]));
        assert_eq!(decode::<String, _>(Raw, "é"), Ok("é".to_owned()));
        assert_eq!(decode::<String, _>(Raw, ""), Ok(String::new()));
    }

    #[test]
    fn a_body_that_is_not_utf_8_is_no_text_and_the_error_does_not_quote_it() {
        assert_eq!(
            decode::<String, _>(Raw, &b"secret\xFFsecret"[..]),
            Err("the body is not UTF-8 after its first 6 bytes".to_owned())
        );
    }
}
