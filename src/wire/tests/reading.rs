//! What is believed of a delivery.

use super::*;
use crate::retry::ledger::Replay;
use crate::wire::parked::{Identity, replayed};

fn nested(depth: usize) -> AMQPValue {
    (0..depth)
        .fold(AMQPValue::Void, |inner, _| AMQPValue::FieldArray(FieldArray::from(vec![inner])))
}

#[test]
fn a_value_of_the_wrong_kind_is_ignored_with_one_warning() {
    let wrong = || {
        [
            AMQPValue::Void,
            AMQPValue::Boolean(true),
            AMQPValue::Float(1.5),
            AMQPValue::Double(f64::NAN),
            AMQPValue::DecimalValue(DecimalValue { scale: 1, value: 15 }),
            AMQPValue::ByteArray(ByteArray::from(vec![0xff, 0xfe])),
            AMQPValue::LongString("x".repeat(128 * 1024).into()),
            AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::Void])),
            AMQPValue::FieldTable(FieldTable::default()),
            nested(100),
            AMQPValue::Timestamp(u64::MAX),
        ]
    };
    for header in READ {
        for value in wrong() {
            let mut sent = well_formed();
            let text = format!("{header} = {value:.60?}");
            sent.insert(header.into(), value);
            let (_, ignored) = read(RETURN, sent);
            assert_eq!(
                ignored.iter().map(|ignored| ignored.header.as_str()).collect::<Vec<_>>(),
                [header],
                "{text}"
            );
        }
    }
}

#[test]
fn numbers_out_of_range_are_bounded_with_one_warning() {
    let check = |header: &str, number: i64, warned: bool, is: &dyn Fn(&Ledger) -> bool| {
        let mut sent = well_formed();
        sent.insert(header.into(), AMQPValue::LongLongInt(number));
        let (delivery, ignored) = read(RETURN, sent);
        assert!(is(&delivery.ledger), "{header} = {number} gave {:?}", delivery.ledger);
        assert_eq!(ignored.len(), usize::from(warned), "{header} = {number}: {ignored:?}");
    };
    check(ATTEMPT, 5, false, &|ledger| ledger.attempts == 5);
    check(ATTEMPT, -5, true, &|ledger| ledger.attempts == 0);
    check(ATTEMPT, i64::MAX, true, &|ledger| ledger.attempts == MAX_COUNT);
    check(HOP, 0, false, &|ledger| ledger.hop == 1);
    check(HOP, i64::MIN, true, &|ledger| ledger.hop == 1);
    check(EXPIRES_AT, 1_700_000_000, true, &|ledger| ledger.deadline.is_none());
    check(EXPIRES_AT, -1, true, &|ledger| ledger.deadline.is_none());
    check(EXPIRES_AT, i64::MAX, true, &|ledger| ledger.deadline.is_none());
    check(FIRST_SEEN_AT, NOW.as_millis() + 1, false, &|ledger| ledger.first_seen == NOW);
    check(FIRST_FAILED_AT, 0, true, &|ledger| ledger.first_failed.is_none());
    check(WAITING_SINCE, 0, true, &|ledger| ledger.wait.is_none());
    check(WAIT_FOR, -1, true, &|ledger| ledger.wait.is_none());
    check(WAIT_FOR, 0, true, &|ledger| ledger.wait.is_none());
    check(WAIT_FOR, i64::MAX, true, &|ledger| ledger.wait.is_none());
}

#[test]
fn numbers_are_read_from_every_type_that_other_stacks_write_them_in() {
    let deadline = NOW.as_millis() + 5_000;
    for value in [
        AMQPValue::LongLongInt(deadline),
        AMQPValue::Timestamp(deadline as u64 / 1000),
        AMQPValue::LongString(deadline.to_string().into()),
        AMQPValue::LongString(format!(" {deadline}\n").into()),
        AMQPValue::ShortString(deadline.to_string().into()),
        AMQPValue::ByteArray(ByteArray::from(deadline.to_string().into_bytes())),
    ] {
        let text = format!("{value:?}");
        let (delivery, ignored) = read("shop", headers([(EXPIRES_AT, value)]));
        assert_eq!(delivery.ledger.deadline, Some(Timestamp::from_millis(deadline)), "{text}");
        assert_eq!(ignored, [], "{text}");
    }
}

#[test]
fn a_ledger_that_does_not_come_by_the_return_exchange_is_forged() {
    let forged = well_formed();
    for exchange in [
        "shop",
        "",
        "other.return",
        "ns.return2",
        "ns.after.",
        "ns.after.1s",
        "ns.after",
        "other.after.1",
        "ns.delay2",
    ] {
        let (delivery, ignored) = read(exchange, forged.clone());
        // The deadline is the one thing that producers may set.
        assert_eq!(delivery.ledger, Ledger { deadline: delivery.ledger.deadline, ..fresh() });
        assert!(delivery.ledger.deadline.is_some());
        assert_eq!(
            (delivery.origin.exchange.as_str(), delivery.origin.routing_key.as_str()),
            (exchange, "order.created")
        );
        assert_eq!(ignored, []);
        let copy = waiting(&delivery);
        assert_eq!(copy[ATTEMPT], AMQPValue::LongLongInt(0), "nor does it travel on");
        assert_eq!(copy.get(CHAIN_ID), None);
    }
}

