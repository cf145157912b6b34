//! A newer version of the service has another policy.

use crate::ground::{Ground, SOON};
use crate::ledger::{Account, Allowed};
use crate::service::Does;

pub(crate) async fn other_delays(ground: Ground) -> Account {
    let mut lab = ground.lab("upgrade").await;
    lab.work_mut().delays = vec![1500, 2500];
    lab.declare().await;
    lab.send(100, Does::Fail(2)).await;
    let mut old = [lab.service(), lab.service()];
    lab.failed(100).await;
    old[0].stop().await;
    // Both versions run for a while, and each handles messages that the other one sent to wait.
    let work = lab.work_mut();
    (work.delays, work.immediate, work.prefetch, work.concurrency) = (vec![300, 600, 900], 2, 7, 3);
    let mut new = vec![lab.service()];
    lab.send(100, Does::Fail(2)).await;
    lab.settled(SOON).await;
    lab.send(100, Does::Fail(2)).await;
    old[1].stop().await;
    new.push(lab.service());
    lab.settled(SOON).await;
    for service in &mut new {
        service.stop().await;
    }
    lab.close(Allowed::nothing()).await
}
