//! Limits: what is refused, how, and that nothing that exists ends.

use super::*;
use crate::Limits;

/// A user who may have so many.
fn guest(limit: usize) -> std::collections::BTreeMap<String, usize> {
    [("guest".to_owned(), limit)].into()
}

/// The text with which the next connection is refused.
fn refused(world: &World) -> Option<String> {
    world.broker.refuses_connection("guest").map(|(code, text)| {
        assert_eq!(code, 530);
        text
    })
}

#[test]
fn a_connection_that_is_one_too_many_is_refused_and_those_that_are_there_go_on() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.broker.limits = Limits { user_connections: guest(1), ..Limits::default() };
        let text = "NOT_ALLOWED - connection refused for user 'guest': user connection limit (1) is reached";
        assert_eq!(refused(&world).as_deref(), Some(text));
        assert_eq!(world.broker.connect(world.now, "guest"), None);
        assert!(world.broker.connect(world.now, "other").is_some(), "it is the user's");
        assert_eq!(closed(&world.declare("q", quorum([]))), None);
        world.disconnect();
        world.connect();
        world.broker.limits = Limits { vhost_connections: Some(1), ..Limits::default() };
        let text = "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) is reached";
        assert_eq!(refused(&world).as_deref(), Some(text));
        world.broker.limits = Limits { node_connections: Some(1), ..Limits::default() };
        let text = "NOT_ALLOWED - connection refused: node connection limit (1) is reached";
        assert_eq!(refused(&world).as_deref(), (version > Version::V3_10).then_some(text));
    }
}

#[test]
fn a_channel_that_is_one_too_many_ends_its_connection_with_all_its_channels() {
    for version in VERSIONS {
        for limits in [
            Limits { user_channels: guest(1), ..Limits::default() },
            Limits { connection_channels: Some(1), ..Limits::default() },
            Limits { node_channels: Some(1), ..Limits::default() },
        ] {
            let is_known = limits.node_channels.is_none() || version > Version::V3_10;
            let mut world = World::new(version);
            world.declare("q", quorum([]));
            world.disconnect();
            world.broker.limits = limits;
            world.connect();
            world.channel = 2;
            let answer = world.call(Method::OpenChannel);
            let code = closed(&answer).map(|(code, _)| code);
            assert_eq!(code, is_known.then_some(530), "{version:?}: {answer:?}");
            world.channel = 1;
            let is_open = !world.call(Method::Qos { prefetch: 1 }).is_empty();
            assert_eq!(is_open, !is_known, "the other channel ended with it");
        }
    }
}

/// Both ends have agreed when it was opened.
#[test]
fn a_limit_of_channels_of_a_connection_is_that_of_the_moment_when_it_was_opened() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.broker.limits.connection_channels = Some(1);
        let before = world.connection;
        world.connect();
        let limited = world.connection;
        world.broker.limits.connection_channels = None;
        let agreed = [before, limited].map(|connection| world.broker.channel_max(connection));
        assert_eq!(agreed, [None, Some(1)]);
        world.channel = 2;
        let text = "NOT_ALLOWED - number of channels opened (1) has reached the negotiated channel_max (1)";
        assert_eq!(closed(&world.call(Method::OpenChannel)), Some((530, text.to_owned())));
        world.connection = before;
        assert_eq!(closed(&world.call(Method::OpenChannel)), None);
    }
}

#[test]
fn a_consumer_that_is_one_too_many_ends_its_connection_but_not_on_3_10() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        world.broker.limits.channel_consumers = Some(1);
        assert_eq!(closed(&world.consume("q", "one")), None);
        let text = "NOT_ALLOWED - reached maximum (1) of consumers per channel".to_owned();
        let expected = (version > Version::V3_10).then_some((530, text));
        assert_eq!(closed(&world.consume("q", "two")), expected);
    }
}

#[test]
fn a_queue_that_is_one_too_many_closes_the_channel_and_one_that_exists_is_declared_again() {
    for version in VERSIONS {
        let mut world = World::new(version);
        world.declare("q", quorum([]));
        world.broker.limits.vhost_queues = Some(1);
        assert_eq!(closed(&world.declare("q", quorum([]))), None);
        let text = "PRECONDITION_FAILED - cannot declare queue 'r': queue limit in vhost '/' (1) is reached";
        assert_eq!(closed(&world.declare("r", quorum([]))), Some((406, text.to_owned())));
    }
}
