//! The wire contract under the values that it is meant for, and under all others.
//!
//! Each property says how many random values it tried; `REHOP_TEST_INPUTS=100` tries a hundred times as many.

use bytes::Bytes;
use lapin::protocol::basic::gen_properties;
use lapin::types::{ByteArray, DecimalValue, LongString};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::inputs::inputs;
use crate::policy::tests::fresh;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const HOME: &str = "ns.return";
/// The most bytes that RabbitMQ takes as a content header (3.10, 4.0 and 4.3).
const FRAME_LIMIT: usize = 131_064;

/// Every header that a delivery is read from.
const READ: [&str; 12] = [
    WAIT_FOR,
    ATTEMPT,
    HOP,
    FIRST_SEEN_AT,
    FIRST_FAILED_AT,
    WAITING_SINCE,
    DUE_AT,
    EXPIRES_AT,
    EXCHANGE,
    ROUTING_KEY,
    ERRORS,
    CHAIN_ID,
];

fn contract() -> Contract {
    Contract {
        queue: "orders".to_owned(),
        return_exchange: HOME.to_owned(),
        expiry_header: EXPIRES_AT.to_owned(),
        max_age: None,
        counts_deliveries: true,
    }
}

type Headers = BTreeMap<ShortString, AMQPValue>;

fn headers<'a>(entries: impl IntoIterator<Item = (&'a str, AMQPValue)>) -> Headers {
    entries.into_iter().map(|(name, value)| (ShortString::from(name), value)).collect()
}

fn properties(headers: Headers) -> BasicProperties {
    BasicProperties::default().with_headers(FieldTable::from(headers))
}

fn envelope(exchange: &str, properties: BasicProperties) -> Envelope {
    Envelope {
        exchange: exchange.into(),
        routing_key: "order.created".into(),
        redelivered: false,
        delivery_tag: 1,
        properties,
        body: Bytes::from_static(b"{}"),
    }
}

fn read(exchange: &str, headers: Headers) -> (Arrival, Vec<Ignored>) {
    contract().read(envelope(exchange, properties(headers)), NOW)
}

fn a_wait() -> Wait {
    Wait { since: NOW, due: NOW + Duration::from_secs(10), tier: Duration::from_secs(10) }
}

/// The headers of the copy that goes to wait after a delivery with these.
fn waiting(arrival: &Arrival) -> Headers {
    let copy = contract().wait_copy(arrival, &arrival.ledger, a_wait(), &TraceHeaders::default()).unwrap();
    copy.headers().as_ref().unwrap().inner().clone()
}

/// A message that is home from its second wait, all in order.
fn well_formed() -> Headers {
    let mut ledger = fresh();
    ledger.hop = 2;
    ledger.attempts = 3;
    ledger.first_failed = Some(NOW);
    ledger.deadline = Some(NOW + Duration::from_secs(3600));
    ledger.chain_id = Some("chain".to_owned());
    ledger.errors = vec![ErrorRecord::new(NOW, 3, "class", "message")];
    let arrival = Arrival {
        envelope: envelope("shop", properties(Headers::new())),
        ledger,
        exchange: "shop".into(),
        routing_key: "order.created".into(),
    };
    waiting(&arrival)
}

fn encoded(properties: &BasicProperties) -> usize {
    const CLASS_WEIGHT_AND_BODY_SIZE: usize = 2 + 2 + 8;
    let context = gen_properties(properties)(Vec::<u8>::new().into()).unwrap();
    CLASS_WEIGHT_AND_BODY_SIZE + context.write.len()
}

fn nested(depth: usize) -> AMQPValue {
    (0..depth).fold(AMQPValue::Void, |inner, _| AMQPValue::FieldArray(FieldArray::from(vec![inner])))
}

/// Numbers at the edges of every range that matters.
fn numbers() -> impl Strategy<Value = i64> {
    let now = NOW.as_millis();
    let edges = [i64::MIN, i64::MIN + 1, -1, 0, 1, 2, 999_999, 1_000_000, 1_000_001, now / 1000, now - 1, now, now + 1];
    let ends = [SANE_MILLIS.start - 1, SANE_MILLIS.start, SANE_MILLIS.end - 1, SANE_MILLIS.end, i64::MAX - 1, i64::MAX];
    prop_oneof![select([edges.as_slice(), ends.as_slice()].concat()), any::<i64>()]
}

