//! Sections 4 to 6 and 8: wait queues, cycles, expiration, `CC`.

use super::*;

/// A wait queue of one of three kinds, which dead-letters to an exchange.
fn wait_queue(kind: &str, ttl: i64, exchange: &str) -> FieldTable {
    let mut arguments =
        table([("x-message-ttl", number(ttl)), ("x-dead-letter-exchange", text(exchange))]);
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
            assert_eq!(
                events,
                [Event::Acked { delivery_tag: 1, is_multiple: false }],
                "{kind} on {version:?}"
            );
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
        for (kind, is_kept) in
            [("at-least-once", true), ("at-most-once", false), ("classic", false)]
        {
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

#[test]
fn at_least_once_needs_reject_publish() {
    for version in VERSIONS {
        let mut world = World::new(version);
        let mut arguments = wait_queue("at-least-once", 1000, "missing");
        arguments.insert("x-overflow".into(), text("drop-head"));
        world.declare("wait", arguments);
        world.publish("wait", "m");
        world.pass(ms(1000));
        assert_eq!(world.broker.queue("wait"), Some(crate::QueueView::default()), "{version:?}");
    }
}

#[test]
fn thirty_two_undeliverable_messages_stop_those_behind_them() {
    for version in VERSIONS {
        for (undeliverable, arrived) in [(31, 1), (32, 0)] {
            let mut world = World::new(version);
            world.declare_exchange("out", "direct");
            world.declare("work", quorum([]));
            world.bind("work", "out", "good", FieldTable::default());
            world.declare("wait", wait_queue("at-least-once", 1000, "out"));
            world.declare_exchange("in", "fanout");
            world.bind("wait", "in", "", FieldTable::default());
            for _ in 0..undeliverable {
                world.publish_with("in", "bad", properties("bad"));
            }
            world.publish_with("in", "good", properties("good"));
            world.pass(ms(1000));
            assert_eq!(world.ready("work").len(), arrived, "{undeliverable} on {version:?}");
            world.pass(ms(420_000));
            assert_eq!(world.ready("work").len(), arrived, "{undeliverable} on {version:?}");
        }
    }
}

#[test]
fn a_full_work_queue_gets_what_was_refused_after_three_minutes() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare(
            "work",
            quorum([("x-max-length", number(2)), ("x-overflow", text("reject-publish"))]),
        );
        let mut arguments = wait_queue("at-least-once", 1000, "");
        arguments.insert("x-dead-letter-routing-key".into(), text("work"));
        world.declare("wait", arguments);
        for id in ["1", "2", "3", "4", "5"] {
            world.publish("wait", id);
        }
        world.pass(ms(1000));
        assert_eq!(world.ready("work"), ["1", "2", "3"], "{version:?}");
        assert_eq!(world.broker.queue("wait").unwrap().dead_lettering, ["4", "5"]);
        world.call(Method::PurgeQueue { queue: "work".into() });
        world.pass(ms(180_000));
        assert_eq!(world.ready("work"), ["4", "5"], "{version:?}");
    }
}

/// Takes a message from a queue and publishes it again to another one, with its headers or without.
fn republish(world: &mut World, from: &str, to: &str, keeps_headers: bool) -> Delivery {
    let delivery = world.get(from).unwrap();
    world.ack(delivery.tag);
    let copy =
        if keeps_headers { (*delivery.properties).clone() } else { properties(&id(&delivery)) };
    world.publish_with("", to, copy);
    delivery
}

fn deaths(delivery: &Delivery) -> Vec<FieldTable> {
    let Some(AMQPValue::FieldArray(deaths)) = header(delivery, "x-death") else {
        return Vec::new();
    };
    let table = |death: &AMQPValue| match death {
        AMQPValue::FieldTable(table) => Some(table.clone()),
        _ => None,
    };
    deaths.as_slice().iter().filter_map(table).collect()
}

#[test]
fn a_client_s_x_death_counts_on_3_10_and_is_replaced_on_4_x() {
    for (version, expected) in VERSIONS.into_iter().zip([[1, 2, 3], [1, 1, 1], [1, 1, 1]]) {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        let mut arguments = wait_queue("at-least-once", 1000, "");
        arguments.insert("x-dead-letter-routing-key".into(), text("q"));
        world.declare("w", arguments);
        world.publish("w", "m");
        let mut counts = Vec::new();
        for _ in 0..3 {
            world.pass(ms(1000));
            let delivery = republish(&mut world, "q", "w", true);
            counts.push(crate::headers::integer_of(&deaths(&delivery)[0], "count").unwrap());
        }
        assert_eq!(counts, expected, "{version:?}");
    }
}

