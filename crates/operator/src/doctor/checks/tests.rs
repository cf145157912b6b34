use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::doctor::observed::{
    BindingDetails, DeliveryLimit, Difference, ExchangeDetails, Flag, Management, Node, Object,
    QueueDetails, QueueState,
};
use rehop::Backoff;
use rehop::Settings;
use rehop::settings::{AskedDelays, Declare, Order, QueueType, WaitStrategy};
use rehop::topology::{Argument, Arguments, Binding};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.namespace = "ns".to_owned();
    settings.queue_mut("orders");
    settings
}

/// The same with a quorum queue that somebody else declares.
fn theirs() -> Settings {
    let mut settings = settings();
    let queue = settings.queue_mut("orders");
    (queue.declare, queue.queue_type) = (Declare::Existing, Some(QueueType::Quorum));
    settings
}

/// A broker on which everything is as the settings ask for, as the management API would show it.
fn healthy(subject: &Subject) -> Observed {
    let mut seen = Observed::default();
    let mut management = Management { nodes: vec![node("one")], ..Management::default() };
    let present = Existence::Present { difference: None };
    for exchange in &subject.topology.exchanges {
        seen.exchanges.insert(exchange.name.clone(), present.clone());
        let details = json!({ "type": exchange.kind.as_str(), "arguments": exchange.arguments });
        management
            .exchanges
            .insert(exchange.name.clone(), serde_json::from_value(details).unwrap());
    }
    // Somebody else's.
    management.exchanges.insert("theirs".to_owned(), ExchangeDetails::default());
    for queue in &subject.topology.queues {
        let consumers = u32::from(queue.role == rehop::topology::Role::Work);
        seen.queues.insert(
            queue.name.clone(),
            QueueState { existence: present.clone(), ready: 0, consumers },
        );
        management.queues.insert(queue.name.clone(), details(&queue.name, &queue.arguments));
        let bindings = subject.topology.bindings.iter().filter(|binding| binding.queue == queue.name).map(|binding| {
            json!({ "source": binding.exchange, "routing_key": binding.routing_key, "arguments": binding.arguments })
        });
        let bindings = Value::Array(bindings.collect());
        management.bindings.insert(queue.name.clone(), serde_json::from_value(bindings).unwrap());
    }
    for binding in &subject.topology.exchange_bindings {
        let sources = json!([{ "source": binding.source }]);
        management
            .sources
            .insert(binding.destination.clone(), serde_json::from_value(sources).unwrap());
        lead(
            &mut management,
            &binding.source,
            json!({ "destination": binding.destination, "destination_type": "exchange" }),
        );
    }
    for Binding { exchange, queue, routing_key, arguments, .. } in &subject.topology.bindings {
        let binding =
            json!({ "destination": queue, "routing_key": routing_key, "arguments": arguments });
        lead(&mut management, exchange, binding);
    }
    seen.frame_max = 131_072;
    seen.management = Some(management);
    seen
}

/// Adds a binding that leads out of this exchange; to a queue unless it says otherwise.
fn lead(management: &mut Management, exchange: &str, binding: Value) {
    let mut details = json!({ "source": exchange, "destination_type": "queue" });
    details.as_object_mut().unwrap().extend(binding.as_object().unwrap().clone());
    let binding = serde_json::from_value(details).unwrap();
    management.destinations.entry(exchange.to_owned()).or_default().push(binding);
}

fn details(name: &str, arguments: &Arguments) -> QueueDetails {
    let details = json!({
        "name": name, "type": "quorum", "arguments": arguments, "messages": 0, "messages_dlx": 0, "members": ["one"],
        "online": ["one"], "consumers": 0, "consumer_details": [{ "consumer_timeout": 1_800_000 }], "effective_policy_definition": [],
    });
    serde_json::from_value(details).unwrap()
}

fn node(name: &str) -> Node {
    let node = json!({
        "name": name, "running": true, "mem_alarm": false, "disk_free_alarm": false, "partitions": [],
        "applications": [
            { "name": "rabbit", "version": "4.3.6" }, { "name": "rabbitmq_delayed_message_exchange", "version": "4.3.0" },
        ],
    });
    serde_json::from_value(node).unwrap()
}

/// What is found on a healthy broker after this change, the worst first.
fn examined(settings: &Settings, change: impl FnOnce(&mut Observed)) -> Vec<Finding> {
    let subject = Subject::of(settings).unwrap();
    let mut seen = healthy(&subject);
    change(&mut seen);
    crate::doctor::Report::new(findings(&subject, &seen, NOW), Vec::new()).findings
}

/// The ids of what is found on a healthy broker after this change.
fn found(settings: &Settings, change: impl FnOnce(&mut Observed)) -> Vec<&'static str> {
    examined(settings, change).iter().map(|finding| finding.check.id()).collect()
}

fn queue<'a>(seen: &'a mut Observed, name: &str) -> &'a mut QueueDetails {
    seen.management.as_mut().unwrap().queues.get_mut(name).unwrap()
}

fn policy(seen: &mut Observed, name: &str, key: &str, value: Value) {
    let details = queue(seen, name);
    details.policy = Some("theirs".to_owned());
    details.effective_policy.get_or_insert_default().insert(key.to_owned(), value);
}

#[test]
fn a_healthy_broker_gets_no_complaint_with_or_without_the_management_api() {
    assert_eq!(found(&settings(), |_| {}), [""; 0]);
    assert_eq!(found(&settings(), |seen| seen.management = None), [""; 0]);
}

#[test]
fn what_is_missing_hidden_or_unavailable_is_found() {
    let orders = |existence: Existence| {
        move |seen: &mut Observed| {
            seen.queues
                .insert("orders".to_owned(), QueueState { existence, ready: 0, consumers: 0 });
            seen.management = None;
        }
    };
    assert_eq!(found(&settings(), orders(Existence::Missing)), ["queue-missing"]);
    let problem = || "no".to_owned();
    assert_eq!(
        found(&settings(), orders(Existence::Hidden { problem: problem() })),
        ["permission-missing"]
    );
    assert_eq!(
        found(&settings(), orders(Existence::Unavailable { problem: problem() })),
        ["queue-unavailable"]
    );
    assert_eq!(
        found(&settings(), |seen| drop(
            seen.exchanges.insert("ns.wait".to_owned(), Existence::Missing)
        )),
        ["exchange-missing"]
    );
    let mut bound = settings();
    bound.queue_mut("orders").bindings =
        vec![rehop::settings::BindingSettings::new("shop", "order.*")];
    assert_eq!(
        found(&bound, |seen| drop(seen.exchanges.insert("shop".to_owned(), Existence::Missing))),
        ["exchange-missing"]
    );
}

#[test]
fn other_arguments_and_missing_bindings_are_found() {
    assert_eq!(found(&settings(), |seen| queue(seen, "orders").arguments.clear()).len(), 6);
    assert_eq!(
        found(&settings(), |seen| seen
            .management
            .as_mut()
            .unwrap()
            .exchanges
            .get_mut("ns.park")
            .unwrap()
            .arguments
            .clear()),
        ["no-alternate-exchange"]
    );
    assert_eq!(
        found(&settings(), |seen| seen
            .management
            .as_mut()
            .unwrap()
            .exchanges
            .get_mut("ns.park")
            .unwrap()
            .kind = "topic".into()),
        ["arguments-differ"]
    );
    assert_eq!(
        found(&settings(), |seen| seen
            .management
            .as_mut()
            .unwrap()
            .bindings
            .get_mut("orders")
            .unwrap()
            .clear()),
        ["binding-missing"]
    );
    let by_broker = |seen: &mut Observed| {
        let [argument, wanted, found] =
            ["x-quorum-initial-group-size", "none", "'1'"].map(str::to_owned);
        let difference = Some(Difference { argument, wanted, found });
        seen.queues.get_mut("orders").unwrap().existence = Existence::Present { difference };
    };
    assert_eq!(found(&settings(), by_broker), ["arguments-differ"], "the broker alone compares it");
}

