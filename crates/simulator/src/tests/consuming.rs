//! Sections 11, 13, 14, 22 and 23: consumers, timeouts, delayed retries.

use super::*;

#[test]
fn an_unknown_delivery_tag_closes_the_channel() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        world.publish("q", "1");
        let tag = deliveries(world.consume("q", "c")).pop().unwrap().tag;
        assert_eq!(world.ack(tag), []);
        let expected = (406, format!("PRECONDITION_FAILED - unknown delivery tag {tag}"));
        assert_eq!(closed(&world.ack(tag)), Some(expected), "{version:?}");
    }
}

#[test]
fn a_tag_that_is_in_use_closes_the_connection() {
    let mut world = World::new(Version::V4_0);
    world.declare("q", quorum([]));
    world.consume("q", "c");
    let expected = (530, "NOT_ALLOWED - attempt to reuse consumer tag 'c'".to_owned());
    assert_eq!(closed(&world.consume("q", "c")), Some(expected));
}

#[test]
fn consumers_take_turns_and_hold_no_more_than_their_prefetch() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        world.prefetch(2);
        world.consume("q", "a");
        world.consume("q", "b");
        let mut consumers = Vec::new();
        for id in ["1", "2", "3", "4", "5"] {
            for event in world.publish("q", id) {
                if let Event::Delivered { consumer_tag: consumer, .. } = event {
                    consumers.push(consumer.to_string());
                }
            }
        }
        assert_eq!(consumers, ["a", "b", "a", "b"], "{version:?}");
        let events = world.call(Method::Ack { delivery_tag: 3, is_multiple: true });
        assert_eq!(ids(&deliveries(events)), ["5"], "{version:?}");
    }
}

#[test]
fn deleting_a_queue_ends_its_subscriptions_and_a_late_ack_does_no_harm() {
    for version in VERSIONS {
        for arguments in [quorum([]), table([])] {
            let mut world = World::new(version);
            world.declare("q", arguments);
            world.publish("q", "1");
            let tag = deliveries(world.consume("q", "c")).pop().unwrap().tag;
            world.broker.delete_queue(world.now, "q");
            assert_eq!(
                world.heard(),
                [Event::Cancelled { consumer_tag: "c".into() }],
                "{version:?}"
            );
            assert_eq!(world.ack(tag), [], "{version:?}");
        }
    }
}

#[test]
fn until_4_2_a_channel_is_closed_at_the_tick_after_the_ack_timeout() {
    for version in [Version::V3_10, Version::V4_0] {
        for arguments in [quorum([]), table([])] {
            let mut world = World::new(version);
            world.broker.set_consumer_timeout(ms(10_000));
            world.reopen();
            world.declare("q", arguments);
            world.publish("q", "1");
            world.consume("q", "c");
            assert_eq!(world.pass(ms(59_999)), []);
            let (code, text) = closed(&world.pass(ms(1))).unwrap();
            assert_eq!(code, 406);
            let expected =
                "delivery acknowledgement on channel 1 timed out. Timeout value used: 10000 ms. ";
            assert!(text.starts_with(&format!("PRECONDITION_FAILED - {expected}")), "{text}");
            world.call(Method::OpenChannel);
            assert!(deliveries(world.consume("q", "c"))[0].is_redelivered, "{version:?}");
        }
    }
}

#[test]
fn a_queue_s_own_ack_timeout_works_on_4_x() {
    for (version, is_closed) in VERSIONS.into_iter().zip([false, true, false]) {
        let mut world = World::new(version);
        world.declare("q", quorum([("x-consumer-timeout", number(10_000))]));
        world.publish("q", "1");
        world.consume("q", "c");
        let events = world.pass(ms(60_000));
        assert_eq!(closed(&events).is_some(), is_closed, "{version:?}");
        assert_eq!(
            events.contains(&Event::Cancelled { consumer_tag: "c".into() }),
            version == Version::V4_3
        );
    }
}

#[test]
fn on_4_3_a_timed_out_message_comes_back_uncounted_and_a_late_ack_is_accepted() {
    let mut world = World::new(Version::V4_3);
    world.declare("q", quorum([("x-consumer-timeout", number(5000))]));
    let cancelled = || Event::Cancelled { consumer_tag: "c".into() };
    world.publish("q", "1");
    let tag = deliveries(world.consume("q", "c")).pop().unwrap().tag;
    world.pass(ms(2000));
    assert_eq!(deliveries(world.publish("q", "2")).len(), 1);
    // One for each message, for the same tag.
    assert_eq!(world.pass(ms(3000)), [cancelled()]);
    assert_eq!(world.pass(ms(2000)), [cancelled()]);
    assert_eq!(world.ready("q"), ["1", "2"]);
    world.connect();
    let back = deliveries(world.consume("q", "d"));
    assert_eq!(ids(&back), ["1", "2"]);
    assert_eq!(
        (count(&back[0], "x-delivery-count"), count(&back[0], "x-acquired-count")),
        (None, Some(1))
    );
    world.connection = crate::ConnectionId(world.connection.0 - 2);
    assert_eq!(world.ack(tag), []);
    assert_eq!(world.broker.queue("q").unwrap().unacked.len(), 2);
}

