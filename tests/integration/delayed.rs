//! The delayed exchange: with the plugin, without it, and with something that stands in for it.

use std::time::{Duration, Instant};

use rehop::settings::{TopologyMode, WaitStrategy};
use rehop::{Error, Failure, HeaderValue};
use rehop_testing::Broker;
use serde_json::json;

use crate::support::{Fixture, millis, not_tried};

/// 3.10 closes the connection over it, later versions the channel.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_plugin_the_service_does_not_start_and_says_what_to_take_instead() {
    let mut fixture = Fixture::new("no-plugin").await;
    fixture.retry().strategy = Some(WaitStrategy::DelayedExchange);
    let error = fixture.start_error().await;
    let Error::NoDelayedExchange { exchange, .. } = &error else { panic!("{error}") };
    assert_eq!(exchange, &format!("{}.delay", fixture.namespace.name()));
    let text = error.to_string();
    assert!(
        text.contains("rabbitmq_delayed_message_exchange")
            && text.contains("retry.strategy = \"ladder\""),
        "{text}"
    );
    assert!(!error.is_transient(), "{text}");
    // The broker serves others, and this namespace with another strategy.
    fixture.retry().strategy = Some(WaitStrategy::Tiers);
    let (run, seen) = fixture.serve_noting(|_| (), Ok(())).await;
    fixture.publish("x").await;
    seen.reaches(1).await;
    run.stop().await;
}

/// Waits twice, and returns what was seen of each attempt.
async fn waits_twice(fixture: &mut Fixture) {
    let note = |message: &rehop::Message<bytes::Bytes>| {
        let x_delay = message.header("x-delay").map(|value| matches!(value, HeaderValue::Int(_)));
        (
            Instant::now(),
            message.attempt(),
            message.hop(),
            message.routing_key().to_owned(),
            x_delay,
        )
    };
    let (run, seen) = fixture.serve_noting(note, Err(Failure::transient("no"))).await;
    fixture.publish("x").await;
    let seen = seen.reaches(3).await;
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!(run.stop().await.waited, 2);
    for (index, (_, attempt, hop, routing_key, x_delay)) in (0u32..).zip(&seen) {
        assert_eq!((*attempt, *hop, routing_key), (index + 1, index, &fixture.queue));
        assert_eq!(*x_delay, (index > 0).then_some(true));
    }
    for step in seen.windows(2) {
        assert!(step[1].0 - step[0].0 >= Duration::from_millis(300), "{seen:?}");
    }
    assert_eq!(parked.headers["rehop-reason"], "exhausted");
}

/// A fanout exchange and one wait queue, which give every message the same delay. A service would
/// declare the plugin's exchange, so it must only check its topology.
pub(super) async fn stand_in(fixture: &Fixture, delay: Duration) {
    let name = |rest: &str| format!("{}.{rest}", fixture.namespace.name());
    let (exchange, queue, ttl) =
        (name("delay"), fixture.namespace.queue("stand-in"), delay.as_millis() as u64);
    fixture.client.declare_exchange(&exchange, "fanout", json!({})).await.unwrap();
    let arguments = json!({ "x-queue-type": "quorum", "x-message-ttl": ttl, "x-dead-letter-exchange": name("return") });
    fixture.client.declare_queue(&queue, arguments).await.unwrap();
    fixture.client.bind(&queue, &exchange, "", json!({})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_in_for_the_delayed_exchange_is_used_as_it_is_found() {
    let mut fixture = Fixture::new("stand-in").await;
    fixture.declare().await;
    stand_in(&fixture, Duration::from_millis(300)).await;
    fixture.settings.topology = TopologyMode::Check;
    fixture.retry().strategy = Some(WaitStrategy::DelayedExchange);
    fixture.retry().delays = millis([300, 300]);
    waits_twice(&mut fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_with_the_plugin_holds_messages_in_the_delayed_exchange() {
    let Ok(image) = std::env::var("REHOP_TEST_DELAYED_IMAGE") else {
        return not_tried(
            "the delayed-message plugin, because REHOP_TEST_DELAYED_IMAGE names no image that has it",
        );
    };
    let broker = Broker::builder().tag(image).own().start().await.unwrap();
    broker.rabbitmqctl(&["enable_feature_flag", "all"]).await.ok();
    let mut fixture = Fixture::at("plugin", broker.amqp_url()).await;
    fixture.retry().strategy = Some(WaitStrategy::DelayedExchange);
    fixture.retry().delays = millis([300, 400]);
    waits_twice(&mut fixture).await;
}
