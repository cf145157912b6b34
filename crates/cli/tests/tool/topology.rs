//! `rehop topology verify`, `plan`, `prune` and `export`.

use std::collections::BTreeSet;
use std::time::Duration;

use rehop::Failure;
use rehop::settings::{WaitQueues, WaitStrategy};
use rehop_testing::{Publish, eventually};
use serde_json::{Value, json};

use super::broker_api::BrokerApi;
use super::examined::COUNTED;
use super::process::{Finished, Tool};
use crate::support::{Fixture, SOON, millis};

impl Fixture {
    pub(crate) async fn topology(&self, command: &str, more: &[&str]) -> Finished {
        self.tool(&[&["topology", command, "--queue", &self.queue], more].concat()).finished().await
    }

    /// The name of a tier of one hour, which is declared, and no longer in the settings.
    async fn unused_tier(&mut self) -> String {
        self.settings.retry.delays = millis([100, 200, 3_600_000]);
        self.declare().await;
        self.settings.retry.delays = millis([100, 200]);
        format!("{}.wait.3600000", self.namespace.name())
    }

    /// A prune that has unbound this tier, and waits until the broker has counted its messages
    /// again.
    async fn begin_prune(&self, api: &BrokerApi, tier: &str) -> Tool {
        let removable = format!("queue {tier}: it is empty and can be deleted");
        eventually(COUNTED, "the broker has counted", async || {
            let listed = self.topology("prune", &["--management", api.url()]).await;
            if listed.out.contains(&removable) {
                Ok(true)
            } else {
                Err(format!("{}{}", listed.out, listed.err))
            }
        })
        .await
        .unwrap();
        let tool = self.tool(&[
            "topology",
            "prune",
            "--queue",
            &self.queue,
            "--management",
            api.url(),
            "--apply",
        ]);
        eventually(SOON, "the tier is unbound", async || {
            Ok::<_, String>(!api.is_bound(tier).await)
        })
        .await
        .unwrap();
        tool
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_ends_with_three_when_the_broker_differs() {
    let fixture = Fixture::new("verify").await;
    let missing = fixture.topology("verify", &[]).await;
    assert_eq!(missing.code(), 3, "{}", missing.err);
    assert!(
        missing.out.contains("queue-missing") && missing.out.contains(&fixture.queue),
        "{}",
        missing.out
    );
    fixture.declare().await;
    let same = fixture.topology("verify", &[]).await;
    assert_eq!(same.code(), 0, "{}{}", same.out, same.err);
    assert!(
        same.out.contains("as the settings ask for") && same.out.contains("not seen: policies"),
        "{}",
        same.out
    );
    let Some(api) = BrokerApi::shared().await else { return };
    eventually(COUNTED, "nothing is found, and nothing unseen", async || {
        let same = fixture.topology("verify", &["--management", api.url(), "--json"]).await;
        let report: Value = serde_json::from_str(&same.out).map_err(|_| same.err.clone())?;
        let is_same = report == json!({ "findings": [], "limits": [], "unseen": [] });
        if is_same && same.code() == 0 { Ok(true) } else { Err(report.to_string()) }
    })
    .await
    .unwrap();
    let park = format!("{}.park", fixture.namespace.name());
    fixture.client.unbind(&fixture.parked(), &park, &fixture.queue, json!({})).await.unwrap();
    let unbound = fixture.topology("verify", &["--management", api.url()]).await;
    assert!(
        unbound.code() == 3 && unbound.out.contains("binding-missing"),
        "{}{}",
        unbound.out,
        unbound.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_says_what_declaring_would_create_and_how_to_change_what_differs() {
    let fixture = Fixture::new("plan").await;
    let before = fixture.topology("plan", &[]).await;
    assert_eq!(before.code(), 3, "{}", before.err);
    let created = |finished: &Finished| {
        finished.out.lines().filter(|line| line.starts_with("create ")).count()
    };
    // Four exchanges; stray, two wait queues, parked and work queue.
    assert_eq!(created(&before), 9, "{}", before.out);
    let declared = fixture.topology("declare", &[]).await;
    assert_eq!(declared.code(), 0, "{}", declared.err);
    let after = fixture.topology("plan", &[]).await;
    assert_eq!((after.code(), created(&after)), (0, 0), "{}", after.out);
    assert!(after.out.contains("declaring would change nothing"), "{}", after.out);
    let differs = fixture.topology("plan", &["--set", "retry.delivery_limit=7"]).await;
    assert_eq!(differs.code(), 3, "{}", differs.err);
    let refused: Vec<_> = differs.out.lines().filter(|line| line.starts_with("refuse ")).collect();
    assert!(
        refused.len() == 1 && refused[0].contains("x-delivery-limit is '10' and should be '7'"),
        "{}",
        differs.out
    );
    assert!(
        differs.out.contains("1. to keep the queue: set retry.delivery_limit to 10"),
        "{}",
        differs.out
    );
    let json = fixture.topology("plan", &["--json"]).await;
    let plan: Value = serde_json::from_str(&json.out).unwrap();
    assert!(
        plan["parts"].as_array().unwrap().iter().all(|part| part["action"] == "keep"),
        "{plan}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn prune_deletes_wait_queues_that_are_unused_and_empty_and_no_others() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("prune").await;
    fixture.settings.retry.delays = millis([100, 200, 300, 3_600_000]);
    fixture.declare().await;
    let tier = |millis: u64| format!("{}.wait.{millis}", fixture.namespace.name());
    let (full, empty, used) = (tier(3_600_000), tier(300), tier(100));
    let waiting = Publish::to(format!("{}.wait", fixture.namespace.name()), "")
        .header("rehop-wait-for", 3_600_000)
        .body("waits");
    fixture.client.publish(waiting).await.unwrap();
    fixture.settings.retry.delays = millis([100, 200]);
    let prune = async |more: &[&str]| {
        fixture.topology("prune", &[&["--management", api.url()], more].concat()).await
    };
    eventually(COUNTED, "the broker has counted", async || {
        let listed = prune(&[]).await;
        let expected = [
            format!("queue {full}: it has messages"),
            format!("queue {empty}: it is empty and can be deleted"),
        ];
        let is_listed =
            expected.iter().all(|line| listed.out.contains(line)) && !listed.out.contains(&used);
        if is_listed { Ok(true) } else { Err(format!("{}{}", listed.out, listed.err)) }
    })
    .await
    .unwrap();
    // What another queue in the settings uses is not unused, although only this one is named.
    let other = "queues=[{queue=other,retry={delays=[300ms]}}]";
    assert!(!prune(&["--set", other]).await.out.contains(&empty));
    // Looking deleted nothing, and a delay that is not asked for is left alone.
    assert_eq!(prune(&["--delay", "7s", "--apply"]).await.out.trim(), "no wait queue is unused");
    assert_eq!(fixture.client.depth(&empty).await.unwrap(), 0);
    let applied = prune(&["--apply"]).await;
    assert_eq!(applied.code(), 0, "{}", applied.err);
    assert!(applied.out.contains(&format!("queue {empty} is deleted")), "{}", applied.out);
    assert!(
        applied.out.contains(&format!("queue {full} is kept: it has messages")),
        "{}",
        applied.out
    );
    assert!(fixture.client.depth(&empty).await.is_err(), "it is gone");
    assert_eq!(fixture.client.depth(&full).await.unwrap(), 1);
    assert!(fixture.client.depth(&used).await.is_ok());
    let blind = fixture.topology("prune", &["--apply"]).await.error(1);
    assert!(
        blind.contains("management API is needed") && blind.contains("broker.management_url"),
        "{blind}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn prune_takes_a_ladder_that_nothing_uses_rung_by_rung_with_its_exchanges() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("prune-ladder").await;
    fixture.settings.ladder.rung = Duration::from_secs(900);
    fixture.settings.ladder.max = Duration::from_secs(1_800);
    fixture.settings.retry.strategy = Some(WaitStrategy::Ladder);
    fixture.declare().await;
    let name = |rest: &str| format!("{}.{rest}", fixture.namespace.name());
    let waiting = Publish::to(name("ladder"), "").header("rehop-wait-for", 1_800_000).body("waits");
    fixture.client.publish(waiting).await.unwrap();
    fixture.settings.retry.strategy = None;
    let prune = async |more: &[&str]| {
        fixture.topology("prune", &[&["--management", api.url()], more].concat()).await
    };
    let is_listed = async |expected: &[String]| {
        eventually(COUNTED, "the broker has counted", async || {
            let listed = prune(&[]).await;
            let all = expected.iter().all(|line| listed.out.lines().any(|it| it == line));
            if all { Ok(true) } else { Err(format!("{}{}", listed.out, listed.err)) }
        })
        .await
        .unwrap();
    };
    let line = |kind: &str, rest: &str, verdict: &str| format!("{kind} {}: {verdict}", name(rest));
    is_listed(&[
        line("queue", "ladder.900000", "it is empty and can be deleted"),
        line("queue", "ladder.1800000", "it has messages"),
        line("exchange", "after.900000", "it is empty and can be deleted"),
        line("exchange", "after.1800000", "a wait queue that stays needs it"),
        line("exchange", "ladder", "a wait queue that stays needs it"),
        "--apply would delete 2 of these".to_owned(),
    ])
    .await;
    let applied = prune(&["--apply"]).await;
    assert_eq!(applied.code(), 0, "{}", applied.err);
    for expected in [
        format!("queue {} is deleted", name("ladder.900000")),
        format!("exchange {} is deleted", name("after.900000")),
        format!("queue {} is kept: it has messages", name("ladder.1800000")),
        format!("exchange {} is kept: a wait queue that stays needs it", name("ladder")),
    ] {
        assert!(applied.out.lines().any(|line| line == expected), "{expected}: {}", applied.out);
    }
    // The rung that stays is still bound, and its message still waits.
    let again =
        Publish::to(name("ladder"), "").header("rehop-wait-for", 1_800_000).body("waits too");
    fixture.client.publish(again).await.unwrap();
    assert_eq!(fixture.client.drain(&name("ladder.1800000"), 2, SOON).await.unwrap().len(), 2);
    is_listed(&[
        line("queue", "ladder.1800000", "it is empty and can be deleted"),
        line("exchange", "after.1800000", "it is empty and can be deleted"),
        line("exchange", "ladder", "it is empty and can be deleted"),
    ])
    .await;
    let applied = prune(&["--apply"]).await;
    assert_eq!(
        applied.out.lines().filter(|line| line.ends_with(" is deleted")).count(),
        3,
        "{}",
        applied.out
    );
    assert_eq!(prune(&[]).await.out.trim(), "no wait queue is unused");
    let stray = fixture.client.depth(&fixture.stray()).await.unwrap();
    assert_eq!(stray, 0);
    // Whoever wants the ladder again gets it.
    fixture.settings.retry.strategy = Some(WaitStrategy::Ladder);
    fixture.declare().await;
    let verified = fixture.topology("verify", &["--management", api.url()]).await;
    assert_eq!(verified.code(), 0, "{}{}", verified.out, verified.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn prune_takes_the_wait_queues_of_a_queue_that_has_moved_to_the_shared_ones() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("prune-own").await;
    fixture.settings.retry.wait_queues = Some(WaitQueues::Own);
    fixture.declare().await;
    let with_api = ["--management", api.url()];
    let verified = fixture.topology("verify", &with_api).await;
    assert_eq!(verified.code(), 0, "{}{}", verified.out, verified.err);
    assert_eq!(fixture.topology("prune", &with_api).await.out.trim(), "no wait queue is unused");
    fixture.settings.retry.wait_queues = None;
    fixture.declare().await;
    let exchange = format!("{}.wait.{}", fixture.namespace.name(), fixture.queue);
    let objects = [
        format!("queue {exchange}.100"),
        format!("queue {exchange}.200"),
        format!("exchange {exchange}"),
    ];
    let prune =
        async |more: &[&str]| fixture.topology("prune", &[&with_api[..], more].concat()).await;
    eventually(COUNTED, "the broker has counted", async || {
        let listed = prune(&[]).await;
        let is_listed = objects.iter().all(|object| {
            listed.out.contains(&format!("{object}: it is empty and can be deleted"))
        });
        if is_listed { Ok(true) } else { Err(format!("{}{}", listed.out, listed.err)) }
    })
    .await
    .unwrap();
    let applied = prune(&["--apply"]).await;
    assert_eq!(applied.code(), 0, "{}", applied.err);
    for object in &objects {
        let expected = format!("{object} is deleted");
        assert!(applied.out.lines().any(|line| line == expected), "{expected}: {}", applied.out);
    }
    let verified = fixture.topology("verify", &with_api).await;
    assert_eq!(verified.code(), 0, "{}{}", verified.out, verified.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn prune_keeps_what_a_running_consumer_with_other_settings_uses_or_may_use() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("prune-used").await;
    fixture.settings.retry.delays = millis([100, 700]);
    let (running, seen) =
        fixture.serve_noting(|message| message.attempt(), Err(Failure::transient("no"))).await;
    fixture.publish("x").await;
    seen.reaches(1).await;
    fixture.settings.retry.delays = millis([100]);
    let tier = format!("{}.wait.700", fixture.namespace.name());
    let prune = async |more: &[&str]| {
        fixture.topology("prune", &[&["--management", api.url()], more].concat()).await
    };
    let says = async |expected: &str| {
        eventually(COUNTED, expected, async || {
            let listed = prune(&[]).await;
            if listed.out.contains(expected) {
                Ok(true)
            } else {
                Err(format!("{}{}", listed.out, listed.err))
            }
        })
        .await
        .unwrap();
    };
    // What the management API counts is up to ten seconds old, so it may still show a message that
    // has left.
    let applies = async |more: &[&str], expected: &str| {
        eventually(COUNTED, expected, async || {
            let applied = prune(&[&["--apply"], more].concat()).await.out;
            if applied.contains(expected) { Ok(true) } else { Err(applied) }
        })
        .await
        .unwrap();
    };
    let used_by =
        |verdict: &str| format!("queue {tier}: {verdict} (consumers of {})", fixture.queue);
    let in_use = used_by("a running consumer with other settings uses it");
    says(&in_use).await;
    applies(&["--even-if-used"], &format!("queue {tier} is kept: a running consumer")).await;
    // It is still bound: the message goes through it.
    fixture.publish("y").await;
    fixture.drain_parked(2).await;
    running.stop().await;
    says(&format!("queue {tier}: it is empty and can be deleted")).await;

    let url = fixture.settings.broker.url.expose();
    let connection =
        lapin::Connection::connect(url, lapin::ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let work = lapin::types::ShortString::from(fixture.queue.as_str());
    let consumer = channel
        .basic_consume(work, "".into(), Default::default(), Default::default())
        .await
        .unwrap();
    says(&used_by(
        "it is empty, but may be in use: not all consumers say where their messages wait",
    ))
    .await;
    applies(&[], &format!("queue {tier} is kept: it is empty, but may be in use")).await;
    assert!(fixture.client.depth(&tier).await.is_ok());
    applies(&["--even-if-used"], &format!("queue {tier} is deleted")).await;
    assert!(fixture.client.depth(&tier).await.is_err());
    drop(consumer);
    connection.close(200, "done".into()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prune_that_a_signal_stops_binds_again_what_it_has_unbound() {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("prune-stopped").await;
    let tier = fixture.unused_tier().await;
    for signal in ["INT", "TERM"] {
        let tool = fixture.begin_prune(&api, &tier).await;
        tool.signal(signal);
        let finished = tool.finished().await;
        assert_eq!(finished.code(), 3, "{}{}", finished.out, finished.err);
        assert!(
            finished.out.contains(&format!("queue {tier} is kept: the prune was told to stop")),
            "{}",
            finished.out
        );
        assert!(api.is_bound(&tier).await, "after {signal}");
    }
    let waiting = Publish::to(format!("{}.wait", fixture.namespace.name()), "")
        .header("rehop-wait-for", 3_600_000)
        .body("waits");
    fixture.client.publish(waiting).await.unwrap();
    fixture.has_depth(&tier, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prune_that_loses_its_connection_binds_again_on_another_one_or_names_what_is_still_unbound()
 {
    let Some(api) = BrokerApi::shared().await else { return };
    let mut fixture = Fixture::new("prune-lost").await;
    let proxy = fixture.put_behind_proxy().await;
    let tier = fixture.unused_tier().await;
    let tool = fixture.begin_prune(&api, &tier).await;
    proxy.cut();
    let finished = tool.finished().await;
    assert_eq!(finished.code(), 0, "{}", finished.err);
    assert!(
        finished.out.contains(&format!("queue {tier} is kept: the connection was lost")),
        "{}",
        finished.out
    );
    assert!(api.is_bound(&tier).await);

    let tool = fixture.begin_prune(&api, &tier).await;
    proxy.refuse().await;
    proxy.cut();
    let error = tool.finished().await.error(1);
    let binding = format!(
        "still unbound: queue {tier:?} from exchange \"{}.wait\"",
        fixture.namespace.name()
    );
    assert!(error.contains(&binding) && error.contains("rehop topology declare"), "{error}");
    assert!(!api.is_bound(&tier).await);
    proxy.accept().await.unwrap();
    fixture.settings.retry.delays = millis([100, 200, 3_600_000]);
    let declared = fixture.topology("declare", &[]).await;
    assert_eq!(declared.code(), 0, "{}", declared.err);
    assert!(api.is_bound(&tier).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_definitions_are_what_declaring_would_declare() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("export").await;
    let exported = fixture.topology("export", &[]).await;
    let definitions: Value =
        serde_json::from_str(&exported.out).unwrap_or_else(|_| panic!("{}", exported.err));
    api.import(&definitions).await;
    let verified = fixture.topology("verify", &["--management", api.url()]).await;
    assert_eq!(verified.code(), 0, "{}{}", verified.out, verified.err);
    // The broker compares by itself, which is stricter.
    let declared = fixture.topology("declare", &[]).await;
    assert_eq!(declared.code(), 0, "{}", declared.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_of_an_ordered_queue_that_somebody_else_declares_is_one_that_the_broker_takes() {
    let Some(api) = BrokerApi::shared().await else { return };
    let fixture = Fixture::new("ordered-policy").await;
    let ordered = [
        "--format",
        "policies",
        "--set",
        "consume.order=queue",
        "--set",
        "retry.strategy=in-process",
    ];
    let exported = fixture.topology("export", &ordered).await;
    let policies: Value =
        serde_json::from_str(&exported.out).unwrap_or_else(|_| panic!("{}", exported.err));
    api.import(&policies).await;
    api.delete_policy(policies["policies"][0]["name"].as_str().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_binding_that_leads_out_of_the_delayed_exchange_is_exported() {
    let fixture = Fixture::new("delayed-export").await;
    let export = async |format: &str| {
        fixture
            .topology("export", &["--format", format, "--set", "retry.strategy=delayed-exchange"])
            .await
    };
    let namespace = fixture.namespace.name();
    let expected =
        [format!("{namespace}.delay"), format!("{namespace}.return"), "exchange".to_owned()];
    let is_it = |binding: &Value| {
        ["source", "destination", "destination_type"]
            .iter()
            .zip(&expected)
            .all(|(key, value)| binding[*key] == **value)
    };
    let definitions: Value = serde_json::from_str(&export("definitions").await.out).unwrap();
    assert!(definitions["bindings"].as_array().unwrap().iter().any(is_it), "{definitions}");
    let terraform: Value = serde_json::from_str(&export("terraform").await.out).unwrap();
    let bindings = terraform["resource"]["rabbitmq_binding"].as_object().unwrap();
    assert!(bindings.values().any(is_it), "{terraform}");
    assert!(
        bindings.values().all(|binding| binding["depends_on"].as_array().unwrap().len() > 1),
        "{terraform}"
    );
    // The operator would refuse the exchange.
    let refused = export("kubernetes").await.error(1);
    assert!(
        refused.contains("x-delayed-message") && refused.contains("--format definitions"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_format_of_an_export_has_every_exchange_queue_and_binding() {
    let fixture = Fixture::new("formats").await;
    let export = async |format: &str| -> Value {
        let exported = fixture.topology("export", &["--format", format, "--vhost", "shop"]).await;
        serde_json::from_str(&exported.out).unwrap_or_else(|_| panic!("{}", exported.err))
    };
    let of = |values: Vec<Value>, keys: &[&str]| -> BTreeSet<String> {
        values
            .iter()
            .map(|value| {
                keys.iter().map(|key| value[*key].as_str().unwrap().to_owned() + " ").collect()
            })
            .collect()
    };
    let definitions = export("definitions").await;
    let list = |kind: &str| definitions[kind].as_array().unwrap().clone();
    let [exchanges, queues] =
        ["exchanges", "queues"].map(|kind| of(list(kind), &["vhost", "name"]));
    let bindings = of(list("bindings"), &["vhost", "source", "destination"]);
    assert_eq!((exchanges.len(), queues.len(), bindings.len()), (4, 5, 5));

    let terraform = export("terraform").await["resource"].take();
    let list =
        |kind: &str| terraform[kind].as_object().unwrap().values().cloned().collect::<Vec<_>>();
    assert_eq!(of(list("rabbitmq_exchange"), &["vhost", "name"]), exchanges);
    assert_eq!(of(list("rabbitmq_queue"), &["vhost", "name"]), queues);
    assert_eq!(of(list("rabbitmq_binding"), &["vhost", "source", "destination"]), bindings);

    let items = export("kubernetes").await["items"].as_array().unwrap().clone();
    let list = |kind: &str| {
        items
            .iter()
            .filter(|item| item["kind"] == kind)
            .map(|item| item["spec"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of(list("Exchange"), &["vhost", "name"]), exchanges);
    assert_eq!(of(list("Queue"), &["vhost", "name"]), queues);
    assert_eq!(of(list("Binding"), &["vhost", "source", "destination"]), bindings);
    let names: BTreeSet<_> =
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), items.len());
}
