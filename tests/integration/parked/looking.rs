//! Looks, which change nothing.

use std::time::Duration;

use rehop::Failure;
use rehop_operator::parked::{
    DiscardRequest, Exported, ImportRequest, ListRequest, ParkedError, ReplayRequest,
};
use rehop_testing::{Broker, Publish, eventually};
use tokio::time::timeout;

use super::{never, numbered};
use crate::support::{Fixture, SOON, not_tried};

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_is_the_head_of_the_queue_and_a_look_at_a_part_keeps_the_order() {
    let fixture = Fixture::new("scan").await;
    fixture.park(numbered(20)).await;
    let mut request = ListRequest::default();
    (request.scan, request.rows) = (Some(8), 3);
    for _ in 0..3 {
        let listing = fixture.operator().with_prefetch(3).list(&request).await.unwrap();
        assert_eq!((listing.depth, listing.looked_at, listing.matched), (20, 8, 8));
        let errors: Vec<_> =
            listing.messages.iter().filter_map(|message| message.error.clone()).collect();
        assert_eq!(
            errors,
            ["cannot charge order 0", "cannot charge order 1", "cannot charge order 2"]
        );
    }
    assert_eq!(fixture.parked_bodies().await, numbered(20));
}

/// No service has read such a message.
#[tokio::test(flavor = "multi_thread")]
async fn no_header_that_is_rehops_is_believed_of_a_message_that_only_the_broker_has_parked() {
    let fixture = Fixture::new("forged").await;
    fixture.declare().await;
    let forged = fixture.to_queue().message_id("seven").body("x").header("rehop-replays", 3);
    let forged = forged.header("rehop-first-seen-at", 1_000_000_000_000_i64);
    let names = ["replay-run", "chain-id", "discard-run"];
    let forged = names.into_iter().fold(forged, |message, name| {
        message.header(format!("rehop-{name}"), "0123456789abcdef0123456789abcdef")
    });
    fixture.client.publish(forged).await.unwrap();
    fixture.crash_until_parked(1).await;
    let mut request = ListRequest::default();
    request.rows = 9;
    let listing = fixture.operator().list(&request).await.unwrap();
    let [message] = &listing.messages[..] else { panic!("{listing:?}") };
    assert_eq!((message.chain.as_str(), message.reason.as_str()), ("seven", "delivery_limit"));
    assert_eq!((message.replays, message.attempts, message.first_seen), (0, 0, None));
    assert_eq!((&message.replay_run, &message.discard_run), (&None, &None));
}

/// Of a queue whose leader is busy the broker says that it is empty.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_whose_leader_is_slow_is_not_taken_for_empty() {
    let broker = Broker::shared().await;
    if !broker.has_rabbitmqctl() {
        return not_tried("a queue whose leader is suspended, because rabbitmqctl cannot be run");
    }
    let fixture = Fixture::new("slow-leader").await;
    fixture.park(numbered(3)).await;
    // The leader goes on by itself, after longer than the broker waits for it: another command
    // could take longer than an empty queue is doubted.
    let stop_briefly = async || {
        let leader = format!("Leader = whereis('%2F_{}')", fixture.parked());
        let told = format!(
            "{leader}, ok = sys:suspend(Leader), timer:apply_after(2000, sys, resume, [Leader]), ok."
        );
        broker.rabbitmqctl(&["eval", &told]).await.unwrap();
    };
    // The time of an answer tells such a leader, so a busy machine may deceive a look now and then.
    // Without the check, each is deceived.
    for tries in 1.. {
        stop_briefly().await;
        let depth = fixture.operator().depth().await.unwrap();
        if depth == 3 {
            break;
        }
        assert!(tries < 5, "each time it was taken for empty: {depth}");
    }
    stop_briefly().await;
    assert_eq!(fixture.client.depth(&fixture.parked()).await.unwrap(), 3);
}

