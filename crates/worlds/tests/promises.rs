//! The check notices each promise that is broken.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::collections::BTreeMap;
use std::time::Duration;

use rehop::settings::{Order, WaitStrategy};
use rehop_simulator::QueueView;
use rehop_worlds::{
    AttemptEnd, AttemptId, AttemptPlan, Conditions, Fault, FaultKind, Happened, MessagePlan,
    OddCopy, Oddity, Process, Promise, QueuePlan, Recorded, ReplayPlan, Replayed, RunOutcome,
    Scenario, Version, check,
};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Two messages of an ordered queue, one handler at a time.
fn scenario() -> Scenario {
    let queue = QueuePlan {
        name: "orders".to_owned(),
        is_existing: false,
        strategy: WaitStrategy::InProcess,
        wait_queues: None,
        order: Order::Queue,
        concurrency: 1,
        prefetch: 10,
        delivery_limit: 10,
        immediate: 0,
        delays: vec![secs(2)],
        handler_timeout: secs(20),
    };
    let attempts = vec![AttemptPlan { runs: secs(1), ends: AttemptEnd::Succeeds }];
    let message = |at| MessagePlan {
        at: secs(at),
        queue: 0,
        key: 0,
        deadline: None,
        priority: None,
        attempts: attempts.clone(),
    };
    Scenario {
        seed: 0,
        version: Version::V4_0,
        conditions: Conditions::default(),
        processes: 1,
        restart: secs(1),
        consumer_timeout: secs(1_800),
        enforced_timeout: secs(1_800),
        grace: secs(30),
        queues: vec![queue],
        messages: vec![message(1), message(3)],
        faults: Vec::new(),
        replays: Vec::new(),
    }
}

const PROCESS: Process = Process(1);

fn began(at: u64, attempt: usize, message: usize, queued: &[usize]) -> Recorded {
    let (attempt, queued) = (AttemptId(attempt), queued.to_vec());
    Recorded {
        at: secs(at),
        event: Happened::Began { attempt, process: PROCESS, message, number: 1, waits: 0, queued },
    }
}

fn ended(at: u64, attempt: usize, ending: AttemptEnd) -> Recorded {
    Recorded { at: secs(at), event: Happened::Ended(AttemptId(attempt), ending) }
}

fn happened(at: u64, event: Happened) -> Recorded {
    Recorded { at: secs(at), event }
}

/// What happens if every promise is kept.
fn events() -> Vec<Recorded> {
    vec![
        happened(0, Happened::Started(PROCESS)),
        happened(1, Happened::Published(0)),
        began(1, 0, 0, &[0]),
        ended(2, 0, AttemptEnd::Succeeds),
        happened(3, Happened::Published(1)),
        began(3, 1, 1, &[1]),
        ended(4, 1, AttemptEnd::Succeeds),
        happened(5, Happened::Quiet),
        happened(5, Happened::AtRest),
        happened(5, Happened::AskedToStop(PROCESS)),
        happened(6, Happened::Stopped(PROCESS, Ok("stopped cleanly".to_owned()))),
    ]
}

fn outcome(events: Vec<Recorded>) -> RunOutcome {
    RunOutcome {
        events,
        queues: BTreeMap::new(),
        odd_copies: Vec::new(),
        timeouts: Vec::new(),
        replayed: Vec::new(),
        held: BTreeMap::new(),
    }
}

fn broken(scenario: &Scenario, outcome: &RunOutcome) -> Vec<Promise> {
    let mut broken: Vec<_> =
        check(scenario, outcome).into_iter().map(|violation| violation.promise).collect();
    broken.dedup();
    broken
}

/// A change of what happened breaks this promise.
fn breaks(promise: Promise, change: impl FnOnce(&mut Scenario, &mut Vec<Recorded>)) {
    let (mut scenario, mut events) = (scenario(), events());
    change(&mut scenario, &mut events);
    let broken = broken(&scenario, &outcome(events));
    assert!(broken.contains(&promise), "{promise:?} is broken, not {broken:?}");
}

#[test]
fn a_world_in_which_all_goes_well_breaks_no_promise() {
    assert_eq!(broken(&scenario(), &outcome(events())), []);
}

#[test]
fn a_message_that_ends_nowhere_is_lost() {
    breaks(Promise::NothingIsLost, |_, events| {
        events.retain(|recorded| *recorded != ended(4, 1, AttemptEnd::Succeeds))
    });
}

