//! A queue that accepts nothing, and the waits of others.

use std::time::Duration;

use rehop::Failure;
use rehop::internals::Names;
use rehop::settings::{Declare, QueueType, WaitStrategy};
use rehop_testing::{ClientError, Publish, eventually};
use serde_json::json;

use crate::support::{Fixture, Log, SOON, millis};

/// How long messages wait, in milliseconds.
const DELAY: u64 = 200;
/// How many copies are due in the full queue: more than the broker has in hand at a time, which is
/// 32 of each wait queue.
const DUE: usize = 60;
const OTHERS: usize = 20;

/// The settings give the full queue wait queues of its own, because somebody else declares it.
async fn full_beside_another(strategy: WaitStrategy) {
    let mut fixture = Fixture::new("full").await;
    let full = fixture.namespace.queue("full");
    let limited =
        json!({ "x-queue-type": "quorum", "x-max-length": 1, "x-overflow": "reject-publish" });
    fixture.client.declare_queue(&full, limited).await.unwrap();
    let settings = fixture.settings.queue_mut(&full);
    (settings.declare, settings.queue_type) = (Declare::Existing, Some(QueueType::Quorum));
    fixture.settings.ladder.rung = Duration::from_millis(DELAY);
    fixture.settings.ladder.max = Duration::from_millis(2 * DELAY);
    (fixture.settings.retry.strategy, fixture.settings.retry.delays) =
        (Some(strategy), millis([DELAY]));
    fixture.declare().await;
    eventually(SOON, "the queue is full", async || {
        let published = fixture.client.publish(Publish::to_queue(&full)).await;
        matches!(published, Err(ClientError::Refused { .. }))
    })
    .await
    .unwrap();
    let config = fixture.settings.resolve().unwrap().queue(&full).unwrap();
    let names = Names::new(fixture.namespace.name()).waits_of(&config);
    let (exchange, wait_queue) = match strategy {
        WaitStrategy::Ladder => (names.ladder(), names.rung(Duration::from_millis(DELAY))),
        _ => (names.wait(), names.tier(Duration::from_millis(DELAY))),
    };
    for number in 0..DUE {
        let copy = Publish::to(&exchange, "order.created").body(number.to_string());
        let copy =
            copy.header("rehop-return-to", full.as_str()).header("rehop-wait-for", json!(DELAY));
        fixture.client.publish(copy).await.unwrap();
    }
    let are_due = async || fixture.client.depth(&wait_queue).await.map(|waiting| waiting == 0);
    eventually(SOON, "all copies are due", are_due).await.unwrap();
    let home: Log<u32> = Log::default();
    let log = home.clone();
    let run = fixture
        .serve(move |message| {
            let is_first = message.hop() == 0;
            if !is_first {
                log.push(message.hop());
            }
            async move { if is_first { Err(Failure::transient("no")) } else { Ok(()) } }
        })
        .await;
    for number in 0..OTHERS {
        fixture.publish(&number.to_string()).await;
    }
    home.reaches(OTHERS).await;
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_another_queue_come_home_from_tiers_while_a_full_queue_takes_none_of_its_own() {
    full_beside_another(WaitStrategy::Tiers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_another_queue_come_home_from_ladders_while_a_full_queue_takes_none_of_its_own()
{
    full_beside_another(WaitStrategy::Ladder).await;
}
