//! Shutdown: no more messages are taken, none is lost, and the summary is right.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rehop::settings::{Order, WaitStrategy};
use rehop::{Consumer, Failure, Message, Raw, Stopped};
use rehop_testing::{Publish, eventually};
use tokio::sync::Semaphore;

use crate::support::frame_hold::Held;
use crate::support::{Fixture, Log, PROMPTLY, Running, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn what_no_handler_has_seen_is_handed_back_and_running_handlers_finish() {
    let mut fixture = Fixture::new("hand-back").await;
    fixture.consume().prefetch = Some(20);
    fixture.consume().concurrency = Some(2);
    fixture.declare().await;
    let queue = fixture.queue.clone();
    fixture.client.publish_many((0..60).map(|_| Publish::to_queue(&queue))).await.unwrap();
    // The first forty open the window to the whole prefetch.
    let (run, started, gate) = fixture.serve_gated(40, Ok(())).await;
    started.reaches(42).await;
    fixture.has_depth(&queue, 0).await;
    let stopping = run.begin_stop();
    fixture.has_depth(&queue, 18).await;
    gate.add_permits(2);
    let summary = stopping.ended().await.unwrap();
    assert_eq!(
        (summary.handled, summary.handed_back, summary.unfinished),
        (42, 18, 0),
        "{summary:?}"
    );
    assert_eq!(summary.stopped, Stopped::Shutdown);
    assert_eq!(started.all().len(), 42);
    fixture.has_depth(&queue, 18).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_handler_that_fails_during_the_shutdown_is_settled_like_any_other() {
    let fixture = Fixture::new("fails-late").await;
    let (run, started, gate) = fixture.serve_gated(0, Err(Failure::permanent("late"))).await;
    fixture.publish("x").await;
    started.reaches(1).await;
    let stopping = run.begin_stop();
    gate.add_permits(1);
    assert_eq!(stopping.ended().await.unwrap().parked.values().sum::<u64>(), 1);
    assert_eq!(fixture.drain_parked(1).await[0].headers["rehop-reason"], "permanent");
    assert_eq!(fixture.client.depth(&fixture.queue).await.unwrap(), 0, "its ack arrived too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_would_wait_in_the_process_is_handed_back_and_counted_if_the_service_is_stopping()
 {
    for order in [Order::None, Order::Queue] {
        let mut fixture = Fixture::new("holds-late").await;
        fixture.retry().strategy = Some(WaitStrategy::InProcess);
        fixture.consume().order = Some(order);
        let (gate, started) = (Arc::new(Semaphore::new(0)), Log::default());
        let (pass, log) = (gate.clone(), started.clone());
        let handler = move |_: Message<Bytes>| {
            let (pass, log) = (pass.clone(), log.clone());
            async move {
                log.push(());
                pass.acquire().await.unwrap().forget();
                Err::<(), _>(Failure::transient("late"))
            }
        };
        let service = fixture
            .service()
            .with_consumer(Consumer::new(fixture.queue.clone(), handler).decode(Raw));
        let status = service.status();
        let run = Running::start(service);
        fixture.is_declared(&fixture.queue).await;
        fixture.publish("x").await;
        started.reaches(1).await;
        let stopping = run.begin_stop();
        eventually(SOON, "it is stopping", async || Ok::<_, String>(!status.is_ready()))
            .await
            .unwrap();
        gate.add_permits(1);
        let summary = stopping.ended().await.unwrap();
        assert_eq!((summary.handed_back, summary.unfinished), (1, 0), "{summary}");
        fixture.has_depth(&fixture.queue, 1).await;
    }
}

/// The parked queue is full. What cannot be parked goes back: on 4.3 uncounted or, in an ordered
/// queue, with its channel.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_hands_back_at_once_what_the_broker_refuses_to_park() {
    for (order, held) in [(Order::None, 5), (Order::Queue, 1)] {
        let mut fixture = Fixture::new("stop-refused").await;
        fixture.settings.shutdown.grace = SOON;
        fixture.retry().strategy = Some(WaitStrategy::InProcess);
        fixture.consume().order = Some(order.clone());
        fixture.declare().await;
        fixture.fill_parked().await;
        for _ in 0..5 {
            fixture.publish("x").await;
        }
        let started = Log::default();
        let log = started.clone();
        let run = fixture
            .serve(move |_| {
                log.push(());
                std::future::ready(Err(Failure::permanent("no")))
            })
            .await;
        started.reaches(held).await;
        let since = Instant::now();
        let summary = run.stop().await;
        assert!(since.elapsed() < PROMPTLY, "{order:?}: {:?}", since.elapsed());
        assert_eq!(
            (summary.handed_back, summary.unsettled, summary.unfinished, summary.stopped),
            (held as u64, 0, 0, Stopped::Shutdown),
            "{order:?}: {summary}"
        );
        fixture.has_depth(&fixture.queue, 5).await;
        if order == Order::None && fixture.is_version("4.3") {
            let left = fixture.client.get_all(&fixture.queue).await.unwrap();
            let counted = left.iter().filter(|it| it.headers.get("x-delivery-count").is_some());
            assert_eq!((left.len(), counted.count()), (5, 0));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_message_of_a_handler_that_exceeds_the_grace_time_stays_with_the_broker() {
    let mut fixture = Fixture::new("grace").await;
    fixture.settings.shutdown.grace = Duration::from_millis(200);
    let started = Log::default();
    let log = started.clone();
    let run = fixture
        .serve(move |_| {
            log.push(());
            std::future::pending()
        })
        .await;
    fixture.publish("x").await;
    started.reaches(1).await;
    let summary = run.stop().await;
    assert_eq!((summary.unfinished, summary.stopped), (1, Stopped::GraceOver));
    assert!(summary.to_string().starts_with("stopped when the grace time was over: "), "{summary}");
    fixture.has_depth(&fixture.queue, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_stops_in_time_while_the_broker_is_away() {
    let (fixture, proxy) = Fixture::behind_proxy("stop-away").await;
    let run = fixture.serve_always(Ok(())).await;
    proxy.refuse().await;
    proxy.cut();
    // The service has to notice the loss first: its connections to the proxy end.
    eventually(SOON, "the connections are closed", async || proxy.open() == 0).await.unwrap();
    let since = Instant::now();
    let summary = run.stop().await;
    assert!(since.elapsed() < PROMPTLY, "{:?}", since.elapsed());
    assert_eq!((summary.handled, summary.stopped), (0, Stopped::Shutdown));
}

/// Silence is worse than absence: connections look alive, but nothing is answered. The handler's
/// copy cannot be published. An answer may take much longer than the whole shutdown.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_stops_within_its_grace_time_while_the_broker_is_silent() {
    let (mut fixture, proxy) = Fixture::behind_proxy("stop-silent").await;
    let grace = Duration::from_secs(1);
    fixture.settings.shutdown.grace = grace;
    fixture.settings.broker.timeout = Duration::from_secs(60);
    let (run, started, gate) = fixture.serve_gated(0, Err(Failure::permanent("no"))).await;
    fixture.publish("x").await;
    started.reaches(1).await;
    proxy.pause();
    gate.add_permits(1);
    let since = Instant::now();
    let summary = run.stop().await;
    assert!(since.elapsed() < grace + PROMPTLY, "{:?}", since.elapsed());
    assert_eq!((summary.unfinished, summary.parked.len()), (1, 0), "{summary:?}");
    drop(proxy);
    fixture.has_depth(&fixture.queue, 1).await;
}

/// The window opens with the first message, so a second subscription is on its way while that
/// message is handled.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_that_gets_no_answer_to_a_subscription_settles_what_its_handlers_finish() {
    let mut fixture = Fixture::new("stop-unanswered").await;
    let (proxy, hold) = fixture.put_behind_frame_hold(Held::ConsumeOk(2)).await;
    fixture.declare().await;
    let (gate, started) = (Arc::new(Semaphore::new(0)), Log::default());
    let (pass, log) = (gate.clone(), started.clone());
    let starting = fixture.start(move |_| {
        let (pass, log) = (pass.clone(), log.clone());
        async move {
            log.push(());
            pass.acquire().await.unwrap().forget();
            Ok(())
        }
    });
    let (run, status) = starting.await;
    fixture.is_subscribed().await;
    fixture.publish("x").await;
    started.reaches(1).await;
    hold.is_reached().await;
    assert!(status.queues()[0].is_consuming, "{status:?}");
    let stopping = run.begin_stop();
    // With a grace time of 30 s, the service waits 2 s for each of two answers: to the
    // subscription, and to its end. Only then does the queue count as not consumed, and what ends
    // from now on is settled on the channel of a given-up subscription. Handlers may run for 28 s.
    let has_given_up = async || {
        if status.queues()[0].is_consuming { Err(format!("{status:?}")) } else { Ok(true) }
    };
    eventually(SOON, "the shutdown waits for no more answers", has_given_up).await.unwrap();
    gate.add_permits(1);
    let summary = stopping.ended().await.unwrap();
    assert_eq!((summary.handled, summary.unfinished), (1, 0), "{summary:?}");
    // The broker would deliver again, and first, what it holds for this connection.
    proxy.cut();
    fixture.publish("next").await;
    assert_eq!(fixture.client.drain(&fixture.queue, 1, SOON).await.unwrap()[0].text(), "next");
    fixture.has_depth(&fixture.queue, 0).await;
    assert_eq!(started.all().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_stopped_as_soon_as_it_is_connected_stops_cleanly() {
    let fixture = Fixture::new("at-once").await;
    let handler = |_: Message<Bytes>| async { Ok::<_, Failure>(()) };
    let service =
        fixture.service().with_consumer(Consumer::new(fixture.queue.clone(), handler).decode(Raw));
    let status = service.status();
    let run = Running::start(service);
    let is_open = async || Ok::<_, String>(status.connections().is_publishing_open);
    eventually(SOON, "both connections are open", is_open).await.unwrap();
    assert_eq!(run.stop().await.stopped, Stopped::Shutdown);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_in_a_wait_queue_survive_the_end_of_the_service() {
    let fixture = Fixture::new("outlive").await;
    let seen = Log::default();
    let log = seen.clone();
    let handler = move |message: rehop::Message<bytes::Bytes>| {
        log.push(message.hop());
        async move { if message.hop() == 0 { Err(Failure::transient("no")) } else { Ok(()) } }
    };
    let run = fixture.serve(handler.clone()).await;
    fixture.publish("x").await;
    seen.reaches(1).await;
    assert_eq!(run.stop().await.waited, 1);
    let run = fixture.serve(handler).await;
    assert_eq!(seen.reaches(2).await, [0, 1]);
    assert_eq!(run.stop().await.handled, 1);
}
