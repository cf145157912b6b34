//! A copy that the broker does not accept is identified and isolated. The others continue, and none
//! is duplicated.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rehop::settings::{Declare, QueueType, TopologyMode};
use rehop::{Failure, Message};
use rehop_testing::{Broker, ClientError, Publish, Received, eventually};

use crate::support::{Fixture, Log, Running, SOON, millis, not_tried};

/// The pause between two tries of a copy is at most 10 s.
const AFTER_THE_LONGEST_PAUSE: Duration = Duration::from_secs(210);

/// Decides by the body: `park` is parked at once, anything else is handled after one wait.
async fn parks_or_waits(fixture: &Fixture, handled: &Log<String>) -> Running {
    let log = handled.clone();
    fixture
        .serve(move |message: Message<Bytes>| {
            let body = String::from_utf8_lossy(message.raw_body()).into_owned();
            let result = match (body.as_str(), message.hop()) {
                ("park", _) => Err(Failure::permanent("to be parked")),
                (_, 0) => Err(Failure::transient("to wait once")),
                (_, _) => {
                    log.push(body);
                    Ok(())
                }
            };
            std::future::ready(result)
        })
        .await
}

fn by_message_id(messages: &[Received]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for message in messages {
        *counts.entry(message.properties.message_id.clone().unwrap_or_default()).or_default() += 1;
    }
    counts
}

/// Each of these was handled, and none of them twice.
fn assert_once_each(handled: &Log<String>, expected: usize) {
    let mut bodies = handled.all();
    bodies.sort_unstable();
    let count = bodies.len();
    bodies.dedup();
    assert_eq!((bodies.len(), count), (expected, expected), "{bodies:?}");
}

/// Starts a service that parks what comes, while the parked queue is full. Returns when it waits
/// for the copies of twelve messages, which were published with the ids 0 to 11, and what it has
/// noted of them.
async fn refused<T: Clone + Send + 'static>(
    fixture: &mut Fixture,
    note: impl Fn(&Message<Bytes>) -> T + Send + Sync + 'static,
) -> (Running, Log<T>) {
    (fixture.consume().prefetch, fixture.consume().concurrency) = (Some(12), Some(12));
    fixture.fill_parked().await;
    let (run, seen) = fixture.serve_noting(note, Err(Failure::permanent("no"))).await;
    let messages = (0..12).map(|n| Publish::to_queue(&fixture.queue).message_id(n.to_string()));
    fixture.client.publish_many(messages).await.unwrap();
    seen.reaches(12).await;
    (run, seen)
}

