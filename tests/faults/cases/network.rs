//! The connections between service and broker break in the ways that real networks do.

use std::time::{Duration, Instant};

use rehop_testing::{Proxy, ProxyConnection};

use crate::evidence::{all_arrived, all_broken, between, broken, lasts, quiet, replaced};
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};

/// From the moment when the network works again.
const RECOVERY: Duration = SOON;
/// How many messages can come back with each connection that breaks.
const PREFETCH: u16 = 20;

async fn lab(ground: &Ground, name: &str) -> Lab {
    let mut lab = ground.lab(name).await;
    // A lost connection charges one delivery to every message that it held.
    lab.work_mut().delivery_limit = 100;
    lab.work_mut().prefetch = PREFETCH;
    lab.declare().await;
    lab
}

/// A service behind a proxy, under load that does not pass the proxy. The fault says how many
/// connections it broke.
async fn under_load(lab: Lab, fault: impl AsyncFnOnce(&Proxy) -> usize) -> Account {
    under_load_of(40, lab, async |proxy| {
        let losses = fault(proxy).await;
        (losses, losses)
    })
    .await
}

/// The fault says how many connections it broke, and how often it broke some at the same time: then
/// each message ends once more at most.
async fn under_load_of(
    per_second: u32,
    lab: Lab,
    fault: impl AsyncFnOnce(&Proxy) -> (usize, usize),
) -> Account {
    let (mut service, proxy) = lab.service_behind().await;
    let load = lab.load(per_second);
    lab.done(50).await;
    let (losses, times) = fault(&proxy).await;
    lab.recovers(RECOVERY).await;
    load.stop().await;
    lab.settled(SOON * 2).await;
    service.stop().await;
    let held = PREFETCH.into();
    let account = lab.close(Allowed::losses(losses, held).duplicates_at_most(times * held)).await;
    if losses > 0 { account.with_note(format!("{losses} connections lost")) } else { account }
}

async fn repeatedly(ground: &Ground, proxy: &Proxy, fault: impl Fn(&Proxy)) -> (usize, usize) {
    let (mut losses, times) = (0, ground.times(8, 100));
    for _ in 0..times {
        tokio::time::sleep(between(50, 700)).await;
        losses += all_broken(proxy, &fault).await;
    }
    (losses, times)
}

pub(crate) async fn cut(ground: Ground) -> Account {
    under_load_of(40, lab(&ground, "cut").await, async |proxy| {
        repeatedly(&ground, proxy, Proxy::cut).await
    })
    .await
}

pub(crate) async fn reset(ground: Ground) -> Account {
    under_load_of(40, lab(&ground, "reset").await, async |proxy| {
        repeatedly(&ground, proxy, Proxy::reset).await
    })
    .await
}

pub(crate) async fn slow(ground: Ground) -> Account {
    let mut lab = lab(&ground, "slow").await;
    // The connection is slow, but alive.
    lab.config.heartbeat = Duration::from_secs(60);
    under_load(lab, async |proxy| {
        let (accepted, before) = (proxy.accepted(), proxy.bytes_to_client());
        proxy.delay(Duration::from_millis(150));
        proxy.rate(20_000);
        lasts(Duration::from_secs(8)).await;
        let passed = proxy.bytes_to_client() - before;
        assert!(passed < 8 * 2 * 20_000 * 5 / 4, "the line was slow: {passed} bytes in 8 s");
        proxy.delay(Duration::ZERO);
        proxy.rate(0);
        all_arrived(proxy).await;
        // Connections that waited too long for an answer were given up.
        proxy.accepted() - accepted
    })
    .await
}

pub(crate) async fn half_open(ground: Ground) -> Account {
    let mut lab = lab(&ground, "half-open").await;
    lab.notices_silence();
    under_load(lab, async |proxy| {
        let before = proxy.bytes_to_broker() + proxy.bytes_to_client();
        let accepted = proxy.accepted();
        proxy.pause();
        let at_once = proxy.bytes_to_broker() + proxy.bytes_to_client();
        lasts(Duration::from_secs(10)).await;
        let after = proxy.bytes_to_broker() + proxy.bytes_to_client();
        assert!(
            after - at_once < 16 * 1024 && before > 0,
            "the network was silent: {} bytes",
            after - at_once
        );
        proxy.resume();
        // Each attempt to reconnect was a connection too.
        3 + proxy.accepted() - accepted
    })
    .await
}

/// All connections stay open and silent forever, and new ones work.
pub(crate) async fn silent_forever(ground: Ground) -> Account {
    let mut lab = lab(&ground, "silent").await;
    lab.notices_silence();
    under_load(lab, async |proxy| {
        let accepted = proxy.accepted();
        for connection in proxy.connections() {
            connection.pause();
        }
        for others in 0..3 {
            replaced(proxy, accepted + others).await;
        }
        3
    })
    .await
}

