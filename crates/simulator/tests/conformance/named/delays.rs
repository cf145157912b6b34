//! Native delayed retries, which only 4.3 has; older versions accept the arguments and ignore them.

use crate::play::{Played, play};
use crate::script::{Step, Value};
use crate::words::*;

fn delayed(kind: &'static str, more: &[(&'static str, Value)]) -> [Step; 2] {
    let mut arguments = quorum(dead_letters_to(1));
    arguments.push(("x-delayed-retry-type", Value::Text(kind)));
    arguments.extend_from_slice(more);
    [Step::DeclareQueue { channel: 0, queue: 0, arguments }, queue(1, [])]
}

fn min_and_max() -> [(&'static str, Value); 2] {
    [("x-delayed-retry-min", Value::Time(200)), ("x-delayed-retry-max", Value::Time(500))]
}

/// Fails five times in this way, and lets time pass after each.
async fn failing(kind: &'static str, how: Step) -> Played {
    let mut more = vec![limit(3)];
    more.extend(min_and_max());
    let mut steps = vec![publish_to(0, [1])];
    steps.extend(times(5, [subscribe_once(), how, Step::PassTime]));
    play(delayed(kind, &more), steps).await
}

/// A fetch, so that it works also where the channel was closed.
fn subscribe_once() -> Step {
    get(2, 0)
}

#[tokio::test]
async fn each_type_delays_what_it_names() {
    for kind in ["all", "failed", "returned", "disabled", "another"] {
        for how in [settle(2, REJECT), settle(2, NACK), close(2)] {
            let is_nack = how == settle(2, NACK);
            let played = failing(kind, how).await;
            // On 4.3 a nack never reaches the limit, delayed or not.
            let of_nacks = played.by_version([4, 4, 5]);
            assert_eq!(played.deliveries("m1"), if is_nack { of_nacks } else { 4 }, "{kind}");
        }
    }
}

#[tokio::test]
async fn a_delay_without_a_maximum_is_the_minimum_each_time() {
    let mut steps = vec![publish_to(0, [1]), subscribe(0, 0, 1, 1)];
    steps.extend(times(3, [settle(0, REJECT), Step::PassTime]));
    let played = play(delayed("all", &[("x-delayed-retry-min", Value::Time(200))]), steps).await;
    assert_eq!(played.deliveries("m1"), 4);
}

#[tokio::test]
async fn a_maximum_or_a_type_alone_delays_nothing() {
    for more in [vec![], vec![("x-delayed-retry-max", Value::Time(300))]] {
        let steps = [publish_to(0, [1]), subscribe(0, 0, 1, 1), settle(0, REJECT), settle(0, NACK)];
        assert_eq!(play(delayed("all", &more), steps).await.deliveries("m1"), 3);
    }
}

#[tokio::test]
async fn other_messages_pass_a_delayed_one() {
    let steps = [
        publish_to(0, 1..4),
        subscribe(0, 0, 1, 1),
        settle(0, NACK),
        settle(0, ACK),
        settle(0, ACK),
        Step::PassTime,
    ];
    let played = play(delayed("all", &min_and_max()), steps).await;
    let delayed = ["m1", "m2", "m3", "m1"].map(str::to_owned).to_vec();
    let at_the_end = ["m1", "m2", "m3", "m1"].map(str::to_owned).to_vec();
    let at_once = ["m1", "m1", "m2", "m3"].map(str::to_owned).to_vec();
    assert_eq!(played.came(), played.by_version([at_the_end, at_once, delayed]));
}

#[tokio::test]
async fn of_messages_that_were_given_back_together_the_first_is_the_next_and_the_others_follow_by_age()
 {
    let steps = [
        publish_to(0, 1..4),
        get(2, 0),
        get(2, 0),
        subscribe(2, 0, 1, 1),
        close(2),
        Step::PassTime,
    ];
    let played = play(delayed("all", &min_and_max()), steps).await;
    let by_age = ["m1", "m2", "m3"].map(str::to_owned).to_vec();
    let subscription_first = ["m3", "m1", "m2"].map(str::to_owned).to_vec();
    assert_eq!(
        played.left(0),
        played.by_version([by_age, subscription_first.clone(), subscription_first])
    );
}

#[tokio::test]
async fn a_purge_takes_delayed_messages_as_well() {
    let steps = [
        publish_to(0, 1..3),
        get(0, 0),
        settle(0, NACK),
        Step::Purge { channel: 0, queue: 0 },
        Step::PassTime,
    ];
    assert!(play(delayed("all", &min_and_max()), steps).await.left(0).is_empty());
}

#[tokio::test]
async fn a_delayed_message_is_there_again_for_the_next_subscriber() {
    let steps = [
        publish_to(0, [1]),
        get(0, 0),
        settle(0, NACK),
        close(0),
        subscribe(2, 0, 1, 1),
        Step::PassTime,
    ];
    assert_eq!(play(delayed("returned", &min_and_max()), steps).await.deliveries("m1"), 2);
}

#[tokio::test]
async fn a_policy_changes_the_limit_of_delayed_messages() {
    let mut steps = vec![
        publish_to(0, [1]),
        Step::SetPolicy { queue: 0, definition: vec![("delivery-limit", Value::Number(1))] },
    ];
    steps.extend(times(3, [get(0, 0), settle(0, REJECT), Step::PassTime]));
    let played = play(delayed("all", &min_and_max()), steps).await;
    assert_eq!((played.deliveries("m1"), played.left(1)), (2, vec!["m1".to_owned()]));
}