/// Makes room for these messages, and waits until each of them is parked.
async fn are_parked(fixture: &Fixture) {
    fixture.clear_policy(&fixture.parked()).await;
    let mut parked = Vec::new();
    eventually(AFTER_THE_LONGEST_PAUSE, "each message is parked", async || {
        parked.extend(
            fixture.client.get_all(&fixture.parked()).await.map_err(|error| error.to_string())?,
        );
        parked.retain(|message: &Received| message.text() != Fixture::FILLS);
        let distinct = by_message_id(&parked).len();
        if distinct == 12 { Ok(true) } else { Err(format!("{distinct} of 12")) }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_parked_queue_and_a_consuming_connection_closed_by_an_operator_do_not_stop_a_service()
 {
    let broker = Broker::shared().await;
    if broker.management_url().is_none() {
        return not_tried("a full parked queue, because REHOP_TEST_MANAGEMENT_URL is not set");
    }
    let mut fixture = Fixture::new("operator").await;
    fixture.declare().await;
    let (run, seen) = refused(&mut fixture, |_| ()).await;
    let name = format!("{} consuming", fixture.namespace.name());
    let management = broker.management().unwrap();
    let closes = async || management.close_connections(&name).await.map(|closed| closed == 1);
    eventually(SOON, "the consuming connection is listed, and closed", closes).await.unwrap();
    // The connection was lost while copies were refused, so their messages are delivered again.
    seen.reaches(13).await;
    are_parked(&fixture).await;
    // Later messages are handled.
    fixture.publish("after").await;
    fixture.drain_parked_until("after", AFTER_THE_LONGEST_PAUSE).await;
    run.stop().await;
    assert_eq!(fixture.client.depth(&fixture.queue).await.unwrap(), 0);
}

/// The settings believe in 10 s, and the broker takes nothing back for half an hour. So what it
/// does not take a copy of goes back by rehop alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_copy_is_refused_for_longer_than_the_ack_timeout_is_requeued_and_parked_in_the_end()
 {
    if Broker::shared().await.management_url().is_none() {
        return not_tried("a full parked queue, because REHOP_TEST_MANAGEMENT_URL is not set");
    }
    let mut fixture = Fixture::new("refused-long").await;
    fixture.declare().await;
    let queue = fixture.settings.queue_mut(&fixture.queue);
    (queue.declare, queue.queue_type) = (Declare::Existing, Some(QueueType::Quorum));
    fixture.settings.broker.consumer_timeout = Duration::from_secs(10);
    fixture.consume().handler_timeout = Some(Duration::from_secs(1));
    let (run, seen) = refused(&mut fixture, |message| message.attempt() > 1).await;
    // It comes again only because it was requeued, which the broker counts.
    let comes_again = async || seen.all()[12..].contains(&true);
    eventually(SOON, "a message is redelivered with a count", comes_again).await.unwrap();
    are_parked(&fixture).await;
    // If a message was requeued just as the broker took its copy, it comes once more.
    fixture.has_depth(&fixture.queue, 0).await;
    let summary = run.stop().await;
    assert!(summary.unsettled > 0, "{summary}");
    fixture.has_depth(&fixture.queue, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_may_not_be_published_holds_up_and_multiplies_no_other() {
    if Broker::shared().await.management_url().is_none() {
        not_tried("permissions, because REHOP_TEST_MANAGEMENT_URL is not set");
        return;
    }
    let mut fixture = Fixture::new("no-write").await;
    fixture.declare().await;
    fixture.retry().delays = millis([100]);
    fixture.settings.topology = TopologyMode::Check;
    let all_but_park = format!("^{}\\.(?!park$).*", fixture.namespace.name());
    fixture.limit("no-park", ["^$", &all_but_park, ".*"]).await;
    let queue = fixture.queue.clone();
    let body = |n: u32| if n == 20 { "park".to_owned() } else { n.to_string() };
    fixture
        .client
        .publish_many((0..40).map(|n| Publish::to_queue(&queue).body(body(n))))
        .await
        .unwrap();
    let handled = Log::default();
    let run = parks_or_waits(&fixture, &handled).await;
    handled.reaches(39).await;
    // So are later ones, while the culprit is retried again and again.
    for n in 40..60 {
        fixture.publish(&n.to_string()).await;
        handled.reaches(n).await;
    }
    assert_eq!(fixture.client.depth(&fixture.parked()).await.unwrap(), 0);
    fixture.allow(["^$", ".*", ".*"]).await;
    let parked = fixture.client.drain(&fixture.parked(), 1, AFTER_THE_LONGEST_PAUSE).await.unwrap();
    let summary = run.stop().await;
    assert_eq!((parked.len(), parked[0].text()), (1, "park".to_owned()));
    // Copies that were in flight when the culprit first closed the channel may already have been
    // stored.
    let duplicates = handled.all().len() - 59;
    assert!(duplicates <= 39, "{duplicates} duplicates");
    let mut later: Vec<_> =
        handled.all().into_iter().filter(|body| body.parse().is_ok_and(|n: u32| n >= 40)).collect();
    later.sort_unstable();
    assert_eq!(
        later,
        (40..60).map(|n| n.to_string()).collect::<Vec<_>>(),
        "stored again by a known culprit: {summary:?}"
    );
    assert_eq!(fixture.client.depth(&fixture.queue).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_are_returned_wait_until_they_find_a_queue_and_the_others_pass() {
    let mut fixture = Fixture::new("returned").await;
    fixture.retry().delays = millis([100]);
    // Each waiting copy occupies a handler slot.
    (fixture.consume().prefetch, fixture.consume().concurrency) = (Some(40), Some(40));
    fixture.declare().await;
    fixture.settings.topology = TopologyMode::Check;
    let handled = Log::default();
    let run = parks_or_waits(&fixture, &handled).await;
    // One round shows that the service runs and has finished checking its topology.
    fixture.publish("first").await;
    handled.reaches(1).await;
    let park = format!("{}.park", fixture.namespace.name());
    fixture
        .client
        .unbind(&fixture.parked(), &park, &fixture.queue, serde_json::json!({}))
        .await
        .unwrap();
    fixture.client.delete_queue(&fixture.stray()).await.unwrap();
    let queue = fixture.queue.clone();
    let body = |n: u32| if n.is_multiple_of(4) { "park".to_owned() } else { n.to_string() };
    let messages =
        (0..80).map(|n| Publish::to_queue(&queue).message_id(n.to_string()).body(body(n)));
    fixture.client.publish_many(messages).await.unwrap();
    handled.reaches(61).await;
    assert_eq!(fixture.client.depth(&fixture.parked()).await.unwrap(), 0);
    fixture
        .client
        .bind(&fixture.parked(), &park, &fixture.queue, serde_json::json!({}))
        .await
        .unwrap();
    let parked =
        fixture.client.drain(&fixture.parked(), 20, AFTER_THE_LONGEST_PAUSE).await.unwrap();
    let summary = run.stop().await;
    assert_eq!(by_message_id(&parked).len(), 20, "{summary:?}");
    assert_eq!(
        fixture.client.depth(&fixture.parked()).await.unwrap(),
        0,
        "a returned copy was multiplied"
    );
    assert_once_each(&handled, 61);
    assert_eq!(fixture.client.depth(&fixture.queue).await.unwrap(), 0);
}

/// The service itself declares the missing queues again.
#[tokio::test(flavor = "multi_thread")]
async fn a_topology_that_lost_its_parked_and_stray_queues_is_repaired_when_a_copy_is_returned() {
    let fixture = Fixture::new("repaired").await;
    let run = fixture.serve_always(Err(Failure::permanent("no"))).await;
    fixture.publish("first").await;
    fixture.drain_parked(1).await;
    fixture.client.delete_queue(&fixture.parked()).await.unwrap();
    fixture.client.delete_queue(&fixture.stray()).await.unwrap();
    fixture.publish("second").await;
    fixture.is_declared(&fixture.parked()).await;
    fixture.is_declared(&fixture.stray()).await;
    // If the stray queue is looked for at this moment, it is back first, and keeps the copy.
    let mut kept = Vec::new();
    eventually(SOON, "a copy", async || {
        for queue in [fixture.parked(), fixture.stray()] {
            kept.extend(fixture.client.get_all(&queue).await?);
        }
        Ok::<_, ClientError>(!kept.is_empty())
    })
    .await
    .unwrap();
    run.stop().await;
    assert_eq!(kept.iter().map(Received::text).collect::<Vec<_>>(), ["second"]);
}
