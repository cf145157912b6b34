use serde_json::json;

use super::*;
use crate::doctor::observed::ConsumerDetails;

fn queue_named(
    name: &str,
    ttl: u64,
    then: &str,
    messages: Option<u64>,
    consumers: u32,
) -> QueueDetails {
    let arguments = json!({ "x-message-ttl": ttl, "x-dead-letter-exchange": then });
    QueueDetails {
        name: name.to_owned(),
        kind: "quorum".to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        messages,
        consumers: Some(consumers),
        ..QueueDetails::default()
    }
}

fn tier(name: &str, ttl: u64, messages: Option<u64>, consumers: u32) -> QueueDetails {
    queue_named(name, ttl, "ns.return", messages, consumers)
}

fn rung(ttl: u64, messages: u64) -> QueueDetails {
    queue_named(&format!("ns.ladder.{ttl}"), ttl, &format!("ns.after.{ttl}"), Some(messages), 0)
}

fn exchange_named(name: &str, alternate: &str) -> ExchangeDetails {
    let arguments = json!({ "alternate-exchange": alternate });
    ExchangeDetails {
        name: name.to_owned(),
        kind: "headers".to_owned(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
        ..ExchangeDetails::default()
    }
}

/// A ladder of these rungs, each with this many messages.
fn ladder(rungs: &[(u64, u64)]) -> Management {
    let mut exchanges: Vec<_> = rungs
        .iter()
        .map(|(ttl, _)| exchange_named(&format!("ns.after.{ttl}"), "ns.return"))
        .collect();
    exchanges.push(exchange_named("ns.ladder", "ns.stray"));
    Management {
        wait_queues: rungs.iter().map(|(ttl, messages)| rung(*ttl, *messages)).collect(),
        wait_exchanges: exchanges,
        ..Management::default()
    }
}

/// A consumer of queue `orders` with these arguments.
fn consumed(seen: &mut Management, arguments: Value) {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let subscription = ConsumerDetails { arguments, ..ConsumerDetails::default() };
    let known = seen.consumers.entry("orders".to_owned()).or_insert_with(|| Some(Vec::new()));
    known.as_mut().unwrap().push(subscription);
}

fn verdicts(used: &[&str], seen: &Management) -> Vec<(String, Verdict)> {
    let found = unused(&Names::new("ns"), &used.iter().copied().collect(), seen);
    found.into_iter().map(|unused| (unused.name, unused.verdict)).collect()
}

fn named(expected: &[(&str, Verdict)]) -> Vec<(String, Verdict)> {
    expected.iter().map(|(name, verdict)| ((*name).to_owned(), *verdict)).collect()
}

#[test]
fn only_an_empty_wait_queue_of_this_namespace_that_no_setting_uses_may_go() {
    let check = |queue: QueueDetails, expected: Option<Verdict>| {
        let shown = format!("{queue:?}");
        let seen = Management { wait_queues: vec![queue], ..Management::default() };
        let found: Vec<_> =
            verdicts(&["ns.wait.500"], &seen).into_iter().map(|(_, verdict)| verdict).collect();
        assert_eq!(found, Vec::from_iter(expected), "{shown}");
    };
    check(tier("ns.wait.700", 700, Some(0), 0), Some(Verdict::Removable));
    check(tier("ns.wait.700", 700, Some(1), 0), Some(Verdict::HasMessages));
    check(tier("ns.wait.700", 700, None, 0), Some(Verdict::NotCounted));
    check(tier("ns.wait.700", 700, Some(0), 1), Some(Verdict::HasConsumers));
    let of = |change: fn(&mut QueueDetails)| {
        let mut queue = tier("ns.wait.700", 700, Some(0), 0);
        change(&mut queue);
        queue
    };
    check(of(|queue| queue.consumers = None), Some(Verdict::NotCounted));
    let members = |online: &[&str]| {
        let mut queue = tier("ns.wait.700", 700, Some(0), 0);
        let named = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect());
        (queue.members, queue.online) = (named(&["a", "b", "c"]), named(online));
        queue
    };
    check(members(&["a"]), Some(Verdict::NoMajority));
    check(members(&["a", "c"]), Some(Verdict::Removable));
    check(of(|queue| queue.state = Some("minority".to_owned())), Some(Verdict::NoMajority));
    check(of(|queue| queue.state = Some("down".to_owned())), Some(Verdict::NotCounted));
    check(of(|queue| queue.state = Some("running".to_owned())), Some(Verdict::Removable));
    check(of(|queue| queue.kind = "classic".to_owned()), Some(Verdict::NotOurs));
    check(of(|queue| queue.kind = String::new()), Some(Verdict::NotOurs));
    check(tier("ns.wait.700", 800, Some(0), 0), Some(Verdict::NotOurs));
    check(tier("ns.wait.500", 500, Some(0), 0), None);
    check(tier("ns.wait.0700", 700, Some(0), 0), None);
    check(tier("ns.wait.x", 700, Some(0), 0), None);
    check(tier("ns.wait.+700", 700, Some(0), 0), None);
    check(tier("other.wait.700", 700, Some(0), 0), None);
    check(queue_named("ns.wait.700", 700, "theirs", Some(0), 0), Some(Verdict::NotOurs));
    check(queue_named("ns.ladder.700", 700, "ns.return", Some(0), 0), Some(Verdict::NotOurs));
    check(rung(700, 0), Some(Verdict::Removable));
}

