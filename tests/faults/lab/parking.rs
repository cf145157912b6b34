//! Parked messages, and the operators who move them.

use std::ops::Range;

use rehop::topology::Role;
use rehop_operator::parked::Parked;
use rehop_testing::{Client, Publish, eventually};

use super::Lab;
use crate::ground::SOON;
use crate::operator::{self, Action};
use crate::service::{Config, Does, Service};

impl Lab {
    /// Parks messages as a service would, and returns their numbers. Their fates are those of
    /// messages that are sent back.
    pub(crate) async fn park(&self, count: usize, does: Does) -> Range<u64> {
        self.park_with(count, does, |message| message).await
    }

    /// As [`park`](Self::park), after `change` has been applied to each message.
    pub(crate) async fn park_with(
        &self,
        count: usize,
        does: Does,
        change: impl Fn(Publish) -> Publish,
    ) -> Range<u64> {
        let park = self.exchange("park");
        let client = self.client().await;
        let before = client.depth(&self.parked()).await.unwrap();
        let first = self
            .send_with(count, does, |message| {
                change(
                    Publish { exchange: park.clone(), ..message }
                        .header("rehop-reason", "permanent"),
                )
            })
            .await;
        // What a killed operator held may come back meanwhile.
        let parked = async || match client.depth(&self.parked()).await {
            Ok(depth) if depth >= before + count as u32 => Ok(true),
            Ok(depth) => Err(format!("{depth} are")),
            Err(error) => Err(error.to_string()),
        };
        eventually(SOON, &format!("{count} messages more than {before} are parked"), parked)
            .await
            .unwrap();
        first..first + count as u64
    }

    pub(crate) fn discarded(&self) -> String {
        self.exchange("discarded")
    }

    /// The operator's library, in this process.
    pub(crate) fn operator(&self) -> Parked {
        self.operators_queues();
        operator::open(&self.config).unwrap()
    }

    /// The operator as a process.
    pub(crate) fn operator_with(&self, config: &Config, action: &Action) -> Service {
        self.operators_queues();
        operator::start(config, action, &self.next_log())
    }

    /// Runs an operator to its end, which has to be a success.
    pub(crate) async fn operator_ends(&self, action: &Action) {
        let mut operator = self.operator_with(&self.config, action);
        let succeeded = operator.ended(SOON).await.unwrap();
        assert!(succeeded, "the operator succeeds: {}", operator.log());
    }

    /// The same. For a moment, the broker may still take an operator that was killed for one at
    /// work.
    pub(crate) async fn operator_ends_or_is_busy(&self, action: &Action) {
        let mut operator = self.operator_with(&self.config, action);
        let has_succeeded = operator.ended(SOON).await.unwrap();
        let is_busy = || operator.log().contains("somebody else is working");
        assert!(has_succeeded || is_busy(), "the operator succeeds: {}", operator.log());
    }

    fn operators_queues(&self) {
        self.book().queues.insert(self.discarded(), Role::Discarded);
    }

    /// How many messages are ready in the parked queue and in another one.
    pub(crate) async fn ready(&self, client: &Client, target: &str) -> (u32, u32) {
        (client.depth(&self.parked()).await.unwrap(), client.depth(target).await.unwrap_or(0))
    }
}
