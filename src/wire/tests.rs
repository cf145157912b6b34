//! The wire contract under the values that it is meant for, and under all others.
//!
//! Each property says how many random values it tried; `REHOP_TEST_INPUTS=100` tries a hundred times as many.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::protocol::basic::gen_properties;
use lapin::types::{AMQPValue, ByteArray, DecimalValue, FieldArray, FieldTable, LongString, ShortString};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::names::*;
use super::read::*;
use super::values::*;
use super::write::*;
use super::{Contract, Homes};
use crate::inputs::{inputs, texts};
use crate::message::{Address, Delivery};
use crate::retry::decision::Reason;
use crate::retry::decision::tests::fresh;
use crate::retry::ledger::{ErrorRecord, Ledger, MAX_ERRORS, Wait};
use crate::timestamp::Timestamp;
use crate::wait::ladder::{Ladder, legs};
use crate::wait::{MAX_DELAY, Path};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const RETURN: &str = "ns.return";
/// The most bytes that RabbitMQ takes as a content header (3.10, 4.0 and 4.3).
const FRAME_LIMIT: usize = 131_064;

/// Every header that a delivery is read from.
const READ: [&str; 13] = [
    WAIT_FOR,
    ATTEMPT,
    HOP,
    DEFERS,
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
        homes: Homes {
            return_exchange: RETURN.to_owned(),
            after_prefix: "ns.after.".to_owned(),
            delay_exchange: "ns.delay".to_owned(),
        },
        expiry_header: EXPIRES_AT.to_owned(),
        max_age: None,
        counts_deliveries: true,
        counts_waits: false,
        hold_limit: None,
    }
}

type Headers = BTreeMap<ShortString, AMQPValue>;

fn headers<'a>(entries: impl IntoIterator<Item = (&'a str, AMQPValue)>) -> Headers {
    entries.into_iter().map(|(name, value)| (ShortString::from(name), value)).collect()
}

fn properties(headers: Headers) -> BasicProperties {
    BasicProperties::default().with_headers(FieldTable::from(headers))
}

fn address(exchange: &str, routing_key: &str) -> Address {
    Address { exchange: exchange.into(), routing_key: routing_key.into() }
}

/// A delivery whose headers are not read yet.
fn delivered(exchange: &str, properties: BasicProperties) -> Delivery {
    Delivery {
        address: address(exchange, "order.created"),
        origin: address(exchange, "order.created"),
        redelivered: false,
        delivery_tag: 1,
        properties,
        body: Bytes::from_static(b"{}"),
        ledger: fresh(),
    }
}

fn read_by(contract: &Contract, delivery: Delivery) -> (Delivery, Vec<Ignored>) {
    let Delivery { address, redelivered, properties, .. } = &delivery;
    let (ledger, origin, ignored) = contract.read(address, *redelivered, properties, NOW);
    (Delivery { ledger, origin, ..delivery }, ignored)
}

fn read(exchange: &str, headers: Headers) -> (Delivery, Vec<Ignored>) {
    read_by(&contract(), delivered(exchange, properties(headers)))
}

fn a_wait() -> Wait {
    Wait { since: NOW, due: NOW + Duration::from_secs(10), leg: Duration::from_secs(10), path: Path::Tier }
}

/// The headers of the copy that goes to wait after a delivery with these.
fn waiting(delivery: &Delivery) -> Headers {
    let copy = contract().checked_wait_copy(delivery, &delivery.ledger, a_wait(), &TraceHeaders::default()).unwrap();
    copy.headers().as_ref().unwrap().inner().clone()
}

/// A message that is back from its second wait, with nothing wrong.
fn well_formed() -> Headers {
    let mut ledger = fresh();
    ledger.hop = 2;
    ledger.attempts = 3;
    ledger.first_failed = Some(NOW);
    ledger.deadline = Some(NOW + Duration::from_secs(3600));
    ledger.chain_id = Some("chain".to_owned());
    ledger.errors = vec![ErrorRecord::new(NOW, 3, "class", "message")];
    let delivery = Delivery { ledger, ..delivered("shop", properties(Headers::new())) };
    waiting(&delivery)
}

const CLASS_WEIGHT_AND_BODY_SIZE: usize = 2 + 2 + 8;