#[test]
fn on_4_3_a_timed_out_consumer_is_served_again_after_it_has_settled() {
    let mut world = World::new(Version::V4_3);
    world.declare("q", quorum([("x-consumer-timeout", number(5000))]));
    world.publish("q", "1");
    let tag = deliveries(world.consume("q", "c")).pop().unwrap().tag;
    world.pass(ms(5000));
    assert_eq!(world.ready("q"), ["1"], "it gets nothing while it has not settled");
    assert_eq!(ids(&deliveries(world.ack(tag))), ["1"]);
}

#[test]
fn on_4_3_a_timeout_after_basic_cancel_closes_the_channel() {
    let mut world = World::new(Version::V4_3);
    world.declare("q", quorum([("x-consumer-timeout", number(5000))]));
    world.publish("q", "1");
    world.consume("q", "c");
    world.call(Method::Cancel { consumer_tag: "c".into() });
    let (code, text) = closed(&world.pass(ms(5000))).unwrap();
    assert_eq!(code, 406);
    assert!(text.contains("Timeout value used: -1 ms."), "{text}");
}

/// How long it takes each time until a message is delivered again, up to six times.
fn delays(kind: &str, give_back: impl Fn(&mut World, u64) -> Vec<Event>) -> Vec<u64> {
    let mut world = World::new(Version::V4_3);
    let (min, max) = (("x-delayed-retry-min", number(300)), ("x-delayed-retry-max", number(1000)));
    world.declare(
        "q",
        quorum([("x-delayed-retry-type", text(kind)), min, max, ("x-delivery-limit", number(5))]),
    );
    world.publish("q", "1");
    let mut next = deliveries(world.consume("q", "c"));
    let mut delays = Vec::new();
    while let Some(delivery) = next.pop()
        && delays.len() < 6
    {
        let since = world.now;
        next = deliveries(give_back(&mut world, delivery.tag));
        while next.is_empty()
            && let Some(time) = world.broker.next_timer()
            && time < since + ms(2000)
        {
            next = deliveries(world.pass(time - world.now));
        }
        if !next.is_empty() {
            delays.push(u64::try_from((world.now - since).as_millis()).unwrap());
        }
    }
    delays
}

#[test]
fn a_delayed_retry_waits_by_its_type_and_the_delivery_count() {
    let growing = vec![300, 600, 900, 1000, 1000];
    let (same, none) = (vec![300; 6], vec![0; 6]);
    let none_to_the_limit = vec![0; 5];
    for (kind, on_reject, on_nack) in [
        ("all", growing.clone(), same.clone()),
        ("failed", growing.clone(), none.clone()),
        ("returned", none_to_the_limit.clone(), same),
        ("disabled", none_to_the_limit.clone(), none.clone()),
        ("whatever", none_to_the_limit, none),
    ] {
        assert_eq!(delays(kind, World::reject), on_reject, "{kind}");
        assert_eq!(delays(kind, World::nack), on_nack, "{kind}");
    }
    let reopen = |world: &mut World, _| {
        world.reopen();
        world.consume("q", "c")
    };
    assert_eq!(delays("failed", reopen), growing);
}

#[test]
fn a_delayed_message_is_passed_by_others_and_is_not_ready() {
    let mut world = World::new(Version::V4_3);
    let (min, max) = (("x-delayed-retry-min", number(300)), ("x-delayed-retry-max", number(1000)));
    world.declare("q", quorum([("x-delayed-retry-type", text("returned")), min, max]));
    world.publish("q", "1");
    let tag = world.get("q").unwrap().tag;
    world.nack(tag);
    world.publish("q", "2");
    let view = world.broker.queue("q").unwrap();
    assert_eq!((view.ready, view.delayed), (vec!["2".to_owned()], vec!["1".to_owned()]));
    world.pass(ms(300));
    assert_eq!(world.ready("q"), ["1", "2"]);
}

/// A queue with a single active consumer that holds 1 to 5 of 20 messages, and another consumer
/// that waits.
fn single_active(version: Version) -> (World, ConnectionId) {
    let mut world = World::new(version);
    world.declare("q", quorum([("x-single-active-consumer", AMQPValue::Boolean(true))]));
    for id in 0..20 {
        world.publish("q", &id.to_string());
    }
    world.prefetch(5);
    assert_eq!(deliveries(world.consume("q", "first")).len(), 5);
    world.ack(1);
    let first = world.connection;
    world.connect();
    world.prefetch(5);
    assert_eq!(deliveries(world.consume("q", "second")).len(), 0);
    (world, first)
}

