//! A message that kills its process is parked by the broker, alone.

use std::collections::BTreeSet;

use rand::Rng as _;

use crate::lab::{Ground, Lab, SOON};
use crate::ledger::{Account, Place};
use crate::service::Does;

async fn lab(ground: &Ground, name: &str) -> Lab {
    let mut lab = ground.lab(name).await;
    lab.config.prefetch = 100;
    lab.config.delivery_limit = 5;
    lab.config.immediate = 1;
    lab.declare().await;
    lab
}

/// Runs supervised instances until everything has ended, and looks at who was parked.
async fn finish(lab: &Lab, instances: usize, poison: &BTreeSet<u64>) -> Account {
    let services: Vec<_> = (0..instances).map(|_| lab.supervised()).collect();
    lab.settled(SOON * 2).await;
    let mut deaths = 0;
    for service in services {
        deaths += service.stop().await;
    }
    let account = lab.account().await.none_queued().none_stray();
    assert_eq!(account.ids(Place::Parked), *poison, "the poison is parked and nobody else: {account}, {deaths} deaths");
    account.with_note(format!("{deaths} deaths"))
}

pub(crate) async fn alone(ground: Ground, instances: usize) -> Account {
    let mut sum = Account::default();
    let rounds = ground.times(1, 10);
    for round in 0..rounds {
        let lab = lab(&ground, "poison").await;
        let before = if round == 0 { 500 } else { rand::rng().random_range(0..1000) };
        lab.send(before, Does::Succeed).await;
        let poison = lab.send(1, Does::Poison).await;
        lab.send(999 - before, Does::Succeed).await;
        sum.add(&finish(&lab, instances, &BTreeSet::from([poison])).await);
    }
    sum.with_note(format!("{rounds} rounds"))
}

pub(crate) async fn among_slow_ones(ground: Ground) -> Account {
    let lab = lab(&ground, "poison-slow").await;
    lab.send(150, Does::Slow(20)).await;
    let poison = lab.send(1, Does::Poison).await;
    lab.send(849, Does::Slow(20)).await;
    finish(&lab, 3, &BTreeSet::from([poison])).await
}

pub(crate) async fn three(ground: Ground) -> Account {
    let lab = lab(&ground, "poison-three").await;
    let mut poison = BTreeSet::new();
    for count in [200, 3, 400] {
        lab.send(count, Does::Succeed).await;
        poison.insert(lab.send(1, Does::Poison).await);
    }
    lab.send(394, Does::Succeed).await;
    finish(&lab, 3, &poison).await
}
