//! Sections 10 and 23, and permissions: declaring, binding, routing.

use super::*;
use crate::Permissions;

fn refused(version: Version, declare: impl Fn(&mut World) -> Vec<Event>) -> String {
    let mut world = World::new(version);
    let (_, text) = closed(&declare(&mut world)).unwrap();
    text.trim_start_matches("PRECONDITION_FAILED - ").to_owned()
}

#[test]
fn declaring_again_with_other_arguments_is_refused_with_the_first_difference() {
    let limit = || quorum([("x-delivery-limit", AMQPValue::LongInt(3))]);
    for version in VERSIONS {
        for (first, second, expected) in [
            (
                limit(),
                quorum([("x-delivery-limit", number(5))]),
                "'x-delivery-limit' for queue 'q' in vhost '/': received '5' but current is '3'",
            ),
            (
                limit(),
                quorum([]),
                "'x-delivery-limit' for queue 'q' in vhost '/': received none but current is the value '3' of type 'signedint'",
            ),
            (
                quorum([]),
                quorum([("x-message-ttl", AMQPValue::LongInt(1000))]),
                "'x-message-ttl' for queue 'q' in vhost '/': received the value '1000' of type 'signedint' but current is none",
            ),
            (
                limit(),
                quorum([("x-delivery-limit", text("3"))]),
                "'x-delivery-limit' for queue 'q' in vhost '/': received '3' but current is '3'",
            ),
            (
                quorum([]),
                table([("x-queue-type", text("classic"))]),
                "'x-queue-type' for queue 'q' in vhost '/': received 'classic' but current is 'quorum'",
            ),
        ] {
            let refusal = refused(version, |world| {
                world.declare("q", first.clone());
                world.declare("q", second.clone())
            });
            assert_eq!(refusal, format!("inequivalent arg {expected}"), "{version:?}");
        }
        let mut world = World::new(version);
        world.declare("q", limit());
        let same = Event::Queue { queue: "q".into(), messages: 0, consumers: 0 };
        assert_eq!(
            world.declare("q", quorum([("x-delivery-limit", number(3)), ("x-unknown", number(1))])),
            [same]
        );
    }
}

#[test]
fn a_queue_without_a_type_is_classic() {
    for (version, expected) in VERSIONS.into_iter().zip([
        "received none but current is the value 'quorum' of type 'longstr'",
        "received 'classic' but current is 'quorum'",
        "received 'classic' but current is 'quorum'",
    ]) {
        let refusal = refused(version, |world| {
            world.declare("q", quorum([]));
            world.declare("q", table([]))
        });
        assert_eq!(
            refusal,
            format!("inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': {expected}")
        );
        let mut world = World::new(version);
        world.declare("q", table([]));
        assert_eq!(closed(&world.declare("q", table([("x-queue-type", text("classic"))]))), None);
    }
}

#[test]
fn an_invalid_new_queue_is_refused() {
    let dlx = |strategy: &str| {
        quorum([("x-dead-letter-exchange", text("x")), ("x-dead-letter-strategy", text(strategy))])
    };
    for version in VERSIONS {
        for (arguments, expected) in [
            (
                quorum([("x-max-priority", number(5))]),
                "invalid arg 'x-max-priority' for queue 'q' in vhost '/' of queue type rabbit_quorum_queue",
            ),
            (
                dlx("often"),
                "invalid arg 'x-dead-letter-strategy' for queue 'q' in vhost '/': invalid_dlx_strategy",
            ),
            (
                quorum([("x-dead-letter-routing-key", text("k"))]),
                "invalid arg 'x-dead-letter-routing-key' for queue 'q' in vhost '/': routing_key_but_no_dlx_defined",
            ),
            (
                quorum([("x-message-ttl", number(-1))]),
                "invalid arg 'x-message-ttl' for queue 'q' in vhost '/': {value_negative,-1}",
            ),
            (
                quorum([("x-message-ttl", number(315_360_000_001))]),
                "invalid arg 'x-message-ttl' for queue 'q' in vhost '/': {value_too_large,315360000001}",
            ),
            (
                table([("x-delivery-limit", number(1))]),
                "invalid arg 'x-delivery-limit' for queue 'q' in vhost '/' of queue type rabbit_classic_queue",
            ),
        ] {
            assert_eq!(
                refused(version, |world| world.declare("q", arguments.clone())),
                expected,
                "{version:?}"
            );
        }
        for arguments in [
            quorum([("x-expires", number(1000)), ("x-message-ttl", number(0))]),
            quorum([("x-overflow", text("reject-publish-dlx"))]),
            dlx("at-least-once"),
        ] {
            assert_eq!(closed(&World::new(version).declare("q", arguments)), None);
        }
    }
}

