//! A failing message waits, returns and is handled.

use rehop::settings::BindingSettings;
use rehop::{Failure, Message};
use rehop_testing::Publish;
use serde_json::json;

use crate::support::{Fixture, Log, Running, SOON, millis};

#[derive(serde::Deserialize)]
struct Order {
    id: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_fails_twice_waits_twice_and_is_handled() {
    let fixture = Fixture::new("fails-twice").await;
    let seen = Log::default();
    let log = seen.clone();
    let run = Running::start(fixture.service().consumer(
        fixture.queue.clone(),
        move |order: Message<Order>| {
            let log = log.clone();
            async move {
                let now =
                    (order.body.id, order.attempt(), order.hop(), order.routing_key().to_owned());
                if log.push(now) < 3 { Err(Failure::transient("not yet")) } else { Ok(()) }
            }
        },
    ));
    fixture.is_declared(&fixture.queue).await;
    fixture
        .client
        .publish(Publish::to_queue(&fixture.queue).json(&json!({ "id": 7 })))
        .await
        .unwrap();
    let seen = seen.reaches(3).await;
    let summary = run.stop().await;
    let key = fixture.queue.clone();
    assert_eq!(seen, [(7, 1, 0, key.clone()), (7, 2, 1, key.clone()), (7, 3, 2, key)]);
    assert_eq!((summary.handled, summary.waited), (1, 2));
}

/// All properties of a message after three hops: as the handler sees them on the fourth attempt,
/// and as they are parked then.
#[tokio::test(flavor = "multi_thread")]
async fn routing_key_properties_and_headers_of_every_type_are_intact_after_three_hops() {
    let mut fixture = Fixture::new("three-hops").await;
    fixture.retry().delays = millis([100, 150, 100]);
    let exchange = fixture.namespace.exchange("events");
    fixture.client.declare_exchange(&exchange, "topic", json!({})).await.unwrap();
    fixture
        .settings
        .queue_mut(&fixture.queue)
        .bindings
        .push(BindingSettings::new(&exchange, "order.#"));
    let plain = fixture.namespace.queue("plain");
    fixture.client.declare_queue(&plain, json!({ "x-queue-type": "quorum" })).await.unwrap();
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message| {
            log.push((
                message.attempt(),
                message.hop(),
                message.exchange().to_owned(),
                message.routing_key().to_owned(),
                message.message_id().map(str::to_owned),
                message.priority(),
                message.errors().len(),
            ));
            async { Err(Failure::transient("still not")) }
        })
        .await;
    let headers = json!({
        "text": "ä", "whole": -5, "half": 0.5, "yes": true, "nothing": null,
        "list": [1, "two", [3], { "four": 4 }],
        "table": { "deep": { "deeper": [{ "deepest": "x" }] } },
        "byte": { "$amqp": { "ShortShortInt": -5 } },
        "unsigned": { "$amqp": { "LongUInt": 4_000_000_000_u32 } },
        "bytes": { "$amqp": { "ByteArray": [0, 255] } },
        "decimal": { "$amqp": { "DecimalValue": { "scale": 2, "value": 150 } } },
        "when": { "$amqp": { "Timestamp": 5 } },
        "x-own": "kept",
    });
    let mut message =
        Publish::to(&exchange, "order.created.eu").body(b"\0not text\xff").properties(|it| {
            it.content_type = Some("application/octet-stream".to_owned());
            it.content_encoding = Some("gzip".to_owned());
            it.priority = Some(3);
            it.correlation_id = Some("correlation".to_owned());
            it.reply_to = Some("reply".to_owned());
            it.message_id = Some("id-1".to_owned());
            it.timestamp = Some(1_700_000_000);
            it.kind = Some("OrderCreated".to_owned());
            it.app_id = Some("shop".to_owned());
            it.cluster_id = Some("cluster".to_owned());
        });
    message.headers = headers.as_object().unwrap().clone();
    fixture.publish_when_bound(message.clone()).await;
    let straight =
        Publish { exchange: String::new(), routing_key: plain.clone(), ..message.clone() };
    fixture.client.publish(straight).await.unwrap();
    let straight = fixture.client.drain(&plain, 1, SOON).await.unwrap().remove(0);

    let parked = fixture.drain_parked(1).await.remove(0);
    let seen = seen.all();
    run.stop().await;
    let expected = (0..4u32).map(|n| {
        let (exchange, key, id) =
            (exchange.clone(), "order.created.eu".to_owned(), Some("id-1".to_owned()));
        (n + 1, n, exchange, key, id, Some(3), n as usize)
    });
    assert_eq!(seen, expected.collect::<Vec<_>>());
    assert_eq!(parked.body, message.body);
    assert_eq!(parked.properties, message.properties);
    for name in message.headers.keys() {
        assert_eq!(parked.exact_headers[name], straight.exact_headers[name], "header {name}");
    }
    assert_eq!(parked.headers["rehop-exchange"], json!(exchange));
    assert_eq!(parked.headers["rehop-routing-key"], json!("order.created.eu"));
    assert_eq!(parked.headers["rehop-attempt"], json!(4));
    assert_eq!(parked.headers["rehop-hop"], json!(3));
    assert_eq!(parked.headers["rehop-reason"], json!("exhausted"));
    assert_eq!(fixture.client.depth(&fixture.stray()).await.unwrap(), 0);
}