#[test]
fn a_binding_with_another_key_or_other_arguments_is_not_the_one_that_is_asked_for() {
    let changed = |queue: &str, change: fn(&mut BindingDetails)| {
        found(&settings(), |seen| {
            let bindings = seen.management.as_mut().unwrap().bindings.get_mut(queue).unwrap();
            change(&mut bindings[0]);
        })
    };
    assert_eq!(changed("orders.parked", |it| it.source = "shop".to_owned()), ["binding-missing"]);
    assert_eq!(
        changed("orders.parked", |it| it.routing_key = "order".to_owned()),
        ["binding-missing"]
    );
    assert_eq!(
        changed("orders", |it| it.arguments["rehop-return-to"] = "bills".into()),
        ["binding-missing"]
    );
    assert_eq!(
        changed("orders", |it| drop(it.arguments.insert("tenant".to_owned(), 1.into()))),
        ["binding-missing"]
    );
}

#[test]
fn a_delayed_exchange_that_leads_nowhere_is_found() {
    let mut delayed = settings();
    delayed.retry.strategy = Some(WaitStrategy::DelayedExchange);
    assert_eq!(found(&delayed, |_| {}), [""; 0]);
    let unbound = |seen: &mut Observed| seen.management.as_mut().unwrap().sources.clear();
    assert_eq!(found(&delayed, unbound), ["binding-missing"]);
    // What stands in for it may lead home by a queue.
    let stand_in = |seen: &mut Observed| {
        unbound(seen);
        seen.management.as_mut().unwrap().exchanges.get_mut("ns.delay").unwrap().kind =
            "fanout".to_owned();
    };
    assert_eq!(found(&delayed, stand_in), ["arguments-differ"]);
}

/// A binding's arguments by which it gets messages with this header alone.
fn all(header: &str, value: Value) -> Value {
    json!({ "x-match": "all", header: value })
}

/// What is found when there is also this binding, in a namespace that has all of rehop's exchanges.
fn bound(exchange: &str, binding: Value) -> Vec<Finding> {
    let mut mixed = settings();
    mixed.queue_mut("orders").retry.after = Some(AskedDelays::Ladder);
    mixed.queue_mut("later").retry.strategy = Some(WaitStrategy::DelayedExchange);
    let subject = Subject::of(&mixed).unwrap();
    let mut seen = healthy(&subject);
    lead(seen.management.as_mut().unwrap(), exchange, binding);
    findings(&subject, &seen, NOW)
}

#[test]
fn a_binding_by_which_copies_go_elsewhere_is_found() {
    for (exchange, binding, says) in [
        ("ns.park", json!({ "destination": "audit", "routing_key": "orders" }), "are parked"),
        (
            "ns.park",
            json!({ "destination": "orders.parked", "destination_type": "exchange", "routing_key": "orders" }),
            "are parked",
        ),
        ("ns.wait", json!({ "destination": "audit" }), "that wait"),
        (
            "ns.wait",
            json!({ "destination": "audit", "arguments": all("rehop-wait-for", 10_000.into()) }),
            "that wait",
        ),
        (
            "ns.wait",
            json!({ "destination": "ns.wait.10000", "arguments": all("rehop-wait-for", 60_000.into()) }),
            "that wait",
        ),
        (
            "ns.wait",
            json!({ "destination": "ns.wait.10000", "arguments": { "x-match": "any", "rehop-wait-for": 10_000 } }),
            "that wait",
        ),
        (
            "ns.ladder",
            json!({ "destination": "ns.wait.1000", "arguments": all("rehop-wait-for", 1_000.into()) }),
            "that wait",
        ),
        (
            "ns.after.2000",
            json!({ "destination": "ns.ladder.1000", "arguments": all("rehop-wait-for", 1_000.into()) }),
            "wait",
        ),
        (
            "ns.return",
            json!({ "destination": "audit", "arguments": all("rehop-return-to", "orders".into()) }),
            "have waited",
        ),
        (
            "ns.return",
            json!({ "destination": "orders", "destination_type": "exchange", "arguments": all("rehop-return-to", "orders".into()) }),
            "have waited",
        ),
        ("ns.delay", json!({ "destination": "orders" }), "have waited"),
        (
            "ns.delay",
            json!({ "destination": "audit", "destination_type": "exchange" }),
            "have waited",
        ),
    ] {
        let found = bound(exchange, binding.clone());
        let [finding] = &found[..] else { panic!("{exchange} {binding}: {found:?}") };
        let kind = binding["destination_type"].as_str().unwrap_or("queue");
        let object =
            format!("binding of {kind} {} to exchange {exchange:?}", binding["destination"]);
        assert_eq!((finding.check, &finding.object), (Check::ForeignBinding, &object));
        assert!(finding.seen.contains(says), "{}", finding.seen);
    }
}

/// Other services of the namespace have other queues, delays and ladders.
#[test]
fn the_bindings_of_other_services_and_those_that_operators_need_are_no_complaint() {
    for (exchange, binding) in [
        ("ns.park", json!({ "destination": "set-aside", "routing_key": "invoices" })),
        (
            "ns.wait",
            json!({ "destination": "ns.wait.7000", "arguments": all("rehop-wait-for", 7_000.into()) }),
        ),
        (
            "ns.ladder",
            json!({ "destination": "ns.ladder.750", "arguments": all("rehop-wait-for", 750.into()) }),
        ),
        (
            "ns.after.3000",
            json!({ "destination": "ns.ladder.750", "arguments": all("rehop-then-3000", 750.into()) }),
        ),
        (
            "ns.return",
            json!({ "destination": "invoices", "arguments": all("rehop-return-to", "invoices".into()) }),
        ),
        ("ns.stray", json!({ "destination": "ns.stray.2" })),
        ("ns.report", json!({ "destination": "ns.op.fates.1", "routing_key": "1" })),
        ("ns.discarded", json!({ "destination": "archive" })),
        ("shop", json!({ "destination": "audit" })),
    ] {
        let found = bound(exchange, binding.clone());
        assert!(found.is_empty(), "{exchange} {binding}: {found:?}");
    }
}

#[test]
fn order_needs_a_single_active_consumer_which_is_no_complaint_then() {
    let mut ordered = settings();
    ordered.consume.order = Some(Order::Queue);
    ordered.retry.strategy = Some(WaitStrategy::InProcess);
    assert_eq!(found(&ordered, |_| {}), [""; 0]);
    let own = found(&ordered, |seen| {
        drop(queue(seen, "orders").arguments.remove("x-single-active-consumer"))
    });
    assert_eq!(own, ["arguments-differ"]);
    ordered.queue_mut("orders").declare = Declare::Existing;
    ordered.queue_mut("orders").queue_type = Some(QueueType::Quorum);
    let is = |single: bool| {
        found(&ordered, |seen| {
            let arguments = json!({
                "x-delivery-limit": 10, "x-dead-letter-exchange": "theirs", "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish", "x-single-active-consumer": single,
            });
            queue(seen, "orders").arguments = arguments.as_object().unwrap().clone();
        })
    };
    assert_eq!((is(true), is(false)), (vec![], vec!["order-not-kept"]));
}

