//! Properties and headers that change what becomes of a message: `user_id` and `CC`.

use crate::play::play;
use crate::script::{Message, Step, Value};
use crate::words::*;

#[tokio::test]
async fn another_users_name_closes_the_channel() {
    let of_alice = Message { user: Some("alice"), ..message(1, 0) };
    let played = play([queue(0, [])], [publish([of_alice]), publish_to(0, [2])]).await;
    assert_eq!(played.closed().len(), 1, "{:?}", played.closed());
    assert_eq!(played.left(0), ["m2"]);
}

#[tokio::test]
async fn ones_own_name_is_kept() {
    let of_us = Message { user: Some("guest"), ..message(1, 0) };
    assert_eq!(play([queue(0, [])], [publish([of_us])]).await.left(0), ["m1"]);
}

#[tokio::test]
async fn a_message_goes_to_the_queues_in_cc_and_bcc_once_each() {
    let message =
        message(1, 0).header("CC", Value::Queues(vec![1, 0])).header("BCC", Value::Queues(vec![2]));
    let played = play([queue(0, []), queue(1, []), queue(2, [])], [publish([message])]).await;
    assert_eq!([played.left(0), played.left(1), played.left(2)], [["m1"], ["m1"], ["m1"]]);
}

#[tokio::test]
async fn a_copy_that_is_left_in_cc_is_not_made_again_if_the_wait_queue_has_a_routing_key() {
    let [exchange, key] = dead_letters_to(1);
    let topology = [queue(0, [ttl(200), exchange, key]), queue(1, []), queue(2, [])];
    let with_cc = message(1, 0).header("CC", Value::Queues(vec![2]));
    let played = play(topology, [publish([with_cc]), Step::PassTime]).await;
    assert_eq!((played.left(1).len(), played.left(2).len()), (1, 1));
    // The first one shown is that of queue 1.
    assert_eq!(played.header("m1", "CC")[0] == "-", played.by_version([true, false, false]));
}

#[tokio::test]
async fn a_copy_that_is_left_in_cc_is_made_again_if_the_wait_queue_keeps_the_routing_key() {
    // The default exchange has a route for each key.
    let topology = [
        exchange(0, "topic"),
        queue(0, [ttl(200), ("x-dead-letter-exchange", Value::Exchange(Some(0)))]),
        queue(1, []),
        queue(2, []),
        bind(1, 0, "#"),
        bind(2, 0, "#"),
    ];
    let with_cc = message(1, 0).header("CC", Value::Queues(vec![2]));
    let played = play(topology, [publish([with_cc]), Step::PassTime]).await;
    assert_eq!(played.left(2).len(), 2);
}
