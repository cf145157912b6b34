//! Several queues in one process: a fault of one does not affect the other.

use std::time::Instant;

use rehop_testing::{Publish, eventually};

use super::stalls::refused;
use crate::evidence::{Policy, room_for_one};
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::service::{Does, QueueConfig};

const A: usize = 0;
const B: usize = 1;

async fn lab(ground: &Ground, name: &str) -> Lab {
    let mut lab = ground.lab(name).await;
    let other = QueueConfig::new(lab.exchange("invoices"));
    lab.config.queues.push(other);
    lab
}

async fn send(lab: &Lab, queue: usize, count: usize, does: Does) -> u64 {
    lab.send_to(queue, count, does, |message: Publish| message).await
}

/// A message that kills the process is in one queue, and slow ones are in the other.
pub(crate) async fn poison_in_one(ground: Ground) -> Account {
    let mut lab = lab(&ground, "poison-beside").await;
    for queue in &mut lab.config.queues {
        (queue.delivery_limit, queue.prefetch) = (5, 20);
    }
    lab.declare().await;
    // It kills when the slow ones have arrived, so that the process holds the oldest of them at
    // each death.
    send(&lab, A, 2, Does::Poison(600)).await;
    send(&lab, A, 50, Does::Succeed).await;
    send(&lab, B, 10, Does::Slow(1200)).await;
    let service = lab.supervised();
    lab.settled(SOON).await;
    let deaths = service.stop().await;
    assert!(deaths > 5, "each poison has killed as often as its limit lets it: {deaths} times");
    let of_the_other = lab.record().entries.into_iter().filter(|entry| entry.queue == B);
    let charged = of_the_other.map(|entry| entry.attempt - 1).max().unwrap_or(0);
    let account = lab.close(Allowed::losses(deaths, 40)).await;
    account
        .with_note(format!("{deaths} deaths, of which a slow message was charged up to {charged}"))
}

/// One queue's parked queue is full, and the other queue works on.
pub(crate) async fn parked_queue_of_one_is_full(ground: Ground) -> Account {
    let broker = ground.shared_broker().await;
    let lab = lab(&ground, "full-beside").await;
    lab.declare().await;
    let full = lab.config.queues[A].parked();
    let policy = Policy::set(&broker, &full, room_for_one()).await;
    let mut service = lab.service();
    send(&lab, A, 100, Does::Permanent).await;
    refused(&lab, &full).await;
    let begun = Instant::now();
    let (waits, parks) =
        (send(&lab, B, 20, Does::Fail(1)).await, send(&lab, B, 5, Does::Permanent).await);
    let client = lab.client().await;
    lab.recovers_when(begun, SOON, "the other queue works on", async || {
        let ended = lab.record().ended();
        let handled = (waits..waits + 20).filter(|id| ended.contains(id)).count();
        let parked = client
            .depth(&lab.config.queues[B].parked())
            .await
            .map_err(|error| error.to_string())?;
        if (handled, parked) == (20, 5) {
            Ok(true)
        } else {
            Err(format!("{handled} handled, {parked} parked, from {parks} on"))
        }
    })
    .await;
    assert!(
        client.depth(&full).await.unwrap() < 100,
        "the first queue's parked queue is full meanwhile"
    );
    policy.clear().await;
    lab.recovers(SOON).await;
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

/// One queue is deleted while the other works.
pub(crate) async fn one_is_deleted(ground: Ground) -> Account {
    let lab = lab(&ground, "deleted-beside").await;
    lab.declare().await;
    let mut service = lab.service();
    lab.recovers(SOON).await;
    let load = send(&lab, B, 100, Does::Slow(50)).await;
    let client = lab.client().await;
    client.delete_queue(lab.work()).await.unwrap();
    eventually(SOON, "the service declares it again", async || {
        client.depth(lab.work()).await.is_ok()
    })
    .await
    .unwrap();
    lab.recovers(SOON).await;
    lab.settled(SOON).await;
    assert!(lab.record().ended().contains(&(load + 99)), "the other queue's messages are handled");
    service.stop().await;
    // If a subscription or a declare meets the deletion, the broker may close the whole connection.
    let log = service.log();
    let is_consuming =
        |line: &&str| line.contains("connected broker=") && line.ends_with("consuming");
    let losses = log.lines().filter(is_consuming).count() - 1;
    assert!(losses <= 5, "the consuming connection was lost {losses} times");
    lab.close(Allowed::losses(losses, lab.config.queues[B].prefetch.into())).await
}
