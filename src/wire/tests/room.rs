//! What a copy carries if a frame has no room for all of it.

use super::random::{all_properties, names, values};
use super::*;

fn large(bytes: usize) -> AMQPValue {
    AMQPValue::LongString("x".repeat(bytes).into())
}

/// Eight failures of about 1 KiB.
fn history() -> Vec<ErrorRecord> {
    (1..=8)
        .map(|n| {
            ErrorRecord::new(NOW + Duration::from_secs(n), n as u32, "class", &"e".repeat(1_000))
        })
        .collect()
}

fn with_own(bytes: usize) -> Delivery {
    let (mut delivery, _) = read("shop", headers([("own", large(bytes))]));
    delivery.ledger.errors = history();
    delivery.ledger.first_failed = Some(NOW + Duration::from_secs(1));
    delivery.ledger.chain_id = Some("chain".to_owned());
    delivery
}

fn wait_in(room: Room, delivery: &Delivery) -> Result<BasicProperties, HeadersTooLarge> {
    contract().checked_wait_copy(
        delivery,
        &delivery.ledger,
        a_wait(),
        &TraceHeaders::default(),
        room,
    )
}

fn parked_in(room: Room, delivery: &Delivery) -> Resting {
    contract().parked_copy(
        delivery,
        &delivery.ledger,
        Reason::Exhausted,
        NOW,
        &TraceHeaders::default(),
        room,
    )
}

fn of(copy: &BasicProperties) -> &Headers {
    copy.headers().as_ref().unwrap().inner()
}

/// The numbers of the attempts in a copy's history.
fn attempts(copy: &BasicProperties) -> Vec<u32> {
    let Some(errors) = of(copy).get(ERRORS) else { return Vec::new() };
    error_records(errors).unwrap().iter().map(|error| error.attempt).collect()
}

/// No message brings a short string as a value: AMQP has no such type in tables.
fn sendable(value: AMQPValue) -> AMQPValue {
    match value {
        AMQPValue::ShortString(text) => AMQPValue::LongString(text.as_str().into()),
        AMQPValue::FieldArray(array) => AMQPValue::FieldArray(
            array.as_slice().iter().cloned().map(sendable).collect::<Vec<_>>().into(),
        ),
        AMQPValue::FieldTable(table) => {
            let fields =
                table.inner().clone().into_iter().map(|(name, value)| (name, sendable(value)));
            AMQPValue::FieldTable(fields.collect::<Headers>().into())
        }
        other => other,
    }
}

/// What a copy in a queue at rest is read as.
fn reunited(copy: Resting, body: &[u8]) -> (BasicProperties, Vec<u8>) {
    let Resting { mut properties, overflow } = copy;
    let mut whole = [body, &overflow].concat();
    reunite(&mut properties, &mut whole);
    (properties, whole)
}

#[test]
fn the_oldest_failures_make_room_first_and_then_all_of_them() {
    let room = Room::DEFAULT;
    for (own, oldest) in [(100_000, 1), (120_000, 3), (124_000, 7), (126_000, 9)] {
        let copy = wait_in(room, &with_own(own)).unwrap();
        assert_eq!(attempts(&copy), (oldest..9).collect::<Vec<_>>(), "{own}");
        assert_eq!(of(&copy).contains_key(FIRST_FAILED_AT), oldest != 1, "nothing else tells it");
    }
    assert!(wait_in(room, &with_own(126_900)).is_err());
    for (own, oldest) in [(100_000, 1), (124_000, 4), (129_000, 9)] {
        let Resting { properties, overflow } = parked_in(room, &with_own(own));
        assert_eq!((attempts(&properties), overflow.len()), ((oldest..9).collect(), 0), "{own}");
    }
}

#[test]
fn the_bound_follows_the_frame() {
    for frame_max in [8_192, 65_536, 131_072, 1_048_576] {
        let room = Room::of_frame(frame_max);
        let reserved = 4_096.min(frame_max as usize / 4);
        let limit = frame_max as usize - 20 - reserved;
        let bare = properties_size(&wait_in(Room::UNLIMITED, &with_own(0)).unwrap());
        let history = field_size(&ERRORS.into(), &errors_value(&with_own(0).ledger.errors));
        let most =
            limit - (bare - history) - field_size(&FIRST_FAILED_AT.into(), &moment_value(NOW));
        assert_eq!(properties_size(&wait_in(room, &with_own(most)).unwrap()), limit, "{frame_max}");
        let refused = wait_in(room, &with_own(most + 1)).unwrap_err();
        assert_eq!(refused, HeadersTooLarge { bytes: limit + 1, limit });
    }
    let text = HeadersTooLarge { bytes: 8, limit: 7 }.to_string();
    assert_eq!(text, "its properties and headers would take 8 bytes, and a frame has room for 7");
}

#[test]
fn a_parked_copy_keeps_its_small_headers_and_the_largest_follow_its_body() {
    let sent = headers([("large", large(70_000)), ("medium", large(60_000)), ("small", large(10))]);
    let (mut delivery, _) = read("shop", sent.clone());
    delivery.ledger.errors = history();
    let copy = parked_in(Room::DEFAULT, &delivery);
    assert_eq!(attempts(&copy.properties), [1, 2, 3, 4, 5, 6, 7, 8], "there is room again");
    let carried = of(&copy.properties);
    assert_eq!(
        (carried.get("large"), &carried["medium"], &carried["small"]),
        (None, &sent["medium"], &sent["small"])
    );
    assert_eq!(carried[BODY_BYTES], AMQPValue::LongLongInt(delivery.body.len() as i64));
    let (properties, body) = reunited(copy, &delivery.body);
    assert_eq!(
        (properties, body),
        (parked_in(Room::UNLIMITED, &delivery).properties, delivery.body.to_vec())
    );
}

