//! `rehop doctor` finds what replays, discarded messages, ordered queues and unusual brokers trip
//! over.

use std::time::Duration;

use rehop::settings::{AskedDelays, WaitStrategy};
use rehop::{Backoff, Topology};
use rehop_operator::parked::{DiscardRequest, Parked, Place};
use rehop_testing::{Broker, Received};
use serde_json::json;

use super::broker_api::BrokerApi;
use super::endpoint::{Endpoint, status};
use crate::support::{DELAYED_RETRIES, Fixture, fragile_broker, is_before_4_3, not_tried};

impl Fixture {
    /// Leaves an empty queue of discarded messages behind, as an operator does.
    async fn discard_nothing(&self) {
        let mut settings = self.settings.clone();
        settings.queue_mut(&self.queue);
        let parked = Parked::open(&settings, Place::queue(&self.queue)).unwrap();
        parked.discard(&DiscardRequest::default(), |_| {}, std::future::pending()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queue_of_discarded_messages_is_looked_at_where_there_is_one() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("discards").await;
    fixture.declare().await;
    fixture.discard_nothing().await;
    let (name, look) = (fixture.namespace.name(), ["--management", api.url()]);
    let discarded = format!("{name}.discarded");
    fixture.is_fine(&look).await;
    fixture.is_fine(&[]).await;
    let definition = json!({ "delivery-limit": 2, "max-length": 10, "message-ttl": 50 });
    api.set_policy(name, &format!("^{name}\\.discarded$"), definition).await;
    let lowered = ["delivery-limit-lowered", "length-limit", "message-ttl"]
        .map(|check| (check, discarded.as_str()));
    fixture.is_found(&look, &lowered).await;
    api.delete_policy(name).await;

    // One that keeps what it holds for another time.
    fixture.client.delete_queue(&discarded).await.unwrap();
    let arguments = json!({ "x-queue-type": "quorum", "x-delivery-limit": 2_147_483_648_i64, "x-message-ttl": 1000 });
    fixture.client.declare_queue(&discarded, arguments).await.unwrap();
    for look in [&look[..], &[]] {
        // The management API also shows what the argument does.
        fixture
            .is_found_with(
                look,
                &[("arguments-differ", &discarded)],
                &[("message-ttl", &discarded)],
            )
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_may_see_neither_receipts_nor_discarded_messages_gets_one_warning() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("reporting").await;
    fixture.declare().await;
    fixture.discard_nothing().await;
    let name = fixture.namespace.name().to_owned();
    let own = format!("^({name}\\.(wait.*|return|park|stray)|{0}(\\.parked)?)$", fixture.queue);
    let allow = async |write: &str| {
        api.add_user(&name, "secret", [&own, write, &own]).await;
    };
    allow(&own).await;
    let mut url: url::Url = fixture.settings.broker.url.expose().parse().unwrap();
    url.set_username(&name).unwrap();
    url.set_password(Some("secret")).unwrap();
    fixture.settings.broker.url = url.as_str().into();
    let report = format!("publishing to exchange \"{name}.report\"");
    fixture.is_found(&[], &[("report-denied", &report)]).await;
    // Whether the exchange exists makes no difference.
    allow(&format!("{own}|^{name}\\.report$")).await;
    fixture.is_fine(&[]).await;
    fixture.client.declare_exchange(&format!("{name}.report"), "direct", json!({})).await.unwrap();
    fixture.is_fine(&[]).await;
    allow(&own).await;
    fixture.is_found(&[], &[("report-denied", &report)]).await;
    api.delete_user(&name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_queue_without_a_single_active_consumer_keeps_no_order_and_without_a_limit_no_end()
 {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("unordered").await;
    fixture.settings.retry.strategy = Some(WaitStrategy::InProcess);
    let (queue, park) = (fixture.queue.as_str(), fixture.namespace.exchange("park"));
    let is_old = Broker::shared().await.version().starts_with("3.");
    let arguments = |single: bool| {
        json!({
            "x-queue-type": "quorum", "x-delivery-limit": -1, "x-dead-letter-exchange": park,
            "x-dead-letter-routing-key": queue, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
            "x-single-active-consumer": { "$amqp": { "Boolean": single } },
        })
    };
    fixture.client.declare_queue(queue, arguments(false)).await.unwrap();
    fixture.declare_the_rest().await;
    let listed = format!(
        "queues=[{{queue={queue:?},declare=existing,queue_type=quorum,consume={{order=queue}}}}]"
    );
    let look = ["--management", api.url(), "--set", &listed];
    // Before 4.0 a limit of -1 is reached at the first return.
    let limit = if is_old { "delivery-limit-lowered" } else { "delivery-limit-differs" };
    fixture.is_found(&look, &[("order-not-kept", queue), (limit, queue)]).await;

    fixture.client.delete_queue(queue).await.unwrap();
    fixture.client.declare_queue(queue, arguments(true)).await.unwrap();
    fixture.declare_the_rest().await;
    fixture.is_found(&look, &[(limit, queue)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_exchange_is_missed_until_it_exists_and_leads_to_a_queue() {
    const MISSING: &str = "dead-letter-exchange-missing";
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("nowhere").await;
    let (name, queue) = (fixture.namespace.name(), format!("{:?}", fixture.queue));
    let nowhere = fixture.namespace.exchange("nowhere");
    let arguments = json!({
        "x-queue-type": "quorum", "x-delivery-limit": 10, "x-dead-letter-exchange": nowhere,
        "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    });
    fixture.client.declare_queue(&fixture.queue, arguments).await.unwrap();
    fixture.declare_the_rest().await;
    fixture.discard_nothing().await;
    let listed = format!("queues=[{{queue={queue},declare=existing,queue_type=quorum}}]");
    let look = ["--management", api.url(), "--set", &listed];
    // The queue of discarded messages has no such argument. That of the stray queue overrides the
    // policy.
    let resting = format!("^{name}\\.(stray|discarded)$");
    api.set_policy(name, &resting, json!({ "dead-letter-exchange": nowhere })).await;
    let discarded = format!("{name}.discarded");
    fixture.is_found(&look, &[(MISSING, &queue), (MISSING, &discarded)]).await;
    // AMQP does not show it.
    fixture.is_fine(&["--set", &listed]).await;

    fixture.client.declare_exchange(&nowhere, "fanout", json!({})).await.unwrap();
    fixture.is_found(&look, &[("dead-letters-unroutable", &queue)]).await;
    let somewhere = fixture.namespace.queue("somewhere");
    fixture.client.declare_queue(&somewhere, json!({ "x-queue-type": "quorum" })).await.unwrap();
    fixture.client.bind(&somewhere, &nowhere, "", json!({})).await.unwrap();
    fixture.is_fine(&look).await;
    api.delete_policy(name).await;
}

/// By rehop's own exchanges, which exist, a message at the delivery limit would come back to the
/// queue that dead-lettered it.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_exchange_that_leads_back_to_its_queue_is_found_whether_an_argument_or_a_policy_names_it()
 {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("cycle").await;
    let (name, queue) = (fixture.namespace.name(), fixture.queue.as_str());
    let listed = format!("queues=[{{queue={queue:?},declare=existing,queue_type=quorum}}]");
    let look = ["--management", api.url(), "--set", &listed];
    for leads_back in ["wait", "return"] {
        let arguments = json!({
            "x-queue-type": "quorum", "x-delivery-limit": 10, "x-dead-letter-exchange": format!("{name}.{leads_back}"),
            "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
        });
        fixture.client.declare_queue(queue, arguments).await.unwrap();
        fixture.declare_the_rest().await;
        fixture.is_found(&look, &[("dead-letter-cycle", queue)]).await;
        fixture.client.delete_queue(queue).await.unwrap();
    }
    fixture.client.declare_queue(queue, json!({ "x-queue-type": "quorum" })).await.unwrap();
    fixture.declare_the_rest().await;
    let definition = |exchange: &str| {
        json!({
            "delivery-limit": 10, "dead-letter-exchange": format!("{name}.{exchange}"), "dead-letter-routing-key": queue,
            "dead-letter-strategy": "at-least-once", "overflow": "reject-publish",
        })
    };
    api.set_policy(name, &format!("^{queue}$"), definition("return")).await;
    fixture.is_found(&look, &[("dead-letter-cycle", queue)]).await;
    api.set_policy(name, &format!("^{queue}$"), definition("park")).await;
    fixture.is_fine(&look).await;
    api.delete_policy(name).await;
}

/// Publishers send to an exchange that passes on to another one, to which the queue is bound.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_that_come_back_by_the_publishers_exchange_or_to_no_queue_are_found_and_others_are_fine()
 {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("cycle-by-publishers").await;
    let queue = fixture.queue.as_str();
    let [shop, relay, retry] =
        ["shop", "relay", "retry"].map(|name| fixture.namespace.exchange(name));
    let [dead, wait] = ["dead", "theirs-wait"].map(|name| fixture.namespace.queue(name));
    for (exchange, kind) in [(&shop, "topic"), (&relay, "direct"), (&retry, "fanout")] {
        fixture.client.declare_exchange(exchange, kind, json!({})).await.unwrap();
    }
    api.bind_exchange(&shop, &relay, "order.#").await;
    let back_to_shop = json!({ "x-queue-type": "quorum", "x-message-ttl": 60_000, "x-dead-letter-exchange": shop });
    for (name, arguments, exchange, key) in [
        (&dead, json!({ "x-queue-type": "quorum" }), &shop, "dead.#"),
        (&wait, back_to_shop, &retry, ""),
    ] {
        fixture.client.declare_queue(name, arguments).await.unwrap();
        fixture.client.bind(name, exchange, key, json!({})).await.unwrap();
    }
    let listed = format!("queues=[{{queue={queue:?},declare=existing,queue_type=quorum}}]");
    let look = ["--management", api.url(), "--set", &listed];
    let (cycle, unroutable) = (Some("dead-letter-cycle"), Some("dead-letters-unroutable"));
    for (exchange, key, check) in [
        (&shop, None, cycle),
        (&shop, Some("order.created"), cycle),
        (&shop, Some("order.deleted"), unroutable),
        (&shop, Some("dead.order"), None),
        (&retry, None, cycle),
        (&retry, Some("dead.order"), None),
    ] {
        let mut arguments = json!({
            "x-queue-type": "quorum", "x-delivery-limit": 10, "x-dead-letter-exchange": exchange,
            "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
        });
        if let Some(key) = key {
            arguments["x-dead-letter-routing-key"] = key.into();
        }
        fixture.client.declare_queue(queue, arguments).await.unwrap();
        fixture.client.bind(queue, &relay, "order.created", json!({})).await.unwrap();
        fixture.declare_the_rest().await;
        let expected: Vec<_> = check.iter().map(|check| (*check, queue)).collect();
        fixture.is_found(&look, &expected).await;
        fixture.client.delete_queue(queue).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_binds_to_rehops_exchanges_is_found_and_what_another_service_binds_is_not() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("bound").await;
    fixture.settings.ladder.rung = Duration::from_millis(100);
    fixture.settings.ladder.max = Duration::from_millis(200);
    fixture.settings.retry.after = Some(AskedDelays::Ladder);
    fixture.declare().await;
    let mut other = fixture.settings.clone();
    other.queue_mut(&fixture.namespace.queue("invoices")).parked =
        Some(fixture.namespace.queue("set-aside"));
    Topology::of(&other).unwrap().declare(&other).await.unwrap();
    let look = ["--management", api.url()];
    fixture.is_fine(&look).await;

    let audit = fixture.namespace.queue("audit");
    fixture.client.declare_queue(&audit, json!({ "x-queue-type": "quorum" })).await.unwrap();
    let planted = [
        ("park", fixture.queue.as_str(), json!({})),
        ("wait", "", json!({ "x-match": "any", "rehop-wait-for": 100 })),
        ("ladder", "", json!({})),
        ("after.200", "", json!({ "x-match": "all", "rehop-then-200": 100 })),
        ("return", "", json!({ "x-match": "all", "rehop-return-to": fixture.queue })),
    ];
    let mut objects = Vec::new();
    for (exchange, key, arguments) in &planted {
        let exchange = fixture.namespace.exchange(exchange);
        fixture.client.bind(&audit, &exchange, key, arguments.clone()).await.unwrap();
        objects.push(format!("binding of queue {audit:?} to exchange {exchange:?}"));
    }
    let expected: Vec<_> =
        objects.iter().map(|object| ("foreign-binding", object.as_str())).collect();
    fixture.is_found(&look, &expected).await;
    for (exchange, key, arguments) in &planted {
        fixture
            .client
            .unbind(&audit, &fixture.namespace.exchange(exchange), key, arguments.clone())
            .await
            .unwrap();
    }
    fixture.is_fine(&look).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_does_not_know_delayed_retries_is_found_and_others_are_fine() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("native").await;
    fixture.settings.retry.strategy = Some(WaitStrategy::Native);
    fixture.settings.retry.delays = Some(Backoff::List(vec![Duration::from_millis(200)]));
    let look = ["--management", api.url()];
    if is_before_4_3().await {
        // It cannot be declared there.
        let name = fixture.namespace.name();
        let missing = [("exchange-missing", name), ("queue-missing", name)];
        fixture.is_found_with(&look, &[("strategy-unknown", &fixture.queue)], &missing).await;
    } else {
        fixture.declare().await;
        fixture.is_fine(&look).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_without_the_plugin_of_the_delayed_exchange_is_found() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("no-plugin").await;
    fixture.settings.retry.strategy = Some(WaitStrategy::DelayedExchange);
    // It cannot be declared there.
    let name = fixture.namespace.name();
    let missing = [("exchange-missing", name), ("queue-missing", name)];
    let look = ["--management", api.url()];
    fixture.is_found_with(&look, &[("strategy-unknown", &fixture.queue)], &missing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_waits_long_for_a_consumer_whose_node_has_died_is_found() {
    let Some(api) = BrokerApi::shared().await else { return };
    if is_before_4_3().await {
        return not_tried(
            "consumers whose node has died, because this broker does not wait for them (4.3 does)",
        );
    }
    let fixture = Fixture::new("disconnected").await;
    fixture.declare().await;
    let (name, look) = (fixture.namespace.name(), ["--management", api.url()]);
    let waits = |millis: u64| json!({ "consumer-disconnected-timeout": millis });
    api.set_policy(name, &format!("^{}$", fixture.queue), waits(600_000)).await;
    fixture.is_found(&look, &[("disconnected-timeout-long", &fixture.queue)]).await;
    api.set_policy(name, &format!("^{}$", fixture.queue), waits(60_000)).await;
    fixture.is_fine(&look).await;
    api.delete_policy(name).await;
}

/// Attempts stay bounded.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_switches_off_the_delay_of_a_native_queue_is_found() {
    let Some(api) = BrokerApi::shared().await else { return };
    if is_before_4_3().await {
        return not_tried(DELAYED_RETRIES);
    }
    let mut fixture = Fixture::new("native-off").await;
    fixture.settings.retry.strategy = Some(WaitStrategy::Native);
    fixture.settings.retry.delays = Some(Backoff::List(vec![Duration::from_secs(10); 2]));
    fixture.declare().await;
    let (name, look) = (fixture.namespace.name(), ["--management", api.url()]);
    api.set_policy(
        name,
        &format!("^{}$", fixture.queue),
        json!({ "delayed-retry-type": "disabled" }),
    )
    .await;
    fixture.is_found(&look, &[("native-delay-differs", &fixture.queue)]).await;
    let endpoint = Endpoint::start(|_| async { status(503) }).await;
    let relay = fixture.relay(&endpoint.url, &[]).await;
    fixture.publish("x").await;
    assert_eq!(fixture.drain_parked(1).await[0].headers["rehop-reason"], "exhausted");
    relay.stop().await;
    api.delete_policy(name).await;
    fixture.is_fine(&look).await;
}

/// The queue is declared with reject-publish, by which the broker would refuse the fifth message at
/// the latest.
#[tokio::test(flavor = "multi_thread")]
async fn the_overflow_of_a_policy_is_in_effect_in_place_of_the_queues_own_and_is_found() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("overflow").await;
    fixture.declare().await;
    let (name, look) = (fixture.namespace.name(), ["--management", api.url()]);
    fixture.is_fine(&look).await;
    let definition = json!({ "overflow": "drop-head", "max-length": 2 });
    api.set_policy(name, &format!("^{}$", fixture.queue), definition).await;
    let queue = format!("{:?}", fixture.queue);
    fixture.is_found(&look, &[("at-most-once", &queue), ("length-limit", &queue)]).await;
    for number in 0..9 {
        fixture.publish(&number.to_string()).await;
    }
    fixture.has_depth(&fixture.queue, 2).await;
    let left: Vec<_> =
        fixture.client.get_all(&fixture.queue).await.unwrap().iter().map(Received::text).collect();
    assert_eq!(left, ["7", "8"]);
    api.delete_policy(name).await;
    fixture.is_fine(&look).await;
}

/// As after an upgrade, which enables no new flag by itself.
#[tokio::test(flavor = "multi_thread")]
async fn stable_feature_flags_that_are_disabled_are_found_until_somebody_enables_them() {
    // The first boot of a new node enables only what rehop needs on 3.10, and those without which
    // its version does not run.
    let needed = "quorum_queue,stream_queue";
    let broker = Broker::builder().env("RABBITMQ_FEATURE_FLAGS", needed).start().await.unwrap();
    let fixture = Fixture::at("flags", broker.amqp_url()).await;
    fixture.declare().await;
    let look = ["--management", broker.management_url().unwrap()];
    fixture.is_found(&look, &[("feature-flag-disabled", "the cluster")]).await;
    broker.rabbitmqctl(&["enable_feature_flag", "all"]).await.unwrap();
    fixture.is_fine(&look).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_are_smaller_than_a_full_set_of_headers_are_found() {
    let broker = fragile_broker().await;
    let fixture = Fixture::at("frames", broker.amqp_url()).await;
    fixture.declare().await;
    let set = async |bytes: u32| {
        let set = format!("application:set_env(rabbit, frame_max, {bytes}).");
        broker.rabbitmqctl(&["eval", &set]).await.unwrap();
    };
    set(65_536).await;
    fixture.is_found(&[], &[("frames-small", "the connection")]).await;
    set(131_072).await;
    fixture.is_fine(&[]).await;
}
