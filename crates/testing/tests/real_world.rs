//! What assertions say about a service on a real broker.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use rehop::{Failure, Message, Service};
use rehop_testing::prelude::*;

/// Handles 1, and parks the rest. 2 panics, and is parked for that at once.
async fn charge(order: Message<u32>) -> Result<(), Failure> {
    match order.body {
        1 => Ok(()),
        2 => panic!("no account"),
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
    let text = panic_of(async move {
        world.assert_parked(&bad, Reason::Exhausted).await;
    });
    let text = text.await;
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("crates/testing/tests/real_world.rs:"), "{text}");
    assert!(lines[0].ends_with(" was not parked for exhausted, but for permanent"), "{text}");
    assert!(lines[1].starts_with("message ") && lines[1].ends_with(" in orders:"), "{text}");
    let attempt = "attempt 1 in process 1, parked: permanent (permanent: nothing to charge)";
    assert!(lines[2].ends_with(attempt) && lines[3].ends_with("  now"), "{text}");
}

#[tokio::test]
async fn a_message_that_comes_to_another_end_is_no_reason_to_wait() {
    let mut world = RealWorld::new().await;
    world.start(settings(), serve);
    let [good, bad] = [world.publish("orders", &1).await, world.publish("orders", &0).await];
    let began = std::time::Instant::now();
    let text = panic_of(async move {
        world.assert_handled(&good).await;
        world.assert_handled(&bad).await;
    });
    assert!(text.await.contains(" was not handled\n"));
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn a_service_that_ends_with_an_error_is_named() {
    let mut world = RealWorld::new().await;
    world.start(settings(), |_, _| async { Err::<(), _>("no configuration") });
    let text = panic_of(world.stop()).await;
    assert!(text.ends_with("; process 1 ended: \"no configuration\""), "{text}");
}
