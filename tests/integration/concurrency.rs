//! Prefetch and concurrency.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rehop::Failure;
use rehop_testing::{Publish, eventually};
use tokio::sync::Semaphore;

use crate::support::{Fixture, Log, SOON, millis};

#[tokio::test(flavor = "multi_thread")]
async fn as_many_handlers_run_at_once_as_concurrency_allows_and_no_more() {
    let mut fixture = Fixture::new("concurrency").await;
    fixture.consume().prefetch = Some(50);
    fixture.consume().concurrency = Some(4);
    let (now, most, done) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Log::default());
    fixture.declare().await;
    let queue = fixture.queue.clone();
    fixture.client.publish_many((0..60).map(|_| Publish::to_queue(&queue))).await.unwrap();
    let (running, highest, log) = (now.clone(), most.clone(), done.clone());
    let run = fixture
        .serve(move |_| {
            let (running, highest, log) = (running.clone(), highest.clone(), log.clone());
            async move {
                highest.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                log.push(());
                Ok(())
            }
        })
        .await;
    done.reaches(60).await;
    assert_eq!(run.stop().await.handled, 60);
    assert_eq!(most.load(Ordering::SeqCst), 4);
}

/// Collected acks are sent by a task that could be on the thread that a handler blocks. Without
/// them the broker would soon deliver nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handlers_that_block_three_of_four_threads_hold_back_no_ack_of_the_others() {
    let mut fixture = Fixture::new("blocked-threads").await;
    fixture.consume().prefetch = Some(10);
    fixture.consume().concurrency = Some(10);
    fixture.declare().await;
    let bodies =
        (0..3).flat_map(|_| ["fast"; 4].into_iter().chain(["blocks"])).chain(["fast"; 200]);
    let queue = fixture.queue.clone();
    fixture
        .client
        .publish_many(bodies.map(|body| Publish::to_queue(&queue).body(body)))
        .await
        .unwrap();
    let (fast, gate) = (Log::default(), Arc::new((Mutex::new(false), Condvar::new())));
    let (log, closed) = (fast.clone(), gate.clone());
    let run = fixture
        .serve(move |message| {
            let (blocks, log, closed) =
                (message.raw_body() == "blocks", log.clone(), closed.clone());
            async move {
                if blocks {
                    let (is_open, opened) = &*closed;
                    // A limit, because a runtime whose thread is blocked cannot be dropped.
                    let _ = opened
                        .wait_timeout_while(is_open.lock().unwrap(), SOON * 2, |is_open| !*is_open)
                        .unwrap();
                } else {
                    log.push(());
                }
                Ok(())
            }
        })
        .await;
    fast.reaches(212).await;
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    assert_eq!(run.stop().await.handled, 215);
}

/// The service may hold one more than the prefetch, because it takes a first delivery alone before
/// the window opens.
#[tokio::test(flavor = "multi_thread")]
async fn no_more_messages_are_taken_than_prefetch_allows() {
    let mut fixture = Fixture::new("prefetch").await;
    fixture.consume().prefetch = Some(5);
    fixture.consume().concurrency = Some(2);
    fixture.declare().await;
    let queue = fixture.queue.clone();
    fixture.client.publish_many((0..40).map(|_| Publish::to_queue(&queue))).await.unwrap();
    // The first ten open the window to the whole prefetch.
    let gate = Arc::new(Semaphore::new(10));
    let (started, log, pass) = (Log::default(), Log::default(), gate.clone());
    let begun = started.clone();
    let done = log.clone();
    let run = fixture
        .serve(move |_| {
            let (pass, begun, done) = (pass.clone(), begun.clone(), done.clone());
            async move {
                begun.push(());
                pass.acquire().await.unwrap().forget();
                done.push(());
                Ok(())
            }
        })
        .await;
    started.reaches(12).await;
    eventually(SOON, "the window is full", async || match fixture.client.depth(&queue).await {
        Ok(ready) if (24..=25).contains(&ready) => Ok(true),
        Ok(ready) => Err(format!("{ready} ready")),
        Err(error) => Err(error.to_string()),
    })
    .await
    .unwrap();
    gate.add_permits(2);
    started.reaches(14).await;
    assert!(fixture.client.depth(&queue).await.unwrap() >= 22);
    gate.add_permits(100);
    log.reaches(40).await;
    assert_eq!(run.stop().await.handled, 40);
}

/// With waits in between, and more messages than the window, nothing is lost and nothing is handled
/// twice.
#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_messages_that_each_fail_once_are_each_handled_once() {
    let mut fixture = Fixture::new("many").await;
    fixture.retry().delays = millis([100]);
    let (queue, handled) = (fixture.queue.clone(), Log::default());
    let log = handled.clone();
    let run = fixture
        .serve(move |message| {
            if message.hop() > 0 {
                log.push(message.message_id().unwrap().to_owned());
            }
            async move { if message.hop() == 0 { Err(Failure::transient("once")) } else { Ok(()) } }
        })
        .await;
    let messages = (0..500).map(|number| Publish::to_queue(&queue).message_id(number.to_string()));
    fixture.client.publish_many(messages).await.unwrap();
    let mut ids = handled.reaches(500).await;
    let summary = run.stop().await;
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 500);
    assert_eq!((summary.handled, summary.waited, summary.unsettled), (500, 500, 0));
}
