//! Parked messages: looked at, replayed, discarded, edited, exported and imported.

mod looking;
mod moving;
mod permissions;
mod replaying;
mod stopping;

use rehop::{Failure, Message};
use rehop_operator::parked::{Parked, Place, RampSettings, ReplayRequest};
use rehop_testing::Received;

use crate::support::{Fixture, SOON};

impl Fixture {
    pub(crate) fn operator(&self) -> Parked {
        Parked::open(&self.settings, Place::queue(self.queue.clone())).unwrap()
    }

    /// Parks messages with these bodies, in this order, by a handler that fails with each body's
    /// text.
    pub(crate) async fn park(&self, bodies: impl IntoIterator<Item = String>) {
        let mut fixture = Self::at("unused", self.settings.broker.url.expose()).await;
        fixture.settings = self.settings.clone();
        fixture.queue.clone_from(&self.queue);
        // One at a time: a wider window is several subscriptions, between which nothing keeps the
        // order.
        fixture.consume().concurrency = Some(1);
        fixture.consume().prefetch = Some(1);
        let failing = fixture
            .serve(|message: Message<bytes::Bytes>| async move {
                let text = String::from_utf8_lossy(&message.body).into_owned();
                Err(Failure::permanent(format!("cannot charge {text}")).with_class("charge"))
            })
            .await;
        let mut count = 0;
        for body in bodies {
            self.publish(&body).await;
            count += 1;
        }
        self.has_depth(&self.parked(), count).await;
        failing.stop().await;
    }

    pub(crate) async fn parked_bodies(&self) -> Vec<String> {
        let received = self.client.get_all(&self.parked()).await.unwrap();
        received.iter().map(Received::text).collect()
    }
}

pub(super) fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("order {number}")).collect()
}

/// A canary of so many, then everything.
pub(crate) fn ramp(batches: &[u32]) -> RampSettings {
    let mut ramp = RampSettings::default();
    ramp.batches = batches.to_vec();
    ramp.verdict_within = SOON;
    ramp
}

pub(crate) fn request(ramp: RampSettings) -> ReplayRequest {
    let mut request = ReplayRequest::default();
    request.ramp = ramp;
    request.follow = SOON;
    request
}

pub(crate) fn never() -> std::future::Pending<()> {
    std::future::pending()
}
