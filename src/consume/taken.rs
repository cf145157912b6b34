//! A delivery that this process has taken, and how it is handed back: without a count, where the
//! broker and the strategy allow that.

use std::sync::Arc;

use crate::broker::acks::Settlement;
use crate::consume::context::{InFlight, QueueContext};
use crate::consume::settler::Settler;
use crate::message::Delivery;
use crate::telemetry::chain::Chain;
use crate::timestamp::Timestamp;
use crate::wait::WaitStrategy;

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

/// With strategy `native` a nack makes the message wait, and spends one of its waits. So it is
/// rejected, and comes again at once, unless that would exceed the delivery limit and park a
/// message that nobody has tried to handle.
fn hand_back_settlement(
    strategy: WaitStrategy,
    redeliveries: Option<u32>,
    delivery_limit: u32,
) -> Settlement {
    match strategy {
        WaitStrategy::Native if redeliveries.unwrap_or(0) < delivery_limit => Settlement::Requeue,
        WaitStrategy::Tiers
        | WaitStrategy::Ladder
        | WaitStrategy::DelayedExchange
        | WaitStrategy::Native
        | WaitStrategy::InProcess => Settlement::Nack,
    }
}

impl Taken {
    /// Hands it back. Returns false if its channel is gone: then the broker has it again anyway.
    pub(crate) fn hand_back(&self) -> bool {
        self.settler.settle(self.hand_back_by())
    }

    /// How it is settled if it is handed back.
    pub(crate) fn hand_back_by(&self) -> Settlement {
        let policy = &self.context.config.policy;
        hand_back_settlement(
            policy.strategy.kind(),
            self.delivery.ledger.redeliveries,
            policy.delivery_limit,
        )
    }
}

#[cfg(test)]
mod tests;
