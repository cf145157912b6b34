//! AMQP's encoding of strings, tables and arrays, with the type bytes that RabbitMQ uses and lapin
//! reads.

/// Bytes that are read from the front. Each method returns `None` if they end too early.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn short(&mut self) -> Option<&'a [u8]> {
        let [length] = self.array()?;
        self.take(length.into())
    }

    /// The content of a long string, a table or an array.
    pub(crate) fn sized(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_be_bytes(self.array()?);
        self.take(length.try_into().ok()?)
    }

    /// The content of a value of this type, if nothing follows it.
    pub(crate) fn tagged(&mut self, tag: u8) -> Option<&'a [u8]> {
        let [found] = self.array()?;
        let content = self.sized()?;
        (found == tag && self.0.is_empty()).then_some(content)
    }

    /// A value, including its type byte.
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

pub(crate) const TABLE: u8 = b'F';
const ARRAY: u8 = b'A';
pub(crate) const BYTE_ARRAY: u8 = b'x';

/// How deeply tables and arrays may nest in a value that lapin gets: its parser recurses without a
/// limit (4.12).
const MAX_DEPTH: usize = 64;

/// A field of a table: its name, and its value including the type byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// How well a field can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readable {
    /// lapin can read it.
    Yes,
    /// A name in it is not UTF-8, or it is nested too deeply.
    No,
    /// It is not encoded as AMQP says.
    Malformed,
}

impl Field<'_> {
    pub(crate) fn readable(self) -> Readable {
        let mut readable = is_text(self.name);
        if !matches!(self.value.first(), Some(&(TABLE | ARRAY))) {
            return if readable { Readable::Yes } else { Readable::No };
        }
        // The length of a table or an array precedes it, so each can be looked at by itself.
        let mut left = vec![(0, self.value)];
        while let Some((depth, value)) = left.pop() {
            let Some(tag @ (TABLE | ARRAY)) = value.first().copied() else { continue };
            readable &= depth < MAX_DEPTH;
            let Some(content) = Reader(value).tagged(tag) else { return Readable::Malformed };
            let mut inside = Reader(content);
            while !inside.0.is_empty() {
                if tag == TABLE {
                    let Some(name) = inside.short() else { return Readable::Malformed };
                    readable &= is_text(name);
                }
                let Some(value) = inside.value() else { return Readable::Malformed };
                if matches!(value.first(), Some(&(TABLE | ARRAY))) {
                    left.push((depth + 1, value));
                }
            }
        }
        if readable { Readable::Yes } else { Readable::No }
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        put_short(self.name, out);
        out.extend_from_slice(self.value);
    }
}

/// The fields of a table with this content.
pub(crate) fn fields(content: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut reader = Reader(content);
    let mut fields = Vec::new();
    while !reader.0.is_empty() {
        fields.push(Field { name: reader.short()?, value: reader.value()? });
    }
    Some(fields)
}

fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

/// Writes a short string. Nothing is cut: originals and stand-ins have at most 255 bytes.
pub(crate) fn put_short(text: &[u8], out: &mut Vec<u8>) {
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    out.push(length);
    out.extend_from_slice(&text[..length.into()]);
}

/// Writes the content of a long string, a table or an array, after its length.
pub(crate) fn put_sized(content: &[u8], out: &mut Vec<u8>) {
    out.extend(u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(content);
}

/// Writes a value of this type.
pub(crate) fn put_tagged(tag: u8, content: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    put_sized(content, out);
}
