//! The whole topology, as a table.

use super::*;
use crate::Settings;
use crate::settings::BindingSettings;

/// Each thing on a line, with its arguments.
fn listing(topology: &Topology) -> Vec<String> {
    let with = |line: String, arguments: &Arguments| {
        arguments.iter().fold(line, |line, (name, value)| format!("{line} {name}={value}"))
    };
    let exchanges = topology
        .exchanges
        .iter()
        .map(|exchange| with(format!("exchange {} {}", exchange.name, exchange.kind.as_str()), &exchange.arguments));
    let queues = topology.queues.iter().map(|queue| {
        with(format!("queue {} {:?} {:?}", queue.name, queue.role, queue.declare).to_lowercase(), &queue.arguments)
    });
    let bindings = topology.bindings.iter().map(|binding| {
        let line = format!("bind {} -> {} {:?}", binding.exchange, binding.queue, binding.routing_key);
        with(line, &binding.arguments)
    });
    exchanges.chain(queues).chain(bindings).collect()
}

fn settings(delays: &[u64]) -> Settings {
    let mut settings = Settings { namespace: "ns".to_owned(), ..Settings::default() };
    settings.retry.delays = Some(crate::Backoff::List(delays.iter().copied().map(Duration::from_millis).collect()));
    settings
}

#[test]
fn the_topology_of_one_queue_is_this() {
    let mut settings = settings(&[500, 10_000, 500]);
    let queue = settings.queue_mut("orders");
    queue.retry.delivery_limit = Some(5);
    queue.bindings.push(BindingSettings { exchange: "shop".to_owned(), routing_key: "order.*".to_owned() });
    let dead_letters = "x-dead-letter-exchange=ns.return x-dead-letter-strategy=at-least-once";
    let expected = [
        "exchange ns.stray fanout".to_owned(),
        "exchange ns.wait headers alternate-exchange=ns.stray".to_owned(),
        "exchange ns.return headers alternate-exchange=ns.stray".to_owned(),
        "exchange ns.park direct alternate-exchange=ns.stray".to_owned(),
        "queue ns.stray stray own x-queue-type=quorum".to_owned(),
        format!(
            "queue ns.wait.500 wait own {dead_letters} x-message-ttl=500 x-overflow=reject-publish x-queue-type=quorum"
        ),
        format!(
            "queue ns.wait.10000 wait own {dead_letters} x-message-ttl=10000 x-overflow=reject-publish x-queue-type=quorum"
        ),
        "queue orders.parked parked own x-queue-type=quorum".to_owned(),
        "queue orders work own x-dead-letter-exchange=ns.park x-dead-letter-routing-key=orders \
         x-dead-letter-strategy=at-least-once x-delivery-limit=5 x-overflow=reject-publish x-queue-type=quorum"
            .to_owned(),
        "bind ns.stray -> ns.stray \"\"".to_owned(),
        "bind ns.wait -> ns.wait.500 \"\" wait-for=500 x-match=all".to_owned(),
        "bind ns.wait -> ns.wait.10000 \"\" wait-for=10000 x-match=all".to_owned(),
        "bind ns.park -> orders.parked \"orders\"".to_owned(),
        "bind ns.return -> orders \"\" return-to=orders x-match=all".to_owned(),
        "bind shop -> orders \"order.*\"".to_owned(),
    ];
    assert_eq!(listing(&Topology::of(&settings).unwrap()), expected);
}

#[test]
fn somebody_elses_queue_is_bound_and_not_declared() {
    let mut settings = settings(&[500]);
    let queue = settings.queue_mut("orders");
    queue.declare = Declare::Existing;
    queue.parked = Some("dead".to_owned());
    let lines = listing(&Topology::of(&settings).unwrap());
    assert!(lines.contains(&"queue orders work existing".to_owned()), "{lines:#?}");
    assert!(lines.contains(&"queue dead parked own x-queue-type=quorum".to_owned()), "{lines:#?}");
    assert!(lines.contains(&"bind ns.return -> orders \"\" return-to=orders x-match=all".to_owned()), "{lines:#?}");
}

#[test]
fn queues_share_the_tiers_of_their_namespace() {
    let mut settings = settings(&[500, 1_000]);
    settings.queue_mut("a");
    settings.queue_mut("b").retry.delays =
        Some(crate::Backoff::List(vec![Duration::from_millis(1_000), Duration::from_secs(2)]));
    settings.queue_mut("c").retry.delays = Some(crate::Backoff::List(vec![]));
    let topology = Topology::of(&settings).unwrap();
    let waits: Vec<_> =
        topology.queues.iter().filter(|queue| queue.role == Role::Wait).map(|queue| &queue.name).collect();
    assert_eq!(waits, ["ns.wait.500", "ns.wait.1000", "ns.wait.2000"]);
}

#[test]
fn two_namespaces_share_nothing_but_work_queues() {
    let names = |namespace: &str| {
        let mut settings = settings(&[500]);
        settings.namespace = namespace.to_owned();
        let topology = Topology::of(&settings).unwrap();
        let exchanges = topology.exchanges.into_iter().map(|exchange| exchange.name);
        exchanges.chain(topology.queues.into_iter().map(|queue| queue.name)).collect::<std::collections::BTreeSet<_>>()
    };
    assert!(names("a").is_disjoint(&names("b")));
}

#[test]
fn a_confirm_means_that_a_copy_is_kept_because_no_exchange_is_without_an_alternate() {
    let mut settings = settings(&[500]);
    settings.queue_mut("orders");
    for exchange in Topology::of(&settings).unwrap().exchanges {
        let kept =
            exchange.name == "ns.stray" || exchange.arguments.get("alternate-exchange") == Some(&"ns.stray".into());
        assert!(kept, "{exchange:?}");
    }
}

#[test]
fn the_picture_shows_every_way_that_a_message_can_take() {
    let mut settings = settings(&[500]);
    settings.queue_mut("or\"ders");
    let dot = Topology::of(&settings).unwrap().to_dot();
    for line in [
        r#""exchange ns.wait" -> "queue ns.wait.500" [label="wait-for: 500"];"#,
        r#""exchange ns.wait" -> "exchange ns.stray" [label="no route"];"#,
        r#""queue ns.wait.500" -> "exchange ns.return" [label="after 500 ms"];"#,
        r#""exchange ns.return" -> "queue or\"ders" [label="return-to: or\"ders"];"#,
        r#""queue or\"ders" -> "exchange ns.park" [label="delivery limit"];"#,
        r#""exchange ns.park" -> "queue or\"ders.parked" [label="or\"ders"];"#,
        r#""exchange ns.stray" -> "queue ns.stray" [label=""];"#,
    ] {
        assert!(dot.contains(line), "{line} is missing in\n{dot}");
    }
    assert!(dot.starts_with("digraph topology {\n") && dot.ends_with("}\n"));
}

#[test]
fn a_topology_is_read_by_machines() {
    let mut settings = settings(&[500]);
    settings.queue_mut("orders");
    let json = serde_json::to_value(Topology::of(&settings).unwrap()).unwrap();
    assert_eq!(json["exchanges"][1]["type"], "headers");
    assert_eq!(json["queues"][1]["arguments"]["x-message-ttl"], 500);
    assert_eq!(json["queues"][3]["role"], "work");
    assert_eq!(json["queues"][3]["declare"], "own");
}