#[test]
fn a_ladder_that_no_setting_asks_for_goes_with_all_of_its_exchanges() {
    let expected = [
        ("ns.ladder.100", Verdict::Removable),
        ("ns.ladder.200", Verdict::Removable),
        ("ns.after.100", Verdict::Removable),
        ("ns.after.200", Verdict::Removable),
        ("ns.ladder", Verdict::Removable),
    ];
    assert_eq!(verdicts(&[], &ladder(&[(100, 0), (200, 0)])), named(&expected));
}

#[test]
fn an_exchange_stays_for_as_long_as_a_wait_queue_needs_it() {
    let expected = [
        ("ns.ladder.100", Verdict::Removable),
        ("ns.ladder.200", Verdict::HasMessages),
        ("ns.after.100", Verdict::Removable),
        ("ns.after.200", Verdict::Needed),
        ("ns.ladder", Verdict::Needed),
    ];
    assert_eq!(verdicts(&[], &ladder(&[(100, 0), (200, 1)])), named(&expected));
    // Another ladder has taken the place of this one.
    let expected = [("ns.ladder.100", Verdict::Removable), ("ns.after.100", Verdict::Removable)];
    assert_eq!(verdicts(&["ns.ladder.200"], &ladder(&[(100, 0), (200, 0)])), named(&expected));
}

#[test]
fn wait_queues_of_single_queues_go_with_the_exchanges_that_lead_to_them() {
    let mut seen = ladder(&[(100, 0)]);
    seen.wait_queues.extend([
        tier("ns.wait.orders.500", 500, Some(0), 0),
        tier("ns.wait.bills.500", 500, Some(1), 0),
        tier("ns.wait.mails.500", 500, Some(0), 0),
        queue_named("ns.ladder.orders.100", 100, "ns.after.orders.100", Some(0), 0),
        // Those of the namespace "ns.wait".
        queue_named("ns.wait.wait.500", 500, "ns.wait.return", Some(0), 0),
    ]);
    let own = [
        ("ns.wait.orders", "ns.stray"),
        ("ns.wait.bills", "ns.stray"),
        ("ns.wait.mails", "ns.stray"),
        ("ns.ladder.orders", "ns.stray"),
        ("ns.after.orders.100", "ns.return"),
        ("ns.wait", "ns.stray"),
        ("ns.wait.return", "ns.wait.stray"),
    ];
    seen.wait_exchanges.extend(own.map(|(name, alternate)| exchange_named(name, alternate)));
    let expected = [
        ("ns.wait.bills.500", Verdict::HasMessages),
        ("ns.wait.orders.500", Verdict::Removable),
        ("ns.ladder.orders.100", Verdict::Removable),
        ("ns.after.orders.100", Verdict::Removable),
        ("ns.ladder.orders", Verdict::Removable),
        ("ns.wait.bills", Verdict::Needed),
        ("ns.wait.orders", Verdict::Removable),
    ];
    let used = ["ns.ladder.100", "ns.wait.mails.500"];
    assert_eq!(verdicts(&used, &seen), named(&expected));
    // A process with other settings runs.
    let waits_in = "ladder.orders.100 wait.orders.500";
    consumed(&mut seen, json!({ "rehop-namespace": "ns", "rehop-waits-in": waits_in }));
    let in_use = expected.map(|(name, verdict)| match verdict {
        Verdict::Removable if name.starts_with("ns.after.") => (name, Verdict::Needed),
        Verdict::Removable => (name, Verdict::InUse),
        verdict => (name, verdict),
    });
    assert_eq!(verdicts(&used, &seen), named(&in_use));
}

