//! Requeues: immediate attempts, within the policy's budget and the broker's limit.

use std::num::ParseIntError;

use bytes::Bytes;
use rehop::settings::{Secret, Treatment};
use rehop::{Consumer, Failure, Message, Raw};
use rehop_testing::{Broker, Proxy};

use crate::support::{Fixture, Log, Running, failures, millis};

#[tokio::test(flavor = "multi_thread")]
async fn attempts_at_once_come_before_each_wait_and_no_message_gets_more_attempts_than_the_policy_allows()
 {
    let mut fixture = Fixture::new("immediate").await;
    fixture.retry().immediate = Some(2);
    fixture.retry().delays = millis([100]);
    let (run, seen) = fixture
        .serve_noting(|message| (message.attempt(), message.hop()), Err(Failure::transient("no")))
        .await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    let summary = run.stop().await;
    assert_eq!(seen.all(), [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1)]);
    assert_eq!(
        seen.all().len() as u32,
        fixture.settings.policy(&fixture.queue).unwrap().max_attempts()
    );
    assert_eq!((summary.requeued, summary.waited), (4, 1));
    assert_eq!(parked.headers["rehop-attempt"], 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeue_beyond_the_immediate_budget_waits() {
    let mut fixture = Fixture::new("requeue-budget").await;
    fixture.retry().immediate = Some(1);
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message| {
            let count = log.push(message.hop());
            async move { if count < 4 { Err(Failure::requeue("contended")) } else { Ok(()) } }
        })
        .await;
    fixture.publish("x").await;
    assert_eq!(seen.reaches(4).await, [0, 0, 1, 1]);
    let summary = run.stop().await;
    assert_eq!((summary.requeued, summary.waited, summary.handled), (2, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_class_can_be_requeued_made_permanent_or_discarded_by_the_settings() {
    let mut fixture = Fixture::new("classes").await;
    fixture.retry().immediate = Some(1);
    fixture.retry().delays = millis([100]);
    fixture.retry().errors = Some(
        [
            ("ParseIntError", Treatment::Permanent),
            ("Utf8Error", Treatment::Discard),
            ("lock", Treatment::Requeue),
        ]
        .map(|(class, treatment)| (class.to_owned(), treatment))
        .into(),
    );
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message| {
            let log = log.clone();
            async move {
                log.push(message.raw_body().to_vec());
                std::str::from_utf8(message.raw_body())?.parse::<u32>()?;
                Ok(())
            }
        })
        .await;
    fixture.publish("seven").await;
    fixture.client.publish(fixture.to_queue().body([255])).await.unwrap();
    fixture.publish("7").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    // The stop would hand back what no handler has seen.
    seen.reaches(3).await;
    let summary = run.stop().await;
    let mut seen = seen.all();
    seen.sort();
    assert_eq!(seen, [&b"7"[..], b"seven", &[255]], "none was attempted twice");
    assert_eq!(parked.headers["rehop-reason"], "permanent");
    assert_eq!(failures(&parked)[0]["class"], "ParseIntError");
    assert_eq!(summary.discarded.values().sum::<u64>(), 1);
    assert_eq!(summary.handled, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_inside_an_anyhow_error_has_the_class_that_the_consumer_finds_for_it() {
    fn parse(message: &Message<Bytes>) -> anyhow::Result<u32> {
        Ok(std::str::from_utf8(&message.body)?.parse()?)
    }
    let mut fixture = Fixture::new("anyhow").await;
    fixture.retry().errors = Some([("not_a_number".to_owned(), Treatment::Permanent)].into());
    let consumer = |classes: [&'static str; 1]| {
        let handler = |message: Message<Bytes>| async move {
            parse(&message)?;
            Ok::<_, anyhow::Error>(())
        };
        let classify = |error: &(dyn std::error::Error + 'static)| {
            error.is::<ParseIntError>().then_some("not_a_number")
        };
        Consumer::new(fixture.queue.clone(), handler)
            .decode(Raw)
            .classify(classify)
            .classes(classes)
    };
    let run = Running::start(fixture.service().with_consumer(consumer(["not_a_number"])));
    fixture.is_declared(&fixture.queue).await;
    fixture.publish("seven").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(parked.headers["rehop-reason"], "permanent");
    assert_eq!(failures(&parked)[0]["class"], "not_a_number");
    assert_eq!(failures(&parked)[0]["message"], "invalid digit found in string");

    let error = fixture.service().with_consumer(consumer(["nan"])).await.unwrap_err().to_string();
    let expected = format!(
        "queues.0.retry.errors.not_a_number: queue {:?}: no failure has this class",
        fixture.queue
    );
    assert!(error.starts_with(&expected), "{error}");
}

/// The settings do not override an explicit classification by the handler.
#[tokio::test(flavor = "multi_thread")]
async fn an_explicit_failure_is_not_overridden_by_the_settings_for_its_class() {
    let mut fixture = Fixture::new("explicit").await;
    fixture.retry().delays = millis([100]);
    fixture.retry().errors = Some([("tired".to_owned(), Treatment::Discard)].into());
    let run = fixture.serve_always(Err(Failure::transient("no").with_class("tired"))).await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!(run.stop().await.waited, 1);
    assert_eq!(parked.headers["rehop-reason"], "exhausted");
}

/// The handler breaks its own connection each time, as a crash of the process would.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_crashes_its_consumer_is_parked_by_the_broker_after_one_delivery_more_than_the_limit()
 {
    let proxy = std::sync::Arc::new(Proxy::start(Broker::shared().await.amqp_url()).await.unwrap());
    let mut fixture = Fixture::new("crash").await;
    fixture.settings.broker.url =
        Secret::from(proxy.url_for(Broker::shared().await.amqp_url()).unwrap());
    fixture.retry().delivery_limit = Some(3);
    let seen = Log::default();
    let (log, cut) = (seen.clone(), proxy.clone());
    let run = fixture
        .serve(move |message| {
            log.push((message.attempt(), message.redelivered()));
            cut.cut();
            async { Ok::<_, Failure>(()) }
        })
        .await;
    fixture.publish("poison").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(seen.all(), [(1, false), (2, true), (3, true), (4, true)]);
    assert_eq!(parked.headers["x-death"][0]["reason"], "delivery_limit");
    assert_eq!(parked.text(), "poison");
    assert_eq!(parked.routing_key, fixture.queue);
}
