//! Dead-letter cycles, and death headers that a publisher left in.

use crate::play::play;
use crate::script::{Step, Value};
use crate::words::*;

fn strategies() -> [Vec<(&'static str, Value)>; 2] {
    [at_least_once().to_vec(), Vec::new()]
}

/// Queue 0 dead-letters to queue 1, whose messages come back after a while.
fn there_and_back(
    first: Vec<(&'static str, Value)>,
    strategy: Vec<(&'static str, Value)>,
) -> [Step; 2] {
    let mut work = quorum(dead_letters_to(1));
    work.extend(first);
    let mut wait = quorum(dead_letters_to(0));
    wait.push(ttl(200));
    wait.extend(strategy);
    [(0, work), (1, wait)].map(|(queue, arguments)| Step::DeclareQueue {
        channel: 0,
        queue,
        arguments,
    })
}

#[tokio::test]
async fn a_message_over_its_limit_does_not_come_back_from_the_wait_queue() {
    for strategy in strategies() {
        let mut steps = vec![publish_to(0, [1]), subscribe(0, 0, 1, 1)];
        steps.extend(times(2, [settle(0, REJECT)]));
        steps.push(Step::PassTime);
        let played = play(there_and_back(vec![limit(1)], strategy), steps).await;
        assert_eq!(played.deliveries("m1"), 2);
    }
}

#[tokio::test]
async fn a_rejected_message_goes_round_as_often_as_it_is_rejected() {
    for strategy in strategies() {
        let mut steps = vec![publish_to(0, [1]), subscribe(0, 0, 1, 1)];
        steps.extend(times(4, [settle(0, DROP), Step::PassTime]));
        let played = play(there_and_back(vec![], strategy), steps).await;
        assert_eq!(played.deliveries("m1"), 5);
    }
}

#[tokio::test]
async fn two_wait_queues_drop_a_message_that_comes_to_one_of_them_again() {
    for strategy in strategies() {
        let steps = [publish_to(0, [1]), Step::PassTime, Step::PassTime, Step::PassTime];
        let played = play(there_and_back(vec![ttl(300)], strategy), steps).await;
        assert!(played.came().is_empty());
    }
}

/// A message as it comes from a queue where it died, with the headers of that left in.
async fn with_deaths_left_in(
    queue: usize,
    reason: &'static str,
    strategy: Vec<(&'static str, Value)>,
) -> usize {
    let left_in = message(1, 1).header("x-death", Value::Deaths { queue, reason });
    let steps = [subscribe(0, 0, 1, 1), publish([left_in]), Step::PassTime];
    play(there_and_back(vec![], strategy), steps).await.deliveries("m1")
}

#[tokio::test]
async fn a_message_that_died_of_its_limit_is_dropped_on_its_way_home_on_3_10_if_its_headers_are_left_in()
 {
    for strategy in strategies() {
        let steps = [
            subscribe(0, 0, 1, 1),
            publish([message(1, 1)
                .header("x-death", Value::Deaths { queue: 0, reason: "delivery_limit" })]),
            Step::PassTime,
        ];
        let played = play(there_and_back(vec![], strategy), steps).await;
        assert_eq!(played.deliveries("m1"), played.by_version([0, 1, 1]));
    }
}

#[tokio::test]
async fn a_message_that_was_rejected_comes_home_with_its_headers_left_in() {
    for strategy in strategies() {
        assert_eq!(with_deaths_left_in(0, "rejected", strategy).await, 1);
    }
}

#[tokio::test]
async fn a_message_that_expired_in_the_same_queue_comes_home_with_its_headers_left_in() {
    for strategy in strategies() {
        assert_eq!(with_deaths_left_in(1, "expired", strategy).await, 1);
    }
}

#[tokio::test]
async fn a_second_death_of_the_same_kind_is_counted_and_another_one_is_listed() {
    let mut steps = vec![publish_to(0, [1]), subscribe(0, 0, 1, 1)];
    steps.extend(times(3, [settle(0, DROP), Step::PassTime]));
    let played = play(there_and_back(vec![], vec![]), steps).await;
    let deaths = played.header("m1", "x-death");
    assert!(deaths[3].contains("count: 3"), "{deaths:?}");
}
