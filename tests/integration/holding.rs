//! Waits in the process that consumes.

use std::time::{Duration, Instant};

use rehop::Failure;
use rehop::settings::{Declare, QueueType, WaitStrategy};
use serde_json::json;

use crate::support::{Fixture, Log, PROMPTLY, failures, is_before_4_3, millis, not_tried};

/// A queue whose messages wait in the process that handles them.
async fn held(test: &str, delays: &[u64]) -> Fixture {
    let mut fixture = Fixture::new(test).await;
    fixture.retry().strategy = Some(WaitStrategy::InProcess);
    fixture.retry().delays = millis(delays.iter().copied());
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_waits_in_the_process_keeps_its_history_and_is_parked_with_all_of_it() {
    let mut fixture = held("held", &[100, 200]).await;
    fixture.retry().immediate = Some(1);
    let (run, seen) = fixture
        .serve_noting(
            |message| {
                (
                    Instant::now(),
                    message.attempt(),
                    message.hop(),
                    message.errors().len(),
                    message.redelivered(),
                )
            },
            Err(Failure::transient("no")),
        )
        .await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    let summary = run.stop().await;
    let seen = seen.all();
    let numbers: Vec<_> = seen
        .iter()
        .map(|(_, attempt, hop, errors, again)| (*attempt, *hop, *errors, *again))
        .collect();
    assert_eq!(
        numbers,
        [
            (1, 0, 0, false),
            (2, 0, 1, false),
            (3, 1, 2, false),
            (4, 1, 3, false),
            (5, 2, 4, false),
            (6, 2, 5, false)
        ]
    );
    assert!(seen[2].0 - seen[1].0 >= Duration::from_millis(100));
    assert!(seen[4].0 - seen[3].0 >= Duration::from_millis(200));
    assert_eq!((summary.requeued, summary.waited), (3, 2));
    assert_eq!(
        (&parked.headers["rehop-attempt"], &parked.headers["rehop-hop"]),
        (&6.into(), &2.into())
    );
    assert_eq!(failures(&parked).len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_waits_in_the_process_holds_up_no_other() {
    let mut fixture = held("held-slot", &[60_000]).await;
    fixture.consume().concurrency = Some(1);
    fixture.consume().prefetch = Some(50);
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message| {
            let fails = message.raw_body() == "waits" && message.hop() == 0;
            log.push((message.raw_body().to_vec(), message.hop()));
            async move { if fails { Err(Failure::transient("no")) } else { Ok(()) } }
        })
        .await;
    fixture.publish("waits").await;
    // With one handler, the window is for one delivery until three have ended.
    seen.reaches(1).await;
    for _ in 0..5 {
        fixture.publish("passes").await;
    }
    seen.reaches(6).await;
    let summary = run.stop().await;
    assert_eq!((summary.handled, summary.handed_back), (5, 1), "the others did not wait for it");
}

/// Its budget starts again, and it comes at once to the next service.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_waits_in_the_process_is_handed_back_at_the_shutdown() {
    let fixture = held("held-stop", &[60_000]).await;
    let (run, seen) =
        fixture.serve_noting(|message| message.hop(), Err(Failure::transient("no"))).await;
    fixture.publish("x").await;
    seen.reaches(1).await;
    let since = Instant::now();
    let summary = run.stop().await;
    assert!(since.elapsed() < PROMPTLY, "{:?}", since.elapsed());
    assert_eq!((summary.waited, summary.handed_back), (1, 1), "{summary}");
    let (run, seen) =
        fixture.serve_noting(|message| (message.hop(), message.errors().len()), Ok(())).await;
    assert_eq!(seen.reaches(1).await, [(0, 0)]);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_waits_in_the_process_when_its_channel_is_lost_comes_again() {
    let mut fixture = held("held-lost", &[60_000]).await;
    fixture.retry().immediate = Some(0);
    let proxy = fixture.put_behind_proxy().await;
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message| {
            let fails = !message.redelivered();
            log.push((message.redelivered(), message.hop()));
            async move { if fails { Err(Failure::transient("no")) } else { Ok(()) } }
        })
        .await;
    fixture.publish("x").await;
    seen.reaches(1).await;
    proxy.cut();
    assert_eq!(seen.reaches(2).await, [(false, 0), (true, 0)]);
    let summary = run.stop().await;
    assert_eq!((summary.handled, summary.handed_back), (1, 0), "{summary}");
    fixture.has_depth(&fixture.queue, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_broker_lets_messages_of_an_own_queue_wait_here_for_as_long_as_the_settings_say() {
    if is_before_4_3().await {
        return not_tried(ASKED);
    }
    let fixture = held("held-asked", &[7_000]).await;
    fixture.declare().await;
    fixture.set_policy(&fixture.queue, json!({ "consumer-timeout": 2000 })).await;
    waits_here_for_as_long_as_the_settings_say(fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_broker_lets_messages_of_an_existing_quorum_queue_wait_here_for_as_long_as_the_settings_say()
 {
    if is_before_4_3().await {
        return not_tried(ASKED);
    }
    let mut fixture = held("held-asked-existing", &[7_000]).await;
    let arguments = json!({
        "x-queue-type": "quorum", "x-delivery-limit": 20, "x-consumer-timeout": 2_000,
        "x-dead-letter-exchange": format!("{}.park", fixture.namespace.name()), "x-dead-letter-routing-key": fixture.queue,
        "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    });
    fixture.client.declare_queue(&fixture.queue, arguments).await.unwrap();
    let queue = fixture.settings.queue_mut(&fixture.queue);
    (queue.declare, queue.queue_type) = (Declare::Existing, Some(QueueType::Quorum));
    waits_here_for_as_long_as_the_settings_say(fixture).await;
}

const ASKED: &str =
    "the ack timeout that a consumer asks for, which only RabbitMQ 4.3 and later obey";

/// 3.10 and 4.0 would look only once a minute. With one handler, the subscription that brought a
/// message ends while the message waits.
async fn waits_here_for_as_long_as_the_settings_say(mut fixture: Fixture) {
    (fixture.consume().concurrency, fixture.consume().prefetch) = (Some(1), Some(2));
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message| {
            let fails = message.hop() == 0;
            log.push((message.redelivered(), message.hop()));
            async move { if fails { Err(Failure::transient("no")) } else { Ok(()) } }
        })
        .await;
    for _ in 0..2 {
        fixture.publish("x").await;
    }
    let mut seen = seen.reaches(4).await;
    seen.sort_unstable();
    assert_eq!(seen, [(false, 0), (false, 0), (false, 1), (false, 1)]);
    let summary = run.stop().await;
    assert_eq!((summary.handled, summary.taken_back), (2, 0), "{summary}");
    fixture.has_depth(&fixture.queue, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_that_the_process_cannot_hold_parks_the_message() {
    let fixture = held("held-asks", &[100]).await;
    let hours = Duration::from_secs(2 * 3600);
    let run = fixture.serve_always(Err(Failure::transient("later").after(hours))).await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(parked.headers["rehop-reason"], "delay_too_long");
    let text = failures(&parked)[0]["message"].to_string();
    let says = ["in-process", "consumer_timeout", "retry.after"];
    assert!(says.iter().all(|part| text.contains(part)), "{text}");
}

/// The broker forgets none that waits: it is unacked, and in no queue that rehop declares.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_a_wait_in_the_process() {
    let fixture = held("held-deadline", &[100, 60_000]).await;
    let run = fixture.serve_always(Err(Failure::transient("no"))).await;
    let deadline = crate::support::now_millis() + 30_000;
    fixture
        .client
        .publish(fixture.to_queue().body("x").header("rehop-expires-at", deadline))
        .await
        .unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(
        (&parked.headers["rehop-reason"], &parked.headers["rehop-attempt"]),
        (&"expired".into(), &2.into())
    );
}
