//! Methods with an exchange and a routing key: publish, return, deliver and get-ok.

use super::originals::{EXCHANGE, ROUTING_KEY};
use crate::wire::encoding::{Reader, put_short};

pub(super) struct AddressedMethod<'a> {
    before: &'a [u8],
    pub(super) exchange: &'a [u8],
    pub(super) routing_key: &'a [u8],
    after: &'a [u8],
}

/// The class `basic`, and its methods.
const BASIC: u16 = 60;
const PUBLISH: u16 = 40;
const RETURN: u16 = 50;
const DELIVER: u16 = 60;
const GET_OK: u16 = 71;

impl<'a> AddressedMethod<'a> {
    /// Parses a method's payload. `None` for any other method, or if the payload ends too early.
    pub(super) fn parse(payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        let (class, method) =
            (u16::from_be_bytes(reader.array()?), u16::from_be_bytes(reader.array()?));
        match (class, method) {
            // A reserved number.
            (BASIC, PUBLISH) => reader.take(2).map(drop)?,
            // The reply code and text.
            (BASIC, RETURN) => reader.take(2).and_then(|_| reader.short()).map(drop)?,
            // The consumer tag, the delivery tag and the redelivered flag.
            (BASIC, DELIVER) => reader.short().and_then(|_| reader.take(9)).map(drop)?,
            // The delivery tag and the redelivered flag.
            (BASIC, GET_OK) => reader.take(9).map(drop)?,
            _ => return None,
        }
        let before = &payload[..payload.len() - reader.0.len()];
        let (exchange, routing_key) = (reader.short()?, reader.short()?);
        Some(Self { before, exchange, routing_key, after: reader.0 })
    }

    /// The same method with exchange and routing key replaced. `replace` also gets which of the two
    /// it is.
    pub(super) fn replaced(
        &self,
        mut replace: impl FnMut(&str, &[u8]) -> Option<Vec<u8>>,
    ) -> Vec<u8> {
        let mut out = self.before.to_vec();
        for (place, text) in [(EXCHANGE, self.exchange), (ROUTING_KEY, self.routing_key)] {
            put_short(replace(place, text).as_deref().unwrap_or(text), &mut out);
        }
        out.extend_from_slice(self.after);
        out
    }
}
