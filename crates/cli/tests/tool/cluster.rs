//! The tool at a cluster that loses its nodes, or whose network is cut. `make nightly` runs these
//! tests.

use std::time::Duration;

use rehop_testing::{BrokerError, Cluster, eventually};
use serde_json::{Value, json};

use super::examined::COUNTED;
use super::poor_views::{CHAIN, Ground, View};
use crate::support::{Fixture, SOON, not_tried};

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

/// Waits until the broker has counted what is in these wait queues, and sees that nothing uses them.
async fn wait_until_removable(ground: &Ground, url: &str, delays: &[u64]) {
    let prune = ["topology", "prune", "--queue", &ground.fixture.queue, "--json", "--management"];
    eventually(COUNTED, "the wait queues are known to be unused", async || {
        let listed = ground.fixture.tool(&[&prune[..], &[url]].concat()).finished().await;
        let unused: Value = serde_json::from_str(&listed.out).map_err(|_| listed.err)?;
        let is_removable = |delay: &u64| {
            unused.as_array().into_iter().flatten().any(|it| {
                it["name"] == ground.tier(*delay).as_str() && it["verdict"] == "removable"
            })
        };
        if delays.iter().all(is_removable) { Ok(true) } else { Err(unused.to_string()) }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_works_without_one_of_three_nodes_and_deletes_nothing_without_two() {
    let Some(cluster) = cluster().await else { return };
    let fixture = Fixture::at("act-down", &cluster.amqp_url(0)).await;
    let mut ground = Ground::with_unused(fixture, &[900, 1_000]).await;
    let url = cluster.management_url(0);
    let view = View {
        url: &url,
        whose: "two of three nodes".to_owned(),
        policies_unseen: None,
        kept_because: None,
        is_refused: false,
    };
    wait_until_removable(&ground, &url, &[900, 1_000]).await;
    let discarded = format!("{}.discarded", ground.fixture.namespace.name());
    let management = cluster.management(0).unwrap();
    eventually(COUNTED, "the broker tells of the newest queue", async || {
        let told = management.queue(&discarded).await;
        told.map(|queue| !queue["effective_policy_definition"].is_null())
    })
    .await
    .unwrap();
    cluster.kill(2).await.unwrap();
    ground
        .fixture
        .is_found_with(
            &["--management", &url],
            &[("node-down", "node ")],
            &[("member-down", ""), ("even-members", ""), ("unused-tier", ""), ("limit-near", "")],
        )
        .await;
    wait_until_removable(&ground, &url, &[900, 1_000]).await;
    ground.prunes(&view, 900).await;
    ground.topology_works(&view).await;
    ground.lists(&view).await;
    ground.parked_works(&view).await;

    let exported = ground.exports(&view, "before").await;
    cluster.kill(1).await.unwrap();
    let tier = ground.tier(1_000);
    eventually(COUNTED, "the broker knows that the majority is gone", async || {
        let queue = management.queue(&tier).await.map_err(|error| error.to_string())?;
        // 3.10 has no such state, and a current list of the members.
        let is_alone = queue["online"].as_array().is_some_and(|online| online.len() < 2);
        Ok::<_, String>(queue["state"] == "minority" || is_alone)
    })
    .await
    .unwrap();
    // Commands wait this long for each queue without a majority.
    ground.fixture.settings.broker.timeout = Duration::from_secs(3);
    let queue = ground.fixture.queue.as_str();
    for command in [
        &["topology", "prune", "--queue", queue, "--apply", "--delay", "1s"][..],
        &["topology", "declare", "--queue", queue],
        &["topology", "plan", "--queue", queue],
        &["topology", "verify", "--queue", queue],
        &["doctor", "--queue", queue],
        &["parked", "list"],
        &["parked", "show", "--queue", queue, CHAIN],
        &["parked", "discard", "--queue", queue, "--apply", "--all"],
        &["parked", "replay", "--queue", queue, "--apply", "--all"],
        &["parked", "import", "--queue", queue, exported.as_str(), "--apply"],
    ] {
        let command = [command, &["--management", url.as_str()][..]].concat();
        let finished = ground.fixture.tool(&command).finished_within(COUNTED).await;
        let said = format!("{}{}", finished.out, finished.err);
        // To compare with what exists, or (before 4.3) to declare it again, takes no majority.
        let of_what_exists = ["plan", "declare", "verify"];
        let is_of_what_exists = of_what_exists.iter().any(|it| command.contains(it));
        // A prune succeeds, and says what it keeps and why.
        let is_prune = command.contains(&"prune");
        let names = |what: &str| said.contains(what);
        let is_said = names("majority") && (is_prune || [1, 3].contains(&finished.code()));
        assert!(is_of_what_exists || is_said, "{command:?}: {said}");
        assert!([0, 1, 3].contains(&finished.code()), "{command:?}: {said}");
        for never in ["panicked", "is deleted", "unbound", "1 imported"] {
            assert!(!names(never), "{command:?}: {said}");
        }
    }
    cluster.start_nodes(&[1, 2]).await.unwrap();
    let client = cluster.client(0).await.unwrap();
    for (queue, depth) in [(tier, 0), (ground.fixture.parked(), 1)] {
        let is_whole = async || client.depth(&queue).await.map(|found| found == depth);
        eventually(SOON, "what was there is still there", is_whole).await.unwrap();
    }
    ground.running.stop().await;
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
