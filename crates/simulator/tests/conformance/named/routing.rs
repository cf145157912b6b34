//! Where messages go, and what their publisher hears.

use crate::play::play;
use crate::script::{Key, Step, Table, Value};
use crate::words::*;

#[tokio::test]
async fn an_unroutable_mandatory_message_is_returned_and_then_confirmed() {
    for kind in ["direct", "topic", "headers", "fanout"] {
        let steps =
            [publish([routed(1, 0, "a").mandatory()]), publish([message(2, MISSING).mandatory()])];
        let played = play([exchange(0, kind)], steps).await;
        assert!(played.closed().is_empty());
    }
}

#[tokio::test]
async fn unroutable_messages_in_a_pipeline_are_returned_each() {
    let messages = [
        message(1, 0),
        message(2, MISSING).mandatory(),
        message(3, 0),
        message(4, MISSING),
        message(5, 0),
    ];
    assert_eq!(play([queue(0, [])], [publish(messages)]).await.left(0), ["m1", "m3", "m5"]);
}

#[tokio::test]
async fn a_missing_exchange_closes_the_channel() {
    let played = play([queue(0, [])], [publish([routed(1, MISSING, "a")])]).await;
    assert_eq!(played.closed(), ["404 NOT_FOUND - no exchange 'x9' in vhost '/'"]);
}

#[tokio::test]
async fn an_alternate_exchange_takes_what_has_no_route() {
    let topology = [
        exchange(1, "fanout"),
        Step::DeclareExchange {
            channel: 0,
            exchange: 0,
            kind: "direct",
            arguments: vec![("alternate-exchange", Value::Exchange(Some(1)))],
        },
        queue(0, []),
        queue(1, []),
        bind(0, 0, "a"),
        bind(1, 1, ""),
    ];
    let steps =
        [publish([routed(1, 0, "a").mandatory()]), publish([routed(2, 0, "b").mandatory()])];
    let played = play(topology, steps).await;
    assert_eq!((played.left(0), played.left(1)), (vec!["m1".to_owned()], vec!["m2".to_owned()]));
}

#[tokio::test]
async fn dead_letters_follow_alternate_exchanges() {
    let topology = [
        exchange(1, "fanout"),
        Step::DeclareExchange {
            channel: 0,
            exchange: 0,
            kind: "headers",
            arguments: vec![("alternate-exchange", Value::Exchange(Some(1)))],
        },
        queue(0, [ttl(200), ("x-dead-letter-exchange", Value::Exchange(Some(0)))]),
        queue(1, []),
        bind(1, 1, ""),
    ];
    assert_eq!(play(topology, [publish_to(0, [1]), Step::PassTime]).await.left(1), ["m1"]);
}

/// Publishes a message with these headers to a headers exchange with this binding, and says whether
/// it came.
async fn matches(binding: Table, headers: Table) -> bool {
    let topology = [
        exchange(0, "headers"),
        queue(0, []),
        Step::Bind { channel: 0, queue: 0, exchange: 0, key: Key::Word(""), arguments: binding },
    ];
    let message = crate::script::Message { headers, ..routed(1, 0, "a").mandatory() };
    !play(topology, [publish([message])]).await.left(0).is_empty()
}

#[tokio::test]
async fn a_headers_exchange_compares_headers_with_its_bindings() {
    let all = || ("x-match", Value::Text("all"));
    let to = |name| ("return-to", Value::Text(name));
    assert!(matches(vec![all(), to("a")], vec![to("a")]).await);
    assert!(!matches(vec![all(), to("a")], vec![to("b")]).await);
    assert!(!matches(vec![all(), to("a")], vec![]).await);
    assert!(!matches(vec![all(), to("a"), ("n", Value::Number(1))], vec![to("a")]).await);
    assert!(
        matches(
            vec![("x-match", Value::Text("any")), to("a"), ("n", Value::Number(1))],
            vec![to("a")]
        )
        .await
    );
}

#[tokio::test]
async fn a_headers_exchange_ignores_names_that_begin_with_x() {
    let all = ("x-match", Value::Text("all"));
    let headers = vec![("x-return-to", Value::Text("other"))];
    assert!(matches(vec![all, ("x-return-to", Value::Text("zz"))], headers).await);
}

#[tokio::test]
async fn a_topic_exchange_knows_its_wildcards() {
    let topology = [
        exchange(0, "topic"),
        queue(0, []),
        queue(1, []),
        queue(2, []),
        bind(0, 0, "a.*"),
        bind(1, 0, "a.#"),
        bind(2, 0, "*.b"),
    ];
    let messages = [
        routed(1, 0, "a"),
        routed(2, 0, "a.b"),
        routed(3, 0, "a.b.c"),
        routed(4, 0, "c.b"),
        routed(5, 0, ""),
    ];
    let played = play(topology, [publish(messages)]).await;
    assert_eq!(played.left(0), ["m2"]);
    assert_eq!(played.left(1), ["m1", "m2", "m3"]);
    assert_eq!(played.left(2), ["m2", "m4"]);
}

#[tokio::test]
async fn a_message_that_reaches_a_queue_by_two_ways_is_there_once() {
    let topology = [
        exchange(0, "direct"),
        exchange(1, "fanout"),
        queue(0, []),
        bind(0, 0, "a"),
        bind(0, 1, ""),
        Step::BindExchange {
            channel: 0,
            destination: 1,
            source: 0,
            key: Key::Word("a"),
            arguments: Table::new(),
        },
    ];
    assert_eq!(play(topology, [publish([routed(1, 0, "a")])]).await.left(0), ["m1"]);
}
