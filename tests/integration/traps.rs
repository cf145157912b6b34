//! Headers and properties from producers and brokers that would break a naive republish, and forged
//! headers.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rehop::settings::{BindingSettings, WaitStrategy};
use rehop::{Failure, HeaderValue, Message};
use rehop_testing::{Properties, Publish, eventually};
use serde_json::{Value, json};

use crate::support::{Fixture, Log, SOON, failures, is_idle, millis, now_millis};

#[tokio::test(flavor = "multi_thread")]
async fn the_second_queue_of_a_fanout_sees_no_retry() {
    let mut fixture = Fixture::new("fanout").await;
    let (exchange, audit) =
        (fixture.namespace.exchange("events"), fixture.namespace.queue("audit"));
    fixture.client.declare_exchange(&exchange, "fanout", json!({})).await.unwrap();
    fixture.client.declare_queue(&audit, json!({ "x-queue-type": "quorum" })).await.unwrap();
    fixture.client.bind(&audit, &exchange, "", json!({})).await.unwrap();
    fixture.settings.queue_mut(&fixture.queue).bindings.push(BindingSettings::new(&exchange, ""));
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |_| {
            let count = log.push(());
            async move { if count < 3 { Err(Failure::transient("no")) } else { Ok(()) } }
        })
        .await;
    // Until the binding exists, only the audit queue gets messages.
    let message = Publish::to(&exchange, "key").body("x");
    eventually(SOON, "the service is bound", async || {
        fixture.client.publish(message.clone()).await.map_err(|error| error.to_string())?;
        tokio::time::timeout(Duration::from_millis(200), seen.reaches(1))
            .await
            .map(|_| true)
            .map_err(|e| e.to_string())
    })
    .await
    .unwrap();
    let before = fixture.client.depth(&audit).await.unwrap();
    seen.reaches(3).await;
    run.stop().await;
    assert_eq!(
        fixture.client.depth(&audit).await.unwrap(),
        before,
        "copies went to the audit queue"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cc_and_bcc_are_not_routed_again_and_cc_is_kept_in_a_rehop_header() {
    let mut fixture = Fixture::new("cc").await;
    fixture.retry().delays = millis([100]);
    let audit = fixture.namespace.queue("audit");
    fixture.client.declare_queue(&audit, json!({ "x-queue-type": "quorum" })).await.unwrap();
    let run = fixture.serve_always(Err(Failure::transient("no"))).await;
    let message =
        fixture.to_queue().body("x").header("CC", json!([audit])).header("BCC", json!([audit]));
    fixture.client.publish(message).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    // More than one if the other queue was so new that it refused the first: the client then
    // publishes again.
    let audited = fixture.client.get_all(&audit).await.unwrap();
    let by_rehop = audited
        .iter()
        .filter(|it| it.headers.keys().any(|name| name.starts_with("rehop-")))
        .count();
    assert_eq!(
        (audited.is_empty(), by_rehop),
        (false, 0),
        "by the producer's CC and BCC, and none by rehop"
    );
    assert!(!parked.headers.contains_key("CC") && !parked.headers.contains_key("BCC"));
    assert_eq!(parked.headers["rehop-cc"], json!([audit]));
}

/// A copy with a `user_id` would close the channel of any other user: see the test with the least
/// permissions.
#[tokio::test(flavor = "multi_thread")]
async fn user_id_is_removed_from_the_copy_and_still_reaches_the_handler() {
    let fixture = Fixture::new("user-id").await;
    let (run, seen) = fixture
        .serve_noting(|message| message.user_id().map(str::to_owned), Err(Failure::transient("no")))
        .await;
    let message = fixture.to_queue().properties(|it| it.user_id = Some("guest".to_owned()));
    fixture.client.publish(message).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(seen.all(), vec![Some("guest".to_owned()); 3]);
    assert_eq!(parked.properties.user_id, None);
    assert_eq!(parked.headers["rehop-user-id"], "guest");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_rehop_user_id_header_is_not_trusted() {
    let fixture = Fixture::new("forged-user-id").await;
    let (run, seen) = fixture
        .serve_noting(|message| message.user_id().map(str::to_owned), Err(Failure::transient("no")))
        .await;
    fixture.client.publish(fixture.to_queue().header("rehop-user-id", "admin")).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(seen.all(), vec![None; 3]);
    assert!(!parked.headers.contains_key("rehop-user-id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn expiration_does_not_return_a_copy_early_or_lose_it() {
    let mut fixture = Fixture::new("expiration-trap").await;
    fixture.retry().delays = millis([11_000, 100]);
    // Its deadline is far off. Its `expiration` ends before its first wait, but leaves a busy
    // machine time for a first attempt.
    let message = fixture
        .to_queue()
        .header("rehop-expires-at", now_millis() + 600_000)
        .properties(|it| it.expiration = Some("10000".to_owned()));
    let seen = Log::default();
    let log = seen.clone();
    let handler = move |message: Message<Bytes>| {
        log.push(Instant::now());
        let first = message.raw_body().is_empty();
        async move { if first { Ok(()) } else { Err(Failure::transient("no")) } }
    };
    let (run, status) = fixture.start(handler).await;
    fixture.is_declared(&fixture.queue).await;
    fixture.publish("").await;
    seen.reaches(1).await;
    // Now the service is consuming, and has room for the next message.
    is_idle(&status).await;
    fixture.client.publish(message.body("expires")).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    let seen = &seen.all()[1..];
    assert_eq!(seen.len(), 3);
    assert!(seen[1] - seen[0] >= Duration::from_millis(11_000), "{seen:?}");
    assert_eq!(parked.properties.expiration, None);
}

/// The headers that a message brings back from a dead-letter queue. On 3.10, a copy with them would
/// disappear on a later hop.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_replayed_with_its_old_death_and_count_headers_goes_through_all_hops() {
    let mut fixture = Fixture::new("x-death").await;
    fixture.retry().immediate = Some(1);
    let queue = fixture.queue.clone();
    let tier = format!("{}.wait.100", fixture.namespace.name());
    let death = |queue: &str, reason: &str| json!({ "queue": queue, "reason": reason, "count": 5, "exchange": "", "routing-keys": [queue], "time": { "$amqp": { "Timestamp": 1_700_000_000 } } });
    let (run, seen) =
        fixture.serve_noting(|message| message.attempt(), Err(Failure::transient("no"))).await;
    let message = fixture
        .to_queue()
        .header("x-death", json!([death(&queue, "delivery_limit"), death(&tier, "expired")]))
        .header("x-first-death-queue", queue.as_str())
        .header("x-first-death-reason", "delivery_limit")
        .header("x-first-death-exchange", "")
        .header("x-last-death-queue", tier.as_str())
        .header("x-last-death-reason", "expired")
        .header("x-last-death-exchange", "")
        .header("x-delivery-count", 9)
        .header("x-acquired-count", 9);
    fixture.client.publish(message).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(seen.all(), [1, 2, 3, 4, 5, 6]);
    // On 3.10 the broker itself writes a count of zero.
    let counted = |name: &str| name != "x-delivery-count" || parked.headers[name] != 0;
    let left: Vec<_> =
        parked.headers.keys().filter(|name| name.starts_with("x-") && counted(name)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// rehop's headers on a message that is not a copy made by rehop are ignored.
#[tokio::test(flavor = "multi_thread")]
async fn a_producers_ledger_headers_are_not_trusted() {
    let fixture = Fixture::new("forged").await;
    let run = fixture.serve_always(Err(Failure::permanent("no"))).await;
    let message = fixture
        .to_queue()
        .header("rehop-attempt", 50)
        .header("rehop-hop", 50)
        .header("rehop-routing-key", "elsewhere")
        .header(
            "rehop-errors",
            json!([{ "at": 1, "attempt": 1, "class": "c", "message": "m" }]).to_string(),
        );
    fixture.client.publish(message).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(parked.headers["rehop-attempt"], 1);
    assert_eq!(parked.headers["rehop-hop"], 0);
    assert_eq!(parked.headers["rehop-routing-key"], json!(fixture.queue));
    assert_eq!(failures(&parked).len(), 1);
}

/// Values of every wrong kind, published through the return exchange, so that they are read.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_headers_by_the_return_exchange_stop_nothing() {
    let fixture = Fixture::new("hostile").await;
    fixture.declare().await;
    let return_exchange = format!("{}.return", fixture.namespace.name());
    let names = [
        "rehop-attempt",
        "rehop-hop",
        "rehop-first-seen-at",
        "rehop-first-failed-at",
        "rehop-waiting-since",
        "rehop-due-at",
        "rehop-expires-at",
        "rehop-exchange",
        "rehop-routing-key",
        "rehop-errors",
        "rehop-chain-id",
        "rehop-user-id",
        "rehop-cc",
        "rehop-reason",
        "rehop-wait-for",
        "traceparent",
        "tracestate",
        "baggage",
    ];
    let values = [
        json!(-1),
        json!(i64::MAX),
        json!(i64::MIN),
        json!("not a number"),
        json!("x".repeat(3000)),
        json!(null),
        json!([1, "two", { "at": "x", "attempt": -1, "class": 5, "message": [] }]),
        json!({ "a": { "b": [] } }),
        json!({ "$amqp": { "ByteArray": [255, 254] } }),
        json!({ "$amqp": { "Double": 1e300 } }),
        json!({ "$amqp": { "Timestamp": u64::MAX } }),
    ];
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message| {
            let _ = (
                message.errors().len(),
                message.deadline(),
                message.user_id(),
                message.headers().count(),
            );
            log.push(message.header("number").map(|value| value == HeaderValue::Int(0)));
            async { Err(Failure::permanent("seen")) }
        })
        .await;
    for (number, value) in values.iter().enumerate() {
        let mut message =
            Publish::to(&return_exchange, "key").header("rehop-return-to", fixture.queue.as_str());
        for name in names {
            message = message.header(name, value.clone());
        }
        fixture.client.publish(message.header("number", number)).await.unwrap();
    }
    let parked = fixture.drain_parked(values.len()).await;
    run.stop().await;
    for message in parked {
        let reason: &Value = &message.headers["rehop-reason"];
        assert!(["permanent", "expired"].contains(&reason.as_str().unwrap()), "{reason}");
    }
    assert_eq!(seen.all().len(), values.len());
}

/// The names of all headers that rehop writes, without their prefix.
const OWN: [&str; 33] = [
    "return-to",
    "wait-for",
    "then-100",
    "attempt",
    "hop",
    "defers",
    "first-seen-at",
    "first-failed-at",
    "waiting-since",
    "due-at",
    "expires-at",
    "exchange",
    "routing-key",
    "errors",
    "chain-id",
    "reason",
    "user-id",
    "cc",
    "body-bytes",
    "bytes",
    "parked-at",
    "replays",
    "replay-run",
    "replay-number",
    "canary",
    "fate",
    "edited-at",
    "discarded-at",
    "discarded-why",
    "discard-run",
    "discarded-from",
    "previous-attempt",
    "traced-since",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_producers_header_is_kept_over_waits_and_parking_unless_its_name_has_the_prefix() {
    for strategy in [WaitStrategy::Tiers, WaitStrategy::Ladder] {
        let mut fixture = Fixture::new("prefix").await;
        fixture.retry().strategy = Some(strategy);
        fixture.retry().delays = millis([100]);
        let run = fixture.serve_always(Err(Failure::transient("no"))).await;
        let mut message = Publish::to_queue(&fixture.queue);
        for name in OWN {
            message = message.header(name, "mine").header(format!("rehop-{name}"), "forged");
        }
        fixture.client.publish(message).await.unwrap();
        let parked = fixture.drain_parked(1).await.remove(0);
        assert_eq!(run.stop().await.waited, 1);
        for name in OWN {
            assert_eq!(parked.headers.get(name), Some(&json!("mine")), "{name}, {strategy:?}");
            assert_ne!(
                parked.headers.get(&format!("rehop-{name}")),
                Some(&json!("forged")),
                "{name}, {strategy:?}"
            );
        }
    }
}

/// A message that is allowed and unusual.
fn unusual() -> Vec<Publish> {
    let empty = || Publish::to_queue("");
    let nested = (0..100).fold(json!("deepest"), |inner, _| json!({ "a": inner }));
    let listed = (0..100).fold(json!("deepest"), |inner, _| json!([inner]));
    let mut unusual = vec![
        (0..3_000)
            .fold(empty(), |message, number| message.header(format!("header-{number}"), number)),
        empty().header("nested", nested).header("listed", listed),
        empty().header("x".repeat(255), "y".repeat(60_000)).header("", ""),
        empty().properties(|it| {
            (it.content_type, it.content_encoding) = (Some("t".repeat(255)), Some("e".repeat(255)));
            (it.kind, it.app_id) = (Some("k".repeat(255)), Some("a".repeat(255)));
            (it.correlation_id, it.reply_to) = (Some("c".repeat(255)), Some("r".repeat(255)));
            it.cluster_id = Some("l".repeat(255));
        }),
        empty().properties(|it| (it.content_type, it.priority) = (Some(String::new()), Some(255))),
    ];
    // The beginning of time, milliseconds instead of seconds, the year 3000, before 1970.
    for timestamp in [0, 1_700_000_000_000, 32_503_680_000, u64::MAX] {
        unusual.push(empty().properties(|it| it.timestamp = Some(timestamp)));
        let expiring = |it: &mut Properties| {
            (it.timestamp, it.expiration) = (Some(timestamp), Some("60000".to_owned()))
        };
        unusual.push(empty().properties(expiring));
    }
    unusual
}

#[tokio::test(flavor = "multi_thread")]
async fn unusual_headers_and_properties_wait_and_are_parked_as_they_came_and_delay_no_other_message()
 {
    let mut fixture = Fixture::new("unusual").await;
    fixture.retry().delays = millis([100]);
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message: Message<Bytes>| {
            let is_unusual = message.raw_body().as_ref() != b"usual";
            if !is_unusual {
                log.push(());
            }
            async move { if is_unusual { Err(Failure::transient("no")) } else { Ok(()) } }
        })
        .await;
    let unusual = unusual();
    for (number, message) in unusual.iter().enumerate() {
        let sent = Publish { routing_key: fixture.queue.clone(), ..message.clone() }
            .message_id(number.to_string());
        fixture.client.publish(sent).await.unwrap();
        fixture.publish("usual").await;
        seen.reaches(number + 1).await;
    }
    let parked = fixture.drain_parked(unusual.len()).await;
    let summary = run.stop().await;
    assert_eq!((summary.handled, summary.waited), (unusual.len() as u64, unusual.len() as u64));
    for message in parked {
        let number: usize = message.properties.message_id.as_ref().unwrap().parse().unwrap();
        let sent = &unusual[number];
        assert_eq!(message.headers["rehop-reason"], "exhausted", "{number}");
        assert!(
            sent.headers.iter().all(|(name, value)| message.headers.get(name) == Some(value)),
            "{number}"
        );
        let mut properties = message.properties;
        (properties.message_id, properties.delivery_mode) = (None, sent.properties.delivery_mode);
        properties.expiration.clone_from(&sent.properties.expiration);
        assert_eq!(properties, sent.properties, "{number}");
    }
}

/// RabbitMQ refuses what is not a whole number of milliseconds, and hands out nothing that has
/// expired.
#[tokio::test(flavor = "multi_thread")]
async fn an_unusual_expiration_is_refused_by_the_broker_or_the_message_is_handled_or_parked() {
    let fixture = Fixture::new("odd-expiration").await;
    let (run, seen) = fixture.serve_noting(|message| message.raw_body().clone(), Ok(())).await;
    let expiring = |expiration: &str| {
        let expiration = expiration.to_owned();
        fixture
            .to_queue()
            .body(expiration.clone())
            .properties(|it| it.expiration = Some(expiration))
    };
    fixture.is_declared(&fixture.queue).await;
    for refused in ["-1", "soon", "", "1.5"] {
        assert!(fixture.client.publish(expiring(refused)).await.is_err(), "{refused:?}");
    }
    for accepted in ["0", "315360000000"] {
        fixture.client.publish(expiring(accepted)).await.unwrap();
    }
    fixture.publish("next").await;
    // The first is handled if a handler was free at once. If the parked queue has no leader yet,
    // the broker dead-letters again after three minutes.
    eventually(2 * SOON, "each message ends", async || {
        let parked =
            fixture.client.depth(&fixture.parked()).await.map_err(|error| error.to_string())?;
        let handled = seen.all();
        let ends = handled.len() + parked as usize;
        if ends == 3 && handled.contains(&Bytes::from("next")) {
            Ok(true)
        } else {
            Err(format!("{handled:?}"))
        }
    })
    .await
    .unwrap();
    run.stop().await;
}

/// Of a first delivery, nothing but a deadline is read, and that only if it is a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_header_named_like_rehops_of_any_type_changes_nothing() {
    let fixture = Fixture::new("any-type").await;
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(i64::MAX),
        json!("text"),
        json!(""),
        json!([1, [2]]),
        json!({ "a": { "b": null } }),
        json!({ "$amqp": { "ByteArray": [255, 254] } }),
        json!({ "$amqp": { "LongString": [255, 254] } }),
        json!({ "$amqp": { "Double": -0.5 } }),
        json!({ "$amqp": { "DecimalValue": { "scale": 255, "value": u32::MAX } } }),
        json!({ "$amqp": { "Timestamp": u64::MAX } }),
    ];
    let note =
        |message: &Message<Bytes>| (message.attempt(), message.hop(), message.errors().len());
    let (run, seen) = fixture.serve_noting(note, Err(Failure::permanent("no"))).await;
    for value in &values {
        let own = OWN
            .iter()
            .fold(fixture.to_queue(), |it, name| it.header(format!("rehop-{name}"), value.clone()));
        fixture.client.publish(own.header("rehop-unknown", value.clone())).await.unwrap();
    }
    let parked = fixture.drain_parked(values.len()).await;
    run.stop().await;
    assert_eq!(seen.all(), vec![(1, 0, 0); values.len()]);
    for message in parked {
        assert_eq!(message.headers["rehop-reason"], "permanent");
        assert_eq!(
            (&message.headers["rehop-routing-key"], failures(&message).len()),
            (&json!(fixture.queue), 1)
        );
        assert!(
            !message.headers.contains_key("rehop-unknown")
                && !message.headers.contains_key("rehop-body-bytes")
        );
    }
}

/// A due date in the year 3000 on an otherwise correct copy would keep a message waiting forever.
#[tokio::test(flavor = "multi_thread")]
async fn an_absurd_due_date_does_not_keep_a_message_waiting() {
    let fixture = Fixture::new("absurd-due").await;
    fixture.declare().await;
    let (run, seen) = fixture.serve_noting(|_| (), Ok(())).await;
    let message = Publish::to(format!("{}.return", fixture.namespace.name()), "key")
        .header("rehop-return-to", fixture.queue.as_str())
        .header("rehop-wait-for", 100)
        .header("rehop-waiting-since", now_millis())
        .header("rehop-due-at", 32_503_680_000_000_i64);
    fixture.client.publish(message).await.unwrap();
    seen.reaches(1).await;
    assert_eq!(run.stop().await.waited, 0);
}
