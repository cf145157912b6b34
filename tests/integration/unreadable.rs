//! Messages that the AMQP client cannot read.

use rehop_operator::parked::{ListRequest, Parked, ParkedError, Place};
use rehop_testing::{Broker, eventually};

use crate::support::raw_amqp::publish_unreadable;
use crate::support::{Fixture, Log, SOON};

/// Each of its deliveries ends the connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_cannot_be_read_is_parked_alone_by_the_limit_and_operators_are_told() {
    let mut fixture = Fixture::new("unreadable").await;
    // Others that are delivered with it are charged, too, until the window is narrow.
    fixture.retry().delivery_limit = Some(5);
    let handled = Log::default();
    let log = handled.clone();
    let run = fixture
        .serve(move |message| {
            log.push(message.raw_body().clone());
            async { Ok(()) }
        })
        .await;
    // The window is wide open when the message comes.
    let before: Vec<_> = (0..40).map(|n| format!("before {n}")).collect();
    fixture.client.publish_many(before.iter().map(|body| fixture.to_queue().body(body.as_str()))).await.unwrap();
    handled.reaches(before.len()).await;
    publish_unreadable(Broker::shared().await.amqp_url(), &fixture.queue).await;
    let others: Vec<_> = (0..20).map(|n| format!("other {n}")).collect();
    fixture.client.publish_many(others.iter().map(|body| fixture.to_queue().body(body.as_str()))).await.unwrap();
    fixture.has_depth(&fixture.parked(), 1).await;
    let what = "the others are handled";
    eventually(SOON, what, async || {
        let handled = handled.all();
        let left: Vec<_> = others.iter().filter(|body| !handled.iter().any(|it| it == body.as_bytes())).collect();
        if left.is_empty() { Ok(true) } else { Err(format!("{left:?} are left")) }
    })
    .await
    .unwrap();
    let summary = run.stop().await;
    assert!(summary.parked.is_empty(), "{summary}");
    fixture.has_depth(&fixture.queue, 0).await;
    fixture.has_depth(&fixture.parked(), 1).await;

    let parked = Parked::open(&fixture.settings, Place::Queue(fixture.queue.clone())).unwrap();
    let error = parked.list(&ListRequest::default()).await.unwrap_err();
    assert!(matches!(error, ParkedError::Broker(rehop::Error::Unreadable { .. })), "{error}");
    fixture.has_depth(&fixture.parked(), 1).await;
}