#[test]
fn a_world_that_does_not_come_to_rest_does_not_end() {
    breaks(Promise::EverythingEnds, |_, events| {
        events.retain(|recorded| recorded.event != Happened::AtRest)
    });
}

#[test]
fn a_standstill_once_nothing_breaks_is_noticed() {
    breaks(Promise::NothingStandsStill, |_, events| {
        for recorded in events.iter_mut().skip_while(|recorded| recorded.event != Happened::AtRest)
        {
            recorded.at += secs(1_000);
        }
    });
}

#[test]
fn a_process_that_stops_unasked_does_not_end_as_it_should() {
    breaks(Promise::EverythingEnds, |_, events| {
        events.retain(|recorded| recorded.event != Happened::AskedToStop(PROCESS));
    });
}

#[test]
fn a_second_success_without_a_fault_is_a_duplicate_without_a_cause() {
    breaks(Promise::DuplicatesHaveACause, |_, events| {
        events.splice(7..7, [began(4, 2, 1, &[1]), ended(5, 2, AttemptEnd::Succeeds)]);
    });
}

#[test]
fn an_innocent_message_that_is_parked_beside_poison_is_noticed() {
    let mut scenario = scenario();
    let queue = &mut scenario.queues[0];
    (queue.strategy, queue.order) = (WaitStrategy::Tiers, Order::None);
    let mut events = events();
    events.retain(|recorded| !matches!(recorded.event, Happened::Ended(AttemptId(1), _)));
    let parked = rehop_simulator::QueueView { ready: vec!["1".to_owned()], ..Default::default() };
    let outcome = RunOutcome {
        queues: BTreeMap::from([("orders.parked".to_owned(), parked)]),
        ..outcome(events)
    };
    assert!(broken(&scenario, &outcome).contains(&Promise::PoisonIsParkedAlone));
}

/// Beside a message that kills, one that fails may be tried four times at once, before its wait and
/// after it. It came back three times before its first attempt, and twice after its wait.
#[test]
fn a_message_that_fails_may_be_parked_beside_poison_once_deaths_have_used_up_its_attempts() {
    let mut scenario = scenario();
    let queue = &mut scenario.queues[0];
    (queue.strategy, queue.order, queue.immediate) = (WaitStrategy::Tiers, Order::None, 3);
    let fails = AttemptPlan { runs: Duration::ZERO, ends: AttemptEnd::Requeues };
    scenario.messages[0].attempts[0].ends = AttemptEnd::Kills;
    scenario.messages[1].attempts.splice(..0, [fails; 3]);
    // Numbers of attempts, and how many waits came before each.
    let parked_after = |attempts: &[(u32, u32)]| {
        let nth = |(nth, &(number, waits)): (usize, &(u32, u32))| {
            let (attempt, process, queued) = (AttemptId(nth + 1), PROCESS, Vec::new());
            let event = Happened::Began { attempt, process, message: 1, number, waits, queued };
            let at = if waits == 0 { 3 } else { 6 };
            [happened(at, event), ended(at, attempt.0, AttemptEnd::Requeues)]
        };
        let mut events = events();
        events.splice(2..7, (0..).zip(attempts).flat_map(nth));
        let view = |name: &str| QueueView { ready: vec![name.to_owned()], ..Default::default() };
        let mut outcome = outcome(events);
        outcome.queues = BTreeMap::from([("orders.parked".to_owned(), view("1"))]);
        outcome.queues.insert("orders.stray".to_owned(), view("0"));
        broken(&scenario, &outcome)
    };
    assert_eq!(parked_after(&[(4, 0), (7, 1), (8, 1)]), []);
    for too_soon in [&[(4, 0), (7, 1)][..], &[(1, 0), (4, 0), (5, 1)], &[(4, 0)]] {
        let broken = parked_after(too_soon);
        assert!(broken.contains(&Promise::PoisonIsParkedAlone), "{too_soon:?}: {broken:?}");
    }
}

#[test]
fn two_handlers_where_one_may_run_are_too_many() {
    breaks(Promise::ConcurrencyIsKept, |_, events| events.swap(3, 5));
}

#[test]
fn a_process_that_holds_more_than_its_prefetch_is_noticed() {
    let held = |most| {
        broken(
            &scenario(),
            &RunOutcome { held: [((PROCESS, 0), most)].into(), ..outcome(events()) },
        )
    };
    assert_eq!((held(10), held(11)), (vec![], vec![Promise::PrefetchIsKept]));
}

