//! A delivery that this process has taken.

use std::sync::Arc;

use crate::consume::context::{InFlight, QueueContext};
use crate::consume::settler::Settler;
use crate::message::Delivery;
use crate::telemetry::chain::Chain;
use crate::timestamp::Timestamp;

/// A delivery that this process has taken and not settled.
pub(crate) struct Taken {
    pub(crate) context: Arc<QueueContext>,
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) received: Timestamp,
    pub(crate) settler: Settler,
    /// Kept for as long as the delivery is in flight.
    pub(crate) _in_flight: InFlight,
    /// Its chain after an earlier attempt, if this process has held it since then.
    pub(crate) chain: Option<Box<Chain>>,
    /// How often it came back without an answer, if it may have killed its process.
    pub(crate) unanswered: Option<u32>,
}
