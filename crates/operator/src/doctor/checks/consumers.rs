//! Who consumes, and for how long the broker lets deliveries stay unsettled.

use std::time::Duration;

use humantime::format_duration;

use super::limits::source;
use super::{is_present, queue};
use crate::doctor::check::Check;
use crate::doctor::observed::{ConsumerDetails, Management, Observed, QueueDetails};
use crate::doctor::report::Finding;
use crate::doctor::subject::Subject;
use rehop::internals::QueueConfig;
use rehop::settings::WaitStrategy;
use rehop::topology::Role;

pub(super) fn check(subject: &Subject, seen: &Observed) -> Vec<Finding> {
    let mut found = Vec::new();
    for wanted in subject.topology.queues.iter().filter(|queue| is_present(seen, &queue.name)) {
        let Some(state) = seen.queues.get(&wanted.name) else { continue };
        match (wanted.role, state.consumers) {
            (Role::Work, 0) => {
                let seen = format!("it has no consumer; messages that are ready: {}", state.ready);
                let remedy = "start the service, or look at its log: it may be unable to connect or to declare";
                found.push(Finding::new(Check::NoConsumer, queue(&wanted.name), seen, remedy));
            }
            (Role::Wait, 1..) => {
                let seen = format!(
                    "its consumers: {}; what they take never returns to its work queue",
                    state.consumers
                );
                let remedy = "stop them: nobody may consume from a wait queue";
                found.push(Finding::new(
                    Check::ConsumerOnWaitQueue,
                    queue(&wanted.name),
                    seen,
                    remedy,
                ));
            }
            _ => {}
        }
    }
    for config in &subject.configs {
        found.extend(
            seen.management
                .as_ref()
                .and_then(|seen| timeout(config, seen, subject.consumer_timeout)),
        );
        found.extend(seen.management.as_ref().and_then(|seen| disconnected(config, seen)));
    }
    found
}

/// How long the broker lets deliveries of this queue stay unsettled: the shortest time of its
/// consumers.
///
/// A consumer that asks for a time gets it from 4.3 on. Otherwise the shortest applies of the
/// queue's argument, the policy, and the node's own (4.0 and 4.3; 3.10 does not tell).
fn enforced_timeout(
    config: &QueueConfig,
    details: &QueueDetails,
    obeys_consumers: bool,
) -> Option<Duration> {
    let of_queue =
        details.smaller_number("consumer-timeout").and_then(|millis| u64::try_from(millis).ok());
    let of_consumer = |subscription: &ConsumerDetails| match subscription.asked_timeout() {
        Some(asked) if obeys_consumers => Some(asked),
        _ => of_queue.into_iter().chain(subscription.consumer_timeout).min(),
    };
    let will_ask = obeys_consumers && config.counts_deliveries;
    let subscriptions = details.subscriptions.as_ref()?;
    let without_consumers = of_queue.filter(|_| subscriptions.is_empty() && !will_ask);
    let millis = subscriptions.iter().filter_map(of_consumer).chain(without_consumers).min()?;
    Some(Duration::from_millis(millis))
}

fn timeout(config: &QueueConfig, seen: &Management, expected: Duration) -> Option<Finding> {
    let effective =
        enforced_timeout(config, seen.queues.get(&config.queue)?, seen.queues_time_consumers())?;
    if effective >= expected {
        return None;
    }
    let harm = if effective <= config.handler_timeout {
        format!(
            "handlers may run for {}, so the broker takes messages back while they run, and other handlers get them",
            format_duration(config.handler_timeout)
        )
    } else if config.order.is_kept() {
        "all that the queue holds comes back together, counted, until the broker parks it"
            .to_owned()
    } else if config.policy.strategy() == WaitStrategy::InProcess {
        "messages that wait in the process are delivered again meanwhile, and handled twice"
            .to_owned()
    } else {
        "deliveries that wait for a handler are taken back before rehop hands them back, and 3.10 and 4.0 count that against them"
            .to_owned()
    };
    let seen = format!(
        "the broker takes deliveries back after {}, and broker.consumer_timeout is {}: {harm}",
        format_duration(effective),
        format_duration(expected)
    );
    let remedy = format!(
        "set broker.consumer_timeout to {}, and consume.handler_timeout below it; or raise the broker's; or, if a consumer asks for the \
         shorter time (x-consumer-timeout), restart its service with these settings; or, for an existing quorum queue on 4.3, set queue_type = \"quorum\"",
        format_duration(effective)
    );
    Some(Finding::new(Check::ConsumerTimeoutShort, queue(&config.queue), seen, remedy))
}

/// For how long a queue keeps the messages of a consumer whose node has died, if nothing else is
/// set (4.3).
const DISCONNECTED: Duration = Duration::from_secs(60);

/// Before 4.3 they are delivered again as soon as the node is known to be dead.
fn disconnected(config: &QueueConfig, seen: &Management) -> Option<Finding> {
    const KEY: &str = "consumer-disconnected-timeout";
    let details = seen.queues.get(&config.queue).filter(|_| seen.queues_time_consumers())?;
    let millis = details.smaller_number(KEY).and_then(|millis| u64::try_from(millis).ok())?;
    let kept = Duration::from_millis(millis);
    if kept <= DISCONNECTED {
        return None;
    }
    let source = source(details, KEY);
    let harm = if config.order.is_kept() {
        "if the node that its consumer is connected to dies, the queue stands still for that long"
    } else {
        "if the node that a consumer is connected to dies, what the consumer held is not redelivered for that long"
    };
    let seen = format!("{source} sets {KEY} to {}: {harm}", format_duration(kept));
    let remedy =
        format!("lower it to {} (ms), the default, or remove it", DISCONNECTED.as_millis());
    Some(Finding::new(Check::DisconnectedTimeoutLong, queue(&config.queue), seen, remedy))
}
