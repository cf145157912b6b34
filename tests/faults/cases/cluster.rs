//! A cluster of three loses nodes while messages expire.

use std::time::Duration;

use rehop::testing::{Cluster, Proxy, eventually};
use serde_json::json;

use super::broker::goes_on;
use crate::lab::{Ground, Lab, Load, SOON};
use crate::ledger::Account;
use crate::service::{Does, Service};

/// Two services at two nodes, and whoever tests at a third, each behind a load balancer.
struct Stage {
    cluster: Cluster,
    balancers: Vec<Proxy>,
    lab: Lab,
    services: Vec<Service>,
    load: Load,
}

impl Stage {
    async fn new(ground: &Ground, name: &str) -> Self {
        let cluster = ground.cluster().await;
        let mut balancers = Vec::new();
        for node in 0..cluster.nodes() {
            balancers.push(Proxy::start(&cluster.amqp_url(node)).await.unwrap());
        }
        let admin = balancers[2].url_for(&cluster.amqp_url(2)).unwrap();
        let mut lab = ground.lab_at(name, &admin).await;
        lab.config.delays = vec![2000, 2000];
        lab.config.delivery_limit = 20;
        lab.declare().await;
        let services = balancers[..2].iter().map(|proxy| lab.service_with(&lab.behind(proxy))).collect();
        let load = lab.load(50);
        lab.done(100).await;
        Self { cluster, balancers, lab, services, load }
    }

    /// What the balancers do when a node is down: they lead to the next one.
    fn avoid(&self, dead: usize) {
        for (node, balancer) in self.balancers.iter().enumerate() {
            let target = if node == dead { (node + 1) % self.cluster.nodes() } else { node };
            balancer.retarget(&self.cluster.amqp_url(target)).unwrap();
        }
    }

    async fn finish(self) -> Account {
        goes_on(&self.lab).await;
        self.load.stop().await;
        // From 4.3 on, what the consumer of a dead node held comes back after a minute.
        self.lab.settled(SOON * 4).await;
        for service in self.services {
            service.stop().await;
        }
        self.lab.account().await.none_queued().none_stray()
    }
}

pub(crate) async fn leaders(ground: Ground) -> Account {
    let stage = Stage::new(&ground, "leaders").await;
    let mut killed = Vec::new();
    for queue in [stage.lab.config.queue.clone(), stage.lab.tier(2000), stage.lab.parked()] {
        let leader = stage.cluster.leader_of(&queue).await.unwrap();
        stage.avoid(leader);
        stage.cluster.kill(leader).await.unwrap();
        killed.push(leader.to_string());
        goes_on(&stage.lab).await;
        stage.cluster.start_node(leader).await.unwrap();
        stage.cluster.wait_until_formed().await.unwrap();
    }
    stage.finish().await.with_note(format!("nodes {} were killed", killed.join(", ")))
}

pub(crate) async fn cut_off(ground: Ground) -> Account {
    let stage = Stage::new(&ground, "cut-off").await;
    stage.cluster.disconnect(0).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    goes_on(&stage.lab).await;
    stage.cluster.reconnect(0).await.unwrap();
    stage.finish().await
}

pub(crate) async fn majority(ground: Ground) -> Account {
    let stage = Stage::new(&ground, "majority").await;
    stage.cluster.kill(1).await.unwrap();
    stage.cluster.kill(2).await.unwrap();
    tokio::time::sleep(Duration::from_secs(15)).await;
    stage.cluster.start_nodes(&[1, 2]).await.unwrap();
    stage.finish().await
}

/// The broker says 404 then, as if there were no such queue.
pub(crate) async fn home_node(ground: Ground) -> Account {
    let cluster = ground.cluster().await;
    let mut lab = ground.lab_at("home-node", &cluster.amqp_url(0)).await;
    lab.config.existing = true;
    // A classic queue is on the node where it was declared, and on no other.
    let owner = cluster.client(2).await.unwrap();
    owner.declare_queue(&lab.config.queue, json!({ "x-queue-type": "classic" })).await.unwrap();
    lab.send(50, Does::Succeed).await;
    cluster.stop(2).await.unwrap();
    let service = lab.service();
    eventually(SOON, "the service waits", async || service.log().contains("trying again")).await.unwrap();
    cluster.start_node(2).await.unwrap();
    lab.settled(SOON * 2).await;
    service.stop().await;
    lab.account().await.all_handled()
}
