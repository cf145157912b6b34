//! Parked messages: looked at, replayed, discarded, edited, exported and imported.

mod looking;
mod moving;
mod permissions;
mod replaying;
mod stopping;

use lapin::options::{BasicGetOptions, BasicRejectOptions};
use lapin::{Connection, ConnectionProperties};
use rehop::{Failure, Message};
use rehop_operator::parked::{Parked, Place, RampSettings, ReplayRequest};
use rehop_testing::{Received, eventually};

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

    /// Rejects what is in the work queue, as the crashes of a service do, until the broker has parked
    /// it, and the parked queue has so many messages.
    async fn crash_until_parked(&self, depth: u32) {
        let url = self.settings.broker.url.expose();
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let crashes = async || {
            let got =
                channel.basic_get(self.queue.as_str().into(), BasicGetOptions::default()).await;
            if let Some(got) = got.map_err(|error| error.to_string())? {
                got.delivery.reject(BasicRejectOptions { requeue: true }).await.unwrap();
            }
            let parked = self.client.depth(&self.parked()).await;
            parked.map(|parked| parked == depth).map_err(|error| error.to_string())
        };
        eventually(SOON, "the broker parks it", crashes).await.unwrap();
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
