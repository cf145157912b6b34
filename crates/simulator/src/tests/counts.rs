//! Sections 1 to 3 and 21: counts, limits, and where a message goes that comes back.

use super::*;

/// How a consumer gives a message back.
#[derive(Debug, Clone, Copy)]
enum Way {
    Nack,
    Reject,
    ChannelClosed,
    GetAndNack,
}

/// Delivers a message up to 30 times and gives it back each time. Returns how often it was
/// delivered.
fn loops(world: &mut World, queue: &str, way: Way) -> usize {
    if !matches!(way, Way::GetAndNack) {
        world.prefetch(1);
    }
    let mut count = 0;
    let mut next = match way {
        Way::GetAndNack => Vec::new(),
        _ => deliveries(world.consume(queue, "c")),
    };
    for _ in 0..30 {
        if let Way::GetAndNack = way {
            next = world.get(queue).into_iter().collect();
        }
        let Some(delivery) = next.pop() else { break };
        count += 1;
        let tag = delivery.tag;
        next = match way {
            Way::Nack | Way::GetAndNack => deliveries(world.call(Method::Nack {
                delivery_tag: tag,
                is_multiple: false,
                is_requeued: true,
            })),
            Way::Reject => {
                deliveries(world.call(Method::Reject { delivery_tag: tag, is_requeued: true }))
            }
            Way::ChannelClosed => {
                world.reopen();
                deliveries(world.consume(queue, "c"))
            }
        };
    }
    count
}

#[test]
fn a_message_is_dead_lettered_after_its_limit_of_returns_but_4_3_does_not_count_nacks() {
    for (way, expected) in [
        (Way::Nack, [4, 4, 30]),
        (Way::Reject, [4, 4, 4]),
        (Way::ChannelClosed, [4, 4, 4]),
        (Way::GetAndNack, [4, 4, 30]),
    ] {
        for (version, expected) in VERSIONS.into_iter().zip(expected) {
            let mut world = World::new(version);
            world.declare("dlq", quorum([]));
            let dlx =
                [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text("dlq"))];
            let [exchange, key] = dlx;
            world.declare("q", quorum([("x-delivery-limit", number(3)), exchange, key]));
            world.publish("q", "m");
            assert_eq!(loops(&mut world, "q", way), expected, "{way:?} on {version:?}");
            let is_dead = expected < 30;
            assert_eq!(world.ready("dlq").len(), usize::from(is_dead), "{way:?} on {version:?}");
        }
    }
}

#[test]
fn without_a_limit_of_its_own_a_queue_has_one_of_20_on_4_x() {
    let minus_one = Some(-1);
    for (limit, way, expected) in [
        (None, Way::Reject, [30, 21, 21]),
        (None, Way::ChannelClosed, [30, 21, 21]),
        (None, Way::Nack, [30, 21, 30]),
        (Some(0), Way::Reject, [1, 1, 1]),
        (Some(1), Way::Reject, [2, 2, 2]),
        (minus_one, Way::Reject, [1, 30, 30]),
        (minus_one, Way::ChannelClosed, [1, 30, 30]),
    ] {
        for (version, expected) in VERSIONS.into_iter().zip(expected) {
            let mut world = World::new(version);
            let arguments = limit
                .map_or_else(|| quorum([]), |limit| quorum([("x-delivery-limit", number(limit))]));
            world.declare("q", arguments);
            world.publish("q", "m");
            assert_eq!(loops(&mut world, "q", way), expected, "{limit:?} {way:?} on {version:?}");
        }
    }
}

/// The counts that a delivery shows.
fn shown(delivery: &Delivery) -> (Option<i64>, Option<i64>) {
    (count(delivery, "x-delivery-count"), count(delivery, "x-acquired-count"))
}

