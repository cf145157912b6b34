//! How much of a message fits into a frame.
//!
//! All properties of a message, with its headers, are in one frame. A larger one closes the
//! connection (3.10, 4.0 and 4.3). The broker does not hold itself to that limit when it adds
//! headers of its own, and then no client can receive the message.

use lapin::BasicProperties;

use super::values::properties_size;

/// A frame's type, channel, size and end, and before the properties the class, the weight and the
/// size of the body.
const FRAME_AROUND_PROPERTIES: usize = (1 + 2 + 4 + 1) + (2 + 2 + 8);

/// For the death headers of the wait queues, of which a ladder has several.
const RESERVED_FOR_WAITS: usize = 4096;

/// For the counts of a message that is looked at, and for the death headers of a policy that moves
/// it on.
const RESERVED_AT_REST: usize = 1024;

/// For `x-delivery-count` and `x-acquired-count`, and for the header table if there is none yet.
const RESERVED_FOR_COUNTS: usize = 64;

/// How many bytes the properties of a message may take, with its headers, on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    frame: usize,
    /// A small frame must not be reserved as a whole.
    most_reserved: usize,
}

impl Room {
    /// On a connection to a broker that allows what RabbitMQ allows unless it is configured
    /// otherwise (3.10, 4.0 and 4.3).
    pub(crate) const DEFAULT: Self = Self::of_frame(128 * 1024);

    /// For what is not sent in a frame.
    pub const UNLIMITED: Self = Self { frame: usize::MAX, most_reserved: 0 };

    /// On a connection that has negotiated this limit.
    pub const fn of_frame(frame_max: u32) -> Self {
        let frame = frame_max as usize;
        Self { frame: frame.saturating_sub(FRAME_AROUND_PROPERTIES), most_reserved: frame / 4 }
    }

    /// For a message that other queues dead-letter.
    pub(crate) fn to_wait(self) -> usize {
        self.without(RESERVED_FOR_WAITS)
    }

    /// For a message in a queue at rest.
    pub(super) fn at_rest(self) -> usize {
        self.without(RESERVED_AT_REST)
    }

    /// Whether the broker can deliver a message with these properties once more, with its counts.
    pub(crate) fn lets_return(self, properties: &BasicProperties) -> bool {
        properties_size(properties) <= self.without(RESERVED_FOR_COUNTS)
    }

    fn without(self, reserved: usize) -> usize {
        self.frame.saturating_sub(reserved.min(self.most_reserved))
    }
}

/// The headers of a copy leave no room for rehop's, so it cannot wait or be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its properties and headers would take {bytes} bytes, and a frame has room for {limit}")]
pub struct HeadersTooLarge {
    pub(super) bytes: usize,
    pub(super) limit: usize,
}

/// The properties of a copy, unless its headers do not fit into a frame.
pub(super) fn checked(
    copy: BasicProperties,
    room: Room,
) -> Result<BasicProperties, HeadersTooLarge> {
    let (bytes, limit) = (properties_size(&copy), room.to_wait());
    if bytes > limit { Err(HeadersTooLarge { bytes, limit }) } else { Ok(copy) }
}
