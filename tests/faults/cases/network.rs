//! The connections between service and broker break in the ways of real networks.

use std::time::Duration;

use rehop::testing::{Proxy, ProxyConnection, eventually};

use super::broker::goes_on;
use crate::lab::{Ground, SOON, between};
use crate::ledger::Account;

/// A service behind a proxy, under load that does not pass the proxy.
async fn under_load(ground: Ground, name: &str, fault: impl AsyncFn(&Ground, &Proxy)) -> Account {
    let mut lab = ground.lab(name).await;
    // A lost connection charges a delivery to whatever it held.
    lab.config.delivery_limit = 100;
    lab.declare().await;
    let (service, proxy) = lab.service_behind().await;
    let load = lab.load(100);
    lab.done(50).await;
    fault(&ground, &proxy).await;
    goes_on(&lab).await;
    load.stop().await;
    lab.settled(SOON * 2).await;
    service.stop().await;
    lab.account().await.none_queued().none_stray()
}

async fn repeatedly(ground: &Ground, proxy: &Proxy, fault: impl Fn(&Proxy)) {
    for _ in 0..ground.times(10, 100) {
        tokio::time::sleep(between(50, 700)).await;
        fault(proxy);
    }
}

pub(crate) async fn cut(ground: Ground) -> Account {
    under_load(ground, "cut", async |ground, proxy| repeatedly(ground, proxy, Proxy::cut).await).await
}

pub(crate) async fn reset(ground: Ground) -> Account {
    under_load(ground, "reset", async |ground, proxy| repeatedly(ground, proxy, Proxy::reset).await).await
}

pub(crate) async fn slow(ground: Ground) -> Account {
    under_load(ground, "slow", async |_, proxy| {
        proxy.delay(Duration::from_millis(150));
        proxy.rate(20_000);
        tokio::time::sleep(Duration::from_secs(8)).await;
        proxy.delay(Duration::ZERO);
        proxy.rate(0);
    })
    .await
}

pub(crate) async fn half_open(ground: Ground) -> Account {
    under_load(ground, "half-open", async |_, proxy| {
        proxy.pause();
        tokio::time::sleep(Duration::from_secs(10)).await;
        proxy.resume();
    })
    .await
}

/// Both connections stay open for ever and silent, and new ones work.
pub(crate) async fn silent_for_ever(ground: Ground) -> Account {
    under_load(ground, "silent", async |_, proxy| {
        for connection in proxy.connections() {
            connection.pause();
        }
        replaced(proxy, 2).await;
        replaced(proxy, 3).await;
    })
    .await
}

pub(crate) async fn refused(ground: Ground) -> Account {
    under_load(ground, "refused", async |_, proxy| {
        proxy.refuse().await;
        proxy.reset();
        tokio::time::sleep(Duration::from_secs(3)).await;
        proxy.accept().await.unwrap();
    })
    .await
}

pub(crate) async fn only_consuming(ground: Ground) -> Account {
    under_load(ground, "consuming", async |ground, proxy| one_only(ground, proxy, 0, ProxyConnection::reset).await)
        .await
}

pub(crate) async fn only_publishing(ground: Ground) -> Account {
    under_load(ground, "publishing", async |ground, proxy| one_only(ground, proxy, 1, ProxyConnection::reset).await)
        .await
}

pub(crate) async fn no_acks(ground: Ground) -> Account {
    under_load(ground, "no-acks", async |_, proxy| {
        let accepted = proxy.accepted();
        proxy.connection(0).unwrap().pause_to_broker();
        replaced(proxy, accepted).await;
    })
    .await
}

pub(crate) async fn no_confirms(ground: Ground) -> Account {
    under_load(ground, "no-confirms", async |_, proxy| {
        let accepted = proxy.accepted();
        proxy.connection(1).unwrap().pause_to_client();
        replaced(proxy, accepted).await;
    })
    .await
}

/// Breaks one of the two connections again and again; the other one stays what it is.
async fn one_only(ground: &Ground, proxy: &Proxy, mut index: usize, fault: impl Fn(&ProxyConnection)) {
    for _ in 0..ground.times(10, 50) {
        tokio::time::sleep(between(50, 400)).await;
        let accepted = proxy.accepted();
        fault(&proxy.connection(index).unwrap());
        replaced(proxy, accepted).await;
        index = accepted;
    }
}

async fn replaced(proxy: &Proxy, accepted: usize) {
    eventually(SOON, "another connection was made", async || proxy.accepted() > accepted).await.unwrap();
}
