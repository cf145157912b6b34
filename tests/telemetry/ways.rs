//! What each way to wait shows of a wait, and what it loses, as the page "Which way to wait?" says
//! it of spans and lateness.

use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use rehop::settings::{TopologyMode, WaitStrategy};
use rehop::{Failure, Message};
use serde_json::json;

use super::chain::{Chain, Producer};
use super::collector::attribute;
use super::metrics::newest;
use crate::support::{DELAYED_RETRIES, Fixture, Log, is_before_4_3, millis, not_tried};

/// The queue's only message fails once, and succeeds after its wait of 200 ms.
async fn waits_once(fixture: &mut Fixture, strategy: WaitStrategy) -> Producer {
    crate::set_up();
    fixture.retry().strategy = Some(strategy);
    fixture.retry().delays = millis([200]);
    let (producer, attempts) = (Producer::new(), Log::default());
    let counter = attempts.clone();
    let handler = move |message: Message<bytes::Bytes>| {
        counter.push(());
        async move { if message.attempt() == 1 { Err(Failure::transient("not yet")) } else { Ok(()) } }
    };
    let running = fixture.serve(handler).await;
    fixture.client.publish(producer.message(fixture)).await.unwrap();
    attempts.reaches(2).await;
    running.stop().await;
    producer
}

/// How many waits of the fixture's queue `rehop.wait.lateness` has.
async fn latenesses(fixture: &Fixture) -> u64 {
    let metrics = newest().await;
    let histograms = metrics
        .iter()
        .filter(|metric| metric.name == "rehop.wait.lateness")
        .map(|metric| &metric.data);
    let points = histograms.flat_map(|data| match data {
        Some(Data::Histogram(histogram)) => &histogram.data_points[..],
        other => panic!("{other:?}"),
    });
    let is_ours = |attributes| {
        attribute(attributes, "messaging.destination.template").as_ref() == Some(&fixture.queue)
    };
    points.filter(|point| is_ours(&point.attributes)).map(|point| point.count).sum()
}

/// The wait lasts as long as it was to, and says how much later it ended.
fn is_timed(chain: &Chain, fixture: &Fixture, holder: &str, legs: Option<&str>) {
    let delay = 200;
    let waits = chain.named("wait ");
    let of = |key: &str| attribute(&waits[0].attributes, key);
    let name = of("messaging.destination.name").unwrap();
    assert_eq!(name.replace(fixture.namespace.name(), "ns"), holder);
    assert_eq!(
        (of("rehop.delay_ms"), of("rehop.legs").as_deref()),
        (Some(delay.to_string()), legs)
    );
    let late: u64 = of("rehop.lateness_ms").unwrap().parse().unwrap();
    let decided = chain.attempt(1).end_time_unix_nano;
    let took = (waits[0].end_time_unix_nano - decided) / 1_000_000;
    assert!(took.abs_diff(delay + late) <= 1, "{took} ms, {late} ms late");
    assert!(waits[0].start_time_unix_nano >= decided);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_in_a_tier_is_a_span_with_its_lateness() {
    let mut fixture = Fixture::new("way-tiers").await;
    let producer = waits_once(&mut fixture, WaitStrategy::Tiers).await;
    let chain = Chain::of(&producer, &fixture, 4).await;
    assert_eq!(chain.outline(), copied());
    is_timed(&chain, &fixture, "ns.wait.200", None);
    assert_eq!(latenesses(&fixture).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_on_the_ladder_is_a_span_with_its_legs_and_its_lateness() {
    let mut fixture = Fixture::new("way-ladder").await;
    fixture.settings.ladder.rung = std::time::Duration::from_millis(40);
    fixture.settings.ladder.max = std::time::Duration::from_millis(300);
    let producer = waits_once(&mut fixture, WaitStrategy::Ladder).await;
    let chain = Chain::of(&producer, &fixture, 4).await;
    assert_eq!(chain.outline(), copied());
    is_timed(&chain, &fixture, "ns.ladder", Some("2"));
    assert_eq!(latenesses(&fixture).await, 1);
}

/// A direct exchange and a wait queue stand in for the plugin's exchange: like it, they bring the
/// message home by this exchange.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_in_a_delayed_exchange_is_a_span_with_its_lateness() {
    let mut fixture = Fixture::new("way-delayed").await;
    fixture.declare().await;
    let name = |rest: &str| format!("{}.{rest}", fixture.namespace.name());
    let (delay, queue) = (name("delay"), fixture.namespace.queue("stand-in"));
    fixture.client.declare_exchange(&delay, "direct", json!({})).await.unwrap();
    let arguments = json!({
        "x-queue-type": "quorum", "x-message-ttl": 200, "x-dead-letter-exchange": delay, "x-dead-letter-routing-key": "home",
    });
    fixture.client.declare_queue(&queue, arguments).await.unwrap();
    fixture.client.bind(&queue, &delay, &fixture.queue, json!({})).await.unwrap();
    fixture.client.bind(&fixture.queue, &delay, "home", json!({})).await.unwrap();
    fixture.settings.topology = TopologyMode::Check;
    let producer = waits_once(&mut fixture, WaitStrategy::DelayedExchange).await;
    let chain = Chain::of(&producer, &fixture, 4).await;
    assert_eq!(chain.outline(), copied());
    is_timed(&chain, &fixture, "ns.delay", None);
    assert_eq!(latenesses(&fixture).await, 1);
}

/// The spans of a wait by a copy.
fn copied() -> String {
    String::from(
        "process ns.orders #1 CONSUMER parent=producer attempt=1 hop=0 outcome=wait error=transient final=false\n\
         \x20 waits 200ms CLIENT link=producer\n\
         wait 200ms, then ns.orders INTERNAL parent=none hop=1 link=producer\n\
         \x20 process ns.orders: handled CONSUMER attempt=2 hop=1 outcome=ack link=attempt-1\n",
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_in_the_process_is_a_span_with_its_lateness_and_nothing_is_sent_or_settled_before_it()
 {
    let mut fixture = Fixture::new("way-held").await;
    let producer = waits_once(&mut fixture, WaitStrategy::InProcess).await;
    let chain = Chain::of(&producer, &fixture, 3).await;
    assert_eq!(
        chain.outline(),
        "process ns.orders #1 CONSUMER parent=producer attempt=1 hop=0 outcome=wait error=transient final=false\n\
         wait 200ms, then ns.orders INTERNAL parent=none hop=1 link=producer\n\
         \x20 process ns.orders: handled CONSUMER attempt=2 hop=1 outcome=ack link=attempt-1\n"
    );
    is_timed(&chain, &fixture, "ns.orders", None);
    assert_eq!(latenesses(&fixture).await, 1);
}

/// The broker delivers the message again without a word about its wait, as after a requeue.
#[tokio::test(flavor = "multi_thread")]
async fn a_native_wait_has_no_span_no_link_and_no_lateness() {
    if is_before_4_3().await {
        return not_tried(DELAYED_RETRIES);
    }
    let mut fixture = Fixture::new("way-native").await;
    let producer = waits_once(&mut fixture, WaitStrategy::Native).await;
    let chain = Chain::of(&producer, &fixture, 3).await;
    assert_eq!(
        chain.outline(),
        "process ns.orders #1 CONSUMER parent=producer attempt=1 hop=0 outcome=wait error=transient final=false\n\
         \x20 waits 200ms CLIENT\n\
         process ns.orders: handled CONSUMER parent=none attempt=2 hop=1 outcome=ack link=producer\n"
    );
    assert_eq!(latenesses(&fixture).await, 0);
}
