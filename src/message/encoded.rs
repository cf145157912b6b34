//! What a decoder sees of a message.

use bytes::Bytes;
use lapin::BasicProperties;

use super::delivery::{Address, Delivery, header};
use super::header_value::{HeaderValue, entries};
use super::text;

/// A message before its body is decoded: what a [`Decode`](crate::Decode) gets.
///
/// Properties and the routing key are text; one that is not UTF-8 is shown by its stand-in, such
/// as `M\xFCller`. A header that is not UTF-8 is [`HeaderValue::Bytes`].
///
/// In a test it comes from a message that is made by [`testing::message`](crate::testing::message):
///
/// ```
/// use rehop::testing::message;
/// use rehop::{Decode, DecodeError, Encoded};
///
/// struct Metres;
///
/// impl Decode<f64> for Metres {
///     fn decode(&self, encoded: &Encoded<'_>) -> Result<f64, DecodeError> {
///         let number = std::str::from_utf8(encoded.body()).map_err(DecodeError::new)?;
///         let number: f64 = number.parse().map_err(DecodeError::new)?;
///         match encoded.message_type() {
///             Some("metres") => Ok(number),
///             Some("feet") => Ok(number * 0.3048),
///             _ => Err(DecodeError::new("the type is neither metres nor feet")),
///         }
///     }
/// }
///
/// let ten_feet = message(()).raw_body("10").message_type("feet").build();
/// assert_eq!(Metres.decode(&ten_feet.encoded())?, 3.048);
/// # Ok::<(), DecodeError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Encoded<'a> {
    body: &'a Bytes,
    properties: &'a BasicProperties,
    origin: &'a Address,
    queue: &'a str,
}

impl<'a> Encoded<'a> {
    pub(crate) fn new(delivery: &'a Delivery, queue: &'a str) -> Self {
        let Delivery { body, properties, origin, .. } = delivery;
        Self { body, properties, origin, queue }
    }

    /// The same message with another body, for a decoder that unpacks the body and gives it to
    /// another decoder. Properties and headers stay the same, including the
    /// content encoding.
    ///
    /// ```
    /// use rehop::bytes::Bytes;
    /// use rehop::{Decode, DecodeError, Encoded, Json};
    ///
    /// /// JSON behind a byte that says which version it is.
    /// struct Versioned;
    ///
    /// impl Decode<u32> for Versioned {
    ///     fn decode(&self, encoded: &Encoded<'_>) -> Result<u32, DecodeError> {
    ///         match encoded.body().split_first() {
    ///             Some((1, json)) => Json.decode(&encoded.with_body(&Bytes::copy_from_slice(json))),
    ///             _ => Err(DecodeError::new("the version is not 1")),
    ///         }
    ///     }
    /// }
    ///
    /// let seven = rehop::testing::message(()).raw_body("\u{1}7").build();
    /// assert_eq!(Versioned.decode(&seven.encoded())?, 7);
    /// # Ok::<(), DecodeError>(())
    /// ```
    pub fn with_body<'b>(&self, body: &'b Bytes) -> Encoded<'b>
    where
        'a: 'b,
    {
        Encoded { body, ..*self }
    }

    /// The bytes of the body. A clone shares them.
    pub fn body(&self) -> &'a Bytes {
        self.body
    }

    /// The `type` property.
    pub fn message_type(&self) -> Option<&'a str> {
        text(self.properties.kind())
    }

    /// The `content_type` property.
    pub fn content_type(&self) -> Option<&'a str> {
        text(self.properties.content_type())
    }

    /// The `content_encoding` property.
    pub fn content_encoding(&self) -> Option<&'a str> {
        text(self.properties.content_encoding())
    }

    /// One header.
    pub fn header(&self, name: &str) -> Option<HeaderValue<'a>> {
        header(self.properties, name).map(HeaderValue::of)
    }

    /// All headers, in the order of their names.
    pub fn headers(&self) -> impl Iterator<Item = (&'a str, HeaderValue<'a>)> + use<'a> {
        self.properties.headers().iter().flat_map(entries)
    }

    /// The queue that the message was consumed from.
    pub fn queue(&self) -> &'a str {
        self.queue
    }

    /// The exchange that the message was first published to, however often it has waited since.
    /// Empty for the default exchange.
    pub fn exchange(&self) -> &'a str {
        self.origin.exchange.as_str()
    }

    /// The routing key that the message was first published with.
    pub fn routing_key(&self) -> &'a str {
        self.origin.routing_key.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::message;

    #[test]
    fn a_decoder_sees_the_body_the_properties_the_headers_and_where_the_message_was_sent() {
        let message = message(())
            .raw_body("seven")
            .message_type("order")
            .content_type("text/plain")
            .content_encoding("identity")
            .header("tries", 3)
            .queue("orders")
            .published_to("shop", "order.created")
            .hop(2)
            .build();
        let encoded = message.encoded();
        assert_eq!(
            (encoded.body().as_ref(), encoded.message_type()),
            (&b"seven"[..], Some("order"))
        );
        assert_eq!(
            (encoded.content_type(), encoded.content_encoding()),
            (Some("text/plain"), Some("identity"))
        );
        assert_eq!(encoded.header("tries"), Some(HeaderValue::Int(3)));
        assert_eq!(encoded.headers().collect::<Vec<_>>(), [("tries", HeaderValue::Int(3))]);
        assert_eq!(
            (encoded.queue(), encoded.exchange(), encoded.routing_key()),
            ("orders", "shop", "order.created")
        );
    }

    #[test]
    fn another_body_leaves_the_rest_as_it_was() {
        let message = message(()).raw_body("packed").message_type("order").queue("orders").build();
        let unpacked = Bytes::from_static(b"unpacked");
        let encoded = message.encoded().with_body(&unpacked);
        assert_eq!(
            (encoded.body(), encoded.message_type(), encoded.queue()),
            (&unpacked, Some("order"), "orders")
        );
    }
}
