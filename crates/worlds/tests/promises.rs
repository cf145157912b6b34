//! The check notices each promise that is broken.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::collections::BTreeMap;
use std::time::Duration;

use rehop::settings::{Order, WaitStrategy};
use rehop_worlds::{
    AttemptId, AttemptPlan, Ending, Fault, FaultKind, Happened, LateCopy, MessagePlan, Outcome, Process, Promise,
    QueuePlan, Recorded, Scenario, Version, Weather, check,
};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Two messages of an ordered queue, one handler at a time.
fn scenario() -> Scenario {
    let queue = QueuePlan {
        name: "orders".to_owned(),
        strategy: WaitStrategy::InProcess,
        order: Order::Queue,
        concurrency: 1,
        prefetch: 10,
        delivery_limit: 10,
        immediate: 0,
        delays: vec![secs(2)],
        handler_timeout: secs(20),
    };
    let attempts = vec![AttemptPlan { runs: secs(1), ends: Ending::Succeeds }];
    let message = |at| MessagePlan { at: secs(at), queue: 0, key: 0, deadline: None, attempts: attempts.clone() };
    Scenario {
        seed: 0,
        version: Version::V4_0,
        weather: Weather::default(),
        processes: 1,
        consumer_timeout: secs(1_800),
        grace: secs(30),
        queues: vec![queue],
        messages: vec![message(1), message(3)],
        faults: Vec::new(),
    }
}

const PROCESS: Process = Process(1);

fn began(at: u64, attempt: usize, message: usize, queued: &[usize]) -> Recorded {
    let (attempt, queued) = (AttemptId(attempt), queued.to_vec());
    Recorded { at: secs(at), event: Happened::Began { attempt, process: PROCESS, message, number: 1, queued } }
}

fn ended(at: u64, attempt: usize, ending: Ending) -> Recorded {
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
        ended(2, 0, Ending::Succeeds),
        happened(3, Happened::Published(1)),
        began(3, 1, 1, &[1]),
        ended(4, 1, Ending::Succeeds),
        happened(5, Happened::Quiet),
        happened(5, Happened::AtRest),
        happened(5, Happened::AskedToStop(PROCESS)),
        happened(6, Happened::Stopped(PROCESS, Ok("stopped cleanly".to_owned()))),
    ]
}

fn outcome(events: Vec<Recorded>) -> Outcome {
    Outcome { events, queues: BTreeMap::new(), late_copies: Vec::new() }
}

fn broken(scenario: &Scenario, outcome: &Outcome) -> Vec<Promise> {
    let mut broken: Vec<_> = check(scenario, outcome).into_iter().map(|violation| violation.promise).collect();
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
    breaks(Promise::NothingIsLost, |_, events| events.retain(|recorded| *recorded != ended(4, 1, Ending::Succeeds)));
}

#[test]
fn a_world_that_does_not_come_to_rest_does_not_end() {
    breaks(Promise::EverythingEnds, |_, events| events.retain(|recorded| recorded.event != Happened::AtRest));
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
        events.splice(7..7, [began(4, 2, 1, &[1]), ended(5, 2, Ending::Succeeds)]);
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
    let outcome = Outcome { queues: BTreeMap::from([("orders.parked".to_owned(), parked)]), ..outcome(events) };
    assert!(broken(&scenario, &outcome).contains(&Promise::PoisonIsParkedAlone));
}

#[test]
fn two_handlers_where_one_may_run_are_too_many() {
    breaks(Promise::ConcurrencyIsKept, |_, events| events.swap(3, 5));
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
    breaks(Promise::NothingBeginsAfterAStop, |_, events| events.insert(4, happened(2, Happened::AskedToStop(PROCESS))));
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
    let late = LateCopy { sent: secs(4), lost: secs(3), process: PROCESS, message: "1".to_owned() };
    let outcome = Outcome { late_copies: vec![late], ..outcome(events()) };
    assert_eq!(broken(&scenario(), &outcome), [Promise::NoCopyAfterALoss]);
}

#[test]
fn an_attempt_too_many_is_noticed_where_nothing_breaks() {
    breaks(Promise::AttemptsAreThoseOfThePolicy, |_, events| {
        events.splice(2..2, [began(1, 2, 0, &[0]), ended(1, 2, Ending::Fails)]);
    });
}

#[test]
fn a_fault_explains_one_duplicate_and_not_two() {
    let fault = Fault { at: secs(2), kind: FaultKind::Cut { process: 0, connection: 0 } };
    let again = |attempt| [began(4, attempt, 1, &[1]), ended(4, attempt, Ending::Succeeds)];
    let scenario = Scenario { faults: vec![fault], ..scenario() };
    let mut events = events();
    events.splice(7..7, again(2));
    assert_eq!(broken(&scenario, &outcome(events.clone())), []);
    events.splice(9..9, again(3));
    assert_eq!(broken(&scenario, &outcome(events)), [Promise::DuplicatesHaveACause]);
}
