//! The arguments of a consumer. Two tell whoever looks at the broker which wait queues are in use:
//! the broker shows a consumer's arguments to operators, and ignores those that it does not know
//! (3.10, 4.0 and 4.3). The third asks for an ack timeout, and the last keeps streams away.

use std::time::Duration;

use super::{Argument, Arguments, Names};
use crate::settings::QueueConfig;

/// The namespace of the wait queues.
pub const NAMESPACE: &str = "rehop-namespace";
/// The wait queues, without the namespace: `wait.10000 wait.60000`. Empty if the queue's messages
/// wait elsewhere.
pub const WAITS_IN: &str = "rehop-waits-in";
/// The default, 0, changes nothing, but a stream refuses it (3.10, 4.0 and 4.3): without it, a work
/// queue that somebody replaces by a stream would be consumed, and what fails would never come
/// again.
const PRIORITY: &str = "x-priority";
/// In milliseconds. 4.3 obeys it for quorum queues, whatever the queue, a policy or the node say,
/// and refuses it for classic ones; 3.10 and 4.0 ignore it.
pub const CONSUMER_TIMEOUT: &str = "x-consumer-timeout";

/// The arguments of a consumer of this queue. They ask for the ack timeout if the queue is a quorum
/// queue: with a classic one, the broker would refuse the consumer.
pub(crate) fn consumer_arguments(
    names: &Names,
    config: &QueueConfig,
    ack_timeout: Duration,
) -> Arguments {
    let tiers = config.policy.strategy.tiers().map(|ttl| names.tier(ttl));
    let ladder = config.policy.used_ladder();
    let rungs = ladder.into_iter().flat_map(|ladder| ladder.rungs()).map(|ttl| names.rung(ttl));
    let waits_in: Vec<_> =
        tiers.chain(rungs).map(|queue| names.without_namespace(&queue).to_owned()).collect();
    let mut arguments = Arguments::from([
        (NAMESPACE.to_owned(), names.namespace().into()),
        (WAITS_IN.to_owned(), waits_in.join(" ").as_str().into()),
        (PRIORITY.to_owned(), 0.into()),
    ]);
    if config.counts_deliveries {
        arguments.insert(CONSUMER_TIMEOUT.to_owned(), ask_for(ack_timeout));
    }
    arguments
}

/// The value of [`CONSUMER_TIMEOUT`].
pub fn ask_for(ack_timeout: Duration) -> Argument {
    Argument::Number(i64::try_from(ack_timeout.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::backoff::Backoff;
    use crate::settings::{AskedDelays, Declare, QueueType, Settings, WaitQueues, WaitStrategy};

    #[test]
    fn a_consumer_announces_the_wait_queues_that_its_own_queue_uses() {
        let check = |change: &dyn Fn(&mut Settings), expected: &str| {
            let mut settings = Settings::default();
            settings.ladder.max = Duration::from_secs(2);
            settings.retry.delays =
                Some(Backoff::List([500, 70].map(Duration::from_millis).to_vec()));
            change(&mut settings);
            let config = settings.resolve().unwrap().queue("orders").unwrap();
            let names = Names::new("ns").waits_of(&config);
            let arguments = consumer_arguments(&names, &config, Duration::from_secs(60));
            let text = |text: &str| Argument::Text(text.to_owned());
            assert_eq!(
                (&arguments[NAMESPACE], &arguments[WAITS_IN]),
                (&text("ns"), &text(expected))
            );
        };
        check(&|_| {}, "wait.70 wait.500");
        check(
            &|settings| settings.retry.strategy = Some(WaitStrategy::Ladder),
            "ladder.1000 ladder.2000",
        );
        check(
            &|settings| settings.retry.after = Some(AskedDelays::Ladder),
            "wait.70 wait.500 ladder.1000 ladder.2000",
        );
        check(&|settings| settings.retry.strategy = Some(WaitStrategy::InProcess), "");
        check(
            &|settings| settings.retry.wait_queues = Some(WaitQueues::Own),
            "wait.orders.70 wait.orders.500",
        );
    }

    #[test]
    fn a_consumer_asks_for_the_ack_timeout_unless_its_queue_may_be_a_classic_one() {
        let asks = |declare: Declare, queue_type: Option<QueueType>| {
            let mut settings = Settings::default();
            let queue = settings.queue_mut("orders");
            (queue.declare, queue.queue_type) = (declare, queue_type);
            let config = settings.resolve().unwrap().queue("orders").unwrap();
            consumer_arguments(&Names::new("ns"), &config, Duration::from_millis(90_500))
                .remove(CONSUMER_TIMEOUT)
        };
        let asked = Some(Argument::Number(90_500));
        assert_eq!(
            [asks(Declare::Own, None), asks(Declare::Existing, Some(QueueType::Quorum))],
            [asked.clone(), asked]
        );
        assert_eq!(
            [asks(Declare::Existing, None), asks(Declare::Existing, Some(QueueType::Classic))],
            [None, None]
        );
    }
}
