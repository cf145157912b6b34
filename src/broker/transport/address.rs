//! The methods that say where a message was or is published to: exchange and routing key.

use super::values::{Reader, put_short};

/// A method with exchange and routing key.
pub(super) struct Addressed<'a> {
    before: &'a [u8],
    pub(super) exchange: &'a [u8],
    pub(super) routing_key: &'a [u8],
    after: &'a [u8],
}

/// The class `basic`.
const BASIC: u16 = 60;
const PUBLISH: u16 = 40;
const RETURN: u16 = 50;
const DELIVER: u16 = 60;
const GET_OK: u16 = 71;

impl<'a> Addressed<'a> {
    /// The method in this payload, if it is such a one.
    pub(super) fn of(payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        let (class, method) = (u16::from_be_bytes(reader.array()?), u16::from_be_bytes(reader.array()?));
        match (class, method) {
            // A reserved number.
            (BASIC, PUBLISH) => reader.take(2).map(drop)?,
            // The reply's code and text.
            (BASIC, RETURN) => reader.take(2).and_then(|_| reader.short()).map(drop)?,
            // The consumer's tag, the delivery's tag, and whether it was delivered before.
            (BASIC, DELIVER) => reader.short().and_then(|_| reader.take(9)).map(drop)?,
            (BASIC, GET_OK) => reader.take(9).map(drop)?,
            _ => return None,
        }
        let before = &payload[..payload.len() - reader.0.len()];
        let (exchange, routing_key) = (reader.short()?, reader.short()?);
        Some(Self { before, exchange, routing_key, after: reader.0 })
    }

    /// The same method with another exchange and routing key.
    pub(super) fn write(&self, exchange: &[u8], routing_key: &[u8]) -> Vec<u8> {
        let mut out = self.before.to_vec();
        put_short(exchange, &mut out);
        put_short(routing_key, &mut out);
        out.extend_from_slice(self.after);
        out
    }
}
