//! What prevents a service from starting, and the error messages.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rehop::settings::{Order, Secret, WaitStrategy};
use rehop::{Consumer, Error, Failure, Message, Raw, Service, Settings, Summary};
use rehop_testing::{Broker, Proxy, eventually};
use tokio::net::TcpListener;

use crate::support::{Fixture, PROMPTLY, Running, SOON, millis, not_tried};

async fn connect_error(settings: &Settings) -> Error {
    match Service::new(settings).with_consumer(Consumer::new("orders", succeeds).decode(Raw)).await
    {
        Ok(_) => panic!("it connected"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_settings_are_named_before_anything_is_connected() {
    let check = async |change: fn(&mut Settings), key: &str| {
        let mut settings = Settings::default();
        settings.broker.url = Secret::from("amqp://127.0.0.1:1");
        change(&mut settings);
        let error = connect_error(&settings).await;
        assert!(matches!(&error, Error::Settings(_)), "{error}");
        assert!(error.to_string().starts_with(key), "{error} does not begin with {key}");
    };
    check(|it| it.namespace.clear(), "namespace").await;
    check(|it| it.namespace = "amq.mine".to_owned(), "namespace").await;
    check(|it| it.namespace = "n".repeat(201), "namespace").await;
    check(|it| it.expiry_header = "rehop-attempt".to_owned(), "expiry_header").await;
    check(|it| it.broker.url = Secret::from("http://u:secret@h"), "broker.url").await;
    check(|it| it.broker.timeout = Duration::ZERO, "broker.timeout").await;
    check(|it| it.retry.delivery_limit = Some(0), "retry.delivery_limit").await;
    check(
        |it| (it.retry.delivery_limit, it.retry.immediate) = (Some(3), Some(3)),
        "retry.immediate",
    )
    .await;
    check(|it| it.retry.delays = millis([0]), "retry.delays").await;
    check(|it| it.consume.prefetch = Some(0), "consume.prefetch").await;
    check(
        |it| (it.consume.prefetch, it.consume.concurrency) = (Some(2), Some(3)),
        "consume.concurrency",
    )
    .await;
    check(|it| it.consume.handler_timeout = Some(Duration::ZERO), "consume.handler_timeout").await;
    check(|it| it.queue_mut("q").parked = Some("q".to_owned()), "queues.0.parked").await;
    check(|it| it.queue_mut("q").retry.immediate = Some(99), "queues.0.retry.immediate").await;
    check(
        |it| it.queue_mut("q").queue_type = Some(rehop::settings::QueueType::Classic),
        "queues.0.queue_type",
    )
    .await;
    check(|it| it.retry.strategy = Some(WaitStrategy::Native), "retry.delays").await;
    check(
        |it| {
            (it.retry.strategy, it.retry.delays) = (Some(WaitStrategy::Native), millis([100]));
            it.retry.max_age = Some(rehop::settings::MaxAge(Some(Duration::from_secs(60))));
        },
        "retry.max_age",
    )
    .await;
    check(
        |it| {
            let queue = it.queue_mut("q");
            (queue.retry.strategy, queue.retry.delays) =
                (Some(WaitStrategy::Native), millis([100]));
            queue.declare = rehop::settings::Declare::Existing;
        },
        "queues.0.retry.strategy",
    )
    .await;
    check(
        |it| {
            it.retry.strategy = Some(WaitStrategy::InProcess);
            it.consume.handler_timeout = Some(Duration::from_secs(600));
        },
        "retry.delays",
    )
    .await;
    check(|it| it.consume.order = Some(Order::Queue), "consume.order").await;
    check(|it| it.queue_mut(&"q".repeat(256)).bindings.clear(), "queues.0.queue").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_broker_is_an_error_after_the_startup_timeout_and_the_error_shows_no_password()
 {
    let proxy = Proxy::start("127.0.0.1:1").await.unwrap();
    proxy.refuse().await;
    let mut settings = Settings::default();
    settings.broker.url = Secret::from(format!("amqp://user:hidden@{}/%2f", proxy.address()));
    settings.broker.startup_timeout = Duration::from_secs(1);
    let since = Instant::now();
    let error = connect_error(&settings).await;
    assert!(since.elapsed() < PROMPTLY, "{:?}", since.elapsed());
    assert!(matches!(&error, Error::Connect { .. }), "{error}");
    let text = format!("{error} {error:?}");
    assert!(text.contains(&proxy.address()) && !text.contains("hidden"), "{text}");
    assert!(error.to_string().contains("check that it is running"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_comes_up_within_the_startup_timeout_is_waited_for() {
    let url = Broker::shared().await.amqp_url();
    let proxy = Proxy::start(url).await.unwrap();
    proxy.refuse().await;
    let mut fixture = Fixture::new("comes-up").await;
    fixture.settings.broker.url = Secret::from(proxy.url_for(url).unwrap());
    let settings = fixture.settings.clone();
    let consumer = Consumer::new(fixture.queue.clone(), succeeds).decode(Raw);
    let service = Service::new(&settings).with_consumer(consumer);
    let (status, running) = (service.status(), Running::start(service));
    // At least one try was refused, because the first is made at once.
    tokio::time::timeout(Duration::from_millis(300), std::future::pending::<()>())
        .await
        .unwrap_err();
    assert!(!running.has_ended());
    proxy.accept().await.unwrap();
    let connected = async || Ok::<_, String>(status.connections().is_consuming_open);
    eventually(SOON, "the service is connected", connected).await.unwrap();
    running.stop().await;
}

async fn succeeds(_: Message<Bytes>) -> Result<(), Failure> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_cleanly_ends_a_service_that_cannot_reach_its_broker() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = Settings::default();
    settings.broker.url = Secret::from(format!("amqp://{}", nobody.local_addr().unwrap()));
    // Completes at the first try to connect, and from then on nothing listens there.
    let shutdown = async move {
        nobody.accept().await.unwrap();
    };
    let since = Instant::now();
    let consumer = Consumer::new("orders", succeeds).decode(Raw);
    let service = Service::new(&settings).with_consumer(consumer).with_graceful_shutdown(shutdown);
    let ended = tokio::time::timeout(SOON, service.into_future()).await;
    assert!(since.elapsed() < PROMPTLY, "{:?}", since.elapsed());
    assert_eq!(ended.unwrap().unwrap(), Summary::default());
}

#[tokio::test]
async fn a_service_without_a_consumer_is_an_error_that_says_what_to_add() {
    let error = Service::new(&Settings::default()).await.unwrap_err();
    assert!(matches!(&error, Error::NoConsumer), "{error}");
    assert_eq!(error.to_string(), "the service has no consumer; add one with Service::consumer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_in_code_is_an_error_even_if_the_service_was_told_to_stop_before_it_reached_its_broker()
 {
    let mut settings = Settings::default();
    settings.broker.url = Secret::from("amqp://127.0.0.1:1");
    let mut service = Service::new(&settings).with_graceful_shutdown(std::future::ready(()));
    for _ in 0..2 {
        service = service.with_consumer(Consumer::new("orders", succeeds).decode(Raw));
    }
    let error = service.await.unwrap_err();
    assert!(matches!(&error, Error::TwoHandlers { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_is_reported_at_once_with_the_user_but_not_the_password() {
    let mut fixture = Fixture::new("login").await;
    fixture.settings.broker.startup_timeout = Duration::from_secs(600);
    fixture.settings.broker.username = Some("nobody".to_owned());
    fixture.settings.broker.password = Some(Secret::from("hidden"));
    let since = Instant::now();
    let error = connect_error(&fixture.settings).await;
    assert!(since.elapsed() < SOON, "the error does not wait for the startup timeout");
    assert!(matches!(&error, Error::Login { .. }), "{error}");
    let text = format!("{error} {error:?}");
    assert!(text.contains("nobody") && !text.contains("hidden"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_virtual_host_is_reported_at_once() {
    let mut fixture = Fixture::new("vhost").await;
    let url = Broker::shared().await.amqp_url();
    let (base, _) = url.rsplit_once('/').unwrap();
    fixture.settings.broker.url = Secret::from(format!("{base}/nowhere"));
    let error = connect_error(&fixture.settings).await;
    assert!(matches!(&error, Error::Login { .. }), "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
}

/// Copies go to two exchanges, to wait and to be parked, and three more channels are needed at times.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_may_have_too_few_channels_for_copies_is_refused_with_both_numbers() {
    let mut fixture = Fixture::new("lanes").await;
    let url = fixture.settings.broker.url.expose().to_owned();
    fixture.settings.broker.url = Secret::from(format!("{url}?channel_max=4"));
    fixture.settings.broker.startup_timeout = Duration::from_secs(1);
    let error = fixture.start_error().await;
    assert!(matches!(&error, Error::Limit { .. }), "{error}");
    let error = error.to_string();
    for said in [
        "opening 5 channels for copies (one for each of 2 exchanges",
        "raise channel_max in rabbitmq.conf",
        "may have 4",
    ] {
        assert!(error.contains(said), "{said}: {error}");
    }
    fixture.settings.broker.url = Secret::from(format!("{url}?channel_max=5"));
    let run = fixture.serve_always(Err(Failure::permanent("no"))).await;
    fixture.client.publish(fixture.to_queue()).await.unwrap();
    fixture.drain_parked(1).await;
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_an_error_that_names_what_it_was_for() {
    if Broker::shared().await.management_url().is_none() {
        not_tried("permissions, because REHOP_TEST_MANAGEMENT_URL is not set");
        return;
    }
    let mut fixture = Fixture::new("permission").await;
    fixture.limit("reader", ["^$", ".*", ".*"]).await;
    let error = fixture.start_error().await;
    assert!(matches!(&error, Error::Permission { .. }), "{error}");
    let stray = format!("{}.stray", fixture.namespace.name());
    assert!(error.to_string().contains(&stray), "{error}");
    assert!(error.to_string().contains("\"Least permissions\" in the topology page"), "{error}");
}

/// The least permissions of the topology page are enough, also for messages with another user's
/// `user_id`.
#[tokio::test(flavor = "multi_thread")]
async fn permissions_on_the_own_namespace_alone_are_enough_for_the_main_job() {
    if Broker::shared().await.management_url().is_none() {
        not_tried("permissions, because REHOP_TEST_MANAGEMENT_URL is not set");
        return;
    }
    let mut fixture = Fixture::new("least").await;
    let own = format!("^{}\\..*", fixture.namespace.name());
    fixture.limit("least", [&own, &own, &own]).await;
    let run = fixture.serve_always(Err(Failure::transient("no"))).await;
    let signed = fixture.to_queue().properties(|it| it.user_id = Some("guest".to_owned()));
    fixture.client.publish(signed).await.unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(parked.headers["rehop-user-id"], "guest");
}