/// Every type that a field can have, to three levels.
fn values() -> impl Strategy<Value = AMQPValue> {
    let words = select(vec!["", " 7 ", "-7", "1700000000000", "1e3", "NaN", "orders", "\u{0}", "ключ"]);
    let leaf = prop_oneof![
        5 => Just(AMQPValue::Void),
        5 => any::<bool>().prop_map(AMQPValue::Boolean),
        5 => any::<i8>().prop_map(AMQPValue::ShortShortInt),
        5 => any::<u8>().prop_map(AMQPValue::ShortShortUInt),
        5 => any::<i16>().prop_map(AMQPValue::ShortInt),
        5 => any::<u16>().prop_map(AMQPValue::ShortUInt),
        5 => any::<i32>().prop_map(AMQPValue::LongInt),
        5 => any::<u32>().prop_map(AMQPValue::LongUInt),
        20 => numbers().prop_map(AMQPValue::LongLongInt),
        10 => any::<u64>().prop_map(AMQPValue::Timestamp),
        5 => (-1e12f32..1e12).prop_map(AMQPValue::Float),
        5 => (-1e300f64..1e300).prop_map(AMQPValue::Double),
        5 => (any::<u8>(), any::<u32>())
            .prop_map(|(scale, value)| AMQPValue::DecimalValue(DecimalValue { scale, value })),
        5 => ".{0,60}".prop_map(|text| AMQPValue::ShortString(text.into())),
        10 => words.prop_map(|text| AMQPValue::LongString(text.into())),
        5 => numbers().prop_map(|number| AMQPValue::LongString(number.to_string().into())),
        5 => prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| AMQPValue::LongString(LongString::from(bytes))),
        5 => prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| AMQPValue::ByteArray(ByteArray::from(bytes))),
        1 => Just(AMQPValue::LongString("x".repeat(128 * 1024).into())),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|values| AMQPValue::FieldArray(FieldArray::from(values))),
            prop::collection::btree_map(names(), inner, 0..4).prop_map(|table| AMQPValue::FieldTable(table.into())),
        ]
    })
}

fn names() -> impl Strategy<Value = ShortString> {
    prop_oneof![
        select(vec!["at", "attempt", "class", "message", "", "x", "Überschrift"]).prop_map(ShortString::from),
        "[a-z-]{1,20}".prop_map(|name| ShortString::from(name.as_str())),
    ]
}

fn moments() -> impl Strategy<Value = Timestamp> {
    SANE_MILLIS.prop_map(Timestamp::from_millis)
}

fn past() -> impl Strategy<Value = Timestamp> {
    (SANE_MILLIS.start..=NOW.as_millis()).prop_map(Timestamp::from_millis)
}

/// What a policy can make of a message: waits last 30 days each at most, and their legs too.
fn waits() -> impl Strategy<Value = Wait> {
    const MONTH: u64 = 30 * 24 * 60 * 60 * 1000;
    (past(), 1..=MONTH, 0..=MONTH).prop_map(|(since, tier, more)| Wait {
        since,
        due: since + Duration::from_millis(tier + more),
        tier: Duration::from_millis(tier),
    })
}

prop_compose! {
    fn records()(at in any::<i64>(), attempt in any::<u32>(), class in ".{0,200}", message in ".{0,1200}") -> ErrorRecord {
        ErrorRecord::new(Timestamp::from_millis(at), attempt, &class, &message)
    }
}

prop_compose! {
    fn ledgers()(
        (attempts, hop) in (0..=MAX_COUNT, 1..=MAX_COUNT),
        first_seen in past(),
        first_failed in prop::option::of(moments()),
        deadline in prop::option::of(moments()),
        wait in waits(),
        errors in prop::collection::vec(records(), 0..=MAX_ERRORS),
        chain_id in prop::option::of("[ -~]{0,255}"),
    ) -> Ledger {
        let wait_unfinished = (wait.due.since(wait.since) > wait.tier).then_some(wait.due);
        Ledger {
            attempts, hop, first_seen, first_failed, deadline, wait: Some(wait), wait_unfinished, errors, chain_id, ..fresh()
        }
    }
}