#[test]
fn order_under_a_single_active_consumer_survives_a_lost_connection() {
    for version in VERSIONS {
        let (mut world, first) = single_active(version);
        world.broker.disconnect(world.now, first);
        assert_eq!(ids(&deliveries(world.heard())), ["1", "2", "3", "4", "5"], "{version:?}");
    }
}

#[test]
fn order_under_a_single_active_consumer_is_broken_by_cancel() {
    for version in VERSIONS {
        let (mut world, first) = single_active(version);
        let second = std::mem::replace(&mut world.connection, first);
        world.broker.receive(world.now, first, 1, Method::Cancel { consumer_tag: "first".into() });
        world.connection = second;
        assert_eq!(ids(&deliveries(world.heard())), ["6", "7", "8", "9", "10"], "{version:?}");
        let nack = Method::Nack { delivery_tag: 0, is_multiple: true, is_requeued: true };
        world.broker.receive(world.now, first, 1, nack);
        let next = deliveries(world.call(Method::Ack { delivery_tag: 0, is_multiple: true }));
        let expected = if version == Version::V3_10 {
            // Without a limit, 3.10 appends what comes back.
            ["11", "12", "13", "14", "15"]
        } else {
            ["1", "2", "3", "4", "5"]
        };
        assert_eq!(ids(&next), expected, "{version:?}");
    }
}

#[test]
fn a_get_from_a_queue_with_a_single_active_consumer_closes_the_channel() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([("x-single-active-consumer", AMQPValue::Boolean(true))]));
        let events = world.call(Method::Get { queue: "q".into(), is_no_ack: false });
        assert_eq!(closed(&events).map(|(code, _)| code), Some(405), "{version:?}");
    }
}

#[test]
fn a_classic_queue_puts_a_message_back_to_where_it_was() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", table([]));
        for id in ["1", "2", "3"] {
            world.publish("q", id);
        }
        let (first, second) = (world.get("q").unwrap().tag, world.get("q").unwrap().tag);
        world.reject(second);
        world.reject(first);
        assert_eq!(world.ready("q"), ["1", "2", "3"], "{version:?}");
        let again = world.get("q").unwrap();
        assert!(again.is_redelivered);
        assert_eq!(count(&again, "x-delivery-count"), None);
    }
}

#[test]
fn a_get_without_ack_says_how_many_are_left_that_have_not_expired() {
    for version in VERSIONS {
        for (is_no_ack, left) in [(true, 0), (false, 1)] {
            let mut world = World::new(version);
            world.declare("q", quorum([]));
            world.publish("q", "1");
            world.publish_with("", "q", properties("2").with_expiration("100".into()));
            world.now += ms(100);
            let events = world.call(Method::Get { queue: "q".into(), is_no_ack });
            assert!(
                matches!(events[..], [Event::Got { messages, .. }] if messages == left),
                "{version:?} {events:?}"
            );
        }
    }
}

#[test]
fn the_next_single_active_consumer_is_on_4_x_the_one_with_the_most_credit() {
    for (version, expected) in VERSIONS.into_iter().zip(["b", "c", "c"]) {
        let mut world = World::new(version);
        world.declare("q", quorum([("x-single-active-consumer", AMQPValue::Boolean(true))]));
        for (tag, prefetch) in [("a", 1), ("b", 1), ("c", 5)] {
            world.prefetch(prefetch);
            world.consume("q", tag);
        }
        world.call(Method::Cancel { consumer_tag: "a".into() });
        let events = world.publish("q", "1");
        let is_expected = matches!(&events[..], [Event::Delivered { consumer_tag: consumer, .. }] if consumer.as_str() == expected);
        assert!(is_expected, "{version:?} {events:?}");
    }
}

#[test]
fn an_argument_of_a_consumer_that_only_queues_of_other_types_know_is_refused_with_the_type() {
    for version in VERSIONS {
        for (arguments, kind) in [(quorum([]), "quorum"), (table([]), "classic")] {
            let mut world = World::new(version);
            world.declare("q", arguments);
            let events = world.call(Method::Consume {
                queue: "q".into(),
                consumer_tag: "c".into(),
                is_no_ack: false,
                is_exclusive: false,
                arguments: table([("x-priority", number(0)), ("x-stream-offset", text("next"))]),
            });
            let text = format!(
                "PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 'q' in vhost '/' of queue type rabbit_{kind}_queue"
            );
            assert_eq!(closed(&events), Some((406, text)), "{version:?}");
        }
    }
}
