//! A decoder around another one, for compressed bodies.

use std::io::Read as _;

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;

use super::{Decode, DecodeError};
use crate::message::Encoded;

/// Unpacks bodies whose content encoding is `gzip`, and gives them to another decoder.
///
/// A body without a content encoding, or with `identity`, goes to the other decoder as it is, so
/// producers can switch to compression one by one. A body with another encoding does not
/// decode, nor does one that claims to be gzip and is not, or ends too early.
///
/// # Bounds
///
/// A few kilobytes can unpack to gigabytes. So a body that unpacks to more than
/// [`DEFAULT_LIMIT`](Self::DEFAULT_LIMIT), 16 MiB, does not decode: unpacking ends there, and the
/// message is parked. [`limit`](Self::limit) sets another limit. Up to `consume.concurrency` of
/// these bodies, each taking up to twice its size, are in memory at a time.
///
/// ```
/// use rehop::{Consumer, Failure, Gzip, Json, Message};
///
/// #[derive(serde::Deserialize)]
/// struct Order { id: u64 }
///
/// async fn ship(order: Message<Order>) -> Result<(), Failure> {
///     println!("order {}, {} bytes when packed", order.body.id, order.raw_body().len());
///     Ok(())
/// }
///
/// let consumer = Consumer::new("orders", ship).decode(Gzip::new(Json).limit(1024 * 1024));
/// # let _ = consumer;
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Gzip<D> {
    inner: D,
    limit: usize,
}

impl<D> Gzip<D> {
    /// The most bytes that a body may unpack to, unless [`limit`](Self::limit) says otherwise:
    /// 16 MiB, the largest message that RabbitMQ takes by default (4.0 and 4.3).
    pub const DEFAULT_LIMIT: usize = 16 * 1024 * 1024;

    /// Decodes what is unpacked by this decoder.
    pub fn new(inner: D) -> Self {
        Self { inner, limit: Self::DEFAULT_LIMIT }
    }

    /// The most bytes that a body may unpack to. Bodies that are not packed are not limited.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// The text of the error says what the producer has to change.
    fn unpack(&self, packed: &Bytes) -> Result<Bytes, DecodeError> {
        let mut unpacked = Vec::new();
        // One byte more tells a body at the limit from one above it.
        let most = u64::try_from(self.limit).unwrap_or(u64::MAX).saturating_add(1);
        // flate2's own text may come from the body's header, so it is not used.
        MultiGzDecoder::new(&packed[..])
            .take(most)
            .read_to_end(&mut unpacked)
            .map_err(|_| DecodeError::new("the content encoding is gzip, and the body is not"))?;
        if unpacked.len() > self.limit {
            return Err(DecodeError::new(format_args!(
                "the body unpacks to more than {} bytes, the limit of this decoder",
                self.limit
            )));
        }
        Ok(unpacked.into())
    }
}

impl<T, D: Decode<T>> Decode<T> for Gzip<D> {
    fn decode(&self, encoded: &Encoded<'_>) -> Result<T, DecodeError> {
        let is = |name: &str| {
            encoded.content_encoding().is_some_and(|encoding| encoding.eq_ignore_ascii_case(name))
        };
        if is("gzip") || is("x-gzip") {
            let body = self.unpack(encoded.body())?;
            self.inner.decode(&encoded.with_body(&body))
        } else if encoded.content_encoding().is_none() || is("") || is("identity") {
            self.inner.decode(encoded)
        } else {
            Err(DecodeError::new("the content encoding is neither gzip nor identity"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::decode::Raw;
    use crate::testing::message;

    fn packed(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    /// What the decoder makes of this body.
    fn decode(decoder: Gzip<Raw>, body: Vec<u8>, encoding: Option<&str>) -> Result<String, String> {
        let message = message(()).raw_body(body);
        let message = match encoding {
            Some(encoding) => message.content_encoding(encoding).build(),
            None => message.build(),
        };
        decoder.decode(&message.encoded()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_body_is_unpacked_if_its_content_encoding_says_so() {
        let gzip = Gzip::new(Raw);
        for encoding in ["gzip", "GZIP", "x-gzip"] {
            assert_eq!(decode(gzip, packed(b"hello"), Some(encoding)), Ok("hello".to_owned()));
        }
        for encoding in [None, Some(""), Some("identity")] {
            assert_eq!(decode(gzip, b"hello".to_vec(), encoding), Ok("hello".to_owned()));
        }
        assert_eq!(decode(gzip, packed(b""), Some("gzip")), Ok(String::new()));
    }

    #[test]
    fn several_parts_one_after_the_other_are_one_body() {
        let parts = [packed(b"hello "), packed(b"world")].concat();
        assert_eq!(decode(Gzip::new(Raw), parts, Some("gzip")), Ok("hello world".to_owned()));
    }

    #[test]
    fn a_body_that_is_not_what_its_content_encoding_says_does_not_decode() {
        let error = |body, encoding| decode(Gzip::new(Raw), body, Some(encoding)).unwrap_err();
        let whole = packed(&b"hello".repeat(100));
        let not_gzip = "the content encoding is gzip, and the body is not";
        for body in [
            b"secret".to_vec(),
            Vec::new(),
            whole[..whole.len() - 1].to_vec(),
            [&whole[..], b"more"].concat(),
        ] {
            assert_eq!(error(body, "gzip"), not_gzip);
        }
        let mut wrong_sum = whole.clone();
        wrong_sum[whole.len() - 8] ^= 1;
        assert_eq!(error(wrong_sum, "gzip"), not_gzip);
        assert_eq!(error(whole, "br"), "the content encoding is neither gzip nor identity");
    }

    #[test]
    fn a_body_that_unpacks_to_more_than_the_limit_does_not_decode() {
        let limited =
            |limit| decode(Gzip::new(Raw).limit(limit), packed(&[b'x'; 100]), Some("gzip"));
        assert!(limited(100).is_ok());
        let error = "the body unpacks to more than 99 bytes, the limit of this decoder";
        assert_eq!(limited(99), Err(error.to_owned()));
        assert!(limited(usize::MAX).is_ok());
    }

    #[test]
    fn unpacking_ends_at_the_default_limit_whatever_the_body_claims() {
        let bomb = packed(&vec![0; Gzip::<Raw>::DEFAULT_LIMIT + 1]);
        assert!(bomb.len() < 64 * 1024, "{} bytes", bomb.len());
        let error = decode(Gzip::new(Raw), bomb, Some("gzip")).unwrap_err();
        assert!(error.contains("more than 16777216 bytes"), "{error}");
    }
}