#[test]
fn a_message_that_overtakes_one_that_is_still_queued_breaks_the_order() {
    breaks(Promise::OrderIsKept, |_, events| {
        events.retain(|recorded| !matches!(recorded.event, Happened::Ended(AttemptId(0), _)));
        events[4] = began(3, 1, 1, &[0, 1]);
    });
}

#[test]
fn a_handler_that_is_dropped_within_the_grace_time_was_not_allowed_to_finish() {
    breaks(Promise::HandlersMayFinish, |scenario, events| {
        scenario.queues[0].order = Order::None;
        events[6] = happened(4, Happened::AskedToStop(PROCESS));
        events.insert(7, happened(4, Happened::Dropped(AttemptId(1))));
    });
}

#[test]
fn an_attempt_after_the_deadline_is_noticed() {
    breaks(Promise::NothingBeginsExpired, |scenario, events| {
        scenario.messages[1].deadline = Some(secs(2));
        events[5] = began(6, 1, 1, &[1]);
    });
}

#[test]
fn an_attempt_after_a_stop_is_noticed() {
    breaks(Promise::NothingBeginsAfterAStop, |_, events| {
        events.insert(4, happened(2, Happened::AskedToStop(PROCESS)))
    });
}

#[test]
fn a_process_that_takes_longer_than_its_grace_time_is_noticed() {
    breaks(Promise::StopsEnd, |_, events| events[10].at = secs(60));
}

#[test]
fn a_process_that_never_stops_is_noticed() {
    breaks(Promise::StopsEnd, |_, events| drop(events.pop()));
}

#[test]
fn a_copy_after_the_loss_of_its_original_is_noticed() {
    is_odd(Oddity::AfterLoss { lost: secs(3) }, &[Promise::NoCopyAfterALoss]);
    is_odd(Oddity::AfterLoss { lost: secs(4) }, &[]);
}

#[test]
fn a_copy_that_is_sent_during_an_alarm_is_noticed() {
    is_odd(Oddity::WhileBlocked, &[Promise::NoCopyDuringAnAlarm]);
}

#[test]
fn a_copy_without_the_failures_that_led_to_it_is_noticed() {
    is_odd(
        Oddity::WithoutHistory { waits: 2, failures: 1, has_failed: true },
        &[Promise::CopiesTellTheirHistory],
    );
}

/// A copy that is sent after 4 s breaks these promises.
fn is_odd(oddity: Oddity, promises: &[Promise]) {
    let odd = OddCopy { sent: secs(4), process: PROCESS, message: "1".to_owned(), oddity };
    let outcome = RunOutcome { odd_copies: vec![odd], ..outcome(events()) };
    assert_eq!(broken(&scenario(), &outcome), promises);
}

#[test]
fn an_attempt_before_the_end_of_its_wait_is_noticed() {
    let after = |seconds: u64, promises: &[Promise]| {
        let mut events = events();
        let [mut second, end] =
            [began(seconds, 2, 1, &[1]), ended(seconds + 1, 2, AttemptEnd::Succeeds)];
        if let Happened::Began { waits, number, .. } = &mut second.event {
            (*waits, *number) = (1, 2);
        }
        events[6] = ended(4, 1, AttemptEnd::Fails);
        events.splice(7..7, [second, end]);
        let fault = Fault { at: secs(2), kind: FaultKind::Cut { process: 0, connection: 0 } };
        let scenario = Scenario { faults: vec![fault], ..scenario() };
        assert_eq!(broken(&scenario, &outcome(events)), promises);
    };
    after(6, &[]);
    after(5, &[Promise::NothingBeginsEarly]);
}

#[test]
fn an_attempt_that_does_not_count_those_before_it_is_noticed() {
    breaks(Promise::AttemptsAreThoseOfThePolicy, |scenario, events| {
        scenario.messages[0]
            .attempts
            .insert(0, AttemptPlan { runs: secs(0), ends: AttemptEnd::Fails });
        events.splice(2..2, [began(1, 2, 0, &[0]), ended(1, 2, AttemptEnd::Fails)]);
    });
}

#[test]
fn a_replay_that_fails_or_does_not_end_is_noticed() {
    let operator = Process(1_000_000);
    breaks(Promise::ReplaysEnd, |_, events| {
        events.insert(7, happened(5, Happened::ReplayBegan(operator, 0)))
    });
    breaks(Promise::ReplaysEnd, |scenario, events| {
        let (batches, disturbed) = (Vec::new(), None);
        scenario.replays = vec![ReplayPlan {
            at: secs(5),
            queue: 0,
            most: None,
            batches,
            in_flight: 1,
            disturbed,
        }];
        let failed = happened(5, Happened::ReplayEnded(operator, Err("no queue".to_owned())));
        events.splice(7..7, [happened(5, Happened::ReplayBegan(operator, 0)), failed]);
    });
}

