//! Sections 4 to 6 and 8: wait queues, cycles, expiration, `CC`.

use super::*;

/// A wait queue of one of three kinds, which dead-letters to an exchange.
fn wait_queue(kind: &str, ttl: i64, exchange: &str) -> FieldTable {
    let mut arguments = table([("x-message-ttl", number(ttl)), ("x-dead-letter-exchange", text(exchange))]);
    if kind != "classic" {
        arguments.insert("x-queue-type".into(), text("quorum"));
    }
    if kind == "at-least-once" {
        arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
        arguments.insert("x-overflow".into(), text("reject-publish"));
    }
    arguments
}

#[test]
fn a_message_waits_for_its_time_to_live_and_comes_back_with_its_routing_key() {
    for version in VERSIONS {
        for kind in ["at-least-once", "at-most-once", "classic"] {
            let mut world = World::new(version);
            world.declare_exchange("in", "fanout");
            world.declare_exchange("out", "topic");
            world.declare("work", quorum([]));
            world.declare("wait", wait_queue(kind, 1000, "out"));
            world.bind("wait", "in", "", FieldTable::default());
            world.bind("work", "out", "#", FieldTable::default());
            world.consume("work", "c");
            world.call(Method::ConfirmSelect);
            let events = world.publish_with("in", "some.key", properties("m"));
            assert_eq!(events, [Event::Acked { tag: 1, is_multiple: false }], "{kind} on {version:?}");
            assert_eq!(world.pass(ms(999)), []);
            let back = deliveries(world.pass(ms(1)));
            assert_eq!(ids(&back), ["m"], "{kind} on {version:?}");
            assert_eq!(back[0].routing_key.as_str(), "some.key");
            assert_eq!(back[0].exchange.as_str(), "out");
            assert_eq!(world.broker.queue("wait"), Some(crate::QueueView::default()));
        }
    }
}

#[test]
fn what_has_no_route_is_lost_at_most_once_and_tried_every_three_minutes_at_least_once() {
    for version in VERSIONS {
        for (kind, is_kept) in [("at-least-once", true), ("at-most-once", false), ("classic", false)] {
            let mut world = World::new(version);
            world.declare_exchange("out", "fanout");
            world.declare("wait", wait_queue(kind, 1000, "out"));
            world.publish("wait", "m");
            world.pass(ms(1000));
            let held = world.broker.queue("wait").unwrap().dead_lettering;
            assert_eq!(held.len(), usize::from(is_kept), "{kind} on {version:?}");
            world.declare("work", quorum([]));
            world.bind("work", "out", "", FieldTable::default());
            world.pass(ms(179_999));
            assert_eq!(world.ready("work").len(), 0);
            world.pass(ms(1));
            assert_eq!(world.ready("work").len(), usize::from(is_kept), "{kind} on {version:?}");
            assert_eq!(world.broker.queue("wait"), Some(crate::QueueView::default()));
        }
    }
}
