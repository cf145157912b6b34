//! Worlds with a plan of their own: faults that were found, and what must be true of every world.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::time::Duration;

use rehop::settings::{Order, WaitQueues, WaitStrategy};
use rehop_simulator::Version;
use rehop_worlds::{
    AffectedQueues, AttemptEnd, AttemptPlan, Conditions, Fault, FaultKind, Happened, Limit,
    MessagePlan, QueuePlan, RunOutcome, Scenario, Story, abandon, check, run,
};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// One process and one queue without faults; every message is handled in 8 s.
fn quiet(version: Version, messages: usize, concurrency: u16) -> Scenario {
    let queue = QueuePlan {
        name: "orders".to_owned(),
        is_existing: false,
        strategy: WaitStrategy::Tiers,
        wait_queues: None,
        order: Order::None,
        concurrency,
        prefetch: concurrency + 10,
        delivery_limit: 10,
        immediate: 1,
        delays: vec![secs(2)],
        handler_timeout: secs(20),
    };
    let attempts = vec![AttemptPlan { runs: secs(8), ends: AttemptEnd::Succeeds }];
    let message =
        MessagePlan { at: secs(1), queue: 0, key: 0, deadline: None, priority: None, attempts };
    Scenario {
        seed: 0,
        version,
        conditions: Conditions::default(),
        processes: 1,
        restart: secs(1),
        consumer_timeout: secs(1_800),
        enforced_timeout: secs(1_800),
        grace: secs(30),
        queues: vec![queue],
        messages: vec![message; messages],
        faults: Vec::new(),
        replays: Vec::new(),
    }
}

fn fault(at: u64, kind: FaultKind) -> Fault {
    Fault { at: secs(at), kind }
}

/// Runs a world that keeps every promise.
fn kept(scenario: &Scenario) -> RunOutcome {
    let outcome = run(scenario).unwrap();
    assert_eq!(check(scenario, &outcome), [], "{}", Story { scenario, outcome: &outcome });
    outcome
}

fn count(outcome: &RunOutcome, is_it: impl Fn(&Happened) -> bool) -> usize {
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
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                (0..150).for_each(|number| drop(kept(&Scenario::draw(2 * number + half))))
            });
        }
    });
}

/// Beside a stream of messages of a high priority that wait, too.
#[test]
fn a_message_waits_no_longer_because_others_of_another_priority_wait() {
    for version in VERSIONS {
        let mut scenario = quiet(version, 1, 20);
        (scenario.queues[0].immediate, scenario.queues[0].delays) = (0, vec![secs(5)]);
        let plan = |ends| AttemptPlan { runs: Duration::ZERO, ends };
        let attempts = vec![plan(AttemptEnd::Fails), plan(AttemptEnd::Succeeds)];
        let like = MessagePlan { attempts, ..scenario.messages[0].clone() };
        let message = |at: u64, priority| MessagePlan { at: secs(at), priority, ..like.clone() };
        let ordinary = (0..40).map(|_| message(1, None));
        scenario.messages =
            ordinary.chain((1..60).map(|second| message(second, Some(9)))).collect();
        scenario.messages.sort_by_key(|message| message.at);
        let outcome = kept(&scenario);
        for number in 0..scenario.messages.len() {
            let began = |event: &Happened| matches!(event, Happened::Began { message, .. } if *message == number);
            let at: Vec<_> =
                outcome.events.iter().filter(|it| began(&it.event)).map(|it| it.at).collect();
            let [first, second] = at[..] else { panic!("{version:?}: {number} began at {at:?}") };
            assert!(second - first < secs(6), "{version:?}: {number} began at {at:?}");
        }
    }
}

#[test]
fn after_lost_connections_no_more_handlers_run_than_the_settings_allow() {
    for version in VERSIONS {
        let cut = |at| fault(at, FaultKind::Cut { process: 0, connection: 0 });
        let outcome =
            kept(&Scenario { faults: vec![cut(3), cut(5), cut(7)], ..quiet(version, 1, 1) });
        assert!(
            count(&outcome, |event| matches!(event, Happened::Began { .. })) > 1,
            "it came again"
        );
    }
}

#[test]
fn a_service_that_stops_while_the_broker_is_away_lets_its_handlers_end() {
    for version in VERSIONS {
        let faults = vec![
            fault(3, FaultKind::Restart { down: secs(60) }),
            fault(4, FaultKind::Stop { process: 0 }),
        ];
        let outcome = kept(&Scenario { faults, ..quiet(version, 5, 5) });
        assert_eq!(count(&outcome, |event| matches!(event, Happened::Dropped(_))), 0);
    }
}

