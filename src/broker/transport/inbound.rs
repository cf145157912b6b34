//! Inbound frames: stand-ins replace short strings that lapin cannot read, and the size of frames
//! is bounded.

use std::collections::HashMap;

use super::addressed_method::AddressedMethod;
use super::closed_channels::{CLOSE, ClosedChannels};
use super::content_header::ContentHeader;
use super::frames::{Rewrite, payload, put_frame};
use super::originals::{HEADERS, Originals};
use crate::settings::address::MAX_FRAME;
use crate::wire::encoding::{Reader, put_short};
use crate::wire::stand_in::stand_in;

const CONNECTION_TUNE: [u8; 4] = [0, 10, 0, 30];
const CONNECTION_CLOSE: [u8; 4] = [0, 10, 0, 50];

#[derive(Default)]
pub(super) struct Inbound {
    /// By channel: the originals of the last method's exchange and routing key, until its content
    /// header arrives.
    addresses: HashMap<u16, Originals>,
    closed: ClosedChannels,
}

impl Inbound {
    pub(super) fn noting(closed: ClosedChannels) -> Self {
        Self { closed, ..Self::default() }
    }
}

impl Rewrite for Inbound {
    fn method(&mut self, channel: u16, frame: &[u8], out: &mut Vec<u8>) {
        self.addresses.remove(&channel);
        let rewritten =
            with_readable_text(payload(frame)).or_else(|| with_bounded_frames(payload(frame)));
        self.closed.note(channel, rewritten.as_deref().unwrap_or(payload(frame)));
        if let Some(method) = rewritten {
            return put_frame(frame, &method, out);
        }
        let Some(method) = AddressedMethod::parse(payload(frame)) else {
            return out.extend_from_slice(frame);
        };
        let mut originals = Originals::default();
        let replaced = method.replaced(|place, text| originals.record(place, text));
        if originals.is_empty() {
            return out.extend_from_slice(frame);
        }
        self.addresses.insert(channel, originals);
        put_frame(frame, &replaced, out);
    }

    fn content_header(&mut self, channel: u16, frame: &[u8], out: &mut Vec<u8>) {
        let mut originals = self.addresses.remove(&channel).unwrap_or_default();
        let Some(mut header) = ContentHeader::parse(payload(frame)) else {
            return out.extend_from_slice(frame);
        };
        header.replace(|property, text| originals.record(property, text));
        if let Some(unreadable) = header.take_unreadable() {
            originals.insert(HEADERS, unreadable);
        }
        if originals.is_empty() {
            return out.extend_from_slice(frame);
        }
        // A message may bring originals of its own: a parked one that of its old routing key.
        let originals = originals.or(header.take_originals());
        header.add_originals(&originals);
        put_frame(frame, &header.write(), out);
    }
}

/// A close whose text is not UTF-8, with a stand-in for it: 3.10 cuts long texts in the middle of a
/// character.
fn with_readable_text(payload: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader(payload);
    let (method, code): ([u8; 4], [u8; 2]) = (reader.array()?, reader.array()?);
    if method != CONNECTION_CLOSE && method != CLOSE {
        return None;
    }
    let text = stand_in(reader.short()?)?;
    let mut out = [&method[..], &code].concat();
    put_short(text.as_bytes(), &mut out);
    out.extend_from_slice(reader.0);
    Some(out)
}

/// A `connection.tune` with [`MAX_FRAME`], if the broker proposes larger frames or no limit.
fn with_bounded_frames(payload: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader(payload);
    let (method, channel_max): ([u8; 4], [u8; 2]) = (reader.array()?, reader.array()?);
    let frame_max = u32::from_be_bytes(reader.array()?);
    if method != CONNECTION_TUNE || (1..=MAX_FRAME).contains(&frame_max) {
        return None;
    }
    Some([&method[..], &channel_max, &MAX_FRAME.to_be_bytes(), reader.0].concat())
}
