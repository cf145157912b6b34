//! Large bodies and large headers.

use std::time::Duration;

use rehop::{Failure, Reason};

use crate::support::{Fixture, Log, millis};

/// 16 MiB is the largest body that RabbitMQ 4.x accepts.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_sixteen_mebibytes_goes_through_a_hop() {
    let mut fixture = Fixture::new("large-body").await;
    fixture.retry().delays = millis([100]);
    let body: Vec<u8> = (0..16 * 1024 * 1024).map(|index: u32| (index / 7) as u8).collect();
    let seen = Log::default();
    let (log, expected) = (seen.clone(), body.clone());
    let run = fixture
        .serve(move |message| {
            let count = log.push(message.raw_body().as_ref() == expected);
            async move { if count == 1 { Err(Failure::transient("again")) } else { Ok(()) } }
        })
        .await;
    fixture.client.publish(fixture.to_queue().body(body)).await.unwrap();
    assert_eq!(seen.reaches(2).await, [true, true]);
    assert_eq!(run.stop().await.handled, 1);
}

/// The producer's headers leave no room for rehop's, so the broker itself parks the message unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_headers_leave_no_room_for_rehops_is_parked_readable_and_others_continue() {
    let fixture = Fixture::new("large-headers").await;
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message| {
            log.push(message.hop());
            let large = message.header("large").is_some();
            async move { if large { Err(Failure::transient("no")) } else { Ok(()) } }
        })
        .await;
    let large = fixture.to_queue().body("large").header("large", "x".repeat(130_000));
    fixture.client.publish(large).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    fixture.publish("small").await;
    seen.reaches(2).await;
    let summary = run.stop().await;
    assert_eq!(seen.all(), [0, 0], "one attempt each");
    assert_eq!(summary.parked[&Reason::Unpublishable], 1);
    assert_eq!(summary.handled, 1);
    assert_eq!(parked.text(), "large");
    let ours = parked.headers.keys().any(|name| name.starts_with("rehop-"));
    assert!(parked.headers.contains_key("large") && !ours, "as it came: there is no room for more");
}

/// The broker's own header, the delivery count, makes the content header larger than a frame may be. Each time the client has to
/// give up the connection, until the deliveries reach the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_delivery_breaks_the_connection_is_parked_by_the_limit_and_others_continue() {
    let mut fixture = Fixture::new("frame-limit").await;
    fixture.retry().delivery_limit = Some(4);
    fixture.retry().immediate = Some(1);
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message| {
            let large = message.header("large").is_some();
            log.push(large);
            async move { if large { Err(Failure::requeue("again")) } else { Ok(()) } }
        })
        .await;
    let large = fixture.to_queue().body("large").header("large", "x".repeat(131_072 - 8 - 14 - 4 - 6 - 5 - 1));
    fixture.client.publish(large).await.unwrap();
    seen.reaches(1).await;
    fixture.publish("small").await;
    let what = "the small message is handled";
    rehop_testing::eventually(Duration::from_secs(60), what, async || seen.all().contains(&false)).await.unwrap();
    fixture.has_depth(&fixture.parked(), 1).await;
    run.stop().await;
}
