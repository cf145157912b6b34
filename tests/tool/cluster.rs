//! `rehop doctor` at a cluster that loses its nodes.

use rehop::Topology;
use rehop::settings::Declare;
use rehop::testing::{BrokerError, Cluster, eventually};
use serde_json::json;

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
        "x-queue-type": "quorum", "x-quorum-initial-group-size": 1, "x-delivery-limit": 10,
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

    cluster.kill(2).await.unwrap();
    let parked = fixture.parked();
    fixture.is_found(&look, &[("node-down", "node "), ("member-down", &parked)]).await;
    cluster.kill(1).await.unwrap();
    fixture.is_found(&look, &[("without-majority", &parked)]).await;
}
