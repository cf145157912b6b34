//! Splits a byte stream into frames, and has method and header frames rewritten.

use crate::wire::encoding::put_sized;

/// Rewrites the frames of one direction. Each method appends a complete frame, or its replacement,
/// to `out`. It may hold a frame back until the channel's next one.
pub(super) trait Rewrite {
    fn method(&mut self, channel: u16, frame: &[u8], out: &mut Vec<u8>);
    fn content_header(&mut self, channel: u16, frame: &[u8], out: &mut Vec<u8>);
}

pub(super) const METHOD: u8 = 1;
pub(super) const HEADER: u8 = 2;
pub(super) const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;

/// The kind, the channel and the payload's size.
const HEAD: usize = 7;
/// The byte after the payload.
const END: usize = 1;

/// The client's first bytes, which are not a frame.
const PROTOCOL_HEADER: usize = 8;

/// Far above any method or header frame, so that a wrong size is not waited for. `frame_max` is 128
/// KiB by default.
const MAX_REWRITTEN: usize = 64 * 1024 * 1024;

/// Rewrites one direction of a connection. Body and heartbeat frames pass as they arrive.
#[derive(Default)]
pub(super) struct FrameRewriter<R> {
    rewrite: R,
    /// The beginning of a frame.
    partial: Vec<u8>,
    /// How many of the next bytes pass unchanged.
    unchanged: usize,
}

impl<R: Rewrite + Default> FrameRewriter<R> {
    /// For a client's own direction.
    pub(super) fn after_protocol_header() -> Self {
        Self { unchanged: PROTOCOL_HEADER, ..Self::default() }
    }
}

impl<R: Rewrite> FrameRewriter<R> {
    pub(super) fn of(rewrite: R) -> Self {
        Self { rewrite, partial: Vec::new(), unchanged: 0 }
    }

    /// Appends these bytes, rewritten, to `out`. An incomplete method or header frame is kept until
    /// the rest arrives.
    pub(super) fn pass(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            if self.unchanged > 0 {
                let (passes, rest) = bytes.split_at(self.unchanged.min(bytes.len()));
                out.extend_from_slice(passes);
                self.unchanged -= passes.len();
                bytes = rest;
            } else if let (true, Some((frame, rest))) = (self.partial.is_empty(), complete(bytes)) {
                rewrite(&mut self.rewrite, frame, out);
                bytes = rest;
            } else {
                bytes = self.collect(bytes, out);
            }
        }
    }

    /// Collects the bytes of a frame until its kind is known, or until it is complete. Returns the
    /// bytes after it.
    fn collect<'a>(&mut self, bytes: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        let wanted = length(&self.partial).unwrap_or(HEAD);
        let (more, rest) = bytes.split_at((wanted - self.partial.len()).min(bytes.len()));
        self.partial.extend_from_slice(more);
        let Some(length) = length(&self.partial) else { return rest };
        if !is_rewritten(&self.partial, length) {
            out.extend_from_slice(&self.partial);
            self.unchanged = length - self.partial.len();
            self.partial.clear();
        } else if length == self.partial.len() {
            rewrite(&mut self.rewrite, &self.partial, out);
            self.partial.clear();
        }
        rest
    }
}

fn rewrite(rewrite: &mut impl Rewrite, frame: &[u8], out: &mut Vec<u8>) {
    let channel = u16::from_be_bytes([frame[1], frame[2]]);
    match frame[0] {
        METHOD => rewrite.method(channel, frame, out),
        _ => rewrite.content_header(channel, frame, out),
    }
}

/// A complete frame to rewrite, at the front of these bytes, and the rest.
fn complete(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = length(bytes).filter(|length| is_rewritten(bytes, *length))?;
    bytes.split_at_checked(length)
}

/// The length of the frame that begins with these bytes; `None` until its first 7 bytes are there.
/// Bytes that are not a frame count as endless, so the rest passes unchanged.
fn length(bytes: &[u8]) -> Option<usize> {
    let [kind, _, _, a, b, c, d] = *bytes.first_chunk::<HEAD>()?;
    match kind {
        METHOD | HEADER | BODY | HEARTBEAT => {
            Some(HEAD + u32::from_be_bytes([a, b, c, d]) as usize + END)
        }
        _ => Some(usize::MAX),
    }
}

fn is_rewritten(frame: &[u8], length: usize) -> bool {
    matches!(frame.first(), Some(&(METHOD | HEADER))) && length <= MAX_REWRITTEN
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
