use serde_json::json;

use super::*;
use crate::doctor::observed::{Denied, Management, QueueState, declaring};
use rehop::Settings;
use rehop::settings::WaitStrategy;

fn planned(change: impl FnOnce(&mut Settings, &mut Observed)) -> Plan {
    let mut settings = Settings::default();
    settings.namespace = "ns".to_owned();
    settings.queue_mut("orders");
    let present = || Existence::Present { difference: None };
    let mut seen = Observed::default();
    let subject = Subject::of(&settings).unwrap();
    seen.exchanges.extend(
        subject.topology.exchanges.iter().map(|exchange| (exchange.name.clone(), present())),
    );
    let state = || QueueState { existence: present(), ready: 0, consumers: 0 };
    seen.queues.extend(subject.topology.queues.iter().map(|queue| (queue.name.clone(), state())));
    change(&mut settings, &mut seen);
    plan(&Subject::of(&settings).unwrap(), &seen)
}

fn part_of<'a>(plan: &'a Plan, object: &str) -> &'a Planned {
    plan.parts
        .iter()
        .find(|part| part.object == object)
        .unwrap_or_else(|| panic!("no {object}: {plan:?}"))
}

fn differs(argument: &str, wanted: &str, found: &str) -> Existence {
    let [argument, wanted, found] = [argument, wanted, found].map(str::to_owned);
    Existence::Present { difference: Some(Difference { argument, wanted, found }) }
}

#[test]
fn nothing_changes_where_everything_is_in_place() {
    let plan = planned(|_, _| {});
    assert!(
        plan.is_in_place() && plan.parts.iter().all(|part| part.action == Action::Keep),
        "{plan:?}"
    );
}

#[test]
fn what_is_missing_is_created_unless_it_belongs_to_somebody_else() {
    let plan = planned(|settings, seen| {
        settings.queue_mut("theirs").declare = Declare::Existing;
        settings.queue_mut("orders").bindings =
            vec![rehop::settings::BindingSettings::new("shop", "")];
        let missing = || QueueState { existence: Existence::Missing, ready: 0, consumers: 0 };
        seen.queues.insert("theirs".to_owned(), missing());
        seen.queues.insert("ns.stray".to_owned(), missing());
        seen.exchanges.insert("shop".to_owned(), Existence::Missing);
    });
    let action = |object: &str| part_of(&plan, object).action;
    assert_eq!(action("queue \"ns.stray\""), Action::Create);
    assert_eq!(action("queue \"theirs\""), Action::Missing);
    assert_eq!(action("exchange \"shop\""), Action::Missing);
    assert!(!plan.is_in_place());
}

/// The broker names only the first difference, and none to a user who may not declare.
#[test]
fn what_the_management_api_shows_to_differ_is_refused_and_what_it_does_not_show_is_as_the_broker_says()
 {
    let plan = planned(|settings, seen| {
        let mut management = Management::default();
        let topology = Subject::of(settings).unwrap().topology;
        for queue in &topology.queues {
            let details = json!({ "arguments": queue.arguments });
            management.queues.insert(queue.name.clone(), serde_json::from_value(details).unwrap());
        }
        for exchange in &topology.exchanges {
            let details = json!({ "type": exchange.kind, "arguments": exchange.arguments });
            management
                .exchanges
                .insert(exchange.name.clone(), serde_json::from_value(details).unwrap());
        }
        management.exchanges.get_mut("ns.park").unwrap().kind = "topic".to_owned();
        management
            .queues
            .get_mut("orders")
            .unwrap()
            .arguments
            .insert("x-max-length".to_owned(), 5.into());
        seen.queues.get_mut("ns.stray").unwrap().existence =
            differs("x-overflow", "'reject-publish'", "none");
        management.bindings.insert("orders".to_owned(), Vec::new());
        seen.management = Some(management);
    });
    let changed: Vec<_> = plan.parts.iter().filter(|part| part.action != Action::Keep).collect();
    let told: Vec<_> = changed
        .iter()
        .map(|part| (part.object.as_str(), part.action, part.because.as_str()))
        .collect();
    let expected = [
        ("exchange \"ns.park\"", Action::Refuse, "type is \"topic\" and should be \"direct\""),
        ("queue \"ns.stray\"", Action::Refuse, "x-overflow is none and should be 'reject-publish'"),
        ("queue \"orders\"", Action::Refuse, "x-max-length is 5 and should be none"),
        (
            "binding of queue \"orders\" to exchange \"ns.return\"",
            Action::Create,
            "it does not exist",
        ),
    ];
    assert_eq!(told, expected);
}

