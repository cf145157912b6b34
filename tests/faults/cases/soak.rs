//! Nothing grows while connections break and messages fail.

use std::time::{Duration, Instant};

use rehop_testing::{Proxy, eventually};

use crate::evidence::{all_broken, between};
use crate::ground::{Ground, SOON};
use crate::ledger::{Account, Allowed};
use crate::service::Service;

/// Two minutes, or as many as `REHOP_FAULTS_SOAK` sets.
pub(crate) fn lasts() -> Duration {
    let minutes = std::env::var("REHOP_FAULTS_SOAK")
        .ok()
        .and_then(|minutes| minutes.parse().ok())
        .unwrap_or(2);
    Duration::from_secs(minutes * 60)
}

pub(crate) async fn flat(ground: Ground) -> Account {
    let mut lab = ground.lab("soak").await;
    lab.work_mut().delivery_limit = 1000;
    lab.work_mut().prefetch = 20;
    lab.declare().await;
    let (mut service, proxy) = lab.service_behind().await;
    let load = lab.load(80);
    let mut warm = None;
    let (begun, end) = (Instant::now(), lasts());
    let mut cuts = 0;
    while begun.elapsed() < end {
        tokio::time::sleep(between(500, 4000)).await;
        all_broken(&proxy, Proxy::cut).await;
        cuts += 1;
        // The first part is a warm-up.
        if warm.is_none() && begun.elapsed() > end / 5 {
            warm = Some(settled_usage(&service, &proxy).await);
        }
    }
    lab.recovers(SOON).await;
    load.stop().await;
    lab.settled(SOON * 2).await;
    let (early, late) = (warm.unwrap(), settled_usage(&service, &proxy).await);
    service.stop().await;
    let minutes = end.as_secs() / 60;
    let note = format!(
        "{minutes} min, {cuts} cuts: {} -> {} KiB resident, {} -> {} files",
        early.0, late.0, early.1, late.1
    );
    assert!(late.0 < early.0 * 5 / 4 + 8 * 1024, "memory stays flat: {note}");
    assert!(late.1 <= early.1 + 2, "files stay flat: {note}");
    lab.close(Allowed::losses(cuts * 2, 20)).await.with_note(note)
}

/// Resident memory in KiB and the number of open files, once the service has reconnected.
async fn settled_usage(service: &Service, proxy: &Proxy) -> (u64, usize) {
    eventually(SOON, "the service consumes and publishes", async || proxy.open() >= 2)
        .await
        .unwrap();
    // What the lost connections took is given back by then.
    crate::evidence::lasts(Duration::from_secs(3)).await;
    (resident(service), std::fs::read_dir(format!("/proc/{}/fd", service.pid())).unwrap().count())
}

/// Resident memory in KiB.
pub(crate) fn resident(service: &Service) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse().unwrap()
}
