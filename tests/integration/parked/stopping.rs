//! Replays that stop half way, or before they begin. What they have not sent stays where it was, in its order.

use std::time::Duration;

use bytes::Bytes;
use rehop::parked::{ParkedError, Stop};
use rehop::testing::Publish;
use rehop::{Failure, Message};
use serde_json::json;

use super::{never, numbered, ramp, request};
use crate::support::{Fixture, Running, SOON};

impl Fixture {
    /// A service that fails the messages of these numbers, each as `failure` says of its body, and handles the others.
    async fn serve_failing(
        &self,
        fails: impl Fn(usize) -> bool + Send + Sync + 'static,
        failure: impl Fn(&str) -> Failure + Send + Sync + 'static,
    ) -> Running {
        self.serve(move |message: Message<Bytes>| {
            let body = String::from_utf8_lossy(&message).into_owned();
            let number = body.trim_start_matches("order ").parse().unwrap();
            std::future::ready(if fails(number) { Err(failure(&body)) } else { Ok(()) })
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_stops_when_a_message_becomes_stray() {
    const SENT_AT_MOST: u64 = 2 + 5;
    let fixture = Fixture::new("stop-stray").await;
    fixture.park(numbered(20)).await;
    let (run, started, gate) = fixture.serve_gated(0, Ok(())).await;
    let mut request = request(ramp(&[2, 5]));
    // The fate of what is stray stays unknown.
    request.follow = Duration::from_millis(100);
    let operator = fixture.operator();
    let replaying = tokio::spawn(async move { operator.replay(&request, |_| {}, never()).await });
    started.reaches(2).await;
    let (queue, exchange) = (&fixture.queue, format!("{}.return", fixture.namespace.name()));
    fixture.client.unbind(queue, &exchange, "", json!({ "x-match": "all", "return-to": queue })).await.unwrap();
    gate.add_permits(20);
    let replayed = tokio::time::timeout(SOON, replaying).await.unwrap().unwrap().unwrap();
    assert_eq!((replayed.stopped.clone(), replayed.fates.handled), (Some(Stop::StrayGrew), 2), "{replayed:?}");
    let sent = replayed.tally.moved;
    assert!((3..=SENT_AT_MOST).contains(&sent), "{replayed:?}");
    fixture.has_depth(&fixture.stray(), sent as u32 - 2).await;
    fixture.has_depth(&fixture.parked(), 20 - sent as u32).await;
    assert_eq!(fixture.parked_bodies().await, numbered(20)[sent as usize..]);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_stops_when_a_message_parks_with_an_error_that_none_had_before() {
    // One in ten may be slow, and on a busy machine this one's fate may come after those of several batches.
    const PARKED: usize = 60;
    const SENT_AT_MOST: u64 = 2 + 5 * 8;
    let fixture = Fixture::new("stop-error").await;
    fixture.park(numbered(PARKED)).await;
    let closed = |_: &str| Failure::permanent("the shop is closed").with_class("closed");
    let run = fixture.serve_failing(|number| number == 6, closed).await;
    let mut ramp = ramp(&[2, 8]);
    // No share of messages that park again stops it.
    ramp.max_failed = 1.0;
    let replayed = fixture.operator().replay(&request(ramp), |_| {}, never()).await.unwrap();
    let new = Stop::NewError { error: "the shop is closed".to_owned() };
    assert_eq!((replayed.stopped.clone(), replayed.fates.parked_again), (Some(new), 1), "{replayed:?}");
    let sent = replayed.tally.moved;
    assert!((7..=SENT_AT_MOST).contains(&sent), "{replayed:?}");
    fixture.has_depth(&fixture.parked(), PARKED as u32 - sent as u32 + 1).await;
    let expected = [&numbered(PARKED)[sent as usize..], &["order 6".to_owned()]].concat();
    assert_eq!(fixture.parked_bodies().await, expected);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_fails_again_half_way_disturbs_no_more_than_one_batch() {
    const HANDLED: usize = 5 + 10;
    const SENT_AT_MOST: usize = HANDLED + 20;
    let fixture = Fixture::new("stop-share").await;
    fixture.park(numbered(40)).await;
    // The same kind of error as before.
    let as_before = |body: &str| Failure::permanent(format!("cannot charge {body}")).with_class("charge");
    let run = fixture.serve_failing(|number| number >= HANDLED, as_before).await;
    let replayed = fixture.operator().replay(&request(ramp(&[5, 10, 20])), |_| {}, never()).await.unwrap();
    assert_eq!(replayed.stopped, Some(Stop::TooManyParked), "{replayed:?}");
    let sent = replayed.tally.moved as usize;
    assert!((HANDLED + 1..=SENT_AT_MOST).contains(&sent), "{replayed:?}");
    let fates = (replayed.fates.handled as usize, replayed.fates.parked_again as usize, replayed.unknown);
    assert_eq!(fates, (HANDLED, sent - HANDLED, 0));
    fixture.has_depth(&fixture.parked(), (40 - HANDLED) as u32).await;
    let (all, mut left) = (numbered(40), fixture.parked_bodies().await);
    // Those that parked again are behind the others, in the order in which their handlers ended.
    left[40 - sent..].sort_by_key(|body| all.iter().position(|other| other == body));
    assert_eq!(left, [&all[sent..], &all[HANDLED..sent]].concat());
    run.stop().await;
}

/// A count that ends early may have missed any number of messages, so it agrees with no number, even if it has found as many.
#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_was_cut_off_is_not_taken_for_the_expected_number() {
    const LARGE: usize = 200_000;
    let (mut fixture, proxy) = Fixture::behind_proxy("stop-count").await;
    fixture.declare().await;
    let parked = |number: usize, size: usize| {
        Publish::to_queue(fixture.parked()).message_id(number.to_string()).body(vec![b'x'; size])
    };
    let messages = (0..8).map(|number| parked(number, if number < 3 { 10 } else { LARGE }));
    fixture.client.publish_many(messages).await.unwrap();
    fixture.has_depth(&fixture.parked(), 8).await;
    // Messages are held for half of it, and the large ones need twice as long.
    fixture.settings.broker.consumer_timeout = Duration::from_secs(10);
    fixture.settings.consume.handler_timeout = Some(Duration::from_secs(1));
    let mut request = request(ramp(&[]));
    request.filter.chains = ["0", "1", "2"].map(str::to_owned).to_vec();
    request.expect = Some(3);
    proxy.rate(LARGE as u64 / 2);
    // One at a time, so that nothing more is on its way when the count ends.
    let error = fixture.operator().with_prefetch(1).replay(&request, |_| {}, never()).await.unwrap_err();
    proxy.rate(0);
    let ParkedError::Incomplete { looked_at, wanted, .. } = &error else { panic!("{error}") };
    assert!((3..8).contains(looked_at) && *wanted == 8, "{error}");
    assert!(error.to_string().contains(&format!("only {looked_at} of 8 messages")), "{error}");
    fixture.has_depth(&fixture.queue, 0).await;
    fixture.has_depth(&fixture.parked(), 8).await;
    let left: Vec<_> = fixture.client.get_all(&fixture.parked()).await.unwrap();
    let ids = left.iter().map(|message| message.properties.message_id.clone().unwrap());
    assert!(ids.eq((0..8).map(|number| number.to_string())), "in their order");
}
