//! Copies that the broker refuses until the ack timeout is nearly over. The tests in `publishing`
//! show what becomes of others.

use std::time::Duration;

use rehop::settings::{Order, WaitStrategy};
use rehop::{Failure, Reason};
use rehop_testing::{Broker, Received, eventually};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::support::frame_hold::Held;
use crate::support::{Fixture, Log, Running, SOON, are_held_by_the_broker, millis, not_tried};

/// How long the next message must not start while a reject is held back. Any wait of a fixed
/// length, such as the 200 ms after a settlement, is over by then.
const HELD_BACK: Duration = Duration::from_secs(1);

/// A broker of these tests' own. Others try every three minutes to dead-letter what was refused;
/// this one does so each second.
async fn impatient_broker() -> &'static Broker {
    static BROKER: OnceCell<Broker> = OnceCell::const_new();
    let start = async || {
        let broker = Broker::builder().own().start().await.unwrap();
        let sooner =
            "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, 1000).";
        broker.rabbitmqctl(&["eval", sooner]).await.unwrap();
        broker
    };
    BROKER.get_or_init(start).await
}

/// A queue of rehop's own with this ack timeout. `None` where only a broker's address is known, so
/// that no parked queue can be filled.
async fn own(test: &str, ack_timeout: Duration) -> Option<Fixture> {
    if !Broker::shared().await.has_rabbitmqctl() {
        not_tried("a full parked queue, because rabbitmqctl cannot be run");
        return None;
    }
    let mut fixture = Fixture::on(impatient_broker().await, test).await;
    fixture.settings.broker.consumer_timeout = ack_timeout;
    // A busy machine may take a while to connect again.
    fixture.settings.broker.timeout = Duration::from_secs(10);
    fixture.settings.consume.handler_timeout = Some(Duration::from_millis(500));
    Some(fixture)
}

/// The same, ordered by the header `customer`, with a full parked queue. The ack timeout of an
/// ordered queue is at least a minute, and a copy has half of it.
async fn ordered(test: &str) -> Option<Fixture> {
    let mut fixture = own(test, Duration::from_secs(65)).await?;
    fixture.retry().strategy = Some(WaitStrategy::InProcess);
    fixture.retry().delays = millis([100]);
    fixture.consume().order = Some(Order::Header("customer".to_owned()));
    (fixture.consume().prefetch, fixture.consume().concurrency) = (Some(6), Some(6));
    fixture.declare().await;
    fixture.fill_parked().await;
    Some(fixture)
}

/// Publishes a message of the customer that its body begins with.
async fn publish(fixture: &Fixture, body: &str) {
    let message = fixture.to_queue().body(body).header("customer", &body[..1]);
    fixture.client.publish(message).await.unwrap();
}

/// Those of this customer among the bodies that were seen.
fn of<'a>(customer: &str, seen: &'a [String]) -> Vec<&'a str> {
    seen.iter().map(String::as_str).filter(|body| body.starts_with(customer)).collect()
}

/// Waits until the broker holds so many messages of the work queue that no consumer can get: they
/// are to be dead-lettered.
async fn cannot_be_parked(fixture: &Fixture, count: usize) {
    let management = impatient_broker().await.management().unwrap();
    let what = "the broker holds what it cannot park";
    eventually(SOON, what, async || {
        are_held_by_the_broker(&management, &fixture.queue, count).await
    })
    .await
    .unwrap();
}

/// Makes the parked queue accept messages again, by a higher limit. Without any limit, 3.10 would
/// go on refusing the dead letters of a queue that it has refused before.
async fn make_room(fixture: &Fixture) {
    fixture
        .set_policy(&fixture.parked(), json!({ "max-length": 1000, "overflow": "reject-publish" }))
        .await;
}

/// What was parked, without the messages that filled the queue.
async fn parked(fixture: &Fixture, count: usize) -> Vec<Received> {
    let mut parked = Vec::new();
    eventually(SOON, "each message is parked", async || {
        parked.extend(
            fixture.client.get_all(&fixture.parked()).await.map_err(|error| error.to_string())?,
        );
        parked.retain(|message: &Received| message.text() != Fixture::FILLS);
        if parked.len() == count { Ok(true) } else { Err(format!("{} of {count}", parked.len())) }
    })
    .await
    .unwrap();
    parked
}

async fn parked_by_the_broker(fixture: &Fixture, count: usize) -> Vec<Received> {
    make_room(fixture).await;
    let parked = parked(fixture, count).await;
    for message in &parked {
        assert_eq!(message.headers["x-death"][0]["reason"], "rejected");
        assert!(!message.headers.contains_key("rehop-reason"), "it is no copy");
    }
    parked
}

