//! The service's settings: two queues, each with a policy of its own. All durations are short, so
//! that the demo is quick.

use std::ops::RangeInclusive;
use std::time::Duration;

use rehop::settings::{AskedDelays, Jitter, WaitStrategy};
use rehop::{Backoff, Settings};

pub(crate) const NAMESPACE: &str = "billing";
pub(crate) const STRAY: &str = "billing.stray";
/// Messages of this queue wait in tiers; where a delay is asked for, on the ladder.
pub(crate) const ORDERS: &str = "orders";
/// Messages of this queue wait on the ladder, with jitter.
pub(crate) const REFUNDS: &str = "refunds";

/// A URL for settings whose broker is simulated: nothing connects to it.
pub(crate) const SIMULATED_URL: &str = "amqp://127.0.0.1";

/// The delays of the orders. None is the second that `Retry-After` asks for, so that wait needs the
/// ladder.
pub(crate) const WAITS: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_millis(800), Duration::from_secs(2)];
/// The delay of the refunds, before jitter. It is the sum of few rungs, as its half is, so that
/// rounding changes neither.
const JITTERED: Duration = Duration::from_millis(1600);
/// How often refunds wait at most: enough to outlast an outage even if each wait is a short one.
const JITTERED_WAITS: u32 = 5;
/// The TTL of the ladder's shortest queue, and the longest wait: more than anything in the demo
/// waits.
const LADDER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(3200));

pub(crate) fn settings(amqp_url: &str) -> Settings {
    let mut settings = Settings::default();
    settings.namespace = NAMESPACE.to_owned();
    settings.broker.url = amqp_url.to_owned().into();
    settings.retry.delivery_limit = Some(5);
    settings.consume.prefetch = Some(50);
    settings.consume.concurrency = Some(10);
    settings.shutdown.grace = Duration::from_secs(5);
    (settings.ladder.rung, settings.ladder.max) = LADDER;

    let orders = &mut settings.queue_mut(ORDERS).retry;
    orders.immediate = Some(1);
    orders.delays = Some(Backoff::List(WAITS.to_vec()));
    orders.after = Some(AskedDelays::Ladder);

    let refunds = &mut settings.queue_mut(REFUNDS).retry;
    refunds.immediate = Some(0);
    refunds.delays = Some(Backoff::Fixed { delay: JITTERED, waits: JITTERED_WAITS });
    refunds.strategy = Some(WaitStrategy::Ladder);
    refunds.jitter = Some(Jitter::Equal);
    settings
}

/// The bounds of the refunds' waits, in milliseconds: equal jitter draws from half of the delay to
/// all of it.
pub(crate) fn jitter_bounds() -> RangeInclusive<u64> {
    let most = JITTERED.as_millis() as u64;
    most / 2..=most
}
