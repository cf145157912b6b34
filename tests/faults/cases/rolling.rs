//! The service is restarted again and again under a backlog, and runs with the shipped
//! configuration.

use std::time::Duration;

use rehop_testing::Proxy;

use crate::evidence::{all_broken, lasts};
use crate::expectation::Fate;
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::record::Step;
use crate::service::{Does, Service, Shipped};

/// The shipped configuration.
const PREFETCH: usize = 100;

/// Messages that no handler has seen are handed back each time. 3.10 and 4.0 count this, but no
/// message may be parked because of it.
pub(crate) async fn restarts_under_a_backlog(ground: Ground) -> Account {
    let mut lab = ground.lab("rolling").await;
    let work = lab.work_mut();
    // Few handlers, so that the backlog outlasts the restarts.
    (work.delivery_limit, work.prefetch, work.concurrency) = (5, 50, 2);
    lab.declare().await;
    lab.send(ground.times(4000, 12_000), Does::Slow(50)).await;
    lab.send(50, Does::Fail(1)).await;
    let mut services = std::collections::VecDeque::from([lab.service(), lab.service()]);
    let (client, rounds) = (lab.client().await, ground.times(12, 40));
    for round in 0..rounds {
        lab.started((round + 1) * 10).await;
        if client.depth(lab.work()).await.unwrap() < 1_000 {
            lab.send(1_000, Does::Slow(50)).await;
        }
        services.push_back(lab.service());
        services.pop_front().unwrap().stop().await;
    }
    assert!(client.depth(lab.work()).await.unwrap() > 0, "there was a backlog until the end");
    // More handlers take the rest of it.
    let work = lab.work_mut();
    (work.prefetch, work.concurrency) = (100, 100);
    services.push_back(lab.service());
    lab.settled(SOON * 3).await;
    for service in &mut services {
        service.stop().await;
    }
    lab.close(Allowed::nothing()).await.with_note(format!("{rounds} restarts"))
}

pub(crate) async fn shipped_defaults(ground: Ground) -> Account {
    let (lab, mut service, _proxy, losses) = shipped(ground, None, Duration::from_secs(30)).await;
    service.stop().await;
    lab.close(Allowed::losses(losses, PREFETCH)).await
}

/// The service must end within its grace time whatever happens. Here handlers hang and the network
/// is silent.
pub(crate) async fn production_profile(ground: Ground) -> Account {
    let grace = Duration::from_secs(25);
    let (lab, mut service, proxy, losses) = shipped(ground, Some("production"), grace).await;
    let started = lab.count(Step::Started);
    let hanging = lab.send(5, Does::Hang).await;
    lab.expect(hanging..hanging + 5, Fate::Queued);
    lab.started(started + 5).await;
    proxy.pause();
    let took = service.stop().await;
    drop(proxy);
    let account = lab.close(Allowed::losses(losses + 1, PREFETCH)).await;
    account.with_note(format!("stopped after {:.2} s of {grace:?}", took.as_secs_f64()))
}

/// Runs with the files in `config/`, except for shorter delays so that a chain ends. Returns how
/// many connections were lost.
async fn shipped(
    ground: Ground,
    profile: Option<&str>,
    grace: Duration,
) -> (Lab, Service, Proxy, usize) {
    let mut lab = ground.lab(profile.unwrap_or("defaults")).await;
    let delays = ("REHOP_RETRY__DELAYS".to_owned(), r#"["200ms", "400ms"]"#.to_owned());
    lab.config.shipped =
        Some(Shipped { profile: profile.map(str::to_owned), environment: vec![delays] });
    lab.config.grace = grace;
    lab.work_mut().immediate = 1;
    lab.declare().await;
    let (service, proxy) = lab.service_behind().await;
    let load = lab.load(40);
    lab.done(50).await;
    let mut losses = 0;
    for _ in 0..4 {
        losses += all_broken(&proxy, Proxy::reset).await;
        lab.recovers(SOON).await;
    }
    // Shorter than a heartbeat, so the connections are kept.
    let accepted = proxy.accepted();
    proxy.pause();
    lasts(Duration::from_secs(5)).await;
    proxy.resume();
    lab.recovers(SOON).await;
    assert_eq!(proxy.accepted(), accepted, "the connections were kept");
    load.stop().await;
    lab.settled(SOON).await;
    (lab, service, proxy, losses)
}
