//! Shutdown, in every situation.

use std::time::{Duration, Instant};

use crate::lab::{Ground, SOON};
use crate::ledger::{Account, Place};
use crate::service::Does;

pub(crate) async fn with_a_thousand_in_flight(ground: Ground) -> Account {
    let mut lab = ground.lab("stop-thousand").await;
    (lab.config.prefetch, lab.config.concurrency) = (1000, 400);
    lab.declare().await;
    lab.send(1000, Does::Slow(700)).await;
    let service = lab.service();
    lab.started(300).await;
    service.stop().await;
    let account = lab.account().await.none_twice();
    assert!(account.count(Place::Queued) > 0, "it stopped in the midst of it: {account}");
    account
}

pub(crate) async fn twice(ground: Ground) -> Account {
    let lab = ground.lab("stop-twice").await;
    lab.declare().await;
    lab.send(100, Does::Slow(300)).await;
    let mut service = lab.service();
    lab.started(10).await;
    service.ask_to_stop().await;
    service.ask_to_stop().await;
    assert!(service.ended(SOON).await.unwrap(), "it stops in order");
    lab.account().await.none_twice()
}

/// Handlers that do not finish are left to the broker when the grace time is over.
pub(crate) async fn past_the_grace_time(ground: Ground) -> Account {
    let mut lab = ground.lab("stop-grace").await;
    lab.config.grace = Duration::from_secs(1);
    lab.declare().await;
    lab.send(50, Does::Hang).await;
    let mut service = lab.service();
    lab.started(10).await;
    let begun = Instant::now();
    service.ask_to_stop().await;
    assert!(service.ended(SOON).await.unwrap(), "it stops");
    assert!(begun.elapsed() < Duration::from_secs(6), "soon after the grace time");
    let account = lab.account().await.none_twice();
    assert_eq!(account.count(Place::Queued), 50, "all are back in the queue: {account}");
    account
}

pub(crate) async fn while_the_broker_is_away(ground: Ground) -> Account {
    let lab = ground.lab("stop-away").await;
    lab.declare().await;
    let (mut service, proxy) = lab.service_behind().await;
    lab.send(200, Does::Slow(20)).await;
    lab.done(20).await;
    proxy.refuse().await;
    proxy.reset();
    tokio::time::sleep(Duration::from_secs(1)).await;
    service.ask_to_stop().await;
    assert!(service.ended(Duration::from_secs(15)).await.unwrap(), "it stops in order");
    lab.account().await
}

pub(crate) async fn while_the_network_is_silent(ground: Ground) -> Account {
    let lab = ground.lab("stop-silent").await;
    lab.declare().await;
    let (mut service, proxy) = lab.service_behind().await;
    lab.send(100, Does::Slow(50)).await;
    lab.send(100, Does::Fail(1)).await;
    lab.done(20).await;
    proxy.pause();
    service.ask_to_stop().await;
    // One answer that does not come (5 s), the grace time (10 s), and two goodbyes (2 s each).
    assert!(service.ended(Duration::from_secs(25)).await.unwrap(), "it stops in order");
    drop(proxy);
    lab.account().await
}
