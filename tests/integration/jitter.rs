//! Jitter: waits that are drawn, and how long messages then really are away.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rehop::settings::{Jitter, WaitStrategy};
use rehop::{Backoff, Consumer, Failure, Message, Raw};

use crate::support::{Fixture, Log, Running};

const MESSAGES: usize = 30;
/// Both are sums of the ladder's rungs, so that it rounds up neither.
const FIRST: Duration = Duration::from_millis(600);
const LONGEST: Duration = Duration::from_millis(1_800);

/// Brokers and clocks count whole milliseconds, and a wait may have several legs.
const ROUNDING: Duration = Duration::from_millis(5);

/// For each message: how long it is to wait, and the time from its first attempt to its second.
async fn waits(strategy: WaitStrategy, jitter: Jitter) -> Vec<(Duration, Duration)> {
    let mut fixture = Fixture::new("jitter").await;
    fixture.settings.ladder.rung = Duration::from_millis(50);
    fixture.settings.ladder.max = LONGEST;
    fixture.retry().strategy = Some(strategy);
    fixture.retry().jitter = Some(jitter);
    fixture.retry().delays = Some(Backoff::List(vec![FIRST, LONGEST]));
    let (attempts, drawn) = (Log::default(), Log::default());
    let (in_handler, in_hook) = (attempts.clone(), drawn.clone());
    let handler = move |message: Message<Bytes>| {
        in_handler.push((message.message_id().unwrap().to_owned(), Instant::now()));
        let is_first = message.hop() == 0;
        async move { if is_first { Err(Failure::transient("no")) } else { Ok(()) } }
    };
    let consumer = Consumer::new(fixture.queue.clone(), handler).decode(Raw).on_failure(move |event| {
        in_hook.push((event.message_id.unwrap().to_owned(), event.outcome.delay().unwrap()));
    });
    let run = Running::start(fixture.connect().await.with_consumer(consumer));
    fixture.is_declared(&fixture.queue).await;
    for index in 0..MESSAGES {
        fixture.client.publish(fixture.to_queue().message_id(index.to_string())).await.unwrap();
    }
    let attempts: Vec<(String, Instant)> = attempts.reaches(2 * MESSAGES).await;
    let summary = run.stop().await;
    assert_eq!((summary.waited, summary.handled), (MESSAGES as u64, MESSAGES as u64), "{strategy}, {jitter:?}");
    let drawn: Vec<(String, Duration)> = drawn.all();
    let away = |id: &str| {
        let at: Vec<_> = attempts.iter().filter(|(of, _)| of == id).map(|(_, at)| *at).collect();
        at[1] - at[0]
    };
    drawn.iter().map(|(id, wait)| (*wait, away(id))).collect()
}

/// At the handler, too: none comes sooner than it should, and they do not come together. One is back before the wait of another is over.
#[tokio::test(flavor = "multi_thread")]
async fn jittered_waits_differ_and_stay_within_their_delay() {
    let kinds = [
        (Jitter::Full, Duration::from_millis(1)..=FIRST),
        (Jitter::Equal, FIRST / 2..=FIRST),
        (Jitter::Decorrelated, FIRST..=LONGEST),
    ];
    for strategy in [WaitStrategy::Ladder, WaitStrategy::InProcess] {
        for (jitter, bounds) in kinds.clone() {
            let waits = waits(strategy, jitter).await;
            let what = format!("{strategy}, {jitter:?}: {waits:?}");
            assert!(waits.iter().all(|(wait, _)| bounds.contains(wait)), "{what}");
            assert!(waits.iter().all(|(wait, away)| *away + ROUNDING >= *wait), "{what}");
            assert!(waits.iter().map(|(wait, _)| wait).collect::<BTreeSet<_>>().len() >= 3, "{what}");
            let soonest = waits.iter().map(|(_, away)| *away).min();
            assert!(soonest < waits.iter().map(|(wait, _)| *wait).max(), "{what}");
        }
    }
}
