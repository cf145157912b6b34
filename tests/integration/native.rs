//! Waits in the work queue itself, by the broker's delayed retries (4.3).

use std::time::{Duration, Instant};

use rehop::settings::{Declare, QueueType, WaitStrategy};
use rehop::{Backoff, Error, Failure};
use serde_json::json;

use crate::support::{DELAYED_RETRIES, Fixture, Log, PROMPTLY, failures, is_before_4_3, not_tried};

const DELAY: Duration = Duration::from_millis(300);

/// A queue whose messages wait in it `waits` times.
async fn native(test: &str, waits: u32) -> Fixture {
    let mut fixture = Fixture::new(test).await;
    let retry = fixture.retry();
    retry.strategy = Some(WaitStrategy::Native);
    retry.delays = Some(Backoff::Fixed { delay: DELAY, waits });
    fixture
}

/// Whether the broker has delayed retries. The tests that need them have nothing to check where it
/// has not.
pub(super) async fn is_known() -> bool {
    !is_before_4_3().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_cannot_delay_what_is_returned_is_refused_with_a_way_out() {
    let fixture = native("native-unknown", 2).await;
    if is_known().await {
        let run = fixture.serve_always(Ok(())).await;
        fixture.publish("x").await;
        fixture.has_depth(&fixture.queue, 0).await;
        run.stop().await;
        return;
    }
    let error = fixture.start_error().await;
    assert!(matches!(&error, Error::UnknownStrategy { .. }), "{error}");
    let text = error.to_string();
    for part in [fixture.queue.as_str(), "\"native\"", "from 4.3", "retry.strategy"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(
        fixture.client.depth(&fixture.queue).await.is_err(),
        "the work queue is not declared in vain"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_declared_elsewhere_needs_a_broker_that_delays_too() {
    let mut fixture = native("native-existing", 2).await;
    let arguments = serde_json::json!({"x-queue-type": "quorum"});
    fixture.client.declare_queue(&fixture.queue, arguments).await.unwrap();
    let queue = fixture.settings.queue_mut(&fixture.queue);
    queue.declare = Declare::Existing;
    queue.queue_type = Some(QueueType::Quorum);
    if is_known().await {
        let run = fixture.serve_always(Ok(())).await;
        fixture.publish("x").await;
        fixture.has_depth(&fixture.queue, 0).await;
        run.stop().await;
        return;
    }
    let error = fixture.start_error().await;
    assert!(matches!(&error, Error::UnknownStrategy { .. }), "{error}");
}

/// To take the queue as it is would start a service whose messages do not wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_was_declared_for_another_strategy_or_delay_is_refused_with_the_keys_and_a_way_that_loses_nothing()
 {
    if !is_known().await {
        return not_tried(DELAYED_RETRIES);
    }
    let mut fixture = native("native-declared", 2).await;
    fixture.declare().await;
    let refused = async |fixture: &Fixture| {
        let error = fixture.start_error().await;
        assert!(matches!(&error, Error::Mismatch { .. }), "{error}");
        let text = error.to_string();
        let says = ["x-delayed-retry-", "retry.strategy and retry.delays", "drain it"];
        assert!(
            says.iter().all(|part| text.contains(part)) && !text.contains("existing"),
            "{text}"
        );
    };
    fixture.retry().delays = Some(Backoff::Fixed { delay: DELAY * 2, waits: 2 });
    refused(&fixture).await;
    fixture.retry().strategy = Some(WaitStrategy::Tiers);
    refused(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_waits_in_its_queue_and_is_parked_after_immediate_and_waits_and_one_attempts() {
    if !is_known().await {
        return not_tried(DELAYED_RETRIES);
    }
    let mut fixture = native("native", 2).await;
    fixture.retry().immediate = Some(1);
    let (run, seen) = fixture
        .serve_noting(
            |message| (Instant::now(), message.attempt(), message.hop(), message.max_attempts()),
            Err(Failure::transient("no")),
        )
        .await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    let summary = run.stop().await;
    let seen = seen.all();
    let numbers: Vec<_> =
        seen.iter().map(|(_, attempt, hop, most)| (*attempt, *hop, *most)).collect();
    assert_eq!(numbers, [(1, 0, 4), (2, 0, 4), (3, 1, 4), (4, 2, 4)]);
    for waited in [seen[2].0 - seen[1].0, seen[3].0 - seen[2].0] {
        assert!(waited >= DELAY - Duration::from_millis(5), "{waited:?}");
    }
    assert_eq!((summary.requeued, summary.waited), (1, 2));
    assert_eq!(
        (&parked.headers["rehop-attempt"], &parked.headers["rehop-reason"]),
        (&4.into(), &"exhausted".into())
    );
    assert_eq!(failures(&parked).len(), 1, "of the last failure only");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_that_is_asked_for_is_at_most_the_one_that_the_queue_has() {
    if !is_known().await {
        return not_tried(DELAYED_RETRIES);
    }
    let fixture = native("native-asks", 2).await;
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message| {
            log.push((message.raw_body().to_vec(), Instant::now()));
            let asked = if message.raw_body() == "short" { DELAY / 3 } else { DELAY * 2 };
            let failed = message.raw_body() == "long" || message.hop() == 0;
            async move { if failed { Err(Failure::transient("no").after(asked)) } else { Ok(()) } }
        })
        .await;
    fixture.publish("short").await;
    let short = seen.reaches(2).await;
    fixture.publish("long").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    assert!(short[1].1 - short[0].1 >= DELAY - Duration::from_millis(5));
    assert_eq!(parked.headers["rehop-reason"], "delay_too_long");
    let text = failures(&parked)[0]["message"].to_string();
    let says = ["native", "300ms", "retry.after"];
    assert!(says.iter().all(|part| text.contains(part)), "{text}");
    run.stop().await;
}

/// A producer's own counts, and headers that only a copy of rehop's may have.
#[tokio::test(flavor = "multi_thread")]
async fn counts_and_headers_that_a_producer_has_set_are_not_believed() {
    if !is_known().await {
        return not_tried(DELAYED_RETRIES);
    }
    let fixture = native("native-hostile", 2).await;
    let (run, seen) = fixture
        .serve_noting(
            |message| (message.hop(), message.user_id().map(str::to_owned)),
            Err(Failure::transient("no")),
        )
        .await;
    let hostile = fixture
        .to_queue()
        .body("x")
        .header("x-delivery-count", 1_000_000)
        .header("x-acquired-count", 5);
    fixture
        .client
        .publish(hostile.header("rehop-hop", 7).header("rehop-user-id", "root"))
        .await
        .unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(seen.all(), [(0, None), (1, None), (2, None)]);
    assert_eq!(parked.headers["rehop-attempt"], 3);
}

/// Nothing of the delay is spent, and the message comes to the next service at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_handed_back_at_the_shutdown_does_not_wait() {
    if !is_known().await {
        return not_tried(DELAYED_RETRIES);
    }
    let mut fixture = native("native-hand-back", 2).await;
    fixture.retry().delays = Some(Backoff::Fixed { delay: Duration::from_secs(3600), waits: 2 });
    fixture.consume().concurrency = Some(1);
    fixture.consume().prefetch = Some(4);
    let (run, started, gate) = fixture.serve_gated(8, Ok(())).await;
    // Settled deliveries open the window to more than one.
    for _ in 0..8 {
        fixture.publish("first").await;
    }
    started.reaches(8).await;
    for _ in 0..4 {
        fixture.publish("held").await;
    }
    started.reaches(9).await;
    fixture.has_depth(&fixture.queue, 0).await;
    let run = run.begin_stop();
    gate.add_permits(1);
    let summary = run.ended().await.unwrap();
    assert!(summary.handed_back > 0, "{summary}");
    let (run, seen) =
        fixture.serve_noting(|message| (message.hop(), message.attempt() > 1), Ok(())).await;
    let seen = seen.reaches(summary.handed_back as usize).await;
    assert!(seen.iter().all(|(hop, _)| *hop == 0), "{seen:?}");
    run.stop().await;
}

/// The policy makes waits pass at once. Attempts stay bounded, because the broker counts them all
/// the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_policy_that_switches_the_delay_off_leaves_attempts_bounded() {
    if !is_known().await {
        return not_tried(DELAYED_RETRIES);
    }
    let fixture = native("native-policy", 3).await;
    fixture.declare().await;
    fixture.set_policy(&fixture.queue, json!({ "delayed-retry-type": "disabled" })).await;
    let (run, seen) =
        fixture.serve_noting(|message| message.attempt(), Err(Failure::transient("no"))).await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    fixture.clear_policy(&fixture.queue).await;
    assert_eq!(seen.all(), [1, 2, 3, 4]);
    assert_eq!(parked.headers["rehop-reason"], "exhausted");
}

/// The broker multiplies the least delay by the returns that it has counted, here the two immediate
/// attempts. However long the policy's longest delay is, no wait comes near it.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_policy_with_other_delays_changes_how_long_waits_last_and_leaves_attempts_bounded()
{
    if !is_known().await {
        return not_tried(
            "a policy with other native delays, because this broker does not know them (4.3 does)",
        );
    }
    let mut fixture = native("native-policy-delays", 3).await;
    fixture.retry().immediate = Some(2);
    fixture.declare().await;
    let definition = json!({ "delayed-retry-type": "returned", "delayed-retry-min": 50, "delayed-retry-max": 60000 });
    fixture.set_policy(&fixture.queue, definition).await;
    let note =
        |message: &rehop::Message<bytes::Bytes>| (Instant::now(), message.attempt(), message.hop());
    let (run, seen) = fixture.serve_noting(note, Err(Failure::transient("no"))).await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    fixture.clear_policy(&fixture.queue).await;
    let seen = seen.all();
    let numbers: Vec<_> = seen.iter().map(|(_, attempt, hop)| (*attempt, *hop)).collect();
    assert_eq!(numbers, [(1, 0), (2, 0), (3, 0), (4, 1), (5, 2), (6, 3)]);
    let bounds = Duration::from_millis(45)..PROMPTLY;
    assert!(seen[2..].windows(2).all(|step| bounds.contains(&(step[1].0 - step[0].0))), "{seen:?}");
    assert_eq!(parked.headers["rehop-reason"], "exhausted");
}

/// A message that waits when the policy comes is not lost, and one that fails afterwards has its
/// attempts at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_policy_that_switches_the_delay_off_while_the_service_runs_leaves_attempts_bounded()
 {
    if !is_known().await {
        return not_tried(DELAYED_RETRIES);
    }
    let fixture = native("native-policy-later", 3).await;
    let note =
        |message: &rehop::Message<bytes::Bytes>| (message.raw_body().to_vec(), message.attempt());
    let (run, seen) = fixture.serve_noting(note, Err(Failure::transient("no"))).await;
    fixture.publish("waits").await;
    seen.reaches(1).await;
    fixture.set_policy(&fixture.queue, json!({ "delayed-retry-type": "disabled" })).await;
    fixture.publish("later").await;
    let parked = fixture.drain_parked(2).await;
    run.stop().await;
    fixture.clear_policy(&fixture.queue).await;
    assert!(
        parked.iter().all(|message| message.headers["rehop-reason"] == "exhausted"),
        "{parked:?}"
    );
    for body in ["waits", "later"] {
        let seen = seen.all();
        let attempts =
            seen.iter().filter(|(of, _)| of == body.as_bytes()).map(|(_, attempt)| *attempt);
        assert_eq!(attempts.collect::<Vec<_>>(), [1, 2, 3, 4], "{body}");
    }
}
