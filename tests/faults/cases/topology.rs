//! Somebody deletes what the service needs.

use serde_json::json;

use crate::lab::{Ground, Lab, SOON};
use crate::ledger::{Account, Place};
use crate::service::{Does, Service};

const MESSAGES: usize = 50;

/// A service that is consuming, with a wait that leaves time to delete something meanwhile.
async fn running(ground: &Ground, name: &str) -> (Lab, Service) {
    let mut lab = ground.lab(name).await;
    lab.config.delays = vec![2500, 2500];
    lab.declare().await;
    let service = lab.service();
    lab.send(1, Does::Succeed).await;
    lab.done(1).await;
    (lab, service)
}

async fn waiting(lab: &Lab) {
    lab.send(MESSAGES, Does::Fail(1)).await;
    lab.depth(&lab.tier(2500), MESSAGES as u32).await;
}

async fn finish(lab: Lab, service: Service) -> Account {
    lab.settled(SOON * 6).await;
    service.stop().await;
    lab.account().await.none_queued()
}

pub(crate) async fn work_queue(ground: Ground) -> Account {
    let (lab, service) = running(&ground, "no-work").await;
    waiting(&lab).await;
    lab.client().await.delete_queue(&lab.config.queue).await.unwrap();
    finish(lab, service).await.all_handled()
}

pub(crate) async fn work_queue_while_away(ground: Ground) -> Account {
    let (lab, service) = running(&ground, "no-work-away").await;
    waiting(&lab).await;
    service.stop().await;
    lab.client().await.delete_queue(&lab.config.queue).await.unwrap();
    // All come home to nowhere, and are kept.
    lab.depth(&lab.stray(), MESSAGES as u32).await;
    let service = lab.service();
    lab.depth(&lab.config.queue, 0).await;
    lab.send(MESSAGES, Does::Succeed).await;
    let account = finish(lab, service).await;
    assert_eq!(account.count(Place::Stray), MESSAGES, "what came home to no queue is stray: {account}");
    account
}

pub(crate) async fn wait_queue(ground: Ground) -> Account {
    let (lab, service) = running(&ground, "no-wait-queue").await;
    lab.client().await.delete_queue(&lab.tier(2500)).await.unwrap();
    let first = lab.send(MESSAGES, Does::Fail(1)).await;
    lab.settled(SOON).await;
    // It heals by itself: a later failure waits again.
    heals(&lab, first).await;
    finish(lab, service).await
}

/// Sends failing messages until one of them is handled, which takes its way home.
async fn heals(lab: &Lab, before: u64) {
    let begun = std::time::Instant::now();
    loop {
        let id = lab.send(1, Does::Fail(1)).await;
        lab.settled(SOON).await;
        if lab.record().done.iter().any(|done| *done >= before.max(id)) {
            return;
        }
        assert!(begun.elapsed() < SOON, "what was deleted is declared again");
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

pub(crate) async fn wait_exchange(ground: Ground) -> Account {
    let (lab, service) = running(&ground, "no-wait").await;
    lab.client().await.delete_exchange(&lab.exchange("wait")).await.unwrap();
    lab.send(MESSAGES, Does::Fail(1)).await;
    finish(lab, service).await.all_handled()
}

pub(crate) async fn return_exchange(ground: Ground) -> Account {
    let (lab, service) = running(&ground, "no-return").await;
    waiting(&lab).await;
    lab.client().await.delete_exchange(&lab.exchange("return")).await.unwrap();
    lab.depth(&lab.tier(2500), 0).await;
    // The broker tries again what it could not dead-letter after 180 s.
    finish(lab, service).await.all_handled()
}

pub(crate) async fn park_exchange(ground: Ground) -> Account {
    let (lab, service) = running(&ground, "no-park").await;
    lab.client().await.delete_exchange(&lab.exchange("park")).await.unwrap();
    lab.send(MESSAGES, Does::Permanent).await;
    let account = finish(lab, service).await;
    assert_eq!(account.count(Place::Parked), MESSAGES, "all are parked in the end: {account}");
    account
}

pub(crate) async fn parked_queue(ground: Ground) -> Account {
    let (lab, service) = running(&ground, "no-parked").await;
    lab.client().await.delete_queue(&lab.parked()).await.unwrap();
    lab.send(MESSAGES, Does::Permanent).await;
    let account = finish(lab, service).await;
    assert_eq!(account.count(Place::Parked) + account.count(Place::Stray), MESSAGES, "parked or stray: {account}");
    account
}

pub(crate) async fn binding_home(ground: Ground) -> Account {
    let (lab, service) = running(&ground, "no-way-home").await;
    let matching = json!({ "x-match": "all", "return-to": lab.config.queue });
    lab.client().await.unbind(&lab.config.queue, &lab.exchange("return"), "", matching).await.unwrap();
    let first = lab.send(MESSAGES, Does::Fail(1)).await;
    lab.settled(SOON).await;
    heals(&lab, first).await;
    finish(lab, service).await
}

/// Without wait queue and stray queue a copy has nowhere to go: the tripwire sees it and everything is declared again.
pub(crate) async fn stray_queue(ground: Ground) -> Account {
    let (lab, service) = running(&ground, "no-stray").await;
    let client = lab.client().await;
    client.delete_queue(&lab.stray()).await.unwrap();
    client.delete_queue(&lab.tier(2500)).await.unwrap();
    lab.send(MESSAGES, Does::Fail(1)).await;
    finish(lab, service).await.all_handled()
}
