//! What the tests on real brokers share: one test's part of a broker, and the services that run on
//! it.

mod fixture;
pub(crate) mod frame_hold;
mod log;
pub(crate) mod raw_amqp;
mod running;

use std::time::{Duration, SystemTime};

use rehop::{Backoff, Status, Timestamp};
use rehop_testing::{Broker, Management, Received, eventually};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

pub(crate) use fixture::Fixture;
pub(crate) use log::Log;
pub(crate) use rehop_testing::not_tried;
pub(crate) use running::Running;

/// How long anything may take. It is shorter than the three minutes after which the broker
/// dead-letters again what it could not.
pub(crate) const SOON: Duration = Duration::from_secs(150);

/// How long what waits for nothing may take. It is below the defaults of the grace time and of the
/// startup timeout, and leaves a busy machine time.
pub(crate) const PROMPTLY: Duration = Duration::from_secs(25);

/// What tests of strategy `native` leave untested where they have to.
pub(crate) const DELAYED_RETRIES: &str = "delayed retries, because the broker is older than 4.3";

pub(crate) fn millis(millis: impl IntoIterator<Item = u64>) -> Option<Backoff> {
    Some(Backoff::List(millis.into_iter().map(Duration::from_millis).collect()))
}

/// What a message's header says of its failures, oldest first.
pub(crate) fn failures(message: &Received) -> Vec<Value> {
    let text = message.headers["rehop-errors"].as_str().expect("the history is text");
    serde_json::from_str(text).unwrap()
}

pub(crate) fn now_millis() -> i64 {
    Timestamp::from(SystemTime::now()).as_millis()
}

/// Whether the shared broker is older than 4.3.
pub(crate) async fn is_before_4_3() -> bool {
    let version = Broker::shared().await.version();
    ["3.", "4.0.", "4.1.", "4.2."].iter().any(|old| version.starts_with(old))
}

/// Waits until the service holds no delivery: all that it got are settled.
pub(crate) async fn is_idle(status: &Status) {
    let holds_none = async || match status.queues().iter().map(|queue| queue.in_flight).sum::<u64>()
    {
        0 => Ok(true),
        held => Err(format!("{held} in flight")),
    };
    eventually(SOON, "every delivery is settled", holds_none).await.unwrap();
}

/// Whether the broker holds so many messages of the queue, and no consumer can get any of them:
/// they are to be dead-lettered. Else what the management API counts.
pub(crate) async fn are_held_by_the_broker(
    management: &Management,
    queue: &str,
    count: usize,
) -> Result<bool, String> {
    let counted = management.queue(queue).await.map_err(|error| error.to_string())?;
    let counts = ["messages", "messages_ready", "messages_unacknowledged"]
        .map(|name| counted[name].as_u64());
    if counts == [Some(count as u64), Some(0), Some(0)] {
        Ok(true)
    } else {
        Err(format!("{counts:?}"))
    }
}

/// A broker that tests restart and reconfigure, one at a time.
pub(crate) async fn fragile_broker() -> MutexGuard<'static, Broker> {
    static BROKER: OnceCell<Mutex<Broker>> = OnceCell::const_new();
    let start = async || Mutex::new(Broker::builder().own().start().await.unwrap());
    BROKER.get_or_init(start).await.lock().await
}
