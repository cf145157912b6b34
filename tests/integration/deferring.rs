//! Defers: a message waits, and nothing is used up.

use std::time::{Duration, Instant};

use rehop::Failure;
use serde_json::json;

use crate::support::{Fixture, Log, failures, millis, now_millis};

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_message_is_still_at_its_first_attempt_and_has_all_of_its_waits() {
    let mut fixture = Fixture::new("defer").await;
    fixture.retry().delays = millis([100]);
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message| {
            let (attempt, hop, defers) = (message.attempt(), message.hop(), message.defers());
            log.push((Instant::now(), attempt, hop, defers, message.errors().len()));
            let defer = Failure::defer(Duration::from_millis(80)).with_source("not open yet");
            async move {
                Err(if defers < 2 || (hop == 1 && defers < 3) {
                    defer
                } else {
                    Failure::transient("no")
                })
            }
        })
        .await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    let summary = run.stop().await;
    let seen = seen.all();
    let counted: Vec<_> = seen
        .iter()
        .map(|(_, attempt, hop, defers, errors)| (*attempt, *hop, *defers, *errors))
        .collect();
    assert_eq!(counted, [(1, 0, 0, 0), (1, 0, 1, 0), (1, 0, 2, 0), (2, 1, 2, 1), (2, 1, 3, 1)]);
    for step in seen.windows(2) {
        assert!(step[1].0 - step[0].0 >= Duration::from_millis(80), "{seen:?}");
    }
    assert_eq!((summary.waited, summary.deferred), (4, 3));
    assert_eq!(parked.headers["rehop-defers"], json!(3));
    assert_eq!(parked.headers["rehop-reason"], "exhausted");
    let errors = failures(&parked);
    assert_eq!(errors.iter().map(|error| &error["message"]).collect::<Vec<_>>(), ["no", "no"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_deferred_once_too_often_is_parked_and_says_why() {
    let mut fixture = Fixture::new("defer-bound").await;
    fixture.retry().delays = millis([100]);
    fixture.retry().max_defers = Some(2);
    let run = fixture.serve_always(Err(Failure::defer(Duration::from_millis(1)))).await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!(run.stop().await.deferred, 2);
    assert_eq!(parked.headers["rehop-reason"], "deferred_too_often");
    assert_eq!(
        failures(&parked)[0]["message"],
        "deferred once more than retry.max_defers allows, which is 2: deferred by 1ms"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_message_is_deferred_past_its_deadline() {
    let mut fixture = Fixture::new("defer-deadline").await;
    fixture.retry().delays = millis([60_000]);
    let run = fixture.serve_always(Err(Failure::defer(Duration::from_millis(1)))).await;
    let message = fixture.to_queue().header("rehop-expires-at", now_millis() + 30_000);
    fixture.client.publish(message).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!(run.stop().await.deferred, 0);
    assert_eq!(parked.headers["rehop-reason"], "expired");
}