/// Notes each attempt by its body, and parks what begins with this.
async fn serve(fixture: &Fixture, seen: &Log<String>, parks: &'static str) -> Running {
    let log = seen.clone();
    let handler = move |message: rehop::Message<bytes::Bytes>| {
        let body = String::from_utf8_lossy(message.raw_body()).into_owned();
        let result = if body.starts_with(parks) { Err(Failure::permanent("no")) } else { Ok(()) };
        log.push(body);
        std::future::ready(result)
    };
    fixture.serve(handler).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_parked_queue_refuses_for_too_long_is_left_to_the_broker_and_no_handler_runs_again()
 {
    let Some(mut fixture) = own("late-parks", Duration::from_secs(30)).await else { return };
    (fixture.consume().prefetch, fixture.consume().concurrency) = (Some(6), Some(6));
    fixture.declare().await;
    fixture.fill_parked().await;
    let seen = Log::default();
    let run = serve(&fixture, &seen, "no").await;
    for number in 0..6 {
        fixture.publish(&format!("no {number}")).await;
    }
    seen.reaches(6).await;
    cannot_be_parked(&fixture, 6).await;
    // The handlers' slots are free again.
    fixture.publish("yes").await;
    seen.reaches(7).await;
    parked_by_the_broker(&fixture, 6).await;
    let summary = run.stop().await;
    assert_eq!(
        (summary.parked[&Reason::Permanent], summary.handled, summary.unsettled),
        (6, 1, 0),
        "{summary}"
    );
    fixture.has_depth(&fixture.queue, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_an_ordered_queue_those_behind_what_the_parked_queue_refuses_go_on_before_all_go_back() {
    let Some(fixture) = ordered("late-ordered").await else { return };
    for body in ["a-no", "a1", "a2", "b1", "b2"] {
        publish(&fixture, body).await;
    }
    let seen = Log::default();
    let run = serve(&fixture, &seen, "a-no").await;
    let seen = seen.reaches(5).await;
    let (of_a, of_b) = (of("a", &seen), of("b", &seen));
    assert_eq!(
        (of_a, of_b),
        (vec!["a-no", "a1", "a2"], vec!["b1", "b2"]),
        "each runs once, in its order"
    );
    cannot_be_parked(&fixture, 1).await;
    assert_eq!(parked_by_the_broker(&fixture, 1).await[0].text(), "a-no");
    let summary = run.stop().await;
    assert_eq!(
        (summary.parked[&Reason::Permanent], summary.handled, summary.unsettled),
        (1, 4, 0),
        "{summary}"
    );
    fixture.has_depth(&fixture.queue, 0).await;
}

/// The connection is cut before the first reject reaches the broker, which therefore delivers the
/// message again. The acks that follow the reject are lost with it.
#[tokio::test(flavor = "multi_thread")]
async fn in_an_ordered_queue_nothing_overtakes_what_is_left_to_the_broker_while_the_broker_may_bring_it_back()
 {
    let Some(mut fixture) = ordered("late-cut").await else { return };
    let (proxy, hold) = fixture.put_behind_frame_hold(Held::Reject).await;
    for body in ["a-no", "a1", "a2"] {
        publish(&fixture, body).await;
    }
    let seen = Log::default();
    let run = serve(&fixture, &seen, "a-no").await;
    hold.is_reached().await;
    // Deliveries still come, and handlers are free.
    publish(&fixture, "b1").await;
    let is_seen = async || seen.all().iter().any(|body| body == "b1");
    eventually(SOON, "another customer's message is handled", is_seen).await.unwrap();
    let next = tokio::time::timeout(HELD_BACK, seen.reaches(3)).await;
    assert!(next.is_err(), "the next one has started, although the broker has no reject: {next:?}");
    make_room(&fixture).await;
    proxy.connection(0).expect("the first connection is the consuming one").cut();
    let seen = seen.reaches(6).await;
    let (of_a, of_b) = (of("a", &seen), of("b", &seen));
    assert_eq!(
        (of_a, of_b),
        (vec!["a-no", "a-no", "a1", "a2"], vec!["b1", "b1"]),
        "a-no comes first again"
    );
    assert_eq!(parked(&fixture, 1).await[0].text(), "a-no");
    let summary = run.stop().await;
    assert_eq!(summary.parked[&Reason::Permanent], 1, "it was settled once: {summary}");
    fixture.has_depth(&fixture.queue, 0).await;
}
