//! Order under a single active consumer, and who is served in which turn.

use crate::play::{Played, play};
use crate::script::{Step, Value};
use crate::words::*;

/// The first consumer acks one message and holds five, and a second one stands by.
async fn the_first_goes(how: Vec<Step>) -> Played {
    let topology =
        [queue(0, [limit(2_147_483_648), ("x-single-active-consumer", Value::Flag(true))])];
    let mut steps =
        vec![publish_to(0, 0..20), subscribe(0, 0, 1, 5), subscribe(2, 0, 2, 30), settle(0, ACK)];
    steps.extend(how);
    play(topology, steps).await
}

fn second(played: &Played) -> Vec<String> {
    played.came()[6..].to_vec()
}

fn numbers(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    numbers.into_iter().map(|number| format!("m{number}")).collect()
}

#[tokio::test]
async fn the_order_survives_a_closed_channel() {
    assert_eq!(second(&the_first_goes(vec![close(0)]).await), numbers(1..20));
}

#[tokio::test]
async fn the_order_survives_a_lost_connection() {
    assert_eq!(
        second(&the_first_goes(vec![Step::CutConnection { connection: 0 }]).await),
        numbers(1..20)
    );
}

#[tokio::test]
async fn the_order_is_broken_by_a_cancel_while_messages_are_held() {
    let played =
        the_first_goes(vec![Step::Cancel { channel: 0, pick: 0 }, settle_to(0, 4, NACK)]).await;
    assert_eq!(second(&played)[..2], numbers(6..8));
}

#[tokio::test]
async fn consumers_are_served_in_turn() {
    let steps = [
        subscribe(0, 0, 1, 2),
        subscribe(1, 0, 2, 2),
        subscribe(2, 0, 3, 2),
        publish_to(0, 1..8),
        settle(1, ACK),
        settle(0, NACK),
        close(2),
    ];
    play([queue(0, [limit(2_147_483_648)])], steps).await;
}

#[tokio::test]
async fn what_a_dead_channel_held_by_several_ways_comes_back_by_subscriptions_first() {
    let steps = [
        publish_to(0, 1..7),
        get(2, 0),
        subscribe(2, 0, 2, 2),
        subscribe(2, 0, 1, 1),
        get(2, 0),
        close(2),
    ];
    play([queue(0, [limit(2_147_483_648)])], steps).await;
}
