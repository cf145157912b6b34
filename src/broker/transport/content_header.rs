//! A content header, taken apart into properties and put together again.

use std::borrow::Cow;

use super::originals::Originals;
use crate::wire::encoding::{Field, Readable, Reader, fields, put_short, put_sized};
use crate::wire::names::{BYTES, X_DELAY, is_trace_context, travels};

pub(super) struct ContentHeader<'a> {
    /// The class, the weight and the body's size.
    fixed: &'a [u8],
    /// Those that the message has, each with its place in [`PROPERTIES`].
    properties: Vec<(usize, Property<'a>)>,
}

enum Property<'a> {
    ShortString(Cow<'a, [u8]>),
    /// The content of the table.
    Headers(Cow<'a, [u8]>),
    Other(&'a [u8]),
}

enum Kind {
    ShortString,
    Headers,
    /// This many bytes.
    Other(usize),
}

/// All properties, in the order of their flags, from the highest bit down.
const PROPERTIES: [(&str, Kind); 14] = [
    ("content_type", Kind::ShortString),
    ("content_encoding", Kind::ShortString),
    ("headers", Kind::Headers),
    ("delivery_mode", Kind::Other(1)),
    ("priority", Kind::Other(1)),
    ("correlation_id", Kind::ShortString),
    ("reply_to", Kind::ShortString),
    ("expiration", Kind::ShortString),
    ("message_id", Kind::ShortString),
    ("timestamp", Kind::Other(8)),
    ("type", Kind::ShortString),
    ("user_id", Kind::ShortString),
    ("app_id", Kind::ShortString),
    ("cluster_id", Kind::ShortString),
];
const HEADERS: usize = 2;

/// The flags of all properties. RabbitMQ uses no others; the lowest bit announces a second word of
/// flags.
const ALL_FLAGS: u16 = 0xFFFC;

const fn flag(place: usize) -> u16 {
    1 << (15 - place)
}

impl<'a> ContentHeader<'a> {
    /// `None` if the payload is not a content header that RabbitMQ sends.
    pub(super) fn parse(payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        let fixed = reader.take(12)?;
        let flags = u16::from_be_bytes(reader.array()?);
        if flags & !ALL_FLAGS != 0 {
            return None;
        }
        let mut properties = Vec::new();
        for (place, (_, kind)) in
            PROPERTIES.iter().enumerate().filter(|(place, _)| flags & flag(*place) != 0)
        {
            let property = match kind {
                Kind::ShortString => Property::ShortString(reader.short()?.into()),
                Kind::Headers => Property::Headers(reader.sized()?.into()),
                Kind::Other(size) => Property::Other(reader.take(*size)?),
            };
            properties.push((place, property));
        }
        reader.0.is_empty().then_some(Self { fixed, properties })
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = self.fixed.to_vec();
        let flags = self.properties.iter().fold(0, |flags, (place, _)| flags | flag(*place));
        out.extend(flags.to_be_bytes());
        for (_, property) in &self.properties {
            match property {
                Property::ShortString(text) => put_short(text, &mut out),
                Property::Headers(content) => put_sized(content, &mut out),
                Property::Other(bytes) => out.extend_from_slice(bytes),
            }
        }
        out
    }

    /// Replaces short strings of properties. `replace` also gets the property's name.
    pub(super) fn replace(&mut self, mut replace: impl FnMut(&str, &[u8]) -> Option<Vec<u8>>) {
        for (place, property) in &mut self.properties {
            let Property::ShortString(text) = property else { continue };
            if let Some(other) = replace(PROPERTIES[*place].0, text) {
                *text = other.into();
            }
        }
    }

    /// Removes the fields of the headers that lapin cannot read, and returns them encoded. None are
    /// returned if all can be read, or if the headers are malformed.
    pub(super) fn take_unreadable(&mut self) -> Option<Vec<u8>> {
        let content = self.headers_mut()?;
        let all = fields(content)?;
        let (readable, unreadable): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|it| it.readable() == Readable::Yes);
        if unreadable.is_empty() {
            return None;
        }
        let (readable, unreadable) = (put_all(&readable), put_all(&unreadable));
        *content = readable.into();
        Some(unreadable)
    }

    /// Adds fields that were removed. Anyone may have written them, so the others are left out:
    /// those that lapin could have read and rehop would have judged, and those for which the broker
    /// would close the connection.
    pub(super) fn add_unreadable(&mut self, encoded: &[u8]) {
        let may_return = |field: &Field<'_>| {
            let is_others =
                |name: &str| travels(name) && !is_trace_context(name) && name != X_DELAY;
            field.readable() == Readable::No
                && std::str::from_utf8(field.name).map_or(true, is_others)
        };
        let Some(content) = self.headers_mut() else { return };
        for field in fields(encoded).into_iter().flatten().filter(may_return) {
            field.put(content.to_mut());
        }
    }

    /// Removes the header [`BYTES`] and returns its content; empty if it is missing or malformed.
    pub(super) fn take_originals(&mut self) -> Originals {
        let take = |content: &mut Cow<'a, [u8]>| {
            let (own, others): (Vec<_>, Vec<_>) =
                fields(content)?.into_iter().partition(|field| field.name == BYTES.as_bytes());
            let originals = Originals::read(own.first()?.value);
            let others = put_all(&others);
            *content = others.into();
            Some(originals)
        };
        self.headers_mut().and_then(take).unwrap_or_default()
    }

    /// Adds the header [`BYTES`] if there is anything to say in it.
    pub(super) fn add_originals(&mut self, originals: &Originals) {
        if originals.is_empty() {
            return;
        }
        if self.headers_mut().is_none() {
            let at = self
                .properties
                .iter()
                .position(|(place, _)| *place > HEADERS)
                .unwrap_or(self.properties.len());
            self.properties.insert(at, (HEADERS, Property::Headers(Cow::default())));
        }
        if let Some(content) = self.headers_mut() {
            Field { name: BYTES.as_bytes(), value: &originals.write() }.put(content.to_mut());
        }
    }

    /// The content of the table of headers.
    fn headers_mut(&mut self) -> Option<&mut Cow<'a, [u8]>> {
        self.properties.iter_mut().find_map(|(_, property)| match property {
            Property::Headers(content) => Some(content),
            Property::ShortString(_) | Property::Other(_) => None,
        })
    }
}

fn put_all(fields: &[Field<'_>]) -> Vec<u8> {
    let mut content = Vec::new();
    fields.iter().for_each(|field| field.put(&mut content));
    content
}