#[test]
fn a_strategy_that_a_node_does_not_know_is_found() {
    let mut native = settings();
    native.retry.strategy = Some(WaitStrategy::Native);
    native.retry.delays = Some(Backoff::List(vec![Duration::from_secs(10)]));
    let with_second_node = |version: &str| {
        found(&native, |seen| {
            let mut second = node("two");
            second.applications[0].version = version.to_owned();
            seen.management.as_mut().unwrap().nodes.push(second);
        })
    };
    assert_eq!(with_second_node("4.3.6"), [""; 0]);
    assert_eq!(with_second_node("4.2.1"), ["strategy-unknown", "versions-mixed"]);
    assert_eq!(with_second_node("3.13.7"), ["strategy-unknown", "versions-mixed"]);
    assert_eq!(with_second_node("4.10.0"), ["versions-mixed"]);
    assert_eq!(with_second_node("5.0.0"), ["versions-mixed"]);
}

#[test]
fn a_node_without_the_plugin_of_the_delayed_exchange_is_found() {
    let mut delayed = settings();
    delayed.retry.strategy = Some(WaitStrategy::DelayedExchange);
    let with_second_node = |change: fn(&mut Node)| {
        found(&delayed, |seen| {
            let mut second = node("two");
            change(&mut second);
            seen.management.as_mut().unwrap().nodes.push(second);
        })
    };
    assert_eq!(with_second_node(|_| {}), [""; 0]);
    assert_eq!(with_second_node(|node| node.applications.truncate(1)), ["strategy-unknown"]);
    let stopped = |node: &mut Node| {
        node.running = Some(false);
        node.applications.clear();
    };
    assert_eq!(with_second_node(stopped), ["node-down"], "it does not tell");
    assert_eq!(
        found(&settings(), |seen| seen.management.as_mut().unwrap().nodes[0]
            .applications
            .truncate(1)),
        [""; 0]
    );
}

/// A policy's type goes before the argument's, and of the delays the smaller applies (4.3).
#[test]
fn a_native_queue_whose_delay_is_not_what_the_settings_say_is_found() {
    let mut native = settings();
    native.retry.strategy = Some(WaitStrategy::Native);
    native.retry.delays = Some(Backoff::List(vec![Duration::from_secs(10)]));
    let with = |settings: &Settings, policies: &[(&str, Value)], arguments: &[(&str, Value)]| {
        found(settings, |seen| {
            for (key, value) in policies {
                policy(seen, "orders", key, value.clone());
            }
            for (key, value) in arguments {
                queue(seen, "orders").arguments.insert((*key).to_owned(), value.clone());
            }
        })
    };
    let by_policy = |policies: &[(&str, Value)]| with(&native, policies, &[]);
    let key =
        |rest: &str, value: Value| -> (String, Value) { (format!("delayed-retry-{rest}"), value) };
    for (rest, value) in [
        key("type", "disabled".into()),
        key("type", "failed".into()),
        key("type", "all".into()),
        key("min", 9_999.into()),
        key("max", 9_999.into()),
    ] {
        assert_eq!(by_policy(&[(rest.as_str(), value)]), ["native-delay-differs"], "{rest}");
    }
    for (rest, value) in [
        key("type", "returned".into()),
        key("min", 10_001.into()),
        key("max", 10_001.into()),
        key("max", 0.into()),
    ] {
        assert_eq!(by_policy(&[(rest.as_str(), value)]), [""; 0], "{rest}");
    }
    // Its own arguments are what the settings are compared with already.
    assert_eq!(with(&native, &[], &[("x-delayed-retry-min", 5.into())]), ["arguments-differ"]);

    native.queue_mut("orders").declare = Declare::Existing;
    native.queue_mut("orders").queue_type = Some(QueueType::Quorum);
    let found_natively = |policies: &[(&str, Value)], arguments: &[(&str, Value)]| {
        let found = with(&native, policies, arguments);
        found.into_iter().filter(|check| *check == "native-delay-differs").count()
    };
    let none = ["x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max"]
        .map(|key| (key, Value::Null));
    assert_eq!(found_natively(&[], &[]), 0);
    assert_eq!(found_natively(&[], &none), 1, "nothing delays");
    let whole: [(&str, Value); 2] =
        [("delayed-retry-type", "returned".into()), ("delayed-retry-min", 10_000.into())];
    assert_eq!(
        found_natively(&whole, &none),
        0,
        "the longest delay is the least where nothing sets it"
    );
    assert_eq!(found_natively(&whole[..1], &none), 1, "no delay, no wait");
}

#[test]
fn a_native_delay_that_differs_is_told_with_what_it_does() {
    fn says(settings: &Settings, change: impl FnOnce(&mut Observed)) -> String {
        let found = examined(settings, change);
        found.into_iter().find(|finding| finding.check == Check::NativeDelayDiffers).unwrap().seen
    }
    let mut native = settings();
    native.retry.strategy = Some(WaitStrategy::Native);
    native.retry.delays = Some(Backoff::List(vec![Duration::from_secs(10)]));
    let at_once = "come again at once, and soon have no attempts left";
    let is = |kind: &str, least: i64| {
        format!("delayed-retry-type is {kind:?}, -min {least} and -max 10000")
    };
    for (key, value, expected) in [
        ("type", json!("disabled"), format!("returned messages do not wait: they {at_once}")),
        (
            "type",
            json!("failed"),
            format!("{}: messages that should wait {at_once}", is("failed", 10_000)),
        ),
        ("type", json!("all"), format!("{}: immediate attempts wait too", is("all", 10_000))),
        (
            "min",
            json!(9_999),
            format!("{}: waits last for another time than the settings say", is("returned", 9_999)),
        ),
    ] {
        let seen =
            says(&native, |seen| policy(seen, "orders", &format!("delayed-retry-{key}"), value));
        assert_eq!(
            seen,
            format!("retry.strategy is \"native\", and with policy \"theirs\" {expected}")
        );
    }
    native.queues = theirs().queues;
    let seen = says(&native, |seen| queue(seen, "orders").arguments.clear());
    let begins =
        "retry.strategy is \"native\", and with its arguments returned messages do not wait: ";
    assert!(seen.starts_with(begins), "{seen}");
}

#[test]
fn frames_that_are_too_small_for_full_headers_are_found() {
    let frames = |bytes: u32| found(&settings(), |seen| seen.frame_max = bytes);
    assert_eq!(
        (frames(131_071), frames(131_072), frames(0)),
        (vec!["frames-small"], vec![], vec![])
    );
}

#[test]
fn a_service_that_may_not_report_on_replayed_messages_is_found() {
    assert_eq!(
        found(&settings(), |seen| seen.report_denied = Some("no".to_owned())),
        ["report-denied"]
    );
}

#[test]
fn each_policy_that_takes_messages_out_of_a_queue_is_found_on_each_queue() {
    for name in ["orders", "orders.parked", "ns.stray", "ns.wait.10000"] {
        let check = |key: &str, value: i64, expected: &[&str]| {
            assert_eq!(
                found(&settings(), |seen| policy(seen, name, key, value.into())),
                expected,
                "{key} on {name}"
            );
        };
        check("max-length", 5, &["length-limit"]);
        check("max-length-bytes", 5, &["length-limit"]);
        check("message-ttl", 5, &["message-ttl"]);
        check("expires", 5, &["queue-expires"]);
        check(
            "delivery-limit",
            2,
            if name.contains("wait") { &[] } else { &["delivery-limit-lowered"] },
        );
        check("delivery-limit", 1 << 31, &[]);
        check("delivery-limit", -1, &[]);
    }
    assert_eq!(
        found(&settings(), |seen| policy(seen, "ns.wait.10000", "message-ttl", 20_000.into())),
        [""; 0]
    );
    let overflow = |name: &str, overflow: &str| {
        found(&settings(), |seen| policy(seen, name, "overflow", overflow.into()))
    };
    for name in ["orders", "orders.parked", "ns.wait.10000"] {
        assert_eq!(overflow(name, "drop-head"), ["at-most-once"], "{name}");
        assert_eq!(overflow(name, "reject-publish"), [""; 0], "{name}");
    }
}

