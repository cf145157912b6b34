//! A cluster of three loses nodes while messages expire.

use std::time::Duration;

use rehop::settings::QueueType;
use rehop::testing::{Client, Cluster, Proxy, eventually};
use serde_json::json;

use crate::evidence::lasts;
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::load::Load;
use crate::service::{Does, QueueConfig, Service};

/// From the end of the fault. Since 4.3, messages held by the consumers of a dead node come back after a minute, but new messages
/// do not wait for this.
const RECOVERY: Duration = Duration::from_secs(45);

/// Two services at two nodes, and the test at a third, each behind a load balancer.
struct Stage {
    cluster: Cluster,
    balancers: Vec<Proxy>,
    lab: Lab,
    services: Vec<Service>,
    load: Load,
}

impl Stage {
    async fn new(ground: &Ground, name: &str) -> Self {
        Self::on(ground, ground.cluster(3).await, name).await
    }

    async fn on(ground: &Ground, cluster: Cluster, name: &str) -> Self {
        let balancers = balancers(&cluster).await;
        let admin = balancers[2].url_for(&cluster.amqp_url(2)).unwrap();
        let mut lab = ground.lab_at(name, &admin);
        lab.work_mut().delays = vec![2000, 2000];
        lab.work_mut().delivery_limit = 20;
        lab.work_mut().prefetch = 20;
        lab.declare().await;
        let services = balancers[..2].iter().map(|proxy| lab.service_with(&lab.behind(proxy))).collect();
        let load = lab.load(50);
        lab.done(100).await;
        Self { cluster, balancers, lab, services, load }
    }

    /// Refuses all clients.
    async fn is_down(&self, node: usize) {
        let answer = Client::connect(&self.cluster.amqp_url(node)).await;
        assert!(answer.is_err(), "node {node} is down");
    }

    /// `losses` is how often the faults have cut a service off, or made it wait in vain.
    async fn finish(mut self, losses: usize) -> Account {
        self.lab.recovers(RECOVERY).await;
        self.load.stop().await;
        self.lab.settled(SOON * 4).await;
        for service in &mut self.services {
            service.stop().await;
        }
        self.lab.close(Allowed::losses(losses, 20)).await
    }
}

/// A load balancer for each node.
pub(super) async fn balancers(cluster: &Cluster) -> Vec<Proxy> {
    let mut balancers = Vec::new();
    for node in 0..cluster.nodes() {
        balancers.push(Proxy::start(&cluster.amqp_url(node)).await.unwrap());
    }
    balancers
}

/// Lets the balancers use the next node, as they do when a node is down.
pub(super) fn avoid(cluster: &Cluster, balancers: &[Proxy], dead: usize) {
    for (node, balancer) in balancers.iter().enumerate() {
        let target = if node == dead { (node + 1) % cluster.nodes() } else { node };
        balancer.retarget(&cluster.amqp_url(target)).unwrap();
    }
}

/// The node that leads this queue, as soon as it is known and not the `dead` one. A new leader serves its clients before the
/// broker lists it.
pub(super) async fn leader_of(cluster: &Cluster, queue: &str, dead: Option<usize>) -> usize {
    eventually(SOON, &format!("{queue} has a leader that lives"), async || {
        cluster.leader_of(queue).await.map(|leader| Some(leader).filter(|&leader| Some(leader) != dead))
    })
    .await
    .unwrap()
}

pub(crate) async fn leaders(ground: Ground) -> Account {
    let stage = Stage::new(&ground, "leaders").await;
    let mut killed = Vec::new();
    for queue in [stage.lab.work().to_owned(), stage.lab.tier(2000), stage.lab.parked()] {
        let leader = leader_of(&stage.cluster, &queue, None).await;
        avoid(&stage.cluster, &stage.balancers, leader);
        stage.cluster.kill(leader).await.unwrap();
        stage.is_down(leader).await;
        killed.push(leader.to_string());
        stage.lab.recovers(RECOVERY).await;
        leader_of(&stage.cluster, &queue, Some(leader)).await;
        stage.cluster.start_node(leader).await.unwrap();
        stage.cluster.wait_until_formed().await.unwrap();
    }
    // Each kill is seen by both services: by its own node's end, or by a new leader.
    stage.finish(3 * 2 * 2).await.with_note(format!("nodes {} were killed", killed.join(", ")))
}

pub(crate) async fn cut_off(ground: Ground) -> Account {
    let stage = Stage::new(&ground, "cut-off").await;
    stage.cluster.disconnect(0).await.unwrap();
    eventually(SOON, "the others miss the node that is cut off", async || {
        let status = stage.cluster.rabbitmqctl(1, &["eval", "rabbit_nodes:list_running()."]).await;
        let running = status.map_err(|error| error.to_string())?;
        if running.matches("rabbit@").count() == 2 { Ok(true) } else { Err(running) }
    })
    .await
    .unwrap();
    stage.lab.recovers(RECOVERY).await;
    stage.cluster.reconnect(0).await.unwrap();
    stage.finish(2 * 2 * 2).await
}

