//! The broker restarts, loses a queue, blocks or refuses. Nothing is acked before its copy is
//! confirmed.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rehop::settings::TopologyMode;
use rehop::{Error, Failure, Message, Status};
use rehop_testing::{Broker, Publish, Received, eventually};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::frame_hold::Held;
use crate::support::{Fixture, Log, SOON, fragile_broker, is_idle, millis, not_tried};

/// Longer than a broker needs to start on a busy machine.
const RESTART: Duration = SOON;

#[tokio::test(flavor = "multi_thread")]
async fn a_service_recovers_by_itself_after_the_broker_is_restarted() {
    let broker = fragile_broker().await;
    let mut fixture = Fixture::at("restart", broker.amqp_url()).await;
    fixture.retry().delays = millis([100]);
    let seen = Log::default();
    let log = seen.clone();
    let run = fixture
        .serve(move |message: Message<bytes::Bytes>| {
            log.push((message.raw_body().to_vec(), message.hop()));
            async move { if message.hop() == 0 { Err(Failure::transient("once")) } else { Ok(()) } }
        })
        .await;
    fixture.publish("before").await;
    seen.reaches(2).await;
    broker.restart().await.unwrap();
    let client = broker.client().await.unwrap();
    client.publish(fixture.to_queue().body("after")).await.unwrap();
    let after = (b"after".to_vec(), 1);
    eventually(RESTART, "the service works again", async || seen.all().contains(&after))
        .await
        .unwrap();
    let summary = run.stop().await;
    assert!(summary.handled >= 2, "{summary:?}");
    assert_eq!(client.depth(&fixture.queue).await.unwrap(), 0);
}

/// Waits until the service has lost a session of its queue, or could not open one.
async fn gives_up(status: &Status) {
    let has_failed = async || Ok::<_, String>(status.queues()[0].last_error.is_some());
    eventually(SOON, "the service gives up consuming the queue", has_failed).await.unwrap();
}

/// What the broker delivers to a subscription that was given up comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_is_answered_too_late_holds_no_message() {
    let mut fixture = Fixture::new("late-answer").await;
    // The first subscription is for one message, which opens the window. Then comes the second.
    let (_proxy, hold) = fixture.put_behind_frame_hold(Held::ConsumeOk(2)).await;
    fixture.declare().await;
    fixture.settings.broker.timeout = Duration::from_secs(3);
    let log = Log::default();
    let seen = log.clone();
    let handler = move |message: Message<Bytes>| {
        seen.push(String::from_utf8_lossy(message.raw_body()).into_owned());
        std::future::ready(Ok(()))
    };
    let (run, status) = fixture.start(handler).await;
    fixture.is_subscribed().await;
    fixture.publish("0").await;
    hold.is_reached().await;
    for number in 1..4 {
        fixture.publish(&number.to_string()).await;
    }
    gives_up(&status).await;
    hold.release();
    // The lost session may cost an ack.
    let are_handled = async || {
        let handled: BTreeSet<_> = log.all().into_iter().collect();
        if handled.len() == 4 { Ok(true) } else { Err(format!("{handled:?}")) }
    };
    eventually(SOON, "all four messages are handled", are_handled).await.unwrap();
    run.stop().await;
}

/// The leader would carry out each subscription when it answers again, and the message would be
/// charged for each that was given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_not_charged_for_subscriptions_to_a_leader_that_is_silent() {
    let broker = Broker::shared().await;
    if !broker.has_rabbitmqctl() {
        return not_tried("a queue whose leader is suspended, because rabbitmqctl cannot be run");
    }
    // The time of an answer tells a silent leader, so a busy machine may deceive a service now and
    // then. Without the check, each time all services are deceived.
    for _ in 0..3 {
        let attempts = attempts_after_a_silence(broker).await;
        if matches!(attempts[..], [1 | 2]) {
            return;
        }
    }
    panic!("the message was charged each time");
}

