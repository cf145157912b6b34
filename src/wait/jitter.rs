//! Jitter: random waits, so that messages that failed together do not come back together.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How much of a policy's delays is random: the setting `retry.jitter`.
///
/// A delay that a handler or a remote service asks for only grows, by up to a half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Jitter {
    /// Nothing.
    #[default]
    None,
    /// All of it: above zero, and at most the delay.
    Full,
    /// Half of it: from half the delay to the delay.
    Equal,
    /// From the first of the policy's delays to three times the last wait, and at most the longest
    /// of the delays. Only their number counts beside these two.
    Decorrelated,
}

/// A random number from 0, included, to 1, excluded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Draw(f64);

impl Draw {
    /// The draw of tests and forecasts, in which nothing is random.
    pub(crate) const MIDDLE: Self = Self(0.5);

    pub(crate) fn new(number: f64) -> Self {
        Self(if (0.0..1.0).contains(&number) { number } else { 0.0 })
    }
}

/// What decorrelated jitter draws from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    /// The first delay of the policy.
    pub(crate) first: Duration,
    /// The longest delay of the policy.
    pub(crate) longest: Duration,
    /// How long the last wait was, if there was one.
    pub(crate) previous: Option<Duration>,
}

impl Jitter {
    /// The wait that is made of a delay of the policy.
    pub(crate) fn of_policy(self, delay: Duration, range: Range, Draw(draw): Draw) -> Duration {
        // The draw excludes 1, so what is left of the delay is never nothing.
        let part = 1.0 - draw;
        match self {
            Self::None => delay,
            Self::Full => delay.mul_f64(part).max(Duration::from_millis(1)).min(delay),
            Self::Equal => (delay / 2 + (delay / 2).mul_f64(part)).min(delay),
            Self::Decorrelated => {
                let most = range
                    .previous
                    .unwrap_or(range.first)
                    .saturating_mul(3)
                    .min(range.longest)
                    .max(range.first);
                (range.first + (most - range.first).mul_f64(draw)).min(most)
            }
        }
    }

    /// The wait that is made of a delay that was asked for: never shorter.
    pub(crate) fn of_asked(self, delay: Duration, longest: Duration, Draw(draw): Draw) -> Duration {
        // What cannot be waited for at all must not overflow here.
        if self == Self::None || delay >= longest {
            return delay;
        }
        (delay + (delay / 2).mul_f64(draw)).clamp(delay, longest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::inputs::inputs;
    use crate::wait::MAX_DELAY;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn each_kind_draws_from_its_own_range() {
        let range = |previous| Range { first: seconds(1.0), longest: seconds(20.0), previous };
        let check = |kind: Jitter, previous: Option<f64>, draw: f64, expected: f64| {
            let wait = kind.of_policy(seconds(8.0), range(previous.map(seconds)), Draw::new(draw));
            assert_eq!(wait, seconds(expected), "{kind:?} at {draw}");
        };
        check(Jitter::None, None, 0.9, 8.0);
        check(Jitter::Full, None, 0.0, 8.0);
        check(Jitter::Full, None, 0.75, 2.0);
        check(Jitter::Equal, None, 0.0, 8.0);
        check(Jitter::Equal, None, 0.5, 6.0);
        check(Jitter::Decorrelated, None, 0.0, 1.0);
        check(Jitter::Decorrelated, None, 0.5, 2.0);
        check(Jitter::Decorrelated, Some(5.0), 0.5, 8.0);
        check(Jitter::Decorrelated, Some(15.0), 0.5, 10.5);
        check(Jitter::Decorrelated, Some(0.1), 0.9, 1.0);
    }

    #[test]
    fn an_asked_delay_grows_by_up_to_a_half_and_not_above_the_longest_wait() {
        let asked = |kind: Jitter, asked: f64, draw| {
            kind.of_asked(seconds(asked), seconds(10.0), Draw::new(draw))
        };
        assert_eq!(asked(Jitter::None, 4.0, 0.9), seconds(4.0));
        assert_eq!(asked(Jitter::Full, 4.0, 0.0), seconds(4.0));
        assert_eq!(asked(Jitter::Equal, 4.0, 0.5), seconds(5.0));
        assert_eq!(asked(Jitter::Decorrelated, 9.0, 0.9), seconds(10.0));
        assert_eq!(asked(Jitter::Full, 10.0, 0.9), seconds(10.0));
        assert_eq!(
            Jitter::Full.of_asked(Duration::MAX, seconds(10.0), Draw::new(0.9)),
            Duration::MAX
        );
    }

    #[test]
    fn a_number_that_is_no_draw_is_none() {
        for number in [-0.1, 1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Draw::new(number), Draw::new(0.0));
        }
    }

    proptest! {
        #![proptest_config(inputs(1_000))]

        #[test]
        fn jitter_stays_within_its_bounds(
            delay in 1u64..=2_592_000_000, first in 1u64..=2_592_000_000, longest in 1u64..=2_592_000_000,
            previous in prop::option::of(0u64..=6_000_000_000), draw in 0.0f64..1.0,
        ) {
            let millis = Duration::from_millis;
            let (delay, draw) = (millis(delay), Draw::new(draw));
            let range = Range { first: millis(first), longest: millis(longest.max(first)), previous: previous.map(millis) };
            let of_policy = |kind: Jitter| kind.of_policy(delay, range, draw);
            prop_assert_eq!(of_policy(Jitter::None), delay);
            prop_assert!(of_policy(Jitter::Full) > Duration::ZERO && of_policy(Jitter::Full) <= delay);
            prop_assert!(of_policy(Jitter::Equal) >= delay / 2 && of_policy(Jitter::Equal) <= delay);
            let decorrelated = of_policy(Jitter::Decorrelated);
            prop_assert!(decorrelated >= range.first && decorrelated <= range.longest);
            prop_assert!(decorrelated <= range.previous.unwrap_or(range.first).max(range.first).saturating_mul(3));
            for kind in [Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated] {
                prop_assert!(of_policy(kind) <= MAX_DELAY);
                let asked = kind.of_asked(delay, MAX_DELAY, draw);
                prop_assert!(asked >= delay && asked <= (delay + delay / 2).min(MAX_DELAY));
            }
        }
    }
}
