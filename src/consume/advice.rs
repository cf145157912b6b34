//! What is said once for each queue: that a handler ran on after its time limit, and that a message
//! waits much longer than its handler asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What was said of one queue.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    of_blocking: AtomicBool,
    of_waits: AtomicBool,
}

impl Advice {
    /// Warns if an attempt took much longer than its limit.
    pub(crate) fn warn_if_blocked(
        &self,
        (queue, chain): (&str, &str),
        took: Duration,
        limit: Duration,
    ) {
        if has_blocked(took, limit) && !self.of_blocking.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                queue,
                chain,
                "a handler ran for {took:.1?} although handler_timeout is {limit:.1?}: it or another task blocked the thread, or the \
                 process got no CPU time; run what blocks in tokio::task::spawn_blocking"
            );
        }
    }

    /// Tells of a wait that is much longer than its handler asked.
    pub(crate) fn note_long_wait(
        &self,
        (queue, chain): (&str, &str),
        asked: Duration,
        waits: Duration,
    ) {
        if is_far_longer(asked, waits) && !self.of_waits.swap(true, Ordering::Relaxed) {
            let asked = humantime::format_duration(asked);
            // Without the fractions that jitter makes.
            let waits = humantime::format_duration(Duration::from_secs(waits.as_secs()));
            tracing::info!(
                queue,
                chain,
                "a handler asked for a wait of {asked}, and the message waits for {waits}: no delay of the policy is nearer; \
                 retry.after = \"ladder\" gives it a nearer one"
            );
        }
    }
}

/// A handler that awaits now and then ends soon after its limit, even on a busy machine.
fn has_blocked(took: Duration, limit: Duration) -> bool {
    took > limit + (limit / 2).clamp(Duration::from_secs(1), Duration::from_secs(30))
}

/// More than jitter explains, and more than a few seconds. Who asks for no time takes what comes.
fn is_far_longer(asked: Duration, waits: Duration) -> bool {
    !asked.is_zero() && waits > 2 * asked && waits - asked > Duration::from_secs(5)
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
            (3_631_000, 3_600_000, true),
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
            (0, 10_000, false),
            (60_000, 10_000, false),
        ] {
            assert_eq!(is_far_longer(ms(asked), ms(waits)), expected, "{waits} for {asked}");
        }
    }
}