#[test]
fn what_an_operator_sends_back_may_be_handled_after_its_deadline_and_behind_later_messages() {
    let mut scenario = scenario();
    scenario.messages[1].deadline = Some(secs(2));
    let mut events = events();
    (events[5].at, events[6].at) = (secs(6), secs(7));
    let replayed = vec![Replayed { at: secs(5), process: Process(1_000_000), message: 1 }];
    let outcome = RunOutcome { replayed, ..outcome(events) };
    assert_eq!(broken(&scenario, &outcome), []);
}

#[test]
fn an_attempt_too_many_is_noticed_where_nothing_breaks() {
    breaks(Promise::AttemptsAreThoseOfThePolicy, |_, events| {
        events.splice(2..2, [began(1, 2, 0, &[0]), ended(1, 2, AttemptEnd::Fails)]);
    });
}

#[test]
fn a_fault_explains_one_duplicate_and_not_two() {
    let fault = Fault { at: secs(2), kind: FaultKind::Cut { process: 0, connection: 0 } };
    let again = |attempt| [began(4, attempt, 1, &[1]), ended(4, attempt, AttemptEnd::Succeeds)];
    let scenario = Scenario { faults: vec![fault], ..scenario() };
    let mut events = events();
    events.splice(7..7, again(2));
    assert_eq!(broken(&scenario, &outcome(events.clone())), []);
    events.splice(9..9, again(3));
    assert_eq!(broken(&scenario, &outcome(events)), [Promise::DuplicatesHaveACause]);
}

#[test]
fn two_handlers_of_one_line_at_once_are_noticed() {
    breaks(Promise::OrderIsKept, |scenario, events| {
        scenario.queues[0].concurrency = 2;
        events.swap(3, 5);
        (events[3].at, events[5].at) = (secs(1), secs(3));
    });
}

#[test]
fn a_broker_that_has_to_enforce_its_timeout_is_noticed() {
    let outcome = RunOutcome { timeouts: vec![secs(4)], ..outcome(events()) };
    assert_eq!(broken(&scenario(), &outcome), [Promise::NothingIsHeldTooLong]);
    let shorter = Scenario { enforced_timeout: secs(60), ..scenario() };
    assert_eq!(broken(&shorter, &outcome), []);
}

#[test]
fn a_fine_message_that_is_parked_beside_refused_copies_is_noticed() {
    let mut scenario = scenario();
    (scenario.queues[0].strategy, scenario.queues[0].order) = (WaitStrategy::Tiers, Order::None);
    scenario.version = Version::V4_3;
    scenario.faults = vec![Fault { at: secs(2), kind: FaultKind::NoCopies { lasts: secs(90) } }];
    let mut events = events();
    events.retain(|recorded| *recorded != ended(4, 1, AttemptEnd::Succeeds));
    let parked = QueueView { ready: vec!["1".to_owned()], ..QueueView::default() };
    let outcome = RunOutcome {
        queues: BTreeMap::from([("orders.parked".to_owned(), parked)]),
        ..outcome(events)
    };
    assert_eq!(broken(&scenario, &outcome), [Promise::NothingFineIsParked]);
}

#[test]
fn behind_a_message_that_kills_only_its_own_line_may_be_parked() {
    let mut scenario = scenario();
    (scenario.queues[0].order, scenario.queues[0].prefetch) = (Order::RoutingKey, 10);
    scenario.messages[0].attempts[0].ends = AttemptEnd::Kills;
    let parked = QueueView { ready: vec!["0".to_owned(), "1".to_owned()], ..QueueView::default() };
    let queues = BTreeMap::from([("orders.parked".to_owned(), parked)]);
    let mut events = events();
    events.splice(2..7, [began(1, 0, 0, &[0]), happened(2, Happened::Killed(PROCESS))]);
    events.truncate(6);
    let outcome = RunOutcome { queues, ..outcome(events) };
    assert_eq!(broken(&scenario, &outcome), []);
    scenario.messages[1].key = 1;
    assert_eq!(broken(&scenario, &outcome), [Promise::PoisonIsParkedAlone]);
}
