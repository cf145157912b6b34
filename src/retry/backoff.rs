//! Backoff: how long the waits of a chain last.

use std::time::Duration;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use crate::duration;
use crate::wait::MAX_DELAY;

/// The most waits that a policy may have.
pub const MAX_WAITS: u32 = 100;

/// How long each wait lasts.
///
/// In settings, a list of durations, or a table with `kind` `"fixed"` or `"exponential"`:
///
/// ```toml
/// delays = ["10s", "1m", "10m"]
/// delays = { kind = "fixed", delay = "30s", waits = 5 }
/// delays = { kind = "exponential", initial = "1s", factor = 3.0, max = "10m", waits = 8 }
/// ```
///
/// ```
/// use rehop::Backoff;
/// use std::time::Duration;
/// let seconds = |s| Duration::from_secs(s);
/// let backoff = Backoff::Exponential { initial: seconds(1), factor: 3.0, max: seconds(20), waits: 4 };
/// assert_eq!(backoff.delays(), [seconds(1), seconds(3), seconds(9), seconds(20)]);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Backoff {
    /// These delays, in order. An empty list means no waits.
    List(#[serde(serialize_with = "duration::list")] Vec<Duration>),
    /// The same delay each time.
    Fixed {
        /// How long each wait lasts.
        #[serde(with = "duration")]
        delay: Duration,
        /// How many waits there are.
        waits: u32,
    },
    /// Each wait `factor` times as long as the one before.
    Exponential {
        /// How long the first wait lasts.
        #[serde(with = "duration")]
        initial: Duration,
        /// What each wait is multiplied by to give the next; at least 1.
        factor: f64,
        /// The longest wait.
        #[serde(with = "duration")]
        max: Duration,
        /// How many waits there are.
        waits: u32,
    },
}

impl From<Vec<Duration>> for Backoff {
    fn from(delays: Vec<Duration>) -> Self {
        Self::List(delays)
    }
}

impl Backoff {
    /// The delays in order, at most [`MAX_WAITS`] of them and none above [`MAX_DELAY`].
    pub fn delays(&self) -> Vec<Duration> {
        let count = |waits: u32| waits.min(MAX_WAITS) as usize;
        let mut delays = match self {
            Self::List(delays) => delays.iter().copied().take(MAX_WAITS as usize).collect(),
            Self::Fixed { delay, waits } => vec![*delay; count(*waits)],
            Self::Exponential { initial, factor, max, waits } => {
                let next = |delay: &Duration| Some(grow(*delay, *factor).min(*max));
                std::iter::successors(Some((*initial).min(*max)), next)
                    .take(count(*waits))
                    .collect()
            }
        };
        for delay in &mut delays {
            *delay = (*delay).min(MAX_DELAY);
        }
        delays
    }

    /// Says what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let waits = match self {
            Self::List(delays) => delays.len(),
            Self::Fixed { waits, .. } => *waits as usize,
            Self::Exponential { factor, initial, max, waits } => {
                if !factor.is_finite() || *factor < 1.0 {
                    return Err(format!("factor must be at least 1, not {factor}"));
                }
                if initial > max {
                    return Err("initial must not be longer than max".to_owned());
                }
                *waits as usize
            }
        };
        if waits > MAX_WAITS as usize {
            return Err(format!("at most {MAX_WAITS} waits are possible, not {waits}"));
        }
        let longest = match self {
            Self::List(delays) => delays.iter().max().copied(),
            Self::Fixed { delay, .. } => Some(*delay),
            Self::Exponential { max, .. } => Some(*max),
        };
        if longest > Some(MAX_DELAY) {
            return Err("a delay may last 30 days at most".to_owned());
        }
        let shortest = self.delays().into_iter().min();
        if shortest.is_some_and(|delay| delay < Duration::from_millis(1)) {
            return Err("a delay lasts at least 1ms; for another attempt at once use `immediate`"
                .to_owned());
        }
        Ok(())
    }
}

fn grow(delay: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(delay.as_secs_f64() * factor).unwrap_or(MAX_DELAY)
}

/// Jitter belongs to the policy: it applies to a list of delays too, and depends on the strategy.
const NO_JITTER: &str = "jitter is a setting of its own: remove `jitter` here, and set retry.jitter to \"full\", \"equal\" or \
                         \"decorrelated\", with retry.strategy = \"ladder\"";

