//! Messages that are handled one after the other, in the order of their queue.

use std::time::{Duration, Instant};

use rehop::settings::{Order, WaitStrategy};
use rehop::{Consumer, Failure, Raw};

use crate::support::{Fixture, Log, PROMPTLY, Running, millis};

/// A queue with this order, whose messages wait in the process.
async fn ordered(test: &str, order: Order, delays: &[u64]) -> Fixture {
    let mut fixture = Fixture::new(test).await;
    fixture.retry().strategy = Some(WaitStrategy::InProcess);
    fixture.retry().delays = millis(delays.iter().copied());
    fixture.consume().order = Some(order);
    fixture
}

/// A service that handles messages `<key><number>` and notes each attempt. The attempt fails while
/// `fails` says so.
async fn serve(
    fixture: &Fixture,
    seen: &Log<(String, u32)>,
    fails: impl Fn(&str, u32) -> bool + Send + Sync + 'static,
) -> Running {
    let log = seen.clone();
    let handler = move |message: rehop::Message<bytes::Bytes>| {
        let (body, attempt) =
            (String::from_utf8_lossy(message.raw_body()).into_owned(), message.hop());
        let failed = fails(&body, attempt);
        log.push((body, attempt));
        async move { if failed { Err(Failure::transient("no")) } else { Ok(()) } }
    };
    fixture.serve(handler).await
}

async fn publish(fixture: &Fixture, body: &str) {
    let header = fixture.to_queue().body(body).header("customer", &body[..1]);
    fixture.client.publish(header).await.unwrap();
}

fn bodies(seen: &[(String, u32)]) -> Vec<&str> {
    seen.iter().map(|(body, _)| body.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn in_an_ordered_queue_no_message_overtakes_one_that_waits() {
    let mut fixture = ordered("order-queue", Order::Queue, &[100, 200]).await;
    fixture.retry().immediate = Some(1);
    fixture.declare().await;
    for body in ["a1", "a2", "b1", "a3"] {
        publish(&fixture, body).await;
    }
    let seen = Log::default();
    let run = serve(&fixture, &seen, |body, hop| body == "a2" && hop < 2).await;
    let seen = seen.reaches(8).await;
    assert_eq!(bodies(&seen), ["a1", "a2", "a2", "a2", "a2", "a2", "b1", "a3"]);
    let summary = run.stop().await;
    assert_eq!((summary.handled, summary.requeued, summary.waited), (4, 2, 2));
}

/// To take the queue as it is would start a service that keeps no order.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_was_declared_for_no_order_is_refused_with_the_key_and_a_way_that_loses_nothing()
 {
    let mut fixture = ordered("order-declared", Order::None, &[100]).await;
    fixture.declare().await;
    fixture.consume().order = Some(Order::Queue);
    let text = fixture.start_error().await.to_string();
    let says = ["x-single-active-consumer", "consume.order", "drain it"];
    assert!(says.iter().all(|part| text.contains(part)) && !text.contains("existing"), "{text}");
}

/// A rolling deploy must not leave the queue with a process that keeps no order.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_would_keep_no_order_is_refused_while_the_one_that_keeps_it_goes_on() {
    let mut fixture = ordered("order-dropped", Order::Header("customer".to_owned()), &[100]).await;
    let seen = Log::default();
    let run = serve(&fixture, &seen, |_, _| false).await;
    publish(&fixture, "a1").await;
    seen.reaches(1).await;
    fixture.consume().order = Some(Order::None);
    let text = fixture.start_error().await.to_string();
    let says = ["x-single-active-consumer", "consume.order", "drain it"];
    assert!(says.iter().all(|part| text.contains(part)) && !text.contains("existing"), "{text}");
    publish(&fixture, "a2").await;
    assert_eq!(bodies(&seen.reaches(2).await), ["a1", "a2"]);
    assert_eq!(run.stop().await.handled, 2);
}

/// The broker knows that a queue is ordered, and not by what. So the next process may order it by
/// something else, from its start on: here another customer's message waits behind the one that
/// failed, which it would have passed before.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_process_may_order_a_queue_by_something_else() {
    for next in [Order::RoutingKey, Order::Queue] {
        let mut fixture =
            ordered("order-by-another", Order::Header("customer".to_owned()), &[60_000]).await;
        fixture.declare().await;
        for body in ["a1", "b1", "a2", "b2"] {
            publish(&fixture, body).await;
        }
        let (first, second) = (Log::default(), Log::default());
        let run = serve(&fixture, &first, |body, _| body == "a1").await;
        let before = first.reaches(3).await;
        let of = |key| {
            bodies(&before)
                .into_iter()
                .filter(move |body| body.starts_with(key))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (of('a'), of('b')),
            (vec!["a1"], vec!["b1", "b2"]),
            "a1 waits, and a2 behind it"
        );
        fixture.consume().order = Some(next);
        fixture.retry().delays = millis([1_000]);
        let standby = serve(&fixture, &second, |body, hop| body == "a1" && hop == 0).await;
        run.stop().await;
        second.reaches(1).await;
        publish(&fixture, "c1").await;
        assert_eq!(bodies(&second.reaches(4).await), ["a1", "a1", "a2", "c1"]);
        assert_eq!(standby.stop().await.handled, 3);
    }
}

