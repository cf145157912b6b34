//! A newer version of the service has another policy.

use crate::lab::{Ground, SOON};
use crate::ledger::Account;
use crate::service::{Config, Does};

pub(crate) async fn other_delays(ground: Ground) -> Account {
    let mut lab = ground.lab("upgrade").await;
    lab.config.delays = vec![1500, 2500];
    lab.old_tiers = vec![1500, 2500];
    lab.declare().await;
    lab.send(100, Does::Fail(2)).await;
    let old = [lab.service(), lab.service()];
    lab.depth(&lab.tier(1500), 100).await;
    let [first, second] = old;
    first.stop().await;
    // Both versions run for a time, and each handles what the other one sent to wait.
    let new = Config { delays: vec![300, 600, 900], immediate: 2, prefetch: 7, concurrency: 3, ..lab.config.clone() };
    let first = lab.service_with(&new);
    lab.send(100, Does::Fail(2)).await;
    lab.settled(SOON).await;
    lab.send(100, Does::Fail(2)).await;
    second.stop().await;
    let second = lab.service_with(&new);
    lab.config = new;
    lab.settled(SOON).await;
    first.stop().await;
    second.stop().await;
    lab.account().await.all_handled().none_twice()
}
