//! The broker's ack timeout: what the settings say, until the broker names a shorter one. That then
//! holds until the restart: a longer one could only be found out by losing deliveries to a shorter
//! one.
//!
//! 3.10 and 4.0 close the channel and name the timeout. 4.3 has it from its consumers, which ask
//! for what the settings say.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::settings::settle_limit;

/// How long a delivery may stay unsettled.
#[derive(Debug)]
pub(crate) struct AckTimeout {
    /// What the settings say.
    pub(crate) configured: Duration,
    /// The shortest that is known, in milliseconds.
    known: AtomicU64,
}

impl AckTimeout {
    pub(crate) fn new(configured: Duration) -> Self {
        Self { configured, known: AtomicU64::new(millis(configured)) }
    }

    /// A little less than the timeout.
    pub(crate) fn settle_limit(&self) -> Duration {
        settle_limit(Duration::from_millis(self.known.load(Ordering::Relaxed)))
    }

    /// Whether the broker may have taken back a delivery that is unsettled after this time.
    pub(crate) fn is_over_after(&self, held_for: Duration) -> bool {
        held_for >= self.settle_limit()
    }

    /// Notes the timeout that the broker has named. Returns whether it is shorter than what was
    /// known.
    pub(crate) fn named(&self, timeout: Duration) -> bool {
        self.known.fetch_min(millis(timeout), Ordering::Relaxed) > millis(timeout)
    }
}

fn millis(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)
}

/// Whether the broker has closed a channel over its timeout. 3.10 and 4.0 always do; 4.3 does if
/// the subscription that brought the message has ended.
pub(crate) fn is_ack_timeout(problem: &str) -> bool {
    problem.contains(ACK_TIMEOUT)
}

/// The timeout that the broker names when it closes a channel over it (3.10 and 4.0). 4.3 names -1.
pub(crate) fn named_in(problem: &str) -> Option<Duration> {
    let (_, rest) = problem.split_once(ACK_TIMEOUT)?;
    let (_, rest) = rest.split_once("Timeout value used: ")?;
    let digits = rest.split(|it: char| !it.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|millis| *millis > 0).map(Duration::from_millis)
}

/// What the broker says of it.
const ACK_TIMEOUT: &str = "delivery acknowledgement on channel";

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn only_a_shorter_timeout_is_news_and_a_little_of_it_is_kept_free() {
        let timeout = AckTimeout::new(seconds(1_800));
        assert_eq!(timeout.settle_limit(), seconds(1_770));
        assert_eq!([1_800, 3_600].map(|long| timeout.named(seconds(long))), [false, false]);
        assert_eq!([10, 10, 20].map(|short| timeout.named(seconds(short))), [true, false, false]);
        assert_eq!(timeout.settle_limit(), Duration::from_millis(9_500));
    }

    #[test]
    fn the_timeout_is_read_from_what_the_broker_says() {
        let said = |value: &str| {
            format!(
                "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: {value}"
            )
        };
        let rest =
            " ms. This timeout value can be configured, see consumers doc guide to learn more";
        assert_eq!(named_in(&(said("10000") + rest)), Some(seconds(10)));
        assert_eq!(named_in(&(said("-1") + rest)), None);
        assert_eq!(named_in(&(said("0") + rest)), None);
        assert_eq!(named_in(&said("99999999999999999999999999")), None);
        assert_eq!(named_in("Timeout value used: 10000 ms"), None);
        assert_eq!(named_in("CONNECTION_FORCED - broker forced connection closure"), None);
        assert!(["10000", "-1"].iter().all(|value| is_ack_timeout(&(said(value) + rest))));
        assert!(!is_ack_timeout("CONNECTION_FORCED - broker forced connection closure"));
    }
}
