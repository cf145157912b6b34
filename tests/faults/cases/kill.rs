//! SIGKILL around the handler, and at random.

use std::time::Duration;

use rehop::settings::WaitStrategy;
use rehop_testing::{Client, ProxyConnection, eventually};

use crate::evidence::{between, quiet};
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::record::Step;
use crate::service::Does;

const MESSAGES: usize = 20;

/// The TTL of the wait queue, or of what stands in for a delayed exchange. It is long enough for
/// all copies to be counted there.
const TIER: u64 = 10_000;
/// The same for the two rungs that a copy takes on the ladder, one after the other.
const RUNGS: [u64; 2] = [8000, 4000];

/// As many handlers as messages, so that all are at the same step.
async fn lab(ground: &Ground, name: &str) -> Lab {
    lab_that_waits(ground, name, WaitStrategy::Tiers).await
}

async fn lab_that_waits(ground: &Ground, name: &str, strategy: WaitStrategy) -> Lab {
    let mut lab = ground.lab(name).await;
    // The bytes held here delay neither a heartbeat nor an answer too long.
    (lab.config.heartbeat, lab.config.answer) = (Duration::from_secs(60), SOON);
    let work = lab.work_mut();
    let delay: u64 = if strategy == WaitStrategy::Ladder { RUNGS.iter().sum() } else { TIER };
    (work.strategy, work.delays, work.concurrency) = (strategy, vec![delay], MESSAGES as u16);
    if strategy == WaitStrategy::DelayedExchange {
        lab.declare_with_stand_in(TIER).await;
    } else {
        lab.declare().await;
    }
    lab
}

/// Waits until the first wait queue holds a copy of each message.
async fn copies_wait(lab: &Lab, client: &Client) {
    let first = match lab.config.work().strategy {
        WaitStrategy::Ladder => lab.rung(RUNGS[0]),
        WaitStrategy::DelayedExchange => lab.stand_in(),
        _ => lab.tier(TIER),
    };
    lab.depth_by(client, &first, MESSAGES as u32).await;
}

/// On the ladder, waits until all copies have come to the second rung, while no process runs.
async fn copies_go_on(lab: &Lab, client: &Client) {
    if is_on_ladder(lab) {
        lab.depth_by(client, &lab.rung(RUNGS[1]), MESSAGES as u32).await;
    }
}

fn is_on_ladder(lab: &Lab) -> bool {
    lab.config.work().strategy == WaitStrategy::Ladder
}

/// A fresh service finishes what the killed one has left, with exactly the allowed duplicates.
async fn finish(lab: &Lab, duplicates: usize) -> Account {
    let mut service = lab.service();
    service.go().await;
    lab.settled(SOON).await;
    service.stop().await;
    let account = lab.close(Allowed::losses(1, MESSAGES)).await;
    assert_eq!(
        account.duplicates, duplicates,
        "what was not acked ends twice, and nothing else: {account}"
    );
    account
}

pub(crate) async fn before_the_handler(ground: Ground) -> Account {
    let mut lab = lab(&ground, "kill-before").await;
    lab.work_mut().concurrency = 1;
    // One slot can start them all in time, so the window may be wide enough. Settled messages open
    // it.
    lab.config.ack_timeout = Duration::from_secs(2 * 60 * 60);
    let opening = 4 * MESSAGES;
    lab.send(opening, Does::Succeed).await;
    let service = lab.service();
    lab.settled(SOON).await;
    lab.send(MESSAGES, Does::Gate).await;
    lab.started(opening + 1).await;
    lab.depth(lab.work(), 0).await;
    service.kill().await;
    assert_eq!(
        lab.count(Step::Started),
        opening + 1,
        "one message is at its handler, the others are before it"
    );
    finish(&lab, 0).await
}

