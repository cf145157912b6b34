use lapin::types::{AMQPValue, FieldTable};

use super::*;
use rehop::Problem;

#[test]
fn only_a_queue_whose_leader_does_not_answer_counts_as_empty() {
    let (what, problem) = (|| "looking".to_owned(), || Problem::from("no".to_owned()));
    assert!(matches!(or_none(Ok(7)), Ok(7)));
    assert!(matches!(or_none(Err(Error::Unavailable { what: what(), problem: problem() })), Ok(0)));
    let missing = or_none::<u64>(Err(Error::Missing { what: what(), problem: problem() }));
    assert!(matches!(missing, Err(Error::Missing { .. })), "{missing:?}");
}

#[test]
fn a_message_is_as_large_as_its_body_and_its_headers() {
    assert_eq!(size(&BasicProperties::default(), b"body"), 4);
    let mut headers = FieldTable::default();
    headers.insert("name".into(), AMQPValue::LongString("x".repeat(100_000).as_str().into()));
    let size = size(&BasicProperties::default().with_headers(headers), b"body");
    assert!((100_008..100_030).contains(&size), "{size}");
}

#[test]
fn a_subscription_brings_no_more_than_memory_allows_but_always_one_message() {
    const MIB: u64 = 1024 * 1024;
    const AFTER_ONE: Demand =
        Demand { subscriptions: 1, wanted: 100_000, moving: None, received: 1, bytes: 1_000 };
    let moving = |at_once, kept| Some(Moving { at_once, kept });
    for (demand, expected) in [
        (Demand { subscriptions: 0, received: 0, bytes: 0, ..AFTER_ONE }, 1),
        (Demand { bytes: 0, ..AFTER_ONE }, 256),
        (Demand { wanted: 7, ..AFTER_ONE }, 7),
        (Demand { bytes: 16 * MIB, ..AFTER_ONE }, 4),
        (Demand { bytes: 100 * MIB, ..AFTER_ONE }, 1),
        (Demand { subscriptions: 2, received: 257, bytes: 257 * 1_024, ..AFTER_ONE }, u16::MAX),
        (Demand { subscriptions: 2, received: 257, bytes: 257 * MIB, ..AFTER_ONE }, 64),
        (Demand { moving: moving(500, 0), ..AFTER_ONE }, 500),
        (Demand { moving: moving(500, 0), bytes: 16 * MIB, ..AFTER_ONE }, 4),
        (Demand { moving: moving(100, 0), ..AFTER_ONE }, 100),
        (
            Demand {
                subscriptions: 2,
                moving: moving(100, 4_000),
                received: 4_100,
                bytes: 4_100,
                ..AFTER_ONE
            },
            1_000,
        ),
        (Demand { subscriptions: 2, wanted: 0, bytes: 1, ..AFTER_ONE }, 1),
    ] {
        assert_eq!(demand.prefetch(), expected, "{demand:?}");
    }
}