#[test]
fn a_service_that_stops_begins_none_of_what_waits_in_it() {
    for version in VERSIONS {
        let scenario = Scenario {
            faults: vec![fault(20, FaultKind::Stop { process: 0 })],
            ..quiet(version, 20, 2)
        };
        let outcome = kept(&scenario);
        assert_eq!(
            count(&outcome, |event| matches!(event, Happened::Started(_))),
            2,
            "another process goes on"
        );
    }
}

/// The next attempt is due at 3.5 s, shortly after the stop. The session has not noticed the stop:
/// it waits for an answer, because the subscription that brought the message is being replaced.
#[test]
fn a_service_that_stops_while_a_session_waits_for_the_broker_begins_nothing() {
    for version in VERSIONS {
        let mut scenario = quiet(version, 1, 1);
        let queue = &mut scenario.queues[0];
        (queue.strategy, queue.immediate, queue.delays) =
            (WaitStrategy::InProcess, 0, vec![secs(2), secs(2)]);
        let runs = Duration::from_millis(500);
        let attempts = [AttemptEnd::Fails, AttemptEnd::Fails, AttemptEnd::Succeeds];
        scenario.messages[0].attempts = attempts.map(|ends| AttemptPlan { runs, ends }).to_vec();
        let silence =
            FaultKind::Silence { process: 0, connection: 0, client: secs(20), broker: secs(20) };
        let stop = Fault { at: Duration::from_millis(3_300), kind: FaultKind::Stop { process: 0 } };
        scenario.faults = vec![Fault { at: Duration::from_millis(1_200), kind: silence }, stop];
        kept(&scenario);
    }
}

/// What a handler of one process gives back is suspect in the other, which then ends its
/// subscription while a message comes every millisecond. 3.10 and 4.0 count what is on its way to a
/// subscription when it is cancelled.
#[test]
fn while_subscriptions_end_the_broker_counts_nothing_but_attempts() {
    for version in VERSIONS {
        let mut scenario = quiet(version, 300, 5);
        (scenario.processes, scenario.conditions.delivery_lag) = (2, Duration::from_millis(3));
        (scenario.queues[0].prefetch, scenario.queues[0].immediate) = (100, 2);
        for (number, message) in scenario.messages.iter_mut().enumerate() {
            let attempt = |ends| AttemptPlan { runs: Duration::from_millis(5), ends };
            message.at = secs(1) + Duration::from_millis(number as u64);
            message.attempts = vec![attempt(AttemptEnd::Succeeds)];
            if number % 20 == 7 {
                message.attempts.insert(0, attempt(AttemptEnd::Requeues));
            }
        }
        let mut begun = vec![0; scenario.messages.len()];
        for recorded in kept(&scenario).events {
            if let Happened::Began { message, number, .. } = recorded.event {
                begun[message] += 1;
                assert_eq!(number, begun[message], "message {message} on {version:?}");
            }
        }
    }
}

/// Then 3.10 goes on refusing on the channel on which it has refused.
#[test]
fn a_copy_that_a_full_wait_queue_refuses_is_stored_soon_after_the_limit_of_the_queue_is_gone() {
    for version in VERSIONS {
        // A full queue still takes the first copy, and refuses the others.
        let mut scenario = quiet(version, 3, 3);
        let attempts = [AttemptEnd::Fails, AttemptEnd::Succeeds]
            .map(|ends| AttemptPlan { runs: secs(1), ends });
        scenario.messages.iter_mut().for_each(|message| message.attempts = attempts.to_vec());
        (scenario.queues[0].immediate, scenario.queues[0].delays) = (0, vec![secs(30)]);
        scenario.faults =
            vec![fault(0, FaultKind::Full { queues: AffectedQueues::Waits, lasts: secs(20) })];
        let outcome = kept(&scenario);
        let last = outcome
            .events
            .iter()
            .rfind(|recorded| matches!(recorded.event, Happened::Ended(..)))
            .unwrap();
        assert!(last.at < secs(90), "it took {:?}", last.at);
    }
}

