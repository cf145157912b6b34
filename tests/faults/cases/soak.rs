//! Nothing grows while connections break and messages fail.

use std::time::{Duration, Instant};

use crate::lab::{Ground, SOON, between};
use crate::ledger::Account;

pub(crate) async fn flat(ground: Ground) -> Account {
    let minutes: f64 = std::env::var("REHOP_FAULTS_SOAK").ok().and_then(|minutes| minutes.parse().ok()).unwrap_or(2.0);
    let mut lab = ground.lab("soak").await;
    lab.config.delivery_limit = 1000;
    lab.declare().await;
    let (service, proxy) = lab.service_behind().await;
    let load = lab.load(200);
    let mut start = None;
    let (begun, end) = (Instant::now(), Duration::from_secs_f64(minutes * 60.0));
    while begun.elapsed() < end {
        tokio::time::sleep(between(500, 4000)).await;
        proxy.cut();
        // The first part of it warms up.
        if start.is_none() && begun.elapsed() > end / 5 {
            start = Some(settled_usage(&service).await);
        }
    }
    load.stop().await;
    lab.settled(SOON * 2).await;
    let (start, end) = (start.unwrap_or_default(), settled_usage(&service).await);
    let cuts = proxy.accepted() / 2 - 1;
    service.stop().await;
    let note =
        format!("{minutes} min, {cuts} cuts: {} -> {} KiB resident, {} -> {} files", start.0, end.0, start.1, end.1);
    assert!(end.0 < start.0 * 5 / 4 + 8 * 1024, "memory stays flat: {note}");
    assert!(end.1 <= start.1 + 2, "files stay flat: {note}");
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
