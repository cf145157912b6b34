//! Chains on the simulated broker are chains as they are on a real one: one table, run against
//! both.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, UNIX_EPOCH};

use bytes::Bytes;
use rehop::settings::{Ending, RetrySettings, Treatment};
use rehop::{Consumer, Failure, Message, Outcome, Raw, Settings};
use rehop_worlds::World;

use crate::support::{Fixture, Log, Running, millis, now_millis};

/// What the handler returns on each attempt, by its number.
type Script = fn(u32) -> Result<(), Failure>;

struct Case {
    name: &'static str,
    retry: fn(&mut RetrySettings),
    /// The message's deadline, in milliseconds from its first publishing on.
    expires_after: Option<i64>,
    script: Script,
    /// The chain on the simulated broker.
    expected: &'static str,
}

/// Each queue starts with no immediate attempt and waits of 100 and 200 ms.
const CASES: &[Case] = &[
    Case {
        name: "handled",
        retry: |_| {},
        expires_after: None,
        script: |_| Ok(()),
        expected: "attempt 1 after 0s: ack",
    },
    Case {
        name: "always-fails",
        retry: |_| {},
        expires_after: None,
        script: |_| Err(Failure::transient("no")),
        expected: "attempt 1 after 0s: wait 100ms\n\
                   attempt 2 after 100ms: wait 200ms\n\
                   attempt 3 after 300ms: park (exhausted)",
    },
    Case {
        name: "recovers",
        retry: |retry| retry.immediate = Some(1),
        expires_after: None,
        script: |attempt| if attempt < 4 { Err(Failure::transient("no")) } else { Ok(()) },
        expected: "attempt 1 after 0s: requeue\n\
                   attempt 2 after 0s: wait 100ms\n\
                   attempt 3 after 100ms: requeue\n\
                   attempt 4 after 100ms: ack",
    },
    Case {
        name: "requeued-beyond-the-budget",
        retry: |retry| {
            retry.immediate = Some(2);
            retry.delays = millis([100]);
        },
        expires_after: None,
        script: |_| Err(Failure::requeue("contended")),
        expected: "attempt 1 after 0s: requeue\n\
                   attempt 2 after 0s: requeue\n\
                   attempt 3 after 0s: wait 100ms\n\
                   attempt 4 after 100ms: requeue\n\
                   attempt 5 after 100ms: requeue\n\
                   attempt 6 after 100ms: park (exhausted)",
    },
    Case {
        name: "permanent-later",
        retry: |_| {},
        expires_after: None,
        script: |attempt| {
            Err(if attempt < 2 { Failure::transient("no") } else { Failure::permanent("never") })
        },
        expected: "attempt 1 after 0s: wait 100ms\n\
                   attempt 2 after 100ms: park (permanent)",
    },
    Case {
        name: "class-permanent",
        retry: |retry| retry.errors = Some([("declined".to_owned(), Treatment::Permanent)].into()),
        expires_after: None,
        script: |_| Err(Failure::from("no").with_class("declined")),
        expected: "attempt 1 after 0s: park (permanent)",
    },
    Case {
        name: "discards",
        retry: |_| {},
        expires_after: None,
        script: |_| Err(Failure::discard("not needed")),
        expected: "attempt 1 after 0s: discard (discarded)",
    },
    Case {
        name: "exhausted-discards",
        retry: |retry| {
            retry.delays = millis([100]);
            retry.on_exhausted = Some(Ending::Discard);
        },
        expires_after: None,
        script: |_| Err(Failure::transient("no")),
        expected: "attempt 1 after 0s: wait 100ms\n\
                   attempt 2 after 100ms: discard (exhausted)",
    },
    Case {
        name: "asks-for-a-delay",
        retry: |_| {},
        expires_after: None,
        script: |attempt| {
            Err(Failure::transient("no").after(Duration::from_millis(if attempt < 2 {
                150
            } else {
                1
            })))
        },
        expected: "attempt 1 after 0s: wait 200ms\n\
                   attempt 2 after 200ms: wait 100ms\n\
                   attempt 3 after 300ms: park (exhausted)",
    },
    Case {
        name: "waits-in-legs",
        retry: |retry| retry.immediate = Some(1),
        expires_after: None,
        script: |attempt| match attempt {
            1 => Err(Failure::transient("no").after(Duration::from_millis(500))),
            _ => Ok(()),
        },
        expected: "attempt 1 after 0s: wait 500ms\n\
                   attempt 2 after 500ms: ack",
    },
    Case {
        name: "asks-for-too-long-a-delay",
        retry: |_| {},
        expires_after: None,
        script: |_| Err(Failure::transient("no").after(Duration::from_secs(2))),
        expected: "attempt 1 after 0s: park (delay_too_long)",
    },
    Case {
        name: "would-expire-in-the-wait",
        retry: |retry| retry.delays = millis([100, 600_000]),
        expires_after: Some(300_000),
        script: |_| Err(Failure::transient("no")),
        expected: "attempt 1 after 0s: wait 100ms\n\
                   attempt 2 after 100ms: park (expired)",
    },
    Case {
        name: "expired-discards",
        retry: |retry| retry.on_expired = Some(Ending::Discard),
        expires_after: Some(-1),
        script: |_| Ok(()),
        expected: "no attempt after 0s: discard (expired)",
    },
];