/// The connection for copies comes back while a connection may have so few channels, and stays open
/// when it may have more. Meanwhile a wait queue refuses copies, which need one more channel.
#[test]
fn copies_find_channels_again_after_a_connection_could_have_fewer_than_they_need() {
    let plan = |ends| AttemptPlan { runs: secs(1), ends };
    for (version, most) in VERSIONS.into_iter().flat_map(|it| (1..=6).map(move |most| (it, most))) {
        let mut scenario = quiet(version, 40, 4);
        (scenario.queues[0].immediate, scenario.queues[0].delays) = (0, vec![secs(2)]);
        for (number, message) in scenario.messages.iter_mut().enumerate() {
            message.at = secs(number as u64);
            let ends = if number % 2 == 0 { AttemptEnd::Succeeds } else { AttemptEnd::Fails };
            message.attempts = vec![plan(AttemptEnd::Fails), plan(ends)];
        }
        let few = FaultKind::Limit { limit: Limit::ConnectionChannels(most), lasts: secs(10) };
        let cut = FaultKind::Cut { process: 0, connection: 1 };
        let full = FaultKind::Full { queues: AffectedQueues::Waits, lasts: secs(5) };
        scenario.faults = vec![fault(4, few), fault(5, cut), fault(20, full)];
        let outcome = kept(&scenario);
        let last = outcome.events.iter().rfind(|it| matches!(it.event, Happened::Ended(..)));
        let last = last.unwrap().at;
        assert!(last < secs(150), "{version:?} with {most} channels: it took {last:?}");
    }
}

/// Sixty copies of a queue are due while it is full, because its one handler is slow, and after
/// them twenty of another.
fn beside_a_full_queue(version: Version, strategy: WaitStrategy) -> Scenario {
    let mut scenario = quiet(version, 140, 1);
    let queue = &mut scenario.queues[0];
    (queue.strategy, queue.immediate, queue.delays) = (strategy, 0, vec![secs(20)]);
    let mut other = queue.clone();
    "others".clone_into(&mut other.name);
    scenario.queues.push(other);
    let attempts = [AttemptEnd::Fails, AttemptEnd::Succeeds]
        .map(|ends| AttemptPlan { runs: Duration::from_millis(10), ends });
    for (number, message) in scenario.messages.iter_mut().enumerate() {
        match number {
            ..60 => message.attempts = attempts.to_vec(),
            60..120 => message.at = secs(10),
            _ => {
                (message.queue, message.at) = (1, secs(30));
                message.attempts = attempts.to_vec();
            }
        }
    }
    let full = FaultKind::Full { queues: AffectedQueues::Work(0), lasts: secs(300) };
    scenario.faults = vec![fault(15, full)];
    scenario
}

/// When the other queue's messages were attempted again, at last.
fn others_came_back_at(scenario: &Scenario, outcome: &RunOutcome) -> Duration {
    let is_it = |event: &Happened| {
        matches!(event, Happened::Began { message, waits: 1, .. }
            if scenario.messages[*message].queue == 1)
    };
    let came_back: Vec<_> =
        outcome.events.iter().filter(|recorded| is_it(&recorded.event)).collect();
    assert_eq!(came_back.len(), 20);
    came_back.last().unwrap().at
}

#[test]
fn a_full_queue_holds_up_the_queues_that_share_its_wait_queues_and_no_others() {
    for version in VERSIONS {
        for strategy in [WaitStrategy::Tiers, WaitStrategy::Ladder] {
            let mut scenario = beside_a_full_queue(version, strategy);
            let held_up = others_came_back_at(&scenario, &kept(&scenario));
            assert!(held_up > secs(200), "{strategy} on {version:?}: they came at {held_up:?}");
            for owner in 0..2 {
                scenario.queues[0].wait_queues = None;
                scenario.queues[1].wait_queues = None;
                scenario.queues[owner].wait_queues = Some(WaitQueues::Own);
                let in_time = others_came_back_at(&scenario, &kept(&scenario));
                assert!(in_time < secs(60), "{strategy} on {version:?}: they came at {in_time:?}");
            }
        }
    }
}

#[test]
fn a_service_that_loses_its_connection_while_it_stops_publishes_nothing_twice() {
    for version in VERSIONS {
        let faults = vec![
            fault(3, FaultKind::Stop { process: 0 }),
            fault(4, FaultKind::Cut { process: 0, connection: 0 }),
        ];
        let mut scenario = Scenario { faults, ..quiet(version, 5, 5) };
        for message in &mut scenario.messages {
            message.attempts.insert(0, AttemptPlan { runs: secs(8), ends: AttemptEnd::Fails });
        }
        let outcome = kept(&scenario);
        let handled =
            count(&outcome, |event| matches!(event, Happened::Ended(_, AttemptEnd::Succeeds)));
        assert_eq!(handled, 5, "each message was handled once");
    }
}

