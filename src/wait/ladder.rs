//! The ladder: wait queues whose TTLs double, for any delay.

use std::time::Duration;

use super::{MAX_DELAY, Path, Route, millis};

/// The longest TTL that a queue can have, in milliseconds (3.10, 4.0 and 4.3).
const MAX_TTL: u64 = u32::MAX as u64;

/// Wait queues, called rungs, whose TTLs are a smallest one, its double, and so on. A delay is the
/// sum of some of them: those of the bits that are set in the delay, counted in the smallest TTL. A
/// message takes them from the longest down, so it comes to no queue twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ladder {
    rung: u64,
    precision: u32,
    max: u64,
}

impl Ladder {
    /// The ladder with this smallest rung, whose waits have at most `precision` legs.
    pub(crate) fn new(rung: Duration, precision: u8, max: Duration) -> Self {
        Self {
            rung: millis(rung).max(1),
            precision: u32::from(precision.clamp(1, 8)),
            max: millis(max.min(MAX_DELAY)),
        }
    }

    /// Whether the longest wait needs a TTL that no queue can have.
    pub(crate) fn is_too_high(&self) -> bool {
        self.total(self.max) > MAX_TTL
    }

    /// The TTLs of all rungs, the shortest first.
    pub(crate) fn rungs(&self) -> impl Iterator<Item = Duration> + use<> {
        let (rung, top) = (self.rung, (self.total(self.max) / self.rung).ilog2());
        (0..=top).map(move |bit| Duration::from_millis(rung << bit))
    }

    /// The rungs that may follow this one. A wait has only `precision` significant bits, so no
    /// lower ones follow.
    pub(crate) fn followers(&self, rung: Duration) -> impl Iterator<Item = Duration> + use<> {
        let (lowest, highest) = (self.rung, millis(rung));
        (1..self.precision)
            .map(move |bit| highest >> bit)
            .take_while(move |ttl| *ttl >= lowest)
            .map(Duration::from_millis)
    }

    /// The shortest wait that is at least as long as the delay. `None` if the delay is above
    /// [`longest_wait`](Self::longest_wait).
    pub(crate) fn route(&self, delay: Duration) -> Option<Route> {
        if delay > self.longest_wait() {
            return None;
        }
        let total = Duration::from_millis(self.total(millis(delay)));
        Some(Route {
            path: Path::Ladder { rung: Duration::from_millis(self.rung) },
            leg: total,
            total,
        })
    }

    /// The longest delay that has a route.
    pub(crate) fn longest_wait(&self) -> Duration {
        Duration::from_millis(self.max)
    }

    /// A delay in milliseconds, rounded up to what the rungs can make of few legs.
    fn total(&self, delay: u64) -> u64 {
        let units = delay.div_ceil(self.rung).max(1);
        let bits = u64::BITS - units.leading_zeros();
        let cut = bits.saturating_sub(self.precision);
        (units.div_ceil(1 << cut) << cut).saturating_mul(self.rung)
    }
}

