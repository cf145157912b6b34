//! Copies of parked, stray and discarded messages.

use lapin::types::{AMQPValue, FieldArray, FieldTable};
use proptest::prelude::*;

use super::*;
use crate::inputs::inputs;
use crate::parked::message::Raw;
use rehop::HeaderValue;
use rehop::internals::Names;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const RUN: Numbered<'_> =
    Numbered { run: "run-1", number: 7, is_canary: true, room: Room::UNLIMITED };

fn interpreter(place: Place) -> Interpreter {
    Interpreter { names: Names::new("ns"), place, expiry_header: "rehop-expires-at".to_owned() }
}

fn properties(headers: impl IntoIterator<Item = (&'static str, AMQPValue)>) -> BasicProperties {
    let mut table = FieldTable::default();
    for (name, value) in headers {
        table.insert(name.into(), value);
    }
    BasicProperties::default().with_headers(table)
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

fn int(number: i64) -> AMQPValue {
    AMQPValue::LongLongInt(number)
}

fn failure() -> AMQPValue {
    let at = NOW.as_millis() - 1_000;
    text(&format!(r#"[{{"at":{at},"attempt":8,"class":"busy","message":"try later"}}]"#))
}

/// As the broker writes it on dead-lettering.
fn death(exchange: &str) -> AMQPValue {
    deaths([("orders", exchange, "order.created")])
}

/// Queues, and the exchange and the routing key by which each got the message. The latest
/// dead-lettering comes first.
fn deaths<const N: usize>(of: [(&str, &str, &str); N]) -> AMQPValue {
    let table = |(queue, exchange, routing_key)| {
        let mut table = FieldTable::default();
        table.insert("queue".into(), text(queue));
        table.insert("reason".into(), text("delivery_limit"));
        table.insert("exchange".into(), text(exchange));
        table.insert(
            "routing-keys".into(),
            AMQPValue::FieldArray(FieldArray::from(vec![text(routing_key)])),
        );
        table.insert("time".into(), AMQPValue::Timestamp(1_700_000_000));
        AMQPValue::FieldTable(table)
    };
    AMQPValue::FieldArray(FieldArray::from(of.map(table).to_vec()))
}

fn parked_by_rehop() -> BasicProperties {
    properties([
        ("rehop-reason", text("exhausted")),
        ("rehop-chain-id", text("chain")),
        ("rehop-exchange", text("shop")),
        ("rehop-routing-key", text("order.created")),
        ("rehop-attempt", int(8)),
        ("rehop-hop", int(3)),
        ("rehop-first-seen-at", int(NOW.as_millis() - 60_000)),
        ("rehop-expires-at", int(NOW.as_millis() - 1)),
        ("rehop-waiting-since", int(NOW.as_millis() - 5_000)),
        ("rehop-errors", failure()),
        ("rehop-replays", int(2)),
        ("traceparent", text("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")),
        ("tenant", text("a")),
    ])
    .with_message_id("seven".into())
}

fn whole(properties: &BasicProperties) -> Original<'_> {
    Original { properties, body_bytes: 2 }
}

fn read(
    interpreter: &Interpreter,
    (exchange, routing_key): (&str, &str),
    properties: &BasicProperties,
) -> ParkedMessage {
    interpreter.read(Raw { exchange, routing_key, properties, body: b"{}", redelivered: false }, 1)
}

#[test]
fn a_replayed_message_goes_to_the_queue_that_it_failed_in_without_what_its_last_run_left() {
    let (interpreter, original) = (interpreter(Place::queue("other")), parked_by_rehop());
    let message = read(&interpreter, ("ns.park", "orders"), &original);
    assert_eq!(
        (message.destination.as_deref(), message.attempts, message.replays),
        (Some("orders"), 8, 2)
    );
    let copy = interpreter
        .copy(&Move::Replay { deadline: None }, &message, whole(&original), RUN, NOW)
        .unwrap();
    assert_eq!((copy.exchange.as_str(), copy.routing_key.as_str()), ("ns.return", "order.created"));
    let headers = copy.properties.headers().as_ref().unwrap().inner();
    assert_eq!(HeaderValue::of(&headers["rehop-return-to"]), HeaderValue::Text("orders"));
    assert!(headers.contains_key("tenant") && headers.contains_key("traceparent"));
    for stripped in
        ["rehop-reason", "rehop-attempt", "rehop-hop", "rehop-expires-at", "rehop-waiting-since"]
    {
        assert!(!headers.contains_key(stripped), "{stripped}");
    }
}

#[test]
fn a_new_deadline_is_counted_from_the_replay() {
    let (interpreter, original) = (interpreter(Place::queue("orders")), parked_by_rehop());
    let message = read(&interpreter, ("ns.park", "orders"), &original);
    let action = Move::Replay { deadline: Some(Duration::from_secs(60)) };
    let copy = interpreter.copy(&action, &message, whole(&original), RUN, NOW).unwrap();
    let headers = copy.properties.headers().as_ref().unwrap().inner();
    assert_eq!(headers["rehop-expires-at"], int(NOW.as_millis() + 60_000));
}

#[test]
fn what_the_broker_parked_has_its_reason_and_its_origin_from_the_broker() {
    let interpreter = interpreter(Place::queue("orders"));
    let forged = [
        ("rehop-reason", text("permanent")),
        ("rehop-exchange", text("evil")),
        ("rehop-errors", failure()),
    ];
    let first = properties(forged.into_iter().chain([("x-death", death("shop"))]));
    let message = read(&interpreter, ("ns.park", "orders"), &first);
    assert_eq!((message.reason.as_str(), message.exchange.as_str()), ("delivery_limit", "shop"));
    assert_eq!((message.routing_key.as_str(), message.error), ("order.created", None));
    assert_eq!(message.parked_at, Some(NOW));
    // After a wait its headers are rehop's own, and the broker knows its routing key.
    let mut copy = parked_by_rehop().headers().clone().unwrap().inner().clone();
    copy.remove("rehop-routing-key");
    copy.insert("x-death".into(), death("ns.return"));
    let copy = BasicProperties::default().with_headers(FieldTable::from(copy));
    let message = read(&interpreter, ("ns.park", "orders"), &copy);
    assert_eq!((message.reason.as_str(), message.attempts), ("delivery_limit", 8));
    assert_eq!(
        (message.exchange.as_str(), message.routing_key.as_str()),
        ("shop", "order.created")
    );
    // A policy may move it from the parked queue to the strays.
    let moved =
        deaths([("orders.parked", "ns.park", "orders"), ("orders", "ns.return", "order.created")]);
    let headers = [("rehop-exchange", text("shop")), ("x-death", moved)];
    let stray = read(&interpreter, ("ns.stray", "orders"), &properties(headers));
    assert_eq!((stray.exchange.as_str(), stray.routing_key.as_str()), ("shop", "order.created"));
    // If its work queue is gone, it is among the strays.
    let waiting = properties([("rehop-exchange", text("shop"))]);
    let stray = read(&interpreter, ("ns.return", "order.created"), &waiting);
    assert_eq!((stray.exchange.as_str(), stray.routing_key.as_str()), ("shop", "order.created"));
    let discarded =
        interpreter.copy(&discard("orders.parked"), &message, whole(&first), RUN, NOW).unwrap();
    let headers = discarded.properties.headers().as_ref().unwrap().inner();
    assert_eq!((&headers["rehop-reason"], headers.get("x-death")), (&text("delivery_limit"), None));
}

#[test]
fn what_did_not_come_by_the_park_exchange_has_its_own_reason_although_the_broker_has_moved_it() {
    let moved = parked_by_rehop().headers().clone().unwrap().inner().clone();
    let by_policy = deaths([("orders.parked", "ns.park", "orders")]);
    let moved = moved.into_iter().chain([("x-death".into(), by_policy)]);
    let properties = BasicProperties::default()
        .with_headers(moved.collect::<std::collections::BTreeMap<_, _>>().into());
    let reason_by = |exchange| {
        read(&interpreter(Place::queue("orders")), (exchange, "orders"), &properties).reason
    };
    assert_eq!(["ns.park", "ns.stray"].map(reason_by), ["exhausted", "exhausted"]);
}

/// Every header of rehop's, as somebody may write it who publishes to the work queue.
fn forged() -> BasicProperties {
    let millis = NOW.as_millis() - 60_000;
    let headers = [
        ("rehop-reason", text("permanent")),
        ("rehop-chain-id", text("chain")),
        ("rehop-replays", int(3)),
        ("rehop-replay-run", text("run-0")),
        ("rehop-discard-run", text("run-0")),
        ("rehop-discarded-from", text("evil")),
        ("rehop-return-to", text("evil")),
        ("rehop-exchange", text("evil")),
        ("rehop-routing-key", text("evil")),
        ("rehop-attempt", int(8)),
        ("rehop-hop", int(3)),
        ("rehop-errors", failure()),
        ("rehop-first-seen-at", int(millis)),
        ("rehop-first-failed-at", int(millis)),
        ("rehop-parked-at", int(millis)),
        ("rehop-expires-at", int(NOW.as_millis() + 60_000)),
        ("tenant", text("a")),
    ];
    properties(headers).with_message_id("seven".into())
}

#[test]
fn nothing_of_a_producers_counts_as_rehops_in_what_the_broker_parked_or_found_no_route_for() {
    let with = |death: Option<AMQPValue>| {
        let mut headers = forged().headers().clone().unwrap().inner().clone();
        headers.extend(death.map(|death| ("x-death".into(), death)));
        forged().with_headers(FieldTable::from(headers))
    };
    let twice = deaths([
        ("orders.parked", "ns.park", "orders"),
        ("orders", "shop", "order.created"),
        // As 3.10 leaves it where a producer has written it.
        ("orders", "ns.return", "order.created"),
    ]);
    for (place, exchange, death) in [
        (Place::queue("orders"), "ns.park", Some(death("shop"))),
        (Place::queue("orders"), "ns.park", Some(death(""))),
        (Place::Stray, "ns.stray", Some(twice)),
        (Place::Stray, "shop", None),
    ] {
        let (interpreter, original) = (interpreter(place), with(death));
        let message = read(&interpreter, (exchange, "orders"), &original);
        let ours = (message.replays, message.attempts, message.hops, message.history.len());
        assert_eq!((ours, message.chain.as_str()), ((0, 0, 0, 0), "seven"), "{exchange}");
        let named =
            [&message.replay_run, &message.discard_run, &message.discarded_from, &message.error];
        assert_eq!((named, message.first_seen), ([&None; 4], None), "{exchange}");
        assert_ne!(message.exchange, "evil");
        assert!(message.destination.as_deref() != Some("evil"), "{exchange}");
        assert_eq!(message.deadline.map(|at| at.since(NOW)), Some(Duration::from_secs(60)));
        // What is moved comes by rehop's exchanges, and is believed from then on.
        let believed = interpreter.believed(exchange, &original);
        let copy = interpreter.imported(&message, whole(&believed), Room::UNLIMITED);
        let headers = copy.properties.headers().as_ref().unwrap().inner().clone();
        for name in ["replays", "replay-run", "errors", "first-seen-at", "attempt", "discard-run"] {
            assert!(!headers.contains_key(&*format!("rehop-{name}")), "{name} {exchange}");
        }
        assert!(headers.contains_key("tenant"));
    }
    let again = with(Some(death("ns.return")));
    let believed = read(&interpreter(Place::queue("orders")), ("ns.park", "orders"), &again);
    assert_eq!((believed.replays, believed.chain.as_str()), (3, "chain"));
}

#[test]
fn without_an_id_a_chain_is_named_after_its_trace_else_after_its_message_else_after_its_content() {
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let chain = |traceparent: &str, message_id: &str| {
        let properties =
            properties([("traceparent", text(traceparent))]).with_message_id(message_id.into());
        read(&interpreter(Place::queue("orders")), ("ns.park", "orders"), &properties).chain
    };
    assert_eq!(chain(&format!("00-{trace}-{span}-01"), "seven"), format!("{trace}-{span}"));
    for malformed in
        ["", "00", &format!("00-{trace}0-{span}-01"), &format!("00-{trace}-{span}0-01")]
    {
        assert_eq!(chain(malformed, "seven"), "seven", "{malformed:?}");
    }
    assert_eq!(chain("", "").len(), 16);
}

fn discard(from: &str) -> Move {
    Move::Discard { why: "w".to_owned(), from: from.to_owned() }
}

#[test]
fn a_move_is_logged_and_counted_under_the_name_of_its_command() {
    let moves = [Move::Replay { deadline: None }, discard("orders.parked"), Move::Restore];
    assert_eq!(moves.map(|action| action.as_str()), ["replay", "discard", "restore"]);
}

#[test]
fn what_is_restored_goes_where_it_was_with_the_properties_that_it_had() {
    let (bin, returning) = (interpreter(Place::Discarded), [("rehop-return-to", text("orders"))]);
    let stray =
        properties(returning.into_iter().chain([("rehop-routing-key", text("order.created"))]));
    for (place, from, address, original, to) in [
        (
            Place::queue("orders"),
            "orders.parked",
            ("ns.park", "orders"),
            parked_by_rehop(),
            ("ns.park", "orders"),
        ),
        (
            Place::Stray,
            "ns.stray",
            ("ns.return", "order.created"),
            stray,
            ("ns.stray", "order.created"),
        ),
        (
            Place::Stray,
            "ns.stray",
            ("shop", "order.created"),
            properties([]),
            ("ns.stray", "order.created"),
        ),
        (
            Place::Stray,
            "ns.stray",
            ("ns.park", "orders"),
            parked_by_rehop(),
            ("ns.stray", "order.created"),
        ),
    ] {
        let interpreter = interpreter(place);
        let before = read(&interpreter, address, &original);
        let discarded =
            interpreter.copy(&discard(from), &before, whole(&original), RUN, NOW).unwrap();
        let there =
            read(&bin, (&discarded.exchange, &discarded.routing_key), &discarded.properties);
        assert_eq!(
            (there.discard_run.as_deref(), there.discarded_from.as_deref()),
            (Some("run-1"), Some(from))
        );
        let back =
            bin.copy(&Move::Restore, &there, whole(&discarded.properties), RUN, NOW).unwrap();
        assert_eq!((back.exchange.as_str(), back.routing_key.as_str()), to);
        assert_eq!(
            read(&interpreter, (&back.exchange, &back.routing_key), &back.properties),
            before
        );
        let headers = back.properties.headers().clone().unwrap();
        assert!(!headers.inner().keys().any(|name| name.as_str().contains("discard")));
    }
}

#[test]
fn what_somebody_has_discarded_without_rehop_is_not_restored() {
    let bin = interpreter(Place::Discarded);
    let there = read(&bin, ("ns.discarded", "orders"), &parked_by_rehop());
    let back = bin.copy(&Move::Restore, &there, whole(&parked_by_rehop()), RUN, NOW);
    assert_eq!(back, Err(Immovable::NoDestination), "nothing says where it was");
}

#[test]
fn what_a_service_has_parked_gets_no_header_by_a_discard_and_a_restore() {
    let bin = interpreter(Place::Discarded);
    let (interpreter, original) = (interpreter(Place::queue("orders")), parked_by_rehop());
    let message = read(&interpreter, ("ns.park", "orders"), &original);
    let discarded =
        interpreter.copy(&discard("orders.parked"), &message, whole(&original), RUN, NOW).unwrap();
    let there = read(&bin, (&discarded.exchange, &discarded.routing_key), &discarded.properties);
    let back = bin.copy(&Move::Restore, &there, whole(&discarded.properties), RUN, NOW).unwrap();
    let mut expected = original.headers().clone().unwrap();
    // The time of its last failure, which is when it was parked.
    expected.insert("rehop-parked-at".into(), int(NOW.as_millis() - 1_000));
    assert_eq!(back.properties.headers().as_ref(), Some(&expected));
}

#[test]
fn an_imported_message_goes_to_its_place_and_belongs_where_it_belonged() {
    for (place, address, original, to) in [
        (Place::queue("orders"), ("ns.park", "orders"), parked_by_rehop(), ("ns.park", "orders")),
        (Place::Stray, ("ns.park", "orders"), parked_by_rehop(), ("ns.stray", "order.created")),
        (Place::Stray, ("shop", "order.created"), properties([]), ("ns.stray", "order.created")),
        (
            Place::Discarded,
            ("ns.discarded", "orders"),
            parked_by_rehop(),
            ("ns.discarded", "orders"),
        ),
    ] {
        let interpreter = interpreter(place);
        let before = read(&interpreter, address, &original);
        let copy = interpreter.imported(&before, whole(&original), Room::UNLIMITED);
        assert_eq!((copy.exchange.as_str(), copy.routing_key.as_str()), to);
        assert_eq!(read(&interpreter, to, &copy.properties), before);
    }
    let bin = interpreter(Place::Discarded);
    let parked =
        read(&interpreter(Place::queue("orders")), ("ns.park", "orders"), &parked_by_rehop());
    let discarded =
        bin.copy(&discard("orders.parked"), &parked, whole(&parked_by_rehop()), RUN, NOW).unwrap();
    let there = read(&bin, ("ns.discarded", "orders"), &discarded.properties);
    let copy = bin.imported(&there, whole(&discarded.properties), Room::UNLIMITED);
    let again = read(&bin, ("ns.discarded", "orders"), &copy.properties);
    assert_eq!(again, there);
    assert_eq!(again.discard_run.as_deref(), Some("run-1"), "it can still be restored");
}

#[test]
fn a_message_of_unknown_destination_is_not_replayed() {
    let interpreter = interpreter(Place::Stray);
    let original = properties([]);
    let message = read(&interpreter, ("shop", "order.created"), &original);
    assert_eq!((message.destination.as_deref(), message.reason.as_str()), (None, "unknown"));
    let copy =
        interpreter.copy(&Move::Replay { deadline: None }, &message, whole(&original), RUN, NOW);
    assert_eq!(copy, Err(Immovable::NoDestination));
    let returning = properties([("rehop-return-to", text("orders"))]);
    let message = read(&interpreter, ("ns.return", "order.created"), &returning);
    assert_eq!(message.destination.as_deref(), Some("orders"));
    assert_eq!(
        read(&interpreter, ("ns.park", "orders"), &original).destination.as_deref(),
        Some("orders")
    );
}

fn values() -> impl Strategy<Value = AMQPValue> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(AMQPValue::LongLongInt),
        any::<u64>().prop_map(AMQPValue::Timestamp),
        any::<bool>().prop_map(AMQPValue::Boolean),
        Just(AMQPValue::Void),
        ".{0,300}".prop_map(|text| AMQPValue::LongString(text.as_str().into())),
        prop::collection::vec(any::<u8>(), 0..20)
            .prop_map(|bytes| AMQPValue::LongString(bytes.into())),
    ];
    leaf.prop_recursive(3, 20, 5, |inner| {
        let table = |fields: Vec<AMQPValue>| {
            let mut table = FieldTable::default();
            for (name, value) in
                ["queue", "reason", "exchange", "routing-keys", "time"].into_iter().zip(fields)
            {
                table.insert(name.into(), value);
            }
            AMQPValue::FieldTable(table)
        };
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| AMQPValue::FieldArray(items.into())),
            prop::collection::vec(inner, 5).prop_map(table),
        ]
    })
}

