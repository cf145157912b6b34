//! The way of one message.

use std::time::Duration;

use rehop::Failure;
use rehop_operator::parked::{Parked, Place, RampSettings, ReplayRequest};
use rehop_testing::{Broker, Publish};
use serde_json::json;

use crate::comparison::{differences, is_producers};
use crate::program::{Client, Program};
use crate::support::{Fixture, SOON, millis};
use crate::wire::Wire;

/// What a client's message has.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) properties: usize,
    pub(crate) headers: usize,
    /// The letters that stand for the types of its headers on the wire.
    pub(crate) types: String,
}

/// Publishes a client's message and lets it travel. Returns what it had, and what has become of it
/// that is not documented.
pub(crate) async fn travel(client: &Client, program: &Program) -> (Sent, Vec<String>) {
    let mut fixture = Fixture::new(client.name).await;
    fixture.retry().immediate = Some(1);
    fixture.retry().delays = millis([100]);
    let (exchange, untouched) =
        (fixture.namespace.exchange("events"), fixture.namespace.queue("untouched"));
    fixture.client.declare_exchange(&exchange, "topic", json!({})).await.unwrap();
    fixture.client.declare_queue(&untouched, json!({ "x-queue-type": "quorum" })).await.unwrap();
    fixture.declare().await;
    for queue in [&fixture.queue, &untouched] {
        fixture.client.bind(queue, &exchange, "order.#", json!({})).await.unwrap();
    }
    // A new quorum queue refuses messages until it has a leader (3.10). The test's client publishes
    // again; the programs do not.
    for queue in [&fixture.queue, &untouched] {
        fixture.client.publish(Publish::to_queue(queue).body("is there a leader?")).await.unwrap();
        fixture.client.drain(queue, 1, SOON).await.unwrap();
    }
    program.publish(&exchange, "order.created").await;
    for queue in [&fixture.queue, &untouched] {
        fixture.has_depth(queue, 1).await;
    }

    pass_through_rehop(&fixture).await;

    let url = Broker::shared().await.amqp_url();
    let (kept, returned) =
        (Wire::look(url, &untouched).await, Wire::look(url, &fixture.queue).await);
    let mut found = differences("on the wire", &kept.to_json(), &returned.to_json());
    found.extend(documented(&kept, &returned));
    for queue in [&fixture.queue, &untouched] {
        // The broker takes a message back a little after it was looked at.
        fixture.has_depth(queue, 1).await;
    }
    let (kept_decoded, returned_decoded) =
        (program.get(&untouched).await, program.get(&fixture.queue).await);
    found.extend(differences("decoded", &kept_decoded, &returned_decoded));
    for queue in [&fixture.queue, &untouched] {
        fixture.has_depth(queue, 0).await;
    }
    let headers = kept.headers.keys().filter(|name| is_producers(name)).count();
    let sent = Sent { properties: kept.properties.len(), headers, types: kept.types() };
    (sent, found)
}

/// A requeue, a wait, another requeue, parking, and a replay.
async fn pass_through_rehop(fixture: &Fixture) {
    let (run, seen) = fixture
        .serve_noting(
            |message| (message.attempt(), message.hop()),
            Err(Failure::transient("not yet")),
        )
        .await;
    fixture.has_depth(&fixture.parked(), 1).await;
    let summary = run.stop().await;
    assert_eq!(seen.all(), [(1, 0), (2, 0), (3, 1), (4, 1)], "its attempts and waits");
    assert_eq!((summary.waited, summary.parked.values().sum::<u64>()), (1, 1));
    let parked = Parked::open(&fixture.settings, Place::queue(&fixture.queue)).unwrap();
    let mut request = ReplayRequest::default();
    // Nothing consumes the queue until the client does, so no canary is waited for.
    (request.ramp, request.follow) = (RampSettings::none(), Duration::ZERO);
    let replayed = parked.replay(&request, |_| {}, std::future::pending()).await.unwrap();
    assert_eq!(replayed.tally.moved, 1);
    fixture.has_depth(&fixture.queue, 1).await;
}

/// What copies change, as documented.
fn documented(kept: &Wire, returned: &Wire) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in ["expiration", "user_id"] {
        if returned.properties.contains_key(name) {
            wrong.push(format!("a copy has {name}"));
        }
    }
    if returned.properties.get("delivery_mode").map(String::as_str) != Some("02") {
        wrong.push("a copy is not persistent".to_owned());
    }
    if kept.properties.contains_key("user_id") && !returned.headers.contains_key("rehop-user-id") {
        wrong.push("no header has the user_id".to_owned());
    }
    wrong
}