/// The numbers of the attempts at a message whose queue's leader was silent for four services. The
/// message is handled.
async fn attempts_after_a_silence(broker: &Broker) -> Vec<u32> {
    let mut fixture = Fixture::new("silent-leader").await;
    // A leader is doubted for 5 s, and a busy broker needs time for its other answers: if they are
    // late, the queue is consumed all the same.
    fixture.settings.broker.timeout = Duration::from_secs(15);
    fixture.retry().delivery_limit = Some(9);
    fixture.declare().await;
    fixture.publish("x").await;
    let tell = async |what: &str| {
        let told = format!("sys:{what}(whereis('%2F_{}')).", fixture.queue);
        broker.rabbitmqctl(&["eval", &told]).await.unwrap();
    };
    tell("suspend").await;
    let log = Log::default();
    let mut services = Vec::new();
    // A status does not count the tries, but each of these services has made one.
    for _ in 0..4 {
        let seen = log.clone();
        let handler = move |message: Message<Bytes>| {
            seen.push(message.attempt());
            std::future::ready(Ok(()))
        };
        services.push(fixture.start(handler).await);
    }
    for (_, status) in &services {
        gives_up(status).await;
    }
    tell("resume").await;
    log.reaches(1).await;
    let mut handled = 0;
    for (run, _) in services {
        handled += run.stop().await.handled;
    }
    assert!(handled >= 1, "the message is handled");
    log.all()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_alarm_holds_copies_back_and_loses_none() {
    let broker = fragile_broker().await;
    let fixture = Fixture::at("alarm", broker.amqp_url()).await;
    let run = fixture.serve_always(Err(Failure::permanent("no"))).await;
    // Nobody can publish during the alarm, so the messages are published first.
    run.stop().await;
    let queue = fixture.queue.clone();
    fixture
        .client
        .publish_many((0..20).map(|n| Publish::to_queue(&queue).message_id(n.to_string())))
        .await
        .unwrap();
    broker.rabbitmqctl(&["set_vm_memory_high_watermark", "0.00001"]).await.unwrap();
    let management = broker.management().unwrap();
    eventually(SOON, "the alarm is on", async || {
        management.alarms().await.map(|alarms| !alarms.is_empty())
    })
    .await
    .unwrap();
    let (run, seen) = fixture.serve_noting(|_| (), Err(Failure::permanent("no"))).await;
    seen.reaches(1).await;
    // The broker blocks a connection at its first publish, which may still arrive.
    assert!(fixture.client.depth(&fixture.parked()).await.unwrap() <= 1);
    broker.rabbitmqctl(&["set_vm_memory_high_watermark", "0.6"]).await.unwrap();
    let mut parked = fixture.drain_parked(20).await;
    let summary = run.stop().await;
    parked.sort_by_key(|it| it.properties.message_id.clone());
    parked.dedup_by_key(|it| it.properties.message_id.clone());
    assert_eq!(parked.len(), 20);
    assert_eq!(summary.parked.values().sum::<u64>(), 20);
    assert_eq!(fixture.client.depth(&queue).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_deleted_while_it_is_consumed_is_declared_and_consumed_again() {
    let mut fixture = Fixture::new("deleted").await;
    fixture.retry().delays = millis([100]);
    let seen = Log::default();
    let log = seen.clone();
    let handler = move |message: Message<Bytes>| {
        log.push(message.hop());
        async move { if message.hop() == 0 { Err(Failure::transient("once")) } else { Ok(()) } }
    };
    let (run, status) = fixture.start(handler).await;
    fixture.is_declared(&fixture.queue).await;
    fixture.publish("x").await;
    seen.reaches(2).await;
    is_idle(&status).await;
    fixture.client.delete_queue(&fixture.queue).await.unwrap();
    fixture.is_declared(&fixture.queue).await;
    fixture.publish("x").await;
    assert_eq!(seen.reaches(4).await, [0, 1, 0, 1]);
    assert_eq!(run.stop().await.handled, 2);
}

/// It could go back nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_handler_when_its_queue_is_deleted_is_handled() {
    // On a busy broker the deletion may close the connection as well. Then what waits is never
    // handled: the broker would deliver it again, but its queue is gone.
    for _ in 0..10 {
        if attempts_around_a_deletion().await == 14 {
            return;
        }
    }
    panic!("what waited was not handled");
}

/// How many of 14 messages are attempted. Their queue is deleted while a handler has the eleventh
/// and the others wait for it.
async fn attempts_around_a_deletion() -> usize {
    let mut fixture = Fixture::new("deleted-held").await;
    fixture.consume().prefetch = Some(5);
    fixture.consume().concurrency = Some(1);
    fixture.declare().await;
    let queue = fixture.queue.clone();
    fixture.client.publish_many((0..14).map(|_| Publish::to_queue(&queue))).await.unwrap();
    // The first ten open the window.
    let (started, gate) = (Log::default(), Arc::new(Semaphore::new(10)));
    let (log, pass) = (started.clone(), gate.clone());
    let handler = move |_: Message<Bytes>| {
        log.push(());
        let pass = pass.clone();
        async move {
            pass.acquire().await.unwrap().forget();
            Ok(())
        }
    };
    let (run, status) = fixture.start(handler).await;
    started.reaches(11).await;
    let holds_the_rest = async || match status.queues()[0].in_flight {
        4 => Ok(true),
        held => Err(format!("{held} in flight")),
    };
    eventually(SOON, "the last four are delivered", holds_the_rest).await.unwrap();
    fixture.client.delete_queue(&queue).await.unwrap();
    fixture.is_declared(&queue).await;
    gate.add_permits(10);
    is_idle(&status).await;
    run.stop().await;
    started.all().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_queue_that_is_deleted_is_consumed_again_when_its_owner_has_declared_it_again()
{
    let mut fixture = Fixture::new("existing-deleted").await;
    fixture.settings.queue_mut(&fixture.queue).declare = rehop::settings::Declare::Existing;
    let declare = async || {
        fixture.client.declare_queue(&fixture.queue, json!({ "x-queue-type": "quorum" })).await
    };
    declare().await.unwrap();
    let seen = Log::default();
    let log = seen.clone();
    let handler = move |_: Message<Bytes>| {
        log.push(());
        std::future::ready(Ok(()))
    };
    let (run, status) = fixture.start(handler).await;
    fixture.publish("x").await;
    seen.reaches(1).await;
    fixture.client.delete_queue(&fixture.queue).await.unwrap();
    // On 3.10, a queue that is declared again within about 20 ms keeps its subscriptions without
    // notice, and its deliveries are lost.
    gives_up(&status).await;
    declare().await.unwrap();
    fixture.publish("x").await;
    seen.reaches(2).await;
    run.stop().await;
}

/// To declare the queue again is refused, and to consume it is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_may_no_longer_declare_its_queue_consumes_it_after_a_reconnect_and_a_new_one_does_not_start()
 {
    if Broker::shared().await.management_url().is_none() {
        return not_tried("permissions, because REHOP_TEST_MANAGEMENT_URL is not set");
    }
    let mut fixture = Fixture::new("undeclared").await;
    let proxy = fixture.put_behind_proxy().await;
    fixture.limit("declares", [".*"; 3]).await;
    let body = |message: &Message<Bytes>| String::from_utf8_lossy(message.raw_body()).into_owned();
    let (run, seen) = fixture.serve_noting(body, Ok(())).await;
    fixture.publish("before").await;
    seen.reaches(1).await;
    fixture.allow(["^$", ".*", ".*"]).await;
    proxy.cut();
    fixture.publish("after").await;
    let is_handled = async || seen.all().contains(&"after".to_owned());
    eventually(SOON, "the queue is consumed again", is_handled).await.unwrap();
    let error = fixture.start_error().await;
    assert!(matches!(&error, Error::Permission { .. }), "{error}");
    run.stop().await;
}

/// The connections are cut while the handler runs. Its ack is too late, and the message comes
/// again.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_lost_under_a_running_handler_makes_a_duplicate_and_no_loss() {
    for reset in [false, true] {
        let (fixture, proxy) = Fixture::behind_proxy("lost-under").await;
        let seen = Log::default();
        let (log, cut) = (seen.clone(), Arc::new(proxy));
        let run = fixture
            .serve(move |message| {
                let count = log.push(message.redelivered());
                if count == 1 {
                    if reset { cut.reset() } else { cut.cut() }
                }
                async { Err(Failure::permanent("no")) }
            })
            .await;
        fixture.publish("x").await;
        seen.reaches(2).await;
        let parked = fixture.drain_parked(1).await;
        let summary = run.stop().await;
        assert_eq!(seen.all(), [false, true]);
        assert_eq!(parked[0].text(), "x");
        assert_eq!(fixture.client.depth(&fixture.queue).await.unwrap(), 0, "{summary:?}");
    }
}

/// The broker has taken back the delivery of such a handler. Messages that another instance lost
/// with its connection come to this one and are handled one at a time, after running handlers have
/// ended, but without waiting for that one.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_left_over_from_a_lost_connection_holds_nothing_up() {
    let (mut fixture, proxy) = Fixture::behind_proxy("left-over").await;
    fixture.settings.shutdown.grace = Duration::from_millis(300);
    let (handled, stuck) = (Log::default(), Log::default());
    let (log, stuck_log) = (handled.clone(), stuck.clone());
    let run = fixture
        .serve(move |message| {
            let sticks = message.raw_body().as_ref() == b"sticks" && !message.redelivered();
            if sticks {
                stuck_log.push(())
            } else {
                log.push(())
            };
            async move { if sticks { std::future::pending().await } else { Ok(()) } }
        })
        .await;
    fixture.publish("sticks").await;
    stuck.reaches(1).await;
    proxy.cut();
    handled.reaches(1).await;
    // A fresh message opens the window. From now on, redelivered messages are suspect.
    fixture.publish("fresh").await;
    handled.reaches(2).await;
    let other_proxy = fixture.put_behind_proxy().await;
    let taken = Log::default();
    let log = taken.clone();
    let other = fixture
        .serve(move |_| {
            log.push(());
            std::future::pending()
        })
        .await;
    let published = Cell::new(2);
    eventually(SOON, "the other instance has taken a message", async || {
        fixture.publish("for either").await;
        published.update(|count| count + 1);
        !taken.all().is_empty()
    })
    .await
    .unwrap();
    other_proxy.refuse().await;
    other_proxy.cut();
    handled.reaches(published.get()).await;
    run.stop().await;
    other.stop().await;
}

/// Only the publishing connection is silent. The delivery stays unacked, and is settled once copies
/// can be sent again.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acked_while_copies_cannot_be_published() {
    let (mut fixture, proxy) = Fixture::behind_proxy("silent-publisher").await;
    fixture.settings.broker.timeout = Duration::from_secs(10);
    let (run, seen, gate) = fixture.serve_gated(1, Err(Failure::permanent("no"))).await;
    fixture.publish("first").await;
    fixture.drain_parked(1).await;
    fixture.publish("second").await;
    seen.reaches(2).await;
    // The second connection is the publishing one.
    proxy.refuse().await;
    proxy.connection(1).unwrap().cut();
    gate.add_permits(1);
    // A copy that cannot be published occupies only its own handler slot.
    fixture.publish("third").await;
    seen.reaches(3).await;
    assert_eq!(fixture.client.depth(&fixture.parked()).await.unwrap(), 0);
    fixture.has_unacked(2).await;
    proxy.accept().await.unwrap();
    gate.add_permits(1);
    let parked: BTreeSet<_> = fixture.drain_parked(2).await.iter().map(Received::text).collect();
    let summary = run.stop().await;
    assert_eq!(parked, ["second", "third"].map(str::to_owned).into());
    assert_eq!(
        (seen.all().len(), summary.unsettled),
        (3, 0),
        "each delivery was settled, none repeated"
    );
    assert_eq!(fixture.client.depth(&fixture.queue).await.unwrap(), 0);
}

