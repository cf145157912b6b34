//! What a handler gets beside the body, and what the service is told of its failures.

use std::sync::Arc;

use bytes::Bytes;
use rehop::{Consumer, Failure, FailureEvent, Message, Outcome, Raw, Reason, with_state};
use serde_json::json;

use crate::support::{Fixture, Log, Running, millis, now_millis};

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_knows_its_queue_and_whether_its_attempt_is_the_last() {
    let mut fixture = Fixture::new("last-attempt").await;
    fixture.retry().immediate = Some(1);
    fixture.retry().delays = millis([100]);
    let started = now_millis();
    let note = |message: &Message<Bytes>| {
        let first_failed = message.first_failed().map(|at| at.as_millis());
        (
            message.queue().to_owned(),
            message.max_attempts(),
            message.is_last_attempt(),
            first_failed,
        )
    };
    let (run, seen) = fixture.serve_noting(note, Err(Failure::transient("no"))).await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    let seen = seen.all();
    assert_eq!(seen.iter().map(|seen| seen.2).collect::<Vec<_>>(), [false, false, false, true]);
    assert!(seen.iter().all(|(queue, most, ..)| *queue == fixture.queue && *most == 4), "{seen:?}");
    assert_eq!((seen[0].3, seen[1].3), (None, None));
    assert!(seen[2].3 == seen[3].3 && seen[2].3 >= Some(started), "{seen:?}");
    assert_eq!(parked.headers["rehop-first-failed-at"], json!(seen[3].3.unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handlers_state_is_shared_between_its_attempts() {
    let fixture = Fixture::new("state").await;
    let handled = Log::default();
    async fn count(message: Message<Bytes>, handled: Log<Bytes>) -> Result<(), Failure> {
        handled.push(message.body);
        Ok(())
    }
    let consumer =
        Consumer::new(fixture.queue.clone(), with_state(handled.clone(), count)).decode(Raw);
    let run = Running::start(fixture.service().with_consumer(consumer));
    fixture.is_declared(&fixture.queue).await;
    fixture.publish("a").await;
    fixture.publish("b").await;
    assert_eq!(handled.reaches(2).await.len(), 2);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_is_told_of_each_failure_with_its_outcome_and_a_panic_there_changes_nothing() {
    let mut fixture = Fixture::new("on-failure").await;
    fixture.retry().immediate = Some(1);
    fixture.retry().delays = millis([100]);
    let told = Log::default();
    let log = told.clone();
    let queue = Arc::new(fixture.queue.clone());
    let on_failure = move |event: &FailureEvent<'_>| {
        assert_eq!(event.queue, *queue);
        let (id, class) = (
            event.message_id.map(str::to_owned),
            event.failure.map(|failure| failure.class().to_owned()),
        );
        log.push((id, event.attempt, event.outcome, class, event.chain_id.to_owned()));
        panic!("an alert that could not be sent");
    };
    let handler = |message: Message<Bytes>| async move {
        if message.body.is_empty() {
            Ok(())
        } else {
            Err(Failure::transient("no").with_class("busy"))
        }
    };
    let consumer = Consumer::new(fixture.queue.clone(), handler).decode(Raw).on_failure(on_failure);
    let run = Running::start(fixture.service().with_consumer(consumer));
    fixture.is_declared(&fixture.queue).await;
    let with_id =
        |id: &str| fixture.to_queue().properties(|it| it.message_id = Some(id.to_owned()));
    fixture.client.publish(with_id("handled").body("")).await.unwrap();
    fixture
        .client
        .publish(with_id("expired").body("x").header("rehop-expires-at", now_millis() - 1))
        .await
        .unwrap();
    fixture.client.publish(with_id("failing").body("x")).await.unwrap();
    fixture.drain_parked(2).await;
    let summary = run.stop().await;
    assert_eq!((summary.handled, summary.requeued, summary.waited), (1, 2, 1), "{summary:?}");

    let told = told.all();
    let of = |wanted: &str| {
        let events = told.iter().filter(|(id, ..)| id.as_deref() == Some(wanted));
        let events =
            events.map(|(_, attempt, outcome, class, _)| (*attempt, *outcome, class.as_deref()));
        let mut events: Vec<_> = events.collect();
        // A requeued message may be attempted again before its requeue is reported.
        events.sort_by_key(|(attempt, ..)| *attempt);
        events
    };
    let wait = Outcome::Wait(std::time::Duration::from_millis(100));
    let busy = Some("busy");
    let exhausted = Outcome::Park(Reason::Exhausted);
    assert_eq!(of("handled"), []);
    assert_eq!(of("expired"), [(1, Outcome::Park(Reason::Expired), None)]);
    assert_eq!(
        of("failing"),
        [
            (1, Outcome::Requeue, busy),
            (2, wait, busy),
            (3, Outcome::Requeue, busy),
            (4, exhausted, busy)
        ]
    );
    let chains: std::collections::BTreeSet<_> = told.iter().map(|(.., chain)| chain).collect();
    assert!(!chains.iter().any(|chain| chain.is_empty()), "{chains:?}");
}
