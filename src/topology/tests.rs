//! The whole topology, as a table.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::AMQPValue;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::Settings;
use crate::inputs::inputs;
use crate::message::{Address, Delivery};
use crate::retry::decision::tests::fresh;
use crate::retry::ledger::Wait;
use crate::settings::BindingSettings;
use crate::settings::LadderSettings;
use crate::timestamp::Timestamp;
use crate::wait::{AskedDelays, Path, Route, WaitQueues};
use crate::wire::names::EXPIRES_AT;
use crate::wire::{Contract, Room, TraceHeaders};

/// One line for each exchange, queue and binding, with its arguments.
fn listing(topology: &Topology) -> Vec<String> {
    let with = |line: String, arguments: &Arguments| {
        arguments.iter().fold(line, |line, (name, value)| format!("{line} {name}={value}"))
    };
    let exchanges = topology.exchanges.iter().map(|exchange| {
        with(format!("exchange {} {}", exchange.name, exchange.kind.as_str()), &exchange.arguments)
    });
    let queues = topology.queues.iter().map(|queue| {
        with(
            format!("queue {} {:?} {:?}", queue.name, queue.role, queue.declare).to_lowercase(),
            &queue.arguments,
        )
    });
    let bindings = topology.bindings.iter().map(|binding| {
        let line =
            format!("bind {} -> {} {:?}", binding.exchange, binding.queue, binding.routing_key);
        with(line, &binding.arguments)
    });
    let of_exchanges = topology
        .exchange_bindings
        .iter()
        .map(|binding| format!("bind exchange {} -> {}", binding.source, binding.destination));
    exchanges.chain(queues).chain(bindings).chain(of_exchanges).collect()
}

fn settings(delays: &[u64]) -> Settings {
    let mut settings = Settings { namespace: "ns".to_owned(), ..Settings::default() };
    settings.retry.delays =
        Some(crate::Backoff::List(delays.iter().copied().map(Duration::from_millis).collect()));
    settings
}

#[test]
fn the_topology_of_one_queue_is_complete() {
    let mut settings = settings(&[500, 10_000, 500]);
    let queue = settings.queue_mut("orders");
    queue.retry.delivery_limit = Some(5);
    queue
        .bindings
        .push(BindingSettings { exchange: "shop".to_owned(), routing_key: "order.*".to_owned() });
    let dead_letters = "x-dead-letter-exchange=ns.return x-dead-letter-strategy=at-least-once";
    let keeps = "x-dead-letter-exchange=ns.stray x-dead-letter-strategy=at-least-once x-delivery-limit=2147483648 \
                 x-overflow=reject-publish x-queue-type=quorum";
    let expected = [
        "exchange ns.stray fanout".to_owned(),
        "exchange ns.wait headers alternate-exchange=ns.stray".to_owned(),
        "exchange ns.return headers alternate-exchange=ns.stray".to_owned(),
        "exchange ns.park direct alternate-exchange=ns.stray".to_owned(),
        format!("queue ns.stray stray own {keeps}"),
        format!(
            "queue ns.wait.500 wait own {dead_letters} x-message-ttl=500 x-overflow=reject-publish x-queue-type=quorum"
        ),
        format!(
            "queue ns.wait.10000 wait own {dead_letters} x-message-ttl=10000 x-overflow=reject-publish x-queue-type=quorum"
        ),
        format!("queue orders.parked parked own {keeps}"),
        "queue orders work own x-dead-letter-exchange=ns.park x-dead-letter-routing-key=orders \
         x-dead-letter-strategy=at-least-once x-delivery-limit=5 x-overflow=reject-publish x-queue-type=quorum"
            .to_owned(),
        "bind ns.stray -> ns.stray \"\"".to_owned(),
        "bind ns.wait -> ns.wait.500 \"\" rehop-wait-for=500 x-match=all".to_owned(),
        "bind ns.wait -> ns.wait.10000 \"\" rehop-wait-for=10000 x-match=all".to_owned(),
        "bind ns.park -> orders.parked \"orders\"".to_owned(),
        "bind ns.return -> orders \"\" rehop-return-to=orders x-match=all".to_owned(),
        "bind shop -> orders \"order.*\"".to_owned(),
    ];
    assert_eq!(listing(&Topology::of(&settings).unwrap()), expected);
}

