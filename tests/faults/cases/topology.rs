//! Exchanges, queues and bindings that the service needs are deleted.

use std::time::Duration;

use rehop_testing::{Client, eventually};
use serde_json::json;

use crate::expectation::Fate;
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::service::{Does, Service};

const MESSAGES: usize = 50;

/// From the moment when something is missing until it exists again and is used.
const RECOVERY: Duration = SOON;

/// A wait that does not keep a case for long.
const SHORT: u64 = 2500;
/// A wait that leaves time to delete something while all messages wait.
const LONG: u64 = 15_000;

/// A consuming service whose messages wait for this long.
async fn running(ground: &Ground, name: &str, delay: u64) -> (Lab, Service, Client) {
    let mut lab = ground.lab(name).await;
    lab.work_mut().delays = vec![delay, delay];
    lab.declare().await;
    let service = lab.service();
    lab.send(1, Does::Succeed).await;
    lab.done(1).await;
    let client = lab.client().await;
    (lab, service, client)
}

async fn waiting(lab: &Lab) -> std::ops::Range<u64> {
    let first = lab.send(MESSAGES, Does::Fail(1)).await;
    lab.depth(&lab.tier(LONG), MESSAGES as u32).await;
    first..first + MESSAGES as u64
}

/// Checks that a deleted object does not exist, at least until it is declared again.
async fn deleted(client: &Client, queue: &str) {
    client.delete_queue(queue).await.unwrap();
}

async fn finish(lab: Lab, mut service: Service, allowed: Allowed) -> Account {
    lab.settled(SOON * 6).await;
    service.stop().await;
    lab.close(allowed).await
}

pub(crate) async fn work_queue(ground: Ground) -> Account {
    let (lab, service, client) = running(&ground, "no-work", LONG).await;
    waiting(&lab).await;
    deleted(&client, lab.work()).await;
    eventually(SOON, "the service declares it again", async || {
        client.depth(lab.work()).await.is_ok()
    })
    .await
    .unwrap();
    lab.recovers(RECOVERY).await;
    finish(lab, service, Allowed::nothing()).await
}

pub(crate) async fn work_queue_while_away(ground: Ground) -> Account {
    let (lab, mut service, client) = running(&ground, "no-work-away", LONG).await;
    let waiting = waiting(&lab).await;
    service.stop().await;
    deleted(&client, lab.work()).await;
    // All return but find no queue, and are kept.
    lab.depth(&lab.stray(), MESSAGES as u32).await;
    lab.expect(waiting, Fate::Stray);
    let service = lab.service();
    lab.depth(lab.work(), 0).await;
    lab.send(MESSAGES, Does::Succeed).await;
    finish(lab, service, Allowed::nothing()).await
}

pub(crate) async fn wait_queue(ground: Ground) -> Account {
    let (lab, service, client) = running(&ground, "no-wait-queue", SHORT).await;
    deleted(&client, &lab.tier(SHORT)).await;
    lab.send(MESSAGES, Does::Fail(1)).await;
    lab.settled(SOON).await;
    heals(&lab).await;
    finish(lab, service, Allowed::nothing().or(Fate::Stray)).await
}

/// The service repairs it: a later failure waits again, and is handled then.
async fn heals(lab: &Lab) {
    let begun = std::time::Instant::now();
    lab.recovers_when(begun, RECOVERY, "a message that fails once is handled", async || {
        let id = lab.send(1, Does::Fail(1)).await;
        lab.settled(SOON).await;
        if lab.record().ended().contains(&id) {
            Ok(true)
        } else {
            Err(format!("message {id} is stray"))
        }
    })
    .await;
}

pub(crate) async fn wait_exchange(ground: Ground) -> Account {
    let (lab, service, client) = running(&ground, "no-wait", SHORT).await;
    client.delete_exchange(&lab.exchange("wait")).await.unwrap();
    lab.send(MESSAGES, Does::Fail(1)).await;
    lab.recovers(RECOVERY).await;
    assert!(service.log().contains("NOT_FOUND"), "the service has missed it");
    // The channel that the broker closed because of it may have accepted copies before.
    finish(lab, service, Allowed::losses(1, 10)).await
}

pub(crate) async fn return_exchange(ground: Ground) -> Account {
    let (lab, service, client) = running(&ground, "no-return", LONG).await;
    waiting(&lab).await;
    client.delete_exchange(&lab.exchange("return")).await.unwrap();
    lab.depth(&lab.tier(LONG), 0).await;
    // After 180 s the broker retries messages that it could not dead-letter.
    lab.recovers(Duration::from_secs(240)).await;
    finish(lab, service, Allowed::nothing()).await
}

pub(crate) async fn park_exchange(ground: Ground) -> Account {
    let (lab, service, client) = running(&ground, "no-park", SHORT).await;
    client.delete_exchange(&lab.exchange("park")).await.unwrap();
    lab.send(MESSAGES, Does::Permanent).await;
    lab.recovers(RECOVERY).await;
    assert!(service.log().contains("NOT_FOUND"), "the service has missed it");
    finish(lab, service, Allowed::losses(1, 10)).await
}

pub(crate) async fn parked_queue(ground: Ground) -> Account {
    let (lab, service, client) = running(&ground, "no-parked", SHORT).await;
    deleted(&client, &lab.parked()).await;
    lab.send(MESSAGES, Does::Permanent).await;
    finish(lab, service, Allowed::nothing().or(Fate::Stray)).await
}

pub(crate) async fn return_binding(ground: Ground) -> Account {
    let (lab, service, client) = running(&ground, "no-way-home", SHORT).await;
    let matching = json!({ "x-match": "all", "rehop-return-to": lab.work() });
    client.unbind(lab.work(), &lab.exchange("return"), "", matching).await.unwrap();
    lab.send(MESSAGES, Does::Fail(1)).await;
    lab.settled(SOON).await;
    assert!(client.depth(&lab.stray()).await.unwrap() > 0, "there was no way home");
    heals(&lab).await;
    finish(lab, service, Allowed::nothing().or(Fate::Stray)).await
}

/// Without wait queue and stray queue, a copy is returned. This is noticed, and everything is
/// declared again.
pub(crate) async fn stray_queue(ground: Ground) -> Account {
    let (lab, service, client) = running(&ground, "no-stray", SHORT).await;
    deleted(&client, &lab.stray()).await;
    deleted(&client, &lab.tier(SHORT)).await;
    lab.send(MESSAGES, Does::Fail(1)).await;
    lab.recovers(RECOVERY).await;
    finish(lab, service, Allowed::losses(1, 10)).await
}
