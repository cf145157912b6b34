//! The broker becomes unavailable under load, and comes back.

use std::time::Duration;

use rehop_testing::Broker;

use crate::evidence::{Witness, lasts};
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};

/// From the moment when the broker is ready again.
const RECOVERY: Duration = SOON;

/// Two services under load, faults that each make them lose both connections, and proof that work
/// continues afterwards.
async fn under_load(
    ground: Ground,
    name: &str,
    times: usize,
    prepare: impl FnOnce(&mut Lab),
    fault: impl AsyncFn(&Broker),
) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let mut lab = ground.lab_on(name, broker.clone());
    lab.work_mut().prefetch = 20;
    lab.work_mut().delivery_limit = 20;
    prepare(&mut lab);
    lab.declare().await;
    let mut services = [lab.service(), lab.service()];
    let load = lab.load(40);
    lab.done(100).await;
    for _ in 0..times {
        fault(&broker).await;
        lab.recovers(RECOVERY).await;
    }
    load.stop().await;
    lab.settled(SOON * 3).await;
    for service in &mut services {
        service.stop().await;
    }
    lab.close(Allowed::losses(times * services.len() * 2, 20)).await
}

pub(crate) async fn restarts(ground: Ground) -> Account {
    let times = ground.times(1, 4);
    under_load(
        ground,
        "restart",
        times,
        |_| {},
        async |broker| {
            let witness = Witness::new(broker).await;
            broker.restart().await.unwrap();
            witness.was_cut_off().await;
        },
    )
    .await
}

pub(crate) async fn dies(ground: Ground) -> Account {
    let times = ground.times(1, 4);
    under_load(
        ground,
        "power-cut",
        times,
        |_| {},
        async |broker| {
            let witness = Witness::new(broker).await;
            broker.kill().await.unwrap();
            broker.start_again().await.unwrap();
            witness.was_cut_off().await;
        },
    )
    .await
}

pub(crate) async fn stops_for_a_moment(ground: Ground) -> Account {
    frozen_for(ground, "frozen", Duration::from_secs(2)).await
}

pub(crate) async fn stops_for_long(ground: Ground) -> Account {
    frozen_for(ground, "frozen-long", Duration::from_secs(12)).await
}

async fn frozen_for(ground: Ground, name: &str, time: Duration) -> Account {
    under_load(ground, name, 1, Lab::notices_silence, async |broker| {
        let witness = Witness::new(broker).await;
        broker.pause().await.unwrap();
        witness.gets_no_answer(Duration::from_secs(1)).await;
        lasts(time - Duration::from_secs(1)).await;
        broker.resume().await.unwrap();
    })
    .await
}