pub(crate) async fn majority(ground: Ground) -> Account {
    let stage = Stage::new(&ground, "majority").await;
    stage.cluster.kill(1).await.unwrap();
    stage.cluster.kill(2).await.unwrap();
    stage.is_down(1).await;
    stage.is_down(2).await;
    lasts(Duration::from_secs(15)).await;
    stage.cluster.start_nodes(&[1, 2]).await.unwrap();
    // Each of the two services tries again every few seconds.
    stage.finish(2 * 2 * 5).await
}

/// In this state the broker answers 404, as if there were no such queue. Another queue of the same process works meanwhile.
pub(crate) async fn home_node(ground: Ground) -> Account {
    const OTHER: usize = 1;
    let cluster = ground.cluster(3).await;
    let mut lab = ground.lab_at("home-node", &cluster.amqp_url(0));
    lab.work_mut().existing = Some(QueueType::Classic);
    let other = QueueConfig::new(lab.exchange("invoices"));
    lab.config.queues.push(other);
    // A classic queue exists only on the node where it was declared.
    let owner = cluster.client(2).await.unwrap();
    owner.declare_queue(lab.work(), json!({ "x-queue-type": "classic" })).await.unwrap();
    lab.send(50, Does::Succeed).await;
    cluster.stop(2).await.unwrap();
    let mut service = lab.service();
    eventually(SOON, "the service waits", async || service.log().contains("trying again")).await.unwrap();
    let client = lab.client().await;
    eventually(SOON, "the other queue is declared", async || {
        client.depth(&lab.config.queues[OTHER].name).await.is_ok()
    })
    .await
    .unwrap();
    lab.send_to(OTHER, 20, Does::Fail(1), |message| message).await;
    lab.done(20).await;
    cluster.start_node(2).await.unwrap();
    lab.recovers(RECOVERY).await;
    lab.settled(SOON * 2).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

/// One member leaves for good and another one joins, while messages wait in queues that had a replica on the first.
pub(crate) async fn another_member(ground: Ground) -> Account {
    let cluster = ground.cluster(4).await;
    let mut names = Vec::new();
    for node in 0..cluster.nodes() {
        names.push(cluster.rabbitmqctl(node, &["eval", "node()."]).await.unwrap().replace('\'', ""));
    }
    let [leaves, stays, _, comes] = &names[..] else { panic!("a cluster of four: {names:?}") };
    for command in ["stop_app", "reset"] {
        cluster.rabbitmqctl(3, &[command]).await.unwrap();
    }
    let stage = Stage::on(&ground, cluster, "another-member").await;
    let queues = [stage.lab.work().to_owned(), stage.lab.tier(2000), stage.lab.parked(), stage.lab.stray()];
    members(&stage.cluster, &queues, |members| members.contains(leaves) && !members.contains(comes)).await;
    stage.cluster.rabbitmqctl(3, &["join_cluster", stays]).await.unwrap();
    stage.cluster.rabbitmqctl(3, &["start_app"]).await.unwrap();
    grow_or_shrink(stays, &["grow", comes, "all"]);
    members(&stage.cluster, &queues, |members| members.contains(comes)).await;
    grow_or_shrink(stays, &["shrink", leaves]);
    avoid(&stage.cluster, &stage.balancers, 0);
    stage.cluster.stop(0).await.unwrap();
    stage.is_down(0).await;
    stage.cluster.rabbitmqctl(1, &["forget_cluster_node", leaves]).await.unwrap();
    members(&stage.cluster, &queues, |members| !members.contains(leaves) && members.contains(comes)).await;
    stage.finish(2 * 2 * 3).await
}

/// Waits until the members of each of these queues are right, according to node 1.
async fn members(cluster: &Cluster, queues: &[String], right: impl Fn(&str) -> bool) {
    eventually(SOON, "the queues have their members", async || {
        let listed = cluster.rabbitmqctl(1, &["list_queues", "name", "members"]).await.map_err(|e| e.to_string())?;
        let of = |queue: &String| listed.lines().find(|line| line.split_whitespace().next() == Some(queue));
        if queues.iter().all(|queue| of(queue).is_some_and(&right)) { Ok(true) } else { Err(listed) }
    })
    .await
    .unwrap();
}

/// Runs `rabbitmq-queues` in the container of this node, which has the same name as the host.
fn grow_or_shrink(node: &str, args: &[&str]) {
    let container = node.trim_start_matches("rabbit@");
    let line = [&["exec", container, "rabbitmq-queues"], args].concat();
    let output = std::process::Command::new("docker").args(&line).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("error"), "docker {}: {said}", line.join(" "));
}