/// An attempt: its number, how often the message had waited, when it was made, and whether it was
/// the last. In a world, the time is virtual.
type Made = (u32, u32, Instant, bool);

/// What is observed of a case on the broker.
#[derive(Clone, Default)]
struct Observed {
    attempts: Log<Made>,
    /// What followed each attempt, or took its place, by the attempt's number. A requeued message
    /// may be attempted again before its requeue is reported.
    outcomes: Log<(u32, Outcome)>,
}

fn retry_of<'a>(settings: &'a mut Settings, queue: &str, case: &Case) -> &'a mut RetrySettings {
    let retry = &mut settings.queue_mut(queue).retry;
    retry.immediate = Some(0);
    retry.delays = millis([100, 200]);
    (case.retry)(retry);
    retry
}

fn consumer(
    queue: &str,
    case: &Case,
    seen: &Observed,
) -> Consumer<Bytes, impl rehop::Handler<Bytes> + use<>, Raw> {
    let (script, in_handler, in_hook) = (case.script, seen.clone(), seen.clone());
    let handler = move |message: Message<Bytes>| {
        in_handler.attempts.push((
            message.attempt(),
            message.hop(),
            now(),
            message.is_last_attempt(),
        ));
        let result = script(message.attempt());
        if result.is_ok() {
            in_handler.outcomes.push((message.attempt(), Outcome::Ack));
        }
        std::future::ready(result)
    };
    Consumer::new(queue, handler).decode(Raw).on_failure(move |event| {
        in_hook.outcomes.push((event.attempt, event.outcome));
    })
}

/// The time of the runtime's clock.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The case in a world of its own, on a thread without a runtime.
fn simulated(case: &'static Case) -> Observed {
    let seen = Observed::default();
    let in_world = seen.clone();
    let run = move || {
        let mut world = World::new(1);
        let mut settings = Settings::default();
        retry_of(&mut settings, case.name, case);
        let service = world.start(|stop| async move {
            let consumer = consumer(case.name, case, &in_world);
            rehop::Service::new(&settings)
                .with_consumer(consumer)
                .with_graceful_shutdown(stop)
                .await
        });
        let properties = lapin::BasicProperties::default();
        let expires_at = case.expires_after.map(|after| {
            let now = i64::try_from(world.date().duration_since(UNIX_EPOCH).unwrap().as_millis())
                .unwrap();
            lapin::types::AMQPValue::LongLongInt(now + after)
        });
        let headers = expires_at
            .map(|at| BTreeMap::from([("rehop-expires-at".into(), at)]))
            .unwrap_or_default();
        world.publish_raw(case.name, properties.with_headers(headers.into()), "x");
        assert!(world.settle(Duration::from_secs(60)), "{}: {world:?}", case.name);
        world.stop(service);
        world.pass(Duration::from_secs(10));
        assert!(
            world.has_ended(service) && world.error(service).is_none(),
            "{}: {world:?}",
            case.name
        );
    };
    std::thread::spawn(run).join().unwrap();
    seen
}

