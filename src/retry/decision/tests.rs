//! Tables of examples, then the properties that hold for every policy, ledger and failure.

use std::time::Duration;

use proptest::prelude::*;

use std::collections::BTreeMap;

use super::*;
use crate::inputs::inputs;
use crate::retry::ledger::{Ledger, Wait};
use crate::wait::ladder::Ladder;
use crate::wait::tiers::MAX_LEGS;
use crate::wait::{self, AskedDelays, Jitter, MAX_DELAY, Path, WaitStrategy};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

pub(crate) fn fresh() -> Ledger {
    Ledger::new(NOW)
}

fn ladder() -> Ladder {
    Ladder::new(after(100), 4, MAX_DELAY)
}

const NOT_HELD: Limits = Limits { hold: None, lets_return: true };

/// This process may hold a delivery for as long as its message should wait.
fn held(asked: Duration) -> Limits {
    Limits {
        hold: Some(Hold {
            max_asked: asked,
            time_left: Some(Duration::MAX),
            redeliveries: Some(0),
        }),
        ..NOT_HELD
    }
}

/// Nothing is random, and nothing is held, but where a test says so.
fn decide(
    policy: &RetryPolicy,
    ledger: &Ledger,
    result: &Result<(), Failure>,
    now: Timestamp,
) -> Decision {
    super::decide(policy, ledger, result, now, || NOT_HELD, Draw::MIDDLE)
}

fn decide_before(policy: &RetryPolicy, ledger: &Ledger, now: Timestamp) -> Option<Decision> {
    super::decide_before(policy, ledger, now, || NOT_HELD)
}

fn policy(immediate: u32, delays: &[u64]) -> RetryPolicy {
    let delays: Vec<_> = delays.iter().copied().map(Duration::from_millis).collect();
    RetryPolicy {
        delivery_limit: immediate + 3,
        immediate,
        strategy: wait::Strategy::of(WaitStrategy::Tiers, &delays, ladder()),
        ladder: ladder(),
        after: AskedDelays::Own,
        wait_queues: None,
        jitter: Jitter::None,
        max_defers: 2,
        delays,
        max_age: None,
        on_exhausted: Ending::Park,
        on_expired: Ending::Park,
        errors: BTreeMap::new(),
    }
}