const READ: [&str; 18] = [
    "rehop-reason",
    "rehop-chain-id",
    "rehop-exchange",
    "rehop-routing-key",
    "rehop-attempt",
    "rehop-hop",
    "rehop-errors",
    "rehop-replays",
    "rehop-replay-run",
    "rehop-replay-number",
    "rehop-canary",
    "rehop-parked-at",
    "rehop-discarded-from",
    "rehop-first-seen-at",
    "x-death",
    "x-delivery-count",
    "rehop-return-to",
    "traceparent",
];

proptest! {
    #![proptest_config(inputs(2_000))]

    /// Whatever a message carries, it can be read, and a copy of it carries nothing that makes it
    /// loop or vanish.
    #[test]
    fn any_message_can_be_read_and_moved(
        values in prop::collection::vec(prop::option::of(values()), READ.len()), from_park: bool,
    ) {
        let original = properties(READ.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?))));
        for place in [Place::queue("orders"), Place::Stray, Place::Discarded] {
            let interpreter = interpreter(place);
            let address = if from_park { ("ns.park", "orders") } else { ("shop", "key") };
            let message = read(&interpreter, address, &original);
            for action in [Move::Replay { deadline: None }, discard("orders.parked"), Move::Restore] {
                let Ok(copy) = interpreter.copy(&action, &message, whole(&original), RUN, NOW) else { continue };
                let headers = copy.properties.headers().as_ref().unwrap().inner();
                prop_assert!(headers.keys().all(|name| !name.as_str().starts_with("x-")));
                prop_assert_eq!(read(&interpreter, ("ns.return", "key"), &copy.properties).chain, message.chain.clone());
            }
        }
    }
}
