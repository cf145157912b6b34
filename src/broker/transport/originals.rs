//! The content of the header [`BYTES`](crate::wire::names::BYTES): what lapin cannot read of a
//! message, as it was.

use std::collections::BTreeMap;

use crate::wire::encoding::{BYTE_ARRAY, Reader, TABLE, fields, put_short, put_tagged};
use crate::wire::stand_in::{MAX_SHORT_STRING, stand_in};

/// A table of byte arrays. Each is the original of a property of this name, of [`EXCHANGE`] or of
/// [`ROUTING_KEY`], where the message has its stand-in; or [`HEADERS`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Originals(BTreeMap<Vec<u8>, Vec<u8>>);

pub(super) const EXCHANGE: &str = "exchange";
pub(super) const ROUTING_KEY: &str = "routing_key";
/// The fields of the message's headers that are not shown.
pub(super) const HEADERS: &str = "headers";

impl Originals {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses the header's value. Anyone may have written it, so it is only a claim.
    pub(super) fn read(value: &[u8]) -> Self {
        let read = Reader(value).tagged(TABLE).and_then(fields).unwrap_or_default();
        let original = |value: &[u8]| Reader(value).tagged(BYTE_ARRAY).map(<[u8]>::to_vec);
        Self(
            read.into_iter()
                .filter_map(|field| Some((field.name.to_vec(), original(field.value)?)))
                .collect(),
        )
    }

    /// The header's value, including its type byte.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        for (place, bytes) in &self.0 {
            put_short(place, &mut fields);
            put_tagged(BYTE_ARRAY, bytes, &mut fields);
        }
        let mut value = Vec::new();
        put_tagged(TABLE, &fields, &mut value);
        value
    }

    pub(super) fn insert(&mut self, place: &str, bytes: Vec<u8>) {
        self.0.insert(place.into(), bytes);
    }

    /// Records a short string that is not UTF-8, and returns its stand-in.
    pub(super) fn record(&mut self, place: &str, text: &[u8]) -> Option<Vec<u8>> {
        let stand_in = stand_in(text)?;
        self.insert(place, text.to_vec());
        Some(stand_in.into_bytes())
    }

    /// Removes and returns the original for which a text stands.
    pub(super) fn restore(&mut self, place: &str, text: &[u8]) -> Option<Vec<u8>> {
        let bytes = self.0.get(place.as_bytes())?;
        if bytes.len() > MAX_SHORT_STRING || stand_in(bytes)?.as_bytes() != text {
            return None;
        }
        self.remove(place)
    }

    pub(super) fn remove(&mut self, place: &str) -> Option<Vec<u8>> {
        self.0.remove(place.as_bytes())
    }

    /// Adds those of `older` for places that have none here.
    pub(super) fn or(self, older: Self) -> Self {
        Self(older.0.into_iter().chain(self.0).collect())
    }
}
