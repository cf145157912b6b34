//! What may be declared, and what is said of what may not.

use crate::play::play;
use crate::script::{Key, Oddity, Step, Table, Value};
use crate::words::*;

fn declare(queue: usize, arguments: Table) -> Step {
    Step::DeclareQueue { channel: 0, queue, arguments }
}

/// Declares a queue twice, and says what is said the second time.
async fn redeclared(first: Table, second: Table) -> Vec<String> {
    play([declare(0, first)], [declare(0, second)]).await.closed()
}

#[tokio::test]
async fn a_queue_may_be_declared_again_as_it_is() {
    let arguments = || quorum([limit(3), ttl(1000)]);
    assert!(redeclared(arguments(), arguments()).await.is_empty());
}

#[tokio::test]
async fn a_queue_that_has_another_argument_is_refused_with_its_name() {
    assert_eq!(
        redeclared(quorum([limit(3)]), quorum([limit(5)])).await,
        [
            "406 PRECONDITION_FAILED - inequivalent arg 'x-delivery-limit' for queue 'q0' in vhost '/': received '5' but current is '3'"
        ]
    );
    for (first, second) in [
        (quorum([limit(3)]), quorum([])),
        (quorum([]), quorum([ttl(1000)])),
        (quorum([limit(3)]), quorum([("x-delivery-limit", Value::Text("3"))])),
        (quorum([limit(3), ttl(1000)]), quorum([limit(4), ttl(2000)])),
        (quorum(dead_letters_to(1)), quorum(dead_letters_to(2))),
        (
            quorum([("x-max-length", Value::Number(3))]),
            quorum([("x-max-length", Value::Number(4))]),
        ),
        (
            quorum([("x-overflow", Value::Text("drop-head"))]),
            quorum([("x-overflow", Value::Text("reject-publish"))]),
        ),
        (quorum([]), quorum([("x-single-active-consumer", Value::Flag(true))])),
        (quorum([]), quorum(at_least_once())),
    ] {
        let closed = redeclared(first, second).await;
        assert!(closed[0].starts_with("406 PRECONDITION_FAILED - inequivalent arg"), "{closed:?}");
    }
}

#[tokio::test]
async fn a_queue_of_another_type_is_refused() {
    for second in [vec![("x-queue-type", Value::Text("classic"))], vec![]] {
        let closed = redeclared(quorum([]), second).await;
        assert!(closed[0].contains("'x-queue-type'"), "{closed:?}");
    }
}

#[tokio::test]
async fn an_unknown_argument_is_ignored() {
    let unknown = ("x-anything", Value::Number(1));
    assert!(redeclared(quorum([unknown]), quorum([])).await.is_empty());
}

#[tokio::test]
async fn what_knows_delayed_retries_refuses_to_change_them() {
    let closed =
        redeclared(quorum([]), quorum([("x-delayed-retry-type", Value::Text("disabled"))])).await;
    let played = play([queue(0, [])], []).await;
    assert_eq!(closed.len(), played.by_version([0, 0, 1]), "{closed:?}");
}

#[tokio::test]
async fn what_knows_delayed_retries_refuses_them_for_a_classic_queue() {
    let arguments = vec![("x-delayed-retry-type", Value::Text("disabled"))];
    let played = play([queue(0, [])], [declare(1, arguments)]).await;
    let closed = played.closed();
    assert_eq!(closed.len(), played.by_version([0, 0, 1]), "{closed:?}");
    assert!(
        closed.iter().all(|closed| closed.starts_with("406 PRECONDITION_FAILED - invalid arg")),
        "{closed:?}"
    );
}

#[tokio::test]
async fn a_missing_queue_is_said_to_be_missing() {
    let played = play([queue(0, [])], [Step::LookAtQueue { channel: 0, queue: MISSING }]).await;
    assert_eq!(played.closed(), ["404 NOT_FOUND - no queue 'q9' in vhost '/'"]);
}

#[tokio::test]
async fn a_quorum_queue_is_durable_and_shared() {
    for oddity in [Oddity::Transient, Oddity::Exclusive, Oddity::AutoDelete] {
        let odd = Step::DeclareOddQueue { channel: 0, queue: 1, oddity, arguments: quorum([]) };
        let closed = play([queue(0, [])], [odd]).await.closed();
        assert!(closed[0].starts_with("406 PRECONDITION_FAILED - invalid property"), "{closed:?}");
    }
}

#[tokio::test]
async fn an_argument_that_makes_no_sense_is_refused() {
    for arguments in [
        quorum([("x-max-priority", Value::Number(5))]),
        quorum([
            ("x-dead-letter-strategy", Value::Text("twice")),
            ("x-dead-letter-exchange", Value::Exchange(None)),
        ]),
        quorum([("x-dead-letter-routing-key", Value::Text("a"))]),
        quorum([("x-message-ttl", Value::Number(-1))]),
        quorum([("x-message-ttl", Value::Number(315_360_000_001))]),
    ] {
        let closed = play([queue(0, [])], [declare(1, arguments)]).await.closed();
        assert!(closed[0].starts_with("406 PRECONDITION_FAILED"), "{closed:?}");
    }
}

