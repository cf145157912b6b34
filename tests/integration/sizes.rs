//! Large bodies and large headers.

use std::collections::BTreeMap;
use std::time::Duration;

use rehop::{Failure, Publisher, Reason};
use rehop_operator::parked::{
    Body, DiscardRequest, Exported, Filter, ImportRequest, ListRequest, Parked, ParkedError, Place,
    RestoreRequest,
};
use rehop_testing::{Broker, Publish, eventually};
use serde_json::{Value, json};

use crate::parked::{never, ramp, request};
use crate::support::{Fixture, Log, failures, millis};

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

/// What the producer's headers leave of a frame of this size, if one of them has so many bytes.
fn filled_up_to(left: usize, frame: usize) -> String {
    // The frame, the class and the size of the body, the flags, the length of the table, and the
    // header's name, type and length.
    "x".repeat(frame - left - 8 - 12 - 2 - 4 - 6 - 5)
}

const DEFAULT_FRAME: usize = 131_072;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_headers_fill_a_frame_is_parked_with_its_reason_and_loses_none_of_them() {
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
    let value = filled_up_to(100, DEFAULT_FRAME);
    let large = fixture.to_queue().body("large").header("large", value.as_str()).header("small", 7);
    fixture.client.publish(large).await.unwrap();
    fixture.has_depth(&fixture.parked(), 1).await;
    fixture.publish("small").await;
    seen.reaches(2).await;
    let summary = run.stop().await;
    assert_eq!((seen.all(), summary.handled), (vec![0, 0], 1), "one attempt each");
    assert_eq!(summary.parked[&Reason::Unpublishable], 1);

    // An operator sees the message as it was, and can do everything with it but replay it.
    let operator = fixture.operator();
    let mut all = ListRequest::default();
    all.rows = 1;
    let listed = operator.list(&all).await.unwrap().messages.remove(0);
    assert_eq!(
        (listed.reason.as_str(), listed.routing_key.as_str()),
        ("unpublishable", fixture.queue.as_str())
    );
    assert_eq!((listed.error.as_deref(), listed.size), (Some("no"), 5));
    let is_whole = |headers: &BTreeMap<String, Value>, body: &Body| {
        let names: Vec<_> = headers.keys().filter(|name| !name.starts_with("rehop-")).collect();
        let same = headers["large"] == value
            && headers["small"] == 7
            && *body == Body::Text("large".to_owned());
        same && names.iter().all(|name| {
            ["large", "small", "traceparent"].contains(&name.as_str()) || name.starts_with("x-")
        })
    };
    let shown = operator.show(&listed.chain, None).await.unwrap().messages.remove(0);
    assert!(is_whole(&shown.headers, &shown.body), "{:?}", shown.headers.keys());
    let replayed = operator.replay(&request(ramp(&[1])), |_| {}, never()).await.unwrap();
    assert_eq!((replayed.tally.too_large, replayed.tally.moved), (1, 0));
    operator.discard(&DiscardRequest::default(), |_| {}, never()).await.unwrap();
    let bin = Parked::open(&fixture.settings, Place::Discarded).unwrap();
    bin.restore(&RestoreRequest::default(), |_| {}, never()).await.unwrap();
    let mut exported = Vec::new();
    let sink = |message: Exported| {
        exported.push(Ok(message));
        true
    };
    operator.export(&Filter::default(), None, sink).await.unwrap();
    let restored = fixture.drain_parked(1).await.remove(0);
    operator.import(&ImportRequest::default(), exported, never()).await.unwrap();
    let imported = fixture.drain_parked(1).await.remove(0);
    // Any other program finds the large header behind the body.
    for parked in [restored, imported] {
        let own = |name: &str| parked.headers[format!("rehop-{name}").as_str()].clone();
        assert_eq!((own("reason"), own("exchange")), (json!("unpublishable"), json!("")));
        assert_eq!(
            (own("routing-key"), own("chain-id")),
            (json!(fixture.queue), json!(listed.chain))
        );
        assert_eq!((own("body-bytes"), failures(&parked).len()), (json!(5), 1));
        assert_eq!((parked.headers.get("large"), &parked.headers["small"]), (None, &json!(7)));
        let table =
            [&b"\x05largeS"[..], &(value.len() as u32).to_be_bytes(), value.as_bytes()].concat();
        assert!(
            parked.body == [b"large", &(table.len() as u32).to_be_bytes()[..], &table].concat()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_parked_copy_would_be_too_large_for_the_broker_is_parked_as_it_came() {
    let broker = Broker::builder().conf("max_message_size = 100000").start().await.unwrap();
    let fixture = Fixture::at("largest-body", broker.amqp_url()).await;
    let run = fixture.serve_always(Err(Failure::transient("no"))).await;
    let value = filled_up_to(100, DEFAULT_FRAME);
    let body = vec![b'b'; 90_000];
    fixture
        .client
        .publish(fixture.to_queue().body(body.clone()).header("large", value.as_str()))
        .await
        .unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    assert!(parked.body == body && parked.headers["large"] == value, "{:?}", parked.headers.keys());
    // The next one is not affected.
    fixture.client.publish(fixture.to_queue().body("b")).await.unwrap();
    assert_eq!(fixture.drain_parked(1).await.remove(0).headers["rehop-reason"], "exhausted");
    assert_eq!(run.stop().await.parked.values().sum::<u64>(), 2);

    // A discard moves the others. Only a copy that is alone in flight shows that it is the one that
    // the broker does not accept.
    let to_parked = |number: usize| {
        let message = Publish::to_queue(fixture.parked()).message_id(number.to_string());
        if number == 10 {
            message.body(body.clone()).header("large", value.as_str())
        } else {
            message.body("b")
        }
    };
    fixture.client.publish_many((0..21).map(to_parked)).await.unwrap();
    fixture.has_depth(&fixture.parked(), 21).await;
    let mut request = DiscardRequest::default();
    let (discarded, unconfirmed) = match fixture.operator().discard(&request, |_| {}, never()).await
    {
        Ok(discarded) => (discarded, 0),
        Err(ParkedError::CopyNotAccepted { unconfirmed, .. }) => {
            request.in_flight = Some(1);
            let again = fixture.operator().discard(&request, |_| {}, never()).await.unwrap();
            (again, unconfirmed)
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(
        (discarded.stopped, discarded.tally.too_large, discarded.tally.unconfirmed),
        (None, 1, 0)
    );
    fixture.has_depth(&fixture.parked(), 1).await;
    // Of those beside it, the broker may have kept a copy that it did not confirm.
    let kept = u64::from(
        fixture.client.depth(&format!("{}.discarded", fixture.namespace.name())).await.unwrap(),
    );
    assert!((20..=20 + unconfirmed).contains(&kept), "{kept}, and {unconfirmed} not confirmed");
}

/// For instance by a shovel, or by "Move messages" of the management page.
#[tokio::test(flavor = "multi_thread")]
async fn a_parked_message_that_comes_back_without_a_replay_has_the_headers_behind_its_body() {
    let fixture = Fixture::new("moved-back").await;
    let note = |message: &rehop::Message<bytes::Bytes>| {
        let header = message.header("large").and_then(|value| value.as_text().map(str::to_owned));
        (header, message.raw_body().to_vec())
    };
    let (run, seen) = fixture.serve_noting(note, Ok(())).await;
    let table = [&b"\x05largeS\0\0\0\x05"[..], b"value"].concat();
    let body = [&b"body"[..], &(table.len() as u32).to_be_bytes(), &table].concat();
    fixture
        .client
        .publish(fixture.to_queue().body(body).header("rehop-body-bytes", 4))
        .await
        .unwrap();
    assert_eq!(seen.reaches(1).await, [(Some("value".to_owned()), b"body".to_vec())]);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_larger_frame_of_the_broker_leaves_room_for_larger_headers() {
    const FRAME: usize = 1024 * 1024;
    let broker = Broker::builder().conf(format!("frame_max = {FRAME}")).start().await.unwrap();
    let mut fixture = Fixture::at("large-frames", broker.amqp_url()).await;
    fixture.retry().delays = millis([100]);
    let (run, seen) =
        fixture.serve_noting(|message| message.hop(), Err(Failure::transient("no"))).await;
    for (left, reason, hops) in
        [(10_000, "exhausted", &[0, 1][..]), (100, "unpublishable", &[0, 1, 0])]
    {
        let value = filled_up_to(left, FRAME);
        fixture
            .client
            .publish(fixture.to_queue().body("b").header("large", value.as_str()))
            .await
            .unwrap();
        let parked = fixture.drain_parked(1).await.remove(0);
        assert_eq!(
            (&parked.headers["rehop-reason"], failures(&parked).is_empty()),
            (&json!(reason), false)
        );
        assert_eq!(seen.all(), hops);
        let is_moved = !parked.headers.contains_key("large");
        assert_eq!((is_moved, parked.body.len() > 1), (left == 100, left == 100));
    }
    let publisher = Publisher::connect(&fixture.settings).await.unwrap();
    let large = rehop::Publish::to_queue(&fixture.queue)
        .header("large", filled_up_to(10_000, FRAME).as_str());
    publisher.publish(large).await.unwrap();
    fixture.drain_parked(1).await;
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_smaller_frame_the_oldest_failures_make_room_for_the_reason() {
    const FRAME: usize = 8192;
    let broker = Broker::builder().conf(format!("frame_max = {FRAME}")).start().await.unwrap();
    let mut fixture = Fixture::at("small-frames", broker.amqp_url()).await;
    fixture.retry().delays = millis([100, 100, 100]);
    let (run, seen) = fixture
        .serve_noting(|message| message.hop(), Err(Failure::transient("e".repeat(900))))
        .await;
    for (left, reason, attempts) in
        [(3_700, "exhausted", &[3, 4][..]), (100, "unpublishable", &[1])]
    {
        let value = filled_up_to(left, FRAME);
        fixture.client.publish(fixture.to_queue().body("b").header("large", value)).await.unwrap();
        let parked = fixture.drain_parked(1).await.remove(0);
        assert_eq!(parked.headers["rehop-reason"], reason);
        assert_eq!(parked.headers["rehop-routing-key"], json!(fixture.queue));
        let kept: Vec<_> =
            failures(&parked).iter().map(|failure| failure["attempt"].clone()).collect();
        assert_eq!(kept, attempts, "the newest");
    }
    assert_eq!(seen.all(), [0, 1, 2, 3, 0]);
    run.stop().await;
}

/// The broker would deliver it with its counts, in a frame that is too large for any client.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_could_not_be_received_again_is_parked_instead_of_being_given_back() {
    let mut fixture = Fixture::new("no-way-back").await;
    fixture.retry().immediate = Some(1);
    let run = fixture.serve_always(Err(Failure::requeue("again"))).await;
    // By `basic.get`, 3.10 would deliver it with a count of 0 at once.
    fixture.is_subscribed().await;
    let large = fixture.to_queue().body("large").header("large", filled_up_to(1, DEFAULT_FRAME));
    fixture.client.publish(large).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    let summary = run.stop().await;
    assert_eq!(
        (&parked.headers["rehop-reason"], failures(&parked).len()),
        (&json!("unpublishable"), 1)
    );
    assert_eq!(summary.parked[&Reason::Unpublishable], 1);
}

/// The broker's own header, the delivery count, makes the content header larger than a frame may
/// be. Each time the client has to give up the connection, until the deliveries reach the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_delivery_breaks_the_connection_is_parked_by_the_limit_and_others_continue()
{
    let (mut fixture, proxy) = Fixture::behind_proxy("frame-limit").await;
    fixture.retry().delivery_limit = Some(4);
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message| {
            let large = message.header("large").is_some();
            log.push(large);
            async move { if large { std::future::pending().await } else { Ok(()) } }
        })
        .await;
    fixture.is_subscribed().await;
    let large = fixture.to_queue().body("large").header("large", filled_up_to(1, DEFAULT_FRAME));
    fixture.client.publish(large).await.unwrap();
    seen.reaches(1).await;
    // The broker takes it back from a connection that is lost.
    proxy.reset();
    fixture.publish("small").await;
    let what = "the small message is handled";
    eventually(Duration::from_secs(60), what, async || seen.all().contains(&false)).await.unwrap();
    fixture.has_depth(&fixture.parked(), 1).await;
    run.stop().await;
}
