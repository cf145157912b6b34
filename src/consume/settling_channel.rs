//! Settles what a service consumes. No other file acks, rejects or nacks it.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::broker::acks::{SettledTags, Settlement};
use crate::broker::client::{Answer, Channel};
use crate::clock;
use crate::consume::arrivals::Arrivals;
use crate::lock::lock;

/// How long a channel stays open after the last ack: quorum queues lose the acks of a channel, or
/// of a connection, that closes right after them (4.3; 50 ms were enough).
pub(crate) const CLOSE_DELAY: Duration = Duration::from_millis(200);

/// As soon as so many settlements are collected, they are sent.
const MOST_COLLECTED: usize = 64;

/// A channel, and which of its deliveries are settled. Settlements are collected briefly, so that
/// one ack can stand for several, and lapin writes all of them at once.
///
/// Frames are sent on the channel itself, which keeps their order: lapin runs each call of its
/// `Acker` in a task of its own (4.12). An ack for several deliveries that overtook the reject of
/// one of them would lose that message.
pub(crate) struct SettlingChannel {
    channel: Arc<dyn Channel>,
    deliveries: Mutex<Deliveries>,
}

#[derive(Default)]
struct Deliveries {
    settled: SettledTags,
    arrivals: Arrivals,
    /// To be settled as soon as the tasks that are ready to run have run.
    collected: Vec<(u64, Settlement)>,
}

impl SettlingChannel {
    pub(crate) fn new(channel: Arc<dyn Channel>) -> Arc<Self> {
        Arc::new(Self { channel, deliveries: Mutex::default() })
    }

    /// The delivery with this tag has arrived.
    pub(crate) fn arrived(&self, tag: u64, now: Instant) {
        let mut deliveries = lock(&self.deliveries);
        let first_unsettled = deliveries.settled.first_unsettled();
        deliveries.arrivals.arrived(tag, now.into_std(), first_unsettled);
    }

    /// For how long a delivery has been unsettled at most, to the second.
    pub(crate) fn held_for(&self) -> Duration {
        let deliveries = lock(&self.deliveries);
        let oldest = deliveries.arrivals.oldest(deliveries.settled.first_unsettled());
        oldest.map_or(Duration::ZERO, clock::elapsed)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.channel.is_open()
    }

    /// Settles the delivery with this tag. `is_urgent`: sent at once instead of being collected.
    /// False if the channel is gone; true means no more than that the settlement was collected.
    pub(crate) fn settle(self: Arc<Self>, tag: u64, how: Settlement, is_urgent: bool) -> bool {
        if !self.channel.is_open() {
            return false;
        }
        let mut deliveries = lock(&self.deliveries);
        deliveries.collected.push((tag, how));
        let count = deliveries.collected.len();
        drop(deliveries);
        if count == MOST_COLLECTED || is_urgent {
            self.send();
        } else if count == 1 {
            let channel = Arc::downgrade(&self);
            tokio::spawn(async move {
                after_ready_tasks().await;
                if let Some(channel) = channel.upgrade() {
                    channel.send();
                }
            });
        }
        true
    }

    /// Sends what was collected, and ends when the broker has read that.
    pub(crate) fn round_trip(&self) -> Answer<'static, ()> {
        self.send();
        self.channel.flush()
    }

    /// Sends what was collected. A session that closes calls this, because the task that would do
    /// it may not have run.
    ///
    /// Under the lock, so that no ack for several deliveries overtakes a reject.
    pub(crate) fn send(&self) {
        let mut deliveries = lock(&self.deliveries);
        let collected = std::mem::take(&mut deliveries.collected);
        deliveries.settled.settle_all(collected, |frame| self.channel.send_settlement(frame));
    }
}

/// A session may be lost although its channel still works, as when the broker answers too late.
impl Drop for SettlingChannel {
    fn drop(&mut self) {
        self.send();
    }
}

/// Lets the tasks run that are ready now. Unlike after tokio's `yield_now`, another thread can go
/// on with this task: a handler may block the thread.
async fn after_ready_tasks() {
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        Poll::Ready(())
    })
    .await;
    futures_util::pending!();
}
