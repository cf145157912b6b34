//! The priority of a message that waits.

use super::*;

fn of_priority(exchange: &str, priority: u8) -> Delivery {
    delivered(exchange, BasicProperties::default().with_priority(priority))
}

fn copied(delivery: &Delivery, path: Path) -> BasicProperties {
    let wait = Wait { path, ..a_wait() };
    let (trace, room) = (TraceHeaders::default(), Room::DEFAULT);
    contract().checked_wait_copy(delivery, &delivery.ledger, wait, &trace, room).unwrap()
}

#[test]
fn a_copy_in_a_wait_queue_has_a_priority_of_the_ordinary_line_and_comes_back_with_its_own() {
    for (priority, waits_with, is_kept) in
        [(0, 0, false), (4, 4, false), (5, 4, true), (9, 4, true), (255, 4, true)]
    {
        for path in [Path::Tier, Path::Ladder { rung: Duration::from_secs(1) }] {
            let copy = copied(&of_priority("shop", priority), path);
            assert_eq!(*copy.priority(), Some(waits_with), "{priority} {path:?}");
            let header = copy.headers().as_ref().unwrap().inner().contains_key(PRIORITY);
            assert_eq!(header, is_kept, "{priority} {path:?}");
            let mut back = copy.clone();
            contract().restore_priority(&address(RETURN, "order.created"), &mut back);
            assert_eq!(*back.priority(), Some(priority), "{priority} {path:?}");
            // The next copy is written from what came back.
            let again = copied(&delivered(RETURN, back.clone()), path);
            assert_eq!(*again.priority(), Some(waits_with), "{priority} {path:?}");
            // A copy that goes elsewhere than into a wait has it again, also from the stray queue.
            for original in [&back, &copy] {
                let written = crate::wire::write::properties(original, BTreeMap::new());
                assert_eq!(*written.priority(), Some(priority), "{priority} {path:?}");
            }
        }
    }
    assert_eq!(
        *copied(&delivered("shop", BasicProperties::default()), Path::Tier).priority(),
        None
    );
}

#[test]
fn the_delayed_exchange_has_no_lines_so_a_copy_keeps_its_priority_there() {
    let copy = copied(&of_priority("shop", 9), Path::Delayed);
    assert_eq!(*copy.priority(), Some(9));
    assert!(!copy.headers().as_ref().unwrap().inner().contains_key(PRIORITY));
}

#[test]
fn only_our_own_copy_gets_another_priority_back() {
    for (exchange, expected) in [("shop", Some(3)), (RETURN, Some(9))] {
        let mut message = properties(headers([(PRIORITY, AMQPValue::LongLongInt(9))]));
        message = message.with_priority(3);
        contract().restore_priority(&address(exchange, "key"), &mut message);
        assert_eq!(*message.priority(), expected, "{exchange}");
    }
    for wrong in [AMQPValue::LongLongInt(-1), AMQPValue::LongLongInt(256), AMQPValue::Void] {
        let mut message = properties(headers([(PRIORITY, wrong)])).with_priority(3);
        contract().restore_priority(&address(RETURN, "key"), &mut message);
        assert_eq!(*message.priority(), Some(3));
    }
}