fn encoded(properties: &BasicProperties) -> usize {
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
        5 => texts(60).prop_map(|text| AMQPValue::ShortString(text.into())),
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
    (past(), 1..=MONTH, 0..=MONTH).prop_map(|(since, leg, more)| Wait {
        since,
        due: since + Duration::from_millis(leg + more),
        leg: Duration::from_millis(leg),
        path: Path::Tier,
    })
}

prop_compose! {
    fn records()(at in any::<i64>(), attempt in any::<u32>(), class in texts(200), message in texts(1_200)) -> ErrorRecord {
        ErrorRecord::new(Timestamp::from_millis(at), attempt, &class, &message)
    }
}

prop_compose! {
    fn ledgers()(
        (attempts, hop) in (0..=MAX_COUNT, 1..=MAX_COUNT),
        first_seen in past(),
        first_failed in moments(),
        deadline in prop::option::of(moments()),
        wait in waits(),
        errors in prop::collection::vec(records(), 0..=MAX_ERRORS),
        chain_id in prop::option::of("[ -~]{0,255}"),
    ) -> Ledger {
        let wait_unfinished = wait.unfinished(NOW);
        // The oldest failure that is kept may be the first one.
        let first_failed = errors.first().map(|oldest: &ErrorRecord| if attempts % 2 == 0 { oldest.at } else { first_failed });
        Ledger {
            attempts, hop, first_seen, first_failed, deadline, wait: Some(wait), wait_unfinished, errors, chain_id, is_copy: true,
            ..fresh()
        }
    }
}

proptest! {
    #![proptest_config(inputs(400))]

    #[test]
    fn what_a_copy_carries_into_a_wait_is_read_back_when_it_returns(
        ledger in ledgers(), exchange in "[ -~]{0,255}", routing_key in "[ -~]{0,255}",
    ) {
        let first = Delivery {
            origin: address(&exchange, &routing_key), ..delivered(&exchange, BasicProperties::default())
        };
        let copy = contract().checked_wait_copy(&first, &ledger, ledger.wait.unwrap(), &TraceHeaders::default()).unwrap();
        // The copy comes home with the routing key that it was sent with.
        let home = Delivery { address: address(RETURN, &routing_key), ..delivered(RETURN, copy) };
        let (back, ignored) = read_by(&contract(), home);
        prop_assert_eq!(ignored, vec![]);
        prop_assert_eq!(back.ledger, ledger);
        prop_assert_eq!((back.origin.exchange.as_str(), back.origin.routing_key.as_str()), (exchange.as_str(), routing_key.as_str()));
    }
}