#[test]
fn each_version_shows_its_counts_in_its_headers() {
    // Of the second and third delivery: delivery count, acquired count.
    let (one, two) = (Some(1), Some(2));
    for (way, expected) in [
        (
            Way::Reject,
            [[(one, None), (two, None)], [(one, None), (two, None)], [(one, one), (two, two)]],
        ),
        (
            Way::ChannelClosed,
            [[(one, None), (two, None)], [(one, None), (two, None)], [(one, one), (two, two)]],
        ),
        (
            Way::Nack,
            [[(one, None), (two, None)], [(one, None), (two, None)], [(None, one), (None, two)]],
        ),
    ] {
        for (version, expected) in VERSIONS.into_iter().zip(expected) {
            let mut world = World::new(version);
            world.declare("q", quorum([("x-delivery-limit", number(10))]));
            world.publish("q", "m");
            let mut delivery = deliveries(world.consume("q", "c")).pop().unwrap();
            assert_eq!(
                (shown(&delivery), delivery.is_redelivered),
                ((None, None), false),
                "{version:?}"
            );
            for expected in expected {
                let tag = delivery.tag;
                let events = match way {
                    Way::Reject => world.reject(tag),
                    Way::Nack => world.nack(tag),
                    _ => {
                        world.reopen();
                        world.consume("q", "c")
                    }
                };
                delivery = deliveries(events).pop().unwrap();
                assert_eq!(
                    (shown(&delivery), delivery.is_redelivered),
                    (expected, true),
                    "{way:?} on {version:?}"
                );
            }
        }
    }
}

#[test]
fn basic_get_shows_a_count_of_0_on_3_10_only() {
    for (version, expected) in VERSIONS.into_iter().zip([Some(0), None, None]) {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        world.publish("q", "m");
        assert_eq!(shown(&world.get("q").unwrap()), (expected, None), "{version:?}");
    }
}

#[test]
fn a_stale_count_is_shown_until_the_queue_has_one_of_its_own() {
    for (version, after) in VERSIONS.into_iter().zip([(1, 9), (1, 9), (1, 1)]) {
        let mut world = World::new(version);
        world.declare("q", quorum([("x-delivery-limit", number(3))]));
        let stale = table([("x-delivery-count", number(7)), ("x-acquired-count", number(9))]);
        world.publish_with("", "q", properties("m").with_headers(stale));
        let first = deliveries(world.consume("q", "c")).pop().unwrap();
        assert_eq!(
            (shown(&first), first.is_redelivered),
            ((Some(7), Some(9)), false),
            "{version:?}"
        );
        let second = deliveries(world.reject(first.tag)).pop().unwrap();
        assert_eq!(shown(&second), (Some(after.0), Some(after.1)), "{version:?}");
        assert!(second.is_redelivered);
    }
}

#[test]
fn a_count_is_passed_on_to_the_dead_letter_queue_on_4_x() {
    for (way, expected) in [
        (Way::Reject, [(Some(0), None), (None, None), (Some(4), Some(4))]),
        (Way::ChannelClosed, [(Some(0), None), (Some(4), None), (Some(4), Some(4))]),
    ] {
        for (version, expected) in VERSIONS.into_iter().zip(expected) {
            let mut world = World::new(version);
            world.declare("dlq", quorum([]));
            let (exchange, key) =
                (("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text("dlq")));
            world.declare("q", quorum([("x-delivery-limit", number(3)), exchange, key]));
            world.publish("q", "m");
            assert_eq!(loops(&mut world, "q", way), 4);
            let dead = world.get("dlq").unwrap();
            assert_eq!(shown(&dead), expected, "{way:?} on {version:?}");
            let reason = header(&dead, "x-first-death-reason");
            assert_eq!(reason, Some(text("delivery_limit")));
            assert_eq!(
                header(&dead, "x-last-death-reason"),
                reason.filter(|_| version > Version::V3_10)
            );
        }
    }
}

/// Where the first of six messages is after it came back.
fn place_after(version: Version, limit: Option<i64>, way: Way) -> &'static str {
    let mut world = World::new(version);
    let arguments =
        limit.map_or_else(|| quorum([]), |limit| quorum([("x-delivery-limit", number(limit))]));
    world.declare("q", arguments);
    for id in ["1", "2", "3", "4", "5", "6"] {
        world.publish("q", id);
    }
    let tag = world.get("q").unwrap().tag;
    match way {
        Way::Reject => world.reject(tag),
        Way::ChannelClosed => world.call(Method::CloseChannel),
        _ => world.nack(tag),
    };
    match world.ready("q").iter().position(|id| id == "1") {
        Some(0) => "head",
        Some(5) => "back",
        Some(_) => "between",
        None => "gone",
    }
}

#[test]
fn a_requeued_message_goes_to_the_head_or_to_the_back_by_version_and_limit() {
    for (limit, way, expected) in [
        (None, Way::Reject, ["back", "head", "head"]),
        (None, Way::Nack, ["back", "head", "head"]),
        (None, Way::ChannelClosed, ["head", "head", "head"]),
        (Some(10), Way::Reject, ["head", "head", "head"]),
        (Some(10), Way::Nack, ["head", "head", "head"]),
        (Some(10), Way::ChannelClosed, ["head", "head", "head"]),
        (Some(-1), Way::Reject, ["gone", "back", "head"]),
        (Some(-1), Way::Nack, ["gone", "back", "head"]),
        (Some(-1), Way::ChannelClosed, ["gone", "head", "head"]),
    ] {
        for (version, expected) in VERSIONS.into_iter().zip(expected) {
            assert_eq!(
                place_after(version, limit, way),
                expected,
                "{limit:?} {way:?} on {version:?}"
            );
        }
    }
}

#[test]
fn a_lost_connection_counts_every_message_that_was_prefetched() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        for id in ["1", "2", "3", "4", "5"] {
            world.publish("q", id);
        }
        world.prefetch(5);
        world.consume("q", "c");
        world.disconnect();
        world.connect();
        let back = deliveries(world.consume("q", "c"));
        assert_eq!(ids(&back), ["1", "2", "3", "4", "5"], "{version:?}");
        for delivery in back {
            assert_eq!(count(&delivery, "x-delivery-count"), Some(1), "{version:?}");
        }
    }
}

