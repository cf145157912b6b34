//! Tiers: wait queues with one fixed TTL each.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{MAX_DELAY, Path, Route, millis};

/// The most legs that one wait may have. Each leg is a copy to publish, and their number would
/// otherwise be up to whoever sends a `Retry-After`.
pub(crate) const MAX_LEGS: u32 = 8;

/// The TTLs of the wait queues that a policy may use, in whole milliseconds.
///
/// One TTL per queue keeps a message from waiting behind a slower one: RabbitMQ expires messages
/// from the head of a queue only (3.10, 4.0 and 4.3 alike).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tiers(BTreeSet<u64>);

impl Tiers {
    pub(crate) fn new(delays: impl IntoIterator<Item = Duration>) -> Self {
        Self(delays.into_iter().map(millis).collect())
    }

    /// The longest delay that has a route: [`MAX_LEGS`] times the longest tier, and [`MAX_DELAY`]
    /// at most. Zero without any tier.
    pub(crate) fn longest_wait(&self) -> Duration {
        let longest = self.0.last().copied().map_or(Duration::ZERO, Duration::from_millis);
        longest.saturating_mul(MAX_LEGS).min(MAX_DELAY)
    }

    /// The shortest wait that is at least as long as the delay. `None` if the delay is above
    /// [`longest_wait`](Self::longest_wait).
    pub(crate) fn route(&self, delay: Duration) -> Option<Route> {
        if delay > self.longest_wait() {
            return None;
        }
        let longest = *self.0.last()?;
        let delay = millis(delay);
        let whole = delay.saturating_sub(1) / longest;
        let rest = delay - whole * longest;
        let last = *self.0.range(rest..).next()?;
        let tier = if whole > 0 { longest } else { last };
        let total = Duration::from_millis(whole * longest + last);
        Some(Route { path: Path::Tier, leg: Duration::from_millis(tier), total })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Duration> {
        self.0.iter().copied().map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::inputs;
    use proptest::prelude::*;

    fn tiers(millis: &[u64]) -> Tiers {
        Tiers::new(millis.iter().copied().map(Duration::from_millis))
    }

    #[test]
    fn a_delay_goes_to_the_smallest_tier_that_is_long_enough() {
        let check = |delay, tier, total| {
            let route = tiers(&[100, 300]).route(Duration::from_micros(delay)).unwrap();
            assert_eq!(
                (route.leg.as_millis(), route.total.as_millis()),
                (tier, total),
                "a delay of {delay} us"
            );
        };
        check(0, 100, 100);
        check(100_000, 100, 100);
        check(100_001, 300, 300);
        check(300_000, 300, 300);
        check(350_000, 300, 400);
        check(600_000, 300, 600);
        check(750_000, 300, 900);
        check(2_400_000, 300, 2_400);
    }

    #[test]
    fn the_longest_wait_is_eight_of_the_longest_tier_and_thirty_days_at_most() {
        let check = |tiers: Tiers, longest: Duration| {
            assert_eq!(tiers.longest_wait(), longest, "{tiers:?}");
            assert_eq!(tiers.route(longest + Duration::from_nanos(1)), None, "{tiers:?}");
            assert!(longest.is_zero() || tiers.route(longest).is_some(), "{tiers:?}");
        };
        check(tiers(&[]), Duration::ZERO);
        check(tiers(&[1]), Duration::from_millis(8));
        check(tiers(&[300, 100]), Duration::from_millis(2_400));
        check(Tiers::new([MAX_DELAY / 8]), MAX_DELAY);
        check(Tiers::new([MAX_DELAY]), MAX_DELAY);
        check(Tiers::new([Duration::MAX]), MAX_DELAY);
        assert_eq!(tiers(&[]).route(Duration::ZERO), None);
    }

    proptest! {
        #![proptest_config(inputs(256))]

        #[test]
        fn a_wait_is_never_shorter_than_asked_and_at_most_one_tier_longer(
            set in prop::collection::btree_set(1u64..1_000_000, 1..8),
            part in 0.0..=1.0,
        ) {
            let longest = *set.last().unwrap();
            let tiers = tiers(&set.iter().copied().collect::<Vec<_>>());
            let delay = tiers.longest_wait().mul_f64(part);
            let route = tiers.route(delay).unwrap();
            prop_assert!(route.total >= delay);
            prop_assert!(route.total < delay.max(Duration::from_millis(1)) + Duration::from_millis(longest));
            prop_assert!(route.total <= tiers.longest_wait());
            prop_assert!(set.contains(&(route.leg.as_millis() as u64)));
            prop_assert!(route.leg <= route.total);
        }
    }
}
