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

/// Delivers a message up to 30 times and gives it back each time. Returns how often it was delivered.
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
            Way::Nack | Way::GetAndNack => {
                deliveries(world.call(Method::Nack { tag, is_multiple: false, is_requeued: true }))
            }
            Way::Reject => deliveries(world.call(Method::Reject { tag, is_requeued: true })),
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
            let dlx = [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text("dlq"))];
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
            let arguments = limit.map_or_else(|| quorum([]), |limit| quorum([("x-delivery-limit", number(limit))]));
            world.declare("q", arguments);
            world.publish("q", "m");
            assert_eq!(loops(&mut world, "q", way), expected, "{limit:?} {way:?} on {version:?}");
        }
    }
}