#[test]
fn an_existing_queue_is_bound_and_not_declared() {
    let mut settings = settings(&[500]);
    let queue = settings.queue_mut("orders");
    queue.declare = Declare::Existing;
    queue.parked = Some("dead".to_owned());
    let lines = listing(&Topology::of(&settings).unwrap());
    assert!(lines.contains(&"queue orders work existing".to_owned()), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("queue dead parked own ")), "{lines:#?}");
    assert!(
        lines.contains(
            &"bind ns.return -> orders \"\" rehop-return-to=orders x-match=all".to_owned()
        ),
        "{lines:#?}"
    );
}

#[test]
fn queues_share_the_tiers_of_their_namespace() {
    let mut settings = settings(&[500, 1_000]);
    settings.queue_mut("a");
    settings.queue_mut("b").retry.delays =
        Some(crate::Backoff::List(vec![Duration::from_millis(1_000), Duration::from_secs(2)]));
    settings.queue_mut("c").retry.delays = Some(crate::Backoff::List(vec![]));
    let topology = Topology::of(&settings).unwrap();
    let waits: Vec<_> = topology
        .queues
        .iter()
        .filter(|queue| queue.role == Role::Wait)
        .map(|queue| &queue.name)
        .collect();
    assert_eq!(waits, ["ns.wait.500", "ns.wait.1000", "ns.wait.2000"]);
}

#[test]
fn a_queue_has_wait_queues_of_its_own_if_somebody_else_declares_it_or_the_settings_say_so() {
    let mut settings = settings(&[500]);
    settings.ladder.max = Duration::from_secs(1);
    for (queue, wait_queues, declare) in [
        ("shares", None, Declare::Own),
        ("has", Some(WaitQueues::Own), Declare::Own),
        ("theirs", None, Declare::Existing),
        ("joins", Some(WaitQueues::Shared), Declare::Existing),
        ("climbs", Some(WaitQueues::Own), Declare::Own),
    ] {
        let queue = settings.queue_mut(queue);
        (queue.declare, queue.retry.wait_queues) = (declare, wait_queues);
    }
    settings.queue_mut("climbs").retry.strategy = Some(WaitStrategy::Ladder);
    let lines = listing(&Topology::of(&settings).unwrap());
    let waits = ["ns.wait", "ns.ladder", "ns.after"];
    let about_waits = lines.iter().filter(|line| waits.iter().any(|name| line.contains(name)));
    let keeps = "x-dead-letter-strategy=at-least-once";
    let queue = |name: &str, then: &str, ttl: u64| {
        format!(
            "queue {name} wait own x-dead-letter-exchange={then} {keeps} x-message-ttl={ttl} \
             x-overflow=reject-publish x-queue-type=quorum"
        )
    };
    let bound = |exchange: &str, queue: &str, ttl: u64| {
        format!("bind {exchange} -> {queue} \"\" rehop-wait-for={ttl} x-match=all")
    };
    let exchange = |name: &str| format!("exchange {name} headers alternate-exchange=ns.stray");
    let expected = [
        exchange("ns.wait"),
        exchange("ns.wait.has"),
        exchange("ns.wait.theirs"),
        exchange("ns.ladder.climbs"),
        "exchange ns.after.climbs.1000 headers alternate-exchange=ns.return".to_owned(),
        queue("ns.wait.500", "ns.return", 500),
        queue("ns.wait.has.500", "ns.return", 500),
        queue("ns.wait.theirs.500", "ns.return", 500),
        queue("ns.ladder.climbs.1000", "ns.after.climbs.1000", 1_000),
        bound("ns.wait", "ns.wait.500", 500),
        bound("ns.wait.has", "ns.wait.has.500", 500),
        bound("ns.wait.theirs", "ns.wait.theirs.500", 500),
        bound("ns.ladder.climbs", "ns.ladder.climbs.1000", 1_000),
    ];
    assert_eq!(about_waits.collect::<Vec<_>>(), Vec::from_iter(&expected));
    let Resolved { queues, .. } = settings.resolve().unwrap();
    let published_to: Vec<_> = copies_go_to(&Names::new("ns"), &queues).into_iter().collect();
    let to = ["ns.ladder.climbs", "ns.park", "ns.wait", "ns.wait.has", "ns.wait.theirs"];
    assert_eq!(published_to, to);
}