#[test]
fn a_second_trip_down_a_ladder_is_dropped_on_3_10_if_x_death_is_left_in() {
    for (version, is_dropped) in VERSIONS.into_iter().zip([true, false, false]) {
        for kind in ["at-least-once", "classic"] {
            for keeps_headers in [true, false] {
                let mut world = World::new(version);
                world.declare("work", quorum([]));
                for (queue, next) in [("high", "low"), ("low", "work")] {
                    let mut arguments = wait_queue(kind, 1000, "");
                    arguments.insert("x-dead-letter-routing-key".into(), text(next));
                    world.declare(queue, arguments);
                }
                world.publish("high", "m");
                world.pass(ms(2000));
                republish(&mut world, "work", "high", keeps_headers);
                world.pass(ms(2000));
                let expected = usize::from(!(is_dropped && keeps_headers));
                assert_eq!(
                    world.ready("work").len(),
                    expected,
                    "{kind} {keeps_headers} on {version:?}"
                );
            }
        }
    }
}

/// A work queue with a limit whose dead letters wait and come back to it.
fn cycle(version: Version, kind: &str) -> World {
    let mut world = World::new(version);
    let (exchange, key) =
        (("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text("w")));
    world.declare("q", quorum([("x-delivery-limit", number(0)), exchange, key]));
    let mut arguments = wait_queue(kind, 1000, "");
    arguments.insert("x-dead-letter-routing-key".into(), text("q"));
    world.declare("w", arguments);
    world.publish("q", "m");
    world
}

#[test]
fn a_cycle_without_a_rejection_ends() {
    for version in VERSIONS {
        for (kind, is_kept) in
            [("at-least-once", true), ("at-most-once", false), ("classic", false)]
        {
            let mut world = cycle(version, kind);
            let tag = world.get("q").unwrap().tag;
            world.reject(tag);
            world.pass(ms(1000));
            assert_eq!(world.ready("q").len(), 0, "{kind} on {version:?}");
            let held = world.broker.queue("w").unwrap().dead_lettering.len();
            assert_eq!(held, usize::from(is_kept), "{kind} on {version:?}");
        }
    }
}

#[test]
fn a_cycle_with_a_rejection_goes_on_and_is_counted() {
    for version in VERSIONS {
        let mut world = cycle(version, "at-least-once");
        for round in 0..9 {
            let delivery = world.get("q").unwrap();
            if round > 0 {
                let last = deaths(&delivery);
                let of = |reason: &str| {
                    let death = last
                        .iter()
                        .find(|death| crate::headers::string(death, "reason") == Some(reason));
                    death.and_then(|death| crate::headers::integer_of(death, "count"))
                };
                assert_eq!(
                    (of("expired"), of("rejected")),
                    (Some(round), Some(round)),
                    "{version:?}"
                );
            }
            world.call(Method::Reject { delivery_tag: delivery.tag, is_requeued: false });
            world.pass(ms(1000));
        }
    }
}

#[test]
fn the_lower_of_expiration_and_time_to_live_counts_and_only_the_head_expires() {
    for version in VERSIONS {
        for kind in ["at-least-once", "at-most-once", "classic"] {
            let mut world = World::new(version);
            world.declare("q", quorum([]));
            let mut arguments = wait_queue(kind, 2000, "");
            arguments.insert("x-dead-letter-routing-key".into(), text("q"));
            world.declare("w", arguments);
            for (expiration, expected) in [("300", 300), ("5000", 2000)] {
                world.publish_with("", "w", properties("m").with_expiration(expiration.into()));
                world.pass(ms(expected - 1));
                assert_eq!(world.ready("q").len(), 0);
                world.pass(ms(1));
                let back = world.get("q").unwrap();
                assert_eq!(back.properties.expiration(), &None, "{kind} on {version:?}");
                let original = deaths(&back)[0].inner().get("original-expiration").cloned();
                assert_eq!(original, Some(text(expiration)), "{kind} on {version:?}");
            }
            world.publish_with("", "w", properties("slow").with_expiration("1500".into()));
            world.publish_with("", "w", properties("fast").with_expiration("200".into()));
            world.pass(ms(1499));
            assert_eq!(world.ready("q").len(), 0, "{kind} on {version:?}");
            world.pass(ms(1));
            assert_eq!(world.ready("q"), ["slow", "fast"], "{kind} on {version:?}");
        }
    }
}

#[test]
fn cc_routes_again_with_each_dead_lettering_that_keeps_the_routing_key() {
    for version in VERSIONS {
        for has_key in [false, true] {
            let mut world = World::new(version);
            world.declare_exchange("out", "direct");
            world.declare("work", quorum([]));
            world.declare("audit", quorum([]));
            world.bind("work", "out", "w", FieldTable::default());
            world.bind("audit", "out", "audit", FieldTable::default());
            let mut arguments = wait_queue("at-least-once", 1000, "out");
            if has_key {
                arguments.insert("x-dead-letter-routing-key".into(), text("w"));
            }
            world.declare("w", arguments);
            let cc = AMQPValue::FieldArray(vec![text("audit")].into());
            world.publish_with("", "w", properties("m").with_headers(table([("CC", cc.clone())])));
            assert_eq!(world.ready("audit").len(), 1);
            world.pass(ms(1000));
            assert_eq!(world.ready("audit").len(), if has_key { 1 } else { 2 }, "{version:?}");
            let back = world.get("work").unwrap();
            let kept = header(&back, "CC");
            assert_eq!(kept.is_some(), !(has_key && version == Version::V3_10), "{version:?}");
            let keys = deaths(&back)[0].inner().get("routing-keys").cloned();
            assert_eq!(
                keys,
                Some(AMQPValue::FieldArray(vec![text("w"), text("audit")].into())),
                "{version:?}"
            );
        }
    }
}

#[test]
fn what_the_queue_drops_for_its_length_is_dead_lettered() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("dlq", quorum([]));
        let (exchange, key) =
            (("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text("dlq")));
        world.declare("q", quorum([("x-max-length", number(3)), exchange, key]));
        for id in ["1", "2", "3", "4", "5"] {
            world.publish("q", id);
        }
        assert_eq!(world.ready("q"), ["3", "4", "5"], "{version:?}");
        assert_eq!(world.ready("dlq"), ["1", "2"], "{version:?}");
        // What is dropped together arrives the other way round until 4.2.
        let definition = table([("max-length", number(1))]);
        world.broker.set_policy(world.now, "q", Some(definition));
        let last =
            if version < Version::V4_3 { ["1", "2", "4", "3"] } else { ["1", "2", "3", "4"] };
        assert_eq!(world.ready("dlq"), last, "{version:?}");
        assert_eq!(
            header(&world.get("dlq").unwrap(), "x-first-death-reason"),
            Some(text("maxlen"))
        );
    }
}

#[test]
fn dead_letters_follow_alternate_exchanges() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare_exchange("stray", "fanout");
        let method = Method::DeclareExchange {
            exchange: "return".into(),
            kind: "headers".to_owned(),
            is_passive: false,
            is_durable: true,
            arguments: table([("alternate-exchange", text("stray"))]),
        };
        world.call(method);
        world.declare("work", quorum([]));
        world.declare("unknown", quorum([]));
        world.bind("work", "return", "", table([("return-to", text("work"))]));
        world.bind("unknown", "stray", "", FieldTable::default());
        world.declare("wait", wait_queue("at-least-once", 1000, "return"));
        for (id, target) in [("1", "work"), ("2", "elsewhere")] {
            let headers = table([("return-to", text(target))]);
            world.publish_with("", "wait", properties(id).with_headers(headers));
        }
        world.pass(ms(1000));
        assert_eq!(
            (world.ready("work"), world.ready("unknown")),
            (vec!["1".to_owned()], vec!["2".to_owned()])
        );
        assert_eq!(world.get("unknown").unwrap().exchange.as_str(), "return", "{version:?}");
    }
}

