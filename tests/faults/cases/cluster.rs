//! A cluster of three loses nodes while messages expire.

use std::time::Duration;

use rehop::settings::{QueueType, WaitStrategy};
use rehop_testing::{Client, Cluster, Proxy, eventually};
use serde_json::json;

use crate::evidence::lasts;
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::load::Load;
use crate::record::Step;
use crate::service::{Does, QueueConfig, Service};

/// How long a recovery may take from the end of the fault.
const RECOVERY: Duration = SOON;

/// How many messages of a queue a process holds at most.
const PREFETCH: u16 = 20;

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
        Self::on(ground, ground.cluster(3).await, name, Vec::new()).await
    }

    /// The services consume these `others` beside the first queue. Their names follow the
    /// namespace.
    async fn on(ground: &Ground, cluster: Cluster, name: &str, others: Vec<QueueConfig>) -> Self {
        let balancers = balancers(&cluster).await;
        let mut lab = lab(ground, &cluster, &balancers, name);
        lab.work_mut().delays = vec![2000, 2000];
        for other in others {
            let name = lab.exchange(&other.name);
            lab.config.queues.push(QueueConfig { name, ..other });
        }
        for queue in &mut lab.config.queues {
            (queue.delivery_limit, queue.prefetch) = (20, PREFETCH);
        }
        lab.declare().await;
        let services = services(&lab, &balancers);
        let load = lab.load(50);
        lab.done(100).await;
        Self { cluster, balancers, lab, services, load }
    }

    /// Kills the node that leads this queue, and returns it.
    async fn kill_leader_of(&self, queue: &str) -> usize {
        let leader = leader_of(&self.cluster, queue, None).await;
        avoid(&self.cluster, &self.balancers, leader);
        self.cluster.kill(leader).await.unwrap();
        self.is_down(leader).await;
        leader
    }

    /// Starts the node again that led this queue, once another one leads it.
    async fn replace_leader_of(&self, queue: &str, dead: usize) {
        leader_of(&self.cluster, queue, Some(dead)).await;
        self.cluster.start_node(dead).await.unwrap();
        self.cluster.wait_until_formed().await.unwrap();
    }

    /// Refuses all clients.
    async fn is_down(&self, node: usize) {
        let answer = Client::connect(&self.cluster.amqp_url(node)).await;
        assert!(answer.is_err(), "node {node} is down");
    }

    /// `losses` is how often the faults have cut a service off, or made it wait in vain.
    async fn finish(mut self, losses: usize) -> Account {
        self.lab.recovers_from_a_dead_node(RECOVERY).await;
        self.load.stop().await;
        self.lab.settled(SOON * 4).await;
        for service in &mut self.services {
            service.stop().await;
        }
        let held = self.lab.config.queues.len() * usize::from(PREFETCH);
        self.lab.close(Allowed::losses(losses, held)).await
    }
}

/// A part of the cluster, which the test reaches at the third node.
fn lab(ground: &Ground, cluster: &Cluster, balancers: &[Proxy], name: &str) -> Lab {
    let admin = balancers[2].url_for(&cluster.amqp_url(2)).unwrap();
    let mut lab = ground.lab_at(name, &admin);
    lab.notices_silence();
    lab
}

