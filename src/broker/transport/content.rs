//! The properties in a content header, taken apart and put together again.

use std::borrow::Cow;

use super::kept::Kept;
use super::values::{
    BYTE_ARRAY, Field, Reader, Replace, is_nested, is_readable, is_value, put_short, put_sized, put_tagged, table,
    transcribe,
};
use crate::wire::names::BYTES;

/// A content header.
pub(super) struct Content<'a> {
    /// The class, the weight and the body's size.
    fixed: &'a [u8],
    /// Those that the message has, each with its place in [`PROPERTIES`].
    properties: Vec<(usize, Property<'a>)>,
}

enum Property<'a> {
    Text(Cow<'a, [u8]>),
    Headers(Vec<Field<'a>>),
    Other(&'a [u8]),
}

enum Kind {
    Text,
    Headers,
    /// So many bytes.
    Other(usize),
}

/// All properties, in the order of their flags, from the highest bit down.
const PROPERTIES: [Kind; 14] = [
    Kind::Text,     // content_type
    Kind::Text,     // content_encoding
    Kind::Headers,  // headers
    Kind::Other(1), // delivery_mode
    Kind::Other(1), // priority
    Kind::Text,     // correlation_id
    Kind::Text,     // reply_to
    Kind::Text,     // expiration
    Kind::Text,     // message_id
    Kind::Other(8), // timestamp
    Kind::Text,     // type
    Kind::Text,     // user_id
    Kind::Text,     // app_id
    Kind::Text,     // cluster_id
];
const HEADERS: usize = 2;

/// RabbitMQ has no others. The lowest bit would announce more of them.
const ALL_FLAGS: u16 = 0xFFFC;

const fn flag(place: usize) -> u16 {
    1 << (15 - place)
}

impl<'a> Content<'a> {
    /// Takes a content header apart. `None` if it is not one that RabbitMQ sends.
    pub(super) fn of(payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        let fixed = reader.take(12)?;
        let flags = u16::from_be_bytes(reader.array()?);
        if flags & !ALL_FLAGS != 0 {
            return None;
        }
        let mut properties = Vec::new();
        for (place, kind) in PROPERTIES.iter().enumerate().filter(|(place, _)| flags & flag(*place) != 0) {
            let property = match kind {
                Kind::Text => Property::Text(reader.short()?.into()),
                Kind::Headers => Property::Headers(table(reader.sized()?)?),
                Kind::Other(size) => Property::Other(reader.take(*size)?),
            };
            properties.push((place, property));
        }
        reader.0.is_empty().then_some(Self { fixed, properties })
    }

    /// Replaces texts by others: of properties, names of headers, and names in tables.
    pub(super) fn replace(&mut self, replace: Replace<'_>) {
        for text in self.texts() {
            if let Some(other) = replace(text) {
                *text = other.into();
            }
        }
        for (_, value) in self.headers().filter(|(_, value)| is_nested(value) && is_readable(value)) {
            let mut other = Vec::with_capacity(value.len());
            if transcribe(value, replace, &mut other).is_some() && other != **value {
                *value = other.into();
            }
        }
    }

    /// Shows the values that cannot be read as their bytes, and returns their headers' names.
    pub(super) fn show_as_bytes(&mut self) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        for (name, value) in self.headers().filter(|(_, value)| is_nested(value) && !is_readable(value)) {
            let mut bytes = Vec::new();
            put_tagged(BYTE_ARRAY, value, &mut bytes);
            *value = bytes.into();
            names.push(name.to_vec());
        }
        names
    }

    /// The values of these headers, from the bytes as which they are shown.
    pub(super) fn read_from_bytes(&mut self, names: &mut Vec<Vec<u8>>) {
        for (name, value) in self.headers() {
            let Some(at) = names.iter().position(|it| it[..] == **name) else { continue };
            // Others than rehop may have written both headers, and the broker gives up a connection on which a value is none.
            let shown = Reader(value).tagged(BYTE_ARRAY).filter(|shown| is_value(shown)).map(<[u8]>::to_vec);
            if let Some(shown) = shown {
                *value = shown.into();
                names.swap_remove(at);
            }
        }
    }

    /// Takes out what the header [`BYTES`] says.
    pub(super) fn take_kept(&mut self) -> Kept {
        let Some(headers) = self.headers_mut() else { return Kept::default() };
        let found = headers.iter().position(|(name, _)| **name == *BYTES.as_bytes());
        found.map(|at| Kept::read(&headers.remove(at).1)).unwrap_or_default()
    }

    /// Puts the header [`BYTES`] in.
    pub(super) fn keep(&mut self, kept: &Kept) {
        if kept.is_empty() {
            return;
        }
        if self.headers_mut().is_none() {
            let at = self.properties.iter().position(|(place, _)| *place > HEADERS).unwrap_or(self.properties.len());
            self.properties.insert(at, (HEADERS, Property::Headers(Vec::new())));
        }
        if let Some(headers) = self.headers_mut() {
            headers.push((BYTES.as_bytes().into(), kept.write().into()));
        }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = self.fixed.to_vec();
        let flags = self.properties.iter().fold(0, |flags, (place, _)| flags | flag(*place));
        out.extend(flags.to_be_bytes());
        for (_, property) in &self.properties {
            match property {
                Property::Text(text) => put_short(text, &mut out),
                Property::Headers(headers) => {
                    let mut fields = Vec::new();
                    for (name, value) in headers {
                        put_short(name, &mut fields);
                        fields.extend_from_slice(value);
                    }
                    put_sized(&fields, &mut out);
                }
                Property::Other(bytes) => out.extend_from_slice(bytes),
            }
        }
        out
    }

    /// The texts of properties and the names of headers.
    fn texts(&mut self) -> impl Iterator<Item = &mut Cow<'a, [u8]>> {
        self.properties.iter_mut().flat_map(|(_, property)| match property {
            Property::Text(text) => vec![text],
            Property::Headers(headers) => headers.iter_mut().map(|(name, _)| name).collect(),
            Property::Other(_) => Vec::new(),
        })
    }

    fn headers(&mut self) -> impl Iterator<Item = &mut Field<'a>> {
        self.headers_mut().into_iter().flatten()
    }

    fn headers_mut(&mut self) -> Option<&mut Vec<Field<'a>>> {
        self.properties.iter_mut().find_map(|(_, property)| match property {
            Property::Headers(headers) => Some(headers),
            Property::Text(_) | Property::Other(_) => None,
        })
    }
}
