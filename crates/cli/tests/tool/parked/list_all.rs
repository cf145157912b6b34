//! `rehop parked list` without a queue.

use rehop_testing::eventually;
use serde_json::{Value, json};

use super::message;
use crate::broker_api::BrokerApi;
use crate::support::{Fixture, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn without_a_queue_those_in_the_settings_and_those_bound_on_the_broker_are_listed() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("everything").await;
    fixture.park_directly(["one", "two"].map(message)).await;
    api.has_counted(&[&fixture.parked(), &fixture.stray()]).await;

    let found = fixture.tool(&["parked", "list", "--management", api.url()]).finished().await;
    assert_eq!(found.code(), 0, "{}", found.err);
    let (listed, empty) =
        (format!("{}: all 2 messages", fixture.parked()), format!("empty: {}", fixture.stray()));
    assert!(
        found.out.starts_with(&listed) && found.out.trim_end().ends_with(&empty),
        "{}",
        found.out
    );

    let json =
        fixture.tool(&["parked", "list", "--management", api.url(), "--json"]).finished().await;
    let json: Value = serde_json::from_str(&json.out).unwrap();
    let queues: Vec<_> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (&it["queue"], &it["work_queue"], &it["depth"]))
        .collect();
    let (parked, stray, work) =
        (json!(fixture.parked()), json!(fixture.stray()), json!(fixture.queue));
    assert_eq!(queues, [(&parked, &work, &json!(2)), (&stray, &Value::Null, &json!(0))]);

    // Somebody listens.
    let tap = fixture.namespace.queue("tap");
    fixture.client.declare_queue(&tap, json!({ "x-queue-type": "classic" })).await.unwrap();
    let park = format!("{}.park", fixture.namespace.name());
    fixture.client.bind(&tap, &park, "their-key", json!({})).await.unwrap();
    let found = fixture.tool(&["parked", "list", "--management", api.url()]).finished().await;
    let left_out = format!(
        "{empty}\nnot seen: queue {tap:?}: it is bound to {park:?}, and not declared by rehop"
    );
    assert!(
        found.code() == 0 && found.out.trim_end().ends_with(&left_out),
        "{}{}",
        found.out,
        found.err
    );

    let blind = fixture.tool(&["parked", "list"]).finished().await;
    assert_eq!(blind.code(), 0, "{}", blind.err);
    let says =
        format!("{empty}\nnot seen: parked queues of work queues that the settings do not list");
    assert!(
        blind.out.starts_with(&says) && blind.out.contains("--management URL"),
        "{}",
        blind.out
    );

    let unusable =
        fixture.tool(&["parked", "list", "--management", "http://127.0.0.1:1"]).finished().await;
    assert_eq!(unusable.code(), 3, "{}", unusable.err);
    assert!(unusable.out.starts_with(&format!("{empty}\nnot seen: ")), "{}", unusable.out);

    let set = format!("queues=[{{queue={}}}]", fixture.queue);
    let known =
        fixture.tool(&["parked", "list", "--set", &set, "--reason", "permanent"]).finished().await;
    assert!(known.out.starts_with(&format!("{listed}, 0 match")), "{}{}", known.out, known.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_cannot_be_listed_is_named_and_the_others_are_listed() {
    let fixture = Fixture::new("partly").await;
    fixture.park_directly((0..50).map(|n| message(n.to_string()))).await;
    fixture.stray_directly([message("lost")]).await;
    let busy =
        fixture.parked_tool("replay", &["--apply", "--all", "--canary", "0", "--rate", "0.1"]);
    eventually(SOON, "one is sent", async || {
        fixture.client.depth(&fixture.queue).await.map(|depth| depth >= 1)
    })
    .await
    .unwrap();
    let set = format!("queues=[{{queue={}}}]", fixture.queue);
    let listed = fixture.tool(&["parked", "list", "--set", &set]).finished().await;
    assert_eq!(listed.code(), 3, "{}", listed.err);
    assert!(
        listed.out.starts_with(&format!("{}: all 1 messages", fixture.stray())),
        "{}",
        listed.out
    );
    let unseen = format!("not seen: {}: somebody else is working on queue", fixture.parked());
    assert!(listed.out.contains(&unseen), "{}", listed.out);
    busy.signal("INT");
    assert_eq!(busy.finished().await.code(), 3);
}
