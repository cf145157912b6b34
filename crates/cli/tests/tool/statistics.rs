//! Brokers that collect no statistics, or show none: what the management API leaves out is unknown
//! to the tool, and not zero.

use rehop::Failure;
use rehop_testing::{Broker, eventually};
use serde_json::{Value, json};

use super::examined::COUNTED;
use crate::support::{Fixture, millis};

/// A broker that tells how many messages a queue has, and nothing of its consumers.
async fn broker_that_shows_only_totals() -> Broker {
    let builder = Broker::builder().conf("management.disable_stats = true");
    builder.conf("management.enable_queue_totals = true").start().await.unwrap()
}

async fn broker_that_counts_nothing() -> Broker {
    let builder = Broker::builder().conf("management_agent.disable_metrics_collector = true");
    builder.start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_queue_in_use_stays_where_the_broker_does_not_show_who_consumes() {
    let broker = broker_that_shows_only_totals().await;
    a_wait_queue_in_use_stays(broker, "unshown", &json!(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_queue_in_use_stays_where_the_broker_counts_nothing() {
    let broker = broker_that_counts_nothing().await;
    a_wait_queue_in_use_stays(broker, "uncounted", &Value::Null).await;
}

/// `messages`: how many the tool knows of in the wait queue.
async fn a_wait_queue_in_use_stays(broker: Broker, name: &str, messages: &Value) {
    let mut fixture = Fixture::at(name, broker.amqp_url()).await;
    fixture.settings.retry.delays = millis([700]);
    let (running, seen) =
        fixture.serve_noting(|message| message.attempt(), Err(Failure::transient("no"))).await;
    fixture.publish("x").await;
    seen.reaches(1).await;
    fixture.drain_parked(1).await;
    fixture.settings.retry.delays = millis([100]);
    fixture.declare().await;
    let tier = format!("{}.wait.700", fixture.namespace.name());
    let look = ["--management", broker.management_url().unwrap()];
    let prune = async |more: &[&str]| fixture.topology("prune", &[&look[..], more].concat()).await;
    eventually(COUNTED, "no more is known of it", async || {
        let listed = prune(&["--json"]).await;
        let unused: Value = serde_json::from_str(&listed.out).map_err(|_| listed.err)?;
        let told = json!([unused[0]["messages"], unused[0]["verdict"]]);
        if told == json!([messages, "not_counted"]) { Ok(true) } else { Err(unused.to_string()) }
    })
    .await
    .unwrap();
    for more in [&["--apply"][..], &["--apply", "--even-if-used"]] {
        let pruned = prune(more).await;
        let kept = format!("queue {tier} is kept: ");
        assert!(pruned.out.contains(&kept), "{more:?}: {}{}", pruned.out, pruned.err);
    }
    // It still takes messages that fail.
    fixture.publish("y").await;
    fixture.drain_parked(1).await;
    assert_eq!(fixture.client.depth(&fixture.stray()).await.unwrap(), 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_consumers_and_alarms_that_are_not_shown_are_said_to_be_unseen() {
    let broker = broker_that_counts_nothing().await;
    let fixture = Fixture::at("untold", broker.amqp_url()).await;
    let running = fixture.serve_always(Ok(())).await;
    let (name, definition) = (fixture.namespace.name(), json!({ "message-ttl": 3_600_000 }));
    let pattern = format!("^{}$", fixture.queue.replace('.', "\\."));
    broker.management().unwrap().set_policy(name, &pattern, definition).await.unwrap();
    let look = ["--management", broker.management_url().unwrap()];
    // A policy is in effect some time after it is set. 4.3 shows it all the same.
    let examined = eventually(COUNTED, "the policy is found or unseen", async || {
        let finished = fixture.doctor(&look).await;
        let report: Value =
            serde_json::from_str(&finished.out).map_err(|_| finished.err.clone())?;
        let has = |list: &str, text: &str| {
            report[list].as_array().unwrap().iter().any(|it| it.to_string().contains(text))
        };
        let policies =
            has("unseen", "the policies that apply to queues") || has("findings", "message-ttl");
        let unseen = ["messages that cannot be dead-lettered", "the consumers", "of nodes"];
        let all = policies && unseen.iter().all(|text| has("unseen", text));
        let untrue = has("findings", "no-consumer") || has("findings", "node-down");
        if all && !untrue { Ok(true) } else { Err(finished.out) }
    });
    examined.await.unwrap();
    running.stop().await;
}
