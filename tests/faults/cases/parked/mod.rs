//! Operators move parked messages while processes are killed, queues are full or deleted, and the
//! broker restarts; and they get through large messages, and many.

pub(crate) mod amounts;
pub(crate) mod between;
pub(crate) mod edits;
pub(crate) mod kills;
pub(crate) mod trouble;

/// How many messages are parked.
const MESSAGES: usize = 300;
/// How many copies an operator sends before the first of them is confirmed: so many may be
/// duplicates after a kill.
const IN_FLIGHT: usize = 100;
