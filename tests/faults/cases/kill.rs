//! SIGKILL at each step of a hop.

use std::time::Duration;

use rehop::testing::{ProxyConnection, eventually};

use crate::lab::{Ground, Lab, SOON, between};
use crate::ledger::Account;
use crate::service::Does;

const MESSAGES: usize = 20;

/// As many handlers as messages, so that all are at the same step.
async fn lab(ground: &Ground, name: &str) -> Lab {
    let mut lab = ground.lab(name).await;
    lab.config.concurrency = MESSAGES as u16;
    lab.config.delays = vec![3000];
    lab.declare().await;
    lab
}

/// A fresh service finishes what the killed one has left.
async fn finish(lab: &Lab) -> Account {
    let mut service = lab.service();
    service.go().await;
    lab.settled(SOON).await;
    service.stop().await;
    lab.account().await.all_handled()
}

pub(crate) async fn before_the_handler(ground: Ground) -> Account {
    let mut lab = lab(&ground, "kill-before").await;
    lab.config.concurrency = 1;
    lab.send(MESSAGES, Does::Gate).await;
    let service = lab.service();
    lab.started(1).await;
    lab.depth(&lab.config.queue, 0).await;
    service.kill().await;
    assert_eq!(lab.record().started.len(), 1, "one message is at its handler, the others are before it");
    finish(&lab).await.none_twice()
}

pub(crate) async fn in_the_handler(ground: Ground) -> Account {
    let lab = lab(&ground, "kill-in").await;
    lab.send(MESSAGES, Does::Gate).await;
    let service = lab.service();
    lab.started(MESSAGES).await;
    service.kill().await;
    finish(&lab).await.none_twice()
}

pub(crate) async fn after_the_handler(ground: Ground) -> Account {
    let lab = lab(&ground, "kill-after-handler").await;
    lab.send(MESSAGES, Does::Gate).await;
    let (mut service, proxy) = lab.service_behind().await;
    lab.started(MESSAGES).await;
    proxy.connection(0).unwrap().pause_to_broker();
    service.go().await;
    lab.done(MESSAGES).await;
    service.kill().await;
    drop(proxy);
    let account = finish(&lab).await;
    assert_eq!(account.duplicates, MESSAGES, "none was acked: {account}");
    account
}

pub(crate) async fn before_the_confirm(ground: Ground) -> Account {
    let lab = lab(&ground, "kill-before-confirm").await;
    lab.send(MESSAGES, Does::GateFail).await;
    let (mut service, proxy) = lab.service_behind().await;
    lab.started(MESSAGES).await;
    proxy.connection(1).unwrap().pause_to_client();
    service.go().await;
    lab.depth(&lab.tier(3000), MESSAGES as u32).await;
    service.kill().await;
    drop(proxy);
    let account = finish(&lab).await;
    assert_eq!(account.duplicates, MESSAGES, "original and copy both end: {account}");
    account
}

pub(crate) async fn between_confirm_and_ack(ground: Ground) -> Account {
    let lab = lab(&ground, "kill-before-ack").await;
    lab.send(MESSAGES, Does::GateFail).await;
    let (mut service, proxy) = lab.service_behind().await;
    lab.started(MESSAGES).await;
    proxy.connection(0).unwrap().pause_to_broker();
    service.go().await;
    lab.depth(&lab.tier(3000), MESSAGES as u32).await;
    quiet(ProxyConnection::bytes_to_client, &proxy.connection(1).unwrap()).await;
    service.kill().await;
    drop(proxy);
    let account = finish(&lab).await;
    assert_eq!(account.duplicates, MESSAGES, "original and copy both end: {account}");
    account
}

pub(crate) async fn after_the_ack(ground: Ground) -> Account {
    let lab = lab(&ground, "kill-after-ack").await;
    lab.send(MESSAGES, Does::Gate).await;
    let (mut service, proxy) = lab.service_behind().await;
    lab.started(MESSAGES).await;
    let (consuming, before) = (proxy.connection(0).unwrap(), proxy.connection(0).unwrap().bytes_to_broker());
    service.go().await;
    // An ack is a frame of 21 bytes.
    eventually(SOON, "the acks have passed", async || consuming.bytes_to_broker() >= before + 21 * MESSAGES as u64)
        .await
        .unwrap();
    service.kill().await;
    let account = finish(&lab).await;
    assert!(account.duplicates < MESSAGES, "acks count: {account}");
    account
}

/// Waits until no more bytes pass.
async fn quiet(bytes: impl Fn(&ProxyConnection) -> u64, connection: &ProxyConnection) {
    let mut last = (bytes(connection), std::time::Instant::now());
    eventually(SOON, "all bytes have passed", async || {
        let now = bytes(connection);
        if now != last.0 {
            last = (now, std::time::Instant::now());
        }
        last.1.elapsed() > Duration::from_millis(300)
    })
    .await
    .unwrap();
}

pub(crate) async fn at_random(ground: Ground) -> Account {
    let mut lab = ground.lab("kill-at-random").await;
    lab.config.immediate = 1;
    lab.config.delivery_limit = 20;
    lab.declare().await;
    let services = [lab.supervised(), lab.supervised()];
    let load = lab.load(200);
    let kills = ground.times(30, 300);
    for kill in 0..kills {
        tokio::time::sleep(between(20, 600)).await;
        services[kill % services.len()].kill().await;
    }
    load.stop().await;
    lab.settled(SOON).await;
    for service in services {
        service.stop().await;
    }
    lab.account().await.none_queued().none_stray().with_note(format!("{kills} kills"))
}
