//! Chains in virtual time are chains as they are on a broker: one table, run against both.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rehop::settings::{Ending, RetrySettings, Treatment};
use rehop::testing::{chain, message};
use rehop::{Consumer, Failure, Message, Outcome, Raw, Timestamp};

use crate::support::{Fixture, Log, Running, millis, now_millis};

/// What the handler returns on each attempt, by its number.
type Script = fn(u32) -> Result<(), Failure>;

struct Case {
    name: &'static str,
    retry: fn(&mut RetrySettings),
    /// The message's deadline, in milliseconds from its first publishing on.
    expires_after: Option<i64>,
    script: Script,
    /// The chain in virtual time.
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
        script: |attempt| Err(if attempt < 2 { Failure::transient("no") } else { Failure::permanent("never") }),
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
        script: |attempt| Err(Failure::transient("no").after(Duration::from_millis(if attempt < 2 { 150 } else { 1 }))),
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

/// An attempt on the broker: its number, how often the message had waited, when it was made, and whether it was the last.
type Made = (u32, u32, Instant, bool);

/// What is observed of a case on the broker.
#[derive(Clone, Default)]
struct Observed {
    attempts: Log<Made>,
    /// What followed each attempt, or took its place, by the attempt's number. A requeued message may be attempted again before its
    /// requeue is reported.
    outcomes: Log<(u32, Outcome)>,
}

fn consumer(fixture: &Fixture, case: &Case, seen: &Observed) -> Consumer<Bytes, impl rehop::Handler<Bytes>, Raw> {
    let (script, in_handler, in_hook) = (case.script, seen.clone(), seen.clone());
    let handler = move |message: Message<Bytes>| {
        in_handler.attempts.push((message.attempt(), message.hop(), Instant::now(), message.is_last_attempt()));
        let result = script(message.attempt());
        if result.is_ok() {
            in_handler.outcomes.push((message.attempt(), Outcome::Ack));
        }
        std::future::ready(result)
    };
    Consumer::new(fixture.namespace.queue(case.name), handler).decode(Raw).on_failure(move |event| {
        in_hook.outcomes.push((event.attempt, event.outcome));
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_in_virtual_time_makes_the_attempts_that_are_made_on_a_broker_and_no_later() {
    let mut fixture = Fixture::new("chains").await;
    for case in CASES {
        (case.retry)({
            let retry = &mut fixture.settings.queue_mut(&fixture.namespace.queue(case.name)).retry;
            retry.immediate = Some(0);
            retry.delays = millis([100, 200]);
            retry
        });
    }
    // Queues take turns at the start of a service. 3.10 and 4.0 count a delivery of what is published just as a turn ends.
    fixture.declare().await;
    for case in CASES {
        let queue = fixture.namespace.queue(case.name);
        let message = rehop_testing::Publish::to_queue(&queue).body("x");
        fixture
            .client
            .publish(
                case.expires_after
                    .map_or(message.clone(), |after| message.header("rehop-expires-at", now_millis() + after)),
            )
            .await
            .unwrap();
    }
    let observed: Vec<_> = CASES.iter().map(|_| Observed::default()).collect();
    let service = CASES
        .iter()
        .zip(&observed)
        .fold(fixture.connect().await, |service, (case, seen)| service.with_consumer(consumer(&fixture, case, seen)));
    let run = Running::start(service);
    for (case, seen) in CASES.iter().zip(&observed) {
        let queue = fixture.namespace.queue(case.name);
        let started = message(Bytes::from_static(b"x")).queue(&queue).policy(fixture.settings.policy(&queue).unwrap());
        let started = match case.expires_after {
            Some(after) => started.deadline(Timestamp::from_millis(now_millis() + after)),
            None => started,
        };
        let last = Log::default();
        let (script, log) = (case.script, last.clone());
        let simulated = chain(started, move |message: Message<Bytes>| {
            log.push(message.is_last_attempt());
            std::future::ready(script(message.attempt()))
        })
        .await;
        assert_eq!(simulated.to_string(), case.expected, "{}", case.name);

        let mut expected: Vec<_> = simulated.attempts.iter().map(|attempt| (attempt.number, attempt.outcome)).collect();
        if expected.is_empty() {
            expected.push((1, simulated.end));
        }
        let mut outcomes = seen.outcomes.reaches(expected.len()).await;
        outcomes.sort_by_key(|(attempt, _)| *attempt);
        assert_eq!(outcomes, expected, "{}", case.name);
        let made = seen.attempts.all();
        let numbers: Vec<_> = made.iter().map(|(number, hop, _, last)| (*number, *hop, *last)).collect();
        let simulated_numbers: Vec<_> = simulated
            .attempts
            .iter()
            .zip(last.all())
            .map(|(attempt, last)| (attempt.number, attempt.hop, last))
            .collect();
        assert_eq!(numbers, simulated_numbers, "{}", case.name);
        for ((.., at, _), attempt) in made.iter().zip(&simulated.attempts) {
            // The broker is never early; the clocks differ by their resolution.
            let after = *at - made[0].2 + Duration::from_millis(2);
            assert!(after >= attempt.at, "{}: attempt {} after {after:?}", case.name, attempt.number);
        }
    }
    let summary = run.stop().await;
    assert_eq!(summary.unsettled, 0, "{summary:?}");
}
