//! Parked and stray messages are kept however often they are fetched and returned, as in the
//! management UI.

use std::collections::BTreeSet;

use lapin::options::{BasicGetOptions, BasicNackOptions, BasicRejectOptions};
use lapin::{Channel, Connection, ConnectionProperties};
use rehop::Failure;
use rehop_testing::{Broker, Publish, Received, eventually};
use serde_json::json;

use crate::support::{Fixture, SOON, are_held_by_the_broker, fragile_broker};

/// Without a limit, RabbitMQ 4.x deletes a message at the 21st return.
const LOOKS: usize = 40;

/// How a fetched message is returned.
#[derive(Debug, Clone, Copy)]
enum Return {
    /// "Get messages" in the management UI does this.
    Nack,
    Reject,
    ClosedChannel,
}

/// Three parked messages and a stray one.
struct Resting {
    fixture: Fixture,
    connection: Connection,
}

impl Resting {
    async fn on(broker: &Broker, test: &str) -> Self {
        let fixture = Fixture::at(test, broker.amqp_url()).await;
        let run = fixture.serve_always(Err(Failure::permanent("no"))).await;
        for body in ["a", "b", "c"] {
            fixture.publish(body).await;
        }
        fixture.has_depth(&fixture.parked(), 3).await;
        run.stop().await;
        fixture.client.publish(Publish::to(fixture.stray(), "nowhere").body("d")).await.unwrap();
        let connection =
            Connection::connect(broker.amqp_url(), ConnectionProperties::default()).await.unwrap();
        Self { fixture, connection }
    }

    /// Fetches and returns the messages of both queues, in each way, again and again. All four must
    /// be there each time.
    async fn look_at_all(&self) {
        for way in [Return::Nack, Return::Reject, Return::ClosedChannel] {
            for look in 0..LOOKS {
                self.look(way).await;
                self.holds_all(&format!("after look {look} with {way:?}")).await;
            }
        }
    }

    /// Fetches and returns the messages of both queues, and says how many there were.
    async fn look(&self, way: Return) -> usize {
        let channel = self.connection.create_channel().await.unwrap();
        let mut tags = fetch(&channel, &self.fixture.parked()).await;
        tags.extend(fetch(&channel, &self.fixture.stray()).await);
        for &tag in &tags {
            match way {
                Return::Nack => {
                    let options = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
                    channel.basic_nack(tag, options).await.unwrap();
                }
                Return::Reject => {
                    channel.basic_reject(tag, BasicRejectOptions { requeue: true }).await.unwrap()
                }
                Return::ClosedChannel => {}
            }
        }
        channel.close(200, "looked".into()).await.unwrap();
        tags.len()
    }

    async fn holds_all(&self, when: &str) {
        let what = format!("four messages parked or stray {when}");
        eventually(SOON, &what, async || {
            let parked = self
                .fixture
                .client
                .depth(&self.fixture.parked())
                .await
                .map_err(|error| error.to_string())?;
            let stray = self
                .fixture
                .client
                .depth(&self.fixture.stray())
                .await
                .map_err(|error| error.to_string())?;
            if parked + stray == 4 {
                Ok(true)
            } else {
                Err(format!("{parked} parked, {stray} stray"))
            }
        })
        .await
        .unwrap();
    }
}

async fn fetch(channel: &Channel, queue: &str) -> Vec<u64> {
    let mut tags = Vec::new();
    while let Some(message) =
        channel.basic_get(queue.into(), BasicGetOptions { no_ack: false }).await.unwrap()
    {
        tags.push(message.delivery.delivery_tag);
    }
    tags
}

fn bodies(messages: &[Received]) -> BTreeSet<String> {
    messages.iter().map(Received::text).collect()
}

/// A policy with a delivery limit of two for these queues, which is in effect then.
async fn limit(broker: &Broker, name: &str, queues: &[String]) {
    let pattern = format!("^({})$", queues.join("|").replace('.', "\\."));
    let management = broker.management().unwrap();
    management.set_policy(name, &pattern, json!({ "delivery-limit": 2 })).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_and_stray_messages_that_are_looked_at_forty_times_in_each_way_are_still_there() {
    let resting = Resting::on(Broker::shared().await, "looking").await;
    resting.look_at_all().await;
    let parked = resting.fixture.drain_parked(3).await;
    let stray = resting.fixture.client.drain(&resting.fixture.stray(), 1, SOON).await.unwrap();
    assert_eq!(bodies(&parked), ["a", "b", "c"].map(str::to_owned).into());
    assert_eq!(bodies(&stray), ["d".to_owned()].into());
    for message in parked.iter().chain(&stray) {
        // 4.3 does not count a nack.
        let counted = message.headers["x-delivery-count"].as_u64().unwrap();
        assert!(counted >= 2 * LOOKS as u64, "only {counted} looks were counted");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_message_that_exceeds_a_policys_lower_limit_moves_to_the_stray_queue() {
    let broker = fragile_broker().await;
    let resting = Resting::on(&broker, "looking-policy").await;
    limit(&broker, "looking-policy", &[resting.fixture.parked()]).await;
    resting.look_at_all().await;
    let stray = resting.fixture.client.drain(&resting.fixture.stray(), 4, SOON).await.unwrap();
    assert_eq!(bodies(&stray), ["a", "b", "c", "d"].map(str::to_owned).into());
    for message in stray.iter().filter(|message| message.text() != "d") {
        assert_eq!(message.headers["x-death"][0]["queue"], json!(resting.fixture.parked()));
        assert_eq!(message.headers["x-death"][0]["reason"], "delivery_limit");
        assert_eq!(message.headers["rehop-reason"], "permanent", "its history comes along");
        assert_eq!(
            message.headers["rehop-return-to"],
            json!(resting.fixture.queue),
            "a replay knows where it goes"
        );
    }
}

/// The broker holds such messages where no consumer can get them, and tries again every three
/// minutes; here it does so sooner.
#[tokio::test(flavor = "multi_thread")]
async fn a_stray_message_that_exceeds_a_policys_lower_limit_is_held_until_another_queue_is_bound() {
    let broker = fragile_broker().await;
    let sooner = "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, 1000).";
    broker.rabbitmqctl(&["eval", sooner]).await.unwrap();
    let resting = Resting::on(&broker, "looking-stray").await;
    let stray = resting.fixture.stray();
    limit(&broker, "looking-stray", &[resting.fixture.parked(), stray.clone()]).await;
    let management = broker.management().unwrap();
    eventually(SOON, "four messages held by the broker, and none to be fetched", async || {
        // The counts are some seconds old, and many looks are needed.
        while resting.look(Return::Reject).await > 0 {}
        are_held_by_the_broker(&management, &stray, 4).await
    })
    .await
    .unwrap();
    let rescue = resting.fixture.namespace.queue("rescue");
    resting
        .fixture
        .client
        .declare_queue(&rescue, json!({ "x-queue-type": "quorum" }))
        .await
        .unwrap();
    resting.fixture.client.bind(&rescue, &stray, "", json!({})).await.unwrap();
    let rescued = resting.fixture.client.drain(&rescue, 4, SOON).await.unwrap();
    assert_eq!(bodies(&rescued), ["a", "b", "c", "d"].map(str::to_owned).into());
}