fn after(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn wait_of(tier: u64, total: u64) -> Decision {
    wait_by(Path::Tier, tier, total)
}

fn wait_by(path: Path, leg: u64, total: u64) -> Decision {
    let wait = Wait { since: NOW, due: NOW + after(total), leg: after(leg), path };
    Decision::Wait { wait, is_defer: false }
}

fn check(ledger: &Ledger, failure: Failure, expected: Decision) {
    let text = format!("{ledger:?} and {failure:?}");
    assert_eq!(decide(&policy(1, &[100, 300]), ledger, &Err(failure), NOW), expected, "{text}");
}

fn policy_of(kind: wait::WaitStrategy, immediate: u32, delays: &[u64]) -> RetryPolicy {
    let policy = policy(immediate, delays);
    RetryPolicy { strategy: wait::Strategy::of(kind, &policy.delays, ladder()), ..policy }
}

#[test]
fn a_native_wait_is_always_the_same_and_bounds_what_may_be_asked() {
    let native = policy_of(wait::WaitStrategy::Native, 1, &[300, 300]);
    let decided = |ledger: &Ledger, failure| decide(&native, ledger, &Err(failure), NOW);
    let returned = wait_by(Path::Return, 300, 300);
    assert_eq!(decided(&fresh(), Failure::transient("no")), Decision::Requeue);
    assert_eq!(decided(&fresh(), Failure::transient("no").after(after(1))), returned);
    assert_eq!(decided(&fresh(), Failure::transient("no").after(after(300))), returned);
    assert_eq!(
        decided(&fresh(), Failure::transient("no").after(after(301))),
        Decision::Park(Reason::DelayTooLong)
    );
    let used_up = Ledger { redeliveries: Some(1), ..fresh() };
    assert_eq!(decided(&used_up, Failure::transient("no")), returned);
    let last = Ledger { attempts: 2, hop: 2, ..used_up };
    assert_eq!(decided(&last, Failure::transient("no")), Decision::Park(Reason::Exhausted));
    assert_eq!(native.longest_wait(), after(300));
    assert_eq!(policy_of(wait::WaitStrategy::Native, 1, &[]).longest_wait(), Duration::ZERO);
}

#[test]
fn a_delay_that_is_asked_for_is_held_until_the_process_must_let_go_and_the_policys_own_always() {
    let policy = policy_of(wait::WaitStrategy::InProcess, 0, &[300]);
    let limits = || held(after(200));
    let decided =
        |failure| super::decide(&policy, &fresh(), &Err(failure), NOW, limits, Draw::MIDDLE);
    let held = |millis| wait_by(Path::Hold, millis, millis);
    assert_eq!(decided(Failure::transient("no").after(after(200))), held(200));
    assert_eq!(
        decided(Failure::transient("no").after(after(201))),
        Decision::Park(Reason::DelayTooLong)
    );
    assert_eq!(decided(Failure::transient("no")), held(300));
    let too_long = Failure::transient("no").after(MAX_DELAY + after(1));
    assert_eq!(
        decide(&policy, &fresh(), &Err(too_long), NOW),
        Decision::Park(Reason::DelayTooLong)
    );
    let left = |millis| Ledger { wait_unfinished: Some(NOW + after(millis)), ..fresh() };
    let decided_before = |ledger: Ledger| super::decide_before(&policy, &ledger, NOW, limits);
    assert_eq!(decided_before(left(200)), Some(held(200)));
    assert_eq!(decided_before(left(201)), Some(Decision::Park(Reason::DelayTooLong)));
}

#[test]
fn what_is_held_remembers_each_failure_and_counts_immediate_attempts_again_after_a_wait() {
    let failure = Failure::transient("no");
    let at_once = Ledger { redeliveries: Some(1), attempts: 3, hop: 2, ..fresh() }.held(
        Some(&failure),
        None,
        false,
        NOW,
    );
    assert_eq!((at_once.attempt(), at_once.hop, at_once.redeliveries), (6, 2, Some(2)));
    assert_eq!(
        (at_once.errors.len(), at_once.errors[0].attempt, at_once.first_failed),
        (1, 5, Some(NOW))
    );
    let wait = Wait { since: NOW, due: NOW + after(300), leg: after(300), path: Path::Hold };
    let waited = at_once.held(Some(&failure), Some(wait), false, NOW);
    assert_eq!((waited.attempt(), waited.hop, waited.redeliveries), (7, 3, Some(0)));
    assert_eq!((waited.errors.len(), waited.wait, waited.wait_unfinished), (2, Some(wait), None));
}

#[test]
fn the_attempts_before_each_attempt_follow_from_the_strategy() {
    let check = |kind, expected: [(u32, u32); 6]| {
        let policy = policy_of(kind, 1, &[300, 300]);
        assert_eq!(
            [1, 2, 3, 4, 5, 6].map(|attempt| policy.before_attempt(attempt)),
            expected,
            "{kind:?}"
        );
        for attempt in 1..=6 {
            let (hop, at_once) = policy.before_attempt(attempt);
            let is_first = policy.first_attempt_after(hop) == attempt;
            assert_eq!(
                is_first,
                attempt == 1 || policy.before_attempt(attempt - 1).0 < hop,
                "{at_once}"
            );
        }
    };
    for kind in [wait::WaitStrategy::Tiers, wait::WaitStrategy::InProcess] {
        check(kind, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]);
    }
    check(wait::WaitStrategy::Native, [(0, 0), (0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]);
    let most = |kind| {
        let policy = RetryPolicy { delivery_limit: 5, ..policy_of(kind, 2, &[300, 300]) };
        (policy.max_attempts(), policy.max_deliveries())
    };
    assert_eq!(most(wait::WaitStrategy::Native), (5, 8));
    assert_eq!(most(wait::WaitStrategy::InProcess), (9, 6));
    let held = policy_of(wait::WaitStrategy::InProcess, 1, &[300, 200]);
    assert_eq!(held.longest_chain(after(10)), after(560));
}

#[test]
fn the_most_attempts_and_deliveries_are_multiplied_by_the_waits() {
    let policy = RetryPolicy { delivery_limit: 5, ..policy(2, &[100, 200, 300]) };
    assert_eq!((policy.max_attempts(), policy.max_deliveries()), (12, 24));
    let never_waits = RetryPolicy { delivery_limit: 1, ..self::policy(0, &[]) };
    assert_eq!((never_waits.max_attempts(), never_waits.max_deliveries()), (1, 2));
}

/// Headers, metrics and other programs know these words.
#[test]
fn each_reason_has_its_word() {
    for (reason, word) in [
        (Reason::Exhausted, "exhausted"),
        (Reason::Permanent, "permanent"),
        (Reason::Expired, "expired"),
        (Reason::Undecodable, "undecodable"),
        (Reason::DelayTooLong, "delay_too_long"),
        (Reason::DeferredTooOften, "deferred_too_often"),
        (Reason::Discarded, "discarded"),
        (Reason::Unpublishable, "unpublishable"),
    ] {
        assert_eq!((reason.as_str(), reason.to_string().as_str()), (word, word));
    }
}

#[test]
fn a_handled_message_is_acked() {
    assert_eq!(decide(&policy(0, &[]), &fresh(), &Ok(()), NOW), Decision::Ack);
}

#[test]
fn a_transient_failure_is_tried_at_once_then_waits_then_parks() {
    let once = Ledger { redeliveries: Some(1), ..fresh() };
    let waited = Ledger { hop: 1, redeliveries: Some(1), ..fresh() };
    let spent = Ledger { hop: 2, redeliveries: Some(1), ..fresh() };
    for failure in [Failure::transient("x"), Failure::requeue("x"), Failure::from(std::fmt::Error)]
    {
        check(&fresh(), failure.clone(), Decision::Requeue);
        check(&once, failure.clone(), wait_of(100, 100));
        check(&waited, failure.clone(), wait_of(300, 300));
        check(&spent, failure, Decision::Park(Reason::Exhausted));
    }
}

#[test]
fn a_body_that_does_not_decode_is_parked_whatever_is_left_and_whatever_the_policy_says_of_its_class()
 {
    let undecodable = || Failure::undecodable(&"not valid JSON");
    let parked = Decision::Park(Reason::Undecodable);
    for ledger in [fresh(), Ledger { deadline: Some(NOW), ..fresh() }, Ledger { hop: 2, ..fresh() }]
    {
        check(&ledger, undecodable(), parked);
    }
    let mut policy = policy(1, &[100]);
    policy.errors = BTreeMap::from([("undecodable".to_owned(), Treatment::Discard)]);
    assert_eq!(decide(&policy, &fresh(), &Err(undecodable()), NOW), parked);
}

#[test]
fn a_queue_that_does_not_count_gets_no_attempt_at_once() {
    check(&Ledger { redeliveries: None, ..fresh() }, Failure::transient("x"), wait_of(100, 100));
}

#[test]
fn an_asked_for_delay_replaces_the_policys_and_is_rounded_up() {
    check(&fresh(), Failure::transient("x").after(after(101)), wait_of(300, 300));
    check(&fresh(), Failure::transient("x").after(after(350)), wait_of(300, 400));
    check(&fresh(), Failure::transient("x").after(after(2_400)), wait_of(300, 2_400));
    let spent = Ledger { hop: 2, ..fresh() };
    check(&spent, Failure::transient("x").after(after(1)), Decision::Park(Reason::Exhausted));
}

#[test]
fn a_delay_that_needs_more_than_eight_legs_parks_the_message() {
    let too_long = Decision::Park(Reason::DelayTooLong);
    assert_eq!(policy(1, &[100, 300]).longest_wait(), after(2_400));
    check(&fresh(), Failure::transient("x").after(after(2_401)), too_long);
    check(&fresh(), Failure::transient("x").after(Duration::MAX), too_long);
    let month = policy(0, &[MAX_DELAY.as_millis() as u64]);
    let asks = |delay| decide(&month, &fresh(), &Err(Failure::transient("x").after(delay)), NOW);
    assert!(matches!(asks(MAX_DELAY), Decision::Wait { .. }));
    assert_eq!(asks(MAX_DELAY + after(1)), too_long);
}

#[test]
fn what_is_left_of_a_wait_is_bounded_as_a_wait_is() {
    let left = |millis| Ledger { wait_unfinished: Some(NOW + after(millis)), ..fresh() };
    let too_long = Some(Decision::Park(Reason::DelayTooLong));
    let policy_with = |delays: &[u64]| policy(1, delays);
    assert!(matches!(
        decide_before(&policy_with(&[100, 300]), &left(2_400), NOW),
        Some(Decision::Wait { .. })
    ));
    assert_eq!(decide_before(&policy_with(&[100, 300]), &left(2_401), NOW), too_long);
    assert_eq!(decide_before(&policy_with(&[]), &left(1), NOW), too_long, "no attempt comes early");
}

#[test]
fn no_wait_ends_past_the_deadline() {
    let until =
        |millis| Ledger { redeliveries: Some(1), deadline: Some(NOW + after(millis)), ..fresh() };
    check(&until(101), Failure::transient("x"), wait_of(100, 100));
    check(&until(100), Failure::transient("x"), Decision::Park(Reason::Expired));
    check(&until(0), Failure::permanent("x"), Decision::Park(Reason::Permanent));
}

#[test]
fn a_failure_of_an_expired_message_ends_it_even_if_an_attempt_at_once_is_left() {
    let expired = Ledger { deadline: Some(NOW), ..fresh() };
    for failure in
        [Failure::transient("x"), Failure::requeue("x"), Failure::transient("x").after(after(1))]
    {
        check(&expired, failure.clone(), Decision::Park(Reason::Expired));
        let discarding = RetryPolicy { on_expired: Ending::Discard, ..policy(1, &[100]) };
        assert_eq!(
            decide(&discarding, &expired, &Err(failure), NOW),
            Decision::Discard(Reason::Expired)
        );
    }
    check(&expired, Failure::discard("x"), Decision::Discard(Reason::Discarded));
}

#[test]
fn an_exhausted_message_is_discarded_if_the_policy_says_so() {
    let discarding = RetryPolicy { on_exhausted: Ending::Discard, ..policy(0, &[]) };
    let decision = decide(&discarding, &fresh(), &Err(Failure::transient("x")), NOW);
    assert_eq!(decision, Decision::Discard(Reason::Exhausted));
}

#[test]
fn an_error_class_overrides_what_was_left_unsaid_and_nothing_else() {
    for (treatment, expected) in [
        (Treatment::Permanent, Decision::Park(Reason::Permanent)),
        (Treatment::Discard, Decision::Discard(Reason::Discarded)),
        (Treatment::Requeue, Decision::Requeue),
        (Treatment::Transient, Decision::Requeue),
    ] {
        let mut policy = policy(1, &[100]);
        policy.errors = BTreeMap::from([("fmt::Error".to_owned(), treatment)]);
        let decide = |failure| decide(&policy, &fresh(), &Err(failure), NOW);
        assert_eq!(decide(Failure::from(std::fmt::Error)), expected, "{treatment:?}");
        assert_eq!(decide(Failure::transient(std::fmt::Error)), Decision::Requeue);
        assert_eq!(decide(Failure::permanent(std::fmt::Error)), Decision::Park(Reason::Permanent));
    }
}

#[test]
fn an_expired_message_is_not_attempted() {
    let expired = Ledger { deadline: Some(NOW), ..fresh() };
    let mut policy = policy(1, &[100]);
    assert_eq!(decide_before(&policy, &fresh(), NOW), None);
    assert_eq!(decide_before(&policy, &expired, NOW), Some(Decision::Park(Reason::Expired)));
    policy.on_expired = Ending::Discard;
    assert_eq!(decide_before(&policy, &expired, NOW), Some(Decision::Discard(Reason::Expired)));
}

#[test]
fn a_message_that_returns_before_its_wait_is_over_waits_again() {
    let early = Ledger { wait_unfinished: Some(NOW + after(90)), ..fresh() };
    let late = Ledger { wait_unfinished: Some(NOW), ..fresh() };
    let policy = policy(1, &[100, 300]);
    assert_eq!(decide_before(&policy, &early, NOW), Some(wait_of(100, 90)));
    assert_eq!(decide_before(&policy, &late, NOW), None);
}

#[test]
fn a_clock_that_is_put_back_after_a_message_has_arrived_makes_no_wait_longer() {
    let wait = Wait { since: NOW, due: NOW + after(400), leg: after(300), path: Path::Tier };
    let arrived = NOW + after(310);
    let ledger = Ledger { wait: Some(wait), wait_unfinished: wait.unfinished(arrived), ..fresh() };
    let policy = policy(1, &[100, 300]);
    let waits = |since, due| {
        let wait = Wait { since, due, leg: after(100), path: Path::Tier };
        Some(Decision::Wait { wait, is_defer: false })
    };
    assert_eq!(decide_before(&policy, &ledger, arrived), waits(arrived, NOW + after(400)));
    let put_back = Timestamp::from_millis(NOW.as_millis() - 3_600_000);
    assert_eq!(decide_before(&policy, &ledger, put_back), waits(put_back, put_back + after(100)));
}

#[test]
fn no_further_leg_ends_past_the_deadline() {
    let until = |millis| Ledger {
        wait_unfinished: Some(NOW + after(90)),
        deadline: Some(NOW + after(millis)),
        ..fresh()
    };
    let policy = policy(1, &[100, 300]);
    assert!(matches!(decide_before(&policy, &until(101), NOW), Some(Decision::Wait { .. })));
    assert_eq!(decide_before(&policy, &until(100), NOW), Some(Decision::Park(Reason::Expired)));
}

#[test]
fn a_defer_spends_neither_an_attempt_nor_a_wait_and_is_bounded() {
    let deferred = |tier, total| match wait_of(tier, total) {
        Decision::Wait { wait, .. } => Decision::Wait { wait, is_defer: true },
        other => other,
    };
    let spent = Ledger { hop: 2, redeliveries: Some(1), ..fresh() };
    check(&fresh(), Failure::defer(after(90)), deferred(100, 100));
    check(&spent, Failure::defer(after(200)), deferred(300, 300));
    check(&Ledger { defers: 1, ..fresh() }, Failure::defer(after(350)), deferred(300, 400));
    check(
        &Ledger { defers: 2, ..fresh() },
        Failure::defer(after(1)),
        Decision::Park(Reason::DeferredTooOften),
    );
    check(&fresh(), Failure::defer(after(2_401)), Decision::Park(Reason::DelayTooLong));
    let expires = Ledger { deadline: Some(NOW + after(100)), ..fresh() };
    check(&expires, Failure::defer(after(90)), Decision::Park(Reason::Expired));
    check(
        &Ledger { deadline: Some(NOW), ..fresh() },
        Failure::defer(after(90)),
        Decision::Park(Reason::Expired),
    );
    let before = Ledger { attempts: 3, hop: 1, redeliveries: Some(1), ..fresh() };
    let copy = before.waiting(Some(&Failure::defer(after(90))), true, NOW);
    assert_eq!((copy.attempts, copy.hop, copy.defers, copy.errors.len()), (4, 1, 1, 0));
    assert_eq!(copy.first_failed, None);
}

#[test]
fn a_class_can_be_deferred_if_it_asks_for_a_delay_and_is_transient_otherwise() {
    let mut policy = policy(1, &[100]);
    policy.errors = BTreeMap::from([("busy".to_owned(), Treatment::Defer)]);
    let busy = || Failure::from("busy").with_class("busy");
    let decide = |failure| decide(&policy, &fresh(), &Err(failure), NOW);
    assert!(matches!(decide(busy().after(after(1))), Decision::Wait { is_defer: true, .. }));
    assert_eq!(decide(busy()), Decision::Requeue);
    let transient = Failure::transient("busy").with_class("busy").after(after(1));
    assert!(matches!(decide(transient), Decision::Wait { is_defer: false, .. }));
}

#[test]
fn jitter_changes_the_policys_delays_and_lengthens_asked_ones() {
    for strategy in [WaitStrategy::Ladder, WaitStrategy::DelayedExchange, WaitStrategy::InProcess] {
        check_jitter(strategy);
    }
}

fn check_jitter(strategy: WaitStrategy) {
    let jittered = |jitter| RetryPolicy {
        jitter,
        strategy: wait::Strategy::of(strategy, &[], ladder()),
        ..policy(0, &[400, 800])
    };
    let waits = |jitter, failure: &Failure, ledger: &Ledger| match super::decide(
        &jittered(jitter),
        ledger,
        &Err(failure.clone()),
        NOW,
        || NOT_HELD,
        Draw::MIDDLE,
    ) {
        Decision::Wait { wait, .. } => wait.total().as_millis(),
        decision => panic!("{strategy}: {decision:?}"),
    };
    let of_policy = |jitter| waits(jitter, &Failure::transient("x"), &fresh());
    let kinds = [Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated];
    assert_eq!(kinds.map(of_policy), [400, 200, 300, 600], "{strategy}");
    let asked = |jitter| waits(jitter, &Failure::transient("x").after(after(400)), &fresh());
    assert_eq!(kinds.map(asked), [400, 500, 500, 500], "{strategy}");
    let deferred = |jitter| waits(jitter, &Failure::defer(after(400)), &fresh());
    assert_eq!(kinds.map(deferred), [400, 500, 500, 500], "{strategy}");
    let waited = Wait {
        since: NOW,
        due: NOW + after(200),
        leg: after(200),
        path: Path::Ladder { rung: after(100) },
    };
    let second = Ledger { hop: 1, wait: Some(waited), ..fresh() };
    let half_way = waits(Jitter::Decorrelated, &Failure::transient("x"), &second);
    assert_eq!(half_way, 500, "{strategy}: half way from 400 to 3 x 200");
}

/// Jitter may make a delay that the ladder rounds up past the deadline.
#[test]
fn jitter_lets_no_message_expire_that_has_time_for_the_delay_it_asks_for() {
    let until = |millis| Ledger { deadline: Some(NOW + after(millis)), ..fresh() };
    let policy = RetryPolicy {
        jitter: Jitter::Full,
        strategy: wait::Strategy::of(WaitStrategy::Ladder, &[], ladder()),
        ..policy(0, &[400, 800])
    };
    for failure in [Failure::transient("x").after(after(5_000)), Failure::defer(after(5_000))] {
        for draw in 0..100 {
            let draw = Draw::new(f64::from(draw) / 100.0);
            let decided = super::decide(
                &policy,
                &until(6_050),
                &Err(failure.clone()),
                NOW,
                || NOT_HELD,
                draw,
            );
            let Decision::Wait { wait: Wait { due, .. }, .. } = decided else {
                panic!("{draw:?}: {decided:?}")
            };
            assert!(due >= NOW + after(5_000) && due < NOW + after(6_050), "{due:?}");
        }
    }
}

fn policies() -> impl Strategy<Value = RetryPolicy> {
    let ending = || prop_oneof![Just(Ending::Park), Just(Ending::Discard)];
    let delays = prop::collection::vec(1u64..100_000_000, 0..6);
    (0u32..5, delays, ending(), ending()).prop_map(
        |(immediate, delays, on_exhausted, on_expired)| RetryPolicy {
            on_exhausted,
            on_expired,
            ..policy(immediate, &delays)
        },
    )
}

fn ledgers() -> impl Strategy<Value = Ledger> {
    let moment = || {
        prop::option::of(
            (-1_000_000i64..1_000_000_000)
                .prop_map(|ms| Timestamp::from_millis(NOW.as_millis() + ms)),
        )
    };
    (any::<u32>(), 0u32..10, prop::option::of(0u32..10), moment(), moment()).prop_map(
        |(attempts, hop, redeliveries, deadline, wait_unfinished)| Ledger {
            attempts,
            hop,
            redeliveries,
            deadline,
            wait_unfinished,
            ..fresh()
        },
    )
}

fn failures() -> impl Strategy<Value = Failure> {
    let kind = prop_oneof![
        Just(Failure::from(std::fmt::Error)),
        Just(Failure::transient("x")),
        Just(Failure::requeue("x")),
        Just(Failure::permanent("x")),
        Just(Failure::discard("x")),
    ];
    (kind, prop::option::of(any::<u64>())).prop_map(|(failure, asked)| match asked {
        Some(asked) => failure.after(Duration::from_millis(asked)),
        None => failure,
    })
}

proptest! {
    #![proptest_config(inputs(2_000))]

    #[test]
    fn every_failure_is_decided_within_the_rules(policy in policies(), ledger in ledgers(), failure in failures()) {
        let decision = decide(&policy, &ledger, &Err(failure.clone()), NOW);
        match decision {
            Decision::Ack => prop_assert!(false, "a failure was acked as handled"),
            Decision::Requeue => {
                prop_assert!(ledger.redeliveries.unwrap() < policy.immediate);
                prop_assert!(ledger.deadline.is_none_or(|deadline| NOW < deadline));
                prop_assert_eq!(failure.retry_after(), None);
            }
            Decision::Again => prop_assert!(false, "no process holds it"),
            Decision::Wait { wait: Wait { leg, due, .. }, .. } => {
                prop_assert!((ledger.hop as usize) < policy.delays.len());
                prop_assert!(policy.strategy.tiers().any(|ttl| ttl == leg));
                prop_assert!(due >= NOW + failure.retry_after().unwrap_or(policy.delays[ledger.hop as usize]));
                prop_assert!(ledger.deadline.is_none_or(|deadline| due < deadline));
            }
            Decision::Park(_) | Decision::Discard(_) => {}
        }
        let never_again = matches!(failure.kind(), Kind::Permanent | Kind::Discard);
        prop_assert!(!never_again || matches!(decision, Decision::Park(Reason::Permanent) | Decision::Discard(Reason::Discarded)));
    }

    #[test]
    fn before_an_attempt_nothing_expired_passes(policy in policies(), ledger in ledgers()) {
        let expired = ledger.deadline.is_some_and(|deadline| NOW >= deadline);
        match decide_before(&policy, &ledger, NOW) {
            None => prop_assert!(!expired),
            Some(Decision::Wait { wait: Wait { due, .. }, .. }) => prop_assert!(!expired && due > NOW),
            Some(Decision::Park(Reason::DelayTooLong)) => {
                prop_assert!(!expired && ledger.wait_unfinished > Some(NOW + policy.longest_wait()));
            }
            Some(decision) => prop_assert!(matches!(decision,
                Decision::Park(Reason::Expired) | Decision::Discard(Reason::Expired))),
        }
    }

    /// Each leg ends late by a little, and is seen by a service whose clock is anywhere.
    #[test]
    fn whatever_is_asked_takes_eight_legs_at_most_and_is_never_shorter_than_asked(
        delays in prop::collection::vec(1u64..100_000, 1..5),
        asked in prop_oneof![0u64..1_000_000, any::<u64>()],
        legs in prop::collection::vec((0u64..500, -10_000_000i64..10_000_000), MAX_LEGS as usize),
        clocks_agree in any::<bool>(),
    ) {
        let policy = policy(0, &delays);
        let failure = Failure::transient("x").after(after(asked));
        let mut decision = Some(decide(&policy, &fresh(), &Err(failure), NOW));
        let (mut legs, mut passed, mut clock) = (legs.into_iter(), Duration::ZERO, NOW);
        while let Some(Decision::Wait { wait: Wait { leg, due, .. }, .. }) = decision {
            let Some((late, skew)) = legs.next() else { return Err(TestCaseError::fail("a ninth leg")) };
            let wait = Wait { since: clock, due, leg, path: Path::Tier };
            passed += leg + after(late);
            let skew = if clocks_agree { 0 } else { skew };
            clock = Timestamp::from_millis((NOW + passed).as_millis() + skew);
            let returned = Ledger { wait_unfinished: wait.unfinished(clock), ..fresh() };
            decision = decide_before(&policy, &returned, clock);
        }
        let too_long = after(asked) > policy.longest_wait();
        prop_assert_eq!(decision, too_long.then_some(Decision::Park(Reason::DelayTooLong)));
        prop_assert!(too_long || !clocks_agree || passed >= after(asked));
    }

    #[test]
    fn a_message_that_always_fails_ends_after_the_attempts_that_the_formula_gives(policy in policies(), asked in prop::option::of(0u64..1_000_000_000)) {
        let failure = match asked {
            Some(asked) => Failure::transient("x").after(Duration::from_millis(asked)),
            None => Failure::transient("x"),
        };
        let (mut ledger, mut now, mut attempts) = (fresh(), NOW, 0u32);
        loop {
            attempts += 1;
            prop_assert!(attempts <= policy.max_attempts());
            match decide(&policy, &ledger, &Err(failure.clone()), now) {
                Decision::Requeue => ledger.redeliveries = ledger.redeliveries.map(|count| count + 1),
                Decision::Wait { wait: Wait { due, .. }, .. } => {
                    ledger = Ledger { attempts: ledger.attempt(), hop: ledger.hop + 1, ..fresh() };
                    now = due;
                }
                Decision::Ack | Decision::Again | Decision::Park(_) | Decision::Discard(_) => break,
            }
        }
        prop_assert!(asked.is_some() || attempts == policy.max_attempts());
    }
}

#[test]
fn a_canary_parks_instead_of_waiting_and_is_never_discarded_for_want_of_attempts() {
    let replay = |is_canary| {
        Some(crate::retry::ledger::Replay { run: "run".to_owned(), number: 0, count: 1, is_canary })
    };
    let mut policy = policy(1, &[100]);
    policy.on_exhausted = Ending::Discard;
    let failed = Err(Failure::transient("busy"));
    let after = |ledger: Ledger| decide(&policy, &ledger, &failed, NOW);
    assert_eq!(
        after(Ledger { replay: replay(true), ..fresh() }),
        Decision::Requeue,
        "immediate attempts take no time"
    );
    let spent = |replay, hop| Ledger { redeliveries: Some(1), hop, replay, ..fresh() };
    assert_eq!(after(spent(replay(true), 0)), Decision::Park(Reason::Exhausted));
    assert_eq!(after(spent(replay(true), 1)), Decision::Park(Reason::Exhausted));
    assert_eq!(after(spent(replay(false), 0)), wait_of(100, 100));
    assert_eq!(after(spent(replay(false), 1)), Decision::Discard(Reason::Exhausted));
}

/// Before and after an attempt alike.
#[test]
fn what_cannot_be_held_goes_back_only_as_often_as_the_broker_counts_it_below_the_limit() {
    let policy = policy_of(WaitStrategy::InProcess, 1, &[300]);
    let limit = policy.delivery_limit;
    let decided = |ledger: Ledger, left: Option<u64>, redeliveries| {
        let hold = Some(Hold { max_asked: after(1_000), time_left: left.map(after), redeliveries });
        let limits = || Limits { hold, ..NOT_HELD };
        let unfinished = Ledger { wait_unfinished: Some(NOW + after(300)), ..fresh() };
        let failed = super::decide(
            &policy,
            &ledger,
            &Err(Failure::transient("x")),
            NOW,
            limits,
            Draw::MIDDLE,
        );
        (failed, super::decide_before(&policy, &unfinished, NOW, limits).unwrap())
    };
    let waits = wait_by(Path::Hold, 300, 300);
    let used_up = || Ledger { redeliveries: Some(1), ..fresh() };
    assert_eq!(decided(used_up(), Some(300), None), (waits, waits));
    assert_eq!(decided(fresh(), Some(0), Some(limit - 1)), (Decision::Again, Decision::Requeue));
    for (ledger, left) in [(used_up(), Some(299)), (used_up(), None), (fresh(), None)] {
        for below in [0, limit - 1] {
            let goes_back = (Decision::Requeue, Decision::Requeue);
            assert_eq!(decided(ledger.clone(), left, Some(below)), goes_back, "{below} {left:?}");
        }
        for redeliveries in [Some(limit), Some(u32::MAX), None] {
            let parked = Decision::Park(Reason::Exhausted);
            assert_eq!(
                decided(ledger.clone(), left, redeliveries),
                (parked, parked),
                "{redeliveries:?} {left:?}"
            );
        }
    }
}

#[test]
fn a_message_that_nobody_could_receive_again_is_parked_instead_of_given_back_and_may_wait_elsewhere()
 {
    let full = |hold| Limits { hold, lets_return: false };
    let decided = |policy: &RetryPolicy, ledger: &Ledger, hold| {
        super::decide(
            policy,
            ledger,
            &Err(Failure::transient("x")),
            NOW,
            || full(hold),
            Draw::MIDDLE,
        )
    };
    let parked = Decision::Park(Reason::Unpublishable);
    let used_up = Ledger { redeliveries: Some(1), ..fresh() };
    let native = policy_of(WaitStrategy::Native, 1, &[300]);
    assert_eq!([&fresh(), &used_up].map(|ledger| decided(&native, ledger, None)), [parked; 2]);
    assert_eq!(decided(&policy(1, &[100]), &fresh(), None), parked);
    assert_eq!(decided(&policy(1, &[100]), &used_up, None), wait_of(100, 100));
    let in_process = policy_of(WaitStrategy::InProcess, 1, &[300]);
    let hold = Hold { max_asked: after(300), time_left: Some(after(300)), redeliveries: Some(0) };
    assert_eq!(
        decided(&in_process, &fresh(), Some(hold)),
        Decision::Again,
        "it does not leave the process"
    );
    assert_eq!(decided(&in_process, &fresh(), Some(Hold { time_left: None, ..hold })), parked);
}