#[test]
fn what_the_user_may_not_declare_is_refused_although_nothing_of_it_is_seen_to_differ() {
    let plan = planned(|_, seen| {
        seen.queues.get_mut("orders").unwrap().existence =
            differs("x-delivery-limit", "'10'", "'3'");
        let consuming = "consuming queue \"orders.parked\"".to_owned();
        seen.denied = [declaring("exchange \"ns.park\""), declaring("queue \"orders\""), consuming]
            .map(|what| Denied { what, problem: "ACCESS_REFUSED".to_owned() })
            .to_vec();
    });
    let refused = plan.parts.iter().filter(|part| part.action == Action::Refuse);
    let told: Vec<_> = refused.map(|part| (part.object.as_str(), part.because.as_str())).collect();
    let differs = "x-delivery-limit is '3' and should be '10'";
    assert_eq!(told, [("exchange \"ns.park\"", "ACCESS_REFUSED"), ("queue \"orders\"", differs)]);
    assert_eq!(part_of(&plan, "exchange \"ns.park\"").steps, [LEAST_PERMISSIONS]);
}

#[test]
fn a_queue_that_differs_has_steps_that_lose_no_message() {
    let plan = planned(|_, seen| {
        for (name, argument, wanted, found) in [
            ("orders", "x-delivery-limit", "'10'", "'3'"),
            ("orders.parked", "x-delivery-limit", "'2147483648'", "none"),
            ("ns.stray", "x-overflow", "'reject-publish'", "none"),
            ("ns.wait.10000", "x-overflow", "'reject-publish'", "none"),
        ] {
            seen.queues.get_mut(name).unwrap().existence = differs(argument, wanted, found);
        }
        seen.exchanges
            .insert("ns.park".to_owned(), differs("alternate-exchange", "'ns.stray'", "none"));
    });
    let steps = |object: &str| {
        let part = part_of(&plan, object);
        assert_eq!(part.action, Action::Refuse);
        part.steps.join("\n")
    };
    let work = steps("queue \"orders\"");
    assert!(
        work.starts_with("to keep the queue: set retry.delivery_limit to 3")
            && work.contains("orders.v2"),
        "{work}"
    );
    for part in ["ns.wait.*", "ns.ladder.*", "ns.delay", "declare = \"existing\""] {
        assert!(work.contains(part), "{part} is not in {work}");
    }
    let parked = steps("queue \"orders.parked\"");
    assert!(
        parked.contains("unbind queue orders.parked from exchange ns.park (routing key orders)"),
        "{parked}"
    );
    assert!(steps("queue \"ns.stray\"").contains("bind it to exchange ns.stray"));
    let wait = steps("queue \"ns.wait.10000\"");
    assert!(wait.starts_with("unbind queue ns.wait.10000 from exchange ns.wait"), "{wait}");
    assert!(steps("exchange \"ns.park\"").contains("rehop topology declare"));
}

