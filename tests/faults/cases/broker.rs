//! The broker goes away under load, and comes back.

use std::time::Duration;

use rehop::testing::Broker;

use crate::lab::{Ground, Lab, SOON};
use crate::ledger::Account;

/// Two services under load, a fault, and proof that work goes on after it.
async fn under_load(ground: Ground, name: &str, fault: impl AsyncFn(&Broker)) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let lab = ground.lab_on(name, broker.clone()).await;
    lab.declare().await;
    let services = [lab.service(), lab.service()];
    let load = lab.load(100);
    lab.done(100).await;
    fault(&broker).await;
    goes_on(&lab).await;
    load.stop().await;
    lab.settled(SOON * 3).await;
    for service in services {
        service.stop().await;
    }
    lab.account().await.none_queued().none_stray()
}

/// Waits until a hundred more messages are handled.
pub(crate) async fn goes_on(lab: &Lab) {
    let before = lab.record().done.len();
    lab.done(before + 100).await;
}

pub(crate) async fn restarts(ground: Ground) -> Account {
    let times = ground.times(1, 4);
    under_load(ground, "restart", async |broker| {
        for _ in 0..times {
            broker.restart().await.unwrap();
        }
    })
    .await
}

pub(crate) async fn dies(ground: Ground) -> Account {
    let times = ground.times(1, 4);
    under_load(ground, "power-cut", async |broker| {
        for _ in 0..times {
            broker.kill().await.unwrap();
            broker.start_again().await.unwrap();
        }
    })
    .await
}

pub(crate) async fn stops_for_a_moment(ground: Ground) -> Account {
    frozen_for(ground, "frozen", Duration::from_secs(2)).await
}

pub(crate) async fn stops_for_long(ground: Ground) -> Account {
    frozen_for(ground, "frozen-long", Duration::from_secs(12)).await
}

async fn frozen_for(ground: Ground, name: &str, time: Duration) -> Account {
    under_load(ground, name, async |broker| {
        broker.pause().await.unwrap();
        tokio::time::sleep(time).await;
        broker.resume().await.unwrap();
    })
    .await
}