/// A service that is dropped closes nothing in an orderly way, and its connection may live for a
/// while. It holds the first two messages; the others are still in the queue.
#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_queue_goes_on_in_order_when_the_service_that_held_it_is_dropped() {
    for round in 0..5 {
        let mut fixture =
            ordered("order-aborted", Order::Header("customer".to_owned()), &[60_000]).await;
        fixture.consume().prefetch = Some(2);
        fixture.declare().await;
        for body in ["a1", "a2", "a3", "a4"] {
            publish(&fixture, body).await;
        }
        let (first, second) = (Log::default(), Log::default());
        let run = serve(&fixture, &first, |body, _| body == "a1").await;
        first.reaches(1).await;
        let standby = serve(&fixture, &second, |_, _| false).await;
        run.abort().await;
        assert_eq!(bodies(&second.reaches(4).await), ["a1", "a2", "a3", "a4"], "round {round}");
        standby.stop().await;
    }
}

/// The handler of the first message runs when the grace time ends, and the subscription ends with
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_queue_goes_on_in_order_when_the_grace_time_of_its_process_is_over() {
    for round in 0..5 {
        let mut fixture =
            ordered("order-grace", Order::Header("customer".to_owned()), &[100]).await;
        fixture.consume().prefetch = Some(2);
        fixture.settings.shutdown.grace = Duration::from_millis(500);
        fixture.declare().await;
        for body in ["a1", "a2", "a3", "a4"] {
            publish(&fixture, body).await;
        }
        let (first, second) = (Log::default(), Log::default());
        let log = first.clone();
        let run = fixture
            .serve(move |message| {
                log.push((String::from_utf8_lossy(message.raw_body()).into_owned(), message.hop()));
                std::future::pending::<Result<(), Failure>>()
            })
            .await;
        first.reaches(1).await;
        let standby = serve(&fixture, &second, |_, _| false).await;
        assert_eq!(run.stop().await.unfinished, 1);
        assert_eq!(bodies(&second.reaches(4).await), ["a1", "a2", "a3", "a4"], "round {round}");
        standby.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_in_code_is_kept_as_one_in_the_settings_is() {
    let mut fixture = Fixture::new("order-code").await;
    fixture.retry().strategy = Some(WaitStrategy::InProcess);
    fixture.retry().delays = millis([100]);
    let seen = Log::default();
    let log = seen.clone();
    let handler = move |message: rehop::Message<bytes::Bytes>| {
        let failed = message.raw_body() == "a" && message.hop() == 0;
        log.push(String::from_utf8_lossy(message.raw_body()).into_owned());
        async move { if failed { Err(Failure::transient("no")) } else { Ok(()) } }
    };
    let consumer = Consumer::new(fixture.queue.clone(), handler).decode(Raw).order(Order::Queue);
    let run = Running::start(fixture.service().with_consumer(consumer));
    fixture.is_declared(&fixture.queue).await;
    for body in ["a", "b"] {
        publish(&fixture, body).await;
    }
    assert_eq!(seen.reaches(3).await, ["a", "a", "b"]);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_queue_that_is_ordered_by_a_header_only_messages_with_the_same_value_wait_for_each_other()
 {
    let fixture = ordered("order-header", Order::Header("customer".to_owned()), &[60_000]).await;
    fixture.declare().await;
    for body in ["a1", "a2", "b1", "b2", "a3", "b3"] {
        publish(&fixture, body).await;
    }
    let seen = Log::default();
    let run = serve(&fixture, &seen, |body, hop| body == "a1" && hop == 0).await;
    // All of the other customer's messages run while the first one waits.
    let seen = seen.reaches(4).await;
    assert_eq!(run.stop().await.handled, 3);
    let of = |key| {
        bodies(&seen).into_iter().filter(move |body| body.starts_with(key)).collect::<Vec<_>>()
    };
    assert_eq!((of('a'), of('b')), (vec!["a1"], vec!["b1", "b2", "b3"]));
    let seen = Log::default();
    let run = serve(&fixture, &seen, |_, _| false).await;
    assert_eq!(bodies(&seen.reaches(3).await), ["a1", "a2", "a3"]);
    assert_eq!(run.stop().await.handled, 3);
}

/// Parking leaves a hole: those behind go on.
#[tokio::test(flavor = "multi_thread")]
async fn in_an_ordered_queue_a_message_that_is_parked_leaves_its_place() {
    let fixture = ordered("order-park", Order::Queue, &[100]).await;
    fixture.declare().await;
    for body in ["a1", "a2", "a3"] {
        publish(&fixture, body).await;
    }
    let seen = Log::default();
    let run = serve(&fixture, &seen, |body, _| body == "a2").await;
    assert_eq!(bodies(&seen.reaches(4).await), ["a1", "a2", "a2", "a3"]);
    assert_eq!(fixture.drain_parked(1).await[0].text(), "a2");
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_queue_goes_on_in_order_in_another_process_when_one_stops() {
    let fixture = ordered("order-stop", Order::Header("customer".to_owned()), &[60_000]).await;
    fixture.declare().await;
    for number in 1..=4 {
        for key in ["a", "b"] {
            publish(&fixture, &format!("{key}{number}")).await;
        }
    }
    let (first, second) = (Log::default(), Log::default());
    let run = serve(&fixture, &first, |body, _| body == "a2").await;
    let before = first.reaches(6).await;
    let standby = serve(&fixture, &second, |_, _| false).await;
    run.stop().await;
    let after = second.reaches(3).await;
    let all: Vec<_> = before.into_iter().chain(after).collect();
    let of = |key| {
        bodies(&all).into_iter().filter(move |body| body.starts_with(key)).collect::<Vec<_>>()
    };
    assert_eq!(
        (of('a'), of('b')),
        (vec!["a1", "a2", "a2", "a3", "a4"], vec!["b1", "b2", "b3", "b4"])
    );
    assert_eq!(standby.stop().await.handled, 3);
}

/// The handler that runs when the channel is lost is dropped before its message comes again.
#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_queue_stays_in_order_when_its_channel_is_lost() {
    let mut fixture = ordered("order-lost", Order::Queue, &[100]).await;
    fixture.declare().await;
    let proxy = fixture.put_behind_proxy().await;
    for body in ["a1", "a2", "a3"] {
        publish(&fixture, body).await;
    }
    let seen = Log::default();
    let (log, running) = (seen.clone(), Log::<()>::default());
    let probe = running.clone();
    let run = fixture
        .serve(move |message| {
            let (log, probe) = (log.clone(), probe.clone());
            async move {
                let body = String::from_utf8_lossy(message.raw_body()).into_owned();
                // Owned by each handler that has not ended.
                log.push((body.clone(), probe.owners()));
                if body == "a1" && !message.redelivered() {
                    std::future::pending::<()>().await;
                }
                drop(probe);
                Ok(())
            }
        })
        .await;
    seen.reaches(1).await;
    proxy.cut();
    let seen = seen.reaches(4).await;
    let bodies: Vec<_> = seen.iter().map(|(body, _)| body.as_str()).collect();
    assert_eq!(bodies, ["a1", "a1", "a2", "a3"]);
    assert!(seen.iter().all(|(_, owners)| *owners == seen[0].1), "one handler at a time: {seen:?}");
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_queue_stops_in_time_while_a_message_waits() {
    let fixture = ordered("order-stops", Order::Queue, &[60_000]).await;
    let seen = Log::default();
    let run = serve(&fixture, &seen, |_, _| true).await;
    publish(&fixture, "a1").await;
    seen.reaches(1).await;
    let since = Instant::now();
    let summary = run.stop().await;
    assert!(since.elapsed() < PROMPTLY, "{:?}", since.elapsed());
    assert_eq!(summary.handed_back, 1, "{summary}");
    fixture.has_depth(&fixture.queue, 1).await;
}