#[test]
fn what_an_operator_discards_is_kept_for_seven_days_and_then_deleted() {
    let keeps = "x-delivery-limit=2147483648 x-message-ttl=604800000 x-overflow=reject-publish x-queue-type=quorum";
    let expected = [
        "exchange ns.discarded fanout alternate-exchange=ns.stray".to_owned(),
        format!("queue ns.discarded discarded own {keeps}"),
        "bind ns.discarded -> ns.discarded \"\"".to_owned(),
    ];
    assert_eq!(listing(&discarded(&Names::new("ns"))), expected);
}

#[test]
fn two_namespaces_share_nothing_but_work_queues() {
    let names = |namespace: &str| {
        let mut settings = settings(&[500]);
        settings.namespace = namespace.to_owned();
        let topology = Topology::of(&settings).unwrap();
        let exchanges = topology.exchanges.into_iter().map(|exchange| exchange.name);
        exchanges
            .chain(topology.queues.into_iter().map(|queue| queue.name))
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert!(names("a").is_disjoint(&names("b")));
}

#[test]
fn a_confirm_means_that_a_copy_is_kept_because_no_exchange_is_without_an_alternate() {
    let mut settings = settings(&[500]);
    settings.retry.strategy = Some(WaitStrategy::Ladder);
    settings.queue_mut("orders");
    settings.queue_mut("own").retry.wait_queues = Some(WaitQueues::Own);
    settings.queue_mut("tiers").retry = settings.queue_mut("own").retry.clone();
    settings.queue_mut("tiers").retry.strategy = Some(WaitStrategy::Tiers);
    for exchange in Topology::of(&settings).unwrap().exchanges {
        // What has taken its last rung goes on to the return exchange.
        let other = if exchange.name.starts_with("ns.after.") { "ns.return" } else { "ns.stray" };
        let kept = exchange.name == "ns.stray"
            || exchange.arguments.get("alternate-exchange") == Some(&other.into());
        assert!(kept, "{exchange:?}");
    }
}

#[test]
fn a_ladder_adds_its_rungs_and_what_leads_from_one_to_the_next() {
    let mut settings = settings(&[500]);
    settings.retry.strategy = Some(WaitStrategy::Ladder);
    settings.ladder =
        LadderSettings { rung: Duration::from_secs(1), precision: 3, max: Duration::from_secs(8) };
    settings.queue_mut("orders");
    let lines = listing(&Topology::of(&settings).unwrap());
    let of_ladder: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("ns.ladder") || line.contains("ns.after"))
        .map(String::as_str)
        .collect();
    let keeps = "x-dead-letter-strategy=at-least-once";
    let rung = |ttl| {
        format!(
            "queue ns.ladder.{ttl} wait own x-dead-letter-exchange=ns.after.{ttl} {keeps} x-message-ttl={ttl} \
             x-overflow=reject-publish x-queue-type=quorum"
        )
    };
    let expected = [
        "exchange ns.ladder headers alternate-exchange=ns.stray".to_owned(),
        "exchange ns.after.1000 headers alternate-exchange=ns.return".to_owned(),
        "exchange ns.after.2000 headers alternate-exchange=ns.return".to_owned(),
        "exchange ns.after.4000 headers alternate-exchange=ns.return".to_owned(),
        "exchange ns.after.8000 headers alternate-exchange=ns.return".to_owned(),
        rung(1_000),
        rung(2_000),
        rung(4_000),
        rung(8_000),
        "bind ns.ladder -> ns.ladder.1000 \"\" rehop-wait-for=1000 x-match=all".to_owned(),
        "bind ns.ladder -> ns.ladder.2000 \"\" rehop-wait-for=2000 x-match=all".to_owned(),
        "bind ns.after.2000 -> ns.ladder.1000 \"\" rehop-then-2000=1000 x-match=all".to_owned(),
        "bind ns.ladder -> ns.ladder.4000 \"\" rehop-wait-for=4000 x-match=all".to_owned(),
        "bind ns.after.4000 -> ns.ladder.2000 \"\" rehop-then-4000=2000 x-match=all".to_owned(),
        "bind ns.after.4000 -> ns.ladder.1000 \"\" rehop-then-4000=1000 x-match=all".to_owned(),
        "bind ns.ladder -> ns.ladder.8000 \"\" rehop-wait-for=8000 x-match=all".to_owned(),
        "bind ns.after.8000 -> ns.ladder.4000 \"\" rehop-then-8000=4000 x-match=all".to_owned(),
        "bind ns.after.8000 -> ns.ladder.2000 \"\" rehop-then-8000=2000 x-match=all".to_owned(),
    ];
    assert_eq!(of_ladder, expected);
    assert!(!lines.iter().any(|line| line.contains("ns.wait.")), "no tier is needed");
}

