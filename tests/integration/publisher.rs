//! Messages that a service publishes.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use futures_util::future::{join_all, try_join_all};
use rehop::settings::Secret;
use rehop::{Failure, Publish, PublishError, Publisher, Timestamp};
use rehop_testing::{Broker, eventually};
use serde_json::json;

use crate::support::{Fixture, SOON};

async fn publisher(fixture: &Fixture) -> Publisher {
    Publisher::connect(&fixture.settings).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_published_message_reaches_the_handler_with_its_deadline_and_the_same_id_on_every_attempt()
 {
    let mut fixture = Fixture::new("published").await;
    fixture.settings.expiry_header = "shop-deadline".to_owned();
    let note = |message: &rehop::Message<bytes::Bytes>| {
        (message.message_id().map(str::to_owned), message.deadline(), message.attempt())
    };
    let (run, seen) = fixture.serve_noting(note, Err(Failure::transient("no"))).await;
    let deadline = Timestamp::from(SystemTime::now()) + Duration::from_secs(60);
    let message =
        Publish::to_queue(&fixture.queue).json(&json!({ "id": 7 })).unwrap().deadline(deadline);
    let id = message.id().to_owned();
    publisher(&fixture).await.publish(message).await.unwrap();
    let seen = seen.reaches(3).await;
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(seen, [1, 2, 3].map(|attempt| (Some(id.clone()), Some(deadline), attempt)));
    assert_eq!(parked.text(), r#"{"id":7}"#);
    assert_eq!(parked.properties.content_type.as_deref(), Some("application/json"));
    assert_eq!(parked.properties.delivery_mode, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_no_queue_takes_is_an_error_that_says_so_and_the_next_is_published() {
    let fixture = Fixture::new("no-queue").await;
    let publisher = publisher(&fixture).await;
    let error = publisher.publish(Publish::to_queue(&fixture.queue)).await.unwrap_err();
    assert!(matches!(error, PublishError::Unroutable { .. }) && !error.is_transient());
    let expected =
        format!("no queue takes a message to queue {:?}; start its service", fixture.queue);
    assert!(error.to_string().starts_with(&expected), "{error}");
    let error =
        publisher.publish(Publish::to("amq.topic", "nobody")).await.unwrap_err().to_string();
    assert!(
        error.contains(r#"exchange "amq.topic" with routing key "nobody"; bind a queue"#),
        "{error}"
    );
    fixture.declare().await;
    publisher.publish(Publish::to_queue(&fixture.queue).bytes("kept")).await.unwrap();
    assert_eq!(fixture.client.drain(&fixture.queue, 1, SOON).await.unwrap()[0].text(), "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_that_does_not_exist_fails_only_the_messages_to_it() {
    let fixture = Fixture::new("no-exchange").await;
    fixture.declare().await;
    let publisher = publisher(&fixture).await;
    let missing = fixture.namespace.exchange("missing");
    let published = (0..40).map(|number| {
        let message = if number % 2 == 0 {
            Publish::to_queue(&fixture.queue).message_id(number.to_string())
        } else {
            Publish::to(&missing, "key")
        };
        let publisher = publisher.clone();
        async move { (number % 2 == 0, publisher.publish(message).await) }
    });
    for (is_good, result) in join_all(published).await {
        match result {
            Ok(()) => assert!(is_good),
            Err(error) => {
                assert!(!is_good && matches!(error, PublishError::NoExchange { .. }), "{error}");
                assert!(
                    error.to_string().contains(&format!("there is no exchange {missing:?}")),
                    "{error}"
                );
            }
        }
    }
    assert_eq!(fixture.client.drain(&fixture.queue, 20, SOON).await.unwrap().len(), 20);
}

/// A connection has numbers for 2,047 channels, and lapin (4.12) loses one with each channel that
/// the broker closes.
#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_goes_on_after_the_broker_has_closed_thousands_of_its_channels() {
    let fixture = Fixture::new("many-refused").await;
    fixture.declare().await;
    let publisher = publisher(&fixture).await;
    let missing = fixture.namespace.exchange("missing");
    let (mut refused, mut kept) = (0, 0);
    let publishing = async {
        // This uses up two connections, and a part of a third.
        while refused < 4_200 {
            let to_missing =
                join_all((0..40).map(|_| publisher.publish(Publish::to(&missing, "key"))));
            let to_queue = publisher.publish(Publish::to_queue(&fixture.queue));
            let (to_missing, to_queue) = tokio::join!(to_missing, to_queue);
            for result in to_missing {
                match result.unwrap_err() {
                    PublishError::NoExchange { .. } => refused += 1,
                    // The connection is replaced when it has no number left.
                    error => assert!(error.is_transient(), "{error}"),
                }
            }
            match to_queue {
                Ok(()) => kept += 1,
                Err(error) => assert!(
                    error.is_transient() && !error.to_string().contains(&missing),
                    "{error}"
                ),
            }
        }
    };
    // A busy broker takes a while to close thousands of channels.
    tokio::time::timeout(SOON * 3, publishing)
        .await
        .expect("the broker refuses all of them in time");
    let publish =
        async || publisher.publish(Publish::to_queue(&fixture.queue)).await.map(|()| true);
    eventually(SOON, "the next message is taken", publish).await.unwrap();
    let depth = fixture.client.depth(&fixture.queue).await.unwrap();
    assert!(
        depth > kept,
        "{depth} messages are in the queue, and {kept} and one more were confirmed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_published_concurrently_are_all_kept_and_each_error_belongs_to_its_message() {
    let fixture = Fixture::new("concurrent").await;
    fixture.declare().await;
    let publisher = publisher(&fixture).await;
    let messages = (0..300).map(|number| {
        let is_good = number % 3 != 0;
        let queue =
            if is_good { fixture.queue.clone() } else { format!("{}.nowhere", fixture.queue) };
        let (publisher, message) =
            (publisher.clone(), Publish::to_queue(queue).message_id(number.to_string()));
        async move {
            if publisher.publish(message).await.is_ok() == is_good { Ok(()) } else { Err(number) }
        }
    });
    try_join_all(messages).await.unwrap();
    let kept = fixture.client.drain(&fixture.queue, 200, SOON).await.unwrap();
    let ids: HashSet<_> =
        kept.iter().map(|kept| kept.properties.message_id.clone().unwrap()).collect();
    assert_eq!(ids.len(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_an_error() {
    let fixture = Fixture::new("publisher-full").await;
    let full = fixture.namespace.queue("full");
    fixture
        .client
        .declare_queue(&full, json!({ "x-max-length": 1, "x-overflow": "reject-publish" }))
        .await
        .unwrap();
    let publisher = publisher(&fixture).await;
    publisher.publish(Publish::to_queue(&full)).await.unwrap();
    let error = publisher.publish(Publish::to_queue(&full)).await.unwrap_err();
    assert!(matches!(error, PublishError::Refused { .. }) && error.is_transient(), "{error}");
    assert_eq!(fixture.client.depth(&full).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_fails_the_message_and_the_same_message_is_published_on_the_next() {
    let (fixture, proxy) = Fixture::behind_proxy("publisher-lost").await;
    fixture.declare().await;
    let publisher = publisher(&fixture).await;
    publisher.publish(Publish::to_queue(&fixture.queue)).await.unwrap();
    proxy.cut();
    let message = Publish::to_queue(&fixture.queue);
    // The cut may be noticed before the message is sent, or by it.
    while let Err(error) = publisher.publish(message.clone()).await {
        assert!(error.is_transient(), "{error}");
    }
    let kept = fixture.client.drain(&fixture.queue, 2, SOON).await.unwrap();
    assert_eq!(kept[1].properties.message_id.as_deref(), Some(message.id()));
}

/// A host that accepts connections and answers nothing costs each waiting message one time limit,
/// not the sum of them.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_wait_for_a_connection_share_one_attempt_and_its_failure() {
    let (mut fixture, proxy) = Fixture::behind_proxy("publisher-black-hole").await;
    fixture.declare().await;
    fixture.settings.broker.timeout = Duration::from_secs(2);
    let publisher = publisher(&fixture).await;
    proxy.refuse().await;
    proxy.cut();
    let refused = async || match publisher.publish(Publish::to_queue(&fixture.queue)).await {
        Err(error) if error.to_string().contains("cannot reach the broker") => Ok(true),
        other => Err(format!("{other:?}")),
    };
    eventually(SOON, "the publisher notices that the connection is lost", refused).await.unwrap();
    proxy.pause();
    proxy.accept().await.unwrap();
    let before = proxy.accepted();
    // More than are under way at a time.
    let waiting = join_all((0..200).map(|_| publisher.publish(Publish::to_queue(&fixture.queue))));
    for result in tokio::time::timeout(SOON, waiting).await.expect("all fail soon") {
        let error = result.unwrap_err();
        assert!(
            error.is_transient() && error.to_string().contains("while connecting to"),
            "{error}"
        );
    }
    assert_eq!(proxy.accepted() - before, 1, "one attempt for all");
    proxy.resume();
    let publish =
        async || publisher.publish(Publish::to_queue(&fixture.queue)).await.map(|()| true);
    eventually(SOON, "the next message is taken", publish).await.unwrap();
}

#[tokio::test]
async fn a_broker_that_is_away_is_an_error_when_connecting() {
    let mut settings = rehop::Settings::default();
    settings.broker.url = Secret::from("amqp://guest:guest@127.0.0.1:1/%2f");
    settings.broker.startup_timeout = Duration::ZERO;
    let error = Publisher::connect(&settings).await.unwrap_err().to_string();
    assert!(error.contains("cannot reach the broker at 127.0.0.1:1"), "{error}");
    // The address is checked before the network is.
    settings.broker.url =
        Secret::from(Broker::shared().await.amqp_url().replace("amqp://", "http://"));
    assert!(Publisher::connect(&settings).await.unwrap_err().to_string().contains("broker.url"));
}

/// Those beyond wait for a channel, and each takes one that is free.
#[tokio::test(flavor = "multi_thread")]
async fn where_the_broker_allows_few_channels_publishes_wait_and_none_fails() {
    let mut fixture = Fixture::new("few-channels").await;
    fixture.declare().await;
    fixture.settings.broker.url =
        Secret::from(format!("{}?channel_max=4", fixture.settings.broker.url.expose()));
    let publisher = publisher(&fixture).await;
    let publishes =
        (0..200).map(|_| publisher.publish(Publish::to_queue(&fixture.queue).bytes("x")));
    try_join_all(publishes).await.unwrap();
    fixture.has_depth(&fixture.queue, 200).await;
}

/// The limit is of the user, so lapin does not know it: the broker ends the connection.
#[tokio::test(flavor = "multi_thread")]
async fn once_the_broker_has_refused_a_channel_a_publisher_uses_fewer_and_none_is_refused_again() {
    const BURST: usize = 40;
    let mut fixture = Fixture::new("max-channels").await;
    fixture.declare().await;
    let (user, broker) = (fixture.namespace.name().to_owned(), Broker::shared().await);
    let management = broker.management().unwrap();
    management.add_user(&user, "pass").await.unwrap();
    management.set_permissions(&user, [".*"; 3]).await.unwrap();
    let limit = format!("user-limits/{user}/max-channels");
    management.put(&limit, &json!({ "value": 8 })).await.unwrap();
    let url = broker.amqp_url().replace("guest:guest@", &format!("{user}:pass@"));
    fixture.settings.broker.url = Secret::from(url);
    let publisher = publisher(&fixture).await;
    let burst = async || {
        let publish = |_| publisher.publish(Publish::to_queue(&fixture.queue).bytes("x"));
        let results = join_all((0..BURST).map(publish)).await;
        results.into_iter().filter_map(Result::err).collect::<Vec<_>>()
    };
    let mut named = false;
    eventually(SOON, "a whole burst is confirmed", async || {
        let errors = burst().await;
        for error in &errors {
            assert!(error.is_transient(), "{error}");
            named |= error.to_string().contains("max-channels");
        }
        if errors.is_empty() { Ok(true) } else { Err(errors[0].to_string()) }
    })
    .await
    .unwrap();
    assert!(named, "the error says which limit it was, and how to raise it");
    for _ in 0..5 {
        assert_eq!(burst().await.len(), 0, "it keeps to it");
    }
}
