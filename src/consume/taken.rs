//! A delivery that this process has taken.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::broker::acks::Settlement;
use crate::consume::context::{InFlight, QueueContext};
use crate::consume::original::hand_back_settlement;
use crate::consume::settling_channel::{CLOSE_DELAY, SettlingChannel};
use crate::message::Delivery;
use crate::telemetry::chain::Chain;
use crate::timestamp::Timestamp;

/// A delivery that this process has taken and not settled.
pub(crate) struct Taken {
    pub(crate) context: Arc<QueueContext>,
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) received: Timestamp,
    /// The channel that brought it. Weak, because lapin closes a channel when its last handle is
    /// dropped, and a handler that outlives its session must not keep it open.
    pub(crate) channel: Weak<SettlingChannel>,
    /// Cancelled when the session ends, or its channel is gone. No copy may be sent any more. What
    /// was settled before may still be written.
    pub(crate) session_ended: CancellationToken,
    pub(crate) arrived: Instant,
    /// It must be settled within this time of its arrival. Soon after, the broker takes it back, if
    /// the ack timeout is what was known on arrival.
    pub(crate) settle_limit: Duration,
    /// It is settled at once: the next crash may park the message.
    pub(crate) is_urgent: bool,
    /// Kept for as long as the delivery is in flight.
    pub(crate) _in_flight: InFlight,
    /// Its chain after an earlier attempt, if this process has held it since then.
    pub(crate) chain: Option<Box<Chain>>,
    /// How often it came back without an answer, if it may have killed its process.
    pub(crate) unanswered: Option<u32>,
}

impl Taken {
    /// True means that the settlement was collected; the broker may never read it. False: the
    /// channel is gone.
    pub(crate) fn settle(&self, how: Settlement) -> bool {
        let tag = self.delivery.delivery_tag;
        self.channel.upgrade().is_some_and(|channel| channel.settle(tag, how, self.is_urgent))
    }

    /// Hands the delivery back. False if its channel is gone: then the broker has it again anyway.
    pub(crate) fn hand_back(&self) -> bool {
        self.settle(self.hand_back_by())
    }

    pub(crate) fn hand_back_by(&self) -> Settlement {
        let policy = &self.context.config.policy;
        let redeliveries = self.delivery.ledger.redeliveries;
        hand_back_settlement(policy.strategy.kind(), redeliveries, policy.delivery_limit)
    }

    /// Waits until the settlement is final: nothing that closes the channel brings the message back
    /// any more. False if the channel was closed before.
    pub(crate) async fn settlement_is_final(&self) -> bool {
        let Some(channel) = self.channel.upgrade() else { return false };
        let answered = channel.round_trip();
        drop(channel);
        let is_answered = answered.await.is_ok();
        tokio::time::sleep(CLOSE_DELAY).await;
        is_answered
    }

    /// Whether the channel is gone, so that the broker has the message again, or will have it soon.
    pub(crate) fn is_lost(&self) -> bool {
        self.session_ended.is_cancelled()
            || self.channel.upgrade().is_none_or(|channel| !channel.is_open())
    }
}