/// The rungs that add up to this sum, the longest first, if the shortest rung of the ladder is
/// `rung`.
pub(crate) fn legs(sum: Duration, rung: Duration) -> impl Iterator<Item = Duration> {
    let rung = millis(rung).max(1);
    let units = millis(sum) / rung;
    (0..u64::BITS)
        .rev()
        .filter(move |bit| units >> bit & 1 == 1)
        .map(move |bit| Duration::from_millis(rung << bit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::inputs::inputs;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn standard() -> Ladder {
        Ladder::new(seconds(1), 4, MAX_DELAY)
    }

    #[test]
    fn a_delay_is_rounded_up_to_four_significant_bits_and_taken_from_the_highest_down() {
        let check = |delay: Duration, expected: &[u64]| {
            let route = standard().route(delay).unwrap();
            assert_eq!(
                (route.path, route.leg),
                (Path::Ladder { rung: seconds(1) }, route.total),
                "{delay:?}"
            );
            let taken: Vec<_> = legs(route.leg, seconds(1)).collect();
            assert_eq!(
                taken,
                expected.iter().copied().map(seconds).collect::<Vec<_>>(),
                "{delay:?}"
            );
            assert_eq!(taken.iter().sum::<Duration>(), route.total);
        };
        check(Duration::ZERO, &[1]);
        check(Duration::from_nanos(1), &[1]);
        check(seconds(1), &[1]);
        check(Duration::from_millis(1_001), &[2]);
        check(seconds(15), &[8, 4, 2, 1]);
        check(seconds(16), &[16]);
        check(seconds(17), &[16, 2]);
        check(seconds(31), &[32]);
        check(seconds(60), &[32, 16, 8, 4]);
        check(seconds(3_600), &[2_048, 1_024, 512, 256]);
    }

    #[test]
    fn the_standard_ladder_has_22_rungs_and_60_ways_from_one_to_another() {
        let rungs: Vec<_> = standard().rungs().collect();
        assert_eq!((rungs.len(), rungs[0], rungs[21]), (22, seconds(1), seconds(1 << 21)));
        assert_eq!(rungs.iter().map(|rung| standard().followers(*rung).count()).sum::<usize>(), 60);
        assert_eq!(standard().followers(seconds(8)).collect::<Vec<_>>(), [4, 2, 1].map(seconds));
        assert_eq!(standard().followers(seconds(2)).collect::<Vec<_>>(), [seconds(1)]);
        assert_eq!(standard().followers(seconds(1)).count(), 0);
    }

    #[test]
    fn nothing_waits_longer_than_the_ladder_and_no_queue_needs_a_ttl_that_it_cannot_have() {
        let ladder = Ladder::new(seconds(1), 4, seconds(20));
        assert_eq!(
            (ladder.longest_wait(), ladder.rungs().last()),
            (seconds(20), Some(seconds(16)))
        );
        assert!(ladder.route(seconds(20)).is_some());
        assert_eq!(ladder.route(seconds(20) + Duration::from_nanos(1)), None);
        assert_eq!(ladder.route(Duration::MAX), None);
        assert_eq!(Ladder::new(seconds(1), 4, Duration::MAX).longest_wait(), MAX_DELAY);
        assert!(!standard().is_too_high());
        // 34 rungs are rounded up to 64, which is 59 days.
        assert!(Ladder::new(seconds(80_000), 1, MAX_DELAY).is_too_high());
        let of_one_rung = |ttl| Ladder::new(Duration::from_millis(ttl), 1, MAX_DELAY);
        assert_eq!([MAX_TTL, MAX_TTL + 1].map(|ttl| of_one_rung(ttl).is_too_high()), [false, true]);
    }

    proptest! {
        #![proptest_config(inputs(1_000))]

        #[test]
        fn a_wait_on_the_ladder_is_never_shorter_than_asked_and_longer_by_a_bounded_part(
            rung in 1u64..100_000, precision in 1u8..=8, delay in 0u64..2_592_000_000, more in 0u64..1_000_000,
        ) {
            let ladder = Ladder::new(Duration::from_millis(rung), precision, MAX_DELAY);
            let total = |delay: u64| ladder.route(Duration::from_millis(delay)).map(|route| route.total.as_millis() as u64);
            let found = total(delay).unwrap();
            prop_assert!(found >= delay);
            let units = delay.div_ceil(rung).max(1) * rung;
            prop_assert!((found - units) << (precision - 1) < units, "{found} for {units}");
            if let Some(longer) = total(delay + more) {
                prop_assert!(longer >= found, "rounding is monotone");
            }
            let taken: Vec<_> = legs(Duration::from_millis(found), Duration::from_millis(rung)).collect();
            prop_assert!(taken.len() <= usize::from(precision));
            prop_assert_eq!(taken.iter().sum::<Duration>(), Duration::from_millis(found));
            let rungs: Vec<_> = ladder.rungs().collect();
            prop_assert!(taken.iter().all(|leg| rungs.contains(leg)));
            for step in taken.windows(2) {
                prop_assert!(ladder.followers(step[0]).any(|ttl| ttl == step[1]), "{:?}", step);
            }
        }

        #[test]
        fn legs_can_be_told_from_their_sum_and_any_rung_that_divides_them(
            rung in 1u64..10_000, precision in 1u8..=8, delay in 0u64..2_592_000_000,
        ) {
            let ladder = Ladder::new(Duration::from_millis(rung), precision, MAX_DELAY);
            let route = ladder.route(Duration::from_millis(delay)).unwrap();
            let taken: Vec<_> = legs(route.leg, Duration::from_millis(rung)).collect();
            // As for a copy that came home after some of its legs.
            for end in 1..=taken.len() {
                let part = &taken[..end];
                prop_assert_eq!(legs(part.iter().sum(), part[end - 1]).collect::<Vec<_>>(), part);
            }
        }
    }
}