/// A line of eight messages takes longer than the ack timeout, so all that is held has to go back
/// before the broker takes it. Beside it, messages of other keys come without end.
#[test]
fn a_busy_ordered_queue_gives_back_in_time_what_a_long_line_holds() {
    for version in VERSIONS {
        let mut scenario = quiet(version, 8, 4);
        scenario.processes = 2;
        (scenario.consumer_timeout, scenario.enforced_timeout) = (secs(140), secs(140));
        let queue = &mut scenario.queues[0];
        (queue.strategy, queue.order) = (WaitStrategy::InProcess, Order::RoutingKey);
        (queue.immediate, queue.delays) = (0, vec![secs(10)]);
        let slow = AttemptPlan { runs: secs(19), ends: AttemptEnd::Succeeds };
        scenario.messages.iter_mut().for_each(|message| message.attempts = vec![slow]);
        let quick = AttemptPlan { runs: Duration::from_millis(10), ends: AttemptEnd::Succeeds };
        let quick = |number: u32, key| MessagePlan {
            at: secs(2) + Duration::from_millis(25) * number,
            key,
            attempts: vec![quick],
            ..scenario.messages[0].clone()
        };
        // The line goes on behind them.
        let mut others: Vec<_> =
            (0..6_000).map(|number| quick(number, 1 + (number % 2) as u8)).collect();
        others[200].key = 0;
        scenario.messages.extend(others);
        let outcome = kept(&scenario);
        let last =
            outcome.events.iter().rfind(|event| matches!(event.event, Happened::Began { .. }));
        assert!(
            last.unwrap().at > secs(150),
            "{version:?}: the queue is busy for longer than the ack timeout"
        );
    }
}

/// More waits here than can be handled before the broker takes it back. If all of it stayed, each
/// message would be late again and again.
#[test]
fn what_waits_when_the_broker_takes_messages_back_sooner_than_the_settings_say_is_handled_in_the_end()
 {
    for version in VERSIONS {
        let mut scenario = quiet(version, 300, 1);
        scenario.enforced_timeout = secs(15);
        scenario.queues[0].is_existing = version == Version::V4_3;
        scenario.queues[0].prefetch = 100;
        let quick = AttemptPlan { runs: Duration::from_millis(500), ends: AttemptEnd::Succeeds };
        scenario.messages.iter_mut().for_each(|message| message.attempts = vec![quick]);
        let outcome = kept(&scenario);
        // The first channel that is closed names the timeout; 4.3 obeys its consumers.
        assert_eq!(outcome.timeouts.len(), usize::from(version < Version::V4_3), "{version:?}");
        let handled =
            count(&outcome, |event| matches!(event, Happened::Ended(_, AttemptEnd::Succeeds)));
        assert!(
            handled >= 300 && outcome.queues["orders.parked"].messages().next().is_none(),
            "{version:?}"
        );
    }
}

#[test]
fn while_the_leader_of_a_queue_hangs_a_slow_network_charges_no_message() {
    for seed in 0..16 {
        let mut scenario = quiet(Version::V4_0, 40, 1);
        (scenario.seed, scenario.processes) = (seed, 3);
        scenario.conditions.latency = Duration::from_millis(20);
        (scenario.conditions.slow_per_mille, scenario.conditions.slow) = (100, secs(2));
        let queue = &mut scenario.queues[0];
        // Nothing stands between the limit and the loss of a message here.
        (queue.is_existing, queue.delivery_limit, queue.prefetch) = (true, 4, 5);
        let queues = AffectedQueues::Work(0);
        scenario.faults = vec![fault(30, FaultKind::SilentLeader { queues, lasts: secs(400) })];
        kept(&scenario);
    }
}

#[test]
fn a_runtime_may_end_while_hundreds_of_deliveries_wait() {
    let mut scenario = quiet(Version::V4_3, 1_000, 1);
    scenario.queues[0].prefetch = 1_000;
    // Proven quickly, so that the window opens wide; then one that never ends.
    for (number, message) in scenario.messages.iter_mut().enumerate() {
        let (runs, ends) = if number < 900 {
            (Duration::ZERO, AttemptEnd::Succeeds)
        } else {
            (secs(1), AttemptEnd::Hangs)
        };
        message.attempts = vec![AttemptPlan { runs, ends }];
    }
    abandon(&scenario, secs(10)).unwrap();
}