/// One line for each attempt, and one for an end without an attempt. What the simulated network
/// takes is left out.
fn text(seen: &Observed) -> String {
    let (attempts, mut outcomes) = (seen.attempts.all(), seen.outcomes.all());
    outcomes.sort_by_key(|(attempt, _)| *attempt);
    let first = attempts.first().map(|(_, _, at, _)| *at);
    let line = |(attempt, outcome): &(u32, Outcome)| {
        let made = attempts.iter().find(|(number, ..)| number == attempt);
        let after = made.map_or(0, |(_, _, at, _)| (*at - first.unwrap()).as_millis() / 50 * 50);
        let after = if after == 0 { "0s".to_owned() } else { format!("{after}ms") };
        let reason = outcome.reason().map(|reason| format!(" ({reason})")).unwrap_or_default();
        let delay = outcome.delay().map(|delay| format!(" {delay:?}")).unwrap_or_default();
        let who =
            if made.is_some() { format!("attempt {attempt}") } else { "no attempt".to_owned() };
        format!("{who} after {after}: {}{delay}{reason}", outcome.as_str())
    };
    outcomes.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_on_the_simulated_broker_makes_the_attempts_that_are_made_on_a_real_one_and_no_later()
 {
    let mut fixture = Fixture::new("chains").await;
    for case in CASES {
        let queue = fixture.namespace.queue(case.name);
        retry_of(&mut fixture.settings, &queue, case);
    }
    // Queues take turns at the start of a service. 3.10 and 4.0 count a delivery of what is
    // published just as a turn ends.
    fixture.declare().await;
    for case in CASES {
        let queue = fixture.namespace.queue(case.name);
        let message = rehop_testing::Publish::to_queue(&queue).body("x");
        fixture
            .client
            .publish(case.expires_after.map_or(message.clone(), |after| {
                message.header("rehop-expires-at", now_millis() + after)
            }))
            .await
            .unwrap();
    }
    let observed: Vec<_> = CASES.iter().map(|_| Observed::default()).collect();
    let service = CASES.iter().zip(&observed).fold(fixture.service(), |service, (case, seen)| {
        service.with_consumer(consumer(&fixture.namespace.queue(case.name), case, seen))
    });
    let run = Running::start(service);
    for (case, seen) in CASES.iter().zip(&observed) {
        let simulated = simulated(case);
        assert_eq!(text(&simulated), case.expected, "{}", case.name);
        let mut expected = simulated.outcomes.all();
        expected.sort_by_key(|(attempt, _)| *attempt);
        let mut outcomes = seen.outcomes.reaches(expected.len()).await;
        outcomes.sort_by_key(|(attempt, _)| *attempt);
        assert_eq!(outcomes, expected, "{}", case.name);
        let numbers = |made: &[Made]| {
            made.iter().map(|(number, hop, _, last)| (*number, *hop, *last)).collect::<Vec<_>>()
        };
        let (made, simulated) = (seen.attempts.all(), simulated.attempts.all());
        assert_eq!(numbers(&made), numbers(&simulated), "{}", case.name);
        for ((number, _, at, _), (_, _, planned, _)) in made.iter().zip(&simulated) {
            // The broker is never early; what the simulated network takes is left out.
            let (after, planned) = (
                (*at - made[0].2).as_millis() + 2,
                (*planned - simulated[0].2).as_millis() / 50 * 50,
            );
            assert!(after >= planned, "{}: attempt {number} after {after} ms", case.name);
        }
    }
    let summary = run.stop().await;
    assert_eq!(summary.unsettled, 0, "{summary:?}");
}