/// One at each of the other two nodes.
fn services(lab: &Lab, balancers: &[Proxy]) -> Vec<Service> {
    balancers[..2].iter().map(|proxy| lab.service_with(&lab.behind(proxy))).collect()
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

/// The node that leads this queue, as soon as it is known and not the `dead` one. A new leader
/// serves its clients before the broker lists it.
pub(super) async fn leader_of(cluster: &Cluster, queue: &str, dead: Option<usize>) -> usize {
    eventually(SOON, &format!("{queue} has a leader that lives"), async || {
        cluster
            .leader_of(queue)
            .await
            .map(|leader| Some(leader).filter(|&leader| Some(leader) != dead))
    })
    .await
    .unwrap()
}

/// The messages of one queue wait in tiers, and those of another one on the ladder. In the long
/// form, those of a third one wait in their queue itself.
pub(crate) async fn leaders(ground: Ground) -> Account {
    // Each wait takes the rung of 2 s, and then the one of 1 s.
    let (strategy, delays) = (WaitStrategy::Ladder, vec![3000, 3000]);
    let on_ladder = QueueConfig { strategy, delays, ..QueueConfig::new("payments".to_owned()) };
    let stage = Stage::on(&ground, ground.cluster(3).await, "leaders", vec![on_ladder]).await;
    let (tier, rung) = (stage.lab.tier(2000), stage.lab.rung(2000));
    let mut killed = Vec::new();
    for queue in [stage.lab.work(), &tier, &rung, &stage.lab.parked()] {
        if queue == tier || queue == rung {
            is_in_use(&stage.lab, queue).await;
        }
        let leader = stage.kill_leader_of(queue).await;
        killed.push(leader.to_string());
        stage.lab.recovers_from_a_dead_node(RECOVERY).await;
        stage.replace_leader_of(queue, leader).await;
    }
    let mut native = Account::default();
    if ground.long && ground.is("4.3").await {
        let (leader, account) = while_messages_wait_in_their_queue(&ground, &stage).await;
        killed.push(leader.to_string());
        native = account;
    }
    // Each kill is seen by both services: by its own node's end, or by a new leader.
    let mut account = stage.finish(killed.len() * 2 * 2).await;
    account.add(&native);
    account.with_note(format!("nodes {} were killed", killed.join(", ")))
}

/// Waits until messages wait in this queue.
async fn is_in_use(lab: &Lab, queue: &str) {
    let client = lab.client().await;
    let depth = async || client.depth(queue).await.map(|depth| depth > 0);
    eventually(SOON, &format!("messages wait in {queue}"), depth).await.unwrap();
}

/// The leader of a queue dies while all its messages wait in it, by delayed retries (4.3). No
/// process holds one of them, so each has the attempts that it would have had, and ends once.
/// Returns the node that was killed.
async fn while_messages_wait_in_their_queue(ground: &Ground, stage: &Stage) -> (usize, Account) {
    const WAITING: usize = 40;
    let Stage { cluster, balancers, .. } = stage;
    let mut lab = lab(ground, cluster, balancers, "leaders-native");
    // Until a quorum queue is listed with what it holds, some seconds pass.
    (lab.work_mut().strategy, lab.work_mut().delays) = (WaitStrategy::Native, vec![30_000]);
    lab.declare().await;
    let mut services = services(&lab, balancers);
    lab.send(WAITING, Does::Fail(1)).await;
    lab.failed(WAITING).await;
    let all = WAITING.to_string();
    eventually(SOON, "all messages wait in their queue", async || {
        let columns =
            ["list_queues", "name", "messages", "messages_ready", "messages_unacknowledged"];
        let listed = cluster.rabbitmqctl(2, &columns).await.map_err(|error| error.to_string())?;
        let wanted = [lab.work(), all.as_str(), "0", "0"];
        if listed.lines().any(|line| line.split_whitespace().eq(wanted)) {
            Ok(true)
        } else {
            Err(listed)
        }
    })
    .await
    .unwrap();
    let leader = stage.kill_leader_of(lab.work()).await;
    assert_eq!(lab.count(Step::Started), WAITING, "none was due before the leader was dead");
    lab.settled(SOON * 2).await;
    stage.replace_leader_of(lab.work(), leader).await;
    for service in &mut services {
        service.stop().await;
    }
    (leader, lab.close(Allowed::nothing()).await.of("messages that wait in their queue"))
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
    stage.lab.recovers_from_a_dead_node(RECOVERY).await;
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

/// In this state the broker answers 404, as if there were no such queue. Another queue of the same
/// process works meanwhile.
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
    eventually(SOON, "the service waits", async || {
        service.log().contains("not consuming; retrying")
    })
    .await
    .unwrap();
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

/// One member leaves for good and another one joins, while messages wait in queues that had a
/// replica on the first.
pub(crate) async fn another_member(ground: Ground) -> Account {
    let cluster = ground.cluster(4).await;
    let mut names = Vec::new();
    for node in 0..cluster.nodes() {
        names
            .push(cluster.rabbitmqctl(node, &["eval", "node()."]).await.unwrap().replace('\'', ""));
    }
    let [leaves, stays, _, comes] = &names[..] else { panic!("a cluster of four: {names:?}") };
    for command in ["stop_app", "reset"] {
        cluster.rabbitmqctl(3, &[command]).await.unwrap();
    }
    let stage = Stage::on(&ground, cluster, "another-member", Vec::new()).await;
    let queues =
        [stage.lab.work().to_owned(), stage.lab.tier(2000), stage.lab.parked(), stage.lab.stray()];
    members(&stage.cluster, &queues, |members| {
        members.contains(leaves) && !members.contains(comes)
    })
    .await;
    stage.cluster.rabbitmqctl(3, &["join_cluster", stays]).await.unwrap();
    stage.cluster.rabbitmqctl(3, &["start_app"]).await.unwrap();
    grow_or_shrink(stays, &["grow", comes, "all"]);
    members(&stage.cluster, &queues, |members| members.contains(comes)).await;
    grow_or_shrink(stays, &["shrink", leaves]);
    avoid(&stage.cluster, &stage.balancers, 0);
    stage.cluster.stop(0).await.unwrap();
    stage.is_down(0).await;
    stage.cluster.rabbitmqctl(1, &["forget_cluster_node", leaves]).await.unwrap();
    members(&stage.cluster, &queues, |members| {
        !members.contains(leaves) && members.contains(comes)
    })
    .await;
    stage.finish(2 * 2 * 3).await
}

/// Waits until the members of each of these queues are right, according to node 1.
async fn members(cluster: &Cluster, queues: &[String], right: impl Fn(&str) -> bool) {
    eventually(SOON, "the queues have their members", async || {
        let listed = cluster
            .rabbitmqctl(1, &["list_queues", "name", "members"])
            .await
            .map_err(|e| e.to_string())?;
        let of = |queue: &String| {
            listed.lines().find(|line| line.split_whitespace().next() == Some(queue))
        };
        if queues.iter().all(|queue| of(queue).is_some_and(&right)) {
            Ok(true)
        } else {
            Err(listed)
        }
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
    assert!(
        output.status.success() && !said.contains("error"),
        "docker {}: {said}",
        line.join(" ")
    );
}