impl<'de> Deserialize<'de> for Backoff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Backoff;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list such as [\"10s\", \"1m\"], or a table with kind \"fixed\" or \"exponential\"")
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, seq: A) -> Result<Backoff, A::Error> {
                let delays = Vec::<duration::Text>::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(Backoff::List(delays.into_iter().map(|duration::Text(delay)| delay).collect()))
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Backoff, A::Error> {
                Table::deserialize(MapAccessDeserializer::new(map))?
                    .backoff()
                    .map_err(serde::de::Error::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// The table form. All keys are optional, so that an error can name both the missing key and the
/// kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kind: String,
    delay: Option<duration::Text>,
    initial: Option<duration::Text>,
    factor: Option<f64>,
    max: Option<duration::Text>,
    waits: Option<u32>,
    jitter: Option<serde::de::IgnoredAny>,
}

impl Table {
    fn backoff(self) -> Result<Backoff, String> {
        if self.jitter.is_some() {
            return Err(NO_JITTER.to_owned());
        }
        let missing = |key: &str| format!("delays of kind \"{}\" need `{key}`", self.kind);
        let waits = self.waits.ok_or_else(|| missing("waits"))?;
        match self.kind.as_str() {
            "fixed" => {
                Ok(Backoff::Fixed { delay: self.delay.ok_or_else(|| missing("delay"))?.0, waits })
            }
            "exponential" => Ok(Backoff::Exponential {
                initial: self.initial.ok_or_else(|| missing("initial"))?.0,
                factor: self.factor.unwrap_or(2.0),
                max: self.max.ok_or_else(|| missing("max"))?.0,
                waits,
            }),
            other => Err(format!(
                "delays of kind \"{other}\" do not exist: \"fixed\" or \"exponential\", or a plain list"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::inputs;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Backoff, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(
            parse(r#"["1s", "2m"]"#).unwrap().delays(),
            [Duration::from_secs(1), Duration::from_secs(120)]
        );
        assert_eq!(
            parse(r#"{"kind":"fixed","delay":"3s","waits":2}"#).unwrap().delays(),
            [Duration::from_secs(3); 2]
        );
        let doubled =
            parse(r#"{"kind":"exponential","initial":"1s","max":"1h","waits":3}"#).unwrap();
        assert_eq!(doubled.delays(), [1, 2, 4].map(Duration::from_secs));
    }

    #[test]
    fn mistakes_are_named() {
        let check = |text, part: &str| {
            let error = match parse(text) {
                Ok(backoff) => backoff.check().unwrap_err(),
                Err(error) => error.to_string(),
            };
            assert!(error.contains(part), "{text} gave: {error}");
        };
        check("5", "a list such as");
        check(r#"["soon"]"#, "such as \"30s\"");
        check("[10]", "such as \"30s\"");
        check(r#"["0s"]"#, "at least 1ms");
        check(r#"["31d"]"#, "30 days at most");
        check(r#"{"kind":"fixed","waits":2}"#, "need `delay`");
        check(r#"{"kind":"linear","waits":2}"#, "do not exist");
        check(r#"{"kind":"fixed","delay":"1s","waits":2,"jitter":0.2}"#, "set retry.jitter");
        check(r#"{"kind":"fixed","delay":"1s","waits":101}"#, "at most 100");
        check(
            r#"{"kind":"exponential","initial":"1s","max":"1m","factor":0.5,"waits":3}"#,
            "at least 1",
        );
        check(
            r#"{"kind":"exponential","initial":"2m","max":"1m","waits":3}"#,
            "must not be longer",
        );
    }

    #[test]
    fn each_bound_is_itself_allowed() {
        let millis = Duration::from_millis;
        let just_too_long = MAX_DELAY + Duration::from_nanos(1);
        let just_too_short = millis(1) - Duration::from_nanos(1);
        let fixed = |delay, waits| Backoff::Fixed { delay, waits };
        let growing =
            |initial, factor, max, waits| Backoff::Exponential { initial, factor, max, waits };
        for allowed in [
            Backoff::List(vec![]),
            Backoff::List(vec![millis(1), MAX_DELAY]),
            Backoff::List(vec![millis(1); 100]),
            fixed(millis(1), 0),
            fixed(MAX_DELAY, 100),
            growing(millis(1), 1.0, MAX_DELAY, 100),
            growing(millis(5), 2.0, millis(5), 1),
        ] {
            assert_eq!(allowed.check(), Ok(()), "{allowed:?}");
        }
        for (refused, part) in [
            (Backoff::List(vec![millis(1), just_too_long]), "30 days at most"),
            (Backoff::List(vec![millis(1), just_too_short]), "at least 1ms"),
            (Backoff::List(vec![millis(1); 101]), "at most 100 waits are possible, not 101"),
            (fixed(just_too_long, 1), "30 days at most"),
            (fixed(just_too_short, 1), "at least 1ms"),
            (fixed(millis(1), 101), "at most 100"),
            (growing(millis(1), 0.999, millis(2), 1), "factor must be at least 1"),
            (growing(millis(1), f64::NAN, millis(2), 1), "factor must be at least 1"),
            (growing(millis(1), f64::INFINITY, millis(2), 1), "factor must be at least 1"),
            (growing(millis(1), 2.0, just_too_long, 1), "30 days at most"),
            (growing(just_too_short, 2.0, millis(1), 1), "at least 1ms"),
            (growing(millis(6), 2.0, millis(5), 1), "must not be longer"),
            (growing(millis(1), 2.0, millis(5), 101), "at most 100"),
        ] {
            let error = refused.check().unwrap_err();
            assert!(error.contains(part), "{refused:?} gave: {error}");
        }
    }

    #[test]
    fn thirty_days_and_a_hundred_waits_are_the_most_whatever_was_asked_for() {
        assert_eq!(MAX_DELAY.as_secs(), 2_592_000);
        assert_eq!(Backoff::Fixed { delay: Duration::MAX, waits: 101 }.delays(), [MAX_DELAY; 100]);
        assert_eq!(Backoff::List(vec![Duration::MAX; 101]).delays(), [MAX_DELAY; 100]);
        let explosive = Backoff::Exponential {
            initial: MAX_DELAY,
            factor: f64::MAX,
            max: Duration::MAX,
            waits: 3,
        };
        assert_eq!(explosive.delays(), [MAX_DELAY; 3]);
    }

    proptest! {
        #![proptest_config(inputs(256))]

        #[test]
        fn exponential_delays_never_shrink_and_never_pass_their_cap(
            initial in 1u64..10_000_000, factor in 1.0f64..1e9, max in 1u64..u64::MAX / 2, waits in 0u32..200,
        ) {
            let max = Duration::from_millis(max);
            let backoff = Backoff::Exponential { initial: Duration::from_millis(initial), factor, max, waits };
            let delays = backoff.delays();
            prop_assert_eq!(delays.len(), waits.min(MAX_WAITS) as usize);
            prop_assert!(delays.is_sorted());
            prop_assert!(delays.iter().all(|delay| *delay <= max && *delay <= MAX_DELAY));
        }
    }
}