/// The broker nacks copies for a full queue. Nothing is acked or parked elsewhere, and everything
/// is parked when there is space.
#[tokio::test(flavor = "multi_thread")]
async fn copies_that_a_full_parked_queue_refuses_are_kept_until_it_has_space() {
    let mut fixture = Fixture::new("refused").await;
    fixture.declare().await;
    let (parked, park) = (fixture.parked(), format!("{}.park", fixture.namespace.name()));
    fixture.client.delete_queue(&parked).await.unwrap();
    let full =
        json!({ "x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish" });
    fixture.client.declare_queue(&parked, full).await.unwrap();
    fixture.client.bind(&parked, &park, &fixture.queue, json!({})).await.unwrap();
    fixture.settings.topology = TopologyMode::Check;
    let queue = fixture.queue.clone();
    fixture
        .client
        .publish_many((0..8).map(|n| Publish::to_queue(&queue).message_id(n.to_string())))
        .await
        .unwrap();
    let run = fixture.serve_always(Err(Failure::permanent("no"))).await;
    fixture.has_depth(&parked, 1).await;
    let mut ids: Vec<_> = Vec::new();
    for _ in 0..8 {
        ids.push(
            fixture
                .client
                .drain(&parked, 1, SOON)
                .await
                .unwrap()
                .remove(0)
                .properties
                .message_id
                .unwrap(),
        );
    }
    let summary = run.stop().await;
    ids.sort_unstable();
    assert_eq!(ids, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(summary.parked.values().sum::<u64>(), 8);
    assert_eq!(fixture.client.depth(&queue).await.unwrap(), 0);
}

/// A shutdown is requested while the copy of a message is refused. The message stays with the
/// broker.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_while_copies_are_refused_leaves_their_messages_with_the_broker() {
    let mut fixture = Fixture::new("refused-stop").await;
    fixture.settings.shutdown.grace = Duration::from_millis(300);
    fixture.declare().await;
    let (parked, park) = (fixture.parked(), format!("{}.park", fixture.namespace.name()));
    fixture.client.delete_queue(&parked).await.unwrap();
    let full =
        json!({ "x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish" });
    fixture.client.declare_queue(&parked, full).await.unwrap();
    fixture.client.bind(&parked, &park, &fixture.queue, json!({})).await.unwrap();
    fixture.settings.topology = TopologyMode::Check;
    let seen = Log::default();
    let log = seen.clone();
    let handler = move |_: Message<Bytes>| {
        log.push(());
        std::future::ready(Err(Failure::permanent("no")))
    };
    let (run, status) = fixture.start(handler).await;
    fixture.publish("parked").await;
    fixture.has_depth(&parked, 1).await;
    // Its copy is there before the service knows, and the grace time is short.
    is_idle(&status).await;
    fixture.publish("kept").await;
    seen.reaches(2).await;
    let summary = run.stop().await;
    assert_eq!(summary.parked.values().sum::<u64>(), 1, "{summary:?}");
    // The copy has been refused, or its answer is still awaited when the grace time ends.
    let left = [summary.handed_back, summary.unsettled, summary.unfinished];
    assert!(left.contains(&1), "{summary:?}");
    fixture.has_depth(&fixture.queue, 1).await;
}
