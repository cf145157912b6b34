//! Where in its queue a message goes that comes back.

use crate::play::{Played, play};
use crate::script::{Settlement, Step};
use crate::words::*;

/// The first message of six is fetched and given back, and then all come.
async fn given_back(arguments: Vec<(&'static str, crate::script::Value)>, how: Step) -> Played {
    let mut all = quorum([]);
    all.extend(arguments);
    let topology = [Step::DeclareQueue { channel: 0, queue: 0, arguments: all }];
    play(topology, [publish_to(0, 1..7), get(0, 0), how, subscribe(2, 0, 1, 10)]).await
}

/// What comes first and last then.
fn ends(played: &Played) -> (String, String) {
    let came = &played.came()[1..];
    (came[0].clone(), came[came.len() - 1].clone())
}

fn first(message: &str, last: &str) -> (String, String) {
    (message.to_owned(), last.to_owned())
}

const WAYS: [Settlement; 2] = [REJECT, NACK];

#[tokio::test]
async fn without_a_limit_a_requeued_message_is_the_next_one_but_on_3_10_the_last_one() {
    for how in WAYS {
        let played = given_back(vec![], settle(0, how)).await;
        assert_eq!(
            ends(&played),
            played.by_version([first("m2", "m1"), first("m1", "m6"), first("m1", "m6")])
        );
    }
}

#[tokio::test]
async fn with_a_limit_a_requeued_message_is_the_next_one() {
    for how in WAYS {
        let played = given_back(vec![limit(10)], settle(0, how)).await;
        assert_eq!(ends(&played), first("m1", "m6"));
    }
}

#[tokio::test]
async fn a_limit_of_minus_one_sends_a_requeued_message_to_the_end_on_4_0_and_away_on_3_10() {
    for how in WAYS {
        let played = given_back(vec![limit(-1)], settle(0, how)).await;
        assert_eq!(
            ends(&played),
            played.by_version([first("m2", "m6"), first("m2", "m1"), first("m1", "m6")])
        );
    }
}

#[tokio::test]
async fn what_a_closed_channel_held_is_the_next_one_whatever_the_limit() {
    for arguments in [vec![], vec![limit(10)], vec![limit(2_147_483_648)]] {
        let played = given_back(arguments, close(0)).await;
        assert_eq!(ends(&played), first("m1", "m6"));
    }
}

/// Browses ten of thirty, gives them back, and looks at the order.
async fn browsed(
    arguments: Vec<(&'static str, crate::script::Value)>,
    back: impl IntoIterator<Item = Step>,
) -> Played {
    let mut all = quorum([]);
    all.extend(arguments);
    let topology = [Step::DeclareQueue { channel: 0, queue: 0, arguments: all }];
    play(topology, [publish_to(0, 1..31), subscribe(2, 0, 1, 10)].into_iter().chain(back)).await
}

fn in_order() -> Vec<String> {
    (1..31).map(|number| format!("m{number}")).collect()
}

#[tokio::test]
async fn browsed_messages_come_back_in_order_when_their_channel_is_closed() {
    let played = browsed(vec![limit(2_147_483_648)], [close(2)]).await;
    assert_eq!(played.left(0), in_order());
}

#[tokio::test]
async fn browsed_messages_come_back_in_order_by_one_nack_after_a_cancel_since_4_0() {
    let back = || [Step::Cancel { channel: 2, pick: 0 }, settle_to(2, 9, NACK)];
    for arguments in [vec![], vec![limit(2_147_483_648)]] {
        let played = browsed(arguments, back()).await;
        assert!(played.by_version([
            true,
            played.left(0) == in_order(),
            played.left(0) == in_order()
        ]));
    }
}

#[tokio::test]
async fn browsed_messages_come_back_in_order_by_one_nack_under_a_live_subscription_since_4_0() {
    let played = browsed(vec![limit(2_147_483_648)], [settle_to(2, 9, NACK), close(2)]).await;
    assert!(played.by_version([true, played.left(0) == in_order(), played.left(0) == in_order()]));
}

#[tokio::test]
async fn browsed_messages_lose_their_order_by_a_nack_for_each_under_a_live_subscription() {
    let played = browsed(vec![limit(2_147_483_648)], times(10, [settle(2, NACK)])).await;
    assert_eq!(played.came().len(), 20, "each is delivered again at once");
}
