//! Queues that are deleted while they are used.

use crate::play::play;
use crate::script::Step;
use crate::words::*;

fn delete(queue: usize) -> Step {
    Step::DeleteQueue { channel: 0, queue, if_empty: false }
}

#[tokio::test]
async fn a_deleted_queue_ends_its_subscriptions_and_a_late_ack_does_no_harm() {
    let steps = [
        publish_to(0, 1..4),
        subscribe(2, 0, 1, 2),
        delete(0),
        settle(2, ACK),
        settle(2, REJECT),
        subscribe(2, 1, 2, 1),
        publish_to(1, [4]),
    ];
    let played = play([queue(0, []), queue(1, [])], steps).await;
    assert_eq!((played.cancelled(), played.closed().len()), (1, 0));
}

#[tokio::test]
async fn a_message_to_a_deleted_queue_has_no_route() {
    let steps = [delete(0), publish([message(1, 0).mandatory()]), queue(0, []), publish_to(0, [2])];
    assert_eq!(play([queue(0, [])], steps).await.left(0), ["m2"]);
}

#[tokio::test]
async fn a_deleted_queues_messages_are_not_dead_lettered() {
    let played = play(
        [queue(0, dead_letters_to(1)), queue(1, [])],
        [publish_to(0, 1..4), get(0, 0), delete(0)],
    )
    .await;
    assert!(played.left(1).is_empty());
}

#[tokio::test]
async fn a_purged_queue_keeps_what_is_held_and_dead_letters_nothing() {
    let steps = [publish_to(0, 1..4), get(2, 0), Step::Purge { channel: 0, queue: 0 }, close(2)];
    let played = play([queue(0, dead_letters_to(1)), queue(1, [])], steps).await;
    assert_eq!((played.left(0), played.left(1).len()), (vec!["m1".to_owned()], 0));
}