proptest! {
    #![proptest_config(inputs(400))]

    #[test]
    fn what_a_copy_carries_into_a_wait_is_read_back_at_home(
        ledger in ledgers(), exchange in "[ -~]{0,255}", routing_key in "[ -~]{0,255}",
    ) {
        let first = Arrival {
            envelope: envelope(&exchange, BasicProperties::default()),
            ledger: fresh(),
            exchange: exchange.as_str().into(),
            routing_key: routing_key.as_str().into(),
        };
        let copy = contract().wait_copy(&first, &ledger, ledger.wait.unwrap(), &TraceHeaders::default()).unwrap();
        let (home, ignored) = contract().read(envelope(HOME, copy), NOW);
        prop_assert_eq!(ignored, vec![]);
        prop_assert_eq!(home.ledger, ledger);
        prop_assert_eq!((home.exchange.as_str(), home.routing_key.as_str()), (exchange.as_str(), routing_key.as_str()));
    }
}

proptest! {
    #![proptest_config(inputs(1_000))]

    /// All headers of ours at once, at home and on a first delivery.
    #[test]
    fn no_header_makes_reading_or_copying_panic(
        entries in prop::collection::vec((select(READ.to_vec()), values()), 0..READ.len() + 4),
        others in prop::collection::vec((select(vec![USER_ID, CC, "CC", "BCC", "x-death", RETURN_TO, "x-delivery-count", "x-acquired-count"]), values()), 0..4),
        home in any::<bool>(), redelivered in any::<bool>(), max_age in prop::option::of(any::<u64>()),
    ) {
        let sent = headers(entries.into_iter().chain(others));
        let mut envelope = envelope(if home { HOME } else { "shop" }, properties(sent));
        envelope.redelivered = redelivered;
        let contract = Contract { max_age: max_age.map(Duration::from_millis), ..contract() };
        let (arrival, ignored) = contract.read(envelope, NOW);
        let mut warned: Vec<_> = ignored.iter().map(|ignored| ignored.header.clone()).collect();
        warned.sort();
        warned.dedup();
        prop_assert_eq!(warned.len(), ignored.len(), "one warning per header: {:?}", ignored);
        let ledger = &arrival.ledger;
        prop_assert!(ledger.attempts <= MAX_COUNT && ledger.hop <= MAX_COUNT && ledger.redeliveries.unwrap_or(0) <= MAX_COUNT);
        prop_assert!(ledger.first_seen <= NOW);
        prop_assert!(ledger.errors.len() <= MAX_ERRORS);
        if let Some(wait) = ledger.wait {
            prop_assert!(wait.due.since(wait.since) <= 2 * crate::backoff::MAX_DELAY, "{:?}", wait);
        }
        if home {
            prop_assert!(ledger.hop >= 1);
        } else {
            let untouched = Ledger { redeliveries: ledger.redeliveries, deadline: ledger.deadline, ..fresh() };
            prop_assert_eq!(ledger, &untouched, "a first delivery's ledger is not believed");
            prop_assert_eq!((arrival.exchange.as_str(), arrival.routing_key.as_str()), ("shop", "order.created"));
        }
        if let Ok(copy) = contract.wait_copy(&arrival, ledger, a_wait(), &TraceHeaders::default()) {
            prop_assert!(encoded(&copy) <= FRAME_LIMIT);
        }
        let original = encoded(&arrival.envelope.properties);
        let parked = contract.parked_copy(&arrival, ledger, Reason::Exhausted, &TraceHeaders::default());
        prop_assert!(encoded(&parked) <= FRAME_LIMIT.max(original + 1), "a copy fits if the original did");
    }
}

proptest! {
    #![proptest_config(inputs(6_000))]

    /// Everything in order but one header.
    #[test]
    fn one_bad_header_costs_one_warning_and_no_other_header(
        header in select(READ.to_vec()), value in values(),
    ) {
        let mut sent = well_formed();
        sent.insert(header.into(), value);
        let (arrival, ignored) = read(HOME, sent);
        prop_assert!(ignored.len() <= 1, "{:?}", ignored);
        prop_assert!(ignored.iter().all(|ignored| ignored.header == header));
        let (good, _) = read(HOME, well_formed());
        if header != ATTEMPT { prop_assert_eq!(arrival.ledger.attempts, good.ledger.attempts) }
        if header != HOP { prop_assert_eq!(arrival.ledger.hop, good.ledger.hop) }
        if header != EXPIRES_AT { prop_assert_eq!(arrival.ledger.deadline, good.ledger.deadline) }
        if header != ERRORS { prop_assert_eq!(arrival.ledger.errors, good.ledger.errors) }
        if header != CHAIN_ID { prop_assert_eq!(arrival.ledger.chain_id, good.ledger.chain_id) }
    }
}

