//! What a copy says of its wait, and what is believed of that.

use super::*;
use crate::wait::jitter::{Draw, Range};
use crate::wait::{Jitter, delayed};

#[test]
fn a_wait_that_no_policy_can_make_does_not_hold_a_message_back_for_centuries() {
    let due = (NOW + Duration::from_secs(10)).as_millis();
    for (absurd, moment) in [(DUE_AT, SANE_MILLIS.end - 1), (WAITING_SINCE, SANE_MILLIS.start)] {
        let mut sent = well_formed();
        sent.insert(DUE_AT.into(), AMQPValue::LongLongInt(due));
        sent.insert(absurd.into(), AMQPValue::LongLongInt(moment));
        let (delivery, ignored) = read(RETURN, sent);
        assert_eq!((delivery.ledger.wait, delivery.ledger.wait_unfinished), (None, None));
        assert_eq!(
            ignored.iter().map(|ignored| ignored.header.as_str()).collect::<Vec<_>>(),
            [absurd]
        );
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
    sent.insert(
        WAITING_SINCE.into(),
        moment_value(Timestamp::from_millis(NOW.as_millis() - 10_000)),
    );
    sent.insert(DUE_AT.into(), moment_value(NOW + Duration::from_millis(1)));
    assert_eq!(
        read(RETURN, sent.clone()).0.ledger.wait_unfinished,
        Some(NOW + Duration::from_millis(1))
    );
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
    let copy = contract()
        .checked_wait_copy(&delivery, &delivery.ledger, wait, &trace, Room::DEFAULT)
        .unwrap();
    let (back, ignored) = read_by(&contract(), delivered(&format!("ns.after.{by}"), copy));
    assert_eq!(ignored, []);
    back.ledger
}

#[test]
fn a_copy_on_the_ladder_carries_its_itinerary_and_the_sum_is_read_back() {
    let path = Path::Ladder { rung: Duration::from_millis(1_000) };
    let wait = Wait { leg: Duration::from_millis(11_000), path, ..a_wait() };
    let first =
        delivered("shop", properties(headers([("rehop-then-8000", AMQPValue::LongLongInt(1))])));
    let copy = contract()
        .checked_wait_copy(&first, &first.ledger, wait, &TraceHeaders::default(), Room::DEFAULT)
        .unwrap();
    let written = copy.headers().as_ref().unwrap().inner().clone();
    let number = |name: &str| written.get(name).cloned();
    let millis = |number| Some(AMQPValue::LongLongInt(number));
    assert_eq!(
        [WAIT_FOR, "rehop-then-8000", "rehop-then-2000"].map(number),
        [8_000, 2_000, 1_000].map(millis)
    );
    assert_eq!(number("rehop-then-1000"), None);
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
    // 5 s have passed by this clock, and 8 s by the rung: what is left is never more than the other
    // rungs.
    assert_eq!(ledger.wait_unfinished, Some(NOW + Duration::from_millis(3_000)));
    assert_eq!(
        back_from_ladder(&[8_000, 2_000, 1_000], 2_000).wait_unfinished,
        Some(NOW + Duration::from_millis(1_000))
    );
}

#[test]
fn copies_from_a_queues_own_ladder_are_believed_by_that_queue_and_by_no_other() {
    for (by, is_believed) in [
        ("ns.after.1000", true),
        ("ns.after.orders.1000", true),
        ("ns.after.bills.1000", false),
        ("ns.after.orders.", false),
        ("ns.after.orders.bills.1000", false),
        ("other.after.orders.1000", false),
    ] {
        assert_eq!(read(by, well_formed()).0.ledger.is_copy, is_believed, "{by}");
    }
}

#[test]
fn hostile_rungs_end() {
    let number = AMQPValue::LongLongInt;
    let read_by_rung = |entries: &[(&str, i64)], by: &str| {
        let mut sent = well_formed();
        sent.extend(entries.iter().map(|(name, value)| (ShortString::from(*name), number(*value))));
        read(by, sent).0.ledger.wait.map(|wait| wait.leg.as_millis())
    };
    let around = [(WAIT_FOR, 8_000), ("rehop-then-8000", 2_000), ("rehop-then-2000", 8_000)];
    assert_eq!(read_by_rung(&around, "ns.after.1"), Some(10_000));
    assert_eq!(
        read_by_rung(&[(WAIT_FOR, 8_000), ("rehop-then-8000", 8_000)], "ns.after.1"),
        Some(8_000)
    );
    assert_eq!(
        read_by_rung(&[(WAIT_FOR, 8_000), ("rehop-then-8000", -1)], "ns.after.1"),
        Some(8_000)
    );
    assert_eq!(read_by_rung(&[(WAIT_FOR, i64::MAX), ("rehop-then-8000", 1)], "ns.after.1"), None);
    let many: Vec<_> = (1..5_000).map(|ttl| (format!("rehop-then-{ttl}"), ttl - 1)).collect();
    let mut many: Vec<_> = many.iter().map(|(name, ttl)| (name.as_str(), *ttl)).collect();
    many.push((WAIT_FOR, 4_999));
    assert_eq!(read_by_rung(&many, "ns.after.99999999999999999999"), None, "no exchange of ours");
    assert_eq!(read_by_rung(&many, "ns.after.0"), Some(4_999 * 5_000 / 2));
}

#[test]
fn the_delayed_exchange_is_told_the_delay_and_its_copies_are_believed() {
    let wait = Wait { path: Path::Delayed, ..a_wait() };
    let first = delivered("shop", properties(headers([(X_DELAY, AMQPValue::LongLongInt(1))])));
    let copy = contract()
        .checked_wait_copy(&first, &first.ledger, wait, &TraceHeaders::default(), Room::DEFAULT)
        .unwrap();
    assert_eq!(copy.headers().as_ref().unwrap().inner()[X_DELAY], AMQPValue::LongLongInt(10_000));
    let (back, ignored) = read_by(&contract(), delivered("ns.delay", copy));
    assert_eq!((back.ledger.wait, ignored), (Some(wait), vec![]));
}

#[test]
fn a_message_that_was_only_deferred_has_used_up_none_of_its_waits() {
    let deferred = fresh().waiting(Some(&crate::Failure::defer(Duration::from_secs(1))), true, NOW);
    let first = delivered("shop", BasicProperties::default());
    let copy = contract()
        .checked_wait_copy(&first, &deferred, a_wait(), &TraceHeaders::default(), Room::DEFAULT)
        .unwrap();
    let (back, _) = read_by(&contract(), delivered(RETURN, copy));
    assert_eq!((back.ledger.hop, back.ledger.defers, back.ledger.attempts), (0, 1, 0));
    assert!(back.ledger.is_copy);
    let copy = contract()
        .checked_wait_copy(&first, &fresh(), a_wait(), &TraceHeaders::default(), Room::DEFAULT)
        .unwrap();
    assert!(!copy.headers().as_ref().unwrap().contains_key(DEFERS));
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
        let copy = contract().checked_wait_copy(&first, &first.ledger, wait, &TraceHeaders::default(), Room::DEFAULT).unwrap();
        let taken: Vec<_> = legs(route.leg, Duration::from_millis(rung)).collect();
        let by = format!("ns.after.{}", taken.last().unwrap().as_millis());
        let (back, _) = read_by(&contract(), delivered(&by, copy));
        let read = back.ledger.wait.unwrap();
        prop_assert_eq!((read.since, read.due, read.leg), (wait.since, wait.due, wait.leg));
        let Path::Ladder { rung } = read.path else { return Err(TestCaseError::fail("not on the ladder")) };
        prop_assert_eq!(legs(read.leg, rung).collect::<Vec<_>>(), taken);
    }
}

