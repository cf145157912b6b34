//! What assertions say about a service on a real broker.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use rehop::{Failure, Message, Service};
use rehop_testing::prelude::*;

/// Handles 1, and 3 at its second attempt. Parks the rest; 2 panics, and is parked for that.
async fn charge(order: Message<u32>) -> Result<(), Failure> {
    match (order.body, order.attempt()) {
        (1, _) | (3, 2) => Ok(()),
        (2, _) => panic!("no account"),
        (3, _) => Err(Failure::transient("not yet")),
        _ => Err(Failure::permanent("nothing to charge")),
    }
}

async fn serve(settings: Settings, stop: Stop) -> Result<(), rehop::Error> {
    let service = Service::new(&settings).consumer("orders", charge);
    service.with_graceful_shutdown(stop).await.map(drop)
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    (settings.retry.immediate, settings.retry.delays) =
        (Some(0), Some(rehop::Backoff::List(Vec::new())));
    settings
}

/// The text with which a future panics.
async fn panic_of(test: impl Future<Output = ()>) -> String {
    let panic = AssertUnwindSafe(test).catch_unwind().await.unwrap_err();
    *panic.downcast::<String>().unwrap()
}

#[tokio::test]
async fn an_assertion_that_fails_on_a_real_broker_says_what_happened() {
    let mut world = RealWorld::new().await;
    world.start(settings(), serve);
    let good = world.publish("orders", &1).await;
    let bad = world.publish("orders", &0).await;
    let panics = world.publish("orders", &2).await;
    world.assert_handled(&good).await;
    world.assert_attempts(&good, 1);
    world.assert_parked(&panics, Reason::Exhausted).await;
    // The copy is in the parked queue before the service tells of it.
    let told = eventually(Duration::from_secs(60), "the service tells of it", async || {
        world.history(&bad).contains("parked: permanent")
    });
    told.await.unwrap();
    let text = panic_of(world.assert_parked(&bad, Reason::Exhausted)).await;
    world.finish().await;
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("crates/testing/tests/real_world.rs:"), "{text}");
    assert!(
        lines[0].ends_with(" was expected to be parked as exhausted; it was parked as permanent"),
        "{text}"
    );
    assert!(lines[1].starts_with("message ") && lines[1].ends_with(" in orders:"), "{text}");
    let attempt = "attempt 1 in process 1, parked: permanent (permanent: nothing to charge)";
    assert!(lines[2].ends_with(attempt) && lines[3].ends_with("  now"), "{text}");
}

#[tokio::test]
async fn a_message_that_comes_to_another_end_is_no_reason_to_wait() {
    let mut world = RealWorld::new().await;
    world.start(settings(), serve);
    let [good, bad] = [world.publish("orders", &1).await, world.publish("orders", &0).await];
    world.assert_handled(&good).await;
    let text = panic_of(world.assert_handled(&bad)).await;
    world.finish().await;
    assert!(text.contains(" was parked as permanent instead of handled\n"), "{text}");
}

#[tokio::test]
async fn a_service_that_ends_with_an_error_is_named() {
    let mut world = RealWorld::new().await;
    world.start(settings(), |_, _| async { Err::<(), _>("no configuration") });
    let text = panic_of(world.finish()).await;
    assert!(text.ends_with("; process 1 ended: \"no configuration\""), "{text}");
}

#[tokio::test]
async fn a_process_that_fails_does_not_end_the_wait_for_another() {
    let mut world = RealWorld::new().await;
    let mut settings = settings();
    settings.retry.delays = Some(rehop::Backoff::List(vec![Duration::from_secs(1)]));
    world.start(settings.clone(), |_, _| async { Err::<(), _>("no configuration") });
    world.start(settings, serve);
    let order = world.publish("orders", &3).await;
    world.assert_handled(&order).await;
    let text = panic_of(world.finish()).await;
    assert!(text.ends_with("; process 1 ended: \"no configuration\""), "{text}");
}

#[tokio::test]
async fn a_message_that_no_process_is_left_to_handle_is_not_waited_for() {
    let mut world = RealWorld::new().await;
    world.client().declare_queue("orders", serde_json::json!({})).await.unwrap();
    let properties = lapin::BasicProperties::default().with_message_id("a".into());
    let order = world.publish_raw("orders", properties.clone(), "1").await;
    let text = panic_of(world.assert_handled(&order)).await;
    let again = panic_of(async { drop(world.publish_raw("orders", properties, "1").await) }).await;
    world.finish().await;
    let but =
        "message a was not handled, and all processes have ended; no service told of any message";
    assert!(text.contains(but), "{text}");
    assert!(again.contains("already published a message with the message_id \"a\""), "{again}");
}