#[test]
fn a_quorum_queue_that_is_not_durable_or_exclusive_or_deletes_itself_is_refused() {
    for version in VERSIONS {
        for (is_durable, is_exclusive, is_auto_delete, expected) in [
            (false, false, false, "non-durable"),
            (true, true, false, "exclusive-owner"),
            (true, false, true, "auto-delete"),
        ] {
            let refusal = refused(version, |world| {
                let queue = "q".into();
                let arguments = quorum([]);
                world.call(Method::DeclareQueue {
                    queue,
                    is_passive: false,
                    is_durable,
                    is_exclusive,
                    is_auto_delete,
                    arguments,
                })
            });
            assert_eq!(
                refusal,
                format!("invalid property '{expected}' for queue 'q' in vhost '/'"),
                "{version:?}"
            );
        }
    }
}

#[test]
fn only_4_3_compares_the_arguments_of_delayed_retry() {
    for (version, is_refused) in VERSIONS.into_iter().zip([false, false, true]) {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        let events = world.declare("q", quorum([("x-delayed-retry-type", text("disabled"))]));
        assert_eq!(closed(&events).is_some(), is_refused, "{version:?}");
    }
}

#[test]
fn exchanges_are_compared_by_type_and_flags() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare_exchange("x", "direct");
        let declare = |kind: &str, is_passive, name: &str| Method::DeclareExchange {
            exchange: name.into(),
            kind: kind.to_owned(),
            is_passive,
            is_durable: true,
            arguments: FieldTable::default(),
        };
        assert_eq!(world.call(declare("direct", false, "x")), [Event::Done]);
        let (_, text) = closed(&world.call(declare("topic", false, "x"))).unwrap();
        let expected = "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'topic' but current is 'direct'";
        assert_eq!(text, format!("PRECONDITION_FAILED - {expected}"), "{version:?}");
        world.call(Method::OpenChannel);
        let (code, _) = closed(&world.call(declare("", true, "missing"))).unwrap();
        assert_eq!(code, 404);
    }
}

#[test]
fn a_passive_declaration_of_a_missing_queue_closes_the_channel() {
    for version in VERSIONS {
        let mut world = World::new(version);
        let passive = Method::DeclareQueue {
            queue: "q".into(),
            is_passive: true,
            is_durable: false,
            is_exclusive: false,
            is_auto_delete: false,
            arguments: FieldTable::default(),
        };
        let expected = (404, "NOT_FOUND - no queue 'q' in vhost '/'".to_owned());
        assert_eq!(closed(&world.call(passive.clone())), Some(expected), "{version:?}");
        world.call(Method::OpenChannel);
        world.declare("q", quorum([]));
        world.publish("q", "1");
        world.publish("q", "2");
        world.get("q");
        assert_eq!(
            world.call(passive),
            [Event::Queue { queue: "q".into(), messages: 1, consumers: 1 }]
        );
    }
}

#[test]
fn a_headers_exchange_ignores_names_that_begin_with_x() {
    let bytes = |text: &str| AMQPValue::ByteArray(text.as_bytes().into());
    for version in VERSIONS {
        for (binding, headers, is_routed) in [
            (table([("return-to", text("q"))]), table([("return-to", text("q"))]), true),
            (table([("return-to", text("q"))]), table([("return-to", bytes("q"))]), true),
            (table([("return-to", text("q"))]), table([("return-to", text("other"))]), false),
            (table([("return-to", text("q"))]), table([]), false),
            (table([("x-return-to", text("q"))]), table([("x-return-to", text("other"))]), true),
            (
                table([("x-return-to", text("q")), ("x-match", text("all-with-x"))]),
                table([("x-return-to", text("other"))]),
                false,
            ),
            (
                table([("x-match", text("any")), ("a", number(1)), ("b", number(2))]),
                table([("b", number(2))]),
                true,
            ),
            (
                table([("x-match", text("any")), ("x-a", number(1))]),
                table([("x-a", number(1))]),
                false,
            ),
            (table([("a", AMQPValue::Void)]), table([("a", number(7))]), true),
        ] {
            let mut world = World::new(version);
            world.declare("q", quorum([]));
            world.declare_exchange("x", "headers");
            world.bind("q", "x", "", binding.clone());
            world.publish_with("x", "", properties("m").with_headers(headers.clone()));
            assert_eq!(
                world.ready("q").len(),
                usize::from(is_routed),
                "{binding:?} {headers:?} on {version:?}"
            );
        }
    }
}