/// A service declares again what its settings name, and every message would be handled twice.
#[test]
fn the_bindings_of_a_queue_that_is_replaced_leave_the_settings_before_it_is_unbound() {
    let steps = |bindings: &str| {
        let mut settings = Settings::default();
        settings.namespace = "ns".to_owned();
        settings.queue_mut("orders").bindings = serde_json::from_str(bindings).unwrap();
        let subject = Subject::of(&settings).unwrap();
        work_steps("orders", &[], &subject).join("\n")
    };
    let bound = steps(r#"[{ "exchange": "shop", "routing_key": "order.*" }]"#);
    let taken_out = bound.find("take `bindings` of the old queue out of the settings");
    assert!(taken_out.is_some() && taken_out < bound.find("unbind queue orders"), "{bound}");
    assert!(bound.contains("such as orders.v2, with the same `bindings`,"), "{bound}");
    let unbound = steps("[]");
    assert!(
        !unbound.contains("out of the settings") && unbound.contains("with the same bindings,"),
        "{unbound}"
    );
}

/// Taken as it is, it would not delay, or not serve one consumer at a time.
#[test]
fn a_queue_that_was_declared_for_another_strategy_or_order_is_not_to_be_taken_as_it_is() {
    for (argument, keys) in [
        ("x-delayed-retry-type", "retry.strategy and retry.delays"),
        ("x-delayed-retry-max", "retry.strategy and retry.delays"),
        ("x-single-active-consumer", "consume.order"),
    ] {
        let plan = planned(|_, seen| {
            seen.queues.get_mut("orders").unwrap().existence = differs(argument, "'1'", "none");
        });
        let steps = part_of(&plan, "queue \"orders\"").steps.join("\n");
        assert!(
            steps.starts_with(&format!(
                "to keep the queue: set the {keys} that it was declared for"
            )),
            "{steps}"
        );
        assert!(steps.contains("orders.v2") && !steps.contains("existing"), "{steps}");
    }
}

/// The management API and the broker put texts into different quotes.
#[test]
fn a_queue_of_another_namespace_is_recognised_by_its_dead_letter_exchange_whoever_shows_it() {
    for (argument, found, is_another) in [
        ("x-dead-letter-exchange", "\"billing.park\"", true),
        ("x-dead-letter-exchange", "'billing.park'", true),
        ("x-dead-letter-exchange", "'theirs'", false),
        ("x-dead-letter-routing-key", "'billing.park'", false),
    ] {
        let plan = planned(|_, seen| {
            seen.queues.get_mut("orders").unwrap().existence =
                differs(argument, "'ns.park'", found);
        });
        let first = &part_of(&plan, "queue \"orders\"").steps[0];
        assert_eq!(first.starts_with("it belongs to another namespace"), is_another, "{first}");
    }
}

#[test]
fn a_rung_of_the_ladder_is_unbound_from_every_exchange_that_leads_to_it() {
    let mut settings = Settings::default();
    settings.namespace = "ns".to_owned();
    settings.retry.strategy = Some(WaitStrategy::Ladder);
    settings.queue_mut("orders");
    let subject = Subject::of(&settings).unwrap();
    let rung = subject.topology.queues.iter().find(|queue| queue.name == "ns.ladder.1000").unwrap();
    let first = queue_steps(rung, &[], &subject).remove(0);
    let from = "unbind queue ns.ladder.1000 from exchange ns.ladder, ns.after.2000, ns.after.4000, ns.after.8000,";
    assert!(first.starts_with(from), "{first}");
}

#[test]
fn an_exchange_is_deleted_only_when_nothing_waits_in_it_or_depends_on_it() {
    let steps = |strategy: WaitStrategy, exchange: &str| {
        let mut settings = Settings::default();
        settings.namespace = "ns".to_owned();
        settings.retry.strategy = Some(strategy);
        settings.queue_mut("orders");
        exchange_steps(exchange, &Subject::of(&settings).unwrap())
    };
    for (exchange, meanwhile) in [
        ("ns.stray", "unroutable messages are returned to rehop"),
        ("ns.return", "messages whose wait is over stay in their wait queue"),
        ("ns.after.2000", "messages whose wait is over stay in their wait queue"),
        ("ns.ladder", "rehop keeps the originals of copies that it cannot publish"),
    ] {
        let steps = steps(WaitStrategy::Ladder, exchange);
        let [delete, declare] = &steps[..] else { panic!("{steps:?}") };
        let first = format!("delete exchange {exchange}; until the next step, {meanwhile}");
        assert!(
            delete.starts_with(&first)
                && declare == "immediately afterwards: rehop topology declare",
            "{steps:?}"
        );
    }
    let empty = "run the service with another retry.strategy until exchange ns.delay holds nothing";
    for (exchange, first, second) in [
        ("ns.delay", empty, "delete exchange ns.delay, then rehop topology declare"),
        ("ns.return", empty, "delete exchange ns.return; until"),
        (
            "ns.park",
            "delete exchange ns.park; until",
            "immediately afterwards: rehop topology declare",
        ),
    ] {
        let steps = steps(WaitStrategy::DelayedExchange, exchange);
        assert!(steps[0].starts_with(first) && steps[1].starts_with(second), "{steps:?}");
    }
    let by_operators =
        "delete exchange ns.discarded; the next `rehop parked discard` declares it again";
    assert_eq!(steps(WaitStrategy::Tiers, "ns.discarded"), [by_operators]);
}

#[test]
fn what_cannot_be_looked_at_is_unknown_and_told() {
    let plan = planned(|_, seen| {
        seen.queues.get_mut("orders").unwrap().existence =
            Existence::Hidden { problem: "ACCESS_REFUSED".to_owned() };
        seen.unseen.push("policies".to_owned());
        seen.management_problem = Some("no answer in time".to_owned());
    });
    assert_eq!(part_of(&plan, "queue \"orders\"").action, Action::Unknown);
    assert!(!plan.is_in_place());
    assert_eq!(plan.unseen, ["policies", "no answer in time"]);
}

#[test]
fn an_action_has_the_same_name_in_text_and_in_json() {
    for action in [Action::Keep, Action::Create, Action::Refuse, Action::Missing, Action::Unknown] {
        assert_eq!(serde_json::to_value(action).unwrap(), action.as_str());
    }
}
