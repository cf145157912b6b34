//! Tables of examples, then the properties that hold for every policy, ledger and failure.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::inputs::inputs;
use crate::ledger::Ledger;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

pub(crate) fn fresh() -> Ledger {
    Ledger {
        attempts: 0,
        hop: 0,
        redeliveries: Some(0),
        first_seen: NOW,
        first_failed: None,
        deadline: None,
        wait: None,
        wait_unfinished: None,
        errors: Vec::new(),
        chain_id: None,
    }
}

fn policy(immediate: u32, delays: &[u64]) -> RetryPolicy {
    let delays: Vec<_> = delays.iter().copied().map(Duration::from_millis).collect();
    RetryPolicy {
        delivery_limit: immediate + 3,
        immediate,
        tiers: Tiers::new(delays.clone()),
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
    Decision::Wait { tier: after(tier), due: NOW + after(total) }
}

fn check(ledger: &Ledger, failure: Failure, expected: Decision) {
    let text = format!("{ledger:?} and {failure:?}");
    assert_eq!(decide(&policy(1, &[100, 300]), ledger, &Err(failure), NOW), expected, "{text}");
}

#[test]
fn a_handled_message_is_acked() {
    assert_eq!(decide(&policy(0, &[]), &fresh(), &Ok(()), NOW), Decision::Ack);
}

#[test]
fn a_transient_failure_is_tried_at_once_then_waits_then_parks() {
    let once = Ledger { redeliveries: Some(1), ..fresh() };
    let home = Ledger { hop: 1, redeliveries: Some(1), ..fresh() };
    let spent = Ledger { hop: 2, redeliveries: Some(1), ..fresh() };
    for failure in [Failure::transient("x"), Failure::requeue("x"), Failure::from(std::fmt::Error)] {
        check(&fresh(), failure.clone(), Decision::Requeue);
        check(&once, failure.clone(), wait_of(100, 100));
        check(&home, failure.clone(), wait_of(300, 300));
        check(&spent, failure, Decision::Park(Reason::Exhausted));
    }
}

#[test]
fn a_queue_that_does_not_count_gets_no_attempt_at_once() {
    check(&Ledger { redeliveries: None, ..fresh() }, Failure::transient("x"), wait_of(100, 100));
}

#[test]
fn an_asked_for_delay_replaces_the_policys_and_is_rounded_up() {
    check(&fresh(), Failure::transient("x").after(after(101)), wait_of(300, 300));
    check(&fresh(), Failure::transient("x").after(after(350)), wait_of(300, 400));
    check(&fresh(), Failure::transient("x").after(MAX_DELAY + after(1)), Decision::Park(Reason::DelayTooLong));
    let spent = Ledger { hop: 2, ..fresh() };
    check(&spent, Failure::transient("x").after(after(1)), Decision::Park(Reason::Exhausted));
}

#[test]
fn no_wait_ends_past_the_deadline() {
    let until = |millis| Ledger { redeliveries: Some(1), deadline: Some(NOW + after(millis)), ..fresh() };
    check(&until(101), Failure::transient("x"), wait_of(100, 100));
    check(&until(100), Failure::transient("x"), Decision::Park(Reason::Expired));
    check(&until(0), Failure::permanent("x"), Decision::Park(Reason::Permanent));
}

#[test]
fn an_error_class_overrides_what_was_left_unsaid_and_nothing_else() {
    let mut policy = policy(0, &[100]);
    policy.errors = BTreeMap::from([("core::fmt::Error".to_owned(), Treatment::Permanent)]);
    let decide = |failure| decide(&policy, &fresh(), &Err(failure), NOW);
    assert_eq!(decide(Failure::from(std::fmt::Error)), Decision::Park(Reason::Permanent));
    assert_eq!(decide(Failure::transient(std::fmt::Error)), wait_of(100, 100));
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
fn a_message_that_comes_home_before_its_wait_is_over_waits_on() {
    let early = Ledger { wait_unfinished: Some(NOW + after(90)), ..fresh() };
    let late = Ledger { wait_unfinished: Some(NOW), ..fresh() };
    let policy = policy(1, &[100, 300]);
    assert_eq!(decide_before(&policy, &early, NOW), Some(Decision::Wait { tier: after(100), due: NOW + after(90) }));
    assert_eq!(decide_before(&policy, &late, NOW), None);
}

fn policies() -> impl Strategy<Value = RetryPolicy> {
    let ending = || prop_oneof![Just(Ending::Park), Just(Ending::Discard)];
    let delays = prop::collection::vec(1u64..100_000_000, 0..6);
    (0u32..5, delays, ending(), ending()).prop_map(|(immediate, delays, on_exhausted, on_expired)| RetryPolicy {
        on_exhausted,
        on_expired,
        ..policy(immediate, &delays)
    })
}

fn ledgers() -> impl Strategy<Value = Ledger> {
    let moment =
        || prop::option::of((-1_000_000i64..1_000_000_000).prop_map(|ms| Timestamp::from_millis(NOW.as_millis() + ms)));
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
            Decision::Wait { tier, due } => {
                prop_assert!((ledger.hop as usize) < policy.delays.len());
                prop_assert!(policy.tiers.iter().any(|ttl| ttl == tier));
                prop_assert!(due >= NOW + failure.retry_after().unwrap_or(policy.delays[ledger.hop as usize]));
                prop_assert!(ledger.deadline.is_none_or(|deadline| due < deadline));
            }
            Decision::Park(_) | Decision::Discard(_) => {}
        }
        let never_again = matches!(failure.kind(), Kind::Permanent | Kind::Discard);
        prop_assert!(!never_again || matches!(decision, Decision::Park(Reason::Permanent) | Decision::Discard(Reason::Unneeded)));
    }

    #[test]
    fn before_an_attempt_nothing_expired_passes(policy in policies(), ledger in ledgers()) {
        let expired = ledger.deadline.is_some_and(|deadline| NOW >= deadline);
        match decide_before(&policy, &ledger, NOW) {
            None => prop_assert!(!expired),
            Some(Decision::Wait { due, .. }) => prop_assert!(!expired && due > NOW),
            Some(decision) => prop_assert!(matches!(decision,
                Decision::Park(Reason::Expired) | Decision::Discard(Reason::Expired))),
        }
    }

    #[test]
    fn a_message_that_always_fails_ends_after_the_attempts_that_the_formula_gives(policy in policies(), asked in prop::option::of(0u64..1_000_000_000)) {
        let failure = match asked {
            Some(asked) => Failure::transient("x").after(Duration::from_millis(asked)),
            None => Failure::transient("x"),
        };
        let (mut ledger, mut now, mut attempts) = (fresh(), NOW, 0u64);
        loop {
            attempts += 1;
            prop_assert!(attempts <= policy.max_attempts());
            match decide(&policy, &ledger, &Err(failure.clone()), now) {
                Decision::Requeue => ledger.redeliveries = ledger.redeliveries.map(|count| count + 1),
                Decision::Wait { due, .. } => {
                    ledger = Ledger { attempts: ledger.attempt(), hop: ledger.hop + 1, ..fresh() };
                    now = due;
                }
                Decision::Ack | Decision::Park(_) | Decision::Discard(_) => break,
            }
        }
        prop_assert!(asked.is_some() || attempts == policy.max_attempts());
    }
}