#[test]
fn a_topic_exchange_matches_words() {
    for (pattern, key, is_routed) in [
        ("a.*", "a.b", true),
        ("a.*", "a", false),
        ("a.*", "a.b.c", false),
        ("a.#", "a", true),
        ("a.#", "a.b.c", true),
        ("#.c", "a.b.c", true),
        ("#", "", true),
        ("a.#.c", "a.c", true),
        ("a.#.c", "a.b", false),
    ] {
        let mut world = World::new(Version::V4_3);
        world.declare("q", quorum([]));
        world.bind("q", "amq.topic", pattern, FieldTable::default());
        world.publish_with("amq.topic", key, properties("m"));
        assert_eq!(world.ready("q").len(), usize::from(is_routed), "{pattern} {key}");
    }
}

#[test]
fn exchanges_can_be_bound_to_exchanges_and_a_queue_gets_a_message_once() {
    let mut world = World::new(Version::V4_3);
    world.declare("q", quorum([]));
    world.declare_exchange("a", "fanout");
    world.declare_exchange("b", "fanout");
    for (destination, source) in [("b", "a"), ("a", "b")] {
        let (destination, source) = (destination.into(), source.into());
        let routing_key = ShortString::default();
        world.call(Method::BindExchange {
            destination,
            source,
            routing_key,
            arguments: FieldTable::default(),
        });
    }
    world.bind("q", "a", "", FieldTable::default());
    world.bind("q", "b", "", FieldTable::default());
    world.publish_with("a", "", properties("m"));
    assert_eq!(world.ready("q"), ["m"]);
}

#[test]
fn a_missing_permission_closes_the_channel() {
    for (version, word) in VERSIONS.into_iter().zip(["", "write ", "write "]) {
        let mut world = World::new(version);
        world.declare_exchange("x", "fanout");
        world.declare("q", quorum([]));
        let permissions = Permissions { not_write: vec!["x".to_owned()], ..Permissions::default() };
        world.broker.set_permissions("guest", permissions);
        let (code, text) = closed(&world.publish_with("x", "", properties("m"))).unwrap();
        let expected = format!(
            "ACCESS_REFUSED - {word}access to exchange 'x' in vhost '/' refused for user 'guest'"
        );
        assert_eq!((code, text), (403, expected), "{version:?}");
        world.call(Method::OpenChannel);
        assert_eq!(
            closed(&world.bind("q", "x", "", FieldTable::default())),
            None,
            "reading is allowed"
        );
    }
}

#[test]
fn an_exclusive_queue_is_its_connection_s_and_goes_with_it() {
    for version in VERSIONS {
        let mut world = World::new(version);
        let declare = |queue: &str| Method::DeclareQueue {
            queue: queue.into(),
            is_passive: false,
            is_durable: false,
            is_exclusive: true,
            is_auto_delete: false,
            arguments: FieldTable::default(),
        };
        let events = world.call(declare(""));
        let Some(Event::Queue { queue, .. }) = events.first() else { panic!("{events:?}") };
        assert!(queue.as_str().starts_with("amq.gen-"));
        world.call(declare("mine"));
        let first = world.connection;
        world.connect();
        assert_eq!(
            closed(&world.consume("mine", "c")).map(|(code, _)| code),
            Some(405),
            "{version:?}"
        );
        world.broker.disconnect(world.now, first);
        assert_eq!(world.broker.queue("mine"), None, "{version:?}");
    }
}

/// So a client can ask for the properties of a queue without declaring one.
#[test]
fn a_type_that_does_not_exist_is_compared_with_that_of_a_queue_and_declares_none() {
    let unknown = || table([("x-queue-type", text("none"))]);
    for version in VERSIONS {
        let missing = refused(version, |world| world.declare("q", unknown()));
        let expected = "invalid arg 'x-queue-type' for queue 'q' in vhost '/': \"unsupported queue type 'none'\"";
        assert_eq!(missing, expected, "{version:?}");
        let of_quorum = refused(version, |world| {
            world.declare("q", quorum([]));
            world.declare("q", unknown())
        });
        let expected = "inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received 'none' but current is 'quorum'";
        assert_eq!(of_quorum, expected, "{version:?}");
        let of_auto_delete = refused(version, |world| {
            world.call(Method::DeclareQueue {
                queue: "q".into(),
                is_passive: false,
                is_durable: true,
                is_exclusive: false,
                is_auto_delete: true,
                arguments: table([]),
            });
            world.declare("q", unknown())
        });
        let expected = "inequivalent arg 'auto_delete' for queue 'q' in vhost '/': received 'false' but current is 'true'";
        assert_eq!(of_auto_delete, expected, "{version:?}");
    }
}