proptest! {
    #![proptest_config(inputs(1_000))]

    /// All headers of ours at once, on our own copy and on a first delivery.
    #[test]
    fn no_header_makes_reading_or_copying_panic(
        entries in prop::collection::vec((select(READ.to_vec()), values()), 0..READ.len() + 4),
        others in prop::collection::vec((select(vec![USER_ID, CC, "CC", "BCC", "x-death", RETURN_TO, "then-1", "x-delivery-count", "x-acquired-count"]), values()), 0..4),
        is_own_copy in any::<bool>(), redelivered in any::<bool>(), max_age in prop::option::of(any::<u64>()),
    ) {
        let sent = headers(entries.into_iter().chain(others));
        let exchange = if is_own_copy { RETURN } else { "shop" };
        let delivery = Delivery { redelivered, ..delivered(exchange, properties(sent)) };
        let contract = Contract { max_age: max_age.map(Duration::from_millis), ..contract() };
        let (delivery, ignored) = read_by(&contract, delivery);
        let mut warned: Vec<_> = ignored.iter().map(|ignored| ignored.header.clone()).collect();
        warned.sort();
        warned.dedup();
        prop_assert_eq!(warned.len(), ignored.len(), "one warning per header: {:?}", ignored);
        let ledger = &delivery.ledger;
        prop_assert!(ledger.attempts <= MAX_COUNT && ledger.hop <= MAX_COUNT && ledger.redeliveries.unwrap_or(0) <= MAX_COUNT);
        prop_assert!(ledger.first_seen <= NOW);
        prop_assert!(ledger.errors.len() <= MAX_ERRORS);
        if let Some(wait) = ledger.wait {
            prop_assert!(wait.due.since(wait.since) <= 2 * crate::wait::MAX_DELAY, "{:?}", wait);
        }
        if is_own_copy {
            prop_assert!(ledger.is_copy);
        } else {
            let untouched = Ledger { redeliveries: ledger.redeliveries, deadline: ledger.deadline, ..fresh() };
            prop_assert_eq!(ledger, &untouched, "a first delivery's ledger is not believed");
            prop_assert_eq!((delivery.origin.exchange.as_str(), delivery.origin.routing_key.as_str()), ("shop", "order.created"));
        }
        if let Ok(copy) = contract.checked_wait_copy(&delivery, ledger, a_wait(), &TraceHeaders::default()) {
            prop_assert!(encoded(&copy) <= FRAME_LIMIT);
        }
        let original = encoded(&delivery.properties);
        let parked = contract.parked_copy(&delivery, ledger, Reason::Exhausted, NOW, &TraceHeaders::default());
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
        let (delivery, ignored) = read(RETURN, sent);
        prop_assert!(ignored.len() <= 1, "{:?}", ignored);
        prop_assert!(ignored.iter().all(|ignored| ignored.header == header));
        let (good, _) = read(RETURN, well_formed());
        if header != ATTEMPT { prop_assert_eq!(delivery.ledger.attempts, good.ledger.attempts) }
        if ![HOP, DEFERS].contains(&header) { prop_assert_eq!(delivery.ledger.hop, good.ledger.hop) }
        if header != EXPIRES_AT { prop_assert_eq!(delivery.ledger.deadline, good.ledger.deadline) }
        if header != ERRORS { prop_assert_eq!(delivery.ledger.errors, good.ledger.errors) }
        if header != CHAIN_ID { prop_assert_eq!(delivery.ledger.chain_id, good.ledger.chain_id) }
    }
}

