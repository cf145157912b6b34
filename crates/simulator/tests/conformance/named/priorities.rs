//! Priorities of messages: which comes first, and which waits for which.

use crate::play::play;
use crate::script::Step;
use crate::words::*;

/// Messages without priority, and later ones of priority 9.
fn low_then_high() -> Step {
    let low = (1..7).map(|number| message(number, 0));
    let high = (7..13).map(|number| message(number, 0).of_priority(9));
    Step::Publish { channel: 0, messages: low.chain(high).collect() }
}

fn named(numbers: &[u32]) -> Vec<String> {
    numbers.iter().map(|number| format!("m{number}")).collect()
}

#[tokio::test]
async fn two_of_high_priority_go_before_one_of_the_others_on_4_0_and_all_of_them_on_4_3() {
    let mut steps = vec![low_then_high(), subscribe(0, 0, 1, 1)];
    steps.extend(times(12, [settle(0, ACK)]));
    let played = play([queue(0, [])], steps).await;
    let expected = played.by_version([
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        [7, 8, 1, 9, 10, 2, 11, 12, 3, 4, 5, 6],
        [7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6],
    ]);
    assert_eq!(played.came(), named(&expected));
}

#[tokio::test]
async fn a_message_without_priority_has_4_and_those_above_31_have_31_on_4_3() {
    let priorities = [None, Some(0), Some(3), Some(4), Some(5), Some(31), Some(32), Some(255)];
    let of = |(number, priority)| match priority {
        Some(priority) => message(number, 0).of_priority(priority),
        None => message(number, 0),
    };
    let messages = (1..).zip(priorities).map(of).collect();
    let steps = [Step::Publish { channel: 0, messages }, subscribe(0, 0, 1, 10)];
    let played = play([queue(0, [])], steps).await;
    let expected = played.by_version([
        [1, 2, 3, 4, 5, 6, 7, 8],
        [5, 6, 1, 7, 8, 2, 3, 4],
        [6, 7, 8, 5, 1, 4, 3, 2],
    ]);
    assert_eq!(played.came(), named(&expected));
}

#[tokio::test]
async fn what_comes_back_keeps_its_place_before_others_on_4_3_alone() {
    let mut steps = vec![
        publish([message(1, 0).of_priority(9), message(2, 0)]),
        get(0, 0),
        publish([message(3, 0).of_priority(9)]),
        settle(0, NACK),
        subscribe(0, 0, 1, 1),
    ];
    steps.extend(times(3, [settle(0, ACK)]));
    let played = play([queue(0, [limit(9)])], steps).await;
    let expected = played.by_version([[1, 1, 2, 3], [1, 1, 3, 2], [1, 1, 3, 2]]);
    assert_eq!(played.came(), named(&expected));
}

/// What waits for a longer time, with a higher priority, keeps a message waiting on 4.0.
#[tokio::test]
async fn a_message_whose_time_is_over_waits_for_those_of_higher_priority_on_4_0_alone() {
    for strategy in [at_least_once().to_vec(), Vec::new()] {
        let mut arguments = quorum(dead_letters_to(1));
        arguments.extend(strategy);
        let waits = Step::DeclareQueue { channel: 0, queue: 0, arguments };
        let steps = [
            subscribe(0, 1, 1, 10),
            publish([message(1, 0).expiring(200), message(2, 0).expiring(9000).of_priority(9)]),
            Step::PassTime,
        ];
        let played = play([waits, queue(1, [])], steps).await;
        let home = played.came().len();
        assert_eq!(home, played.by_version([1, 0, 1]));
    }
}

#[tokio::test]
async fn a_dead_letter_has_the_priority_of_its_message() {
    let [exchange, key] = dead_letters_to(1);
    let steps = [
        publish([message(1, 0), message(2, 0).of_priority(9)]),
        subscribe(0, 0, 1, 2),
        settle_to(0, 1, DROP),
        subscribe(0, 1, 2, 2),
    ];
    let played = play([queue(0, [exchange, key]), queue(1, [])], steps).await;
    assert_eq!(played.header("m2", "(priority)")[..2], ["9", "9"]);
}

#[tokio::test]
async fn a_length_limit_drops_what_would_come_next() {
    let steps = [
        publish([message(1, 0)]),
        publish([message(2, 0).of_priority(9)]),
        publish([message(3, 0)]),
    ];
    play([queue(0, [("x-max-length", crate::script::Value::Number(2))])], steps).await;
}
