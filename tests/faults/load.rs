//! Publishes messages of every kind that ends by itself, until it is stopped.

use std::time::Duration;

use rehop_testing::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::lab::Lab;
use crate::service::Does;

pub(crate) struct Load {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Load {
    /// Publishes to the lab's queues in turn. Messages that the broker has not confirmed may be
    /// nowhere.
    pub(crate) fn start(lab: Lab, per_second: u32) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            while !stopped.is_cancelled() {
                publish(&lab, per_second, &stopped).await;
            }
        });
        Self { stop, task }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

/// Until it is stopped, or the connection breaks. What has been sent is confirmed before it stops,
/// so that the case knows of it.
async fn publish(lab: &Lab, per_second: u32, stopped: &CancellationToken) {
    let Ok(client) = Client::connect(&lab.admin_url).await else {
        tokio::time::sleep(Duration::from_millis(200)).await;
        return;
    };
    let mut beat = tokio::time::interval(Duration::from_secs(20) / per_second.max(1));
    for turn in 0.. {
        tokio::select! {
            _ = beat.tick() => {}
            () = stopped.cancelled() => return,
        }
        let messages = lab.offer(turn % lab.config.queues.len(), KINDS);
        let (ids, messages): (Vec<u64>, Vec<_>) = messages.into_iter().unzip();
        if client.publish_many(messages).await.is_err() {
            return;
        }
        lab.confirmed(&ids);
    }
}

/// Most succeed.
const KINDS: [Does; 20] = [
    Does::Succeed,
    Does::Slow(5),
    Does::Fail(1),
    Does::Succeed,
    Does::Slow(5),
    Does::Succeed,
    Does::Fail(2),
    Does::Succeed,
    Does::Slow(5),
    Does::Expired,
    Does::Fail(1),
    Does::Permanent,
    Does::Slow(5),
    Does::Succeed,
    Does::Expiring,
    Does::Undecodable,
    Does::Slow(5),
    Does::Discard,
    Does::Fail(u32::MAX),
    Does::Succeed,
];