proptest! {
    #![proptest_config(inputs(1_000))]

    #[test]
    fn a_producers_own_headers_return_as_they_were(
        own in prop::collection::btree_map("[a-z]{1,12}|own-[a-z-]{1,12}", values(), 0..8),
    ) {
        let own: Headers = own.into_iter().map(|(name, value)| (ShortString::from(name.as_str()), value)).collect();
        let (delivery, _) = read("shop", own.clone());
        if let Ok(copy) = contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &TraceHeaders::default()) {
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
        // Exact, but for the room that is left for other properties.
        const FLAGS_AND_TABLE_LENGTH: usize = 2 + 4;
        let table_alone = encoded(&properties(own)) - CLASS_WEIGHT_AND_BODY_SIZE - FLAGS_AND_TABLE_LENGTH;
        prop_assert_eq!(estimate, table_alone + 10 * 256);
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
        let (delivery, _) = read(RETURN, sent);
        match contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &TraceHeaders::default()) {
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
            let mut sent = well_formed();
            let text = format!("{header} = {value:.60?}");
            sent.insert(header.into(), value);
            let (_, ignored) = read(RETURN, sent);
            assert_eq!(ignored.iter().map(|ignored| ignored.header.as_str()).collect::<Vec<_>>(), [header], "{text}");
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
fn a_wait_that_no_policy_can_make_does_not_hold_a_message_back_for_centuries() {
    let due = (NOW + Duration::from_secs(10)).as_millis();
    for (absurd, moment) in [(DUE_AT, SANE_MILLIS.end - 1), (WAITING_SINCE, SANE_MILLIS.start)] {
        let mut sent = well_formed();
        sent.insert(DUE_AT.into(), AMQPValue::LongLongInt(due));
        sent.insert(absurd.into(), AMQPValue::LongLongInt(moment));
        let (delivery, ignored) = read(RETURN, sent);
        assert_eq!((delivery.ledger.wait, delivery.ledger.wait_unfinished), (None, None));
        assert_eq!(ignored.iter().map(|ignored| ignored.header.as_str()).collect::<Vec<_>>(), [absurd]);
    }
}

/// The longest tier is 30 days, and the rounding up to whole tiers may take as long again.
#[test]
fn each_bound_of_a_wait_is_itself_believed() {
    let (month, millis) = (MAX_DELAY.as_millis() as i64, |number| AMQPValue::LongLongInt(number));
    let check = |since: i64, due: i64, leg: i64, ignored: Option<&str>| {
        let mut sent = well_formed();
        sent.insert(WAITING_SINCE.into(), millis(NOW.as_millis() + since));
        sent.insert(DUE_AT.into(), millis(NOW.as_millis() + due));
        sent.insert(WAIT_FOR.into(), millis(leg));
        let (delivery, warned) = read(RETURN, sent);
        let text = format!("since {since}, due {due}, leg {leg}: {warned:?}");
        assert_eq!(delivery.ledger.wait.is_none(), ignored.is_some(), "{text}");
        assert_eq!(warned.first().map(|ignored| ignored.header.as_str()), ignored, "{text}");
    };
    check(0, 1, 1, None);
    check(0, month, month, None);
    check(0, month, month + 1, Some(WAIT_FOR));
    check(0, month, 0, Some(WAIT_FOR));
    check(0, 2 * month, month, None);
    check(0, 2 * month + 1, month, Some(DUE_AT));
    check(-1, 2 * month, month, Some(WAITING_SINCE));
    // A clock that runs ahead of this one began the wait.
    check(5, 2 * month, month, None);
    check(5, 2 * month + 1, month, Some(DUE_AT));
}

#[test]
fn what_is_left_of_a_wait_of_several_legs_is_waited_on() {
    let mut sent = well_formed();
    sent.insert(WAITING_SINCE.into(), moment_value(Timestamp::from_millis(NOW.as_millis() - 10_000)));
    sent.insert(DUE_AT.into(), moment_value(NOW + Duration::from_millis(1)));
    assert_eq!(read(RETURN, sent.clone()).0.ledger.wait_unfinished, Some(NOW + Duration::from_millis(1)));
    sent.insert(DUE_AT.into(), moment_value(NOW));
    assert_eq!(read(RETURN, sent.clone()).0.ledger.wait_unfinished, None, "its time is over");
    assert_eq!(read("shop", sent).0.ledger.wait_unfinished, None, "forged");
}

/// A copy whose wait takes these rungs, delivered by the exchange behind the rung with this TTL.
fn back_from_ladder(rungs: &[u64], by: u64) -> Ledger {
    let sum: Duration = rungs.iter().copied().map(Duration::from_millis).sum();
    let path = Path::Ladder { rung: Duration::from_millis(1_000) };
    let since = Timestamp::from_millis(NOW.as_millis() - 5_000);
    let wait = Wait { since, due: since + sum, leg: sum, path };
    let (delivery, _) = read(RETURN, well_formed());
    let trace = TraceHeaders::default();
    let copy = contract().checked_wait_copy(&delivery, &delivery.ledger, wait, &trace).unwrap();
    let (back, ignored) = read_by(&contract(), delivered(&format!("ns.after.{by}"), copy));
    assert_eq!(ignored, []);
    back.ledger
}

#[test]
fn a_copy_on_the_ladder_carries_its_itinerary_and_the_sum_is_read_back() {
    let path = Path::Ladder { rung: Duration::from_millis(1_000) };
    let wait = Wait { leg: Duration::from_millis(11_000), path, ..a_wait() };
    let first = delivered("shop", properties(headers([("then-8000", AMQPValue::LongLongInt(1))])));
    let copy = contract().checked_wait_copy(&first, &first.ledger, wait, &TraceHeaders::default()).unwrap();
    let written = copy.headers().as_ref().unwrap().inner().clone();
    let number = |name: &str| written.get(name).cloned();
    let millis = |number| Some(AMQPValue::LongLongInt(number));
    assert_eq!([WAIT_FOR, "then-8000", "then-2000"].map(number), [8_000, 2_000, 1_000].map(millis));
    assert_eq!(number("then-1000"), None);
    let ledger = back_from_ladder(&[8_000, 2_000, 1_000], 1_000);
    let wait = ledger.wait.unwrap();
    assert_eq!((wait.leg.as_millis(), wait.path, ledger.wait_unfinished), (11_000, path, None));
}

#[test]
fn a_copy_that_a_missing_binding_brings_home_early_waits_for_the_rungs_that_are_left() {
    let ledger = back_from_ladder(&[8_000, 2_000, 1_000], 8_000);
    let wait = ledger.wait.unwrap();
    assert_eq!(wait.leg.as_millis(), 8_000);
    assert_eq!(legs(wait.leg, Duration::from_millis(1_000)).count(), 1);
    // 5 s have passed by this clock, and 8 s by the rung: what is left is never more than the other rungs.
    assert_eq!(ledger.wait_unfinished, Some(NOW + Duration::from_millis(3_000)));
    assert_eq!(
        back_from_ladder(&[8_000, 2_000, 1_000], 2_000).wait_unfinished,
        Some(NOW + Duration::from_millis(1_000))
    );
}

#[test]
fn hostile_rungs_end() {
    let number = AMQPValue::LongLongInt;
    let read_by_rung = |entries: &[(&str, i64)], by: &str| {
        let mut sent = well_formed();
        sent.extend(entries.iter().map(|(name, value)| (ShortString::from(*name), number(*value))));
        read(by, sent).0.ledger.wait.map(|wait| wait.leg.as_millis())
    };
    let around = [(WAIT_FOR, 8_000), ("then-8000", 2_000), ("then-2000", 8_000)];
    assert_eq!(read_by_rung(&around, "ns.after.1"), Some(10_000));
    assert_eq!(read_by_rung(&[(WAIT_FOR, 8_000), ("then-8000", 8_000)], "ns.after.1"), Some(8_000));
    assert_eq!(read_by_rung(&[(WAIT_FOR, 8_000), ("then-8000", -1)], "ns.after.1"), Some(8_000));
    assert_eq!(read_by_rung(&[(WAIT_FOR, i64::MAX), ("then-8000", 1)], "ns.after.1"), None);
    let many: Vec<_> = (1..5_000).map(|ttl| (format!("then-{ttl}"), ttl - 1)).collect();
    let mut many: Vec<_> = many.iter().map(|(name, ttl)| (name.as_str(), *ttl)).collect();
    many.push((WAIT_FOR, 4_999));
    assert_eq!(read_by_rung(&many, "ns.after.99999999999999999999"), None, "no exchange of ours");
    assert_eq!(read_by_rung(&many, "ns.after.0"), Some(4_999 * 5_000 / 2));
}

#[test]
fn the_delayed_exchange_is_told_the_delay_and_its_copies_are_believed() {
    let wait = Wait { path: Path::Delayed, ..a_wait() };
    let first = delivered("shop", properties(headers([(X_DELAY, AMQPValue::LongLongInt(1))])));
    let copy = contract().checked_wait_copy(&first, &first.ledger, wait, &TraceHeaders::default()).unwrap();
    assert_eq!(copy.headers().as_ref().unwrap().inner()[X_DELAY], AMQPValue::LongLongInt(10_000));
    let (back, ignored) = read_by(&contract(), delivered("ns.delay", copy));
    assert_eq!((back.ledger.wait, ignored), (Some(wait), vec![]));
}

#[test]
fn a_message_that_was_only_deferred_has_used_up_none_of_its_waits() {
    let deferred = fresh().waiting(Some(&crate::Failure::defer(Duration::from_secs(1))), true, NOW);
    let first = delivered("shop", BasicProperties::default());
    let copy = contract().checked_wait_copy(&first, &deferred, a_wait(), &TraceHeaders::default()).unwrap();
    let (back, _) = read_by(&contract(), delivered(RETURN, copy));
    assert_eq!((back.ledger.hop, back.ledger.defers, back.ledger.attempts), (0, 1, 0));
    assert!(back.ledger.is_copy);
}

proptest! {
    #![proptest_config(inputs(500))]

    #[test]
    fn any_wait_on_the_ladder_is_read_back_from_its_copy(
        rung in 1u64..100_000, precision in 1u8..=8, delay in 0u64..2_592_000_000,
    ) {
        let ladder = Ladder::new(Duration::from_millis(rung), precision, MAX_DELAY);
        let route = ladder.route(Duration::from_millis(delay)).unwrap();
        let wait = Wait { since: NOW, due: NOW + route.total, leg: route.leg, path: route.path };
        let first = delivered("shop", BasicProperties::default());
        let copy = contract().checked_wait_copy(&first, &first.ledger, wait, &TraceHeaders::default()).unwrap();
        let taken: Vec<_> = legs(route.leg, Duration::from_millis(rung)).collect();
        let by = format!("ns.after.{}", taken.last().unwrap().as_millis());
        let (back, _) = read_by(&contract(), delivered(&by, copy));
        let read = back.ledger.wait.unwrap();
        prop_assert_eq!((read.since, read.due, read.leg), (wait.since, wait.due, wait.leg));
        let Path::Ladder { rung } = read.path else { return Err(TestCaseError::fail("not on the ladder")) };
        prop_assert_eq!(legs(read.leg, rung).collect::<Vec<_>>(), taken);
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
        let (delivery, ignored) = read("shop", headers([(EXPIRES_AT, value)]));
        assert_eq!(delivery.ledger.deadline, Some(Timestamp::from_millis(deadline)), "{text}");
        assert_eq!(ignored, [], "{text}");
    }
}

#[test]
fn a_ledger_that_does_not_come_by_the_return_exchange_is_forged() {
    let forged = well_formed();
    for exchange in
        ["shop", "", "other.return", "ns.return2", "ns.after.", "ns.after.1s", "ns.after", "other.after.1", "ns.delay2"]
    {
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
        "then-8000",
        "then-0",
    ];
    let kept = ["x-own", "cc", "x-deaths", "traceparent", "then-", "then-what", "then-8s", "x-delay"];
    let sent = headers(stripped.into_iter().chain(kept).map(|name| (name, one())));
    let first = properties(sent).with_expiration("60000".into()).with_user_id("shop".into()).with_delivery_mode(1);
    let (delivery, _) = read_by(&contract(), delivered("shop", first));
    let trace = TraceHeaders::default();
    for copy in [
        contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &trace).unwrap(),
        contract().parked_copy(&delivery, &delivery.ledger, Reason::Exhausted, NOW, &trace),
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
    let (delivery, _) = read_by(&contract(), delivered("shop", first));
    let (back, _) = read(RETURN, waiting(&delivery));
    let again = waiting(&back);
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
    let (delivery, _) = read_by(&contract(), delivered("shop", all.clone()));
    let copy = contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &TraceHeaders::default()).unwrap();
    let without_headers = |properties: BasicProperties| properties.with_headers(FieldTable::default());
    assert_eq!(without_headers(copy), without_headers(all));
}

#[test]
fn the_history_makes_room_before_a_copy_is_refused() {
    let errors: Vec<_> = (0..8).map(|n| ErrorRecord::new(NOW, n, "class", &"e".repeat(1000))).collect();
    let own = |bytes: usize| {
        let (mut delivery, _) = read("shop", headers([("own", AMQPValue::LongString("x".repeat(bytes).into()))]));
        delivery.ledger.errors.clone_from(&errors);
        contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &TraceHeaders::default())
    };
    let carried = |copy: BasicProperties| copy.headers().as_ref().unwrap().inner().contains_key(ERRORS);
    assert!(carried(own(100_000).unwrap()));
    assert!(!carried(own(MAX_HEADER_BYTES - 5_000).unwrap()));
    let error = own(MAX_HEADER_BYTES).unwrap_err();
    assert!(error.to_string().starts_with("the message's headers take 129"), "{error}");
}

