//! Names, keys and headers at their limits.

use serde_json::{Value, json};

use crate::expectation::{Cause, Fate};
use crate::ground::{Ground, SOON};
use crate::ledger::{Account, Allowed};
use crate::service::Does;

pub(crate) async fn names(ground: Ground) -> Account {
    let mut sum = Account::default();
    let long = |prefix: &str| format!("{prefix}{}", "q".repeat(255 - prefix.len()));
    for name in [
        long("limit "),
        "with spaces and\ttabs".to_owned(),
        "Bestellungen für Zoë — 注文 🐇".to_owned(),
        "a#.*b".to_owned(),
    ] {
        let mut lab = ground.lab("names").await;
        let prefix = format!("{} ", lab.config.namespace);
        // The broker is shared, so the namespace makes the name unique to this run.
        lab.work_mut().name = if name.len() == 255 { long(&prefix) } else { prefix + &name };
        lab.work_mut().parked = Some(lab.exchange("put aside"));
        lab.declare().await;
        lab.send(20, Does::Fail(1)).await;
        lab.send(5, Does::Permanent).await;
        let mut service = lab.service();
        lab.settled(SOON).await;
        service.stop().await;
        sum.add(&lab.close(Allowed::nothing()).await);
    }
    sum
}

pub(crate) async fn routing_keys(ground: Ground) -> Account {
    let mut lab = ground.lab("keys").await;
    lab.work_mut().delays = vec![200];
    lab.declare().await;
    let exchange = lab.exchange("publishers");
    let client = lab.client().await;
    client.declare_exchange(&exchange, "topic", json!({})).await.unwrap();
    client.bind(lab.work(), &exchange, "#", json!({})).await.unwrap();
    let keys = [String::new(), "k".repeat(255), "ö.".repeat(80), "...".to_owned()];
    for key in &keys {
        lab.send_with(1, Does::Fail(u32::MAX), |mut message| {
            message.exchange.clone_from(&exchange);
            message.routing_key.clone_from(key);
            message
        })
        .await;
    }
    let mut service = lab.service();
    lab.settled(SOON).await;
    service.stop().await;
    client.delete_exchange(&exchange).await.unwrap();
    let (account, messages) = lab.close_and_look(Allowed::nothing()).await;
    let mut found: Vec<_> = messages
        .iter()
        .map(|it| it.headers["rehop-routing-key"].as_str().unwrap().to_owned())
        .collect();
    let mut keys = keys.to_vec();
    found.sort();
    keys.sort();
    assert_eq!(found, keys, "each message has kept its key");
    account
}

/// Every type in AMQP 0.9.1 tables, including nested ones.
fn every_type() -> serde_json::Map<String, Value> {
    let exact = |kind: &str, value: Value| json!({ "$amqp": { kind: value } });
    let fields = json!({
        "bool": exact("Boolean", json!(true)),
        "i8": exact("ShortShortInt", json!(-128)),
        "u8": exact("ShortShortUInt", json!(255)),
        "i16": exact("ShortInt", json!(-32768)),
        "u16": exact("ShortUInt", json!(65535)),
        "i32": exact("LongInt", json!(i32::MIN)),
        "u32": exact("LongUInt", json!(u32::MAX)),
        "i64": exact("LongLongInt", json!(i64::MIN)),
        "f32": exact("Float", json!(1.5)),
        "f64": exact("Double", json!(-1.0e300)),
        "decimal": exact("DecimalValue", json!({ "scale": 2, "value": 150 })),
        "text": "grüße",
        "empty": "",
        "not utf-8": exact("LongString", json!([255, 254, 0])),
        "bytes": exact("ByteArray", json!([0, 255])),
        "when": exact("Timestamp", json!(1_700_000_000)),
        "void": { "$amqp": "Void" },
        "list": [1, "two", [3.5, null], { "four": [true] }],
        "table": { "a": { "b": { "c": [ { "d": null } ] } } },
    });
    fields.as_object().unwrap().clone()
}

pub(crate) async fn fields(ground: Ground) -> Account {
    let mut lab = ground.lab("fields").await;
    lab.declare().await;
    let (client, plain) = (lab.client().await, lab.exchange("plain"));
    client.declare_queue(&plain, json!({ "x-queue-type": "quorum" })).await.unwrap();
    let with_fields = |mut message: rehop_testing::Publish| {
        message.headers.extend(every_type());
        message
    };
    // A hop must not change them further than the broker itself does.
    client.publish(with_fields(rehop_testing::Publish::to_queue(&plain))).await.unwrap();
    let before = client.get(&plain).await.unwrap().unwrap();
    client.delete_queue(&plain).await.unwrap();
    lab.send_with(5, Does::Fail(u32::MAX), with_fields).await;
    lab.work_mut().immediate = 1;
    let mut service = lab.service();
    lab.settled(SOON).await;
    service.stop().await;
    let (account, messages) = lab.close_and_look(Allowed::nothing()).await;
    for message in &messages {
        assert_eq!(message.headers["rehop-hop"], 2, "it has waited twice");
        for (name, value) in &before.exact_headers {
            assert_eq!(
                message.exact_headers.get(name),
                Some(value),
                "header {name:?} is as before"
            );
        }
    }
    account.with_note(format!("{} types and nestings", before.exact_headers.len()))
}

/// Messages that leave room for rehop's headers wait; the others are parked in a readable form.
pub(crate) async fn large_headers(ground: Ground) -> Account {
    let lab = ground.lab("large-headers").await;
    lab.declare().await;
    // The frame holds 131,064 bytes. What leaves no room for a wait is parked after its first
    // failure.
    for (bytes, can_wait) in
        [(60_000, true), (120_000, true), (129_000, false), (130_500, false), (130_900, false)]
    {
        let filled = |message: rehop_testing::Publish| message.header("filler", "f".repeat(bytes));
        let failing = lab.send_with(2, Does::Fail(1), filled).await;
        lab.send_with(2, Does::Permanent, filled).await;
        if !can_wait {
            lab.expect(failing..failing + 2, Fate::Parked(Cause::Unpublishable));
        }
    }
    lab.send(20, Does::Fail(1)).await;
    let mut service = lab.service();
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}
