//! Replays: what is sent, where to, and when they stop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rehop::Failure;
use rehop_operator::parked::{
    Filter, ListRequest, Parked, Place, Planned, Progress, RampSettings, Stop,
};
use rehop_testing::{Publish, Received, eventually};

use super::{never, numbered, ramp, request};
use crate::support::{Fixture, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn replayed_messages_start_again_at_their_queue_with_their_key_and_their_history() {
    let fixture = Fixture::new("replay").await;
    fixture.declare().await;
    fixture
        .client
        .declare_exchange(&fixture.namespace.exchange("shop"), "topic", serde_json::Value::Null)
        .await
        .unwrap();
    fixture
        .client
        .bind(
            &fixture.queue,
            &fixture.namespace.exchange("shop"),
            "order.#",
            serde_json::Value::Null,
        )
        .await
        .unwrap();
    let to_shop = Publish::to(fixture.namespace.exchange("shop"), "order.created").body("seven");
    fixture.client.publish(to_shop).await.unwrap();
    let run = fixture.serve_always(Err(Failure::permanent("no"))).await;
    fixture.has_depth(&fixture.parked(), 1).await;
    run.stop().await;
    let (run, seen) = fixture
        .serve_noting(
            |message| {
                let history: Vec<_> =
                    message.errors().iter().map(|error| error.message.clone()).collect();
                (
                    message.exchange().to_owned(),
                    message.routing_key().to_owned(),
                    message.attempt(),
                    message.hop(),
                    history,
                )
            },
            Ok(()),
        )
        .await;
    let replayed = fixture.operator().replay(&request(ramp(&[5])), |_| {}, never()).await.unwrap();
    assert!(replayed.is_success(), "{replayed:?}");
    assert_eq!(
        (replayed.tally.matched, replayed.tally.moved, replayed.fates.handled, replayed.unknown),
        (1, 1, 1, 0)
    );
    let expected = (
        fixture.namespace.exchange("shop"),
        "order.created".to_owned(),
        1,
        0,
        vec!["no".to_owned()],
    );
    assert_eq!(seen.reaches(1).await, [expected]);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_match_is_left_in_its_order_and_what_matches_is_handled() {
    let fixture = Fixture::new("filter").await;
    fixture.park(numbered(60)).await;
    let (run, seen) = fixture
        .serve_noting(|message| String::from_utf8_lossy(&message.body).into_owned(), Ok(()))
        .await;
    let mut request = request(ramp(&[2, 5]));
    request.filter.error = Some("7".to_owned());
    request.expect = Some(6);
    let replayed =
        fixture.operator().with_prefetch(9).replay(&request, |_| {}, never()).await.unwrap();
    assert!(replayed.is_success() && replayed.tally.moved == 6, "{replayed:?}");
    let mut handled = seen.reaches(6).await;
    handled.sort();
    let (mut matching, others): (Vec<_>, Vec<_>) =
        numbered(60).into_iter().partition(|body| body.contains('7'));
    matching.sort();
    assert_eq!(handled, matching);
    fixture.has_depth(&fixture.parked(), 54).await;
    assert_eq!(fixture.parked_bodies().await, others);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_still_fails_disturbs_only_the_canary_and_is_tried_once_by_each() {
    let fixture = Fixture::new("canary").await;
    fixture.park(numbered(30)).await;
    // A transient failure would wait and be tried again; a canary parks.
    let (run, seen) = fixture
        .serve_noting(|message| message.attempt(), Err(Failure::transient("still down")))
        .await;
    let replayed =
        fixture.operator().replay(&request(ramp(&[5, 100])), |_| {}, never()).await.unwrap();
    assert_eq!(replayed.stopped, Some(Stop::CanaryParked));
    assert!(replayed.tally.moved <= 5 && replayed.fates.parked_again >= 1, "{replayed:?}");
    fixture.has_depth(&fixture.parked(), 30).await;
    assert!(
        seen.all().len() <= 5 && seen.all().iter().all(|attempt| *attempt == 1),
        "{:?}",
        seen.all()
    );
    run.stop().await;
    // Those that parked again are at the end, and say so.
    let listing = fixture.operator().list(&ListRequest::default()).await.unwrap();
    let replayed_before: u64 = listing.groups.iter().map(|group| group.replayed_before).sum();
    assert_eq!(replayed_before, replayed.tally.moved);
    let mut again = ListRequest::default();
    again.filter.run = Some(replayed.run);
    assert_eq!(fixture.operator().list(&again).await.unwrap().matched, replayed.tally.moved);
}

/// The repaired endpoint may be on a wrong route, and answer with what the policy discards.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_discards_what_is_replayed_gets_no_more_than_the_canary() {
    let fixture = Fixture::new("canary-discarded").await;
    fixture.park(numbered(30)).await;
    let run = fixture.serve_always(Err(Failure::discard("nobody knows this order"))).await;
    let replayed =
        fixture.operator().replay(&request(ramp(&[5, 100])), |_| {}, never()).await.unwrap();
    assert_eq!(replayed.stopped, Some(Stop::CanaryDiscarded), "{replayed:?}");
    let sent = replayed.tally.moved;
    assert!((1..=5).contains(&sent) && replayed.fates.discarded == sent, "{replayed:?}");
    assert!(!replayed.is_success());
    fixture.has_depth(&fixture.parked(), 30 - sent as u32).await;
    assert_eq!(fixture.parked_bodies().await, numbered(30)[sent as usize..]);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_consumer_the_canary_is_unknown_and_nothing_else_is_sent() {
    let fixture = Fixture::new("unknown").await;
    fixture.park(numbered(8)).await;
    let mut ramp = ramp(&[5, 100]);
    ramp.verdict_within = Duration::from_millis(300);
    let mut request = request(ramp);
    request.follow = Duration::from_millis(100);
    let replayed = fixture.operator().replay(&request, |_| {}, never()).await.unwrap();
    assert_eq!(
        (replayed.stopped.clone(), replayed.tally.moved, replayed.unknown),
        (Some(Stop::NoVerdict), 5, 5)
    );
    assert!(!replayed.is_success());
    fixture.has_depth(&fixture.queue, 5).await;
    fixture.has_depth(&fixture.parked(), 3).await;
}

/// A crash is a lost channel to the broker, and counts as this reject does.
#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_message_that_the_broker_parks_is_found_by_the_replay_whose_fate_for_it_is_unknown()
 {
    let fixture = Fixture::new("crashing").await;
    fixture.park(numbered(3)).await;
    let mut request = request(RampSettings::none());
    (request.filter.error, request.follow) = (Some("order 1".to_owned()), Duration::ZERO);
    let replayed = fixture.operator().replay(&request, |_| {}, never()).await.unwrap();
    assert_eq!((replayed.tally.moved, replayed.unknown), (1, 1));
    fixture.has_depth(&fixture.parked(), 2).await;
    fixture.crash_until_parked(3).await;
    let mut listing = ListRequest::default();
    (listing.filter, listing.rows) = (Filter::run(replayed.run), 9);
    let found = fixture.operator().list(&listing).await.unwrap().messages;
    let [message] = &found[..] else { panic!("{found:?}") };
    assert_eq!(message.reason, "delivery_limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unexpected_number_of_messages_stops_a_replay_before_it_sends_any() {
    let fixture = Fixture::new("expect").await;
    fixture.park(numbered(3)).await;
    let mut request = request(RampSettings::none());
    request.expect = Some(4);
    let replayed = fixture.operator().replay(&request, |_| {}, never()).await.unwrap();
    assert_eq!((replayed.stopped, replayed.tally.moved), (Some(Stop::Unexpected { found: 3 }), 0));
    fixture.has_depth(&fixture.parked(), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stray_messages_go_back_to_the_queue_that_they_were_on_the_way_to() {
    let fixture = Fixture::new("stray").await;
    fixture.declare().await;
    let to_return = || Publish::to(format!("{}.return", fixture.namespace.name()), "order.created");
    // A binding was missing for a while, so the alternate exchange has kept a copy of a wait.
    fixture
        .client
        .publish(to_return().body("known").header("rehop-return-to", fixture.queue.as_str()))
        .await
        .unwrap();
    let stray = format!("{}.stray", fixture.namespace.name());
    let (run, seen) = fixture
        .serve_noting(|message| String::from_utf8_lossy(&message.body).into_owned(), Ok(()))
        .await;
    let lost = Publish::to(&stray, "nowhere");
    fixture
        .client
        .publish(lost.clone().body("way").header("rehop-return-to", fixture.queue.as_str()))
        .await
        .unwrap();
    fixture.client.publish(lost.body("unknown")).await.unwrap();
    fixture.has_depth(&stray, 2).await;
    let operator = Parked::open(&fixture.settings, Place::Stray).unwrap();
    let replayed = operator.replay(&request(ramp(&[5])), |_| {}, never()).await.unwrap();
    assert_eq!((replayed.tally.moved, replayed.tally.without_destination), (1, 1), "{replayed:?}");
    let mut request = request(ramp(&[5]));
    request.to = Some(fixture.queue.clone());
    let replayed = operator.replay(&request, |_| {}, never()).await.unwrap();
    assert!(replayed.is_success() && replayed.tally.moved == 1, "{replayed:?}");
    assert_eq!(seen.reaches(3).await, ["known", "way", "unknown"]);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_says_that_strays_became_stray_again() {
    let fixture = Fixture::new("stray-again").await;
    fixture.declare().await;
    let (queue, returning) = (&fixture.queue, fixture.namespace.exchange("return"));
    let home = serde_json::json!({ "x-match": "all", "rehop-return-to": queue });
    fixture.client.unbind(queue, &returning, "", home).await.unwrap();
    let to_return = |number| {
        Publish::to(&returning, "key").header("rehop-return-to", queue.as_str()).body(number)
    };
    fixture.client.publish_many(["1", "2"].map(to_return)).await.unwrap();
    fixture.has_depth(&fixture.stray(), 2).await;
    let operator = Parked::open(&fixture.settings, Place::Stray).unwrap();
    let mut request = request(RampSettings::none());
    request.follow = Duration::ZERO;
    let replayed = operator.replay(&request, |_| {}, never()).await.unwrap();
    assert_eq!((replayed.tally.moved, replayed.stopped), (2, Some(Stop::StrayGrew)));
    fixture.has_depth(&fixture.stray(), 2).await;
}

/// A filter asks where a message belongs, and not where the operator sends it: otherwise the plan
/// would have selected others.
#[tokio::test(flavor = "multi_thread")]
async fn the_queue_that_an_operator_names_for_strays_changes_nothing_about_which_are_selected() {
    let fixture = Fixture::new("stray-to").await;
    fixture.declare().await;
    let (run, seen) = fixture
        .serve_noting(|message| String::from_utf8_lossy(&message.body).into_owned(), Ok(()))
        .await;
    let lost = |body: &str| Publish::to(fixture.stray(), "order.created").body(body);
    let strays = [lost("homeless"), lost("way").header("rehop-return-to", fixture.queue.as_str())];
    fixture.client.publish_many(strays).await.unwrap();
    fixture.has_depth(&fixture.stray(), 2).await;
    let operator = Parked::open(&fixture.settings, Place::Stray).unwrap();
    for (destination, body, left) in [(fixture.queue.as_str(), "way", 1), ("", "homeless", 0)] {
        let mut request = request(ramp(&[5]));
        request.to = Some(fixture.queue.clone());
        request.filter.destination = Some(destination.to_owned());
        request.expect = Some(1);
        let replayed = operator.replay(&request, |_| {}, never()).await.unwrap();
        assert!(replayed.is_success() && replayed.tally.moved == 1, "{body}: {replayed:?}");
        assert_eq!(seen.all().last().map(String::as_str), Some(body));
        fixture.has_depth(&fixture.stray(), left).await;
    }
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strays_whose_queue_is_gone_stay_in_their_places_and_the_others_go_home_as_the_plan_says() {
    let fixture = Fixture::new("stray-gone").await;
    fixture.declare().await;
    let (run, seen) = fixture
        .serve_noting(|message| String::from_utf8_lossy(&message.body).into_owned(), Ok(()))
        .await;
    // The broker's answer about the last of these would not fit into AMQP, and would end the
    // connection.
    let (home, gone, unsayable) =
        (fixture.queue.clone(), fixture.namespace.queue("gone"), "語".repeat(85));
    let lost = |body: &str| Publish::to(fixture.stray(), "order.created").body(body);
    let of = |body: &str, queue: &str| lost(body).header("rehop-return-to", queue);
    let strays = [
        of("one", &home),
        of("two", &gone),
        of("three", &home),
        of("four", &unsayable),
        lost("five"),
        of("six", &gone),
        of("seven", &home),
    ];
    fixture.client.publish_many(strays).await.unwrap();
    fixture.has_depth(&fixture.stray(), 7).await;
    let operator = Parked::open(&fixture.settings, Place::Stray).unwrap();

    let mut planning = ListRequest::all(Filter::default());
    planning.planned = Some(Planned::Replay);
    let plan = operator.list(&planning).await.unwrap();
    assert_eq!(plan.destinations, BTreeMap::from([(home, 3)]));
    assert_eq!(plan.missing_destinations, BTreeMap::from([(gone.clone(), 2), (unsayable, 1)]));
    let replayed = operator.replay(&request(ramp(&[5])), |_| {}, never()).await.unwrap();
    let (tally, fates) = (&replayed.tally, &replayed.fates);
    assert_eq!((tally.matched, tally.moved, fates.handled, &replayed.stopped), (7, 3, 3, &None));
    assert_eq!(
        (plan.without_destination, tally.without_destination, tally.missing_destination),
        (1, 1, 2 + 1)
    );
    assert!(!replayed.is_success());
    let mut handled = seen.reaches(3).await;
    handled.sort();
    assert_eq!(handled, ["one", "seven", "three"]);
    run.stop().await;

    // A queue that the operator names has to exist.
    let mut to_nowhere = request(ramp(&[5]));
    to_nowhere.to = Some(gone.clone());
    let error = operator.replay(&to_nowhere, |_| {}, never()).await.unwrap_err();
    assert!(
        error.to_string().contains(&gone) && error.to_string().contains("does not exist"),
        "{error}"
    );
    fixture.has_depth(&fixture.stray(), 4).await;
    // This replay has read one message of four that were looked at before, so that one now stands
    // behind the others.
    let left: Vec<_> = fixture
        .client
        .get_all(&fixture.stray())
        .await
        .unwrap()
        .iter()
        .map(Received::text)
        .collect();
    assert_eq!(left, ["four", "five", "six", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_stray_queue_nothing_is_sent() {
    let fixture = Fixture::new("no-stray").await;
    fixture.park(numbered(3)).await;
    fixture.client.delete_queue(&fixture.stray()).await.unwrap();
    let error = fixture.operator().replay(&request(ramp(&[5])), |_| {}, never()).await.unwrap_err();
    assert!(
        error.to_string().contains(&fixture.stray())
            && error.to_string().contains("does not exist"),
        "{error}"
    );
    fixture.has_depth(&fixture.parked(), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_work_queue_that_does_not_exist_is_an_error_and_nothing_is_sent() {
    let fixture = Fixture::new("missing").await;
    fixture.park(numbered(3)).await;
    fixture.client.delete_queue(&fixture.queue).await.unwrap();
    let error = fixture.operator().replay(&request(ramp(&[5])), |_| {}, never()).await.unwrap_err();
    assert!(
        error.to_string().contains(&fixture.queue) && error.to_string().contains("does not exist"),
        "{error}"
    );
    fixture.has_depth(&fixture.parked(), 3).await;
    fixture.has_depth(&fixture.stray(), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_pauses_while_its_queue_is_long() {
    const PARKED: usize = 30;
    let fixture = Fixture::new("pause").await;
    fixture.park(numbered(PARKED)).await;
    let mut request = request(RampSettings::none());
    // To send all of them would take 6 s, and the queue is found to be too long well before that.
    (request.rate, request.max_ready, request.follow) = (Some(5.0), Some(5), Duration::ZERO);
    let paused = Arc::new(AtomicBool::new(false));
    let seen = paused.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let operator = fixture.operator();
    let replaying = tokio::spawn(async move {
        let observe = move |progress: &Progress| {
            seen.fetch_or(progress.is_paused, Ordering::SeqCst);
        };
        operator.replay(&request, observe, async { drop(stopped.await) }).await
    });
    eventually(SOON, "a pause", async || Ok::<_, String>(paused.load(Ordering::SeqCst)))
        .await
        .unwrap();
    // Nobody consumes, so the pause lasts until there is a consumer.
    assert!(fixture.client.depth(&fixture.queue).await.unwrap() < PARKED as u32);
    let run = fixture.serve_always(Ok(())).await;
    let replayed = tokio::time::timeout(SOON, replaying).await.unwrap().unwrap().unwrap();
    drop(stop);
    assert_eq!((replayed.tally.moved, replayed.stopped), (PARKED as u64, None));
    run.stop().await;
}
