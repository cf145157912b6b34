//! `rehop doctor`: each trap that can be planted on a single node is found, and a healthy broker
//! gets no complaint.

use std::time::Duration;

use rehop::settings::{AskedDelays, BindingSettings, Declare, Order, QueueType, WaitStrategy};
use rehop::{Backoff, Consumer, Message, Raw};
use rehop_testing::{Broker, Properties, Publish, eventually};
use serde_json::{Value, json};

use super::broker_api::BrokerApi;
use super::examined::COUNTED;
use crate::support::{
    DELAYED_RETRIES, Fixture, Running, SOON, fragile_broker, is_before_4_3, not_tried, now_millis,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_broker_gets_no_complaint() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("healthy").await;
    let running = fixture.serve_always(Ok(())).await;
    fixture.publish("a message").await;
    fixture.has_depth(&fixture.queue, 0).await;
    // A consumer is counted once its subscription is there.
    let command = ["doctor", "--queue", &fixture.queue, "--management", api.url()];
    eventually(COUNTED, "no complaint, and nothing unseen", async || {
        let finished = fixture.tool(&command).finished().await;
        let mut lines = finished.out.lines();
        let is_healthy = finished.code() == 0
            && lines.next() == Some("healthy")
            && lines.all(|line| line.starts_with("limit: ") || line.starts_with("counted: "));
        if is_healthy { Ok(true) } else { Err(format!("{}{}", finished.out, finished.err)) }
    })
    .await
    .unwrap();
    let blind = fixture.tool(&["doctor", "--queue", &fixture.queue]).finished().await;
    assert_eq!(blind.code(), 0, "{}{}", blind.out, blind.err);
    assert!(!blind.out.contains("counted: "), "{}", blind.out);
    assert!(
        blind.out.starts_with("healthy\nnot seen: policies") && blind.out.contains("--management"),
        "{}",
        blind.out
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_shown_with_how_near_they_are() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("limits").await;
    fixture.declare().await;
    let limited = fixture.parked();
    let pattern = format!("^{}$", limited.replace('.', "[.]"));
    api.set_policy(fixture.namespace.name(), &pattern, json!({ "max-length": 1000 })).await;
    api.has_counted(&[&limited]).await;
    let user = fixture.namespace.name().to_owned();
    api.add_user(&user, "secret", [".*"; 3]).await;
    let mut url: url::Url = fixture.settings.broker.url.expose().parse().unwrap();
    url.set_username(&user).unwrap();
    url.set_password(Some("secret")).unwrap();
    fixture.settings.broker.url = url.as_str().into();
    let management = Broker::shared().await.management().unwrap();
    let limit = format!("user-limits/{user}/max-connections");
    management.put(&limit, &json!({ "value": 30 })).await.unwrap();
    let monitoring = json!({ "password": "secret", "tags": "monitoring" });
    management.put(&format!("users/{user}"), &monitoring).await.unwrap();
    let begins = format!("limit: connections of user {user:?}: ");
    let is_it = |line: &str| line.starts_with(&begins) && line.ends_with(" of 30");
    for url in [api.url(), api.url_without_credentials()] {
        let command = ["doctor", "--queue", &fixture.queue, "--management", url];
        let finished = fixture.tool(&command).finished().await;
        let is_asked = |line: &str| {
            line.starts_with("counted: by the management API, asked at 20")
                && line.ends_with("collect_statistics_interval or sample_retention_policies say so")
        };
        assert!(finished.out.lines().any(is_asked), "{}", finished.out);
        assert!(finished.out.lines().any(is_it), "{}{}", finished.out, finished.err);
        for key in [
            "connection_max",
            "channel_max_per_node",
            "handshake_timeout",
            "consumer_max_per_channel",
            "cluster_queue_limit",
            "max_message_size",
        ] {
            let told_by = format!("environment` shows {key} if it is set");
            let is_it = |line: &str| {
                line.contains(", limit unknown: `rabbitmqctl -n ") && line.ends_with(&told_by)
            };
            assert!(finished.out.lines().any(is_it), "{key}: {}", finished.out);
        }
        let is_disk = |line: &str| {
            line.starts_with("limit: free disk space of node ") && line.ends_with(" needed")
        };
        assert!(finished.out.lines().any(is_disk), "{}", finished.out);
    }
    // The broker tells of a policy a moment after it is set.
    let length = format!("limit: messages of queue {limited:?}: 0 of 1000");
    let command = ["doctor", "--queue", &fixture.queue, "--management", api.url()];
    eventually(COUNTED, "the length is told", async || {
        let out = fixture.tool(&command).finished().await.out;
        if out.lines().any(|line| line == length) { Ok(true) } else { Err(out) }
    })
    .await
    .unwrap();
    api.delete_policy(fixture.namespace.name()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn findings_milder_than_asked_for_are_printed_and_do_not_fail() {
    let fixture = Fixture::new("fail-on").await;
    fixture.declare().await;
    let doctor = async |fail_on: &str| {
        let finished = fixture.doctor(&["--fail-on", fail_on]).await;
        let report: Value =
            serde_json::from_str(&finished.out).unwrap_or_else(|_| panic!("{}", finished.err));
        let findings = report["findings"].as_array().unwrap().iter();
        let severities = findings
            .map(|finding| finding["severity"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>();
        (finished.code(), severities)
    };
    fixture.is_fine(&[]).await;
    // Nobody consumes the queue.
    let warning = vec!["warning".to_owned()];
    for (fail_on, code) in [("notice", 3), ("warning", 3), ("error", 0)] {
        assert_eq!(doctor(fail_on).await, (code, warning.clone()), "{fail_on}");
    }
    fixture.client.delete_queue(&fixture.parked()).await.unwrap();
    let (code, severities) = doctor("error").await;
    assert!(code == 3 && severities[0] == "error", "{severities:?}");
}

/// One queue for each way to wait that this broker has, and one that somebody else has declared as
/// the migration page says. Each has a service of its own, which declares no more than its queue
/// needs.
#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_namespace_gets_no_complaint_in_whichever_ways_its_queues_wait() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("healthy-mixed").await;
    let [on_ladder, ordered, native, theirs] =
        ["on-ladder", "ordered", "native", "theirs"].map(|name| fixture.namespace.queue(name));
    let [shop, park] = ["shop", "park"].map(|name| fixture.namespace.exchange(name));
    fixture.client.declare_exchange(&shop, "topic", json!({})).await.unwrap();
    let arguments = json!({
        "x-queue-type": "quorum", "x-delivery-limit": 10, "x-dead-letter-exchange": park,
        "x-dead-letter-routing-key": theirs, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    });
    fixture.client.declare_queue(&theirs, arguments).await.unwrap();

    let settings = &mut fixture.settings;
    settings.ladder.rung = Duration::from_millis(100);
    settings.ladder.max = Duration::from_millis(400);
    let queue = settings.queue_mut(&fixture.queue);
    queue.bindings = vec![BindingSettings::new(shop, "order.#")];
    queue.retry.after = Some(AskedDelays::Ladder);
    settings.queue_mut(&on_ladder).retry.strategy = Some(WaitStrategy::Ladder);
    let queue = settings.queue_mut(&ordered);
    queue.retry.strategy = Some(WaitStrategy::InProcess);
    queue.consume.order = Some(Order::Queue);
    let queue = settings.queue_mut(&theirs);
    (queue.declare, queue.queue_type) = (Declare::Existing, Some(QueueType::Quorum));
    if is_before_4_3().await {
        not_tried(DELAYED_RETRIES);
    } else {
        let queue = settings.queue_mut(&native);
        queue.retry.strategy = Some(WaitStrategy::Native);
        queue.retry.delays = Some(Backoff::Fixed { delay: Duration::from_millis(200), waits: 2 });
    }

    let mut running = Vec::new();
    for queue in &fixture.settings.queues {
        let consumer = Consumer::new(queue.queue.clone(), |_: Message<bytes::Bytes>| async {
            Ok::<_, rehop::Failure>(())
        })
        .decode(Raw);
        running.push(Running::start(fixture.service().with_consumer(consumer)));
    }
    let mut looked = fixture.settings.clone();
    looked.broker.management_url = Some(api.url().into());
    eventually(COUNTED, "no complaint", async || {
        let report =
            rehop_operator::doctor::examine(&looked).await.map_err(|error| error.to_string())?;
        if report.is_healthy() && report.unseen.is_empty() {
            Ok(true)
        } else {
            Err(format!("{report:?}"))
        }
    })
    .await
    .unwrap();
    looked.broker.management_url = None;
    let blind = rehop_operator::doctor::examine(&looked).await.unwrap();
    assert!(blind.is_healthy(), "{:?}", blind.findings);
    for service in running {
        service.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_that_take_messages_out_of_queues_are_found() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("policies").await;
    fixture.declare().await;
    let name = fixture.namespace.name();
    let definition =
        json!({ "delivery-limit": 2, "max-length": 1000, "message-ttl": 50, "expires": 600_000 });
    api.set_policy(name, &format!("^{name}"), definition).await;
    let (queue, parked, stray) =
        (format!("{:?}", fixture.queue), fixture.parked(), fixture.stray());
    let mut expected = Vec::new();
    for object in [queue.as_str(), &parked, &stray] {
        for check in ["delivery-limit-lowered", "length-limit", "message-ttl", "queue-expires"] {
            expected.push((check, object));
        }
    }
    for tier in ["wait.100", "wait.200"] {
        expected
            .extend(["length-limit", "message-ttl", "queue-expires"].map(|check| (check, tier)));
    }
    fixture.is_found(&["--management", api.url()], &expected).await;
    api.delete_policy(name).await;
    if is_before_4_3().await {
        return not_tried(DELAYED_RETRIES);
    }
    let definition = json!({ "delayed-retry-type": "all", "delayed-retry-min": 1000 });
    api.set_policy(name, &format!("^{}$", fixture.queue), definition).await;
    fixture.is_found(&["--management", api.url()], &[("delayed-retry", &queue)]).await;
    api.delete_policy(name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_or_different_is_found_by_amqp_and_bindings_by_the_management_api() {
    let fixture = Fixture::new("missing").await;
    let namespace = fixture.namespace.name().to_owned();
    let (parked, queue) = (fixture.parked(), format!("{:?}", fixture.queue));
    let exchanges = [".stray\"", ".wait\"", ".return\"", ".park\""]
        .map(|exchange| ("exchange-missing", exchange));
    let queues =
        [".stray", ".wait.100", ".wait.200", &parked, &queue].map(|queue| ("queue-missing", queue));
    fixture.is_found(&[], &[&exchanges[..], &queues].concat()).await;
    // An exchange that loses what it cannot route, and a queue with another limit.
    fixture
        .client
        .declare_exchange(&format!("{namespace}.wait"), "headers", json!({}))
        .await
        .unwrap();
    fixture
        .client
        .declare_queue(&fixture.queue, json!({ "x-queue-type": "quorum", "x-delivery-limit": 3 }))
        .await
        .unwrap();
    let differs =
        [("no-alternate-exchange", ".wait"), ("arguments-differ", fixture.queue.as_str())];
    // The others are still missing, and so is the binding of the queue to one of them.
    let others = [
        ("exchange-missing", namespace.as_str()),
        ("queue-missing", &namespace),
        ("binding-missing", &queue),
    ];
    fixture.is_found_with(&[], &differs, &others[..2]).await;
    let Some(api) = BrokerApi::shared().await else { return };
    fixture.is_found_with(&["--management", api.url()], &differs, &others).await;

    let whole = Fixture::new("unbound").await;
    whole.declare().await;
    let (queue, exchange) = (&whole.queue, format!("{}.return", whole.namespace.name()));
    whole
        .client
        .unbind(queue, &exchange, "", json!({ "x-match": "all", "rehop-return-to": queue }))
        .await
        .unwrap();
    whole.is_found(&["--management", api.url()], &[("binding-missing", &exchange)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_existing_queue_lacks_is_found_and_the_exported_policy_mends_it() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("theirs").await;
    let queue = fixture.queue.as_str();
    let listed =
        |kind: &str| format!("queues=[{{queue={queue:?},declare=existing,queue_type={kind}}}]");
    let quorum = listed("quorum");
    fixture.client.declare_queue(queue, json!({ "x-queue-type": "quorum" })).await.unwrap();
    fixture.declare_the_rest().await;
    let look = ["--management", api.url(), "--set", &quorum];
    let lacks = [("no-dead-letter-exchange", queue), ("delivery-limit-differs", queue)];
    fixture.is_found(&look, &lacks).await;
    let mistaken = listed("classic");
    let look_mistaken = ["--management", api.url(), "--set", &mistaken];
    fixture
        .is_found(&look_mistaken, &[&lacks[..], &[("queue-type-differs", queue)]].concat())
        .await;

    let export = ["topology", "export", "--queue", queue, "--format", "policies", "--set", &quorum];
    let exported = fixture.tool(&export).finished().await;
    let policies: Value =
        serde_json::from_str(&exported.out).unwrap_or_else(|_| panic!("{}", exported.err));
    api.import(&policies).await;
    fixture.is_fine(&look).await;
    api.delete_policy(policies["policies"][0]["name"].as_str().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_would_mix_with_the_dead_lettering_of_an_existing_queue_is_neither_advised_nor_exported()
 {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("mixed").await;
    let queue = fixture.queue.as_str();
    let theirs = fixture.namespace.exchange("theirs");
    fixture.client.declare_exchange(&theirs, "fanout", json!({})).await.unwrap();
    let poison = fixture.namespace.queue("poison");
    fixture.client.declare_queue(&poison, json!({})).await.unwrap();
    fixture.client.bind(&poison, &theirs, "", json!({})).await.unwrap();
    let arguments = json!({ "x-queue-type": "quorum", "x-dead-letter-exchange": theirs });
    fixture.client.declare_queue(queue, arguments).await.unwrap();
    fixture.declare_the_rest().await;
    let listed = format!("queues=[{{queue={queue:?},declare=existing,queue_type=quorum}}]");
    let look = ["--management", api.url(), "--set", &listed];
    let lacks = [("delivery-limit-differs", queue), ("at-most-once", queue)];
    fixture.is_found(&look, &lacks).await;
    let said = fixture.doctor(&look).await.out;
    let report: Value = serde_json::from_str(&said).unwrap();
    // Where poison would go, which is not where its owner wants it.
    let goes = format!(
        "what the queue dead-letters would come to exchange {theirs:?} with the routing key {queue:?} in place of the message's own"
    );
    for finding in report["findings"].as_array().unwrap() {
        let remedy = finding["remedy"].as_str().unwrap();
        assert!(!remedy.contains("--format policies"), "{finding}");
        let is_advice = finding["check"] != "no-consumer";
        assert!(!is_advice || remedy.contains(&goes), "{finding}");
    }

    let export = ["topology", "export", "--queue", queue, "--format", "policies", "--set", &listed];
    let refused = fixture.tool(&[&export[..], &look[..2]].concat()).finished().await.error(1);
    for part in [&goes, "would mix", "`rehop doctor` says what to set"] {
        assert!(refused.contains(part), "{part:?} is missing: {refused}");
    }
    // Without the management API nobody knows.
    let exported = fixture.tool(&export).finished().await;
    assert!(exported.err.contains("a dead-letter exchange of their own"), "{}", exported.err);
    let policies: Value = serde_json::from_str(&exported.out).unwrap();
    api.import(&policies).await;
    fixture.is_found(&look, &[("no-dead-letter-exchange", queue)]).await;
    let report: Value = serde_json::from_str(&fixture.doctor(&look).await.out).unwrap();
    let is_mixed = |finding: &&Value| finding["check"] == "no-dead-letter-exchange";
    let finding = report["findings"].as_array().unwrap().iter().find(is_mixed).unwrap();
    let goes = format!(
        "what the queue dead-letters comes to {theirs:?} with that key in place of the message's own"
    );
    assert!(finding["seen"].as_str().unwrap().contains(&goes), "{finding}");
    // It is so.
    let incoming = fixture.namespace.exchange("incoming");
    fixture.client.declare_exchange(&incoming, "fanout", json!({})).await.unwrap();
    fixture.client.bind(queue, &incoming, "", json!({})).await.unwrap();
    let expires = |properties: &mut Properties| properties.expiration = Some("1".to_owned());
    let message = Publish::to(&incoming, "order.created").body("x").properties(expires);
    fixture.client.publish(message).await.unwrap();
    let came = fixture.client.drain(&poison, 1, SOON).await.unwrap();
    assert_eq!(came[0].routing_key, queue, "not the message's own");
    api.delete_policy(policies["policies"][0]["name"].as_str().unwrap()).await;
}

/// The settings do not say which type they have.
#[tokio::test(flavor = "multi_thread")]
async fn an_existing_queue_of_either_type_follows_one_of_the_exported_policies() {
    let Some(api) = BrokerApi::shared().await else { return };
    let lacks_much = ["no-dead-letter-exchange", "delivery-limit-differs", "queue-type-differs"];
    for (kind, lacks, keeps) in [
        ("classic", &["no-dead-letter-exchange", "classic-queue"][..], "classic-queue"),
        ("quorum", &lacks_much, "queue-type-differs"),
    ] {
        let fixture = Fixture::new(kind).await;
        let queue = fixture.queue.as_str();
        let existing = format!("queues=[{{queue={queue:?},declare=existing}}]");
        fixture.client.declare_queue(queue, json!({ "x-queue-type": kind })).await.unwrap();
        fixture.declare_the_rest().await;
        let look = ["--management", api.url(), "--set", &existing];
        let of_queue = |checks: &[&'static str]| {
            checks.iter().map(|check| (*check, queue)).collect::<Vec<_>>()
        };
        fixture.is_found(&look, &of_queue(lacks)).await;

        let export =
            ["topology", "export", "--queue", queue, "--format", "policies", "--set", &existing];
        let exported = fixture.tool(&export).finished().await;
        let policies: Value =
            serde_json::from_str(&exported.out).unwrap_or_else(|_| panic!("{}", exported.err));
        api.import(&policies).await;
        fixture.is_found(&look, &of_queue(&[keeps])).await;
        for policy in policies["policies"].as_array().unwrap() {
            api.delete_policy(policy["name"].as_str().unwrap()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_queue_that_may_lose_what_it_dead_letters_or_serves_one_consumer_is_found() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("single").await;
    let queue = fixture.queue.as_str();
    let arguments = json!({
        "x-queue-type": "quorum", "x-delivery-limit": 5, "x-dead-letter-exchange": "somewhere",
        "x-single-active-consumer": { "$amqp": { "Boolean": true } },
    });
    fixture.client.declare_queue(queue, arguments).await.unwrap();
    fixture.declare_the_rest().await;
    let listed = format!("queues=[{{queue={queue:?},declare=existing,queue_type=quorum}}]");
    let expected = [
        ("at-most-once", queue),
        ("single-active-consumer", queue),
        ("delivery-limit-lowered", queue),
        ("dead-letter-exchange-missing", queue),
    ];
    fixture.is_found(&["--management", api.url(), "--set", &listed], &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_a_wait_queue_is_found_without_the_management_api() {
    let fixture = Fixture::new("intruder").await;
    fixture.declare().await;
    let tier = format!("{}.wait.100", fixture.namespace.name());
    let url = fixture.settings.broker.url.expose();
    let connection =
        lapin::Connection::connect(url, lapin::ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let name = lapin::types::ShortString::from(tier.as_str());
    let consumer = channel
        .basic_consume(name, "".into(), Default::default(), Default::default())
        .await
        .unwrap();
    fixture.is_found(&[], &[("consumer-on-wait-queue", tier.as_str())]).await;
    drop(consumer);
    connection.close(200, "done".into()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_the_service_lacks_is_found_without_publishing_or_consuming() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("permission").await;
    fixture.declare().await;
    fixture.publish("a message").await;
    let name = fixture.namespace.name().to_owned();
    api.add_user(&name, "secret", ["^$", "^$", "\\.(stray|parked)$|\\.wait\\.[0-9]+$"]).await;
    let mut url: url::Url = fixture.settings.broker.url.expose().parse().unwrap();
    url.set_username(&name).unwrap();
    url.set_password(Some("secret")).unwrap();
    fixture.settings.broker.url = url.as_str().into();
    fixture.settings.topology = rehop::settings::TopologyMode::Check;
    let report = format!("publishing to exchange \"{name}.report\"");
    // How much else is denied depends on the version: before 4.3, a look needs no permission.
    let denied = [("permission-missing", name.as_str()), ("report-denied", &report)];
    fixture.is_found_with(&[], &[("permission-missing", &fixture.queue)], &denied).await;
    // Where the user may look at the exchange, it may still not publish there.
    api.add_user(&name, "secret", ["^$", "^$", ".*"]).await;
    let (wait, park) = (
        format!("publishing to exchange \"{name}.wait\""),
        format!("publishing to exchange \"{name}.park\""),
    );
    let expected = [
        ("permission-missing", wait.as_str()),
        ("permission-missing", &park),
        ("report-denied", &report),
    ];
    fixture.is_found(&[], &expected).await;
    api.add_user(&name, "secret", ["^$", "\\.(wait|park|report)$", ".*"]).await;
    let report = fixture.doctor(&[]).await;
    assert!(
        report.out.contains("whether arguments differ: the user may not declare"),
        "{}",
        report.out
    );
    let found = fixture.findings(&[]).await;
    assert!(found.iter().all(|(check, _)| check == "no-consumer"), "{found:?}");
    // The management API refuses a user without its tag, which is a finding, and shows no password.
    let refused = fixture.doctor(&["--management", api.url_without_credentials()]).await;
    assert!(
        refused.out.contains("management-unusable") && refused.out.contains("tag `management`"),
        "{}",
        refused.out
    );
    assert!(!refused.out.contains("secret") && !refused.err.contains("secret"));
    // Nothing was published or taken.
    let depth = async |queue: &str| fixture.client.depth(queue).await.unwrap();
    assert_eq!(
        (
            depth(&fixture.queue).await,
            depth(&fixture.stray()).await,
            depth(&fixture.parked()).await
        ),
        (1, 0, 0)
    );
    api.delete_user(&name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_and_consumers_where_none_should_be_are_found_and_left_where_they_are() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("messages").await;
    fixture.declare().await;
    let (namespace, parked) = (fixture.namespace.name(), fixture.parked());
    let a_day_ago = now_millis() - 25 * 60 * 60 * 1000;
    let old = json!([{ "at": a_day_ago, "attempt": 1, "class": "timeout", "message": "late" }])
        .to_string();
    fixture
        .client
        .publish(
            Publish::to(format!("{namespace}.park"), &fixture.queue)
                .body("old")
                .header("rehop-errors", old),
        )
        .await
        .unwrap();
    fixture.client.publish(Publish::to_queue(&parked).body("new")).await.unwrap();
    fixture.client.publish(Publish::to_queue(fixture.stray()).body("lost")).await.unwrap();
    fixture.has_depth(&parked, 2).await;
    // A delay that is no longer among the settings.
    let unused = format!("{namespace}.wait.7000");
    let arguments = json!({
        "x-queue-type": "quorum", "x-message-ttl": 7000, "x-dead-letter-exchange": format!("{namespace}.return"),
        "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    });
    fixture.client.declare_queue(&unused, arguments).await.unwrap();
    let queue = fixture.queue.as_str();
    let expected = [
        ("parked-old", parked.as_str()),
        ("stray-not-empty", ".stray"),
        ("unused-tier", &unused),
        ("no-consumer", queue),
    ];
    // However often the doctor looks, the messages stay, and stay in order.
    for _ in 0..4 {
        fixture.is_found(&["--management", api.url()], &expected).await;
    }
    let left: Vec<_> = fixture.drain_parked(2).await.iter().map(|message| message.text()).collect();
    assert_eq!(left, ["old", "new"]);
    assert_eq!(fixture.client.depth(&fixture.stray()).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_the_broker_cannot_dead_letter_are_found() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("stuck").await;
    fixture.declare().await;
    let namespace = fixture.namespace.name();
    fixture.client.delete_exchange(&format!("{namespace}.return")).await.unwrap();
    let tier = format!("{namespace}.wait.100");
    fixture.client.publish(Publish::to_queue(&tier).body("expires")).await.unwrap();
    // The exchange has taken its binding with it.
    let expected = [
        ("dead-lettering-stuck", tier.as_str()),
        ("exchange-missing", ".return"),
        ("binding-missing", ".return"),
    ];
    fixture.is_found(&["--management", api.url()], &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_of_the_broker_that_is_shorter_than_the_settings_say_is_found() {
    let Some(api) = BrokerApi::shared().await else { return };
    if Broker::shared().await.version().starts_with("3.") {
        return not_tried("a timeout of the broker, because 3.10 does not tell it");
    }
    let mut fixture = Fixture::new("timeout").await;
    let running = fixture.serve_always(Ok(())).await;
    fixture.settings.broker.consumer_timeout = Duration::from_secs(3600);
    let queue = fixture.queue.clone();
    fixture.is_found(&["--management", api.url()], &[("consumer-timeout-short", &queue)]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_is_found() {
    let broker = fragile_broker().await;
    let fixture = Fixture::at("alarm", broker.amqp_url()).await;
    fixture.declare().await;
    broker.rabbitmqctl(&["set_disk_free_limit", "999999GB"]).await.unwrap();
    let management = broker.management_url().unwrap();
    fixture.is_found(&["--management", management], &[("alarm", "node ")]).await;
    // The broker blocks connections that publish, which shows without the management API, too.
    fixture.is_found(&[], &[("alarm", "the cluster")]).await;
    broker.rabbitmqctl(&["set_disk_free_limit", "50MB"]).await.unwrap();
}

/// No two of the tested versions can form a cluster: 4.0 joins 3.13 at the earliest, and 4.3 joins
/// 4.2. So the nodes are made up, in front of the real management API.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_different_versions_and_nodes_that_do_not_see_each_other_are_found() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("mixed").await;
    fixture.declare().await;
    let unchanged = api.with_nodes(|_| {}).await;
    fixture.is_fine(&["--management", &unchanged.url]).await;

    let mixed = api.with_nodes(|nodes| {
        let mut other = nodes[0].clone();
        other["name"] = "rabbit@other".into();
        let applications = other["applications"].as_array_mut().unwrap();
        let rabbit =
            applications.iter_mut().find(|application| application["name"] == "rabbit").unwrap();
        rabbit["version"] = "4.2.9".into();
        nodes.push(other);
    });
    let mixed = mixed.await;
    let look = ["--management", mixed.url.as_str()];
    fixture.is_found(&look, &[("versions-mixed", "the cluster")]).await;
    let report = fixture.doctor(&look).await.out;
    assert!(report.contains("4.2.9 on rabbit@other"), "{report}");

    let cut = api.with_nodes(|nodes| nodes[0]["partitions"] = json!(["rabbit@other"])).await;
    let look = ["--management", cut.url.as_str()];
    fixture.is_found(&look, &[("partition", "node ")]).await;
    let report = fixture.doctor(&look).await.out;
    assert!(report.contains("it does not see rabbit@other"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_management_api_that_does_not_answer_is_a_finding_and_a_wrong_address_an_error() {
    let fixture = Fixture::new("nobody").await;
    fixture.declare().await;
    let url = "http://guest:hunter2@127.0.0.1:1";
    fixture.is_found(&["--management", url], &[("management-unusable", "management API")]).await;
    let finished = fixture.doctor(&["--management", url]).await;
    assert!(
        finished.out.contains("127.0.0.1:1") && !(finished.out + &finished.err).contains("hunter2")
    );
    let error = fixture.doctor(&["--management", "hunter2"]).await.error(1);
    assert!(
        error.contains("broker.management_url (from --management)") && !error.contains("hunter2"),
        "{error}"
    );
}

#[tokio::test]
async fn the_checks_are_listed_without_a_broker() {
    let tool = super::process::Tool::start(
        &["doctor", "--list"],
        [("REHOP_BROKER__URL", "amqp://127.0.0.1:1")],
    );
    let listed = tokio::time::timeout(SOON, tool.finished()).await.unwrap();
    assert_eq!(listed.code(), 0, "{}", listed.err);
    for check in rehop_operator::doctor::Check::ALL {
        assert!(listed.out.contains(check.id()), "{check}");
    }
}