#[test]
fn a_message_can_be_given_back_if_its_frame_has_room_for_the_brokers_counts() {
    let room = Room::DEFAULT;
    let filled = |bytes| properties(headers([("own", large(bytes))]));
    let around = properties_size(&filled(0));
    assert!(room.lets_return(&filled(FRAME_LIMIT - CLASS_WEIGHT_AND_BODY_SIZE - around - 64)));
    assert!(!room.lets_return(&filled(FRAME_LIMIT - CLASS_WEIGHT_AND_BODY_SIZE - around - 63)));
    let counts = headers([
        (DELIVERY_COUNT, AMQPValue::LongLongInt(1)),
        (ACQUIRED_COUNT, AMQPValue::LongLongInt(1)),
    ]);
    assert!(
        properties_size(&properties(counts)) - properties_size(&BasicProperties::default()) <= 64
    );
}

#[test]
fn a_body_that_no_headers_follow_stays_as_it_is() {
    let table = [0, 0, 0, 3, 1, b'a', b'V'];
    for (name, value, body) in [
        ("own", AMQPValue::LongLongInt(0), &table[..]),
        (BODY_BYTES, AMQPValue::LongLongInt(1), &table),
        (BODY_BYTES, AMQPValue::LongLongInt(0), &table[..6]),
        (BODY_BYTES, AMQPValue::LongLongInt(0), &[&table[..], b"x"].concat()),
        (BODY_BYTES, AMQPValue::LongLongInt(8), &table),
        (BODY_BYTES, AMQPValue::LongLongInt(-1), &table),
        (BODY_BYTES, AMQPValue::LongLongInt(i64::MAX), &table),
        (BODY_BYTES, text("0"), &table),
    ] {
        let sent = properties(headers([(name, value)]));
        let (mut read, mut rest) = (sent.clone(), body.to_vec());
        reunite(&mut read, &mut rest);
        assert_eq!((read, &rest[..]), (sent, body));
    }
    let (mut read, mut rest) =
        (properties(headers([(BODY_BYTES, AMQPValue::LongLongInt(0))])), table.to_vec());
    reunite(&mut read, &mut rest);
    assert_eq!((read, rest), (properties(headers([("a", AMQPValue::Void)])), Vec::new()));
}

/// The parser's stack would overflow.
#[test]
fn what_follows_a_body_and_is_nested_thousands_deep_is_not_parsed() {
    let reunited = |depth: usize| {
        let nested =
            |inside: Vec<u8>| [b"A", &(inside.len() as u32).to_be_bytes()[..], &inside].concat();
        let value = (0..depth).fold(b"V".to_vec(), |inside, _| nested(inside));
        let table = [b"\x01a", &value[..]].concat();
        let mut body = [&(table.len() as u32).to_be_bytes()[..], &table].concat();
        let mut read = properties(headers([(BODY_BYTES, AMQPValue::LongLongInt(0))]));
        reunite(&mut read, &mut body);
        of(&read).contains_key("a")
    };
    assert_eq!([1, 64, 65, 10_000].map(reunited), [true, true, false, false]);
}

proptest! {
    #![proptest_config(inputs(200))]

    /// Down to the smallest frame that AMQP allows, and with the longest names.
    #[test]
    fn a_parked_copy_fits_says_why_and_whence_it_came_and_loses_nothing_but_its_history(
        own in prop::collection::btree_map(names(), values(), 0..20), filling in 0..140_000_usize,
        texts in prop::collection::vec(prop::option::of(prop_oneof!["[ -~]{0,20}", "[ -~]{255}"]), 10), number in prop::option::of(any::<u64>()),
        exchange in "[ -~]{0,255}", routing_key in "[ -~]{0,255}", chain_id in "[ -~]{0,255}", failures in 0..=8_usize,
        frame_max in prop_oneof![4_096..140_000_u32, Just(4_096), Just(8_192), Just(131_072), Just(1_048_576)],
        body in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let mut sent: Headers = own.into_iter().map(|(name, value)| (name, sendable(value))).collect();
        sent.insert("filling".into(), large(filling));
        let sent = all_properties(&texts, number, [None; 2]).with_headers(FieldTable::from(sent));
        let delivery = Delivery {
            address: address(&exchange, &routing_key), body: Bytes::from(body), ..delivered(&exchange, sent)
        };
        let (mut delivery, _) = read_by(&contract(), delivery);
        delivery.ledger.chain_id = Some(chain_id.clone());
        delivery.ledger.errors = history().split_off(8 - failures);
        let copy = parked_in(Room::of_frame(frame_max), &delivery);
        // The frame's own bytes.
        prop_assert!(encoded(&copy.properties) + 8 <= frame_max as usize);
        let carried = of(&copy.properties).clone();
        prop_assert_eq!(&carried[REASON], &text("exhausted"));
        prop_assert_eq!((&carried[EXCHANGE], &carried[ROUTING_KEY]), (&text(&exchange), &text(&routing_key)));
        prop_assert_eq!(&carried[CHAIN_ID], &text(&chain_id));
        let kept = attempts(&copy.properties);
        prop_assert_eq!(&kept, &(9 - kept.len() as u32..=8).collect::<Vec<_>>(), "the newest");
        let (properties, body) = reunited(copy, &delivery.body);
        let without_history = |properties: BasicProperties| {
            let mut all = of(&properties).clone();
            all.remove(ERRORS);
            properties.with_headers(FieldTable::from(all))
        };
        let whole = parked_in(Room::UNLIMITED, &delivery).properties;
        prop_assert_eq!(without_history(properties), without_history(whole));
        prop_assert_eq!(body, delivery.body.to_vec());
    }
}