/// Otherwise a list would show nothing, a replay would succeed, and an import would publish what is
/// already there.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_whose_leader_is_silent_is_an_error_and_not_taken_for_empty() {
    let broker = Broker::shared().await;
    if !broker.has_rabbitmqctl() {
        return not_tried("a queue whose leader is suspended, because rabbitmqctl cannot be run");
    }
    let mut fixture = Fixture::new("mute-leader").await;
    fixture.park(numbered(3)).await;
    // A queue that seems to be empty is doubted for 5 s of it, and a busy broker needs time for its
    // other answers.
    fixture.settings.broker.timeout = Duration::from_secs(25);
    let tell = async |what: &str| {
        let told = format!("sys:{what}(whereis('%2F_{}')).", fixture.parked());
        broker.rabbitmqctl(&["eval", &told]).await.unwrap();
    };
    let operator = fixture.operator();
    let command = format!("`rabbitmq-queues quorum_status \"{}\"`", fixture.parked());
    let names_it = |ended: &Result<(), ParkedError>| match ended {
        Err(error @ ParkedError::Broker(rehop::Error::Unavailable { .. })) => {
            error.to_string().contains(&command)
        }
        _ => false,
    };
    // The time of an answer tells such a leader, so a busy machine may deceive a look now and then.
    // Without the check, each is deceived.
    for tries in 1.. {
        tell("suspend").await;
        let (request, nothing) =
            (ReplayRequest::default(), Vec::<Result<Exported, ParkedError>>::new());
        let ends = [
            operator.depth().await.map(drop),
            operator.list(&ListRequest::default()).await.map(drop),
            operator.replay(&request, |_| {}, never()).await.map(drop),
            operator.import(&ImportRequest::default(), nothing, never()).await.map(drop),
        ];
        tell("resume").await;
        if ends.iter().all(names_it) {
            break;
        }
        assert!(tries < 5, "each time not all are errors that name it: {ends:?}");
    }
    fixture.has_depth(&fixture.parked(), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_that_is_dropped_gives_everything_back() {
    let fixture = Fixture::new("dropped").await;
    fixture.park(numbered(30)).await;
    let operator = fixture.operator().with_prefetch(5);
    for millis in [1, 5, 20, 50, 80] {
        let _ =
            timeout(Duration::from_millis(millis), operator.list(&ListRequest::default())).await;
    }
    fixture.has_depth(&fixture.parked(), 30).await;
    // The lock goes with its connection, which the broker may close a little later.
    let listed =
        async || operator.list(&ListRequest::default()).await.map(|listing| listing.matched == 30);
    eventually(SOON, "the queue can be listed again", listed).await.unwrap();
    // The broker closes the channels of a lost connection in any order.
    let (mut bodies, mut expected) = (fixture.parked_bodies().await, numbered(30));
    bodies.sort_unstable();
    expected.sort_unstable();
    assert_eq!(bodies, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_shown_with_its_history_its_headers_and_its_body_and_secrets_are_masked() {
    let fixture = Fixture::new("show").await;
    fixture.declare().await;
    let message = fixture
        .to_queue()
        .message_id("seven")
        .header("authorization", "hunter2")
        .header("tenant", "a");
    let message = message.json(&serde_json::json!({"id": 7, "password": "hunter2"}));
    fixture.client.publish(message).await.unwrap();
    let run = fixture.serve_always(Err(Failure::permanent("no"))).await;
    fixture.has_depth(&fixture.parked(), 1).await;
    run.stop().await;
    let listing = fixture
        .operator()
        .list(&{
            let mut all = ListRequest::default();
            all.rows = 9;
            all
        })
        .await
        .unwrap();
    let chain = &listing.messages[0].chain;
    let shown = fixture.operator().show(chain, None).await.unwrap();
    let json = serde_json::to_value(&shown.messages[0]).unwrap();
    assert_eq!(
        (&json["reason"], &json["history"][0]["message"], &json["message_id"]),
        (&"permanent".into(), &"no".into(), &"seven".into())
    );
    assert_eq!(
        (&json["headers"]["authorization"], &json["headers"]["tenant"]),
        (&"***".into(), &"a".into())
    );
    assert_eq!(json["body"]["json"], serde_json::json!({"id": 7, "password": "***"}));
    let revealed = fixture.operator().reveal().show(chain, None).await.unwrap();
    let revealed = serde_json::to_value(&revealed.messages[0]).unwrap();
    assert_eq!(
        (&revealed["headers"]["authorization"], &revealed["body"]["json"]["password"]),
        (&"hunter2".into(), &"hunter2".into())
    );
    let missing = fixture.operator().show("nobody", None).await.unwrap_err();
    assert!(matches!(missing, ParkedError::NoSuchMessage { looked_at: 1, .. }), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_may_be_near_a_limit_are_not_looked_at() {
    let fixture = Fixture::new("limit").await;
    // Somebody else's queue, which has no high limit.
    fixture
        .client
        .declare_queue(
            &fixture.parked(),
            serde_json::json!({"x-queue-type": "quorum", "x-delivery-limit": 30}),
        )
        .await
        .unwrap();
    fixture.client.publish(Publish::to_queue(fixture.parked()).body("a")).await.unwrap();
    let url = fixture.settings.broker.url.expose();
    let connection =
        lapin::Connection::connect(url, lapin::ConnectionProperties::default()).await.unwrap();
    let mut refused = None;
    for _ in 0..40 {
        // A reject counts on every version.
        let channel = connection.create_channel().await.unwrap();
        let options = lapin::options::BasicGetOptions { no_ack: false };
        let Some(got) = channel.basic_get(fixture.parked().into(), options).await.unwrap() else {
            break;
        };
        got.delivery.reject(lapin::options::BasicRejectOptions { requeue: true }).await.unwrap();
        channel.close(200, "looked".into()).await.unwrap();
        match fixture.operator().list(&ListRequest::default()).await {
            Ok(_) => {}
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    assert!(matches!(refused, Some(ParkedError::NearLimit { returns: 15.., .. })), "{refused:?}");
    // An import looks first at what is there, and its plan says so.
    let operator = fixture.operator();
    let planned = operator.check_import([]).await.unwrap_err();
    let imported = operator.import(&ImportRequest::default(), [], never()).await.unwrap_err();
    for error in [planned, imported] {
        assert!(matches!(error, ParkedError::NearLimit { .. }), "{error}");
    }
    fixture.has_depth(&fixture.parked(), 1).await;
}

/// Where looks count, six of them would delete a message of the first queue, and on 3.10 one would
/// delete that of the second.
#[tokio::test(flavor = "multi_thread")]
async fn no_number_of_looks_deletes_a_message_of_a_queue_with_a_low_limit() {
    for limit in [5, -1] {
        let fixture = Fixture::new("low-limit").await;
        let arguments = serde_json::json!({"x-queue-type": "quorum", "x-delivery-limit": limit});
        fixture.client.declare_queue(&fixture.parked(), arguments).await.unwrap();
        let operator = fixture.operator();
        assert_eq!(operator.list(&ListRequest::default()).await.unwrap().depth, 0);
        fixture.client.publish(Publish::to_queue(fixture.parked()).body("a")).await.unwrap();
        fixture.has_depth(&fixture.parked(), 1).await;
        for _ in 0..8 {
            match operator.list(&ListRequest::default()).await {
                Ok(listing) => assert_eq!((listing.depth, listing.matched), (1, 1)),
                Err(error) => {
                    let ParkedError::LowLimit { limit: found, .. } = &error else {
                        panic!("{error}")
                    };
                    assert_eq!(*found, limit, "{error}");
                }
            }
        }
        fixture.has_depth(&fixture.parked(), 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_shows_how_far_it_is_and_ends_when_it_has_as_many_as_are_wanted() {
    let fixture = Fixture::new("progress").await;
    fixture.declare().await;
    let message = |number: u32| Publish::to_queue(fixture.parked()).body(number.to_string());
    fixture.client.publish_many((0..1_500).map(message)).await.unwrap();
    fixture.has_depth(&fixture.parked(), 1_500).await;
    let mut seen = Vec::new();
    let observe = |listing: &rehop_operator::parked::Listing| {
        seen.push((listing.depth, listing.looked_at, listing.matched))
    };
    let mut request = ListRequest::all(Default::default());
    let listing = fixture.operator().list_observed(&request, observe).await.unwrap();
    assert_eq!((listing.depth, listing.looked_at, listing.matched), (1_500, 1_500, 1_500));
    assert_eq!(seen.first(), Some(&(1_500, 1_000, 1_000)));
    request.filter.limit = Some(7);
    let listing = fixture.operator().list(&request).await.unwrap();
    assert_eq!((listing.depth, listing.looked_at, listing.matched), (1_500, 7, 7));
    fixture.has_depth(&fixture.parked(), 1_500).await;
}

/// Of several subscriptions, a queue with a single active consumer serves one.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_with_a_single_active_consumer_is_looked_at_as_a_whole() {
    let fixture = Fixture::new("single-active").await;
    fixture.declare().await;
    fixture.client.delete_queue(&fixture.parked()).await.unwrap();
    let arguments = serde_json::json!({"x-queue-type": "quorum", "x-single-active-consumer": true});
    fixture.client.declare_queue(&fixture.parked(), arguments).await.unwrap();
    let message = |number: u32| Publish::to_queue(fixture.parked()).body(number.to_string());
    fixture.client.publish_many((0..5).map(message)).await.unwrap();
    fixture.has_depth(&fixture.parked(), 5).await;
    let operator = fixture.operator().with_prefetch(1);
    let listing = timeout(SOON, operator.list(&ListRequest::default()))
        .await
        .expect("the list ends")
        .unwrap();
    assert_eq!((listing.depth, listing.looked_at), (5, 5));
    let mut request = DiscardRequest::default();
    request.filter.limit = Some(4);
    let discarded =
        timeout(SOON, operator.discard(&request, |_| {}, never())).await.expect("the discard ends");
    assert_eq!(discarded.unwrap().tally.moved, 4);
    fixture.has_depth(&fixture.parked(), 1).await;
}

/// A queue with a single active consumer has messages for no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_a_queue_whose_messages_another_consumer_gets_ends_in_time() {
    let mut fixture = Fixture::new("taken").await;
    let arguments = serde_json::json!({"x-queue-type": "quorum", "x-single-active-consumer": true});
    fixture.client.declare_queue(&fixture.parked(), arguments).await.unwrap();
    let message = |number: u32| Publish::to_queue(fixture.parked()).body(number.to_string());
    fixture.client.publish_many((0..3).map(message)).await.unwrap();
    let url = fixture.settings.broker.url.expose();
    let connection =
        lapin::Connection::connect(url, lapin::ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.basic_qos(1, lapin::options::BasicQosOptions::default()).await.unwrap();
    let options = lapin::options::BasicConsumeOptions::default();
    let consuming =
        channel.basic_consume(fixture.parked().into(), "".into(), options, Default::default());
    let _consumer = consuming.await.unwrap();
    fixture.has_depth(&fixture.parked(), 2).await;

    // Messages are held for half of it.
    fixture.settings.broker.consumer_timeout = Duration::from_secs(10);
    fixture.settings.consume.handler_timeout = Some(Duration::from_secs(1));
    let operator = fixture.operator();
    let listing = timeout(SOON, operator.list(&ListRequest::default()))
        .await
        .expect("the list ends")
        .unwrap();
    assert_eq!((listing.depth, listing.looked_at), (2, 0));
    // Nothing is moved without a way back.
    fixture
        .client
        .declare_exchange(&fixture.namespace.exchange("park"), "direct", serde_json::json!({}))
        .await
        .unwrap();
    fixture
        .client
        .declare_queue(&fixture.stray(), serde_json::json!({"x-queue-type": "quorum"}))
        .await
        .unwrap();
    let request = DiscardRequest::default();
    let discarded =
        timeout(SOON, operator.discard(&request, |_| {}, never())).await.expect("the discard ends");
    let error = discarded.unwrap_err();
    assert!(matches!(error, ParkedError::Incomplete { looked_at: 0, wanted: 2, .. }), "{error}");
    fixture.has_depth(&fixture.parked(), 2).await;
}
