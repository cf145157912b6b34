//! Wait queues: time-to-live, expiration, and what becomes of what cannot be delivered.

use crate::play::play;
use crate::script::{Key, Step, Table, Value};
use crate::words::*;

fn strategies() -> [Vec<(&'static str, Value)>; 2] {
    [at_least_once().to_vec(), Vec::new()]
}

/// A wait queue 0 whose messages come home to queue 1.
fn wait_queue(arguments: Vec<(&'static str, Value)>) -> Step {
    let mut all = quorum(dead_letters_to(1));
    all.extend(arguments);
    Step::DeclareQueue { channel: 0, queue: 0, arguments: all }
}

#[tokio::test]
async fn a_message_comes_home_when_its_time_is_over() {
    for strategy in strategies() {
        let topology = [wait_queue([vec![ttl(300)], strategy].concat()), queue(1, [])];
        let played =
            play(topology, [subscribe(0, 1, 1, 10), publish_to(0, 1..4), Step::PassTime]).await;
        assert_eq!(played.came(), ["m1", "m2", "m3"]);
    }
}

#[tokio::test]
async fn the_lower_of_a_queues_time_and_a_messages_expiration_counts() {
    for strategy in strategies() {
        let topology = [wait_queue([vec![ttl(400)], strategy].concat()), queue(1, [])];
        let steps = [
            subscribe(0, 1, 1, 10),
            publish([message(1, 0).expiring(200)]),
            Step::PassTime,
            publish([message(2, 0).expiring(5000)]),
            Step::PassTime,
        ];
        let played = play(topology, steps).await;
        assert_eq!(played.came(), ["m1", "m2"]);
        assert_eq!(played.header("m1", "(expiration)")[0], "-");
    }
}

#[tokio::test]
async fn a_message_that_expires_waits_for_those_before_it() {
    for strategy in strategies() {
        let topology = [wait_queue(strategy), queue(1, [])];
        let steps = [
            subscribe(0, 1, 1, 10),
            publish([message(1, 0).expiring(500), message(2, 0).expiring(100)]),
            Step::PassTime,
        ];
        assert_eq!(play(topology, steps).await.came(), ["m1", "m2"]);
    }
}

#[tokio::test]
async fn a_message_without_a_time_holds_up_those_behind_it() {
    let steps = [
        publish_to(0, [1]),
        publish([message(2, 0).expiring(150)]),
        Step::PassTime,
        get(0, 0),
        Step::PassTime,
    ];
    let played = play([wait_queue(vec![]), queue(1, [])], steps).await;
    assert_eq!((played.left(0), played.left(1)), (vec!["m1".to_owned()], vec!["m2".to_owned()]));
}

#[tokio::test]
async fn a_time_of_zero_is_over_at_once_unless_somebody_waits() {
    let steps = [
        publish([message(1, 0).expiring(0)]),
        subscribe(2, 0, 1, 10),
        publish([message(2, 0).expiring(0)]),
    ];
    let played = play([wait_queue(vec![]), queue(1, [])], steps).await;
    // The second one expires when it comes back from its consumer.
    assert_eq!(
        (played.came(), played.left(1)),
        (vec!["m2".to_owned()], vec!["m1".to_owned(), "m2".to_owned()])
    );
}

#[tokio::test]
async fn a_held_message_whose_time_is_over_expires_when_it_comes_back() {
    let steps = [
        publish([message(1, 0).expiring(200), message(2, 0).expiring(200)]),
        get(0, 0),
        Step::PassTime,
        settle(0, NACK),
    ];
    let played = play([wait_queue(vec![]), queue(1, [])], steps).await;
    assert_eq!(played.left(1), ["m2", "m1"]);
}

#[tokio::test]
async fn a_missing_route_home_loses_a_message_at_most_once_and_keeps_it_at_least_once() {
    for strategy in strategies() {
        let mut arguments =
            quorum([ttl(200), ("x-dead-letter-exchange", Value::Exchange(Some(0)))]);
        arguments.extend(strategy);
        let binding = |queue, kind| {
            let arguments = vec![("x-match", Value::Text("all")), ("kind", Value::Text(kind))];
            Step::Bind { channel: 0, queue, exchange: 0, key: Key::Word(""), arguments }
        };
        let of = |number, kind| message(number, 0).header("kind", Value::Text(kind));
        let topology = [
            exchange(0, "headers"),
            Step::DeclareQueue { channel: 0, queue: 0, arguments },
            queue(1, []),
            queue(2, []),
            binding(2, "early"),
        ];
        // A process beside the queue dead-letters at least once. When the second message has
        // arrived, that process has already looked for a route for the first.
        let first = [publish([of(1, "late"), of(2, "early")]), Step::PassTime];
        let then = [binding(1, "late"), publish([of(3, "late")]), Step::PassTime];
        let played = play(topology, first.into_iter().chain(then)).await;
        // What is kept is tried again every three minutes.
        assert_eq!(
            (played.left(1), played.left(2)),
            (vec!["m3".to_owned()], vec!["m2".to_owned()])
        );
    }
}

#[tokio::test]
async fn a_missing_exchange_is_a_missing_route() {
    for strategy in strategies() {
        let mut arguments =
            quorum([ttl(200), ("x-dead-letter-exchange", Value::Exchange(Some(MISSING)))]);
        arguments.extend(strategy);
        let topology = [Step::DeclareQueue { channel: 0, queue: 0, arguments }];
        let played = play(
            topology,
            [publish_to(0, [1]), Step::PassTime, Step::Purge { channel: 0, queue: 0 }],
        )
        .await;
        assert!(played.left(0).is_empty());
    }
}

#[tokio::test]
async fn at_least_once_without_reject_publish_is_at_most_once() {
    let strategy = vec![ttl(200), ("x-dead-letter-strategy", Value::Text("at-least-once"))];
    let steps =
        [publish_to(0, [1]), Step::PassTime, queue(1, []), publish_to(0, [2]), Step::PassTime];
    assert_eq!(play([wait_queue(strategy)], steps).await.left(1), ["m2"]);
}

/// So many messages that have no route home are ahead of two that have one.
async fn behind_undeliverable(count: u32) -> Vec<String> {
    let mut arguments = quorum([ttl(300), ("x-dead-letter-exchange", Value::Exchange(Some(0)))]);
    arguments.extend(at_least_once());
    let home = vec![("x-match", Value::Text("all")), ("kind", Value::Text("good"))];
    let topology = [
        exchange(0, "headers"),
        Step::DeclareQueue { channel: 0, queue: 0, arguments },
        queue(1, []),
        Step::Bind { channel: 0, queue: 1, exchange: 0, key: Key::Word(""), arguments: home },
    ];
    let good = [message(100, 0), message(101, 0)]
        .map(|message| message.header("kind", Value::Text("good")));
    let steps = [
        subscribe(0, 1, 1, 10),
        publish_to(0, 1..count + 1),
        publish(good),
        Step::PassTime,
        Step::PassTime,
    ];
    play(topology, steps).await.came()
}

#[tokio::test]
async fn good_messages_pass_up_to_31_undeliverable_ones() {
    assert_eq!(behind_undeliverable(31).await, ["m100", "m101"]);
}

#[tokio::test]
async fn good_messages_do_not_pass_32_undeliverable_ones() {
    assert!(behind_undeliverable(32).await.is_empty());
}

#[tokio::test]
async fn a_ladder_of_headers_exchanges_brings_a_message_home_with_its_routing_key() {
    // Two rungs: a message with both headers waits on the longer one first, then on the shorter
    // one.
    let rung = |queue, next, millis| {
        let mut arguments =
            quorum([ttl(millis), ("x-dead-letter-exchange", Value::Exchange(Some(next)))]);
        arguments.extend(at_least_once());
        Step::DeclareQueue { channel: 0, queue, arguments }
    };
    let by = |queue, exchange, name| Step::Bind {
        channel: 0,
        queue,
        exchange,
        key: Key::Word(""),
        arguments: vec![("x-match", Value::Text("all")), (name, Value::Flag(true))],
    };
    let headers = |exchange, alternate| Step::DeclareExchange {
        channel: 0,
        exchange,
        kind: "headers",
        arguments: vec![("alternate-exchange", Value::Exchange(Some(alternate)))],
    };
    let topology = [
        Step::DeclareExchange { channel: 0, exchange: 2, kind: "fanout", arguments: Table::new() },
        headers(1, 2),
        headers(0, 1),
        rung(1, 1, 300),
        rung(2, 2, 200),
        queue(0, []),
        by(1, 0, "slow"),
        by(2, 1, "fast"),
        bind(0, 2, ""),
    ];
    let yes = Value::Flag(true);
    let steps = [
        subscribe(0, 0, 1, 10),
        publish([routed(1, 0, "a").header("slow", yes.clone()).header("fast", yes.clone())]),
        Step::PassTime,
        Step::PassTime,
        publish([routed(2, 0, "a").header("fast", yes)]),
        Step::PassTime,
        publish([routed(3, 0, "a")]),
    ];
    assert_eq!(play(topology, steps).await.came(), ["m1", "m2", "m3"]);
}