pub(crate) async fn in_the_handler(ground: Ground) -> Account {
    let lab = lab(&ground, "kill-in").await;
    lab.send(MESSAGES, Does::Gate).await;
    let service = lab.service();
    lab.started(MESSAGES).await;
    service.kill().await;
    finish(&lab, 0).await
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
    // The broker has taken them back.
    lab.depth(lab.work(), MESSAGES as u32).await;
    finish(&lab, MESSAGES).await
}

pub(crate) async fn before_the_confirm(ground: Ground, strategy: WaitStrategy) -> Account {
    let lab = lab_that_waits(&ground, "kill-before-confirm", strategy).await;
    let client = lab.client().await;
    lab.send(MESSAGES, Does::GateFail).await;
    let (mut service, proxy) = lab.service_behind().await;
    lab.started(MESSAGES).await;
    let publishing = proxy.connection(1).unwrap();
    // Its channel is open by then: the pause is to hold back confirms, and nothing that comes
    // before a copy.
    quiet(ProxyConnection::bytes_to_client, &publishing).await;
    publishing.pause_to_client();
    service.go().await;
    copies_wait(&lab, &client).await;
    service.kill().await;
    assert_eq!(
        proxy.accepted(),
        3,
        "consuming, publishing and looks: the copies were sent on the connection that is held back"
    );
    drop(proxy);
    copies_go_on(&lab, &client).await;
    finish(&lab, MESSAGES).await
}

pub(crate) async fn between_confirm_and_ack(ground: Ground, strategy: WaitStrategy) -> Account {
    let lab = lab_that_waits(&ground, "kill-before-ack", strategy).await;
    let client = lab.client().await;
    lab.send(MESSAGES, Does::GateFail).await;
    let (mut service, proxy) = lab.service_behind().await;
    lab.started(MESSAGES).await;
    proxy.connection(0).unwrap().pause_to_broker();
    service.go().await;
    copies_wait(&lab, &client).await;
    quiet(ProxyConnection::bytes_to_client, &proxy.connection(1).unwrap()).await;
    service.kill().await;
    drop(proxy);
    copies_go_on(&lab, &client).await;
    finish(&lab, MESSAGES).await
}

pub(crate) async fn after_the_ack(ground: Ground) -> Account {
    let lab = lab(&ground, "kill-after-ack").await;
    lab.send(MESSAGES, Does::Gate).await;
    let (mut service, proxy) = lab.service_behind().await;
    lab.started(MESSAGES).await;
    let consuming = proxy.connection(0).unwrap();
    let before = consuming.bytes_to_broker();
    service.go().await;
    lab.done(MESSAGES).await;
    // Few frames ack all of them, so their number says nothing.
    eventually(SOON, "the first acks are sent", async || consuming.bytes_to_broker() > before)
        .await
        .unwrap();
    quiet(ProxyConnection::bytes_to_broker, &consuming).await;
    service.kill().await;
    let mut service = lab.service();
    lab.settled(SOON).await;
    service.stop().await;
    // Quorum queues lose the last acks of a connection that ends right after them (4.3), but not
    // all.
    lab.close(Allowed::losses(1, MESSAGES - 1)).await
}

pub(crate) async fn at_random(ground: Ground) -> Account {
    let mut lab = ground.lab("kill-at-random").await;
    lab.work_mut().immediate = 1;
    lab.work_mut().delivery_limit = 20;
    lab.work_mut().prefetch = 20;
    lab.declare().await;
    let services = [lab.supervised(), lab.supervised()];
    let load = lab.load(80);
    let kills = ground.times(30, 300);
    for kill in 0..kills {
        tokio::time::sleep(between(20, 600)).await;
        services[kill % services.len()].kill().await;
    }
    load.stop().await;
    lab.settled(SOON * 3).await;
    lab.recovers(SOON).await;
    lab.settled(SOON).await;
    let mut deaths = 0;
    for service in services {
        deaths += service.stop().await;
    }
    assert!(deaths >= kills - 1, "each kill took a process: {deaths} of {kills}");
    lab.close(Allowed::losses(kills, 20)).await.with_note(format!("{kills} kills"))
}
