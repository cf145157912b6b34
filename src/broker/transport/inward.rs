//! What the broker sends: short strings that lapin cannot read get stand-ins.

use std::collections::HashMap;

use super::address::Addressed;
use super::content::Content;
use super::frames::{HEADER, METHOD, Rewrite, payload, put_frame};
use super::kept::Kept;
use super::stand_in::stand_in;

#[derive(Default)]
pub(super) struct Inward {
    /// For which bytes the exchange and the routing key of a channel's message stand, whose content header comes next.
    addresses: HashMap<u16, Kept>,
}

impl Rewrite for Inward {
    fn rewrite(&mut self, channel: u16, frame: &[u8], out: &mut Vec<u8>) {
        let rewritten = match frame.first() {
            Some(&METHOD) => self.method(channel, payload(frame)),
            Some(&HEADER) => self.header(channel, payload(frame)),
            _ => None,
        };
        match rewritten {
            Some(payload) => put_frame(frame, &payload, out),
            None => out.extend_from_slice(frame),
        }
    }
}

impl Inward {
    fn method(&mut self, channel: u16, payload: &[u8]) -> Option<Vec<u8>> {
        let addressed = Addressed::of(payload)?;
        self.addresses.remove(&channel);
        let mut kept = Kept::default();
        let exchange = keep(&mut kept, addressed.exchange);
        let routing_key = keep(&mut kept, addressed.routing_key);
        if kept.is_empty() {
            return None;
        }
        self.addresses.insert(channel, kept);
        Some(addressed.write(
            exchange.as_deref().unwrap_or(addressed.exchange),
            routing_key.as_deref().unwrap_or(addressed.routing_key),
        ))
    }

    fn header(&mut self, channel: u16, payload: &[u8]) -> Option<Vec<u8>> {
        let mut kept = self.addresses.remove(&channel).unwrap_or_default();
        let mut content = Content::of(payload)?;
        content.replace(&mut |text| keep(&mut kept, text));
        kept.values.extend(content.show_as_bytes());
        if kept.is_empty() {
            return None;
        }
        // A parked message already says for which bytes its old routing key stands.
        let before = content.take_kept();
        kept.texts.extend(before.texts);
        kept.values.extend(before.values);
        content.keep(&kept);
        Some(content.write())
    }
}

/// The stand-in of a text that needs one.
fn keep(kept: &mut Kept, text: &[u8]) -> Option<Vec<u8>> {
    let stand_in = stand_in(text)?.into_bytes();
    kept.texts.insert(stand_in.clone(), text.to_vec());
    Some(stand_in)
}
