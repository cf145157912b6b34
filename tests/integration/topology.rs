//! What is declared, what is only checked, and the errors if an object exists with different
//! arguments.

use rehop::settings::{BindingSettings, Declare, QueueType, TopologyMode};
use rehop::topology::Role;
use rehop::{Error, Failure};
use rehop_testing::Publish;
use serde_json::json;

use crate::support::{Fixture, Running, SOON, millis};

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_with_another_delivery_limit_is_not_touched_and_the_error_names_both_values() {
    let mut fixture = Fixture::new("other-limit").await;
    fixture.retry().delivery_limit = Some(7);
    fixture.declare().await;
    fixture.publish("kept").await;
    fixture.retry().delivery_limit = Some(8);
    let error = fixture.start_error().await;
    let Error::Mismatch { what, argument, wanted, found, .. } = &error else { panic!("{error}") };
    let expected = (format!("queue {:?}", fixture.queue), "x-delivery-limit", "'8'", "'7'");
    assert_eq!((what.clone(), argument.as_str(), wanted.as_str(), found.as_str()), expected);
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    assert_eq!(fixture.client.depth(&fixture.queue).await.unwrap(), 1);
    fixture.retry().delivery_limit = Some(7);
    let (run, seen) = fixture.serve_noting(|_| (), Ok(())).await;
    seen.reaches(1).await;
    run.stop().await;
}

