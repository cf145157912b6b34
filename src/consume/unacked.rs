//! A delivery that this process holds.

use std::sync::Arc;

use tokio::time::Instant;

use crate::consume::context::{InFlight, QueueContext};
use crate::consume::settler::Settler;
use crate::message::Delivery;
use crate::telemetry::chain::Chain;
use crate::timestamp::Timestamp;

/// A delivery that this process holds and has not settled, as the inbox keeps it until a handler is free.
pub(crate) struct Unacked {
    pub(crate) context: Arc<QueueContext>,
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) received: Timestamp,
    pub(crate) settler: Settler,
    pub(crate) in_flight: InFlight,
    /// Its chain after an earlier attempt, if this process has held it since then.
    pub(crate) chain: Option<Box<Chain>>,
    /// How often it came back without an answer, if it may have killed its process.
    pub(crate) unanswered: Option<u32>,
}

/// A delivery that stays in this process.
pub(crate) struct Held {
    pub(crate) unacked: Unacked,
    /// When its next attempt may begin.
    pub(crate) due: Instant,
}
