//! Acks, rejects and nacks of consumed messages. No other file does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::FutureExt;
use lapin::Channel;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicRejectOptions};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::broker::acks::{Ack, SettledTags};

/// Settles one delivery, on the channel that brought it.
pub(crate) struct Settler {
    /// The session owns it: a channel is closed when nothing refers to it any more, and a handler may outlive its session.
    pub(crate) channel: Weak<SettlingChannel>,
    pub(crate) tag: u64,
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
        self.channel.upgrade().is_some_and(|channel| channel.ack(self.tag))
    }

    /// Back to the head of the queue, and counted. With reject, because since 4.3 a nack does not count towards the delivery limit.
    pub(crate) fn requeue(&self) -> bool {
        self.give_back(|channel, tag| queued(channel.basic_reject(tag, BasicRejectOptions { requeue: true })))
    }

    /// To wherever the queue dead-letters.
    pub(crate) fn dead_letter(&self) -> bool {
        self.give_back(|channel, tag| queued(channel.basic_reject(tag, BasicRejectOptions { requeue: false })))
    }

    /// Back to the queue. 4.3 does not count this towards the delivery limit, and delays it if the queue has delayed retries; 3.10
    /// and 4.0 count every return.
    pub(crate) fn nack(&self) -> bool {
        let options = BasicNackOptions { requeue: true, multiple: false };
        self.give_back(|channel, tag| queued(channel.basic_nack(tag, options)))
    }

    fn give_back(&self, send: impl FnOnce(&Channel, u64) -> bool) -> bool {
        self.channel.upgrade().is_some_and(|channel| channel.give_back(self.tag, send))
    }
}

/// A channel, and what is settled on it. Acks are collected for a moment, so that one may stand for several deliveries.
///
/// Frames are sent on the channel itself, which keeps their order: lapin runs each call of its `Acker` in a task of its own (4.12). An
/// ack for several deliveries that overtook the reject of one of them would lose that message.
pub(crate) struct SettlingChannel {
    channel: Channel,
    settling: Mutex<Settling>,
}

#[derive(Default)]
struct Settling {
    tags: SettledTags,
    /// To be acked as soon as the tasks that are ready to run have run.
    collected: Vec<u64>,
}

impl SettlingChannel {
    pub(crate) fn new(channel: Channel) -> Arc<Self> {
        Arc::new(Self { channel, settling: Mutex::default() })
    }

    /// False if the channel is gone.
    fn ack(self: Arc<Self>, tag: u64) -> bool {
        if !self.channel.status().connected() {
            return false;
        }
        let mut settling = self.lock();
        settling.collected.push(tag);
        let is_first = settling.collected.len() == 1;
        drop(settling);
        if is_first {
            let channel = Arc::downgrade(&self);
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                if let Some(channel) = channel.upgrade() {
                    channel.send_acks();
                }
            });
        }
        true
    }

    /// Sends the acks that were collected.
    pub(crate) fn send_acks(&self) {
        let mut settling = self.lock();
        let collected = std::mem::take(&mut settling.collected);
        for Ack { tag, multiple } in settling.tags.ack(collected) {
            queued(self.channel.basic_ack(tag, BasicAckOptions { multiple }));
        }
    }

    /// The frame is queued before a later ack may stand for this delivery.
    fn give_back(&self, tag: u64, send: impl FnOnce(&Channel, u64) -> bool) -> bool {
        let mut settling = self.lock();
        let is_queued = send(&self.channel, tag);
        if is_queued {
            settling.tags.settled(tag);
        }
        is_queued
    }

    fn lock(&self) -> MutexGuard<'_, Settling> {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Polls once, which queues the frame. Waiting until it is written would gain nothing and cut the throughput to a third (lapin
/// 4.12). False if the channel was gone and nothing was queued.
fn queued(frame: impl Future<Output = lapin::Result<()>>) -> bool {
    frame.now_or_never().is_none_or(|result| result.is_ok())
}
