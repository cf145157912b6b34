//! Queues with a length limit. One message at a time, for the limit of a quorum queue is a soft
//! one.

use crate::play::{Played, play};
use crate::script::{Step, Value};
use crate::words::*;

fn three(overflow: &'static str) -> [(&'static str, Value); 2] {
    [("x-max-length", Value::Number(3)), ("x-overflow", Value::Text(overflow))]
}

async fn filled(arguments: [(&'static str, Value); 2], more: Vec<Step>) -> Played {
    let [exchange, key] = dead_letters_to(1);
    let [length, overflow] = arguments;
    let topology = [queue(0, [length, overflow, exchange, key]), queue(1, [])];
    play(topology, (1..7).map(|number| publish_to(0, [number])).chain(more)).await
}

#[tokio::test]
async fn a_full_queue_that_refuses_takes_one_more_than_its_limit() {
    let played = filled(three("reject-publish"), vec![]).await;
    assert_eq!((played.left(0).len(), played.refused()), (4, 2));
}

#[tokio::test]
async fn a_full_queue_that_refuses_takes_messages_again_once_there_is_room() {
    let mut more = times(2, [get(0, 0), settle(0, ACK)]);
    more.extend([publish_to(0, [7]), publish_to(0, [8])]);
    filled(three("reject-publish"), more).await;
}

#[tokio::test]
async fn a_full_queue_that_drops_its_head_keeps_the_newest_and_dead_letters_the_rest() {
    let played = filled(three("drop-head"), vec![]).await;
    assert_eq!(played.left(0), ["m4", "m5", "m6"]);
    assert_eq!(played.left(1), ["m1", "m2", "m3"]);
}

#[tokio::test]
async fn a_policy_that_makes_a_queue_shorter_takes_effect_at_once() {
    let policy = Step::SetPolicy { queue: 0, definition: vec![("max-length", Value::Number(1))] };
    let topology = [queue(0, dead_letters_to(1)), queue(1, [])];
    let played = play(topology, [publish_to(0, 1..6), policy, publish_to(0, [6])]).await;
    assert_eq!(played.left(0), ["m6"]);
}

#[tokio::test]
async fn a_queue_whose_policy_is_gone_is_as_it_was_declared() {
    let steps = [
        Step::SetPolicy { queue: 0, definition: vec![("max-length", Value::Number(1))] },
        publish_to(0, 1..4),
        Step::ClearPolicy { queue: 0 },
        publish_to(0, 4..7),
    ];
    assert_eq!(play([queue(0, [])], steps).await.left(0), ["m3", "m4", "m5", "m6"]);
}

/// Publishes six messages to a queue that a policy limits to three and that refuses more. Then
/// `change` makes room, and two channels publish again.
async fn relieved(change: Step) -> Played {
    let limit = Step::SetPolicy { queue: 0, definition: vec![("max-length", Value::Number(3))] };
    let again = |channel, number| Step::Publish { channel, messages: vec![message(number, 0)] };
    let full = (1..7).map(|number| publish_to(0, [number]));
    let steps =
        [limit].into_iter().chain(full).chain([change, again(0, 7), again(1, 8), again(0, 9)]);
    play([queue(0, [("x-overflow", Value::Text("reject-publish"))])], steps).await
}

#[tokio::test]
async fn a_full_queue_takes_messages_again_once_its_policy_has_a_higher_limit() {
    let higher = Step::SetPolicy { queue: 0, definition: vec![("max-length", Value::Number(100))] };
    assert_eq!(relieved(higher).await.refused(), 2);
}

#[tokio::test]
async fn a_full_queue_whose_limit_is_gone_takes_messages_again_but_on_3_10_not_on_a_channel_that_it_has_refused()
 {
    let played = relieved(Step::ClearPolicy { queue: 0 }).await;
    assert_eq!(played.refused(), played.by_version([4, 2, 2]));
}
