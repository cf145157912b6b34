//! What is said once for each queue: that a handler blocked its thread, and that a message waits much
//! longer than its handler asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What was said of one queue.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    of_blocking: AtomicBool,
    of_waits: AtomicBool,
}

impl Advice {
    /// A handler has run for so long.
    pub(crate) fn handler_ran(&self, queue: &str, took: Duration, limit: Duration) {
        if has_blocked(took, limit) && !self.of_blocking.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                queue,
                "a handler ran for {took:.1?}, and handler_timeout, {limit:.1?}, could not end it: it blocked its thread, or another \
                 handler did, or the process was stopped; run what blocks in tokio::task::spawn_blocking"
            );
        }
    }

    /// A message waits for so long, and its handler asked for another wait.
    pub(crate) fn asked_to_wait(&self, queue: &str, asked: Duration, waits: Duration) {
        if is_far_longer(asked, waits) && !self.of_waits.swap(true, Ordering::Relaxed) {
            tracing::info!(
                queue,
                "a handler asked for a wait of {asked:.0?}, and the message waits for {waits:.0?}, as no wait queue is nearer: add this \
                 wait to retry.delays, or set retry.after = \"ladder\""
            );
        }
    }
}

/// A handler that awaits now and then ends soon after its limit, even on a busy machine.
fn has_blocked(took: Duration, limit: Duration) -> bool {
    took > limit + (limit / 2).max(Duration::from_secs(1))
}

/// More than jitter and the rounding to milliseconds explain.
fn is_far_longer(asked: Duration, waits: Duration) -> bool {
    waits > 2 * asked && waits - asked > Duration::from_secs(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_handler_has_blocked_if_its_limit_could_not_end_it() {
        for (took, limit, expected) in [
            (8_000, 2_000, true),
            (3_000, 2_000, false),
            (3_001, 2_000, true),
            (1_050, 100, false),
            (1_101, 100, true),
            (65_000, 60_000, false),
            (91_000, 60_000, true),
        ] {
            assert_eq!(has_blocked(ms(took), ms(limit)), expected, "{took} of {limit}");
        }
    }

    #[test]
    fn a_wait_is_far_longer_if_that_is_no_jitter_and_matters() {
        for (asked, waits, expected) in [
            (12_000, 60_000, true),
            (12_000, 18_000, false),
            (40_000, 60_000, false),
            (100, 3_000, false),
            (1_000, 10_000, true),
            (0, 10_000, true),
            (60_000, 10_000, false),
        ] {
            assert_eq!(is_far_longer(ms(asked), ms(waits)), expected, "{waits} for {asked}");
        }
    }
}
