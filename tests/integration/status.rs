//! What a service says about itself while it runs.

use std::future::IntoFuture;

use bytes::Bytes;
use rehop::{Consumer, Failure, Message, Raw, Status};
use rehop_testing::{Broker, eventually};

use crate::support::{Fixture, Log, Running, SOON, not_tried};

pub(crate) async fn becomes(status: &Status, what: &str, is_so: impl Fn(&Status) -> bool) {
    let look = async || if is_so(status) { Ok(true) } else { Err(format!("{status:?}")) };
    eventually(SOON, what, look).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_follows_the_service_from_its_start_through_an_outage_to_its_end() {
    let (fixture, proxy) = Fixture::behind_proxy("status").await;
    let (pass, gate) = tokio::sync::watch::channel(false);
    let handler = move |_: Message<Bytes>| {
        let mut gate = gate.clone();
        async move {
            gate.wait_for(|open| *open).await.unwrap();
            Ok::<_, Failure>(())
        }
    };
    let service =
        fixture.service().with_consumer(Consumer::new(fixture.queue.clone(), handler).decode(Raw));
    let status = service.status();
    assert!(!status.is_ready() && !status.can_publish(), "it has not begun to connect: {status:?}");
    assert!(status.problems()[0].contains(&fixture.queue), "{:?}", status.problems());
    let run = Running::start(service);
    becomes(&status, "the service is ready", Status::is_ready).await;
    let [queue] = &status.queues()[..] else { panic!("{status:?}") };
    assert_eq!(
        (queue.queue.as_str(), queue.is_consuming, queue.last_error.as_deref()),
        (&*fixture.queue, true, None)
    );
    fixture.publish("x").await;
    becomes(&status, "a delivery is in flight", |status| status.queues()[0].in_flight == 1).await;
    proxy.refuse().await;
    proxy.cut();
    becomes(&status, "the outage shows", |status| {
        !status.is_ready() && !status.can_publish() && status.queues()[0].last_error.is_some()
    })
    .await;
    assert!(status.queues()[0].since > queue.since);
    pass.send(true).unwrap();
    proxy.accept().await.unwrap();
    becomes(&status, "the service is ready again and idle", |status| {
        status.is_ready() && status.queues()[0].in_flight == 0
    })
    .await;
    run.stop().await;
    assert!(!status.is_ready() && !status.can_publish(), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_a_queue_is_not_ready() {
    let fixture = Fixture::new("no-queue").await;
    let service = fixture.service();
    let status = service.status();
    assert_eq!(status.problems()[0], "the service has no queue");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_outlives_its_service_keeps_no_connection_open() {
    let (fixture, proxy) = Fixture::behind_proxy("outlived").await;
    let is_gone = async || match proxy.open() {
        0 => Ok(true),
        open => Err(format!("{open} connections are open")),
    };
    let handler = |_: Message<Bytes>| async { Ok::<_, Failure>(()) };
    let service =
        fixture.service().with_consumer(Consumer::new(fixture.queue.clone(), handler).decode(Raw));
    let status = service.status();
    let run = tokio::spawn(service.into_future());
    becomes(&status, "the service is ready", Status::is_ready).await;
    run.abort();
    eventually(SOON, "a service that was aborted is gone", is_gone).await.unwrap();
    becomes(&status, "it is not ready", |status| {
        !status.is_ready() && !status.connections().is_consuming_open
    })
    .await;
}

/// While the service stops, Kubernetes and load balancers should know.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_stopping_is_not_ready_while_its_handlers_finish() {
    let fixture = Fixture::new("stopping").await;
    let (pass, gate) = tokio::sync::watch::channel(false);
    let started = Log::default();
    let log = started.clone();
    let handler = move |_: Message<Bytes>| {
        let mut gate = gate.clone();
        log.push(());
        async move {
            gate.wait_for(|open| *open).await.unwrap();
            Ok::<_, Failure>(())
        }
    };
    let service =
        fixture.service().with_consumer(Consumer::new(fixture.queue.clone(), handler).decode(Raw));
    let status = service.status();
    let run = Running::start(service);
    fixture.is_declared(&fixture.queue).await;
    fixture.publish("x").await;
    started.reaches(1).await;
    let run = run.begin_stop();
    becomes(&status, "it is not ready", |status| !status.is_ready()).await;
    assert_eq!(status.queues()[0].in_flight, 1);
    pass.send(true).unwrap();
    assert_eq!(run.ended().await.unwrap().handled, 1);
}

/// A queue that may be declared and not read is never consumed, so a probe must not say so between
/// two refusals.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_may_not_be_read_is_not_consumed_at_any_time_and_its_problem_names_no_user() {
    if Broker::shared().await.management_url().is_none() {
        not_tried("permissions, because REHOP_TEST_MANAGEMENT_URL is not set");
        return;
    }
    let mut fixture = Fixture::new("unreadable").await;
    fixture.declare().await;
    // To bind a queue to an exchange needs a permission to read the exchange.
    let all_but_the_queue = format!("^(?!{}$).*", fixture.queue.replace('.', "\\."));
    fixture.limit("writer", [".*", ".*", &all_but_the_queue]).await;
    let service = fixture.service().with_consumer(
        Consumer::new(fixture.queue.clone(), |_: Message<Bytes>| async { Ok::<_, Failure>(()) })
            .decode(Raw),
    );
    let status = service.status();
    let since = status.queues()[0].since;
    let run = Running::start(service);
    becomes(&status, "the refusal shows", |status| status.queues()[0].last_error.is_some()).await;
    let [queue] = &status.queues()[..] else { panic!("{status:?}") };
    assert!(
        queue.last_error.as_ref().is_some_and(|error| error.contains("ACCESS_REFUSED")),
        "{queue:?}"
    );
    assert_eq!((queue.is_consuming, queue.since), (false, since), "it was not consumed in between");
    let (problems, user) =
        (status.problems(), fixture.settings.broker.username.as_deref().unwrap());
    assert!(problems[0].contains(&fixture.queue) && !problems[0].contains(user), "{problems:?}");
    fixture.allow([".*"; 3]).await;
    becomes(&status, "the queue is consumed", Status::is_ready).await;
    run.stop().await;
}
