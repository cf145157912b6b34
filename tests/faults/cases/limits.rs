//! The broker refuses: alarms, and queues that are full.

use std::time::Duration;

use super::broker::goes_on;
use crate::lab::{Ground, SOON};
use crate::ledger::{Account, Place};
use crate::service::Does;

async fn alarm(ground: Ground, name: &str, raise: &[&str], clear: &[&str]) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let lab = ground.lab_on(name, broker.clone()).await;
    lab.declare().await;
    let service = lab.service();
    let load = lab.load(100);
    lab.done(100).await;
    broker.rabbitmqctl(raise).await.unwrap();
    // Longer than the service waits for one answer.
    tokio::time::sleep(Duration::from_secs(8)).await;
    broker.rabbitmqctl(clear).await.unwrap();
    goes_on(&lab).await;
    load.stop().await;
    lab.settled(SOON * 2).await;
    service.stop().await;
    lab.account().await.none_queued().none_stray()
}

pub(crate) async fn memory(ground: Ground) -> Account {
    alarm(ground, "memory", &["set_vm_memory_high_watermark", "0.0001"], &["set_vm_memory_high_watermark", "0.6"]).await
}

pub(crate) async fn disk(ground: Ground) -> Account {
    alarm(ground, "disk", &["set_disk_free_limit", "9000GB"], &["set_disk_free_limit", "50MB"]).await
}

/// A queue with room for one message refuses copies until there is room for all.
async fn full(ground: Ground, name: &str, queue: &str, does: Does) -> Account {
    let broker = ground.shared_broker().await;
    let lab = ground.lab(name).await;
    lab.declare().await;
    let pattern = format!("^{}\\.{queue}$", lab.config.namespace);
    let definition = r#"{"max-length":1,"overflow":"reject-publish"}"#;
    broker
        .rabbitmqctl(&["set_policy", lab.config.namespace.as_str(), &pattern, definition, "--apply-to", "queues"])
        .await
        .unwrap();
    lab.send(300, does).await;
    let service = lab.service();
    lab.started(2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let attempts = lab.record().started.len();
    broker.rabbitmqctl(&["clear_policy", lab.config.namespace.as_str()]).await.unwrap();
    lab.settled(SOON * 2).await;
    service.stop().await;
    let account = lab.account().await.none_queued().none_stray();
    account.with_note(format!("{attempts} attempts while full"))
}

pub(crate) async fn full_wait_queue(ground: Ground) -> Account {
    full(ground, "full-wait", "wait\\.200", Does::Fail(1)).await.all_handled()
}

pub(crate) async fn full_parked_queue(ground: Ground) -> Account {
    let account = full(ground, "full-parked", "orders\\.parked", Does::Permanent).await;
    assert_eq!(account.count(Place::Parked), account.sent, "all are parked in the end: {account}");
    account
}

/// A subscription that the broker ends because a message was not settled in time: the message comes again, alone.
pub(crate) async fn ack_timeout(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder.conf("consumer_timeout = 10000")).await;
    let mut lab = ground.lab_on("ack-timeout", broker).await;
    lab.config.handler_timeout = Duration::from_secs(200);
    lab.config.grace = Duration::from_secs(1);
    lab.declare().await;
    let service = lab.service();
    for _ in 0..3 {
        lab.send(1, Does::HangOnce).await;
        lab.send(30, Does::Succeed).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // Each message that timed out may be told by a cancel of its own, and work goes on between them.
    lab.settled(SOON * 3).await;
    lab.send(100, Does::Succeed).await;
    lab.send(20, Does::Fail(1)).await;
    lab.settled(SOON).await;
    service.stop().await;
    lab.account().await.all_handled()
}
