//! The priority of a message, which must not decide how long it waits.
//!
//! A wait queue ends a wait at its head alone. 4.0 keeps messages of a priority above 4 apart from
//! the others, and looks at the head of one of the two lines: messages of the other wait until
//! those before them do. So all copies in a wait queue have a priority of one line. Dead-lettering
//! brings them back with it: only the handler, and the copies that follow, see the original again.

use lapin::BasicProperties;
use lapin::types::AMQPValue;

use super::Contract;
use super::names::PRIORITY;
use crate::message::{Address, HeaderValue, header};

/// The highest priority of the line in which messages without a priority are (4.0).
const HIGHEST_ORDINARY: u8 = 4;

/// The priority that a copy of this message has in a wait queue, and the header with the original
/// one, if they differ.
pub(super) fn while_waiting(message: &BasicProperties) -> Option<(u8, AMQPValue)> {
    let original = original(message).filter(|priority| *priority > HIGHEST_ORDINARY)?;
    Some((HIGHEST_ORDINARY, AMQPValue::LongLongInt(original.into())))
}

/// The priority that a message was published with.
pub(super) fn original(message: &BasicProperties) -> Option<u8> {
    let kept = header(message, PRIORITY).map(HeaderValue::of);
    let kept = kept.and_then(|kept| match kept {
        HeaderValue::Int(priority) => u8::try_from(priority).ok(),
        _ => None,
    });
    kept.or(*message.priority())
}

impl Contract {
    /// Gives a copy that is back from its wait the priority of its original.
    pub(crate) fn restore_priority(&self, address: &Address, message: &mut BasicProperties) {
        if self.is_own_copy(address)
            && header(message, PRIORITY).is_some()
            && let Some(priority) = original(message)
        {
            *message = std::mem::take(message).with_priority(priority);
        }
    }
}
