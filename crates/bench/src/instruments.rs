//! Tests the measuring code on data with known answers before anything is measured. A harness that
//! overlooks a lost message or a growing backlog is worse than none, and cargo runs no tests in a
//! benchmark without libtest.

use std::time::Duration;

use rehop::topology::Role;

use crate::audit::Audit;
use crate::distribution::Distribution;
use crate::job::{Fate, Job};
use crate::steady::search::Search;
use crate::steady::sustained::{Flow, Times};
use crate::turns::{Round, order};
use crate::way::Way;
use crate::witness::{Seen, Witness};

/// Panics if any of it does not work.
pub(crate) fn check() {
    the_audit_knows_each_message();
    the_witness_counts_attempts();
    a_distribution_knows_its_quantiles();
    sides_take_turns();
    a_growing_backlog_is_not_sustained();
    the_search_closes_in();
}

fn seen(attempts: u32, ended: bool) -> Seen {
    let at = Duration::from_secs(1);
    Seen { attempts, first: (attempts > 0).then_some(at), last: ended.then_some(at + Way::TIERS) }
}

fn the_audit_knows_each_message() {
    let early = Seen { last: Some(Way::TIERS), ..seen(2, true) };
    let waited = [
        seen(2, true),
        seen(3, true),
        seen(1, false),
        seen(1, false),
        seen(1, true),
        seen(1, false),
        early,
    ];
    let found = [(Fate::In(Role::Wait), 3), (Fate::In(Role::Work), 0), (Fate::In(Role::Stray), 5)];
    let expected = Audit {
        lost: vec![2],
        unfinished: vec![3],
        hurried: vec![4],
        astray: vec![5],
        early: vec![6],
        again: 2,
    };
    assert_eq!(Audit::of(Job::Wait(Way::Tiers), &waited, &found), expected);

    let parked = Fate::In(Role::Parked);
    let requeued = [seen(4, true), seen(4, true), seen(4, true)];
    let expected = Audit { lost: vec![2], again: 1, ..Audit::default() };
    assert_eq!(
        Audit::of(Job::Requeue, &requeued, &[(parked, 0), (parked, 1), (parked, 1)]),
        expected
    );
}

fn the_witness_counts_attempts() {
    let witness = Witness::new(2);
    witness.attempt(Some("1"), false);
    witness.attempt(Some("1"), true);
    let all = witness.seen().unwrap();
    assert_eq!((all[0], all[1].attempts), (Seen::default(), 2));
    assert!(all[1].first < all[1].last);
    witness.attempt(Some("2"), true);
    assert!(witness.seen().is_err(), "there are only two messages");
}

fn a_distribution_knows_its_quantiles() {
    let values = Distribution::of([4.0, 1.0, 3.0, 2.0]);
    assert_eq!((values.min(), values.median(), values.max()), (1.0, 2.5, 4.0));
    assert!((Distribution::of((0..=1000).map(f64::from)).quantile(0.99) - 990.0).abs() < 1e-6);
}

fn sides_take_turns() {
    let orders = |sides, of| (0..of).map(move |number| order(Round::Counted { number, of }, sides));
    assert!(orders(2, 4).eq([vec![0, 1], vec![1, 0], vec![1, 0], vec![0, 1]]));
    let mut of_three: Vec<_> = orders(3, 6).collect();
    of_three.sort();
    of_three.dedup();
    assert_eq!(of_three.len(), 6);
}

/// Ten seconds at 100 messages a second, after two of warm-up, with a consumer that finishes this
/// many a second.
fn flow(finished_per_second: f64) -> Flow {
    let at = Duration::from_secs_f64;
    let message = |id: u32| {
        let due = f64::from(id) / 100.0;
        let finished = (due + Way::TIERS.as_secs_f64())
            .max(Way::TIERS.as_secs_f64() + f64::from(id) / finished_per_second);
        Times {
            due: at(due),
            over: at(due) + Way::TIERS,
            arrived: at(due + 0.001),
            finished: Some(at(finished + 0.005)),
        }
    };
    let times: Vec<_> = (0..1_200).map(message).collect();
    Flow::of(100, at(2.0)..at(12.0), &times)
}

fn a_growing_backlog_is_not_sustained() {
    assert!(flow(100.0).is_sustained && flow(99.0).is_sustained);
    let slow = flow(90.0);
    assert!(!slow.is_sustained);
    assert!(
        (slow.backlog_growth - 10.0).abs() < 1.0 && (slow.finished - 90.0).abs() < 1.0,
        "{slow:?}"
    );
    let at = Duration::from_secs;
    let late = Times { due: at(2), over: at(4), arrived: at(20), finished: Some(at(22)) };
    assert!(
        !Flow::of(1, at(2)..at(12), &[late; 10]).is_sustained,
        "arrivals that come late are not sustained"
    );
}

fn the_search_closes_in() {
    let mut search = Search::default();
    for (rate, is_sustained) in [(1_000, true), (2_000, false), (3_000, true), (5_000, false)] {
        search.learn(rate, is_sustained);
    }
    assert_eq!((search.highest(), search.next()), (3_000, 4_000));
    search.learn(4_000, false);
    assert_eq!(search.next(), 3_500);
}
