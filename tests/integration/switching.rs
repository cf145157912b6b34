//! A queue whose strategy is changed while messages wait.

use std::time::Duration;

use rehop::settings::{Declare, QueueType, WaitStrategy};
use rehop::testing::Broker;
use rehop::{Backoff, Failure};
use serde_json::json;

use crate::support::{Fixture, Log};

const DELAY: Duration = Duration::from_millis(1_500);
const MESSAGES: usize = 10;

/// Each message fails until it has waited, and is handled then, by whichever service has taken over by then. What the process holds when
/// it stops, and what waits natively when the strategy changes, has not waited as far as the next service knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_goes_through_all_strategies_with_messages_waiting_and_each_comes_home_once() {
    let version = Broker::shared().await.version().to_owned();
    let has_native = !["3.", "4.0.", "4.1.", "4.2."].iter().any(|old| version.starts_with(old));
    let strategies = [
        WaitStrategy::Tiers,
        WaitStrategy::Ladder,
        WaitStrategy::Native,
        WaitStrategy::InProcess,
        WaitStrategy::Ladder,
        WaitStrategy::Tiers,
    ];
    let strategies: Vec<_> = strategies.into_iter().filter(|it| *it != WaitStrategy::Native || has_native).collect();
    let mut fixture = Fixture::new("switched").await;
    fixture.settings.ladder.rung = Duration::from_millis(100);
    fixture.settings.ladder.max = Duration::from_millis(1_600);
    fixture.retry().delays = Some(Backoff::Fixed { delay: DELAY, waits: 1 });
    // Native needs these arguments, and the others do not mind them.
    let delay = DELAY.as_millis() as u64;
    let arguments = json!({
        "x-queue-type": "quorum", "x-delivery-limit": 10, "x-delayed-retry-type": "returned",
        "x-delayed-retry-min": delay, "x-delayed-retry-max": delay,
    });
    fixture.client.declare_queue(&fixture.queue, arguments).await.unwrap();
    let queue = fixture.settings.queue_mut(&fixture.queue);
    (queue.declare, queue.queue_type) = (Declare::Existing, Some(QueueType::Quorum));
    let handled: Log<String> = Log::default();
    let last = strategies.len() - 1;
    for (round, strategy) in strategies.iter().enumerate() {
        fixture.retry().strategy = Some(*strategy);
        let (failed, log) = (Log::default(), handled.clone());
        let failing = failed.clone();
        let run = fixture
            .serve(move |message| {
                let text = String::from_utf8_lossy(&message).into_owned();
                let fails = message.hop() == 0;
                if !fails {
                    // What a stop hands back on 4.3 comes to a native queue as if it had waited once more, so waits are not counted.
                    log.push(text);
                } else if text.starts_with(&format!("{round}-")) {
                    failing.push(());
                }
                async move { if fails { Err(Failure::transient("no")) } else { Ok(()) } }
            })
            .await;
        for index in 0..MESSAGES {
            fixture.publish(&format!("{round}-{index}")).await;
        }
        failed.reaches(MESSAGES).await;
        if round == last {
            handled.reaches((last + 1) * MESSAGES).await;
        }
        run.stop().await;
    }
    let mut seen = handled.all();
    seen.sort();
    let expected: Vec<_> =
        (0..=last).flat_map(|round| (0..MESSAGES).map(move |index| format!("{round}-{index}"))).collect();
    assert_eq!(seen, expected);
    let depth = async |queue: &str| fixture.client.depth(queue).await.unwrap();
    let left = (depth(&fixture.queue).await, depth(&fixture.parked()).await, depth(&fixture.stray()).await);
    assert_eq!(left, (0, 0, 0));
}