#[test]
fn a_policy_that_delays_returned_messages_is_found_on_the_queues_that_get_some_back() {
    let delayed = |name: &str, kind: &str, min: i64| {
        found(&settings(), |seen| {
            policy(seen, name, "delayed-retry-type", kind.into());
            policy(seen, name, "delayed-retry-min", min.into());
        })
    };
    for (name, kind, is_found) in [
        ("orders", "all", true),
        ("orders", "failed", true),
        ("orders", "disabled", false),
        ("orders.parked", "returned", true),
        ("ns.stray", "all", true),
        // A look rejects nothing.
        ("orders.parked", "failed", false),
        // Nobody gives anything back to it.
        ("ns.wait.10000", "all", false),
    ] {
        assert_eq!(delayed(name, kind, 5) == ["delayed-retry"], is_found, "{kind} on {name}");
        assert_eq!(delayed(name, kind, 0), [""; 0], "{kind} on {name}");
    }
}

#[test]
fn a_length_limit_is_told_with_what_a_full_queue_does() {
    for (name, overflow, harm) in [
        (
            "orders",
            "reject-publish",
            "messages whose wait is over stay in the wait queue, for three minutes at a time",
        ),
        ("orders.parked", "reject-publish", "handlers hold their messages until there is room"),
        ("orders", "drop-head", "the broker drops messages from its head"),
    ] {
        let found = examined(&settings(), |seen| {
            policy(seen, name, "max-length", 5.into());
            policy(seen, name, "overflow", overflow.into());
        });
        let expected = format!("policy \"theirs\" sets max-length 5: when it is full, {harm}");
        assert_eq!((found[0].check, &found[0].seen), (Check::LengthLimit, &expected));
    }
}

#[test]
fn a_queue_that_may_accept_nothing_must_not_share_its_wait_queues() {
    use crate::doctor::subject::Subject;
    use rehop::settings::WaitQueues;

    let two = |wait_queues: Option<WaitQueues>, delays: [u64; 2]| {
        let mut settings = settings();
        settings.queue_mut("orders").retry.wait_queues = wait_queues;
        for (queue, delay) in ["orders", "bills"].into_iter().zip(delays) {
            settings.queue_mut(queue).retry.delays =
                Some(Backoff::Fixed { delay: Duration::from_secs(delay), waits: 1 });
        }
        settings
    };
    let shared = || two(None, [5, 5]);
    let told = |settings: &Settings, change: &dyn Fn(&mut Observed)| {
        let subject = Subject::of(settings).unwrap();
        let mut seen = healthy(&subject);
        change(&mut seen);
        let found = shared_waits::check(&subject, &seen);
        assert!(found.iter().all(|finding| finding.object == "queue \"orders\""), "{found:?}");
        found.into_iter().map(|finding| finding.seen).next()
    };
    let limited = |seen: &mut Observed| policy(seen, "orders", "max-length", 5.into());
    let nodes = |seen: &mut Observed, members: &[&str], online: &[&str]| {
        let owned = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        seen.management.as_mut().unwrap().nodes = vec![node("one"), node("two")];
        for (name, members, online) in
            [("orders", members, online), ("bills", &["one", "two"], &["one", "two"])]
        {
            let details = queue(seen, name);
            (details.members, details.online) = (owned(members), owned(online));
        }
    };
    for (change, because) in [
        (&limited as &dyn Fn(&mut Observed), "policy \"theirs\" sets max-length 5"),
        (&|seen| nodes(seen, &["one"], &["one"]), "it has one member in a cluster of 2 nodes"),
        (&|seen| nodes(seen, &["one", "two"], &["one"]), "it has lost its majority"),
    ] {
        let expected = format!(
            "{because}, and it shares its wait queues: while it accepts nothing, 32 of its messages that are due hold up those of \"bills\""
        );
        assert_eq!(told(&shared(), change), Some(expected));
        assert_eq!(told(&two(Some(WaitQueues::Own), [5, 5]), change), None, "its own");
        assert_eq!(told(&two(None, [5, 6]), change), None, "nobody else waits there");
    }
    assert_eq!(told(&shared(), &|_| {}), None, "nothing is wrong with it");
    assert_eq!(told(&settings(), &limited), None, "it is alone");
    let other = |seen: &mut Observed| {
        limited(seen);
        let arguments = json!({ "rehop-namespace": "ns", "rehop-waits-in": "wait.10000" });
        let consumer = serde_json::from_value(json!({ "arguments": arguments })).unwrap();
        let consumers = &mut seen.management.as_mut().unwrap().consumers;
        consumers.insert("mails".to_owned(), Some(vec![consumer]));
    };
    assert!(told(&settings(), &other).unwrap().ends_with("those of \"mails\""), "another service");
}

/// What is found about a queue of somebody else's with these arguments.
fn taken_over(kind: &str, arguments: Value) -> Vec<&'static str> {
    found(&theirs(), |seen| {
        let details = queue(seen, "orders");
        details.kind = kind.to_owned();
        details.arguments = arguments.as_object().unwrap().clone();
    })
}

#[test]
fn a_queue_of_somebody_elses_that_no_service_can_consume_has_one_finding() {
    for kind in ["stream", "mqtt_qos0"] {
        assert_eq!(taken_over(kind, json!({})), ["queue-unsuitable"], "{kind}");
    }
    for change in [(|details| details.auto_delete = true) as fn(&mut QueueDetails), |details| {
        details.exclusive = true
    }] {
        let found = found(&theirs(), |seen| {
            let details = queue(seen, "orders");
            details.kind = "classic".to_owned();
            change(details);
        });
        assert_eq!(found, ["queue-unsuitable"]);
    }
}