#[test]
fn a_deadline_comes_from_the_header_else_from_amqp_else_from_the_policy() {
    let hour = Duration::from_secs(3600);
    let contract =
        Contract { max_age: Some(hour), expiry_header: "deadline".to_owned(), ..contract() };
    let check = |exchange, properties: BasicProperties, expected: Timestamp| {
        let text = format!("{exchange}, {properties:?}");
        let (delivery, _) = read_by(&contract, delivered(exchange, properties));
        assert_eq!(delivery.ledger.deadline, Some(expected), "{text}");
    };
    let at = |millis| Timestamp::from_millis(NOW.as_millis() + millis);
    let plain = || BasicProperties::default();
    let header = || properties(headers([("deadline", moment_value(at(7)))]));
    check("shop", plain(), NOW + hour);
    check("shop", header().with_expiration("9".into()), at(7));
    check("shop", plain().with_expiration("9".into()), at(9));
    check("shop", plain().with_expiration("9".into()).with_timestamp(1_700_000_001), at(1_999 + 9));
    check("shop", plain().with_expiration("9".into()).with_timestamp(u64::MAX), at(9));
    for long_ago in [0, 1, 1_600_000_000] {
        check("shop", plain().with_expiration("9".into()).with_timestamp(long_ago), at(9));
    }
    check("shop", plain().with_expiration("x".into()), NOW + hour);
    check("shop", plain().with_expiration(u64::MAX.to_string().into()), NOW + hour);
    let seen = properties(headers([(FIRST_SEEN_AT, moment_value(at(-1000)))]));
    check(RETURN, seen.with_expiration("9".into()), at(-1000) + hour);
    check("shop", properties(headers([(EXPIRES_AT, moment_value(at(7)))])), NOW + hour);
}

#[test]
fn the_brokers_count_is_believed_only_of_a_message_that_was_given_back() {
    let check = |redelivered, counts_deliveries, entries: &[(&str, i64)], expected| {
        let sent =
            headers(entries.iter().map(|(name, number)| (*name, AMQPValue::LongLongInt(*number))));
        let delivery = Delivery { redelivered, ..delivered("shop", properties(sent)) };
        let contract = Contract { counts_deliveries, ..contract() };
        let (delivery, _) = read_by(&contract, delivery);
        let of_the_broker = contract.redeliveries_of(&delivery);
        assert_eq!(
            [delivery.ledger.redeliveries, of_the_broker],
            [expected; 2],
            "{redelivered} {entries:?}"
        );
    };
    check(false, true, &[("x-delivery-count", 7)], Some(0));
    check(true, true, &[("x-delivery-count", 7)], Some(7));
    check(true, true, &[("x-delivery-count", -7)], Some(0));
    check(true, true, &[("x-acquired-count", 7)], Some(0));
    // 4.3: a producer's own count stays beside the broker's when a message was only handed back.
    check(true, true, &[("x-delivery-count", 7), ("x-acquired-count", 2)], Some(0));
    check(true, true, &[("x-delivery-count", 2), ("x-acquired-count", 7)], Some(2));
    // 4.3 goes on counting where the queue stopped from which it dead-lettered the message.
    check(true, true, &[("x-delivery-count", 7), ("x-acquired-count", 2), ("x-death", 1)], Some(7));
    // A broker that counts what was handed back never says 0 of a redelivered message.
    check(true, true, &[("x-delivery-count", 7), ("x-acquired-count", 0)], Some(7));
    check(true, true, &[("x-acquired-count", 0)], None);
    check(true, true, &[], None);
    check(true, false, &[("x-delivery-count", 7)], None);
    check(false, false, &[("x-delivery-count", 7)], Some(0));
}

#[test]
fn a_producers_deadline_may_not_take_the_name_of_a_header_with_another_meaning() {
    for reserved in [
        RETURN_TO,
        WAIT_FOR,
        X_DELAY,
        "rehop-then-1000",
        DEFERS,
        HOP,
        TRACEPARENT,
        TRACESTATE,
        BAGGAGE,
        "x-death",
        "x-delivery-count",
        "CC",
    ] {
        assert!(is_reserved(reserved), "{reserved}");
    }
    for free in [EXPIRES_AT, "deadline", "x-own", "cc", "return-to", "wait-for", "then-1000"] {
        assert!(!is_reserved(free), "{free}");
    }
}

/// A parked message is published again at the return exchange, as a replay does.
#[test]
fn a_replayed_message_starts_again_with_its_history_and_a_forged_replay_is_not_believed() {
    let mut parked = well_formed();
    parked.insert(REASON.into(), text("exhausted"));
    parked.insert(EXPIRES_AT.into(), AMQPValue::LongLongInt(NOW.as_millis() - 1));
    let origin = address("shop", "order.created");
    let identity = Identity { chain_id: "chain", origin: &origin };
    let replay = Replay { run: "run-1".to_owned(), number: 7, count: 3, is_canary: true };
    let copy = replayed(
        &properties(parked),
        &identity,
        "orders",
        &replay,
        (EXPIRES_AT, None),
        Room::DEFAULT,
    )
    .unwrap();
    let contract = Contract { max_age: Some(Duration::from_secs(30)), ..contract() };
    let (Delivery { ledger, origin, .. }, ignored) =
        read_by(&contract, delivered(RETURN, copy.clone()));
    assert!(ignored.is_empty(), "{ignored:?}");
    assert_eq!((ledger.attempts, ledger.hop, ledger.attempt()), (0, 0, 1));
    assert_eq!(ledger.deadline, Some(NOW + Duration::from_secs(30)), "its old deadline has passed");
    assert_eq!((ledger.chain_id.as_deref(), ledger.errors.len()), (Some("chain"), 1));
    assert_eq!((origin.exchange.as_str(), origin.routing_key.as_str()), ("shop", "order.created"));
    assert_eq!(ledger.replay, Some(replay));
    let (forged, _) = read_by(&contract, delivered("shop", copy));
    assert_eq!(forged.ledger.replay, None);
}