proptest! {
    #![proptest_config(inputs(500))]

    #[test]
    fn whatever_jitter_draws_is_what_the_delayed_exchange_is_told_and_what_is_read_back(
        kind in select(vec![Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated]), draw in 0.0f64..1.0,
        first in 1u64..1_000_000, delay in 1u64..100_000_000, previous in prop::option::of(1u64..100_000_000),
    ) {
        let millis = Duration::from_millis;
        let range = Range { first: millis(first), longest: millis(first.max(delay)), previous: previous.map(millis) };
        let drawn = kind.of_policy(millis(delay), range, Draw::new(draw));
        let route = delayed::route(drawn).unwrap();
        let wait = Wait { since: NOW, due: NOW + route.total, leg: route.leg, path: route.path };
        let first = delivered("shop", BasicProperties::default());
        let copy = contract().checked_wait_copy(&first, &first.ledger, wait, &TraceHeaders::default(), Room::DEFAULT).unwrap();
        let AMQPValue::LongLongInt(told) = copy.headers().as_ref().unwrap().inner()[X_DELAY] else {
            return Err(TestCaseError::fail("no number"))
        };
        prop_assert_eq!(told, drawn.as_nanos().div_ceil(1_000_000) as i64);
        let (back, ignored) = read_by(&contract(), delivered("ns.delay", copy));
        prop_assert_eq!((back.ledger.wait, ignored), (Some(wait), vec![]));
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
        let (ledger, _, _) = native.read(
            &address,
            redelivered,
            &properties,
            Timestamp::from_millis(1_700_000_000_000),
        );
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