pub(crate) async fn refused(ground: Ground) -> Account {
    under_load(lab(&ground, "refused").await, async |proxy| {
        proxy.refuse().await;
        let (accepted, losses) = (proxy.accepted(), all_broken(proxy, Proxy::reset).await);
        lasts(Duration::from_secs(3)).await;
        assert_eq!((proxy.accepted(), proxy.open()), (accepted, 0), "nobody got in");
        proxy.accept().await.unwrap();
        losses
    })
    .await
}

pub(crate) async fn only_consuming(ground: Ground) -> Account {
    under_load(lab(&ground, "consuming").await, async |proxy| one_only(&ground, proxy, 0).await)
        .await
}

pub(crate) async fn only_publishing(ground: Ground) -> Account {
    under_load(lab(&ground, "publishing").await, async |proxy| one_only(&ground, proxy, 1).await)
        .await
}

/// Breaks the connection that consumes or the one that publishes again and again; the other one
/// stays open.
async fn one_only(ground: &Ground, proxy: &Proxy, index: usize) -> usize {
    let other = proxy.connection(1 - index).unwrap();
    let (times, mut victim) = (ground.times(8, 50), index);
    for _ in 0..times {
        tokio::time::sleep(between(50, 400)).await;
        let accepted = proxy.accepted();
        broken(&proxy.connection(victim).unwrap(), ProxyConnection::reset).await;
        replaced(proxy, accepted).await;
        victim = accepted;
    }
    assert!(other.is_open(), "the other connection was not touched");
    times
}

/// Only the heartbeat can detect that acks do not arrive.
pub(crate) async fn no_acks(ground: Ground) -> Account {
    let mut lab = lab(&ground, "no-acks").await;
    lab.config.heartbeat = Duration::from_secs(6);
    under_load(lab, async |proxy| {
        let (accepted, consuming) = (proxy.accepted(), proxy.connection(0).unwrap());
        consuming.pause_to_broker();
        quiet(ProxyConnection::bytes_to_broker, &consuming).await;
        let passed = consuming.bytes_to_broker();
        replaced(proxy, accepted).await;
        assert_eq!(consuming.bytes_to_broker(), passed, "acks were held");
        1
    })
    .await
}

/// The missing confirm ends the connection, because no heartbeat is missed that soon.
pub(crate) async fn no_confirms(ground: Ground) -> Account {
    let mut lab = lab(&ground, "no-confirms").await;
    lab.config.heartbeat = Duration::from_secs(60);
    under_load(lab, async |proxy| {
        let (accepted, publishing) = (proxy.accepted(), proxy.connection(1).unwrap());
        publishing.pause_to_client();
        let begun = Instant::now();
        replaced(proxy, accepted).await;
        assert!(
            begun.elapsed() < Duration::from_secs(55),
            "it was not the heartbeat: {:?}",
            begun.elapsed()
        );
        1
    })
    .await
}

/// Confirms take 3 s and the service waits for 30 s, so nothing is sent twice.
pub(crate) async fn late_confirms(ground: Ground) -> Account {
    let mut lab = lab(&ground, "late-confirms").await;
    (lab.config.heartbeat, lab.config.answer) = (Duration::from_secs(60), Duration::from_secs(30));
    lab.work_mut().concurrency = PREFETCH;
    // A handler that waits for its confirm handles nothing else.
    under_load_of(8, lab.clone(), async |proxy| {
        let (accepted, late) = (proxy.accepted(), Duration::from_millis(1500));
        proxy.connection(1).unwrap().delay(late);
        let begun = Instant::now();
        lab.recovers(RECOVERY).await;
        // Its copy is delayed on the way to the wait queue.
        assert!(begun.elapsed() > late, "copies were late: {:?}", begun.elapsed());
        lasts(Duration::from_secs(6)).await;
        assert_eq!(proxy.accepted(), accepted, "the connection was kept");
        proxy.connection(1).unwrap().delay(Duration::ZERO);
        (0, 0)
    })
    .await
}

/// Confirms take 8 s and the service waits for 5 s, so the copies are sent again on another
/// connection.
pub(crate) async fn confirms_that_come_too_late(ground: Ground) -> Account {
    let mut lab = lab(&ground, "too-late-confirms").await;
    lab.config.heartbeat = Duration::from_secs(60);
    under_load(lab, async |proxy| {
        let accepted = proxy.accepted();
        proxy.connection(1).unwrap().delay(Duration::from_secs(4));
        replaced(proxy, accepted).await;
        all_arrived(proxy).await;
        proxy.accepted() - accepted
    })
    .await
}