#[test]
fn what_a_queue_of_somebody_elses_lacks_is_found() {
    let good = json!({
        "x-delivery-limit": 10, "x-dead-letter-exchange": "ns.park", "x-dead-letter-routing-key": "orders",
        "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    });
    let with = |key: &str, value: Value| {
        let mut arguments = good.clone();
        arguments[key] = value;
        taken_over("quorum", arguments)
    };
    assert_eq!(taken_over("quorum", good.clone()), [""; 0]);
    assert_eq!(with("x-delivery-limit", 3.into()), ["delivery-limit-lowered"]);
    assert_eq!(with("x-delivery-limit", 30.into()), ["delivery-limit-differs"]);
    assert_eq!(with("x-delivery-limit", Value::Null), ["delivery-limit-differs"]);
    assert_eq!(with("x-delivery-limit", (-1).into()), ["delivery-limit-differs"]);
    assert_eq!(with("x-dead-letter-exchange", Value::Null), ["no-dead-letter-exchange"]);
    assert_eq!(with("x-dead-letter-routing-key", Value::Null), ["no-dead-letter-exchange"]);
    assert_eq!(with("x-dead-letter-exchange", "theirs".into()), [""; 0]);
    assert_eq!(with("x-dead-letter-strategy", Value::Null), ["at-most-once"]);
    assert_eq!(with("x-overflow", Value::Null), ["at-most-once"]);
    assert_eq!(with("x-single-active-consumer", true.into()), ["single-active-consumer"]);
    assert_eq!(with("x-dead-letter-exchange", "nowhere".into()), ["dead-letter-exchange-missing"]);
    let by_default_exchange = json!({
        "x-delivery-limit": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "theirs",
        "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    });
    assert_eq!(
        taken_over("quorum", by_default_exchange),
        [""; 0],
        "the default exchange always exists"
    );
    let classic = taken_over("classic", json!({}));
    assert_eq!(classic, ["no-dead-letter-exchange", "classic-queue", "queue-type-differs"]);
    let good = good.as_object().unwrap();
    let by_policy = found(&theirs(), |seen| {
        queue(seen, "orders").arguments = good.clone();
        policy(seen, "orders", "overflow", "drop-head".into());
    });
    assert_eq!(by_policy, ["at-most-once"]);
    let mut as_classic = theirs();
    as_classic.queue_mut("orders").queue_type = None;
    assert_eq!(
        found(&as_classic, |seen| queue(seen, "orders").arguments = good.clone()),
        ["queue-type-differs"]
    );
}

/// The exported policy has both keys, and an argument stays whatever a policy says.
#[test]
fn no_policy_is_advised_that_would_mix_with_a_queues_own_dead_lettering_and_a_mixture_is_found() {
    let remedy = |arguments: Value| {
        let arguments = arguments.as_object().unwrap();
        let found = examined(&theirs(), |seen| queue(seen, "orders").arguments = arguments.clone());
        let limit = found.iter().find(|it| it.check.id() == "delivery-limit-differs").unwrap();
        limit.remedy.clone()
    };
    let is_exported = |remedy: &str| remedy.contains("--format policies");
    assert!(is_exported(&remedy(json!({}))));
    assert!(is_exported(&remedy(json!({ "x-dead-letter-exchange": "ns.park" }))));
    assert!(is_exported(&remedy(json!({ "x-dead-letter-routing-key": "orders" }))));
    for (arguments, goes) in [
        (
            json!({ "x-dead-letter-exchange": "theirs" }),
            "come to exchange \"theirs\" with the routing key \"orders\"",
        ),
        (
            json!({ "x-dead-letter-exchange": "theirs", "x-dead-letter-routing-key": "key" }),
            "goes to exchange \"theirs\" with the routing key \"key\"",
        ),
        (json!({ "x-dead-letter-routing-key": "key" }), "from there to the stray queue"),
    ] {
        let remedy = remedy(arguments.clone());
        assert!(!is_exported(&remedy) && remedy.contains(goes), "{arguments}: {remedy}");
        assert!(remedy.contains("delivery-limit 10 alone"), "{arguments}: {remedy}");
    }
    let with_policy = |arguments: Value, exchange: &str, key: &str| {
        let arguments = arguments.as_object().unwrap();
        let found = examined(&theirs(), |seen| {
            queue(seen, "orders").arguments = arguments.clone();
            policy(seen, "orders", "delivery-limit", 10.into());
            policy(seen, "orders", "dead-letter-exchange", exchange.into());
            policy(seen, "orders", "dead-letter-routing-key", key.into());
            policy(seen, "orders", "dead-letter-strategy", "at-least-once".into());
            policy(seen, "orders", "overflow", "reject-publish".into());
        });
        found.into_iter().map(|finding| (finding.check.id(), finding.seen)).collect::<Vec<_>>()
    };
    let own = json!({ "x-dead-letter-exchange": "theirs" });
    let found = with_policy(own, "ns.park", "orders");
    let [(id, seen)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(*id, "no-dead-letter-exchange");
    assert!(seen.contains("comes to \"theirs\" with that key"), "{seen}");
    assert_eq!(with_policy(json!({}), "ns.park", "orders"), []);
    assert_eq!(
        with_policy(json!({ "x-dead-letter-exchange": "ns.park" }), "ns.park", "orders"),
        []
    );
    let own_key = json!({ "x-dead-letter-routing-key": "key" });
    let found = with_policy(own_key, "theirs", "orders");
    assert!(found[0].1.contains("argument x-dead-letter-routing-key is \"key\""), "{found:?}");
}

#[test]
fn the_delivery_limit_of_a_queue_of_somebody_elses_is_its_own_or_the_brokers_default() {
    for (limit, version, expected) in [
        (json!(30), "4.3.6", "its delivery limit is 30"),
        (
            json!(null),
            "4.3.6",
            "it has no delivery limit of its own, so the broker's default of 20 applies",
        ),
        (
            json!(-1),
            "4.3.6",
            "it has no delivery limit: a message that crashes its consumer comes again forever",
        ),
        (
            json!(null),
            "3.10.8",
            "it has no delivery limit: a message that crashes its consumer comes again forever",
        ),
    ] {
        let found = examined(&theirs(), |seen| {
            queue(seen, "orders").arguments.insert("x-delivery-limit".to_owned(), limit);
            seen.management.as_mut().unwrap().nodes[0].applications[0].version = version.to_owned();
        });
        let finding =
            found.iter().find(|finding| finding.check == Check::DeliveryLimitDiffers).unwrap();
        assert_eq!(finding.seen, format!("{expected}, and retry.delivery_limit is 10"));
    }
}

/// What is found about a queue of somebody else's that dead-letters in this way, by arguments and
/// by a policy.
fn dead_lettered(exchange: &str, key: Option<&str>) -> [Vec<Finding>; 2] {
    let subject = Subject::of(&theirs()).unwrap();
    let mut names = vec![("dead-letter-exchange", exchange)];
    names.extend(key.map(|key| ("dead-letter-routing-key", key)));
    [true, false].map(|by_argument| {
        let mut seen = healthy(&subject);
        seen.management.as_mut().unwrap().exchanges.entry(exchange.to_owned()).or_default();
        let arguments = json!({
            "x-delivery-limit": 10, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
        });
        queue(&mut seen, "orders").arguments = arguments.as_object().unwrap().clone();
        for (name, value) in &names {
            if by_argument {
                queue(&mut seen, "orders").arguments.insert(format!("x-{name}"), (*value).into());
            } else {
                policy(&mut seen, "orders", name, (*value).into());
            }
        }
        findings(&subject, &seen, NOW)
    })
}

#[test]
fn a_queue_of_somebody_elses_that_dead_letters_back_to_itself_is_found() {
    for (exchange, key) in [
        ("ns.wait", None),
        ("ns.ladder", None),
        ("ns.after.1000", None),
        ("ns.delay", None),
        ("ns.return", Some("orders")),
        // Without a key for dead-lettering a message keeps its own, which here is the queue's name.
        ("", None),
        ("", Some("orders")),
        ("", Some("ns.wait.10000")),
        ("", Some("ns.ladder.1000")),
    ] {
        for found in dead_lettered(exchange, key) {
            let [finding] = &found[..] else { panic!("{exchange} {key:?}: {found:?}") };
            assert_eq!(
                (finding.check, finding.object.as_str()),
                (Check::DeadLetterCycle, "queue \"orders\"")
            );
        }
    }
    for (exchange, key) in
        [("ns.park", Some("orders")), ("", Some("orders.parked")), ("theirs", None)]
    {
        for found in dead_lettered(exchange, key) {
            assert!(found.is_empty(), "{exchange} {key:?}: {found:?}");
        }
    }
    let [by_argument, by_policy] = dead_lettered("ns.return", None);
    let said = (by_argument[0].seen.as_str(), by_argument[0].remedy.as_str());
    assert!(
        said.0.starts_with("the argument x-dead-letter-exchange names exchange \"ns.return\""),
        "{said:?}"
    );
    assert!(said.1.contains("\"ns.park\" with the routing key \"orders\""), "{said:?}");
    let said = (by_policy[0].seen.as_str(), by_policy[0].remedy.as_str());
    assert!(
        said.0.starts_with("policy \"theirs\" names")
            && said.1.ends_with("in place of policy \"theirs\""),
        "{said:?}"
    );
    // A queue that rehop declares has another argument then, which is a finding by itself.
    let own = found(&settings(), |seen| {
        queue(seen, "orders").arguments["x-dead-letter-exchange"] = "ns.return".into()
    });
    assert_eq!(own, ["arguments-differ"]);
}

/// What is found about a queue of somebody else's that dead-letters to the topic exchange of its
/// publishers, after this change.
fn dead_lettered_to_publishers(change: impl FnOnce(&mut Observed)) -> Vec<Finding> {
    let mut settings = theirs();
    settings.queue_mut("orders").bindings =
        vec![rehop::settings::BindingSettings::new("shop", "order.*")];
    let subject = Subject::of(&settings).unwrap();
    let mut seen = healthy(&subject);
    let topic = ExchangeDetails { kind: "topic".to_owned(), ..ExchangeDetails::default() };
    seen.management.as_mut().unwrap().exchanges.insert("shop".to_owned(), topic);
    let arguments = json!({
        "x-delivery-limit": 10, "x-dead-letter-exchange": "shop", "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    });
    queue(&mut seen, "orders").arguments = arguments.as_object().unwrap().clone();
    change(&mut seen);
    findings(&subject, &seen, NOW)
}

#[test]
fn a_queue_that_dead_letters_back_through_its_publishers_exchange_is_found_and_the_finding_says_how_and_for_which()
 {
    let says = |found: Vec<Finding>, says: &str| {
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            (finding.check, finding.object.as_str()),
            (Check::DeadLetterCycle, "queue \"orders\"")
        );
        assert!(finding.seen.contains(says), "{}", finding.seen);
    };
    let all =
        "names exchange \"shop\", which leads back to this queue: the broker recognises the cycle";
    says(dead_lettered_to_publishers(|_| {}), all);
    let key = |key: &'static str| {
        dead_lettered_to_publishers(move |seen| {
            queue(seen, "orders")
                .arguments
                .insert("x-dead-letter-routing-key".to_owned(), key.into());
        })
    };
    says(
        key("order.dead"),
        "names exchange \"shop\" with the routing key \"order.dead\", which leads back to this queue: ",
    );
    let unbound = key("orders.dead");
    let [finding] = &unbound[..] else { panic!("{unbound:?}") };
    assert_eq!(finding.check, Check::DeadLettersUnroutable);
    let by_another_queue = dead_lettered_to_publishers(|seen| {
        queue(seen, "orders")
            .arguments
            .insert("x-dead-letter-exchange".to_owned(), "theirs".into());
        let management = seen.management.as_mut().unwrap();
        lead(management, "theirs", json!({ "destination": "retry" }));
        let arguments = json!({ "x-message-ttl": 1000, "x-dead-letter-exchange": "shop" });
        let retry =
            serde_json::from_value(json!({ "arguments": arguments, "consumers": 1 })).unwrap();
        management.passed.insert("retry".to_owned(), retry);
    });
    let part = "names exchange \"theirs\", which leads back to this queue, by queue \"retry\", by exchange \"shop\", depending on";
    says(by_another_queue, part);
}

#[test]
fn dead_letters_that_no_binding_takes_to_a_queue_are_found_where_that_is_certain() {
    let unbound = |seen: &mut Observed| {
        queue(seen, "orders")
            .arguments
            .insert("x-dead-letter-exchange".to_owned(), "theirs".into());
        seen.management.as_mut().unwrap().destinations.insert("theirs".to_owned(), Vec::new());
    };
    let found = dead_lettered_to_publishers(unbound);
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (finding.check, finding.object.as_str()),
        (Check::DeadLettersUnroutable, "queue \"orders\"")
    );
    let seen = "the argument x-dead-letter-exchange names exchange \"theirs\", from which no message reaches a queue: the broker holds \
                what it dead-letters where no consumer can get it";
    assert_eq!(finding.seen, seen);
    assert_eq!(finding.remedy, "bind a queue to exchange \"theirs\" that takes them");
    let to_far = |exists: bool| {
        dead_lettered_to_publishers(|seen| {
            unbound(seen);
            let management = seen.management.as_mut().unwrap();
            lead(management, "theirs", json!({ "destination": "far" }));
            if exists {
                management.passed.insert("far".to_owned(), QueueDetails::default());
            }
        })
    };
    assert!(to_far(true).is_empty(), "{:?}", to_far(true));
    assert!(to_far(false).is_empty(), "nobody has looked: {:?}", to_far(false));
    let by_default_exchange = dead_lettered_to_publishers(|seen| {
        let arguments = &mut queue(seen, "orders").arguments;
        arguments.insert("x-dead-letter-exchange".to_owned(), "".into());
        arguments.insert("x-dead-letter-routing-key".to_owned(), "gone".into());
        seen.management.as_mut().unwrap().absent.insert(Object::Queue("gone".to_owned()));
    });
    let [finding] = &by_default_exchange[..] else { panic!("{by_default_exchange:?}") };
    assert!(
        finding
            .seen
            .contains("names the default exchange with the routing key \"gone\", from which"),
        "{}",
        finding.seen
    );
    assert_eq!(finding.remedy, "declare the queue that the routing key names");
}

/// A classic queue has no delivery limit, and what is rejected is in no cycle.
#[test]
fn in_a_classic_queue_what_is_rejected_would_come_again_forever() {
    let found =
        dead_lettered_to_publishers(|seen| queue(seen, "orders").kind = "classic".to_owned());
    let cycle = found.iter().find(|finding| finding.check == Check::DeadLetterCycle).unwrap();
    assert!(
        cycle.seen.ends_with("a message of which the broker accepts no copy comes again forever"),
        "{}",
        cycle.seen
    );
}

/// Of the queues that rehop declares only the discarded one has no argument that would override the
/// policy.
#[test]
fn a_policy_that_names_a_dead_letter_exchange_that_does_not_exist_is_found_where_it_is_in_effect() {
    let discarding = |change: fn(&mut Observed)| {
        let mut subject = Subject::of(&settings()).unwrap();
        subject.topology.queues.extend(subject.discarded().queues);
        let mut seen = healthy(&subject);
        for name in ["orders", "orders.parked", "ns.stray", "ns.wait.10000", "ns.discarded"] {
            policy(&mut seen, name, "dead-letter-exchange", "nowhere".into());
        }
        change(&mut seen);
        findings(&subject, &seen, NOW)
    };
    let found = discarding(|_| {});
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (finding.check, finding.object.as_str()),
        (Check::DeadLetterExchangeMissing, "queue \"ns.discarded\"")
    );
    assert!(
        finding.seen.starts_with("policy \"theirs\" names exchange \"nowhere\""),
        "{}",
        finding.seen
    );
    assert!(
        finding.seen.ends_with("loses what it dead-letters, without a word"),
        "{}",
        finding.seen
    );
    assert_eq!(finding.remedy, "exclude the queue from policy \"theirs\"");
    let at_least_once = discarding(|seen| {
        policy(seen, "ns.discarded", "dead-letter-strategy", "at-least-once".into())
    });
    assert!(
        at_least_once[0].seen.ends_with("where no consumer can get it"),
        "{}",
        at_least_once[0].seen
    );
    let there = |seen: &mut Observed| {
        let exchanges = &mut seen.management.as_mut().unwrap().exchanges;
        exchanges.insert("nowhere".to_owned(), ExchangeDetails::default());
    };
    assert!(discarding(there).is_empty());
}

#[test]
fn a_dead_letter_exchange_of_rehops_own_that_does_not_exist_is_one_finding() {
    let missing = |seen: &mut Observed| {
        seen.exchanges.insert("ns.park".to_owned(), Existence::Missing);
        seen.management.as_mut().unwrap().exchanges.remove("ns.park");
    };
    assert_eq!(found(&settings(), missing), ["exchange-missing"]);
}

#[test]
fn a_negative_delivery_limit_yields_to_another_one_and_alone_is_none_or_on_3_10_is_reached_at_once()
{
    let limit = |argument: Value, policy: Value, version: &str| {
        let mut details = details("orders", &Arguments::new());
        details.arguments.insert("x-delivery-limit".to_owned(), argument);
        details
            .effective_policy
            .get_or_insert_default()
            .insert("delivery-limit".to_owned(), policy);
        details.delivery_limit(Some(version))
    };
    let is = |argument: Option<i64>,
              policy: Option<i64>,
              on_4: DeliveryLimit,
              on_3: DeliveryLimit| {
        let (argument, policy) = (json!(argument), json!(policy));
        assert_eq!(limit(argument.clone(), policy.clone(), "4.0.5"), on_4, "{argument} {policy}");
        assert_eq!(limit(argument.clone(), policy.clone(), "3.10.8"), on_3, "{argument} {policy}");
    };
    use DeliveryLimit::{At, Unlimited, Unset};
    is(None, None, Unset, Unset);
    is(Some(3), Some(2), At(2), At(2));
    is(Some(-1), Some(3), At(3), At(0));
    is(Some(-1), None, Unlimited, At(0));
    is(None, Some(4), At(4), At(4));
}

#[test]
fn a_queue_at_rest_with_a_low_limit_of_its_own_is_found_unless_a_policy_sets_a_lower_one() {
    let wanted = rehop::internals::discarded(&rehop::internals::Names::new("ns")).queues.remove(0);
    let seen = |argument: Value, policy: Value| {
        let mut details = details("ns.discarded", &Arguments::new());
        details.arguments.insert("x-delivery-limit".to_owned(), argument);
        details
            .effective_policy
            .get_or_insert_default()
            .insert("delivery-limit".to_owned(), policy);
        argument_limit(&wanted, &details).map(|finding| finding.seen)
    };
    for (argument, policy, expected) in [
        (json!(5), json!(null), true),
        (json!(5), json!(1000), true),
        (json!(1000), json!(5), false),
    ] {
        let seen = seen(argument.clone(), policy.clone());
        let is_found =
            seen.is_some_and(|seen| seen.starts_with("the argument x-delivery-limit is 5,"));
        assert_eq!(is_found, expected, "{argument} {policy}");
    }
    for argument in [json!(null), json!(-1), json!(1_000_000), json!(2_147_483_648_i64)] {
        assert_eq!(seen(argument.clone(), json!(null)), None, "{argument}");
    }
}

/// As where the broker collects no statistics (4.0).
#[test]
fn what_the_management_api_does_not_tell_is_neither_right_nor_wrong() {
    let silent = |seen: &mut Observed| {
        let management = seen.management.as_mut().unwrap();
        for queue in management.queues.values_mut() {
            let (name, kind) = (queue.name.clone(), queue.kind.clone());
            let arguments = queue.arguments.clone();
            *queue = QueueDetails { name, kind, arguments, ..QueueDetails::default() };
        }
        for node in &mut management.nodes {
            *node = Node { name: node.name.clone(), ..Node::default() };
        }
    };
    for settings in [settings(), theirs()] {
        assert_eq!(found(&settings, silent), [""; 0]);
    }
    let mut details = details("orders.parked", &Arguments::new());
    details.arguments.insert("x-delivery-limit".to_owned(), 2_147_483_648_i64.into());
    assert_eq!(details.delivery_limit(Some("4.0.5")), DeliveryLimit::At(2_147_483_648));
    details.effective_policy = None;
    assert_eq!(details.delivery_limit(Some("4.0.5")), DeliveryLimit::Unknown);
    details.effective_policy = Some(serde_json::Map::new());
    details.arguments.insert("x-delivery-limit".to_owned(), (-1).into());
    assert_eq!(details.delivery_limit(None), DeliveryLimit::Unknown);
}

#[test]
fn what_is_wrong_with_the_cluster_is_found() {
    let cluster = |change: fn(&mut Management)| {
        found(&settings(), |seen| change(seen.management.as_mut().unwrap()))
    };
    assert_eq!(cluster(|it| it.nodes[0].mem_alarm = Some(true)), ["alarm"]);
    assert_eq!(cluster(|it| it.nodes[0].disk_free_alarm = Some(true)), ["alarm"]);
    assert_eq!(
        found(&settings(), |seen| (seen.management, seen.is_blocked) = (None, true)),
        ["alarm"]
    );
    let blocked_by = |change: fn(&mut Node)| {
        found(&settings(), |seen| {
            seen.is_blocked = true;
            change(&mut seen.management.as_mut().unwrap().nodes[0]);
        })
    };
    assert_eq!(blocked_by(|it| it.mem_alarm = Some(true)), ["alarm"], "told once, with its node");
    assert_eq!(
        blocked_by(|it| it.partitions = Some(vec!["two".to_owned()])),
        ["partition", "alarm"]
    );
    assert_eq!(cluster(|it| it.nodes[0].partitions = Some(vec!["two".to_owned()])), ["partition"]);
    assert_eq!(
        cluster(|it| it.nodes.push(Node { running: Some(false), ..node("two") })),
        ["node-down"]
    );
    let other = |it: &mut Management| {
        it.nodes.push(node("two"));
        it.nodes[1].applications[0].version = "4.2.0".to_owned();
    };
    assert_eq!(cluster(other), ["versions-mixed"]);
    let flag = |state: &str, stability: &str| {
        found(&settings(), |seen| {
            let flag = Flag {
                name: "x".to_owned(),
                state: state.to_owned(),
                stability: stability.to_owned(),
            };
            seen.management.as_mut().unwrap().flags.push(flag);
        })
    };
    assert_eq!(flag("disabled", "stable"), ["feature-flag-disabled"]);
    assert_eq!((flag("disabled", "experimental"), flag("enabled", "stable")), (vec![], vec![]));
}

#[test]
fn a_queue_whose_members_are_down_few_or_even_is_found() {
    let members = |members: &[&str], online: &[&str], nodes: usize| {
        found(&settings(), |seen| {
            seen.management.as_mut().unwrap().nodes =
                (0..nodes).map(|number| node(&number.to_string())).collect();
            let details = queue(seen, "orders");
            details.members = Some(members.iter().map(|&name| name.to_owned()).collect());
            details.online = Some(online.iter().map(|&name| name.to_owned()).collect());
            for name in
                ["orders.parked", "ns.stray", "ns.wait.10000", "ns.wait.60000", "ns.wait.600000"]
            {
                queue(seen, name).members = None;
            }
        })
    };
    assert_eq!(members(&["a", "b", "c"], &["a", "b", "c"], 3), [""; 0]);
    assert_eq!(members(&["a", "b", "c"], &["a", "b"], 3), ["member-down"]);
    assert_eq!(members(&["a", "b", "c"], &["a"], 3), ["without-majority"]);
    assert_eq!(members(&["a"], &["a"], 3), ["few-members"]);
    assert_eq!(members(&["a", "b"], &["a", "b"], 2), ["even-members"]);
    assert_eq!(members(&["a", "b", "c", "d"], &["a", "b", "c", "d"], 4), ["even-members"]);
    assert_eq!(
        members(&["a", "b", "c", "d"], &["a", "b"], 4),
        ["without-majority", "even-members"]
    );
}

#[test]
fn consumers_that_are_absent_or_where_none_should_be_and_short_timeouts_are_found() {
    assert_eq!(
        found(&settings(), |seen| seen.queues.get_mut("orders").unwrap().consumers = 0),
        ["no-consumer"]
    );
    assert_eq!(
        found(&settings(), |seen| seen.queues.get_mut("ns.wait.10000").unwrap().consumers = 1),
        ["consumer-on-wait-queue"]
    );
    let node = |millis: u64| {
        found(&settings(), |seen| {
            queue(seen, "orders").subscriptions.as_mut().unwrap()[0].consumer_timeout = Some(millis)
        })
    };
    assert_eq!((node(1_799_999), node(1_800_000)), (vec!["consumer-timeout-short"], vec![]));
    assert_eq!(
        found(&settings(), |seen| policy(seen, "orders", "consumer-timeout", 60_000.into())),
        ["consumer-timeout-short"]
    );
    let harm = |settings: &Settings| {
        let subject = Subject::of(settings).unwrap();
        let mut seen = healthy(&subject);
        policy(&mut seen, "orders", "consumer-timeout", 600_000.into());
        findings(&subject, &seen, NOW).remove(0).seen
    };
    let mut holding = settings();
    holding.retry.strategy = Some(WaitStrategy::InProcess);
    assert!(harm(&settings()).contains("wait for a handler"), "{}", harm(&settings()));
    assert!(harm(&holding).contains("wait in the process"), "{}", harm(&holding));
    holding.consume.order = Some(Order::Queue);
    assert!(harm(&holding).contains("comes back together, counted"), "{}", harm(&holding));
    let mut slow = settings();
    slow.consume.handler_timeout = Some(Duration::from_secs(600));
    assert!(harm(&slow).contains("handlers may run for 10m, so"), "{}", harm(&slow));
}

#[test]
fn an_ack_timeout_that_a_consumer_asks_for_beats_all_others_from_4_3_on() {
    let with = |asked: u64, version: &str| {
        found(&settings(), |seen| {
            policy(seen, "orders", "consumer-timeout", 60_000.into());
            queue(seen, "orders").subscriptions.as_mut().unwrap()[0]
                .arguments
                .insert("x-consumer-timeout".to_owned(), asked.into());
            seen.management.as_mut().unwrap().nodes[0].applications[0].version = version.to_owned();
        })
    };
    assert_eq!(with(1_800_000, "4.3.6"), [""; 0]);
    assert_eq!(
        with(1_799_999, "4.3.6"),
        ["consumer-timeout-short"],
        "the service runs with other settings"
    );
    assert_eq!(with(1_800_000, "4.0.5"), ["consumer-timeout-short"]);
    let without_consumer = |settings: &Settings, version: &str| {
        found(settings, |seen| {
            policy(seen, "orders", "consumer-timeout", 60_000.into());
            queue(seen, "orders").subscriptions = Some(Vec::new());
            seen.management.as_mut().unwrap().nodes[0].applications[0].version = version.to_owned();
        })
    };
    assert_eq!(without_consumer(&settings(), "4.3.6"), [""; 0], "its consumers will ask");
    assert_eq!(without_consumer(&settings(), "4.0.5"), ["consumer-timeout-short"]);
    let is_short = |settings: &Settings, change: fn(&mut QueueDetails)| {
        let found = found(settings, |seen| {
            policy(seen, "orders", "consumer-timeout", 60_000.into());
            change(queue(seen, "orders"));
        });
        found.contains(&"consumer-timeout-short")
    };
    let asking = |it: &mut QueueDetails| {
        let subscription = &mut it.subscriptions.as_mut().unwrap()[0];
        subscription.arguments.insert("x-consumer-timeout".to_owned(), 1_800_000.into());
    };
    assert!(!is_short(&theirs(), asking), "what its owner sets does not matter then");
    assert!(
        !is_short(&theirs(), |it| it.subscriptions = Some(Vec::new())),
        "its consumers will ask"
    );
    let mut perhaps_classic = theirs();
    perhaps_classic.queue_mut("orders").queue_type = None;
    assert!(
        is_short(&perhaps_classic, |it| it.subscriptions = Some(Vec::new())),
        "of a queue that may be classic rehop asks nothing"
    );
}

#[test]
fn a_queue_that_waits_long_for_a_consumer_whose_node_has_died_is_found_from_4_3_on() {
    const CHECK: &str = "disconnected-timeout-long";
    let by_policy = |millis: u64, version: &str| {
        found(&settings(), |seen| {
            policy(seen, "orders", "consumer-disconnected-timeout", millis.into());
            seen.management.as_mut().unwrap().nodes[0].applications[0].version = version.to_owned();
        })
    };
    assert_eq!((by_policy(60_000, "4.3.6"), by_policy(60_001, "4.3.6")), (vec![], vec![CHECK]));
    assert_eq!(by_policy(60_001, "4.0.5"), [""; 0], "it takes the policy, and ignores it");
    let mut ordered = settings();
    ordered.consume.order = Some(Order::Queue);
    ordered.retry.strategy = Some(WaitStrategy::InProcess);
    let subject = Subject::of(&ordered).unwrap();
    let mut seen = healthy(&subject);
    queue(&mut seen, "orders")
        .arguments
        .insert("x-consumer-disconnected-timeout".to_owned(), 600_000.into());
    let found = findings(&subject, &seen, NOW);
    let [finding] = &found[..] else { panic!("{found:?}") };
    let says = "the argument x-consumer-disconnected-timeout sets consumer-disconnected-timeout to 10m: if the node that its \
                consumer is connected to dies, the queue stands still for that long";
    assert_eq!((finding.check.id(), finding.seen.as_str()), (CHECK, says));
}

#[test]
fn messages_that_are_stuck_stray_or_parked_for_long_are_found() {
    assert_eq!(
        found(&settings(), |seen| queue(seen, "ns.wait.10000").messages_dlx = Some(1)),
        ["dead-lettering-stuck"]
    );
    assert_eq!(
        found(&settings(), |seen| seen.queues.get_mut("ns.stray").unwrap().ready = 1),
        ["stray-not-empty"]
    );
    const HOUR: i64 = 60 * 60 * 1000;
    let parked = |millis_ago: i64| {
        examined(&settings(), |seen| {
            let since = Timestamp::from_millis(NOW.as_millis() - millis_ago);
            seen.oldest_parked = BTreeMap::from([("orders.parked".to_owned(), since)]);
            seen.queues.get_mut("orders.parked").unwrap().ready = 7;
        })
    };
    assert!(parked(24 * HOUR).is_empty());
    assert_eq!(parked(24 * HOUR + 1)[0].check, Check::ParkedOld);
    let Finding { seen, remedy, .. } = parked(26 * HOUR - 1).remove(0);
    assert_eq!(seen, "it holds 7 messages, and the oldest has been there for 1day 1h");
    assert!(remedy.contains("`rehop parked replay --queue orders`"), "{remedy}");
}

#[test]
fn a_wait_queue_that_is_not_used_is_told_with_what_is_known_of_it_unless_nothing_is() {
    for (messages, consumers, expected) in [
        (Some(0), 0, Some("it is empty")),
        (Some(1), 0, Some("messages still wait in it, and will return")),
        (Some(0), 1, Some("somebody consumes from it")),
        (None, 0, None),
    ] {
        let found = examined(&settings(), |seen| {
            let arguments = Arguments::from([
                ("x-message-ttl".to_owned(), Argument::Number(700)),
                ("x-dead-letter-exchange".to_owned(), Argument::Text("ns.return".to_owned())),
            ]);
            let unused = QueueDetails {
                messages,
                consumers: Some(consumers),
                ..details("ns.wait.700", &arguments)
            };
            seen.management.as_mut().unwrap().wait_queues.push(unused);
        });
        let told: Vec<_> =
            found.iter().map(|finding| (finding.check, finding.seen.as_str())).collect();
        assert_eq!(told, Vec::from_iter(expected.map(|seen| (Check::UnusedTier, seen))));
    }
}

#[test]
fn a_management_api_that_cannot_be_used_is_a_finding() {
    let problem = |seen: &mut Observed| {
        seen.management = None;
        seen.management_problem = Some("no answer in time".to_owned());
    };
    assert_eq!(found(&settings(), problem), ["management-unusable"]);
}

#[test]
fn every_finding_says_what_was_seen_and_what_to_do_about_it() {
    let subject = Subject::of(&settings()).unwrap();
    let mut seen = healthy(&subject);
    policy(&mut seen, "orders", "delivery-limit", 2.into());
    let found = findings(&subject, &seen, NOW);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].seen.contains("policy \"theirs\" sets delivery-limit 2, below 10"),
        "{}",
        found[0].seen
    );
    assert!(found[0].remedy.contains("raise it in policy \"theirs\""), "{}", found[0].remedy);
}
