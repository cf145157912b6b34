//! Why the broker has closed channels. lapin tells that only to subscriptions, and to requests that
//! are under way (4.12).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use lapin::protocol::AMQPError;
use lapin::types::ShortString;
use lapin::{Error, ErrorKind};

use crate::lock::lock;
use crate::wire::encoding::Reader;

const OPEN_OK: [u8; 4] = [0, 20, 0, 11];
pub(super) const CLOSE: [u8; 4] = [0, 20, 0, 40];

/// The errors with which the broker has closed channels of one connection, by their numbers. Each
/// is kept until another channel has the number.
#[derive(Clone, Default)]
pub(in crate::broker) struct ClosedChannels(Arc<Mutex<HashMap<u16, Error>>>);

impl ClosedChannels {
    /// Why the broker has closed this channel, if it has.
    pub(in crate::broker) fn error(&self, channel: u16) -> Option<Error> {
        lock(&self.0).get(&channel).cloned()
    }

    /// Reads a method that the broker has sent, as lapin will.
    pub(super) fn note(&self, channel: u16, method: &[u8]) {
        match method.first_chunk() {
            Some(&OPEN_OK) => drop(lock(&self.0).remove(&channel)),
            Some(&CLOSE) => {
                if let Some(error) = error_of(&method[CLOSE.len()..]) {
                    lock(&self.0).insert(channel, error);
                }
            }
            _ => {}
        }
    }
}

fn error_of(close: &[u8]) -> Option<Error> {
    let mut reader = Reader(close);
    let (code, text) = (u16::from_be_bytes(reader.array()?), reader.short()?);
    let text = ShortString::try_new(std::str::from_utf8(text).ok()?).ok()?;
    Some(ErrorKind::ProtocolError(AMQPError::from_id(code, text)?).into())
}
