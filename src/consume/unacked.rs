//! A delivery that this process has not settled, and how it is handed back: without a count, where
//! the broker and the strategy allow that.

use std::sync::Arc;

use crate::broker::acks::Settlement;
use crate::consume::context::{InFlight, QueueContext};
use crate::consume::settler::Settler;
use crate::message::Delivery;
use crate::telemetry::chain::Chain;
use crate::timestamp::Timestamp;
use crate::wait::WaitStrategy;

/// A delivery that this process has not settled, as the inbox keeps it until a handler is free.
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

/// With delayed retries a nack makes the message wait, and spends one of its waits. So it is
/// rejected, and comes again at once, unless that would exceed the delivery limit and park a
/// message that nobody has tried to handle.
fn manner(strategy: WaitStrategy, redeliveries: Option<u32>, delivery_limit: u32) -> Settlement {
    match strategy {
        WaitStrategy::Native if redeliveries.unwrap_or(0) < delivery_limit => Settlement::Requeue,
        WaitStrategy::Tiers
        | WaitStrategy::Ladder
        | WaitStrategy::DelayedExchange
        | WaitStrategy::Native
        | WaitStrategy::InProcess => Settlement::Nack,
    }
}

/// Hands a delivery back. False if its channel is gone, and the broker has it again anyway.
pub(crate) fn hand_back(context: &QueueContext, delivery: &Delivery, settler: &Settler) -> bool {
    let policy = &context.config.policy;
    settler.settle(manner(
        policy.strategy.kind(),
        delivery.ledger.redeliveries,
        policy.delivery_limit,
    ))
}

impl Unacked {
    /// Hands it back. False if its channel is gone, and the broker has it again anyway.
    pub(crate) fn hand_back(&self) -> bool {
        hand_back(&self.context, &self.delivery, &self.settler)
    }
}

#[cfg(test)]
mod tests;
