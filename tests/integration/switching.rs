//! A queue whose strategy is changed while messages wait, or whose wait queues are.

use std::time::Duration;

use bytes::Bytes;
use rehop::settings::{
    BindingSettings, Declare, QueueType, TopologyMode, WaitQueues, WaitStrategy,
};
use rehop::{Backoff, Consumer, Failure, Message, Raw};
use rehop_testing::Publish;
use serde_json::json;

use super::{delayed, native};
use crate::support::{Fixture, Log, Running, not_tried};

const DELAY: Duration = Duration::from_millis(1_500);
const MESSAGES: usize = 10;

/// Each message fails until it has waited, and is handled then, by whichever service has taken over
/// by then. What the process holds when it stops, and what waits natively when the strategy
/// changes, has not waited as far as the next service knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_goes_through_all_strategies_with_messages_waiting_and_each_comes_home_once() {
    let has_native = native::is_known().await;
    let strategies = [
        (WaitStrategy::Tiers, WaitQueues::Shared),
        (WaitStrategy::Tiers, WaitQueues::Own),
        (WaitStrategy::Ladder, WaitQueues::Shared),
        (WaitStrategy::Native, WaitQueues::Own),
        (WaitStrategy::InProcess, WaitQueues::Own),
        (WaitStrategy::DelayedExchange, WaitQueues::Own),
        (WaitStrategy::Ladder, WaitQueues::Own),
        (WaitStrategy::Ladder, WaitQueues::Shared),
        (WaitStrategy::Tiers, WaitQueues::Shared),
    ];
    let strategies: Vec<_> = strategies
        .into_iter()
        .filter(|(strategy, _)| *strategy != WaitStrategy::Native || has_native)
        .collect();
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
    delayed::stand_in(&fixture, DELAY).await;
    let handled: Log<String> = Log::default();
    let last = strategies.len() - 1;
    for (round, (strategy, wait_queues)) in strategies.iter().enumerate() {
        fixture.retry().strategy = Some(*strategy);
        fixture.retry().wait_queues = Some(*wait_queues);
        // What stands in for the plugin's exchange cannot be declared. The rest of the topology is
        // there by then.
        let is_found = *strategy == WaitStrategy::DelayedExchange;
        fixture.settings.topology =
            if is_found { TopologyMode::Check } else { TopologyMode::Declare };
        let (failed, log) = (Log::default(), handled.clone());
        let failing = failed.clone();
        let run = fixture
            .serve(move |message| {
                let text = String::from_utf8_lossy(&message.body).into_owned();
                let fails = message.hop() == 0;
                if !fails {
                    // What a stop hands back on 4.3 comes to a native queue as if it had waited
                    // once more, so waits are not counted.
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
    let expected: Vec<_> = (0..=last)
        .flat_map(|round| (0..MESSAGES).map(move |index| format!("{round}-{index}")))
        .collect();
    assert_eq!(seen, expected);
    let depth = async |queue: &str| fixture.client.depth(queue).await.unwrap();
    let left = (
        depth(&fixture.queue).await,
        depth(&fixture.parked()).await,
        depth(&fixture.stray()).await,
    );
    assert_eq!(left, (0, 0, 0));
}

/// How publishers route their messages.
const KEY: &str = "order.created";

/// A service that moves from one queue to another, by the steps that `rehop topology plan` prints.
struct Moving {
    fixture: Fixture,
    exchange: String,
    /// Each message that was attempted, once for each queue.
    begun: Log<(String, String)>,
    handled: Log<(String, String)>,
}

impl Moving {
    /// A service whose messages wait long enough to be moved meanwhile, and often enough to be
    /// handled afterwards.
    async fn new() -> Self {
        let mut fixture = Fixture::new("moved").await;
        fixture.settings.ladder.rung = Duration::from_millis(100);
        fixture.settings.ladder.max = Duration::from_millis(1_600);
        fixture.settings.retry.delays = Some(Backoff::Fixed { delay: DELAY / 2, waits: 50 });
        let exchange = fixture.namespace.exchange("shop");
        fixture.client.declare_exchange(&exchange, "topic", json!({})).await.unwrap();
        Self { fixture, exchange, begun: Log::default(), handled: Log::default() }
    }

    /// Adds a queue to the settings, bound to the publishers' exchange, and declares it.
    async fn add(&mut self, queue: &str, strategy: WaitStrategy) {
        let settings = self.fixture.settings.queue_mut(queue);
        settings.retry.strategy = Some(strategy);
        settings.bindings = vec![BindingSettings::new(&self.exchange, KEY)];
        self.fixture.declare().await;
    }

    async fn publish(&self, bodies: impl IntoIterator<Item = String>) {
        for body in bodies {
            self.fixture.client.publish(Publish::to(&self.exchange, KEY).body(body)).await.unwrap();
        }
    }

    /// A service on these queues. The first attempt of each message fails, and all others too
    /// unless messages `may_end`.
    async fn serve(&self, queues: &[&str], may_end: bool) -> Running {
        let mut service = self.fixture.service();
        for queue in queues {
            let (begun, handled, name) =
                (self.begun.clone(), self.handled.clone(), (*queue).to_owned());
            let handler = move |message: Message<Bytes>| {
                let attempted = (name.clone(), String::from_utf8_lossy(&message.body).into_owned());
                let is_first = !begun.all().contains(&attempted);
                if is_first {
                    begun.push(attempted);
                } else if may_end {
                    handled.push(attempted);
                }
                async move { if is_first || !may_end { Err(Failure::transient("no")) } else { Ok(()) } }
            };
            service = service.with_consumer(Consumer::new(*queue, handler).decode(Raw));
        }
        Running::start(service)
    }

    /// Moves the service to a queue that waits in this way, and returns what is handled meanwhile,
    /// by queue.
    async fn moves(
        &mut self,
        from: &str,
        to: &str,
        strategy: WaitStrategy,
    ) -> Vec<(String, String)> {
        let each = |what: &str| -> Vec<_> {
            (0..MESSAGES).map(|index| format!("{what} {from}: {index}")).collect()
        };
        let (before, between, after) =
            (each("before"), format!("between {from} and {to}"), each("after"));
        // The service as it was. At its end all of its messages wait, or are in the queue again.
        let begun = self.begun.all().len();
        let run = self.serve(&[from], false).await;
        self.publish(before.clone()).await;
        self.begun.reaches(begun + MESSAGES).await;
        let summary = run.stop().await;
        assert!(summary.waited >= MESSAGES as u64 && summary.handled == 0, "{summary}");

        // A second queue: both get every message.
        self.add(to, strategy).await;
        self.publish([between.clone()]).await;
        // The old one is unbound, also in the settings: the service would bind it again.
        self.fixture.client.unbind(from, &self.exchange, KEY, json!({})).await.unwrap();
        self.fixture.settings.queue_mut(from).bindings.clear();
        // The service has both until the old one is empty.
        let handled = self.handled.all().len();
        let run = self.serve(&[from, to], true).await;
        self.publish(after.clone()).await;
        self.handled.reaches(handled + 2 * MESSAGES + 2).await;
        run.stop().await;
        self.fixture.has_depth(from, 0).await;
        // From here on it has the new one alone.
        self.fixture.settings.queues.retain(|settings| settings.queue != from);
        self.fixture.client.delete_queue(from).await.unwrap();

        let of = |queue: &str, bodies: Vec<String>| -> Vec<_> {
            bodies.into_iter().map(|body| (queue.to_owned(), body)).collect()
        };
        [of(from, before), of(from, vec![between.clone()]), of(to, vec![between]), of(to, after)]
            .concat()
    }
}

/// The way out of a queue that was declared for another strategy: "Take another queue". Only what
/// is published while both are bound comes to both.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_moves_to_native_and_back_by_another_queue_while_messages_wait_and_each_is_handled_once()
 {
    if !native::is_known().await {
        return not_tried(
            "a move to strategy native and back, because this broker does not know it (4.3 does)",
        );
    }
    for strategy in [WaitStrategy::Tiers, WaitStrategy::Ladder] {
        let mut service = Moving::new().await;
        let (first, second) =
            (service.fixture.queue.clone(), format!("{}.v2", service.fixture.queue));
        service.add(&first, strategy).await;
        let mut expected = service.moves(&first, &second, WaitStrategy::Native).await;
        expected.extend(service.moves(&second, &first, strategy).await);
        let mut handled = service.handled.all();
        handled.sort();
        expected.sort();
        assert_eq!(handled, expected, "{strategy}");
        for queue in [service.fixture.parked(), format!("{second}.parked"), service.fixture.stray()]
        {
            service.fixture.has_depth(&queue, 0).await;
        }
    }
}
