//! Logs how often attempts have failed that have no log line of their own.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::clock;
use crate::consume::failure_counts::{COUNTED_EVERY, Count, FailureCounts};
use crate::lock::lock;

/// How often due counts are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The failures of one queue that have no log line of their own.
#[derive(Debug)]
pub(crate) struct FailureLog {
    queue: String,
    counts: Mutex<FailureCounts>,
}

impl FailureLog {
    pub(crate) fn new(queue: &str) -> Self {
        Self { queue: queue.to_owned(), counts: Mutex::default() }
    }

    /// Takes a failure. True if it gets a line of its own.
    pub(crate) fn is_first(&self, class: &str, now: Instant) -> bool {
        lock(&self.counts).is_first(class, now)
    }

    /// Logs the counts of the classes whose last line has this age.
    pub(crate) fn log(&self, age: Duration) {
        let counts = lock(&self.counts).take(clock::now(), age);
        for Count { class, failures, within } in counts {
            let (queue, seconds) = (&self.queue, within.as_secs());
            tracing::info!(
                queue,
                class,
                failures,
                seconds,
                "more attempts failed; they are retried"
            );
        }
    }
}

/// Logs the counts of these queues when they are due, until it is dropped.
pub(crate) async fn log_counts(logs: Vec<Arc<FailureLog>>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        for log in &logs {
            log.log(COUNTED_EVERY);
        }
    }
}
