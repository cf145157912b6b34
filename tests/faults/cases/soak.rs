//! Nothing grows while connections break and messages fail.

use std::time::{Duration, Instant};

use crate::lab::{Ground, SOON, between};
use crate::ledger::Account;

/// Two minutes, or as many as `REHOP_FAULTS_SOAK` says.
pub(crate) fn lasts() -> Duration {
    let minutes = std::env::var("REHOP_FAULTS_SOAK").ok().and_then(|minutes| minutes.parse().ok()).unwrap_or(2);
    Duration::from_secs(minutes * 60)
}

pub(crate) async fn flat(ground: Ground) -> Account {
    let mut lab = ground.lab("soak").await;
    lab.config.delivery_limit = 1000;
    lab.declare().await;
    let (service, proxy) = lab.service_behind().await;
    let load = lab.load(200);
    let mut warm = None;
    let (begun, end) = (Instant::now(), lasts());
    while begun.elapsed() < end {
        tokio::time::sleep(between(500, 4000)).await;
        proxy.cut();
        // The first part of it warms up.
        if warm.is_none() && begun.elapsed() > end / 5 {
            warm = Some(settled_usage(&service).await);
        }
    }
    load.stop().await;
    lab.settled(SOON * 2).await;
    let (early, late) = (warm.unwrap_or_default(), settled_usage(&service).await);
    let cuts = proxy.accepted() / 2 - 1;
    service.stop().await;
    let minutes = end.as_secs() / 60;
    let note =
        format!("{minutes} min, {cuts} cuts: {} -> {} KiB resident, {} -> {} files", early.0, late.0, early.1, late.1);
    assert!(late.0 < early.0 * 5 / 4 + 8 * 1024, "memory stays flat: {note}");
    assert!(late.1 <= early.1 + 2, "files stay flat: {note}");
    lab.account().await.none_queued().none_stray().with_note(note)
}

/// Resident memory in KiB, and open files, when it has connected again.
async fn settled_usage(service: &crate::service::Service) -> (u64, usize) {
    tokio::time::sleep(Duration::from_secs(3)).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident = resident.trim().trim_end_matches(" kB").parse().unwrap();
    (resident, std::fs::read_dir(format!("/proc/{}/fd", service.pid())).unwrap().count())
}