#[test]
fn cancel_leaves_what_is_unacked_with_the_channel() {
    for (version, expected) in
        VERSIONS.into_iter().zip([(Some(1), None), (Some(1), None), (None, Some(1))])
    {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        world.publish("q", "1");
        world.publish("q", "2");
        world.consume("q", "c");
        assert_eq!(world.call(Method::Cancel { consumer_tag: "c".into() }), [Event::Done]);
        assert_eq!(world.broker.queue("q").unwrap().unacked, ["1", "2"]);
        assert_eq!(
            world.call(Method::Nack { delivery_tag: 0, is_multiple: true, is_requeued: true }),
            []
        );
        assert_eq!(world.ready("q"), ["1", "2"]);
        assert_eq!(shown(&world.get("q").unwrap()), expected, "{version:?}");
    }
}

#[test]
fn the_smaller_limit_of_argument_and_policy_wins() {
    for version in VERSIONS {
        for (argument, policy) in [(1, 5), (5, 1)] {
            let mut world = World::new(version);
            world.declare("q", quorum([("x-delivery-limit", number(argument))]));
            let definition = table([("delivery-limit", number(policy))]);
            world.broker.set_policy(world.now, "q", Some(definition));
            world.publish("q", "m");
            assert_eq!(loops(&mut world, "q", Way::Reject), 2, "{version:?}");
        }
    }
}

#[test]
fn a_lost_channel_gives_back_by_consumer() {
    for (version, expected) in
        VERSIONS.into_iter().zip([["3", "1", "2"], ["1", "2", "3"], ["1", "2", "3"]])
    {
        let mut world = World::new(version);
        world.declare("q", quorum([("x-delivery-limit", number(2))]));
        world.prefetch(2);
        world.consume("q", "s");
        for id in ["1", "2", "3"] {
            world.publish("q", id);
        }
        world.get("q");
        world.call(Method::CloseChannel);
        assert_eq!(world.ready("q"), expected, "{version:?}");
    }
}

#[test]
fn on_3_10_a_message_over_its_limit_is_credited_twice() {
    for (version, held) in VERSIONS.into_iter().zip([2, 1, 1]) {
        let mut world = World::new(version);
        world.declare("q", quorum([("x-delivery-limit", number(0))]));
        for id in ["1", "2", "3", "4"] {
            world.publish("q", id);
        }
        world.prefetch(1);
        let first = deliveries(world.consume("q", "c")).pop().unwrap();
        assert_eq!(deliveries(world.reject(first.tag)).len(), held, "{version:?}");
    }
}

#[test]
fn what_gets_and_subscriptions_give_back_together_comes_back_with_the_gets_first() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([("x-delivery-limit", number(5))]));
        world.prefetch(1);
        world.publish("q", "1");
        world.publish("q", "2");
        world.consume("q", "c");
        world.get("q");
        world.call(Method::Cancel { consumer_tag: "c".into() });
        world.call(Method::Nack { delivery_tag: 0, is_multiple: true, is_requeued: true });
        assert_eq!(world.ready("q"), ["2", "1"], "{version:?}");
    }
}