#[test]
fn a_delayed_exchange_leads_to_the_return_exchange_and_has_no_alternate() {
    let mut settings = settings(&[500]);
    settings.queue_mut("orders").retry.strategy = Some(WaitStrategy::DelayedExchange);
    let topology = Topology::of(&settings).unwrap();
    let lines = listing(&topology);
    for line in [
        "exchange ns.delay x-delayed-message x-delayed-type=fanout",
        "bind exchange ns.delay -> ns.return",
    ] {
        assert!(lines.contains(&line.to_owned()), "{line} is missing in {lines:#?}");
    }
    let dot = topology.to_dot();
    assert!(
        dot.contains(r#""exchange ns.delay" -> "exchange ns.return" [label="after x-delay ms"];"#),
        "{dot}"
    );
    assert_eq!(
        serde_json::to_value(&topology).unwrap()["exchanges"][4]["type"],
        "x-delayed-message"
    );
}

type Headers = BTreeMap<String, Argument>;

/// The headers of the copy that waits on this route and returns to this queue.
fn headers(route: Route, queue: &str) -> Headers {
    let names = Names::new("ns");
    let contract = Contract {
        queue: queue.to_owned(),
        homes: names.homes(queue),
        expiry_header: EXPIRES_AT.to_owned(),
        max_age: None,
        counts_deliveries: true,
        counts_waits: false,
    };
    let address = Address { exchange: "shop".into(), routing_key: "order.created".into() };
    let delivery = Delivery {
        address: address.clone(),
        origin: address,
        redelivered: false,
        delivery_tag: 1,
        properties: BasicProperties::default(),
        body: Bytes::new(),
        ledger: fresh(),
    };
    let since = Timestamp::from_millis(1_700_000_000_000);
    let wait = Wait { since, due: since + route.total, leg: route.leg, path: route.path };
    let copy = contract.wait_copy(
        &delivery,
        &delivery.ledger,
        wait,
        &TraceHeaders::default(),
        Room::DEFAULT,
    );
    let written = copy.headers().as_ref().unwrap().inner().iter();
    let read = written.map(|(name, value)| match value {
        AMQPValue::LongLongInt(number) => (name.to_string(), Argument::Number(*number)),
        AMQPValue::LongString(text) => (name.to_string(), Argument::Text(text.to_string())),
        other => panic!("{name} is {other:?}"),
    });
    read.collect()
}

/// Follows a copy as a broker routes it, and returns the queue where it stays and how long that
/// takes. `None` if it is lost, or loses its routing key.
fn walk(topology: &Topology, exchange: &str, headers: &Headers) -> Option<(String, Duration)> {
    follow(topology, exchange, headers).map(|(home, waited, _)| (home, waited))
}

/// The same, with the queues in which it waits, and the exchange by which it comes home.
fn follow(
    topology: &Topology,
    exchange: &str,
    headers: &Headers,
) -> Option<(String, Duration, Vec<String>)> {
    let (mut exchange, mut waited) = (exchange.to_owned(), Duration::ZERO);
    let mut through = Vec::new();
    for _ in 0..100 {
        let here = topology.exchanges.iter().find(|other| other.name == exchange)?;
        let matches = |binding: &&Binding| {
            let wanted = binding.arguments.iter().filter(|(name, _)| *name != "x-match");
            binding.exchange == exchange
                && wanted.into_iter().all(|(name, value)| headers.get(name) == Some(value))
        };
        let onward = topology.exchange_bindings.iter().find(|binding| binding.source == exchange);
        let bindings: Vec<_> = topology.bindings.iter().filter(matches).collect();
        match (onward, &bindings[..]) {
            (Some(onward), []) => {
                let Some(Argument::Number(delay)) = headers.get(WAIT_FOR) else { return None };
                waited += Duration::from_millis(u64::try_from(*delay).ok()?);
                exchange.clone_from(&onward.destination);
            }
            (None, []) => match here.arguments.get("alternate-exchange")? {
                Argument::Text(other) => exchange.clone_from(other),
                Argument::Number(_) | Argument::Flag(_) => return None,
            },
            (None, [binding]) => {
                let queue = topology.queues.iter().find(|queue| queue.name == binding.queue)?;
                let Some(Argument::Number(ttl)) = queue.arguments.get("x-message-ttl") else {
                    return Some((queue.name.clone(), waited, through));
                };
                through.push(queue.name.clone());
                waited += Duration::from_millis(u64::try_from(*ttl).ok()?);
                if queue.arguments.contains_key("x-dead-letter-routing-key") {
                    return None;
                }
                let Some(Argument::Text(next)) = queue.arguments.get("x-dead-letter-exchange")
                else {
                    return None;
                };
                exchange.clone_from(next);
            }
            _ => return None,
        }
    }
    None
}

/// Adds a topology to another one, as if both were declared: of the work queue the first arguments
/// stay.
fn merge(union: &mut Topology, other: Topology) -> Result<(), TestCaseError> {
    for queue in other.queues {
        match union.queues.iter().find(|declared| declared.name == queue.name) {
            Some(declared) if queue.role == Role::Work => {
                prop_assert_eq!(declared.role, Role::Work)
            }
            Some(declared) => prop_assert_eq!(declared, &queue),
            None => union.queues.push(queue),
        }
    }
    for exchange in other.exchanges {
        match union.exchanges.iter().find(|declared| declared.name == exchange.name) {
            Some(declared) => prop_assert_eq!(declared, &exchange),
            None => union.exchanges.push(exchange),
        }
    }
    for binding in other.bindings {
        if !union.bindings.contains(&binding) {
            union.bindings.push(binding);
        }
    }
    for binding in other.exchange_bindings {
        if !union.exchange_bindings.contains(&binding) {
            union.exchange_bindings.push(binding);
        }
    }
    Ok(())
}

type Waits = (WaitStrategy, AskedDelays, Option<WaitQueues>);

fn strategies() -> impl Strategy<Value = Waits> {
    let strategy = select(vec![
        WaitStrategy::Tiers,
        WaitStrategy::Ladder,
        WaitStrategy::DelayedExchange,
        WaitStrategy::Native,
        WaitStrategy::InProcess,
    ]);
    let after = select(vec![AskedDelays::Own, AskedDelays::Ladder]);
    (strategy, after, select(vec![None, Some(WaitQueues::Own), Some(WaitQueues::Shared)]))
}

/// Where a copy on this path is published, if there is a copy.
fn first_exchange(path: Path, names: &Names) -> Option<String> {
    match path {
        Path::Return | Path::Hold => None,
        Path::Tier => Some(names.wait()),
        Path::Ladder { .. } => Some(names.ladder()),
        Path::Delayed => Some(names.delay()),
    }
}

proptest! {
    #![proptest_config(inputs(300))]

    /// The topology is the union of what two queues need, which wait in any two ways.
    #[test]
    fn whatever_the_strategies_of_a_namespace_are_each_route_leads_home_in_its_time(
        strategies in (strategies(), strategies()),
        delays in prop::collection::vec(1u64..1_000_000, 1..4),
        asked in 0u64..1_000_000,
        (rung, precision) in (1u64..5_000, 1u8..=8),
    ) {
        let mut settings = settings(&delays);
        let max = Duration::from_secs(1_000);
        settings.ladder = LadderSettings { rung: Duration::from_millis(rung), precision, max };
        // For what waits in the process.
        settings.broker.consumer_timeout = Duration::from_secs(24 * 60 * 60);
        for (queue, (strategy, after, own)) in [("one", strategies.0), ("two", strategies.1)] {
            let retry = &mut settings.queue_mut(queue).retry;
            (retry.strategy, retry.after, retry.wait_queues) = (Some(strategy), Some(after), own);
            if strategy == WaitStrategy::Native {
                retry.delays = Some(crate::Backoff::Fixed { delay: Duration::from_millis(delays[0]), waits: 3 });
            }
        }
        let topology = Topology::of(&settings).unwrap();
        let resolved = settings.resolve().unwrap();
        let mut waits_in = BTreeMap::<_, BTreeSet<_>>::new();
        for queue in ["one", "two"] {
            let config = resolved.queue(queue).unwrap();
            let (names, policy) = (Names::new("ns").waits_of(&config), config.policy);
            for delay in delays.iter().copied().chain([asked]).map(Duration::from_millis) {
                let Some(route) = policy.route_asked(delay) else { continue };
                if route.path == Path::Return {
                    let work = topology.queues.iter().find(|found| found.name == queue).unwrap();
                    let delay = Argument::Number(route.leg.as_millis() as i64);
                    prop_assert_eq!(work.arguments.get("x-delayed-retry-min"), Some(&delay));
                    prop_assert_eq!(work.arguments.get("x-delayed-retry-max"), Some(&delay));
                }
                let Some(exchange) = first_exchange(route.path, &names) else { continue };
                prop_assert!(copies_go_to(&Names::new("ns"), &resolved.queues).contains(&exchange));
                let (home, waited, through) =
                    follow(&topology, &exchange, &headers(route, queue)).unwrap();
                prop_assert_eq!((home, waited), (queue.to_owned(), route.leg), "{:?}", route);
                waits_in.entry(queue).or_default().extend(through);
                let nowhere = walk(&topology, &exchange, &headers(route, "nowhere"));
                prop_assert_eq!(nowhere.map(|(queue, _)| queue), Some("ns.stray".to_owned()));
            }
        }
        if [strategies.0.2, strategies.1.2].contains(&Some(WaitQueues::Own)) {
            let of = |queue| waits_in.get(queue).cloned().unwrap_or_default();
            prop_assert!(of("one").is_disjoint(&of("two")), "{waits_in:?}");
        }
    }

    /// As after a change of `retry.wait_queues` while messages wait: what is declared is the union
    /// of before and after, no queue or exchange has other arguments, and the ledger of each copy
    /// is believed.
    #[test]
    fn whosever_wait_queues_messages_wait_in_they_come_home_after_the_setting_has_changed(
        before in strategies(), after in strategies(),
        delays in prop::collection::vec(1u64..1_000_000, 1..4), asked in 0u64..1_000_000,
    ) {
        let of = |(strategy, after, own): Waits| {
            let mut settings = settings(&delays);
            settings.ladder.max = Duration::from_secs(1_000);
            settings.broker.consumer_timeout = Duration::from_secs(24 * 60 * 60);
            let retry = &mut settings.queue_mut("orders").retry;
            (retry.strategy, retry.after, retry.wait_queues) = (Some(strategy), Some(after), own);
            if strategy == WaitStrategy::Native {
                retry.delays = Some(crate::Backoff::Fixed { delay: Duration::from_millis(delays[0]), waits: 3 });
            }
            settings
        };
        let both = [of(before), of(after)];
        let [mut union, other] = both.each_ref().map(|settings| Topology::of(settings).unwrap());
        merge(&mut union, other)?;
        let homes = Names::new("ns").homes("orders");
        for settings in both {
            let config = settings.resolve().unwrap().queue("orders").unwrap();
            let names = Names::new("ns").waits_of(&config);
            let Some(route) = config.policy.route_asked(Duration::from_millis(asked)) else { continue };
            let Some(exchange) = first_exchange(route.path, &names) else { continue };
            let (home, waited, through) = follow(&union, &exchange, &headers(route, "orders")).unwrap();
            prop_assert_eq!((home, waited), ("orders".to_owned(), route.leg), "{:?}", route);
            let last = through.last().and_then(|last| union.queues.iter().find(|queue| queue.name == *last));
            let by = last.map_or_else(|| names.delay(), |last| last.arguments["x-dead-letter-exchange"].to_string());
            let is_home = by == homes.return_exchange || by == homes.delay_exchange
                || homes.after_prefixes.iter().any(|own| by.strip_prefix(own).is_some_and(|rung| rung.parse::<u64>().is_ok()));
            prop_assert!(is_home, "{by} is none of {homes:?}");
        }
    }

    /// As after a change of `ladder.rung` and `ladder.precision`, while messages wait: what is
    /// declared is the union of both, and no queue or exchange has other arguments than before.
    #[test]
    fn two_ladders_that_follow_each_other_agree_and_the_routes_of_both_lead_home(
        ladders in ((1u64..50, 1u8..=8), (1u64..50, 1u8..=8)), delay in 0u64..60_000,
    ) {
        let of = |(rung, precision): (u64, u8)| {
            let mut settings = settings(&[500]);
            let rung = Duration::from_millis(rung * 20);
            settings.ladder = LadderSettings { rung, precision, max: Duration::from_secs(60) };
            settings.retry.strategy = Some(WaitStrategy::Ladder);
            settings.queue_mut("orders");
            settings
        };
        let both = [of(ladders.0), of(ladders.1)];
        let [mut union, other] = both.each_ref().map(|settings| Topology::of(settings).unwrap());
        merge(&mut union, other)?;
        for settings in both {
            let policy = settings.policy("orders").unwrap();
            let route = policy.route_asked(Duration::from_millis(delay)).unwrap();
            let home = walk(&union, "ns.ladder", &headers(route, "orders"));
            prop_assert_eq!(home, Some(("orders".to_owned(), route.leg)), "{:?}", route);
        }
    }

    /// Any `rehop-then-` headers, from whoever wrote them.
    #[test]
    fn whatever_rungs_a_message_names_it_gets_home_or_is_stray(
        first in 0u32..8, thens in prop::collection::vec((0u32..8, 0u32..8), 0..20), precision in 1u8..=8,
    ) {
        let mut settings = settings(&[500]);
        settings.ladder = LadderSettings { rung: Duration::from_secs(1), precision, max: Duration::from_secs(64) };
        settings.retry.strategy = Some(WaitStrategy::Ladder);
        settings.queue_mut("orders");
        let ttl = |bit: u32| 1_000i64 << bit;
        let mut sent = arguments([(RETURN_TO, "orders".into()), (WAIT_FOR, ttl(first).into())]);
        sent.extend(thens.into_iter().map(|(from, to)| (format!("rehop-then-{}", ttl(from)), Argument::Number(ttl(to)))));
        let (queue, waited) = walk(&Topology::of(&settings).unwrap(), "ns.ladder", &sent).unwrap();
        let expected = if first < 7 { "orders" } else { "ns.stray" };
        prop_assert_eq!(queue, expected);
        prop_assert!(waited <= Duration::from_secs(127));
    }
}

#[test]
fn the_graph_shows_every_path_that_a_message_can_take() {
    let mut settings = settings(&[500]);
    settings.queue_mut("or\"ders");
    let dot = Topology::of(&settings).unwrap().to_dot();
    for line in [
        r#""exchange ns.wait" -> "queue ns.wait.500" [label="rehop-wait-for: 500"];"#,
        r#""exchange ns.wait" -> "exchange ns.stray" [label="no route"];"#,
        r#""queue ns.wait.500" -> "exchange ns.return" [label="after 500 ms"];"#,
        r#""exchange ns.return" -> "queue or\"ders" [label="rehop-return-to: or\"ders"];"#,
        r#""queue or\"ders" -> "exchange ns.park" [label="delivery limit"];"#,
        r#""exchange ns.park" -> "queue or\"ders.parked" [label="or\"ders"];"#,
        r#""queue or\"ders.parked" -> "exchange ns.stray" [label="delivery limit"];"#,
        r#""exchange ns.stray" -> "queue ns.stray" [label=""];"#,
    ] {
        assert!(dot.contains(line), "{line} is missing in\n{dot}");
    }
    assert!(dot.starts_with("digraph topology {\n") && dot.ends_with("}\n"));
}

#[test]
fn a_topology_can_be_serialized_as_json() {
    let mut settings = settings(&[500]);
    settings.queue_mut("orders");
    let json = serde_json::to_value(Topology::of(&settings).unwrap()).unwrap();
    assert_eq!(json["exchanges"][1]["type"], "headers");
    assert_eq!(json["queues"][1]["arguments"]["x-message-ttl"], 500);
    assert_eq!(json["queues"][3]["role"], "work");
    assert_eq!(json["queues"][3]["declare"], "own");
}

#[test]
fn each_role_has_its_word() {
    for (role, word) in [
        (Role::Work, "work"),
        (Role::Wait, "wait"),
        (Role::Parked, "parked"),
        (Role::Stray, "stray"),
    ] {
        assert_eq!(
            (role.as_str(), serde_json::to_value(role).unwrap()),
            (word, serde_json::json!(word))
        );
    }
}