#[tokio::test]
async fn an_argument_that_looks_odd_is_accepted() {
    for arguments in [
        quorum([("x-overflow", Value::Text("reject-publish-dlx"))]),
        quorum([
            ("x-dead-letter-strategy", Value::Text("at-least-once")),
            ("x-overflow", Value::Text("drop-head")),
        ]),
        quorum([("x-message-ttl", Value::Number(315_360_000_000))]),
        quorum([("x-message-ttl", Value::Number(0))]),
        quorum([("x-expires", Value::Number(315_360_000_000))]),
        quorum([
            ("x-delayed-retry-type", Value::Text("any word")),
            ("x-delayed-retry-min", Value::Number(-5)),
        ]),
    ] {
        assert!(play([queue(0, [])], [declare(1, arguments)]).await.closed().is_empty());
    }
}

#[tokio::test]
async fn an_expiration_that_makes_no_sense_closes_the_channel() {
    for text in ["abc", "", "1.5", "-1", "315360000001"] {
        let message =
            crate::script::Message { expiration: Some(Value::Text(text)), ..message(1, 0) };
        let closed = play([queue(0, [])], [publish([message])]).await.closed();
        assert!(
            closed[0].starts_with("406 PRECONDITION_FAILED - invalid expiration"),
            "{closed:?}"
        );
    }
}

#[tokio::test]
async fn the_largest_expiration_is_ten_years() {
    let message =
        crate::script::Message { expiration: Some(Value::Text("315360000000")), ..message(1, 0) };
    assert_eq!(play([queue(0, [])], [publish([message])]).await.left(0), ["m1"]);
}

#[tokio::test]
async fn an_exchange_of_another_type_or_with_another_alternate_is_refused() {
    let with_alternate = Step::DeclareExchange {
        channel: 0,
        exchange: 0,
        kind: "direct",
        arguments: vec![("alternate-exchange", Value::Exchange(Some(1)))],
    };
    for other in [exchange(0, "topic"), with_alternate] {
        let closed = play([exchange(0, "direct")], [other]).await.closed();
        assert!(closed[0].starts_with("406 PRECONDITION_FAILED - inequivalent arg"), "{closed:?}");
    }
}

#[tokio::test]
async fn what_is_missing_cannot_be_bound_consumed_or_fetched() {
    for step in [
        bind(MISSING, 0, "a"),
        bind(0, MISSING, "a"),
        subscribe(0, MISSING, 1, 1),
        get(0, MISSING),
        Step::Purge { channel: 0, queue: MISSING },
    ] {
        let closed = play([exchange(0, "direct"), queue(0, [])], [step]).await.closed();
        assert!(closed[0].starts_with("404 NOT_FOUND"), "{closed:?}");
    }
}

#[tokio::test]
async fn what_is_missing_is_deleted_and_unbound_without_a_word() {
    let unbind = |queue, exchange| Step::Unbind {
        channel: 0,
        queue,
        exchange,
        key: Key::Word("a"),
        arguments: vec![],
    };
    for step in [
        Step::DeleteQueue { channel: 0, queue: MISSING, if_empty: false },
        Step::DeleteExchange { channel: 0, exchange: MISSING },
        unbind(0, 0),
        unbind(MISSING, 0),
        unbind(0, MISSING),
    ] {
        let played = play([exchange(0, "direct"), queue(0, [])], [step]).await;
        assert!(played.closed().is_empty(), "{:?}", played.closed());
    }
}

#[tokio::test]
async fn an_unknown_delivery_closes_the_channel() {
    let closed = play([queue(0, [])], [Step::SettleUnknown { channel: 0 }]).await.closed();
    assert_eq!(closed, ["406 PRECONDITION_FAILED - unknown delivery tag 9999"]);
}

#[tokio::test]
async fn a_type_that_does_not_exist_is_compared_with_that_of_a_queue_and_declares_none() {
    let unknown = || vec![("x-queue-type", Value::Text("none"))];
    for arguments in [unknown(), quorum([])] {
        let is_quorum = arguments == quorum([]);
        let before = if is_quorum { vec![declare(1, arguments)] } else { vec![] };
        let closed = play(before, [declare(1, unknown())]).await.closed();
        let word = if is_quorum { "inequivalent" } else { "invalid" };
        assert!(
            closed[0].starts_with(&format!("406 PRECONDITION_FAILED - {word} arg")),
            "{closed:?}"
        );
    }
}

#[tokio::test]
async fn an_argument_of_a_consumer_that_only_streams_know_is_refused_with_the_type_of_the_queue() {
    for (arguments, kind) in [(quorum([]), "quorum"), (vec![], "classic")] {
        let asks = Step::Subscribe {
            channel: 0,
            queue: 0,
            tag: 1,
            prefetch: 1,
            is_no_ack: false,
            arguments: vec![
                ("x-priority", Value::Number(0)),
                ("x-stream-offset", Value::Text("next")),
            ],
        };
        let declared = Step::DeclareQueue { channel: 0, queue: 0, arguments };
        let closed = play([declared], [publish_to(0, [1]), asks]).await.closed();
        assert!(closed[0].ends_with(&format!("of queue type rabbit_{kind}_queue")), "{closed:?}");
    }
}
