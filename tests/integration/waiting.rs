//! Waits and deadlines: no attempt is early or after the deadline.

use std::time::{Duration, Instant};

use rehop::Failure;
use rehop::settings::{Ending, MaxAge};
use rehop_testing::Publish;
use serde_json::json;

use crate::support::{Fixture, Log, failures, millis, now_millis};

/// How long after the first attempt the others ran, if the first one asks for this delay.
async fn attempts_after(fixture: &Fixture, asked: u64) -> (Vec<Duration>, rehop::Summary) {
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |_| {
            let count = log.push(Instant::now());
            let failure = Failure::transient("busy").after(Duration::from_millis(asked));
            async move { if count < 2 { Err(failure) } else { Ok(()) } }
        })
        .await;
    fixture.publish("x").await;
    let seen = seen.reaches(2).await;
    (seen.iter().map(|at| *at - seen[0]).collect(), run.stop().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_takes_the_smallest_tier_that_is_long_enough() {
    let mut fixture = Fixture::new("retry-after").await;
    fixture.retry().delays = millis([100, 300]);
    let (seen, summary) = attempts_after(&fixture, 130).await;
    assert!(seen[1] >= Duration::from_millis(300), "{seen:?}");
    assert_eq!((summary.waited, summary.handled), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_longer_than_any_tier_waits_in_several_legs_and_no_handler_runs_between() {
    let mut fixture = Fixture::new("legs").await;
    fixture.retry().delays = millis([2_000]);
    let (seen, summary) = attempts_after(&fixture, 5_900).await;
    assert!(seen[1] >= Duration::from_millis(5_900), "{seen:?}");
    assert_eq!(seen.len(), 2);
    // 2 s + 2 s + 1.9 s, which takes another 2 s unless the first two are so late together that
    // nothing is left.
    assert!((2..=3).contains(&summary.waited) && summary.handled == 1, "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_of_several_legs_uses_up_one_of_the_policys_waits() {
    let mut fixture = Fixture::new("legs-budget").await;
    fixture.retry().delays = millis([100, 100]);
    let (run, seen) = fixture
        .serve_noting(
            |message| (message.attempt(), message.hop(), message.errors().len()),
            Err(Failure::transient("busy").after(Duration::from_millis(250))),
        )
        .await;
    fixture.publish("x").await;
    fixture.drain_parked(1).await;
    run.stop().await;
    assert_eq!(seen.all(), [(1, 0, 0), (2, 1, 1), (3, 2, 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_that_needs_more_than_eight_legs_parks_the_message_and_says_how_long_a_wait_can_be()
 {
    let fixture = Fixture::new("too-long").await;
    let longest = Duration::from_millis(8 * 200);
    let run = fixture
        .serve_always(Err(Failure::transient("busy").after(longest + Duration::from_millis(1))))
        .await;
    fixture.publish("x").await;
    let parked = fixture.drain_parked(1).await.remove(0);
    assert_eq!(run.stop().await.waited, 0);
    assert_eq!(parked.headers["rehop-reason"], "delay_too_long");
    assert_eq!(
        failures(&parked)[0]["message"],
        "asked to wait 1s 601ms, but retry.delays allows 1s 600ms at most (8 times its longest delay); set retry.after = \"ladder\" for \
         up to 30days: busy"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_follow_the_delays_in_order_and_are_never_shorter() {
    let mut fixture = Fixture::new("in-order").await;
    fixture.retry().delays = millis([200, 100]);
    let (run, seen) = fixture.serve_noting(|_| Instant::now(), Err(Failure::transient("no"))).await;
    fixture.publish("x").await;
    let seen = seen.reaches(3).await;
    run.stop().await;
    assert!(seen[1] - seen[0] >= Duration::from_millis(200));
    assert!(seen[2] - seen[1] >= Duration::from_millis(100));
}

/// Publishes one message to a service whose handler always fails, and returns how many attempts
/// there were and the reason. `message` is made when the service runs: it may have a deadline.
async fn attempts_until_parked(
    fixture: &Fixture,
    message: impl FnOnce() -> Publish,
) -> (usize, String) {
    let (run, seen) = fixture.serve_noting(|_| (), Err(Failure::transient("no"))).await;
    fixture.client.publish(message()).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    (seen.all().len(), parked.headers["rehop-reason"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_message_is_not_attempted() {
    let fixture = Fixture::new("expired").await;
    let message = || fixture.to_queue().header("rehop-expires-at", now_millis() - 1);
    assert_eq!(attempts_until_parked(&fixture, message).await, (0, "expired".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_wait_is_begun_that_would_end_past_the_deadline() {
    let mut fixture = Fixture::new("expires-in-wait").await;
    fixture.retry().delays = millis([100, 60_000]);
    let message = || fixture.to_queue().header("rehop-expires-at", now_millis() + 30_000);
    assert_eq!(attempts_until_parked(&fixture, message).await, (2, "expired".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_can_give_the_deadline_in_a_header_of_another_name_and_as_text() {
    let mut fixture = Fixture::new("custom-expiry").await;
    fixture.settings.expiry_header = "x-good-until".to_owned();
    let message = || fixture.to_queue().header("x-good-until", (now_millis() - 1).to_string());
    assert_eq!(attempts_until_parked(&fixture, message).await, (0, "expired".to_owned()));
}

/// As producers in other languages write it.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_is_over_is_read_in_each_form_and_what_is_none_is_no_deadline() {
    let fixture = Fixture::new("forms-of-expiry").await;
    let forms = [
        json!(1_600_000_000_000.25),
        json!("1600000000000.75"),
        json!("1.6e12"),
        json!("2020-11-28T10:30:05.250Z"),
        json!("2020-11-28T10:30:05.123456789+05:30"),
    ];
    let (run, seen) =
        fixture.serve_noting(|message| message.header("form").is_some(), Ok(())).await;
    for form in &forms {
        let expired = fixture.to_queue().header("rehop-expires-at", form.clone());
        fixture.client.publish(expired.header("form", 1)).await.unwrap();
    }
    let parked = fixture.drain_parked(forms.len()).await;
    for message in parked {
        assert_eq!(message.headers["rehop-reason"], json!("expired"), "{:?}", message.headers);
    }
    let unread = fixture.to_queue().header("rehop-expires-at", "tomorrow");
    fixture.client.publish(unread).await.unwrap();
    seen.reaches(1).await;
    run.stop().await;
    assert_eq!(seen.all(), [false], "only what has no deadline is attempted");
}

/// The broker itself would drop the message at the end of its `expiration` if it were still in the
/// work queue.
#[tokio::test(flavor = "multi_thread")]
async fn expiration_and_timestamp_make_a_deadline_that_is_kept_over_hops() {
    let mut fixture = Fixture::new("expiration").await;
    fixture.retry().delays = millis([100, 600_000]);
    let message = || {
        fixture.to_queue().properties(|it| {
            it.expiration = Some("300000".to_owned());
            it.timestamp = Some(now_millis() as u64 / 1000);
        })
    };
    assert_eq!(attempts_until_parked(&fixture, message).await, (2, "expired".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn max_age_counts_from_the_first_delivery_and_not_from_each_hop() {
    let mut fixture = Fixture::new("max-age").await;
    fixture.retry().delays = millis([1_500; 6]);
    fixture.retry().max_age = Some(MaxAge(Some(Duration::from_secs(5))));
    let message = || fixture.to_queue();
    let (attempts, reason) = attempts_until_parked(&fixture, message).await;
    assert!((1..=4).contains(&attempts), "{attempts} attempts within 5 s, one each 1.5 s");
    assert_eq!(reason, "expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_and_exhausted_messages_can_be_discarded_instead_of_parked() {
    let mut fixture = Fixture::new("discard-endings").await;
    fixture.retry().delays = millis([100]);
    fixture.retry().on_expired = Some(Ending::Discard);
    fixture.retry().on_exhausted = Some(Ending::Discard);
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message| {
            let count = log.push(message.raw_body().clone());
            async move { if count < 3 { Err(Failure::transient("no")) } else { Ok(()) } }
        })
        .await;
    fixture
        .client
        .publish(fixture.to_queue().body("late").header("rehop-expires-at", 1_600_000_000_000_i64))
        .await
        .unwrap();
    fixture.publish("failing").await;
    seen.reaches(2).await;
    fixture.publish("last").await;
    seen.reaches(3).await;
    let summary = run.stop().await;
    assert_eq!(summary.discarded.len(), 2, "{summary:?}");
    assert_eq!((summary.handled, summary.parked.len()), (1, 0));
    assert_eq!(fixture.client.depth(&fixture.parked()).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_is_written_into_the_header_that_producers_use() {
    let mut fixture = Fixture::new("deadline-header").await;
    fixture.settings.expiry_header = "good-until".to_owned();
    fixture.retry().delays = millis([100]);
    let run = fixture.serve_always(Err(Failure::transient("no"))).await;
    let deadline = now_millis() + 60_000;
    fixture.client.publish(fixture.to_queue().header("good-until", deadline)).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(parked.headers["good-until"], json!(deadline));
    assert!(!parked.headers.contains_key("rehop-expires-at"));
}