/// As when the program is renamed and no namespace is set.
#[tokio::test(flavor = "multi_thread")]
async fn for_a_queue_of_another_namespace_the_error_names_both_namespaces() {
    let mut fixture = Fixture::new("renamed").await;
    fixture.declare().await;
    let renamed = format!("{}-renamed", fixture.namespace.name());
    let original = std::mem::replace(&mut fixture.settings.namespace, renamed.clone());
    let error = fixture.start_error().await;
    assert!(matches!(&error, Error::Mismatch { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&format!("set namespace = {original:?}"))
            && text.contains(&format!("{renamed:?}")),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_classic_queue_where_a_quorum_queue_is_needed_is_an_error_that_names_the_queue_and_the_way_to_keep_it()
 {
    let fixture = Fixture::new("classic").await;
    fixture
        .client
        .declare_queue(&fixture.queue, json!({ "x-queue-type": "classic" }))
        .await
        .unwrap();
    let error = fixture.start_error().await;
    // Versions differ in which of the arguments the broker checks first.
    let Error::Mismatch { what, found, .. } = &error else { panic!("{error}") };
    assert_eq!(what, &format!("queue {:?}", fixture.queue));
    assert!(["none", "'classic'"].contains(&found.as_str()), "{found}");
    assert!(error.to_string().contains("declare = \"existing\""), "{error}");
}

/// The queue is as rehop's first version declared it. The error must not lead its reader to delete
/// parked messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_parked_queue_of_an_earlier_version_is_left_as_it_is_until_another_takes_its_place() {
    let mut fixture = Fixture::new("old-parked").await;
    let old = fixture.parked();
    fixture.client.declare_queue(&old, json!({ "x-queue-type": "quorum" })).await.unwrap();
    fixture.client.publish(Publish::to_queue(&old).body("old")).await.unwrap();
    let error = fixture.start_error().await;
    let Error::Mismatch { what, role, .. } = &error else { panic!("{error}") };
    assert_eq!((what, role), (&format!("queue {old:?}"), &Some(Role::Parked)));
    assert!(error.to_string().contains("name another queue with `parked`"), "{error}");
    // This is what the migration page describes.
    let park = format!("{}.park", fixture.namespace.name());
    fixture.client.bind(&old, &park, &fixture.queue, json!({})).await.unwrap();
    let new = fixture.namespace.queue("orders.parked.2");
    fixture.settings.queue_mut(&fixture.queue).parked = Some(new.clone());
    let run = fixture.serve_always(Err(Failure::permanent("no"))).await;
    fixture.client.unbind(&old, &park, &fixture.queue, json!({})).await.unwrap();
    fixture.publish("new").await;
    assert_eq!(fixture.client.drain(&new, 1, SOON).await.unwrap()[0].text(), "new");
    run.stop().await;
    let kept = fixture.client.get_all(&old).await.unwrap();
    assert_eq!(kept.iter().map(|message| message.text()).collect::<Vec<_>>(), ["old"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_of_another_type_is_an_error_that_names_both_types() {
    let fixture = Fixture::new("other-type").await;
    let wait = format!("{}.wait", fixture.namespace.name());
    fixture.client.declare_exchange(&wait, "topic", json!({})).await.unwrap();
    let error = fixture.start_error().await;
    let Error::Mismatch { what, argument, wanted, found, .. } = &error else { panic!("{error}") };
    assert_eq!(what, &format!("exchange {wait:?}"));
    assert_eq!(
        (argument.as_str(), wanted.as_str(), found.as_str()),
        ("type", "'headers'", "'topic'")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_to_an_exchange_that_does_not_exist_is_an_error_that_names_it() {
    let mut fixture = Fixture::new("no-exchange").await;
    let exchange = fixture.namespace.exchange("nowhere");
    fixture.settings.queue_mut(&fixture.queue).bindings.push(BindingSettings::new(&exchange, "#"));
    let error = fixture.start_error().await;
    assert!(matches!(error, Error::Missing { .. }), "{error}");
    assert!(error.to_string().contains(&exchange), "{error}");
}

/// Takes messages of an existing queue through a wait, an immediate attempt if the queue counts
/// deliveries, and parking.
async fn takes_existing(
    test: &str,
    queue_type: &str,
    known_as: Option<QueueType>,
    attempts: &[(u32, u32)],
) {
    let mut fixture = Fixture::new(test).await;
    fixture.retry().immediate = Some(1);
    fixture.retry().delays = millis([100]);
    let queue = fixture.settings.queue_mut(&fixture.queue);
    (queue.declare, queue.queue_type) = (Declare::Existing, known_as);
    fixture
        .client
        .declare_queue(&fixture.queue, json!({ "x-queue-type": queue_type }))
        .await
        .unwrap();
    let (run, seen) = fixture
        .serve_noting(|message| (message.attempt(), message.hop()), Err(Failure::transient("no")))
        .await;
    fixture.publish("x").await;
    rehop_testing::eventually(SOON, "the parked queue is there", async || {
        fixture.client.depth(&fixture.parked()).await.is_ok()
    })
    .await
    .unwrap();
    let parked = fixture.drain_parked(1).await.remove(0);
    run.stop().await;
    assert_eq!(seen.all(), attempts);
    assert_eq!(parked.headers["rehop-reason"], "exhausted");
    // The queue is unchanged: declaring it with the same arguments still works.
    fixture
        .client
        .declare_queue(&fixture.queue, json!({ "x-queue-type": queue_type }))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_quorum_queue_is_used_as_it_is() {
    takes_existing(
        "existing-quorum",
        "quorum",
        Some(QueueType::Quorum),
        &[(1, 0), (2, 0), (3, 1), (4, 1)],
    )
    .await;
}

/// A classic queue does not count deliveries, so only a first delivery may get an immediate
/// attempt.
#[tokio::test(flavor = "multi_thread")]
async fn an_existing_classic_queue_is_used_as_it_is_and_a_redelivered_message_gets_no_immediate_attempt()
 {
    takes_existing("existing-classic", "classic", None, &[(1, 0), (2, 0), (3, 1), (4, 1)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_existing_queue_is_an_error_that_says_so() {
    let mut fixture = Fixture::new("existing-missing").await;
    fixture.settings.queue_mut(&fixture.queue).declare = Declare::Existing;
    let error = fixture.start_error().await;
    assert!(matches!(&error, Error::Missing { .. }), "{error}");
    assert!(error.to_string().contains(&fixture.queue), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_check_mode_nothing_is_declared_and_what_is_missing_is_named() {
    let mut fixture = Fixture::new("check").await;
    fixture.settings.topology = TopologyMode::Check;
    let error = fixture.start_error().await;
    assert!(matches!(&error, Error::Missing { .. }), "{error}");
    assert!(error.to_string().contains(&format!("{}.stray", fixture.namespace.name())), "{error}");
    assert!(fixture.client.depth(&fixture.queue).await.is_err());

    fixture.settings.topology = TopologyMode::Declare;
    fixture.declare().await;
    fixture.settings.topology = TopologyMode::Check;
    let run = fixture.serve_always(Err(Failure::transient("no"))).await;
    fixture.publish("x").await;
    fixture.drain_parked(1).await;
    assert_eq!(run.stop().await.waited, 2);
}

/// Two services of one namespace with different delays: each declares the wait queues that it
/// needs.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_service_of_a_namespace_with_other_delays_starts_beside_the_first() {
    let mut fixture = Fixture::new("other-delays").await;
    let first = fixture.serve_always(Err(Failure::transient("no"))).await;
    fixture.settings.queues.clear();
    fixture.settings.retry.delays = millis([150]);
    let other = fixture.namespace.queue("other");
    let run = Running::start(
        fixture.service().with_consumer(
            rehop::Consumer::new(other.clone(), |_: rehop::Message<bytes::Bytes>| async {
                Err(Failure::transient("no"))
            })
            .decode(rehop::Raw),
        ),
    );
    fixture.is_declared(&other).await;
    fixture.publish("x").await;
    fixture.client.publish(Publish::to_queue(&other)).await.unwrap();
    fixture.drain_parked(1).await;
    fixture.client.drain(&format!("{other}.parked"), 1, SOON).await.unwrap();
    assert_eq!((first.stop().await.waited, run.stop().await.waited), (2, 1));
}
