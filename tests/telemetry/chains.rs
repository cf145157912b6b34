//! Whole chains: names, kinds, parents, links, times and attributes.

use std::sync::Arc;
use std::time::Duration;

use rehop::settings::Ending;
use rehop::{Failure, Message};
use rehop_testing::Publish;
use tokio::sync::Semaphore;

use super::chain::{Chain, Producer, hex};
use super::collector::attribute;
use crate::support::{Fixture, Log, Running, millis, now_millis};

type Body = Message<bytes::Bytes>;
/// A handler's result, by the number of the attempt.
type ResultByAttempt = fn(u32) -> Result<(), Failure>;

/// Runs a service whose handler decides by the number of the attempt, until `count` attempts were
/// made.
async fn run(fixture: &Fixture, message: Publish, count: usize, answer: ResultByAttempt) {
    crate::set_up();
    let attempts = Log::default();
    let counter = attempts.clone();
    let handler = move |message: Body| {
        let counter = counter.clone();
        async move {
            counter.push(());
            answer(message.attempt())
        }
    };
    let running = fixture.serve(handler).await;
    fixture.client.publish(message).await.unwrap();
    attempts.reaches(count).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_defer_is_a_wait_that_follows_no_failure() {
    let (fixture, producer) = (Fixture::new("defer").await, Producer::new());
    let deferred = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let (message, counter) = (producer.message(&fixture), deferred.clone());
    crate::set_up();
    let attempts = Log::default();
    let log = attempts.clone();
    let running = fixture
        .serve(move |_: Body| {
            log.push(());
            let is_first = counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
            async move {
                if is_first { Err(Failure::defer(Duration::from_millis(100))) } else { Ok(()) }
            }
        })
        .await;
    fixture.client.publish(message).await.unwrap();
    attempts.reaches(2).await;
    running.stop().await;
    let chain = Chain::of(&producer, &fixture, 4).await;
    let mut spans: Vec<_> =
        chain.spans.iter().filter(|span| span.name.starts_with("process ")).collect();
    spans.sort_by_key(|span| span.start_time_unix_nano);
    let of =
        |key: &str| spans.iter().map(|span| attribute(&span.attributes, key)).collect::<Vec<_>>();
    let text = |value: &str| Some(value.to_owned());
    assert_eq!(of("rehop.outcome"), [text("wait"), text("ack")]);
    assert_eq!(of("rehop.defer"), [text("true"), None]);
    assert_eq!(of("rehop.attempt"), [text("1"), text("1")]);
    assert_eq!(of("error.type"), [None, None]);
    assert_eq!(spans[1].links.len(), 1, "the attempt is linked to the one that was deferred");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_attempts_are_one_trace_in_which_each_is_below_the_wait_before_it() {
    let (fixture, producer) = (Fixture::new("three").await, Producer::new());
    let message = producer
        .message(&fixture)
        .message_id("m-7")
        .properties(|it| it.correlation_id = Some("c-7".into()));
    run(&fixture, message, 3, |attempt| {
        if attempt < 3 { Err(Failure::transient("not yet")) } else { Ok(()) }
    })
    .await;
    let chain = Chain::of(&producer, &fixture, 7).await;
    assert_eq!(
        chain.outline(),
        "process ns.orders #1 CONSUMER parent=producer attempt=1 hop=0 outcome=wait error=transient final=false\n\
         \x20 waits 100ms CLIENT link=producer\n\
         wait 100ms, then ns.orders INTERNAL parent=none hop=1 link=producer\n\
         \x20 process ns.orders #2 CONSUMER attempt=2 hop=1 outcome=wait error=transient final=false link=attempt-1\n\
         \x20   waits 200ms CLIENT link=producer\n\
         wait 200ms, then ns.orders INTERNAL parent=none hop=2 link=producer\n\
         \x20 process ns.orders: handled CONSUMER attempt=3 hop=2 outcome=ack link=attempt-2\n"
    );
    let first = &chain.attempt(1).attributes;
    for (key, expected) in [
        ("messaging.system", "rabbitmq"),
        ("messaging.operation.name", "process"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", format!(":{0}:{0}", fixture.queue).as_str()),
        ("messaging.destination.template", fixture.queue.as_str()),
        ("messaging.rabbitmq.destination.routing_key", fixture.queue.as_str()),
        ("messaging.message.id", "m-7"),
        ("messaging.message.conversation_id", "c-7"),
        ("messaging.message.body.size", "1"),
        ("rehop.max_attempts", "3"),
        ("rehop.delay_ms", "100"),
        ("server.address", "127.0.0.1"),
    ] {
        assert_eq!(attribute(first, key).as_deref(), Some(expected), "{key}");
    }
    assert!(attribute(first, "messaging.rabbitmq.message.delivery_tag").is_some());
    assert_eq!(chain.attempt(1).status.as_ref().unwrap().message, "not yet");
    let id = attribute(first, "rehop.chain_id").unwrap();
    assert_eq!(attribute(&chain.attempt(3).attributes, "rehop.end").as_deref(), Some("handled"));
    assert_eq!(chain.ends(), [["handled", "false"]]);
    for span in &chain.spans {
        let message = attribute(&span.attributes, "messaging.message.id");
        assert_eq!(message.as_deref(), Some("m-7"), "{}", span.name);
        assert_eq!(
            attribute(&span.attributes, "rehop.chain_id").as_ref(),
            Some(&id),
            "{}",
            span.name
        );
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{}", span.name);
        assert!(
            !format!("{span:?}").contains("not yet") || span.name.starts_with("process"),
            "{}",
            span.name
        );
    }
    // A wait begins when its copy is confirmed, and ends when the next attempt begins. Its delay
    // counts from when it was decided.
    for (wait, (number, delay)) in chain.named("wait ").into_iter().zip([(1, 100), (2, 200)]) {
        let attempt = chain.attempt(number);
        let sent =
            chain.named("waits ").into_iter().find(|it| it.parent_span_id == attempt.span_id);
        assert_eq!(wait.start_time_unix_nano, sent.unwrap().end_time_unix_nano);
        assert!(wait.start_time_unix_nano >= attempt.end_time_unix_nano);
        assert!(wait.end_time_unix_nano <= chain.attempt(number + 1).start_time_unix_nano);
        let took = Duration::from_nanos(wait.end_time_unix_nano - attempt.end_time_unix_nano);
        assert!(
            took >= Duration::from_millis(delay) && took < Duration::from_secs(60),
            "{} took {took:?}",
            wait.name
        );
        let late = attribute(&wait.attributes, "rehop.lateness_ms").unwrap();
        let late: u64 = late.parse().unwrap();
        let millis = u128::from(delay + late);
        assert!(millis.abs_diff(took.as_millis()) <= 1, "{late} ms late, {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_before_the_first_wait_are_below_the_producers_span() {
    let (mut fixture, producer) = (Fixture::new("requeues").await, Producer::new());
    fixture.settings.retry.immediate = Some(1);
    run(&fixture, producer.message(&fixture), 3, |attempt| {
        if attempt < 3 { Err(Failure::requeue("again")) } else { Ok(()) }
    })
    .await;
    assert_eq!(
        Chain::of(&producer, &fixture, 5).await.outline(),
        "process ns.orders #1 CONSUMER parent=producer attempt=1 hop=0 outcome=requeue error=requeue final=false\n\
         process ns.orders #2 CONSUMER parent=none attempt=2 hop=0 outcome=wait error=requeue final=false link=producer\n\
         \x20 waits 100ms CLIENT link=producer\n\
         wait 100ms, then ns.orders INTERNAL parent=none hop=1 link=producer\n\
         \x20 process ns.orders: handled CONSUMER attempt=3 hop=1 outcome=ack link=attempt-2\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_was_requeued_after_a_wait_is_below_the_same_wait() {
    let (mut fixture, producer) = (Fixture::new("requeued-later").await, Producer::new());
    fixture.settings.retry.immediate = Some(1);
    let message = producer.message(&fixture);
    // Attempts 1 and 2 before the wait, 3 and 4 after it.
    run(&fixture, message, 4, |attempt| {
        if attempt < 4 { Err(Failure::transient("not yet")) } else { Ok(()) }
    })
    .await;
    let (before, after) = (
        "process ns.orders #1 CONSUMER parent=producer attempt=1 hop=0 outcome=requeue error=transient final=false\n\
         process ns.orders #2 CONSUMER parent=none attempt=2 hop=0 outcome=wait error=transient final=false link=producer\n\
         \x20 waits 100ms CLIENT link=producer\n\
         wait 100ms, then ns.orders INTERNAL parent=none hop=1 link=producer\n\
         \x20 process ns.orders #3 CONSUMER attempt=3 hop=1 outcome=requeue error=transient final=false link=attempt-2\n",
        "\x20 process ns.orders: handled CONSUMER attempt=4 hop=1 outcome=ack\n",
    );
    assert_eq!(Chain::of(&producer, &fixture, 6).await.outline(), format!("{before}{after}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_of_a_message_can_be_distinguished() {
    let cases: [(&str, ResultByAttempt, &str); 5] = [
        (
            "permanent",
            |_| Err(Failure::permanent("never")),
            "outcome=park reason=permanent error=permanent",
        ),
        (
            "exhausted",
            |_| Err(Failure::transient("down")),
            "outcome=park reason=exhausted error=transient",
        ),
        (
            "discarded",
            |_| Err(Failure::discard("old")),
            "outcome=discard reason=discarded error=discard",
        ),
        ("panic", |_| panic!("lost count"), "outcome=park reason=exhausted error=panic"),
        (
            "class",
            |_| Err(Failure::permanent("x").with_class("card_declined")),
            "outcome=park reason=permanent error=card_declined",
        ),
    ];
    for (name, answer, expected) in cases {
        let (mut fixture, producer) = (Fixture::new(name).await, Producer::new());
        fixture.settings.retry.delays = millis([]);
        run(&fixture, producer.message(&fixture), 1, answer).await;
        let reason = expected.split("reason=").nth(1).unwrap().split(' ').next().unwrap();
        let (title, sent) = match name {
            "discarded" => (": discarded", String::new()),
            _ => (" #1", format!("  park ns.orders: {reason} CLIENT link=producer\n")),
        };
        let chain = Chain::of(&producer, &fixture, if sent.is_empty() { 1 } else { 2 }).await;
        let end = if name == "discarded" { ["discarded", "false"] } else { ["parked", "true"] };
        assert_eq!(chain.ends(), [end], "{name}");
        assert_eq!(
            chain.outline(),
            format!(
                "process ns.orders{title} CONSUMER parent=producer attempt=1 hop=0 {expected} final=true\n{sent}"
            ),
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_message_carries_the_producers_context_and_its_last_attempt() {
    let (fixture, producer) = (Fixture::new("parked").await, Producer::new());
    run(&fixture, producer.message(&fixture), 1, |_| Err(Failure::permanent("never"))).await;
    let chain = Chain::of(&producer, &fixture, 2).await;
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!(parked.headers["traceparent"], producer.traceparent());
    let last = format!("00-{}-{}-01", producer.trace, hex(&chain.attempt(1).span_id));
    assert_eq!(parked.headers["rehop-previous-attempt"], last);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_takes_too_long_and_a_body_that_does_not_decode_say_so() {
    crate::set_up();
    let (mut fixture, producer) = (Fixture::new("timeout").await, Producer::new());
    fixture.settings.retry.delays = millis([]);
    fixture.settings.consume.handler_timeout = Some(Duration::from_millis(50));
    fixture.declare().await;
    let running = Running::start(
        fixture.service().consumer(fixture.queue.clone(), |_: Message<u64>| async {
            std::future::pending::<Result<(), Failure>>().await
        }),
    );
    let undecodable = Producer::new();
    fixture.client.publish(producer.message(&fixture)).await.unwrap();
    fixture.client.publish(undecodable.message(&fixture).body("{")).await.unwrap();
    fixture.drain_parked(2).await;
    running.stop().await;
    let lines = |reason: &str, error: &str| {
        format!(
            "process ns.orders #1 CONSUMER parent=producer attempt=1 hop=0 outcome=park reason={reason} error={error} final=true\n\
             \x20 park ns.orders: {reason} CLIENT link=producer\n"
        )
    };
    assert_eq!(Chain::of(&producer, &fixture, 2).await.outline(), lines("exhausted", "timeout"));
    assert_eq!(
        Chain::of(&undecodable, &fixture, 2).await.outline(),
        lines("undecodable", "undecodable")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_expires_before_an_attempt_or_before_a_wait_says_so() {
    crate::set_up();
    let mut fixture = Fixture::new("expired").await;
    fixture.settings.retry.delays = millis([600_000]);
    fixture.settings.retry.on_expired = Some(Ending::Park);
    let running = fixture.serve_always(Err(Failure::transient("down"))).await;
    let now = now_millis();
    let (past, soon) = (Producer::new(), Producer::new());
    fixture
        .client
        .publish(past.message(&fixture).header("rehop-expires-at", now - 1))
        .await
        .unwrap();
    fixture
        .client
        .publish(soon.message(&fixture).header("rehop-expires-at", now + 60_000))
        .await
        .unwrap();
    fixture.drain_parked(2).await;
    running.stop().await;
    let lines = |title: &str, error: &str| {
        format!(
            "process ns.orders{title} CONSUMER parent=producer attempt=1 hop=0 outcome=park reason=expired error={error} final=true\n\
             \x20 park ns.orders: expired CLIENT link=producer\n"
        )
    };
    assert_eq!(Chain::of(&past, &fixture, 2).await.outline(), lines(": expired", "expired"));
    assert_eq!(Chain::of(&soon, &fixture, 2).await.outline(), lines(" #1", "transient"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_and_the_redelivery_are_two_attempts_of_one_trace() {
    crate::set_up();
    let (fixture, proxy) = Fixture::behind_proxy("crash").await;
    let (attempts, gate, producer) = (Log::default(), Arc::new(Semaphore::new(0)), Producer::new());
    let (counter, handlers_gate) = (attempts.clone(), gate.clone());
    let handler = move |_: Body| {
        let (counter, gate) = (counter.clone(), handlers_gate.clone());
        async move {
            if counter.push(()) == 1 {
                gate.acquire().await.unwrap().forget();
            }
            Ok(())
        }
    };
    let running = fixture.serve(handler).await;
    fixture.client.publish(producer.message(&fixture)).await.unwrap();
    attempts.reaches(1).await;
    proxy.cut();
    attempts.reaches(2).await;
    gate.add_permits(1);
    let chain = Chain::of(&producer, &fixture, 3).await;
    running.stop().await;
    assert_eq!(
        chain.outline(),
        "process ns.orders: handled CONSUMER parent=producer attempt=1 hop=0 outcome=ack\n\
         \x20 ack ns.orders CLIENT error=channel_closed\n\
         process ns.orders: handled CONSUMER parent=none attempt=2 hop=0 outcome=ack link=producer\n"
    );
}
