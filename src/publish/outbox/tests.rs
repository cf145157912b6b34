//! What holds whatever the broker does.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::model::{Deleted, EXCHANGES, LATENCY, Mood, Nature, Plan, Scenario, Weather, World};
use crate::inputs::models;

fn mood() -> impl Strategy<Value = Mood> {
    prop_oneof![
        2 => Just(Mood::Open),
        1 => Just(Mood::Forbidden),
        1 => Just(Mood::Missing),
        1 => Just(Mood::Full),
        1 => Just(Mood::Unroutable),
        1 => Just(Mood::Slow),
    ]
}

/// Mostly within a few seconds, often at the same moment, sometimes within half an hour.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..8_000u64, 3 => prop::sample::select(&[500u64, 1_500, 4_000]), 1 => 0..2_000_000u64]
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 1..6_000u64, 1 => 1..1_000_000u64]
}

fn nature() -> impl Strategy<Value = Nature> {
    prop_oneof![12 => Just(Nature::Fine), 1 => Just(Nature::Malformed), 1 => Just(Nature::Deadly)]
}

fn weather() -> impl Strategy<Value = Weather> {
    prop_oneof![
        Just(Weather::Drop),
        span().prop_map(Weather::Away),
        span().prop_map(Weather::Block),
        span().prop_map(Weather::Hang),
        (1..20_000u64).prop_map(Weather::NoChannels),
    ]
}

/// What is deleted of these exchanges, and when.
fn deletions(exchanges: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(u64, usize, Deleted)>> {
    let part = prop_oneof![Just(Deleted::Exchange), Just(Deleted::Queue)];
    prop::collection::vec((time(), exchanges, part), 0..4)
}

fn plan(nature: impl Strategy<Value = Nature>) -> impl Strategy<Value = Plan> {
    (time(), 0..EXCHANGES, nature, prop::option::weighted(0.2, span()))
        .prop_map(|(at, exchange, nature, withdrawn_after)| Plan { at, exchange, nature, withdrawn_after })
}

prop_compose! {
    fn scenario()(
        seed in any::<u64>(),
        goes_on_refusing in any::<bool>(),
        copies in prop::collection::vec(plan(nature()), 1..40),
        moods in prop::collection::vec((time(), 0..EXCHANGES, mood()), 0..12),
        weather in prop::collection::vec((time(), weather()), 0..5),
        deletions in deletions(0..EXCHANGES),
        cuts in prop::collection::vec((1..80usize, 0..3 * LATENCY), 0..5),
    ) -> Scenario {
        Scenario { seed, goes_on_refusing, copies, moods, weather, deletions, cuts }
    }
}

prop_compose! {
    /// Exchange 0 is well, and so is the connection. The others are not.
    fn with_a_healthy_exchange()(
        seed in any::<u64>(),
        goes_on_refusing in any::<bool>(),
        mut copies in prop::collection::vec(plan(prop_oneof![6 => Just(Nature::Fine), 1 => Just(Nature::Malformed)]), 1..60),
        moods in prop::collection::vec((time(), 1..EXCHANGES, mood()), 0..12),
        deletions in deletions(1..EXCHANGES),
    ) -> Scenario {
        for copy in &mut copies {
            copy.nature = if copy.exchange == 0 { Nature::Fine } else { copy.nature };
        }
        Scenario { seed, goes_on_refusing, copies, moods, weather: Vec::new(), deletions, cuts: Vec::new() }
    }
}

proptest! {
    #![proptest_config(models(200))]

    /// The model itself checks, at each step, that only what is stored is reported as confirmed, once; that nothing is sent for
    /// nobody, or while it is under way; that what was refused rests as long as it must; that nothing is sent on a connection before the
    /// topology was declared on it, or to an exchange under repair; and that memory is bounded. What was deleted comes back by a repair
    /// alone.
    #[test]
    fn whatever_the_broker_does_each_copy_is_confirmed_in_the_end_and_none_is_multiplied(scenario in scenario()) {
        let world = World::run(&scenario);
        for (plan, fate) in scenario.copies.iter().zip(&world.fates) {
            let is_settled = match plan.nature {
                Nature::Fine => fate.confirmed_at.is_some(),
                Nature::Malformed | Nature::Deadly => fate.is_unpublishable,
            };
            prop_assert!(is_settled || fate.is_withdrawn, "{plan:?} {fate:?}");
            prop_assert!(fate.stored <= 1 + fate.excuses, "{plan:?} {fate:?}");
        }
        prop_assert!(world.outbox.copies.is_empty() && world.outbox.trials.is_empty());
    }

    #[test]
    fn a_healthy_copy_waits_for_no_other(scenario in with_a_healthy_exchange()) {
        let world = World::run(&scenario);
        // The first copy may have to wait for its lane. No lane but its own exchange's is its business, and that is never closed.
        let limit = Duration::from_millis(8 * LATENCY);
        for (plan, fate) in scenario.copies.iter().zip(&world.fates).filter(|(plan, _)| plan.exchange == 0) {
            let waited = fate.confirmed_at.map(|at| at - fate.submitted_at);
            prop_assert!(fate.is_withdrawn || waited.is_some_and(|waited| waited <= limit), "{waited:?} of {limit:?} {plan:?}");
        }
    }
}

/// Otherwise the properties would not cover late answers.
#[test]
fn many_answers_in_these_worlds_come_after_the_end_of_their_connection() {
    let mut runner = TestRunner::deterministic();
    let worlds = (0..100).map(|_| World::run(&scenario().new_tree(&mut runner).unwrap().current()));
    let (confirms, others) =
        worlds.fold((0, 0), |(confirms, others), world| (confirms + world.late_confirms, others + world.late_others));
    assert!(confirms >= 20 && others >= 20, "{confirms} confirms, {others} others");
}

/// Otherwise the properties would not cover repairs.
#[test]
fn in_many_of_these_worlds_what_was_deleted_is_declared_again() {
    let mut runner = TestRunner::deterministic();
    let worlds = (0..100).map(|_| World::run(&scenario().new_tree(&mut runner).unwrap().current()));
    let restored = worlds.filter(|world| world.restored > 0).count();
    assert!(restored >= 20, "{restored} of 100");
}
