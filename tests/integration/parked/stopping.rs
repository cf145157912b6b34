//! Replays and imports that stop half way, or before they begin. What they have not sent stays
//! where it was, in its order.

use std::time::Duration;

use bytes::Bytes;
use rehop::{Failure, Message, Settings, Topology};
use rehop_operator::parked::{Filter, ImportRequest, Parked, ParkedError, Place, Progress, Stop};
use rehop_testing::{Broker, Publish};
use rehop_worlds::{Conditions, Version, World};
use serde_json::json;

use super::{never, numbered, ramp, request};
use crate::support::{Fixture, Running, SOON, not_tried};

impl Fixture {
    /// A service that fails the messages of these numbers, each as `failure` says of its body, and
    /// handles the others.
    async fn serve_failing(
        &self,
        fails: impl Fn(usize) -> bool + Send + Sync + 'static,
        failure: impl Fn(&str) -> Failure + Send + Sync + 'static,
    ) -> Running {
        self.serve(move |message: Message<Bytes>| {
            let body = String::from_utf8_lossy(&message.body).into_owned();
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
    fixture
        .client
        .unbind(queue, &exchange, "", json!({ "x-match": "all", "rehop-return-to": queue }))
        .await
        .unwrap();
    gate.add_permits(20);
    let replayed = tokio::time::timeout(SOON, replaying).await.unwrap().unwrap().unwrap();
    assert_eq!(
        (replayed.stopped.clone(), replayed.fates.handled),
        (Some(Stop::StrayGrew), 2),
        "{replayed:?}"
    );
    let sent = replayed.tally.moved;
    assert!((3..=SENT_AT_MOST).contains(&sent), "{replayed:?}");
    fixture.has_depth(&fixture.stray(), sent as u32 - 2).await;
    fixture.has_depth(&fixture.parked(), 20 - sent as u32).await;
    assert_eq!(fixture.parked_bodies().await, numbered(20)[sent as usize..]);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_stops_when_a_message_parks_with_an_error_that_none_had_before() {
    // One in ten may be slow, and on a busy machine this one's fate may come after those of several
    // batches.
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
    assert_eq!(
        (replayed.stopped.clone(), replayed.fates.parked_again),
        (Some(new), 1),
        "{replayed:?}"
    );
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
    let as_before =
        |body: &str| Failure::permanent(format!("cannot charge {body}")).with_class("charge");
    let run = fixture.serve_failing(|number| number >= HANDLED, as_before).await;
    let replayed =
        fixture.operator().replay(&request(ramp(&[5, 10, 20])), |_| {}, never()).await.unwrap();
    assert_eq!(replayed.stopped, Some(Stop::TooManyFailed), "{replayed:?}");
    let sent = replayed.tally.moved as usize;
    assert!((HANDLED + 1..=SENT_AT_MOST).contains(&sent), "{replayed:?}");
    let fates =
        (replayed.fates.handled as usize, replayed.fates.parked_again as usize, replayed.unknown);
    assert_eq!(fates, (HANDLED, sent - HANDLED, 0));
    fixture.has_depth(&fixture.parked(), (40 - HANDLED) as u32).await;
    let (all, mut left) = (numbered(40), fixture.parked_bodies().await);
    // Those that parked again are behind the others, in the order in which their handlers ended.
    left[40 - sent..].sort_by_key(|body| all.iter().position(|other| other == body));
    assert_eq!(left, [&all[sent..], &all[HANDLED..sent]].concat());
    run.stop().await;
}

/// What is gone is not waited for by the next run.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_whose_messages_another_consumer_takes_is_no_success_and_can_be_run_again() {
    const PARKED: u64 = 30;
    let fixture = Fixture::new("stop-short").await;
    fixture.park(numbered(PARKED as usize)).await;
    let mut request = request(ramp(&[]));
    (request.rate, request.follow) = (Some(1.0), Duration::ZERO);
    // The operator holds one message at a time.
    let operator = fixture.operator().with_prefetch(1);
    let (moved, mut seen) = tokio::sync::watch::channel(0);
    let observe = |progress: &Progress| {
        moved.send_replace(progress.tally.moved);
    };
    let others = async {
        seen.wait_for(|moved| *moved > 0).await.unwrap();
        assert!(!fixture.client.get_all(&fixture.parked()).await.unwrap().is_empty());
    };
    let (replayed, ()) = tokio::join!(operator.replay(&request, observe, never()), others);
    let error = replayed.unwrap_err();
    let ParkedError::Incomplete { looked_at, wanted: PARKED, .. } = &error else {
        panic!("{error}")
    };
    assert!((1..PARKED).contains(looked_at), "{error}");
    // The end of the run has told what it did.
    assert_eq!(*seen.borrow(), *looked_at);
    fixture.has_depth(&fixture.queue, *looked_at as u32).await;
    let again = operator.replay(&request, |_| {}, never()).await.unwrap();
    assert_eq!((again.tally.snapshot, again.tally.moved, again.stopped), (0, 0, None));
}

/// A count that ends early may have missed any number of messages, so it agrees with no number,
/// even if it has found as many.
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
    fixture.settings.broker.consumer_timeout = Duration::from_secs(60);
    fixture.settings.consume.handler_timeout = Some(Duration::from_secs(1));
    let mut request = request(ramp(&[]));
    request.filter.chains = ["0", "1", "2"].map(str::to_owned).to_vec();
    request.expect = Some(3);
    proxy.rate(LARGE as u64 / 12);
    // One at a time, so that nothing more is on its way when the count ends.
    let error =
        fixture.operator().with_prefetch(1).replay(&request, |_| {}, never()).await.unwrap_err();
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

/// Each time, those that stay are at the head of the queue again.
#[test]
fn a_run_ends_when_the_messages_that_stay_take_too_long_to_read() {
    let slow = Conditions { latency: Duration::from_millis(40), ..Conditions::default() };
    let mut world = World::of(7, Version::V4_3, slow);
    let mut settings = Settings::default();
    settings.queue_mut("orders");
    // Messages are held for half of it.
    settings.broker.consumer_timeout = Duration::from_secs(60);
    settings.consume.handler_timeout = Some(Duration::from_secs(1));
    let declared = settings.clone();
    world.start(|_| async move { Topology::of(&declared)?.declare(&declared).await });
    let ids: Vec<_> = (0..600).map(|number| world.publish("orders.parked", &number)).collect();
    let mut request = request(ramp(&[]));
    request.filter.chains = [&ids[0], &ids[1], &ids[599]].map(|id| id.as_str().to_owned()).to_vec();
    let operator = Parked::open(&settings, Place::queue("orders")).unwrap().with_prefetch(1);
    let replay =
        world.start(|_| async move { operator.replay(&request, |_| {}, never()).await.map(drop) });
    world.pass(Duration::from_secs(600));
    assert!(world.has_ended(replay));
    let error = world.error(replay).unwrap();
    assert!(
        error.contains("of 600 messages in queue \"orders.parked\" could be looked at"),
        "{error}"
    );
    let left = |queue| world.queue(queue).unwrap().ready.len();
    assert_eq!((left("orders"), left("orders.parked")), (2, 598));
}

/// The leader of the queue stops after the import has looked at the queue, and confirms nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_nothing_confirms_ends_and_the_next_one_brings_what_is_missing() {
    const COUNT: u64 = 150;
    let broker = Broker::shared().await;
    if !broker.has_rabbitmqctl() {
        return not_tried("a queue whose leader is suspended, because rabbitmqctl cannot be run");
    }
    let mut fixture = Fixture::new("unconfirmed").await;
    fixture.declare().await;
    let message = |number: u64| {
        Publish::to_queue(fixture.parked()).message_id(number.to_string()).body(number.to_string())
    };
    fixture.client.publish_many((0..COUNT).map(message)).await.unwrap();
    fixture.has_depth(&fixture.parked(), COUNT as u32).await;
    let mut exported = Vec::new();
    let export = |message| {
        exported.push(message);
        true
    };
    assert_eq!(fixture.operator().export(&Filter::default(), None, export).await.unwrap(), COUNT);
    fixture.client.purge(&fixture.parked()).await.unwrap();

    // It waits for half of it.
    fixture.settings.broker.consumer_timeout = Duration::from_secs(30);
    fixture.settings.broker.timeout = Duration::from_secs(12);
    fixture.settings.consume.handler_timeout = Some(Duration::from_secs(1));
    let parked = fixture.parked();
    let tell = async |what: &str| {
        let told = format!("sys:{what}(whereis('%2F_{parked}')).");
        broker.rabbitmqctl(&["eval", &told]).await.unwrap();
    };
    let messages = exported.iter().cloned().enumerate().map(|(number, message)| {
        if number == 0 {
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(tell("suspend"))
            });
        }
        Ok(message)
    });
    let operator = fixture.operator();
    let imported =
        tokio::time::timeout(SOON, operator.import(&ImportRequest::default(), messages, never()))
            .await;
    tell("resume").await;
    let error = imported.expect("the import ends").unwrap_err();
    assert!(
        matches!(&error, ParkedError::Unconfirmed { within, .. } if *within == Duration::from_secs(15)),
        "{error}"
    );

    let again = exported.iter().cloned().map(Ok);
    let imported =
        fixture.operator().import(&ImportRequest::default(), again, never()).await.unwrap();
    assert_eq!(imported.imported + imported.already_there, COUNT, "{imported:?}");
    let mut bodies = fixture.parked_bodies().await;
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!(bodies.len() as u64, COUNT);
}
