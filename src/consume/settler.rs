//! Acks, rejects and nacks. No other file does.

use std::sync::Arc;

use futures_util::FutureExt;
use lapin::Acker;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicRejectOptions};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Settles one delivery, on the channel that brought it.
pub(crate) struct Settler {
    pub(crate) acker: Acker,
    /// Cancelled when that channel is gone. Nothing can be settled any more, and the broker delivers the message again.
    pub(crate) lost: CancellationToken,
    /// Soon after this the broker takes the delivery back. From 4.3 on it cancels only the subscription, and the channel stays
    /// open.
    pub(crate) until: Instant,
    /// Kept until the delivery is settled, if its session has to know.
    pub(crate) _unsettled: Option<Arc<()>>,
}

impl Settler {
    /// Returns when nothing can be settled any more.
    pub(crate) async fn unsettleable(&self) {
        tokio::select! {
            () = self.lost.cancelled() => {}
            () = tokio::time::sleep_until(self.until) => {}
        }
    }

    pub(crate) fn ack(&self) -> bool {
        queued(self.acker.ack(BasicAckOptions::default()))
    }

    /// Back to the head of the queue, and counted. With reject, because since 4.3 a nack does not count towards the delivery limit.
    pub(crate) fn requeue(&self) -> bool {
        queued(self.acker.reject(BasicRejectOptions { requeue: true }))
    }

    /// To wherever the queue dead-letters.
    pub(crate) fn dead_letter(&self) -> bool {
        queued(self.acker.reject(BasicRejectOptions { requeue: false }))
    }

    /// Back to the queue. 4.3 does not count this towards the delivery limit, and delays it if the queue has delayed retries; 3.10
    /// and 4.0 count every return.
    pub(crate) fn nack(&self) -> bool {
        queued(self.acker.nack(BasicNackOptions { requeue: true, multiple: false }))
    }
}

/// Polls once, which queues the frame. Waiting until it is written would gain nothing and cut the throughput to a third (lapin
/// 4.12). False if the channel was gone and nothing was queued.
fn queued(frame: impl Future<Output = lapin::Result<bool>>) -> bool {
    frame.now_or_never().is_none_or(|result| result.unwrap_or(false))
}
