//! Worlds with a plan of their own: faults that were found, and what must be true of every world.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::time::Duration;

use rehop::settings::{Order, WaitStrategy};
use rehop_simulator::Version;
use rehop_worlds::{
    AttemptPlan, Ending, Fault, FaultKind, Happened, MessagePlan, Outcome, QueuePlan, Scenario, Story, Weather,
    abandon, check, run,
};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// One process and one queue without faults; every message is handled in 8 s.
fn quiet(version: Version, messages: usize, concurrency: u16) -> Scenario {
    let queue = QueuePlan {
        name: "orders".to_owned(),
        strategy: WaitStrategy::Tiers,
        order: Order::None,
        concurrency,
        prefetch: concurrency + 10,
        delivery_limit: 10,
        immediate: 1,
        delays: vec![secs(2)],
        handler_timeout: secs(20),
    };
    let attempts = vec![AttemptPlan { runs: secs(8), ends: Ending::Succeeds }];
    let message = MessagePlan { at: secs(1), queue: 0, key: 0, deadline: None, attempts };
    Scenario {
        seed: 0,
        version,
        weather: Weather::default(),
        processes: 1,
        consumer_timeout: secs(1_800),
        grace: secs(30),
        queues: vec![queue],
        messages: vec![message; messages],
        faults: Vec::new(),
    }
}

fn fault(at: u64, kind: FaultKind) -> Fault {
    Fault { at: secs(at), kind }
}

/// Runs a world that keeps every promise.
fn kept(scenario: &Scenario) -> Outcome {
    let outcome = run(scenario).unwrap();
    assert_eq!(check(scenario, &outcome), [], "{}", Story { scenario, outcome: &outcome });
    outcome
}

fn count(outcome: &Outcome, is_it: impl Fn(&Happened) -> bool) -> usize {
    outcome.events.iter().filter(|recorded| is_it(&recorded.event)).count()
}

const VERSIONS: [Version; 3] = [Version::V3_10, Version::V4_0, Version::V4_3];

#[test]
fn the_same_seed_gives_the_same_run_event_for_event() {
    for seed in 0..30 {
        let scenario = Scenario::draw(seed);
        assert_eq!(run(&scenario).unwrap(), run(&scenario).unwrap(), "seed {seed}");
    }
}

#[test]
fn a_few_hundred_worlds_keep_every_promise() {
    for seed in 0..300 {
        kept(&Scenario::draw(seed));
    }
}

#[test]
fn after_lost_connections_no_more_handlers_run_than_the_settings_allow() {
    for version in VERSIONS {
        let cut = |at| fault(at, FaultKind::Cut { process: 0, connection: 0 });
        let outcome = kept(&Scenario { faults: vec![cut(3), cut(5), cut(7)], ..quiet(version, 1, 1) });
        assert!(count(&outcome, |event| matches!(event, Happened::Began { .. })) > 1, "it came again");
    }
}

#[test]
fn a_service_that_stops_while_the_broker_is_away_lets_its_handlers_end() {
    for version in VERSIONS {
        let faults = vec![fault(3, FaultKind::Restart { down: secs(60) }), fault(4, FaultKind::Stop { process: 0 })];
        let outcome = kept(&Scenario { faults, ..quiet(version, 5, 5) });
        assert_eq!(count(&outcome, |event| matches!(event, Happened::Dropped(_))), 0);
    }
}

#[test]
fn a_service_that_loses_its_connection_while_it_stops_publishes_nothing_twice() {
    for version in VERSIONS {
        let faults =
            vec![fault(3, FaultKind::Stop { process: 0 }), fault(4, FaultKind::Cut { process: 0, connection: 0 })];
        let mut scenario = Scenario { faults, ..quiet(version, 5, 5) };
        for message in &mut scenario.messages {
            message.attempts.insert(0, AttemptPlan { runs: secs(8), ends: Ending::Fails });
        }
        let outcome = kept(&scenario);
        let handled = count(&outcome, |event| matches!(event, Happened::Ended(_, Ending::Succeeds)));
        assert_eq!(handled, 5, "each message was handled once");
    }
}

#[test]
fn a_runtime_may_end_while_hundreds_of_deliveries_wait() {
    let mut scenario = quiet(Version::V4_3, 1_000, 1);
    scenario.queues[0].prefetch = 1_000;
    // Proven quickly, so that the window opens wide; then one that never ends.
    for (number, message) in scenario.messages.iter_mut().enumerate() {
        let (runs, ends) = if number < 900 { (Duration::ZERO, Ending::Succeeds) } else { (secs(1), Ending::Hangs) };
        message.attempts = vec![AttemptPlan { runs, ends }];
    }
    abandon(&scenario, secs(10)).unwrap();
}