#[test]
fn a_copy_may_have_124_kibibytes_of_headers_to_the_byte() {
    assert_eq!(MAX_HEADER_BYTES, 126_976);
    let with_own = |bytes: usize| {
        let (mut delivery, _) = read("shop", headers([("own", AMQPValue::LongString("x".repeat(bytes).into()))]));
        delivery.ledger.errors.push(ErrorRecord::new(NOW, 1, "class", "message"));
        contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &TraceHeaders::default())
    };
    let headers_of = |copy: &BasicProperties| copy.headers().as_ref().unwrap().inner().clone();
    let small = headers_of(&with_own(0).unwrap());
    let room = MAX_HEADER_BYTES - encoded_size(&small);
    let full = headers_of(&with_own(room).unwrap());
    assert!(full.contains_key(ERRORS) && encoded_size(&full) == MAX_HEADER_BYTES);
    let forgetful = headers_of(&with_own(room + 1).unwrap());
    assert!(!forgetful.contains_key(ERRORS));
    let room = room + 1 + MAX_HEADER_BYTES - encoded_size(&forgetful);
    assert_eq!(encoded_size(&headers_of(&with_own(room).unwrap())), MAX_HEADER_BYTES);
    assert_eq!(with_own(room + 1).unwrap_err(), HeadersTooLarge { bytes: MAX_HEADER_BYTES + 1 });
}

