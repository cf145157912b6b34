//! Tiers: wait queues with one fixed TTL each, and how a delay is made of them.

use std::collections::BTreeSet;
use std::time::Duration;

/// The TTLs of the wait queues that a policy may use, in whole milliseconds.
///
/// One TTL per queue keeps a message from waiting behind a slower one: RabbitMQ expires messages from the head of a queue
/// only (3.10, 4.0 and 4.3 alike).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tiers(BTreeSet<u64>);

/// How a delay is waited out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The tier to enter now.
    pub(crate) tier: Duration,
    /// How long the wait lasts in all. Longer than `tier` when no tier is long enough: the message then comes home early and
    /// is sent on, without an attempt, until the whole of it has passed.
    pub(crate) total: Duration,
}

impl Tiers {
    pub(crate) fn new(delays: impl IntoIterator<Item = Duration>) -> Self {
        Self(delays.into_iter().map(millis).collect())
    }

    /// The shortest wait that these tiers can make of a delay, never a shorter one. `None` without any tier.
    pub(crate) fn plan(&self, delay: Duration) -> Option<Plan> {
        let longest = *self.0.last()?;
        let delay = millis(delay);
        let whole = delay.saturating_sub(1) / longest;
        let rest = delay - whole * longest;
        let last = *self.0.range(rest..).next()?;
        let tier = if whole > 0 { longest } else { last };
        Some(Plan {
            tier: Duration::from_millis(tier),
            total: Duration::from_millis(whole.saturating_mul(longest).saturating_add(last)),
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Duration> {
        self.0.iter().copied().map(Duration::from_millis)
    }
}

/// A delay in whole milliseconds, rounded up so that nothing comes early.
fn millis(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
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
            let plan = tiers(&[100, 300]).plan(Duration::from_micros(delay)).unwrap();
            assert_eq!((plan.tier.as_millis(), plan.total.as_millis()), (tier, total), "a delay of {delay} us");
        };
        check(0, 100, 100);
        check(100_000, 100, 100);
        check(100_001, 300, 300);
        check(300_000, 300, 300);
        check(350_000, 300, 400);
        check(600_000, 300, 600);
        check(750_000, 300, 900);
        assert_eq!(tiers(&[]).plan(Duration::ZERO), None);
    }

    proptest! {
        #![proptest_config(inputs(256))]

        #[test]
        fn a_wait_is_never_shorter_than_asked_and_at_most_one_tier_longer(
            set in prop::collection::btree_set(1u64..1_000_000, 1..8),
            delay in 0u64..1_000_000_000,
        ) {
            let longest = *set.last().unwrap();
            let plan = tiers(&set.iter().copied().collect::<Vec<_>>()).plan(Duration::from_millis(delay)).unwrap();
            let total = plan.total.as_millis() as u64;
            prop_assert!(total >= delay);
            prop_assert!(total < delay.max(1) + longest);
            prop_assert!(set.contains(&(plan.tier.as_millis() as u64)));
            prop_assert!(plan.tier <= plan.total);
        }
    }
}
