//! `rehop doctor` at a cluster that loses its nodes.

use rehop::Topology;
use rehop::settings::Declare;
use rehop::testing::{BrokerError, Cluster, eventually};
use serde_json::{Value, json};

use super::examined::COUNTED;
use crate::support::{Fixture, not_tried};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_down_and_queues_with_too_few_members_are_found() {
    let cluster = match Cluster::start(3).await {
        Err(error @ BrokerError::ClusterNeedsDocker { .. }) => {
            return not_tried(&format!("a cluster: {error}"));
        }
        cluster => cluster.unwrap(),
    };
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
    let mut declared = fixture.settings.clone();
    declared.queue_mut(queue).declare = Declare::Existing;
    Topology::of(&declared).unwrap().declare(&declared).await.unwrap();
    fixture.is_found(&look, &[("few-members", queue)]).await;
    eventually(COUNTED, "a cluster of three gets no other complaint", async || {
        let found = fixture.findings(&look).await;
        let is_fine = found.iter().all(|(check, _)| check == "few-members" || check == "no-consumer");
        if is_fine { Ok(true) } else { Err(format!("{found:?}")) }
    })
    .await
    .unwrap();

    let (member, outsider) = if has_member(&cluster, queue, 1).await { (1, 2) } else { (2, 1) };
    // A classic queue exists only on the node where it was declared.
    let home = Fixture::at("home", &cluster.amqp_url(0)).await;
    let classic = home.queue.as_str();
    let owner = cluster.client(outsider).await.unwrap();
    owner.declare_queue(classic, json!({ "x-queue-type": "classic" })).await.unwrap();
    cluster.kill(outsider).await.unwrap();
    let parked = fixture.parked();
    // Two members are few where three nodes run, and an even number where two do.
    let expected = [("node-down", "node "), ("member-down", parked.as_str()), ("even-members", queue)];
    fixture.is_found(&look, &expected).await;
    let existing = format!("queues=[{{queue={classic:?},declare=existing}}]");
    home.is_found(&["--set", &existing], &[("queue-unavailable", classic)]).await;
    cluster.kill(member).await.unwrap();
    fixture.is_found(&look, &[("without-majority", &parked)]).await;
}

/// Whether this node has a member of the queue.
async fn has_member(cluster: &Cluster, queue: &str, node: usize) -> bool {
    let listed = cluster.rabbitmqctl(0, &["list_queues", "--formatter", "json", "name", "members"]).await.unwrap();
    let queues: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let members = queues.iter().find(|it| it["name"] == queue).unwrap()["members"].as_array().unwrap();
    members.iter().any(|member| member.as_str().unwrap().ends_with(&format!("-{node}")))
}
