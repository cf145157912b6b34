//! What the header [`BYTES`](crate::wire::names::BYTES) says: for which bytes a message's stand-ins stand.

use std::collections::BTreeMap;

use super::stand_in::stand_in;
use super::values::{BYTE_ARRAY, Reader, TABLE, put_short, put_tagged, table};

/// A table: a text with the bytes for which it stands, or the name of a header whose value is shown as its bytes, with `true`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) texts: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) values: Vec<Vec<u8>>,
}

const TRUE: [u8; 2] = [b't', 1];

impl Kept {
    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.values.is_empty()
    }

    /// Reads the header's value. Anybody may have written it, so a text stands only for the bytes whose stand-in it is.
    pub(super) fn read(value: &[u8]) -> Self {
        let mut kept = Self::default();
        for (name, value) in Reader(value).tagged(TABLE).and_then(table).into_iter().flatten() {
            if let Some(bytes) = Reader(&value).tagged(BYTE_ARRAY) {
                if stand_in(bytes).is_some_and(|text| text.as_bytes() == &*name) {
                    kept.texts.insert(name.into_owned(), bytes.to_vec());
                }
            } else if *value == TRUE {
                kept.values.push(name.into_owned());
            }
        }
        kept
    }

    /// Writes the header's value, with its type.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        for (text, bytes) in &self.texts {
            put_short(text, &mut fields);
            put_tagged(BYTE_ARRAY, bytes, &mut fields);
        }
        for name in &self.values {
            put_short(name, &mut fields);
            fields.extend(TRUE);
        }
        let mut value = Vec::new();
        put_tagged(TABLE, &fields, &mut value);
        value
    }
}
