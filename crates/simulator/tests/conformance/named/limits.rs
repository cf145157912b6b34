//! Delivery limits: what counts, what is shown, and what the default is.

use crate::play::{Played, play};
use crate::script::{Step, Value};
use crate::words::*;

/// A queue with a limit of three, a message in it, and where it goes then.
async fn with_a_limit_of_three(steps: Vec<Step>) -> Played {
    let [exchange, key] = dead_letters_to(1);
    let topology = [queue(0, [limit(3), exchange, key]), queue(1, [])];
    play(topology, [publish_to(0, [1])].into_iter().chain(steps)).await
}

#[tokio::test]
async fn a_rejected_message_is_dead_lettered_at_its_limit() {
    let mut steps = vec![subscribe(0, 0, 1, 1)];
    steps.extend(times(8, [settle(0, REJECT)]));
    let played = with_a_limit_of_three(steps).await;
    assert_eq!((played.deliveries("m1"), played.left(1)), (4, vec!["m1".to_owned()]));
}

#[tokio::test]
async fn a_nacked_message_is_dead_lettered_at_its_limit_but_never_on_4_3() {
    let mut steps = vec![subscribe(0, 0, 1, 1)];
    steps.extend(times(8, [settle(0, NACK)]));
    let played = with_a_limit_of_three(steps).await;
    assert_eq!(played.deliveries("m1"), played.by_version([4, 4, 9]));
}

#[tokio::test]
async fn a_message_nacked_with_multiple_counts_like_one_nacked_alone() {
    let mut steps = vec![subscribe(0, 0, 1, 1)];
    steps.extend(times(8, [settle_to(0, 0, NACK)]));
    let played = with_a_limit_of_three(steps).await;
    assert_eq!(played.deliveries("m1"), played.by_version([4, 4, 9]));
}

#[tokio::test]
async fn a_message_whose_channel_is_closed_is_dead_lettered_at_its_limit() {
    let played = with_a_limit_of_three(times(6, [subscribe(0, 0, 1, 1), close(0)])).await;
    assert_eq!((played.deliveries("m1"), played.left(1)), (4, vec!["m1".to_owned()]));
}

#[tokio::test]
async fn a_message_whose_connection_is_closed_is_dead_lettered_at_its_limit() {
    let played = with_a_limit_of_three(times(
        6,
        [subscribe(2, 0, 1, 1), Step::CloseConnection { connection: 1 }],
    ))
    .await;
    assert_eq!(played.deliveries("m1"), 4);
}

#[tokio::test]
async fn a_message_whose_connection_is_lost_is_dead_lettered_at_its_limit() {
    let played = with_a_limit_of_three(times(
        6,
        [subscribe(2, 0, 1, 1), Step::CutConnection { connection: 1 }],
    ))
    .await;
    assert_eq!(played.deliveries("m1"), 4);
}

#[tokio::test]
async fn a_cancelled_subscription_whose_channel_is_closed_counts() {
    let steps = times(6, [subscribe(0, 0, 1, 1), Step::Cancel { channel: 0, pick: 0 }, close(0)]);
    let played = with_a_limit_of_three(steps).await;
    assert_eq!(played.deliveries("m1"), 4);
}

#[tokio::test]
async fn a_message_that_is_fetched_and_nacked_counts_but_not_on_4_3() {
    let played = with_a_limit_of_three(times(8, [get(0, 0), settle(0, NACK)])).await;
    assert_eq!(played.deliveries("m1"), played.by_version([4, 4, 8]));
}

#[tokio::test]
async fn counts_that_a_publisher_sent_are_shown_on_the_first_delivery_only() {
    let stale = message(1, 0)
        .header("x-delivery-count", Value::Number(7))
        .header("x-acquired-count", Value::Number(9));
    let played =
        play([queue(0, [])], [publish([stale]), subscribe(0, 0, 1, 1), settle(0, REJECT)]).await;
    assert_eq!(played.header("m1", "x-delivery-count")[..2], ["7", "1"]);
    assert_eq!(
        played.header("m1", "x-acquired-count")[..2],
        ["9", played.by_version(["9", "9", "1"])]
    );
}

#[tokio::test]
async fn the_limit_itself_knows_nothing_of_a_count_that_a_publisher_sent() {
    let stale = message(1, 0).header("x-delivery-count", Value::Number(7));
    let mut steps = vec![publish([stale]), subscribe(0, 0, 1, 1)];
    steps.extend(times(3, [settle(0, REJECT)]));
    let played = play([queue(0, [limit(1)])], steps).await;
    assert_eq!(played.deliveries("m1"), 2);
}

#[tokio::test]
async fn a_message_from_the_dead_letter_queue_brings_its_counts_with_it() {
    let [exchange, key] = dead_letters_to(1);
    let mut steps = vec![publish_to(0, [1]), subscribe(0, 0, 1, 1)];
    steps.extend(times(2, [settle(0, REJECT)]));
    steps.extend([subscribe(0, 1, 2, 1), settle(0, REJECT)]);
    let played = play([queue(0, [limit(1), exchange, key]), queue(1, [])], steps).await;
    assert_eq!(played.deliveries("m1"), 4);
}

