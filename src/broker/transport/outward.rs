//! What lapin writes: bytes take the place of their stand-ins again.

use std::collections::{BTreeSet, HashMap};

use super::address::Addressed;
use super::content::Content;
use super::frames::{HEADER, METHOD, Rewrite, payload, put_frame};
use super::kept::Kept;
use super::stand_in::may_be_stand_in;
use crate::wire::names::BYTES;

#[derive(Default)]
pub(super) struct Outward {
    /// Publishes whose exchange or routing key may be a stand-in. The content header that follows on their channel tells.
    held: HashMap<u16, Vec<u8>>,
}

impl Rewrite for Outward {
    fn rewrite(&mut self, channel: u16, frame: &[u8], out: &mut Vec<u8>) {
        let publish = self.held.remove(&channel);
        if frame.first() == Some(&HEADER) && has_kept(frame) && self.header(publish.as_deref(), frame, out).is_some() {
            return;
        }
        if let Some(publish) = publish {
            out.extend_from_slice(&publish);
        }
        if frame.first() == Some(&METHOD) && is_held(payload(frame)) {
            self.held.insert(channel, frame.to_vec());
        } else {
            out.extend_from_slice(frame);
        }
    }
}

impl Outward {
    /// Writes a content header that has stand-ins, and the publish before it.
    fn header(&self, publish: Option<&[u8]>, frame: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut content = Content::of(payload(frame))?;
        let kept = content.take_kept();
        let mut used = BTreeSet::new();
        let mut bytes = |text: &[u8]| {
            let bytes = kept.texts.get(text)?;
            used.insert(text.to_vec());
            Some(bytes.clone())
        };
        if let Some(publish) = publish {
            let addressed = Addressed::of(payload(publish))?;
            let (exchange, routing_key) = (bytes(addressed.exchange), bytes(addressed.routing_key));
            let payload = addressed.write(
                exchange.as_deref().unwrap_or(addressed.exchange),
                routing_key.as_deref().unwrap_or(addressed.routing_key),
            );
            put_frame(publish, &payload, out);
        }
        let mut values = kept.values.clone();
        content.read_from_bytes(&mut values);
        content.replace(&mut bytes);
        // What stands in no text of this message may stand in another that is made of it: a parked copy has another routing key.
        let left = kept.texts.into_iter().filter(|(text, _)| !used.contains(text)).collect();
        content.keep(&Kept { texts: left, values });
        put_frame(frame, &content.write(), out);
        Some(())
    }
}

/// Whether a method is a publish whose exchange or routing key may be a stand-in.
fn is_held(payload: &[u8]) -> bool {
    Addressed::of(payload).is_some_and(|it| may_be_stand_in(it.exchange) || may_be_stand_in(it.routing_key))
}

/// Whether a content header may have the header [`BYTES`].
fn has_kept(frame: &[u8]) -> bool {
    frame.windows(BYTES.len()).any(|window| window == BYTES.as_bytes())
}
