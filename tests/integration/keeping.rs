//! The topology is kept declared while a service runs, each part of it for itself.

use rehop::Failure;
use rehop_testing::eventually;
use serde_json::json;

use crate::support::{Fixture, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_queue_that_cannot_be_declared_keeps_nothing_else_from_being_declared_and_consumed_again()
 {
    let (fixture, proxy) = Fixture::behind_proxy("part-fails").await;
    let run = fixture.serve_always(Err(Failure::permanent("no"))).await;
    fixture.publish("first").await;
    fixture.drain_parked(1).await;
    let (own, park) = (fixture.namespace.name(), format!("{}.park", fixture.namespace.name()));
    let (first, second) = (format!("{own}.wait.100"), format!("{own}.wait.200"));
    fixture.client.delete_queue(&first).await.unwrap();
    fixture.client.declare_queue(&first, json!({ "x-queue-type": "classic" })).await.unwrap();
    fixture.client.delete_queue(&second).await.unwrap();
    fixture.client.unbind(&fixture.parked(), &park, &fixture.queue, json!({})).await.unwrap();
    let connections = proxy.accepted();
    proxy.cut();
    eventually(SOON, "the service connects again", async || proxy.accepted() > connections)
        .await
        .unwrap();
    fixture.is_declared(&second).await;
    fixture.publish("second").await;
    // Its binding is there again.
    fixture.drain_parked_until("second", SOON).await;
    run.stop().await;
}
