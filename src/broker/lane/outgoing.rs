//! A copy on its way to the broker.

use std::fmt;
use std::sync::Mutex;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::ShortString;

use crate::lock::lock;

/// A copy of a message, ready to be published.
///
/// lapin takes the properties by value, and a copy may have to be sent again. That is rare, and a
/// clone of the headers costs as much as writing them: so the first send gets what was written, and
/// any further one has it written again.
pub struct Outgoing {
    pub exchange: ShortString,
    pub routing_key: ShortString,
    pub body: Bytes,
    /// Whether the broker returns it if no queue takes it at once. Not for an exchange that routes
    /// later: the broker would return each message.
    pub mandatory: bool,
    written: Mutex<Option<BasicProperties>>,
    write: Box<dyn Fn() -> BasicProperties + Send + Sync>,
}

impl Outgoing {
    /// `write` gives the same properties each time.
    pub fn new(
        exchange: ShortString,
        routing_key: ShortString,
        body: Bytes,
        written: BasicProperties,
        write: impl Fn() -> BasicProperties + Send + Sync + 'static,
    ) -> Self {
        let write = Box::new(write);
        Self {
            exchange,
            routing_key,
            body,
            mandatory: true,
            written: Mutex::new(Some(written)),
            write,
        }
    }

    pub(crate) fn properties(&self) -> BasicProperties {
        let written = lock(&self.written).take();
        written.unwrap_or_else(|| (self.write)())
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("exchange", &self.exchange).finish_non_exhaustive()
    }
}