#[test]
fn a_dead_letter_bears_the_date_of_its_death() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.broker.epoch = Time::from_secs(1_700_000_000);
        world.declare("end", quorum([]));
        let mut arguments = wait_queue("at-most-once", 1000, "");
        arguments.insert("x-dead-letter-routing-key".into(), text("end"));
        world.declare("wait", arguments);
        world.publish("wait", "m");
        world.pass(ms(1000));
        let deaths = deaths(&world.get("end").unwrap());
        let date = deaths[0].inner().get("time").cloned();
        assert_eq!(date, Some(AMQPValue::Timestamp(1_700_000_001)), "{version:?}");
    }
}

#[test]
fn on_3_10_former_deaths_change_their_order_each_time() {
    for (version, expected) in
        VERSIONS.into_iter().zip([["d", "b", "a", "c"], ["d", "c", "b", "a"], ["d", "c", "b", "a"]])
    {
        let mut world = World::new(version);
        world.declare("end", quorum([]));
        for (queue, next) in [("a", "b"), ("b", "c"), ("c", "d"), ("d", "end")] {
            let mut arguments = wait_queue("at-most-once", 1000, "");
            arguments.insert("x-dead-letter-routing-key".into(), text(next));
            world.declare(queue, arguments);
        }
        world.publish("a", "m");
        world.pass(ms(4000));
        let deaths = deaths(&world.get("end").unwrap());
        let queues: Vec<_> =
            deaths.iter().filter_map(|death| crate::headers::string(death, "queue")).collect();
        assert_eq!(queues, expected, "{version:?}");
    }
}