#[test]
fn exchanges_that_a_prune_has_left_behind_go_and_those_of_others_stay() {
    let mut seen = ladder(&[(100, 0)]);
    seen.wait_queues.clear();
    assert_eq!(
        verdicts(&[], &seen),
        named(&[("ns.after.100", Verdict::Removable), ("ns.ladder", Verdict::Removable)])
    );
    consumed(&mut seen, json!({ "rehop-namespace": "ns", "rehop-waits-in": "ladder.100" }));
    assert_eq!(
        verdicts(&[], &seen),
        named(&[("ns.after.100", Verdict::InUse), ("ns.ladder", Verdict::InUse)])
    );
    seen.wait_exchanges =
        vec![exchange_named("ns.after.100", "theirs"), exchange_named("ns.ladder", "theirs")];
    assert_eq!(
        verdicts(&[], &seen),
        named(&[("ns.after.100", Verdict::NotOurs), ("ns.ladder", Verdict::NotOurs)])
    );
}

#[test]
fn what_a_running_consumer_uses_stays() {
    let mut seen = ladder(&[(100, 0), (200, 0)]);
    seen.wait_queues.push(tier("ns.wait.500", 500, Some(0), 0));
    seen.wait_queues.push(tier("ns.wait.700", 700, Some(0), 0));
    consumed(
        &mut seen,
        json!({ "rehop-namespace": "ns", "rehop-waits-in": "wait.700 ladder.200" }),
    );
    consumed(&mut seen, json!({ "rehop-namespace": "other", "rehop-waits-in": "wait.500" }));
    let expected = [
        ("ns.wait.500", Verdict::Removable),
        ("ns.wait.700", Verdict::InUse),
        ("ns.ladder.100", Verdict::Removable),
        ("ns.ladder.200", Verdict::InUse),
        ("ns.after.100", Verdict::Removable),
        ("ns.after.200", Verdict::Needed),
        ("ns.ladder", Verdict::InUse),
    ];
    assert_eq!(verdicts(&[], &seen), named(&expected));
    let found = unused(&Names::new("ns"), &BTreeSet::new(), &seen);
    assert_eq!((&found[0].used_by, &found[1].used_by), (&vec![], &vec!["orders".to_owned()]));
}

#[test]
fn a_consumer_that_announces_nothing_may_use_anything_that_is_empty() {
    let mut seen = ladder(&[(100, 0), (200, 1)]);
    seen.wait_queues.push(tier("ns.wait.500", 500, Some(0), 0));
    consumed(&mut seen, json!({}));
    let found = unused(&Names::new("ns"), &BTreeSet::new(), &seen);
    let expected = [
        ("ns.wait.500", Verdict::MayBeInUse),
        ("ns.ladder.100", Verdict::MayBeInUse),
        ("ns.ladder.200", Verdict::HasMessages),
        ("ns.after.100", Verdict::MayBeInUse),
        ("ns.after.200", Verdict::Needed),
        ("ns.ladder", Verdict::Needed),
    ];
    assert_eq!(verdicts(&[], &seen), named(&expected));
    assert_eq!(found[0].used_by, ["orders"]);
    let mut empty = ladder(&[(100, 0)]);
    consumed(&mut empty, json!({}));
    let expected =
        ["ns.ladder.100", "ns.after.100", "ns.ladder"].map(|name| (name, Verdict::MayBeInUse));
    assert_eq!(verdicts(&[], &empty), named(&expected));
}

#[test]
fn nothing_goes_while_the_consumers_of_a_work_queue_are_not_known() {
    let mut seen = ladder(&[(100, 0), (200, 1)]);
    seen.wait_queues.push(tier("ns.wait.500", 500, Some(0), 0));
    consumed(&mut seen, json!({}));
    seen.consumers.insert("bills".to_owned(), None);
    let expected = [
        ("ns.wait.500", Verdict::UseUnknown),
        ("ns.ladder.100", Verdict::UseUnknown),
        ("ns.ladder.200", Verdict::HasMessages),
        ("ns.after.100", Verdict::Needed),
        ("ns.after.200", Verdict::Needed),
        ("ns.ladder", Verdict::Needed),
    ];
    assert_eq!(verdicts(&[], &seen), named(&expected));
    assert_eq!(unused(&Names::new("ns"), &BTreeSet::new(), &seen)[0].used_by, ["bills"]);
    seen.wait_queues.clear();
    let left = ["ns.after.100", "ns.after.200", "ns.ladder"];
    assert_eq!(verdicts(&[], &seen), named(&left.map(|name| (name, Verdict::UseUnknown))));
}

#[test]
fn what_can_be_pruned_has_the_same_name_in_text_and_in_json() {
    for object in [Prunable::Queue, Prunable::Exchange] {
        assert_eq!(serde_json::to_value(object).unwrap(), object.as_str());
    }
}
