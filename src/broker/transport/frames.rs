//! Cuts a stream of bytes into frames.

use super::values::put_sized;

/// What is done with frames of one direction.
pub(super) trait Rewrite {
    /// A method or a content header on this channel: writes `frame`, or what takes its place.
    fn rewrite(&mut self, channel: u16, frame: &[u8], out: &mut Vec<u8>);
}

pub(super) const METHOD: u8 = 1;
pub(super) const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;

/// The kind, the channel and the payload's size.
const HEAD: usize = 7;
/// The byte after the payload.
const END: usize = 1;

/// The client's first bytes, which are no frame.
const PROTOCOL_HEADER: usize = 8;

/// The rewriting of one direction. Method and header frames are seen whole; bodies pass as they come.
#[derive(Default)]
pub(super) struct Frames<R> {
    rewrite: R,
    /// The beginning of a frame that is not complete.
    begun: Vec<u8>,
    /// How many bytes pass unseen.
    passing: usize,
}

impl<R: Rewrite> Frames<R> {
    pub(super) fn after_protocol_header() -> Self
    where
        R: Default,
    {
        Self { passing: PROTOCOL_HEADER, ..Self::default() }
    }

    /// Writes what becomes of these bytes, and of those kept from earlier calls.
    pub(super) fn pass(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            if self.passing > 0 {
                let (passes, rest) = bytes.split_at(self.passing.min(bytes.len()));
                out.extend_from_slice(passes);
                self.passing -= passes.len();
                bytes = rest;
            } else if self.begun.is_empty()
                && is_seen(bytes)
                && length(bytes).is_some_and(|length| length <= bytes.len())
            {
                let (frame, rest) = bytes.split_at(length(bytes).unwrap_or(bytes.len()));
                self.rewrite.rewrite(channel(frame), frame, out);
                bytes = rest;
            } else {
                bytes = self.begin(bytes, out);
            }
        }
    }

    /// Keeps what belongs to a frame that is not complete, and returns the rest.
    fn begin<'a>(&mut self, bytes: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        let wanted = length(&self.begun).unwrap_or(HEAD);
        let (more, rest) = bytes.split_at((wanted - self.begun.len()).min(bytes.len()));
        self.begun.extend_from_slice(more);
        match length(&self.begun) {
            Some(length) if !is_seen(&self.begun) => {
                out.extend_from_slice(&self.begun);
                self.passing = length - self.begun.len();
                self.begun.clear();
            }
            Some(length) if length == self.begun.len() => {
                self.rewrite.rewrite(channel(&self.begun), &self.begun, out);
                self.begun.clear();
            }
            Some(_) | None => {}
        }
        rest
    }
}

/// The length of the frame that begins with these bytes, as far as they tell. What is no frame has no end.
fn length(bytes: &[u8]) -> Option<usize> {
    let [kind, _, _, a, b, c, d] = *bytes.first_chunk::<HEAD>()?;
    match kind {
        METHOD | HEADER | BODY | HEARTBEAT => Some(HEAD + u32::from_be_bytes([a, b, c, d]) as usize + END),
        _ => Some(usize::MAX),
    }
}

/// Whether the frame that begins with these bytes may be rewritten.
fn is_seen(bytes: &[u8]) -> bool {
    /// Many times the largest frame of a method or a header.
    const AT_MOST: usize = 64 * 1024 * 1024;
    matches!(bytes.first(), Some(&(METHOD | HEADER))) && length(bytes).is_none_or(|length| length <= AT_MOST)
}

/// The payload of a complete frame.
pub(super) fn payload(frame: &[u8]) -> &[u8] {
    &frame[HEAD..frame.len() - END]
}

/// Writes a frame of the same kind and channel with another payload.
pub(super) fn put_frame(like: &[u8], payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&like[..HEAD - size_of::<u32>()]);
    put_sized(payload, out);
    out.push(like[like.len() - END]);
}

fn channel(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[1], frame[2]])
}
