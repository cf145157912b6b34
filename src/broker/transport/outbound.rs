//! Outbound frames: the originals replace their stand-ins.

use std::collections::HashMap;

use super::addressed_method::AddressedMethod;
use super::content_header::ContentHeader;
use super::frames::{Rewrite, payload, put_frame};
use super::originals::{HEADERS, Originals};
use crate::wire::names::BYTES;
use crate::wire::stand_in::may_be_stand_in;

#[derive(Default)]
pub(super) struct Outbound {
    /// By channel: a publish whose exchange or routing key may be a stand-in, held until its
    /// content header shows whether it is.
    held: HashMap<u16, Vec<u8>>,
}

impl Rewrite for Outbound {
    fn method(&mut self, channel: u16, frame: &[u8], out: &mut Vec<u8>) {
        out.extend(self.held.remove(&channel).into_iter().flatten());
        if may_have_stand_in(payload(frame)) {
            self.held.insert(channel, frame.to_vec());
        } else {
            out.extend_from_slice(frame);
        }
    }

    fn content_header(&mut self, channel: u16, frame: &[u8], out: &mut Vec<u8>) {
        let publish = self.held.remove(&channel);
        let header =
            if may_have_originals(frame) { ContentHeader::parse(payload(frame)) } else { None };
        let Some(mut header) = header else {
            out.extend(publish.into_iter().flatten());
            return out.extend_from_slice(frame);
        };
        let mut originals = header.take_originals();
        if let Some(publish) = publish {
            put_publish(&publish, &mut originals, out);
        }
        header.replace(|property, text| originals.restore(property, text));
        if let Some(unreadable) = originals.remove(HEADERS) {
            header.add_unreadable(&unreadable);
        }
        // An original that stands nowhere in this message may be needed later: a parked copy's old
        // routing key, at its replay.
        header.add_originals(&originals);
        put_frame(frame, &header.write(), out);
    }
}

fn put_publish(publish: &[u8], originals: &mut Originals, out: &mut Vec<u8>) {
    match AddressedMethod::parse(payload(publish)) {
        Some(method) => {
            put_frame(publish, &method.replaced(|place, text| originals.restore(place, text)), out)
        }
        None => out.extend_from_slice(publish),
    }
}

/// Whether a method is a publish whose exchange or routing key may be a stand-in.
fn may_have_stand_in(payload: &[u8]) -> bool {
    AddressedMethod::parse(payload)
        .is_some_and(|it| may_be_stand_in(it.exchange) || may_be_stand_in(it.routing_key))
}

/// Whether a content header may have the header [`BYTES`].
fn may_have_originals(frame: &[u8]) -> bool {
    frame.windows(BYTES.len()).any(|window| window == BYTES.as_bytes())
}