proptest! {
    #![proptest_config(inputs(1_000))]

    #[test]
    fn a_producers_own_headers_come_home_as_they_were(
        own in prop::collection::btree_map("[a-z]{1,12}|own-[a-z-]{1,12}", values(), 0..8),
    ) {
        let own: Headers = own.into_iter().map(|(name, value)| (ShortString::from(name.as_str()), value)).collect();
        let first = envelope("shop", properties(own.clone()));
        let (arrival, _) = contract().read(first, NOW);
        if let Ok(copy) = contract().wait_copy(&arrival, &arrival.ledger, a_wait(), &TraceHeaders::default()) {
            let carried = copy.headers().as_ref().unwrap().inner().clone();
            prop_assert!(own.iter().all(|(name, value)| carried.get(name) == Some(value)));
        }
    }
}

proptest! {
    #![proptest_config(inputs(400))]

    #[test]
    fn the_estimate_is_never_below_what_goes_over_the_wire(
        own in prop::collection::btree_map(names(), values(), 0..20), text in "[ -~]{0,255}", number in any::<u64>(),
    ) {
        let short = || ShortString::from(text.as_str());
        let all = properties(own.clone())
            .with_content_type(short()).with_content_encoding(short()).with_correlation_id(short()).with_reply_to(short())
            .with_message_id(short()).with_type(short()).with_app_id(short()).with_cluster_id(short())
            .with_priority(9).with_delivery_mode(2).with_timestamp(number);
        let (estimate, real) = (encoded_size(&own), encoded(&all));
        prop_assert!(estimate >= real, "estimated {estimate}, encoded {real}");
    }
}

proptest! {
    #![proptest_config(inputs(60))]

    #[test]
    fn whatever_is_filled_in_a_copy_fits_into_a_frame_or_is_refused(filling in 100_000usize..140_000, index in any::<Index>()) {
        let value = match index.index(3) {
            0 => AMQPValue::LongString("x".repeat(filling).into()),
            1 => AMQPValue::ByteArray(ByteArray::from(vec![0; filling])),
            _ => AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::Void; filling])),
        };
        let mut sent = well_formed();
        sent.insert("own".into(), value);
        let (arrival, _) = read(HOME, sent);
        match contract().wait_copy(&arrival, &arrival.ledger, a_wait(), &TraceHeaders::default()) {
            Ok(copy) => prop_assert!(encoded(&copy) <= FRAME_LIMIT),
            Err(HeadersTooLarge { bytes }) => prop_assert!(filling + 8_192 > MAX_HEADER_BYTES, "{filling} was refused as {bytes}"),
        }
    }
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
            // An array is right for errors; its one entry is not.
            let mut sent = well_formed();
            let text = format!("{header} = {value:.60?}");
            sent.insert(header.into(), value);
            let (_, ignored) = read(HOME, sent);
            assert_eq!(ignored.iter().map(|ignored| ignored.header.as_str()).collect::<Vec<_>>(), [header], "{text}");
        }
    }
}