#[test]
fn a_deadline_comes_from_the_header_else_from_amqp_else_from_the_policy() {
    let hour = Duration::from_secs(3600);
    let contract = Contract { max_age: Some(hour), expiry_header: "deadline".to_owned(), ..contract() };
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
    check("shop", plain().with_expiration("x".into()), NOW + hour);
    check("shop", plain().with_expiration(u64::MAX.to_string().into()), NOW + hour);
    let seen = properties(headers([(FIRST_SEEN_AT, moment_value(at(-1000)))]));
    check(RETURN, seen.with_expiration("9".into()), at(-1000) + hour);
    check("shop", properties(headers([(EXPIRES_AT, moment_value(at(7)))])), NOW + hour);
}

#[test]
fn the_brokers_count_is_believed_only_of_a_message_that_was_given_back() {
    let check = |redelivered, counts_deliveries, entries: &[(&str, i64)], expected| {
        let sent = headers(entries.iter().map(|(name, number)| (*name, AMQPValue::LongLongInt(*number))));
        let delivery = Delivery { redelivered, ..delivered("shop", properties(sent)) };
        let (delivery, _) = read_by(&Contract { counts_deliveries, ..contract() }, delivery);
        assert_eq!(delivery.ledger.redeliveries, expected, "{redelivered} {entries:?}");
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
    let (delivery, _) = read("shop", headers(old.into_iter().chain([("own", text("kept"))])));
    let trace = TraceHeaders(vec![("traceparent", "new".to_owned())]);
    let copy = contract().checked_wait_copy(&delivery, &delivery.ledger, a_wait(), &trace).unwrap();
    let headers = copy.headers().as_ref().unwrap().inner();
    assert_eq!(headers["traceparent"], text("new"));
    assert_eq!((headers.get("tracestate"), headers.get("baggage")), (None, None));
    assert_eq!(headers["own"], text("kept"));
}

#[test]
fn a_producers_deadline_may_not_take_the_name_of_a_header_with_another_meaning() {
    for reserved in [
        RETURN_TO,
        WAIT_FOR,
        X_DELAY,
        "then-1000",
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
    for free in [EXPIRES_AT, "deadline", "x-own", "cc", "then-late"] {
        assert!(!is_reserved(free), "{free}");
    }
}

#[test]
fn in_a_queue_with_delayed_retries_the_broker_tells_how_often_a_message_has_waited() {
    let native = Contract { counts_waits: true, ..contract() };
    let check = |redelivered, counted: Option<i64>, acquired: Option<i64>, expected| {
        let mut headers = FieldTable::default();
        for (name, count) in [("x-delivery-count", counted), ("x-acquired-count", acquired)] {
            if let Some(count) = count {
                headers.insert(name.into(), AMQPValue::LongLongInt(count));
            }
        }
        let address = Address { exchange: "shop".into(), routing_key: "order".into() };
        let properties = BasicProperties::default().with_headers(headers);
        let (ledger, _, _) = native.read(&address, redelivered, &properties, Timestamp::from_millis(1_700_000_000_000));
        let seen = (ledger.hop, ledger.redeliveries, ledger.attempt());
        assert_eq!(seen, expected, "{redelivered} {counted:?} {acquired:?}");
        assert!(!ledger.is_copy);
    };
    check(false, None, None, (0, Some(0), 1));
    // A producer's own.
    check(false, Some(7), Some(9), (0, Some(0), 1));
    check(true, None, Some(1), (1, Some(0), 2));
    check(true, Some(1), Some(1), (0, Some(1), 2));
    check(true, Some(2), Some(5), (3, Some(2), 6));
    check(true, Some(7), Some(1), (1, Some(0), 2));
    // A broker that does not delay, before 4.3, counts each return once: it bounds the waits too.
    check(true, Some(1), None, (1, Some(1), 3));
}
