//! Logs how often attempts have failed that have no log line of their own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::clock;
use crate::consume::failure_counts::{Count, FailureCounts};

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
        self.with(|counts| counts.is_first(class, now))
    }

    /// Logs what is left when the run ends.
    pub(crate) fn end(&self) {
        self.log(self.with(|counts| counts.rest(clock::now())));
    }

    fn log(&self, counts: Vec<Count>) {
        for Count { class, failures, within } in counts {
            let (queue, seconds) = (&self.queue, within.as_secs());
            tracing::info!(queue, class, failures, seconds, "more attempts failed; they are retried");
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut FailureCounts) -> T) -> T {
        act(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Logs the counts of these queues when they are due, until it is dropped.
pub(crate) async fn log_counts(logs: Vec<Arc<FailureLog>>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        for log in &logs {
            log.log(log.with(|counts| counts.due(clock::now())));
        }
    }
}