#[test]
fn numbers_out_of_range_are_bounded_with_one_warning() {
    let check = |header: &str, number: i64, warned: bool, is: &dyn Fn(&Ledger) -> bool| {
        let mut sent = well_formed();
        sent.insert(header.into(), AMQPValue::LongLongInt(number));
        let (arrival, ignored) = read(HOME, sent);
        assert!(is(&arrival.ledger), "{header} = {number} gave {:?}", arrival.ledger);
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
fn a_wait_that_no_policy_can_make_does_not_hold_a_message_back_for_centuries() {
    for (absurd, moment) in [(DUE_AT, SANE_MILLIS.end - 1), (WAITING_SINCE, SANE_MILLIS.start)] {
        let mut sent = well_formed();
        sent.insert(absurd.into(), AMQPValue::LongLongInt(moment));
        let (arrival, ignored) = read(HOME, sent);
        assert_eq!((arrival.ledger.wait, arrival.ledger.wait_unfinished), (None, None));
        assert_eq!(ignored.iter().map(|ignored| ignored.header.as_str()).collect::<Vec<_>>(), [absurd]);
    }
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
        let (arrival, ignored) = read("shop", headers([(EXPIRES_AT, value)]));
        assert_eq!(arrival.ledger.deadline, Some(Timestamp::from_millis(deadline)), "{text}");
        assert_eq!(ignored, [], "{text}");
    }
}

#[test]
fn a_ledger_that_does_not_come_by_the_return_exchange_is_forged() {
    let forged = well_formed();
    for exchange in ["shop", "", "other.return", "ns.return2"] {
        let (arrival, ignored) = read(exchange, forged.clone());
        // The deadline is the one thing that producers may set.
        assert_eq!(arrival.ledger, Ledger { deadline: arrival.ledger.deadline, ..fresh() });
        assert!(arrival.ledger.deadline.is_some());
        assert_eq!((arrival.exchange.as_str(), arrival.routing_key.as_str()), (exchange, "order.created"));
        assert_eq!(ignored, []);
        let copy = waiting(&arrival);
        assert_eq!(copy[ATTEMPT], AMQPValue::LongLongInt(0), "nor does it travel on");
        assert_eq!(copy.get(CHAIN_ID), None);
    }
}

#[test]
fn what_would_loop_drop_duplicate_or_miscount_is_stripped() {
    let one = || AMQPValue::LongLongInt(1);
    let stripped = [
        "x-death",
        "x-first-death-queue",
        "x-first-death-reason",
        "x-first-death-exchange",
        "x-last-death-queue",
        "x-last-death-reason",
        "x-last-death-exchange",
        "x-delivery-count",
        "x-acquired-count",
        "CC",
        "BCC",
        "rehop-anything",
        "rehop-reason",
    ];
    let kept = ["x-own", "cc", "x-deaths", "traceparent"];
    let sent = headers(stripped.into_iter().chain(kept).map(|name| (name, one())));
    let first = properties(sent).with_expiration("60000".into()).with_user_id("shop".into()).with_delivery_mode(1);
    let (arrival, _) = contract().read(envelope("shop", first), NOW);
    let trace = TraceHeaders::default();
    for copy in [
        contract().wait_copy(&arrival, &arrival.ledger, a_wait(), &trace).unwrap(),
        contract().parked_copy(&arrival, &arrival.ledger, Reason::Exhausted, &trace),
    ] {
        let headers = copy.headers().as_ref().unwrap().inner().clone();
        for name in stripped.into_iter().filter(|name| *name != REASON) {
            assert_eq!(headers.get(name), None, "{name}");
        }
        assert_ne!(headers.get(REASON), Some(&one()));
        for name in kept {
            assert_eq!(headers.get(name), Some(&one()), "{name}");
        }
        assert_eq!((copy.expiration(), copy.user_id(), copy.delivery_mode()), (&None, &None, &Some(2)));
        assert_eq!(headers[USER_ID], text("shop"), "kept in a header of ours");
        assert_eq!(headers[CC], one());
    }
}

#[test]
fn what_was_stripped_stays_known_over_further_waits_and_cannot_be_forged() {
    let first = properties(headers([("CC", text("audit"))])).with_user_id("shop".into());
    let (arrival, _) = contract().read(envelope("shop", first), NOW);
    let (home, _) = read(HOME, waiting(&arrival));
    let again = waiting(&home);
    assert_eq!((&again[USER_ID], &again[CC]), (&text("shop"), &text("audit")));
    let (forged, _) = read("shop", headers([(USER_ID, text("root")), (CC, text("all"))]));
    let copy = waiting(&forged);
    assert_eq!((copy.get(USER_ID), copy.get(CC)), (None, None));
}

#[test]
fn every_other_property_travels() {
    let short = |text: &str| ShortString::from(text);
    let all = properties(Headers::new())
        .with_content_type(short("a"))
        .with_content_encoding(short("b"))
        .with_correlation_id(short("c"))
        .with_reply_to(short("d"))
        .with_message_id(short("e"))
        .with_type(short("f"))
        .with_app_id(short("g"))
        .with_cluster_id(short("h"))
        .with_priority(3)
        .with_delivery_mode(2)
        .with_timestamp(1_700_000_000);
    let (arrival, _) = contract().read(envelope("shop", all.clone()), NOW);
    let copy = contract().wait_copy(&arrival, &arrival.ledger, a_wait(), &TraceHeaders::default()).unwrap();
    let without_headers = |properties: BasicProperties| properties.with_headers(FieldTable::default());
    assert_eq!(without_headers(copy), without_headers(all));
}

#[test]
fn the_history_makes_room_before_a_copy_is_refused() {
    let errors: Vec<_> = (0..8).map(|n| ErrorRecord::new(NOW, n, "class", &"e".repeat(1000))).collect();
    let own = |bytes: usize| {
        let (mut arrival, _) = read("shop", headers([("own", AMQPValue::LongString("x".repeat(bytes).into()))]));
        arrival.ledger.errors.clone_from(&errors);
        contract().wait_copy(&arrival, &arrival.ledger, a_wait(), &TraceHeaders::default())
    };
    let carried = |copy: BasicProperties| copy.headers().as_ref().unwrap().inner().contains_key(ERRORS);
    assert!(carried(own(100_000).unwrap()));
    assert!(!carried(own(MAX_HEADER_BYTES - 5_000).unwrap()));
    let error = own(MAX_HEADER_BYTES).unwrap_err();
    assert!(error.to_string().starts_with("the message's headers take 129"), "{error}");
}

#[test]
fn a_deadline_comes_from_the_header_else_from_amqp_else_from_the_policy() {
    let hour = Duration::from_secs(3600);
    let contract = Contract { max_age: Some(hour), expiry_header: "deadline".to_owned(), ..contract() };
    let check = |exchange, properties: BasicProperties, expected: Timestamp| {
        let text = format!("{exchange}, {properties:?}");
        let (arrival, _) = contract.read(envelope(exchange, properties), NOW);
        assert_eq!(arrival.ledger.deadline, Some(expected), "{text}");
    };
    let at = |millis| Timestamp::from_millis(NOW.as_millis() + millis);
    let plain = || BasicProperties::default();
    let header = || properties(headers([("deadline", moment_value(at(7)))]));
    check("shop", plain(), NOW + hour);
    check("shop", header().with_expiration("9".into()), at(7));
    check("shop", plain().with_expiration("9".into()), at(9));
    check("shop", plain().with_expiration("9".into()).with_timestamp(1_700_000_001), at(1_999 + 9));
    check("shop", plain().with_expiration("9".into()).with_timestamp(u64::MAX), at(9));
    check("shop", plain().with_expiration("x".into()), NOW + hour);
    check("shop", plain().with_expiration(u64::MAX.to_string().into()), NOW + hour);
    let seen = properties(headers([(FIRST_SEEN_AT, moment_value(at(-1000)))]));
    check(HOME, seen.with_expiration("9".into()), at(-1000) + hour);
    check("shop", properties(headers([(EXPIRES_AT, moment_value(at(7)))])), NOW + hour);
}

#[test]
fn the_brokers_count_is_believed_only_of_a_message_that_was_given_back() {
    let check = |redelivered, counts_deliveries, entries: &[(&str, i64)], expected| {
        let sent = headers(entries.iter().map(|(name, number)| (*name, AMQPValue::LongLongInt(*number))));
        let envelope = Envelope { redelivered, ..envelope("shop", properties(sent)) };
        let (arrival, _) = Contract { counts_deliveries, ..contract() }.read(envelope, NOW);
        assert_eq!(arrival.ledger.redeliveries, expected, "{redelivered} {entries:?}");
    };
    check(false, true, &[("x-delivery-count", 7)], Some(0));
    check(true, true, &[("x-delivery-count", 7)], Some(7));
    check(true, true, &[("x-delivery-count", -7)], Some(0));
    check(true, true, &[("x-acquired-count", 7)], Some(0));
    check(true, true, &[], None);
    check(true, false, &[("x-delivery-count", 7)], None);
    check(false, false, &[("x-delivery-count", 7)], Some(0));
}

#[test]
fn trace_headers_are_replaced_and_never_stand_beside_others() {
    let old = ["traceparent", "tracestate", "baggage"].map(|name| (name, text("old")));
    let (arrival, _) = read("shop", headers(old));
    let trace = TraceHeaders(vec![("traceparent", "new".to_owned())]);
    let copy = contract().wait_copy(&arrival, &arrival.ledger, a_wait(), &trace).unwrap();
    let headers = copy.headers().as_ref().unwrap().inner();
    assert_eq!(headers["traceparent"], text("new"));
    assert_eq!((headers.get("tracestate"), headers.get("baggage")), (None, None));
}
