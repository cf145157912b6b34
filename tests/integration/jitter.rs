//! Jitter: waits that are drawn, and how long messages then really are away.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use rehop::settings::{Jitter, TopologyMode, WaitStrategy};
use rehop::{Backoff, Consumer, Failure, HeaderValue, Message, Raw};

use super::delayed;
use crate::support::{Fixture, Log, Running};

const MESSAGES: usize = 30;
/// Both are sums of the ladder's rungs, so that it rounds up neither.
const FIRST: Duration = Duration::from_millis(1_600);
const LONGEST: Duration = Duration::from_millis(4_800);

/// Brokers and clocks count whole milliseconds, and a wait may have several legs.
const ROUNDING: Duration = Duration::from_millis(5);

/// The wait of one message.
#[derive(Debug)]
struct Waited {
    /// How long it is to be.
    drawn: Duration,
    /// The time from its first attempt to its second.
    away: Duration,
    /// What its copy told a delayed exchange.
    told: Option<Duration>,
}

async fn waits(strategy: WaitStrategy, jitter: Jitter) -> Vec<Waited> {
    let mut fixture = Fixture::new("jitter").await;
    if strategy == WaitStrategy::DelayedExchange {
        fixture.declare().await;
        delayed::stand_in(&fixture, LONGEST).await;
        fixture.settings.topology = TopologyMode::Check;
    }
    fixture.settings.ladder.rung = Duration::from_millis(50);
    fixture.settings.ladder.max = LONGEST;
    fixture.retry().strategy = Some(strategy);
    fixture.retry().jitter = Some(jitter);
    fixture.retry().delays = Some(Backoff::List(vec![FIRST, LONGEST]));
    let (attempts, drawn) = (Log::default(), Log::default());
    let (in_handler, in_hook) = (attempts.clone(), drawn.clone());
    let handler = move |message: Message<Bytes>| {
        let told = message.header("x-delay").map(|value| match value {
            HeaderValue::Int(millis) => Duration::from_millis(millis.try_into().unwrap()),
            other => panic!("{other:?}"),
        });
        in_handler.push((message.message_id().unwrap().to_owned(), Instant::now(), told));
        let is_first = message.hop() == 0;
        async move { if is_first { Err(Failure::transient("no")) } else { Ok(()) } }
    };
    let consumer =
        Consumer::new(fixture.queue.clone(), handler).decode(Raw).on_failure(move |event| {
            in_hook.push((event.message_id.unwrap().to_owned(), event.outcome.delay().unwrap()));
        });
    let run = Running::start(fixture.service().with_consumer(consumer));
    fixture.is_declared(&fixture.queue).await;
    for index in 0..MESSAGES {
        fixture.client.publish(fixture.to_queue().message_id(index.to_string())).await.unwrap();
    }
    let attempts: Vec<(String, Instant, Option<Duration>)> = attempts.reaches(2 * MESSAGES).await;
    let summary = run.stop().await;
    assert_eq!(
        (summary.waited, summary.handled),
        (MESSAGES as u64, MESSAGES as u64),
        "{strategy}, {jitter:?}"
    );
    let drawn: Vec<(String, Duration)> = drawn.all();
    let waited = |(id, drawn): &(String, Duration)| {
        let of_it: Vec<_> = attempts.iter().filter(|(of, ..)| of == id).collect();
        let [(_, first, _), (_, second, told)] = of_it[..] else { panic!("{id}: {attempts:?}") };
        Waited { drawn: *drawn, away: *second - *first, told: *told }
    };
    drawn.iter().map(waited).collect()
}

/// Lets messages wait with each kind of jitter, at the same time, so that waits can be long.
/// Returns what shows that all of a kind came together.
async fn of_each_kind(
    strategy: WaitStrategy,
    kinds: &[(Jitter, RangeInclusive<Duration>)],
) -> Vec<String> {
    let mut together = Vec::new();
    let of_each_kind = join_all(kinds.iter().map(|(jitter, _)| waits(strategy, *jitter))).await;
    for ((jitter, bounds), waits) in kinds.iter().zip(of_each_kind) {
        let what = format!("{strategy}, {jitter:?}: {waits:?}");
        assert!(waits.iter().all(|wait| bounds.contains(&wait.drawn)), "{what}");
        assert!(waits.iter().all(|wait| wait.away + ROUNDING >= wait.drawn), "{what}");
        assert!(waits.iter().map(|wait| wait.drawn).collect::<BTreeSet<_>>().len() >= 3, "{what}");
        if strategy == WaitStrategy::DelayedExchange {
            // What stands in for it keeps all of them for the same time.
            assert!(waits.iter().all(|wait| wait.told == Some(wait.drawn)), "{what}");
        } else {
            let soonest = waits.iter().map(|wait| wait.away).min();
            if soonest >= waits.iter().map(|wait| wait.drawn).max() {
                together.push(what);
            }
        }
    }
    together
}

/// At the handler, too: none comes sooner than it should, and they do not come together. One is
/// back before the wait of another is over.
#[tokio::test(flavor = "multi_thread")]
async fn jittered_waits_differ_and_stay_within_their_delay() {
    let kinds = [
        (Jitter::Full, Duration::from_millis(1)..=FIRST),
        (Jitter::Equal, FIRST / 2..=FIRST),
        (Jitter::Decorrelated, FIRST..=LONGEST),
    ];
    for strategy in [WaitStrategy::Ladder, WaitStrategy::InProcess, WaitStrategy::DelayedExchange] {
        // A busy machine may be later than the draws are apart, but hardly ten times.
        let mut late = Vec::new();
        for _ in 0..10 {
            late = of_each_kind(strategy, &kinds).await;
            if late.is_empty() {
                break;
            }
        }
        assert!(late.is_empty(), "all of a kind came together, each time: {late:?}");
    }
}
