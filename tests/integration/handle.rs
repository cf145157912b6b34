//! What a program asks of its running service.

use std::sync::Arc;

use bytes::Bytes;
use rehop::{Consumer, Failure, HandleError, Message, Raw, Service, Status};
use rehop_testing::Publish;
use tokio::sync::Semaphore;

use crate::status::becomes;
use crate::support::{Fixture, Log, Running};

/// A handler that records its message's body and then waits for a permit.
fn gated(
    log: &Log<String>,
    gate: &Arc<Semaphore>,
) -> impl Fn(Message<Bytes>) -> futures_util::future::BoxFuture<'static, Result<(), Failure>> + use<>
{
    let (log, gate) = (log.clone(), gate.clone());
    move |message| {
        let (log, gate) = (log.clone(), gate.clone());
        Box::pin(async move {
            log.push(String::from_utf8_lossy(&message.body).into_owned());
            gate.acquire().await.unwrap().forget();
            Ok(())
        })
    }
}

fn service(fixture: &Fixture, log: &Log<String>, gate: &Arc<Semaphore>) -> Service {
    let consumer = Consumer::new(fixture.queue.clone(), gated(log, gate)).decode(Raw);
    fixture.service().with_consumer(consumer)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_queue_lets_its_handler_end_and_starts_none_while_another_queue_goes_on() {
    let fixture = Fixture::new("pause").await;
    let other = fixture.namespace.queue("others");
    let (log, gate) = (Log::default(), Arc::new(Semaphore::new(0)));
    let of_other = Log::default();
    let noted = of_other.clone();
    let service = service(&fixture, &log, &gate).with_consumer(
        Consumer::new(other.clone(), move |message: Message<Bytes>| {
            noted.push(message.body);
            std::future::ready(Ok::<_, Failure>(()))
        })
        .decode(Raw),
    );
    let handle = service.handle();
    let run = Running::start(service);
    becomes(&handle.status(), "it is ready", Status::is_ready).await;
    fixture.publish("first").await;
    log.reaches(1).await;

    let paused = handle.pause(&fixture.queue).unwrap();
    let status = handle.status().queues().remove(0);
    assert!(status.is_paused && handle.status().is_ready(), "{status:?}");
    fixture.client.publish(Publish::to_queue(&other).body("x")).await.unwrap();
    of_other.reaches(1).await;
    assert_eq!(log.all(), ["first"]);
    gate.add_permits(1);
    assert!(paused.await);
    fixture.publish("second").await;
    fixture.has_depth(&fixture.queue, 1).await;
    assert_eq!(log.all(), ["first"]);

    gate.add_permits(1);
    // Also from a thread without a runtime.
    let (by_thread, queue) = (handle.clone(), fixture.queue.clone());
    std::thread::spawn(move || by_thread.resume(&queue)).join().unwrap().unwrap();
    log.reaches(2).await;
    assert!(!handle.status().queues()[0].is_paused);
    assert_eq!(run.stop().await.handled, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_queue_handles_what_it_has_taken_and_takes_nothing_more() {
    let mut fixture = Fixture::new("drain").await;
    fixture.consume().concurrency = Some(1);
    fixture.declare().await;
    for number in 0..30 {
        fixture.publish(&number.to_string()).await;
    }
    let (log, gate) = (Log::default(), Arc::new(Semaphore::new(20)));
    let service = service(&fixture, &log, &gate);
    let handle = service.handle();
    let run = Running::start(service);
    // By then the process may hold several, of which one runs.
    log.reaches(21).await;
    let drained = handle.drain(&fixture.queue).unwrap();
    gate.add_permits(100);
    assert!(drained.await);
    let handled = log.all().len();
    fixture.has_depth(&fixture.queue, 30 - handled as u32).await;
    assert_eq!(handle.status().queues()[0].in_flight, 0);
    handle.resume(&fixture.queue).unwrap();
    log.reaches(30).await;
    let summary = run.stop().await;
    assert_eq!((summary.handled, summary.handed_back), (30, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_paused_before_the_start_is_not_taken_from_until_it_goes_on() {
    let fixture = Fixture::new("paused-first").await;
    let (log, gate) = (Log::default(), Arc::new(Semaphore::new(10)));
    let service = service(&fixture, &log, &gate);
    let handle = service.handle();
    assert!(handle.pause(&fixture.queue).unwrap().await);
    let run = Running::start(service);
    fixture.is_declared(&fixture.queue).await;
    fixture.publish("x").await;
    becomes(&handle.status(), "it is ready", Status::is_ready).await;
    assert!(log.all().is_empty());
    handle.resume(&fixture.queue).unwrap();
    log.reaches(1).await;
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_concurrency_of_a_running_queue_rises_and_falls() {
    let mut fixture = Fixture::new("resized").await;
    (fixture.consume().concurrency, fixture.consume().prefetch) = (Some(1), Some(10));
    fixture.declare().await;
    for number in 0..8 {
        fixture.publish(&number.to_string()).await;
    }
    let (log, gate) = (Log::default(), Arc::new(Semaphore::new(0)));
    let service = service(&fixture, &log, &gate);
    let handle = service.handle();
    let run = Running::start(service);
    log.reaches(1).await;
    assert!(handle.set_concurrency(&fixture.queue, 3).unwrap().await);
    log.reaches(3).await;
    let lowered = handle.set_concurrency(&fixture.queue, 1).unwrap();
    gate.add_permits(3);
    assert!(lowered.await);
    let (lowered, raised) =
        [2, 3].map(|handlers| handle.set_concurrency(&fixture.queue, handlers).unwrap()).into();
    assert!(!lowered.await, "another request has taken its place");
    assert!(raised.await);
    gate.add_permits(100);
    log.reaches(8).await;
    let error = handle.set_concurrency(&fixture.queue, 11).unwrap_err();
    assert!(error.to_string().ends_with("it must be 1 to 10"), "{error}");
    assert!(matches!(error, HandleError::Concurrency { handlers: 11, most: 10, .. }));
    assert!(handle.set_concurrency(&fixture.queue, 0).is_err());
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_stops_its_service_and_says_so_when_it_is_used_later() {
    let fixture = Fixture::new("handle-stop").await;
    let (log, gate) = (Log::default(), Arc::new(Semaphore::new(1)));
    let service = service(&fixture, &log, &gate);
    let (handle, unknown) = (service.handle(), "invoices");
    let run = Running::start(service);
    fixture.is_declared(&fixture.queue).await;
    fixture.publish("x").await;
    log.reaches(1).await;
    let known = fixture.queue.clone();
    assert_eq!(
        handle.pause(unknown).unwrap_err(),
        HandleError::UnknownQueue { queue: unknown.to_owned(), known: vec![known] }
    );
    assert!(handle.stop().await);
    assert_eq!(run.ended().await.unwrap().handled, 1);
    handle.stop().await;
    assert_eq!(handle.resume(&fixture.queue), Err(HandleError::Ended));
    assert_eq!(handle.pause(&fixture.queue).unwrap_err(), HandleError::Ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_was_stopped_before_its_start_ends_at_once_and_one_that_is_dropped_has_ended()
 {
    let fixture = Fixture::new("stopped-first").await;
    let (log, gate) = (Log::default(), Arc::new(Semaphore::new(1)));
    let stopped = service(&fixture, &log, &gate);
    let stop = stopped.handle().stop();
    assert_eq!(stopped.await.unwrap().handled, 0);
    stop.await;
    let dropped = service(&fixture, &log, &gate);
    let handle = dropped.handle();
    drop(dropped);
    assert_eq!(handle.resume(&fixture.queue), Err(HandleError::Ended));
    handle.stop().await;

    let too_many = service(&fixture, &log, &gate);
    assert!(too_many.handle().set_concurrency(&fixture.queue, 1_000).unwrap().await);
    let error = too_many.await.unwrap_err().to_string();
    assert!(error.contains("concurrency is 1000, but must be 1 to prefetch"), "{error}");
}
