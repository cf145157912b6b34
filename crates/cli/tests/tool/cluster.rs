//! `rehop doctor` at a cluster that loses its nodes, or whose network is cut. `make nightly` runs
//! these tests.

use rehop_testing::{BrokerError, Cluster, eventually};
use serde_json::{Value, json};

use super::examined::COUNTED;
use crate::support::{Fixture, not_tried};

/// Three nodes, or `None` where no cluster can be started.
async fn cluster() -> Option<Cluster> {
    match Cluster::start(3).await {
        Err(error @ BrokerError::ClusterNeedsDocker { .. }) => {
            not_tried(&format!("a cluster: {error}"));
            None
        }
        cluster => Some(cluster.unwrap()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_down_and_queues_with_too_few_members_are_found() {
    let Some(cluster) = cluster().await else { return };
    let fixture = Fixture::at("cluster", &cluster.amqp_url(0)).await;
    let url = cluster.management_url(0);
    let queue = fixture.queue.as_str();
    let listed = format!("queues=[{{queue={queue:?},declare=existing,queue_type=quorum}}]");
    let look = ["--management", url.as_str(), "--set", &listed];
    // Only its owner can have given it so few members.
    let few = json!({
        "x-queue-type": "quorum", "x-quorum-initial-group-size": 2, "x-delivery-limit": 10,
        "x-dead-letter-exchange": format!("{}.park", fixture.namespace.name()), "x-dead-letter-routing-key": queue,
        "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    });
    fixture.client.declare_queue(queue, few).await.unwrap();
    fixture.declare_the_rest().await;
    fixture.is_found(&look, &[("few-members", queue)]).await;

    let (member, outsider) = if has_member(&cluster, queue, 1).await { (1, 2) } else { (2, 1) };
    // A classic queue exists only on the node where it was declared.
    let home = Fixture::at("home", &cluster.amqp_url(0)).await;
    let classic = home.queue.as_str();
    let owner = cluster.client(outsider).await.unwrap();
    owner.declare_queue(classic, json!({ "x-queue-type": "classic" })).await.unwrap();
    cluster.kill(outsider).await.unwrap();
    let (name, parked) = (fixture.namespace.name(), fixture.parked());
    // Two members are few where three nodes run, and an even number where two do.
    let expected =
        [("node-down", "node "), ("member-down", parked.as_str()), ("even-members", queue)];
    // The other queues have three members as well.
    fixture.is_found_with(&look, &expected, &[("member-down", name)]).await;
    let existing = format!("queues=[{{queue={classic:?},declare=existing}}]");
    // Nothing else of this namespace was declared.
    let missing =
        [("exchange-missing", home.namespace.name()), ("queue-missing", home.namespace.name())];
    home.is_found_with(&["--set", &existing], &[("queue-unavailable", classic)], &missing).await;
    cluster.kill(member).await.unwrap();
    // What has no majority may not answer.
    let consequences = [
        ("node-down", "node "),
        ("without-majority", name),
        ("queue-unavailable", name),
        ("even-members", queue),
    ];
    fixture.is_found_with(&look, &[("without-majority", &parked)], &consequences).await;
}

/// Nodes that find each other again are one cluster on 4.3. Before, each side keeps what it has
/// decided alone, until one of them is restarted.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_is_found_and_so_is_the_partition_that_it_leaves_behind_before_4_3()
{
    let Some(cluster) = cluster().await else { return };
    let fixture = Fixture::at("partition", &cluster.amqp_url(0)).await;
    let url = cluster.management_url(0);
    let (name, look) = (fixture.namespace.name(), ["--management", url.as_str()]);
    // Nothing was declared, and a side of the partition takes the nodes of the other for stopped.
    let others = [("exchange-missing", name), ("queue-missing", name), ("node-down", "node ")];
    cluster.disconnect(2).await.unwrap();
    fixture.is_found_with(&look, &[("node-down", "node ")], &others[..2]).await;
    cluster.reconnect(2).await.unwrap();
    if !cluster.rabbitmqctl(0, &["version"]).await.unwrap().starts_with("4.3.") {
        return fixture.is_found_with(&look, &[("partition", "node ")], &others).await;
    }
    eventually(COUNTED, "the nodes see each other again", async || {
        let found = fixture.findings(&look).await;
        let is_healed = found.iter().all(|(check, _)| check != "node-down" && check != "partition");
        if is_healed { Ok(true) } else { Err(format!("{found:?}")) }
    })
    .await
    .unwrap();
}

/// Whether this node has a member of the queue.
async fn has_member(cluster: &Cluster, queue: &str, node: usize) -> bool {
    let listed = cluster
        .rabbitmqctl(0, &["list_queues", "--formatter", "json", "name", "members"])
        .await
        .unwrap();
    let queues: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let members =
        queues.iter().find(|it| it["name"] == queue).unwrap()["members"].as_array().unwrap();
    members.iter().any(|member| member.as_str().unwrap().ends_with(&format!("-{node}")))
}
