//! Sections 7, 9, 12, 15 to 17: what becomes of a publish.

use super::*;
use crate::Alarm;

fn acked(tag: u64) -> Event {
    Event::Acked { delivery_tag: tag, is_multiple: false }
}

#[test]
fn an_unroutable_mandatory_message_is_returned_before_it_is_confirmed() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare_exchange("x", "headers");
        world.call(Method::ConfirmSelect);
        for (number, exchange) in [(1, ""), (2, "amq.direct"), (3, "x")] {
            let events = world.publish_with(exchange, "nowhere", properties("m"));
            assert!(
                matches!(&events[0], Event::Returned { code: 312, text, .. } if text == "NO_ROUTE"),
                "{events:?}"
            );
            assert_eq!(events[1..], [acked(number)], "{version:?}");
        }
    }
}

#[test]
fn publishing_to_a_missing_exchange_closes_the_channel() {
    for version in VERSIONS {
        let mut world = World::new(version);
        let events = world.publish_with("x", "q", properties("m"));
        let text = "NOT_FOUND - no exchange 'x' in vhost '/'".to_owned();
        assert_eq!(events, [Event::Closed { code: 404, text }], "{version:?}");
        assert_eq!(world.declare("q", quorum([])), [], "nothing happens on a closed channel");
        assert_eq!(world.call(Method::OpenChannel), [Event::Done], "its number can be used again");
    }
}

#[test]
fn what_a_publisher_may_not_send_closes_the_channel() {
    let user = "user_id property set to 'alice' but authenticated user was 'guest'";
    for version in VERSIONS {
        for (properties, expected) in [
            (properties("m").with_user_id("alice".into()), user),
            (properties("m").with_expiration("abc".into()), "invalid expiration 'abc': no_integer"),
            (properties("m").with_expiration("".into()), "invalid expiration '': no_integer"),
            (
                properties("m").with_expiration("1.5".into()),
                "invalid expiration '1.5': {leftover_string,\".5\"}",
            ),
            (
                properties("m").with_expiration("-1".into()),
                "invalid expiration '-1': {value_negative,-1}",
            ),
            (
                properties("m").with_expiration("315360000001".into()),
                "invalid expiration '315360000001': {value_too_large,315360000001}",
            ),
        ] {
            let mut world = World::new(version);
            world.declare("q", quorum([]));
            let (code, text) = closed(&world.publish_with("", "q", properties)).unwrap();
            assert_eq!(
                (code, text),
                (406, format!("PRECONDITION_FAILED - {expected}")),
                "{version:?}"
            );
        }
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        for fine in [
            properties("m").with_user_id("guest".into()),
            properties("m").with_expiration("0".into()),
        ] {
            assert_eq!(world.publish_with("", "q", fine), [], "{version:?}");
        }
    }
}

#[test]
fn a_full_queue_refuses_publishes_a_quorum_queue_one_message_late() {
    for version in VERSIONS {
        for (arguments, taken) in [(quorum([]), 4), (table([]), 3)] {
            let mut arguments = arguments;
            arguments.insert("x-max-length".into(), number(3));
            arguments.insert("x-overflow".into(), text("reject-publish"));
            let mut world = World::new(version);
            world.declare("q", arguments);
            world.call(Method::ConfirmSelect);
            for number in 1..=6 {
                let expected = if number <= taken {
                    acked(number)
                } else {
                    Event::Nacked { delivery_tag: number, is_multiple: true }
                };
                assert_eq!(world.publish("q", "m"), [expected], "{version:?}");
            }
            // A quorum queue takes publishes again when it is down to four fifths, here two.
            for left in [3, 2] {
                let tag = world.get("q").unwrap().tag;
                world.ack(tag);
                if taken == 4 && left == 3 {
                    assert_eq!(
                        world.publish("q", "m"),
                        [Event::Nacked { delivery_tag: 7, is_multiple: true }],
                        "{version:?}"
                    );
                }
            }
            if taken == 4 {
                assert_eq!(world.publish("q", "m"), [acked(8)], "{version:?}");
            }
        }
    }
}

#[test]
fn an_alarm_blocks_a_connection_when_it_publishes_and_with_it_its_acks() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        world.publish("q", "1");
        let delivery = deliveries(world.consume("q", "c")).pop().unwrap();
        world.call(Method::ConfirmSelect);
        world.broker.set_alarm(world.now, Some(Alarm::Memory));
        assert_eq!(world.heard(), [], "nobody is told");
        let blocked = Event::Blocked { reason: "low on memory".to_owned() };
        assert_eq!(world.publish("q", "2"), [blocked], "{version:?}");
        world.ack(delivery.tag);
        assert_eq!(world.broker.queue("q").unwrap().unacked, ["1"], "{version:?}");
        world.broker.set_alarm(world.now, None);
        let events = world.heard();
        assert_eq!(events[0], Event::Unblocked);
        assert!(events.contains(&acked(1)), "{events:?}");
        assert_eq!(world.broker.queue("q").unwrap().unacked, ["2"], "{version:?}");
    }
}

#[test]
fn during_an_alarm_consumers_are_served_and_new_connections_open() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        world.publish("q", "1");
        world.broker.set_alarm(world.now, Some(Alarm::Disk));
        world.connect();
        let delivery = deliveries(world.consume("q", "c")).pop().unwrap();
        world.ack(delivery.tag);
        assert_eq!(world.broker.queue("q").unwrap().unacked.len(), 0, "{version:?}");
    }
}

#[test]
fn a_message_is_confirmed_when_all_its_queues_have_taken_it() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare_exchange("x", "fanout");
        for queue in ["a", "b"] {
            world.declare(queue, quorum([]));
            world.bind(queue, "x", "", FieldTable::default());
        }
        world.call(Method::ConfirmSelect);
        world.broker.silence(world.now, "b", ms(1000));
        assert_eq!(world.publish_with("x", "", properties("1")), [], "{version:?}");
        assert_eq!(world.publish("a", "2"), [acked(2)], "{version:?}");
        assert_eq!(world.publish_with("x", "", properties("3")), [], "{version:?}");
        assert_eq!(
            world.pass(ms(1000)),
            [Event::Acked { delivery_tag: 3, is_multiple: true }],
            "{version:?}"
        );
        assert_eq!(world.ready("b"), ["1", "3"]);
    }
}

#[test]
fn publishers_that_were_turned_away_are_admitted_when_the_limit_is_gone_but_not_on_3_10() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([("x-overflow", text("reject-publish"))]));
        let definition = table([("max-length", number(1))]);
        world.broker.set_policy(world.now, "q", Some(definition));
        world.call(Method::ConfirmSelect);
        world.publish("q", "1");
        world.publish("q", "2");
        assert_eq!(
            world.publish("q", "3"),
            [Event::Nacked { delivery_tag: 3, is_multiple: true }],
            "{version:?}"
        );
        world.broker.set_policy(world.now, "q", None);
        let refused = Event::Nacked { delivery_tag: 4, is_multiple: true };
        let expected = if version == Version::V3_10 { refused } else { acked(4) };
        assert_eq!(world.publish("q", "4"), [expected], "{version:?}");
    }
}
