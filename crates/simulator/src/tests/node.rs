//! Section 14 and what a node can do: silence, restarts, operators.

use super::*;

#[test]
fn a_silent_queue_applies_everything_when_it_answers_again() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        world.call(Method::ConfirmSelect);
        world.publish("q", "1");
        world.consume("q", "c");
        world.broker.silence(world.now, "q", ms(10_000));
        assert_eq!(world.publish("q", "2"), [], "{version:?}");
        assert_eq!(world.ack(1), [], "{version:?}");
        assert_eq!(world.broker.queue("q").unwrap().unacked, ["1"]);
        let events = world.pass(ms(10_000));
        assert!(
            events.contains(&Event::Acked { delivery_tag: 2, is_multiple: false }),
            "{events:?}"
        );
        assert_eq!(ids(&deliveries(events)), ["2"], "{version:?}");
        assert_eq!(world.broker.queue("q").unwrap().unacked, ["2"]);
    }
}

#[test]
fn a_silent_queue_has_no_messages_after_250_ms_and_holds_up_its_channel() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        world.publish("q", "1");
        world.broker.silence(world.now, "q", ms(10_000));
        assert_eq!(world.declare("q", quorum([])), []);
        assert_eq!(world.consume("q", "c"), [], "{version:?}");
        let none = Event::Queue { queue: "q".into(), messages: 0, consumers: 0 };
        assert_eq!(world.pass(ms(250)), [none], "{version:?}");
        assert_eq!(
            world.call(Method::Qos { prefetch: 7 }),
            [],
            "the channel waits for its consumer"
        );
        let events = world.pass(ms(9750));
        assert_eq!(events[0], Event::Subscribed { consumer_tag: "c".into() }, "{version:?}");
        assert!(events.contains(&Event::Done));
        assert_eq!(ids(&deliveries(events)), ["1"], "{version:?}");
    }
}

#[test]
fn what_was_unacked_when_the_node_went_down_counts_as_lost() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        world.publish("q", "1");
        world.consume("q", "c");
        world.broker.stop(world.now);
        assert_eq!(world.heard(), [Event::Cut]);
        assert_eq!(world.broker.connect(world.now, "guest"), None);
        world.now += ms(7000);
        world.broker.start(world.now);
        world.connect();
        let back = deliveries(world.consume("q", "c"));
        assert_eq!(count(&back[0], "x-delivery-count"), Some(1), "{version:?}");
    }
}

#[test]
fn a_restart_keeps_what_is_durable_and_delayed_messages_keep_their_time() {
    for version in VERSIONS {
        let mut world = World::new(version);
        let (min, kind) =
            (("x-delayed-retry-min", number(8000)), ("x-delayed-retry-type", text("returned")));
        world.declare("q", quorum([kind, min]));
        world.declare("classic", table([]));
        world.publish("classic", "persistent");
        world.publish_with(
            "",
            "classic",
            BasicProperties::default().with_message_id("transient".into()),
        );
        world.publish("q", "1");
        let tag = world.get("q").unwrap().tag;
        world.nack(tag);
        world.broker.stop(world.now);
        world.now += ms(7000);
        world.broker.start(world.now);
        assert_eq!(world.ready("classic"), ["persistent"]);
        assert_eq!(world.ready("q").len(), usize::from(version < Version::V4_3), "{version:?}");
        world.broker.pass_time(world.now + ms(1000));
        assert_eq!(world.ready("q"), ["1"], "{version:?}");
    }
}

#[test]
fn an_operator_can_close_a_connection() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        world.publish("q", "1");
        world.consume("q", "c");
        let text = "CONNECTION_FORCED - Closed via management plugin";
        world.broker.close(world.now, world.connection, 320, text);
        assert_eq!(
            world.heard(),
            [Event::Closed { code: 320, text: text.to_owned() }],
            "{version:?}"
        );
        assert_eq!(world.ready("q"), ["1"]);
    }
}

#[test]
fn a_message_held_for_dead_lettering_is_tried_again_after_a_restart() {
    for version in VERSIONS {
        let mut world = World::new(version);
        let strategy = ("x-dead-letter-strategy", text("at-least-once"));
        let (exchange, ttl) =
            (("x-dead-letter-exchange", text("out")), ("x-message-ttl", number(1000)));
        world.declare(
            "wait",
            quorum([strategy, exchange, ttl, ("x-overflow", text("reject-publish"))]),
        );
        world.publish("wait", "1");
        world.pass(ms(1000));
        world.declare_exchange("out", "fanout");
        world.declare("work", quorum([]));
        world.bind("work", "out", "", FieldTable::default());
        world.broker.stop(world.now);
        world.broker.start(world.now);
        assert_eq!(world.ready("work"), ["1"], "{version:?}");
    }
}

#[test]
fn the_broker_can_be_sent_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Broker>();
}
