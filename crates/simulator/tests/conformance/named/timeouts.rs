//! Messages that are held for too long. 4.3 takes a timeout for each queue and looks at it exactly;
//! older versions look once a minute, and a minute is too long for a test.

use crate::play::play;
use crate::script::{Step, Value};
use crate::words::*;

fn with_timeout() -> [Step; 1] {
    [queue(0, [limit(3), ("x-consumer-timeout", Value::Time(300))])]
}

#[tokio::test]
async fn a_message_that_is_held_for_too_long_comes_back_uncounted_and_its_subscription_ends() {
    let steps = [publish_to(0, [1]), subscribe(2, 0, 1, 1), Step::PassTime, subscribe(0, 0, 2, 1)];
    let played = play(with_timeout(), steps).await;
    assert_eq!(played.deliveries("m1"), played.by_version([1, 1, 2]));
    assert_eq!(played.cancelled(), played.by_version([0, 0, 1]));
}

#[tokio::test]
async fn a_late_ack_does_no_harm_and_no_good() {
    let steps = [
        publish_to(0, [1]),
        subscribe(2, 0, 1, 1),
        Step::PassTime,
        settle(2, ACK),
        subscribe(0, 0, 2, 1),
    ];
    let played = play(with_timeout(), steps).await;
    assert_eq!(played.deliveries("m1"), played.by_version([1, 1, 2]));
}

#[tokio::test]
async fn a_message_that_times_out_more_often_than_its_limit_is_kept() {
    let mut steps = vec![publish_to(0, [1])];
    steps.extend((1..6).flat_map(|tag| [subscribe(2, 0, tag, 1), Step::PassTime]));
    let played = play(with_timeout(), steps).await;
    assert_eq!(played.deliveries("m1"), played.by_version([1, 1, 5]));
}

#[tokio::test]
async fn a_message_that_is_settled_in_time_does_not_time_out() {
    let steps = [
        publish_to(0, [1]),
        subscribe(2, 0, 1, 1),
        settle(2, ACK),
        Step::PassTime,
        publish_to(0, [2]),
    ];
    let played = play(with_timeout(), steps).await;
    assert_eq!((played.came(), played.cancelled()), (vec!["m1".to_owned(), "m2".to_owned()], 0));
}

#[tokio::test]
async fn a_message_that_is_fetched_and_held_for_too_long_closes_its_channel() {
    let played =
        play(with_timeout(), [publish_to(0, [1]), get(2, 0), Step::PassTime, get(0, 0)]).await;
    assert_eq!(played.closed().len(), played.by_version([0, 0, 1]), "{:?}", played.closed());
}