#[tokio::test]
async fn prefetched_messages_that_nobody_handled_count_when_the_connection_ends() {
    let steps = [
        publish_to(0, 1..6),
        subscribe(2, 0, 1, 10),
        Step::CutConnection { connection: 1 },
        subscribe(0, 0, 2, 10),
    ];
    let played = play([queue(0, [])], steps).await;
    assert_eq!(played.header("m5", "x-delivery-count")[..2], ["-", "1"]);
}

#[tokio::test]
async fn a_consumer_that_crashes_takes_its_whole_window_to_the_limit() {
    let mut steps = vec![publish_to(0, 1..11)];
    steps.extend(times(4, [subscribe(2, 0, 1, 5), Step::CutConnection { connection: 1 }]));
    let [exchange, key] = dead_letters_to(1);
    let played = play([queue(0, [limit(2), exchange, key]), queue(1, [])], steps).await;
    assert_eq!(played.left(1).len(), 5);
}

#[tokio::test]
async fn a_cancelled_subscription_keeps_its_messages_until_they_are_settled() {
    let steps = [
        publish_to(0, 1..4),
        subscribe(0, 0, 1, 10),
        Step::Cancel { channel: 0, pick: 0 },
        settle(0, ACK),
        settle_to(0, 5, NACK),
        subscribe(0, 0, 2, 10),
    ];
    let played = play([queue(0, [])], steps).await;
    assert_eq!(played.header("m2", "x-delivery-count")[1], played.by_version(["1", "1", "-"]));
}

/// How often a message comes to a consumer that always does this, of 23 times.
async fn until_it_is_gone(arguments: Vec<(&'static str, Value)>, how: [Step; 2]) -> Played {
    let [exchange, key] = dead_letters_to(1);
    let mut all = quorum([exchange, key]);
    all.extend(arguments);
    let topology = [Step::DeclareQueue { channel: 0, queue: 0, arguments: all }, queue(1, [])];
    play(topology, [publish_to(0, [1])].into_iter().chain(times(23, how))).await
}

#[tokio::test]
async fn a_queue_without_a_limit_has_one_of_twenty_since_4_0() {
    let played = until_it_is_gone(vec![], [get(0, 0), settle(0, REJECT)]).await;
    assert_eq!(played.deliveries("m1"), played.by_version([23, 21, 21]));
}

#[tokio::test]
async fn nacks_reach_the_default_limit_only_on_4_0() {
    let played = until_it_is_gone(vec![], [get(0, 0), settle(0, NACK)]).await;
    assert_eq!(played.deliveries("m1"), played.by_version([23, 21, 23]));
}

#[tokio::test]
async fn closed_channels_reach_the_default_limit() {
    let played = until_it_is_gone(vec![], [get(2, 0), close(2)]).await;
    assert_eq!(played.deliveries("m1"), played.by_version([23, 21, 21]));
}

#[tokio::test]
async fn a_limit_of_zero_is_one_delivery() {
    let played = until_it_is_gone(vec![limit(0)], [get(0, 0), settle(0, REJECT)]).await;
    assert_eq!(played.deliveries("m1"), 1);
}

#[tokio::test]
async fn a_limit_of_minus_one_is_none_but_on_3_10_it_is_the_smallest() {
    let played = until_it_is_gone(vec![limit(-1)], [get(0, 0), settle(0, REJECT)]).await;
    assert_eq!(played.deliveries("m1"), played.by_version([1, 23, 23]));
}

#[tokio::test]
async fn a_limit_that_is_never_reached_is_one_on_all_versions() {
    for how in [[get(0, 0), settle(0, REJECT)], [get(0, 0), settle(0, NACK)], [get(2, 0), close(2)]]
    {
        let played = until_it_is_gone(vec![limit(2_147_483_648)], how).await;
        assert_eq!((played.deliveries("m1"), played.left(0)), (23, vec!["m1".to_owned()]));
    }
}

#[tokio::test]
async fn a_queue_without_dead_letters_deletes_a_message_that_was_looked_at_too_often() {
    let looks = times(23, [get(0, 0), settle(0, NACK)])
        .into_iter()
        .chain(times(23, [get(0, 0), settle(0, REJECT)]));
    let played = play([queue(0, [])], [publish_to(0, [1])].into_iter().chain(looks)).await;
    assert_eq!(played.left(0).len(), played.by_version([1, 0, 0]));
}

#[tokio::test]
async fn the_smaller_of_a_policys_limit_and_the_arguments_counts() {
    for (argument, policy) in [(2_147_483_648, 2), (1, 3)] {
        let [exchange, key] = dead_letters_to(1);
        let mut steps = vec![
            publish_to(0, [1]),
            Step::SetPolicy {
                queue: 0,
                definition: vec![("delivery-limit", Value::Number(policy))],
            },
        ];
        steps.extend(times(6, [get(0, 0), settle(0, REJECT)]));
        let played = play([queue(0, [limit(argument), exchange, key]), queue(1, [])], steps).await;
        assert_eq!(played.deliveries("m1") as i64, argument.min(policy) + 1);
    }
}
