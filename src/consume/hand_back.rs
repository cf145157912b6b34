//! How a delivery is handed back: without a count, where the broker and the strategy allow that.

use crate::consume::context::QueueContext;
use crate::consume::settler::Settler;
use crate::consume::unacked::Unacked;
use crate::message::Delivery;
use crate::wait::WaitStrategy;

/// How a delivery goes back to its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandBack {
    /// 4.3 does not count this towards the delivery limit; 3.10 and 4.0 do.
    Nack,
    /// Counted.
    Reject,
}

/// With delayed retries a nack makes the message wait, and spends one of its waits. So it is rejected, and comes again at once, unless
/// that would exceed the delivery limit and park a message that nobody has tried to handle.
fn manner(strategy: WaitStrategy, redeliveries: Option<u32>, delivery_limit: u32) -> HandBack {
    match strategy {
        WaitStrategy::Native if redeliveries.unwrap_or(0) < delivery_limit => HandBack::Reject,
        WaitStrategy::Tiers
        | WaitStrategy::Ladder
        | WaitStrategy::DelayedExchange
        | WaitStrategy::Native
        | WaitStrategy::InProcess => HandBack::Nack,
    }
}

/// Hands a delivery back. False if its channel is gone, and the broker has it again anyway.
pub(crate) fn hand_back(context: &QueueContext, delivery: &Delivery, settler: &Settler) -> bool {
    let policy = &context.config.policy;
    match manner(policy.strategy.kind(), delivery.ledger.redeliveries, policy.delivery_limit) {
        HandBack::Nack => settler.nack(),
        HandBack::Reject => settler.requeue(),
    }
}

impl Unacked {
    /// Hands it back. False if its channel is gone, and the broker has it again anyway.
    pub(crate) fn hand_back(&self) -> bool {
        hand_back(&self.context, &self.delivery, &self.settler)
    }
}

#[cfg(test)]
mod tests;
