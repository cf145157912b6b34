//! AMQP's encoding of strings, tables and arrays, as RabbitMQ has it.

use std::borrow::Cow;

/// Bytes that are read from the front. Each method returns `None` if they end too early.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// A short string.
    pub(super) fn short(&mut self) -> Option<&'a [u8]> {
        let [length] = self.array()?;
        self.take(length.into())
    }

    /// What a long string, a table or an array holds.
    pub(super) fn sized(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_be_bytes(self.array()?);
        self.take(length.try_into().ok()?)
    }

    /// What a value of this type holds, if it is all that is left.
    pub(super) fn tagged(&mut self, tag: u8) -> Option<&'a [u8]> {
        let [found] = self.array()?;
        let held = self.sized()?;
        (found == tag && self.0.is_empty()).then_some(held)
    }

    /// A value with its type.
    fn value(&mut self) -> Option<&'a [u8]> {
        let all = self.0;
        let [tag] = self.array()?;
        match tag {
            TABLE | ARRAY | BYTE_ARRAY | b'S' => self.sized()?,
            b't' | b'b' | b'B' => self.take(1)?,
            b's' | b'u' | b'U' => self.take(2)?,
            b'I' | b'i' | b'f' => self.take(4)?,
            b'D' => self.take(5)?,
            b'L' | b'l' | b'd' | b'T' => self.take(8)?,
            b'V' => &[],
            _ => return None,
        };
        Some(&all[..all.len() - self.0.len()])
    }
}

pub(super) const TABLE: u8 = b'F';
const ARRAY: u8 = b'A';
pub(super) const BYTE_ARRAY: u8 = b'x';

/// Tables and arrays in each other, beyond which lapin is not trusted: it parses them by recursion (4.12).
const DEEPEST: usize = 64;

/// A name in a table, and its value with its type.
pub(super) type Field<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// What takes the place of a text, if anything does.
pub(super) type Replace<'a> = &'a mut dyn FnMut(&[u8]) -> Option<Vec<u8>>;

/// The fields of a table.
pub(super) fn table(held: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut reader = Reader(held);
    let mut fields = Vec::new();
    while !reader.0.is_empty() {
        fields.push((reader.short()?.into(), reader.value()?.into()));
    }
    Some(fields)
}

/// Whether a value, with its type, is a table or an array.
pub(super) fn is_nested(value: &[u8]) -> bool {
    matches!(value.first(), Some(&(TABLE | ARRAY)))
}

/// Whether lapin can be trusted with a value.
pub(super) fn is_readable(value: &[u8]) -> bool {
    transcribe(value, &mut |_| None, &mut Vec::new()).is_some()
}

/// Whether these bytes are one value, however deeply nested.
pub(super) fn is_value(bytes: &[u8]) -> bool {
    // What is nested has its length before it, so each table and array can be looked at by itself.
    let mut left = vec![bytes];
    while let Some(value) = left.pop() {
        let mut reader = Reader(value);
        if reader.value().is_none() || !reader.0.is_empty() {
            return false;
        }
        let (Some(&tag), true) = (value.first(), is_nested(value)) else { continue };
        let Some(held) = Reader(value).tagged(tag) else { return false };
        let mut inside = Reader(held);
        while !inside.0.is_empty() {
            if tag == TABLE && inside.short().is_none() {
                return false;
            }
            let Some(value) = inside.value() else { return false };
            left.push(value);
        }
    }
    true
}

/// Writes a value with other names in its tables. `None` if it is nested too deeply, or is no value.
pub(super) fn transcribe(value: &[u8], replace: Replace<'_>, out: &mut Vec<u8>) -> Option<()> {
    transcribe_at(0, value, replace, out)
}

fn transcribe_at(depth: usize, value: &[u8], replace: Replace<'_>, out: &mut Vec<u8>) -> Option<()> {
    let tag = *value.first()?;
    if tag != TABLE && tag != ARRAY {
        out.extend_from_slice(value);
        return Some(());
    }
    if depth == DEEPEST {
        return None;
    }
    let mut reader = Reader(Reader(value).tagged(tag)?);
    let mut held = Vec::with_capacity(value.len());
    while !reader.0.is_empty() {
        if tag == TABLE {
            let name = reader.short()?;
            put_short(replace(name).as_deref().unwrap_or(name), &mut held);
        }
        transcribe_at(depth + 1, reader.value()?, replace, &mut held)?;
    }
    out.push(tag);
    put_sized(&held, out);
    Some(())
}

/// A short string. Those that are replaced and those that take their place have at most 255 bytes.
pub(super) fn put_short(text: &[u8], out: &mut Vec<u8>) {
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    out.push(length);
    out.extend_from_slice(&text[..length.into()]);
}

pub(super) fn put_sized(held: &[u8], out: &mut Vec<u8>) {
    out.extend(u32::try_from(held.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(held);
}

/// A value of this type.
pub(super) fn put_tagged(tag: u8, held: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    put_sized(held, out);
}
