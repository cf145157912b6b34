//! The retry policy: checked values, from which all that can happen to a failing message follows.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration::check_bounds;
#[cfg(doc)]
use crate::failure::Failure;
use crate::failure::class::{is_of_type, short};
use crate::retry::backoff::Backoff;
use crate::wait::ladder::Ladder;
use crate::wait::{AskedDelays, Jitter, Route, Strategy, WaitQueues, WaitStrategy};

/// How often and when a queue's messages are retried, and what becomes of those that never succeed.
///
/// Built and validated from [`Settings`](crate::Settings).
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    pub(crate) delivery_limit: u32,
    pub(crate) immediate: u32,
    pub(crate) delays: Vec<Duration>,
    pub(crate) strategy: Strategy,
    /// The namespace's ladder, whether the policy uses it or not.
    pub(crate) ladder: Ladder,
    pub(crate) after: AskedDelays,
    /// `None`: it depends on who declares the queue.
    pub(crate) wait_queues: Option<WaitQueues>,
    pub(crate) jitter: Jitter,
    pub(crate) max_defers: u32,
    pub(crate) max_age: Option<Duration>,
    pub(crate) on_exhausted: Ending,
    pub(crate) on_expired: Ending,
    pub(crate) errors: BTreeMap<String, Treatment>,
}

/// What a policy is made of, not checked yet.
#[derive(Debug, Clone)]
pub(crate) struct PolicyValues {
    pub(crate) delivery_limit: u32,
    /// Whether the queue is known to have this limit. A queue that rehop does not declare may have
    /// a higher one.
    pub(crate) limit_is_enforced: bool,
    pub(crate) immediate: u32,
    pub(crate) delays: Backoff,
    pub(crate) strategy: WaitStrategy,
    pub(crate) ladder: Ladder,
    pub(crate) after: AskedDelays,
    pub(crate) wait_queues: Option<WaitQueues>,
    pub(crate) jitter: Jitter,
    pub(crate) max_defers: u32,
    pub(crate) max_age: Option<Duration>,
    pub(crate) on_exhausted: Ending,
    pub(crate) on_expired: Ending,
    pub(crate) errors: BTreeMap<String, Treatment>,
}

/// A value that no policy can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvalidPolicy {
    /// The value's key in the settings.
    pub(crate) key: &'static str,
    pub(crate) problem: String,
}

/// The most that `max_defers` may be.
const MOST_DEFERS: u32 = 10_000;

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl RetryPolicy {
    pub(crate) fn checked(values: PolicyValues) -> Result<Self, InvalidPolicy> {
        let invalid = |key| move |problem| InvalidPolicy { key, problem };
        let PolicyValues { delivery_limit, limit_is_enforced, immediate, delays, max_age, .. } =
            values;
        if !(1..=1000).contains(&delivery_limit) {
            return Err(invalid("delivery_limit")(format!(
                "{delivery_limit} is out of bounds: 1 to 1000"
            )));
        }
        if limit_is_enforced && immediate >= delivery_limit {
            return Err(invalid("immediate")(format!(
                "immediate is {immediate} and delivery_limit is {delivery_limit}: the broker would park a message before its \
                 immediate attempts are used up, and it would never wait; raise delivery_limit above immediate"
            )));
        }
        delays.check().map_err(invalid("delays"))?;
        if let Some(max_age) = max_age {
            check_bounds(max_age, Duration::from_millis(1), 10 * YEAR)
                .map_err(invalid("max_age"))?;
        }
        let delays = delays.delays();
        Strategy::check(values.strategy, &delays).map_err(invalid("delays"))?;
        let strategy = Strategy::of(values.strategy, &delays, values.ladder);
        check_strategy(&strategy, &delays, values.jitter)?;
        if values.max_defers > MOST_DEFERS {
            return Err(invalid("max_defers")(format!(
                "{} is out of bounds: 0 to {MOST_DEFERS}",
                values.max_defers
            )));
        }
        if values.strategy == WaitStrategy::Native && max_age.is_some() {
            return Err(invalid("max_age")(
                "strategy \"native\" makes no copy that could carry the time of the first delivery, so each attempt would begin \
                 max_age again; set it to \"none\" and let producers set a deadline, or set retry.strategy = \"tiers\""
                    .to_owned(),
            ));
        }
        check_classes(&values.errors)?;
        Ok(Self {
            delivery_limit,
            immediate,
            strategy,
            ladder: values.ladder,
            after: values.after,
            wait_queues: values.wait_queues,
            jitter: values.jitter,
            max_defers: values.max_defers,
            delays,
            max_age,
            on_exhausted: values.on_exhausted,
            on_expired: values.on_expired,
            errors: values.errors,
        })
    }

    /// The same policy in a namespace with this ladder.
    pub(crate) fn on_ladder(self, ladder: Ladder) -> Result<Self, InvalidPolicy> {
        let strategy = Strategy::of(self.strategy.kind(), &self.delays, ladder);
        check_strategy(&strategy, &self.delays, self.jitter)?;
        Ok(Self { strategy, ladder, ..self })
    }

    /// The ladder, if messages may wait on it.
    pub(crate) fn used_ladder(&self) -> Option<Ladder> {
        let is_used =
            self.after == AskedDelays::Ladder || self.strategy.kind() == WaitStrategy::Ladder;
        is_used.then_some(self.ladder)
    }

    /// Whether a delay that was asked for may become much longer, and the ladder would be nearer.
    pub(crate) fn rounds_asked_delays(&self) -> bool {
        let strategy = self.strategy.kind();
        self.after == AskedDelays::Own
            && matches!(strategy, WaitStrategy::Tiers | WaitStrategy::Native)
    }

    /// The wait for a delay that was asked for. With `after = "ladder"` that is on the ladder,
    /// unless a single leg of the strategy's own is at least as exact.
    pub(crate) fn route_asked(&self, delay: Duration) -> Option<Route> {
        let own = self.strategy.route(delay);
        let ladder = match self.after {
            AskedDelays::Own => None,
            AskedDelays::Ladder => self.ladder.route(delay),
        };
        match (own, ladder) {
            (Some(own), Some(ladder)) if own.leg == own.total && own.total <= ladder.total => {
                Some(own)
            }
            (own, ladder) => ladder.or(own),
        }
    }

    /// Names the setting that bounds a wait, and the one that allows a longer wait, if any. An
    /// ordered queue cannot use the ladder.
    pub(crate) fn why_no_longer(&self, is_ordered: bool) -> String {
        let (own, on_ladder) = (self.strategy.longest_wait(), self.ladder.longest_wait());
        // What bounds a wait in the process is broker.consumer_timeout, and not its longest wait.
        let is_longer = on_ladder > own || self.strategy.kind() == WaitStrategy::InProcess;
        let (bound, text) = (self.strategy.bound(), humantime::format_duration(on_ladder));
        match self.used_ladder() {
            Some(_) if on_ladder >= own => format!("ladder.max allows {text} at most"),
            None if is_longer && !is_ordered => {
                format!("{bound}; set retry.after = \"ladder\" for up to {text}")
            }
            _ => bound,
        }
    }

    /// The most attempts that a message can get by failing: `(immediate + 1) × (waits + 1)`. With
    /// strategy `native`, whose immediate attempts are not renewed by a wait,
    /// `immediate + waits + 1`.
    ///
    /// Deliveries that end in a crash come on top, at most `delivery_limit` of them before each
    /// wait; with `native` in all. With `in-process` a message starts again after a crash. What a
    /// handler [defers](crate::Failure::defer) comes on top too, and up to `immediate` attempts
    /// after each defer.
    pub fn max_attempts(&self) -> u32 {
        self.in_all(self.immediate)
    }

    /// The most deliveries that a message can get, crashes included:
    /// `(delivery_limit + 1) × (waits + 1)`. With strategy `native`, `delivery_limit + waits + 1`;
    /// with `in-process`, whose waits are no deliveries, `delivery_limit + 1`.
    pub fn max_deliveries(&self) -> u32 {
        match self.strategy.kind() {
            WaitStrategy::InProcess => self.delivery_limit.saturating_add(1),
            WaitStrategy::Tiers
            | WaitStrategy::Ladder
            | WaitStrategy::DelayedExchange
            | WaitStrategy::Native => self.in_all(self.delivery_limit),
        }
    }

    /// How many attempts there are if this many come after the first one before each wait.
    fn in_all(&self, further: u32) -> u32 {
        let waits = u32::try_from(self.delays.len()).unwrap_or(u32::MAX);
        match self.strategy.resets_immediate() {
            true => further.saturating_add(1).saturating_mul(waits.saturating_add(1)),
            false => further.saturating_add(waits).saturating_add(1),
        }
    }

    /// How often a message has waited before this attempt, and how often it was retried at once
    /// since then, if each attempt failed and none asked for a delay.
    pub(crate) fn before_attempt(&self, attempt: u32) -> (u32, u32) {
        let before = attempt.saturating_sub(1);
        match self.strategy.resets_immediate() {
            true => {
                let between_waits = self.immediate.saturating_add(1);
                (before / between_waits, before % between_waits)
            }
            false => (before.saturating_sub(self.immediate), before.min(self.immediate)),
        }
    }

    /// The number of the first attempt after this many waits.
    pub(crate) fn first_attempt_after(&self, waits: u32) -> u32 {
        match self.strategy.resets_immediate() {
            _ if waits == 0 => 1,
            true => waits.saturating_mul(self.immediate.saturating_add(1)).saturating_add(1),
            false => waits.saturating_add(self.immediate).saturating_add(1),
        }
    }

    /// The longest delay that a [`Failure::after`] may ask for. With strategy `tiers`: eight times
    /// the longest of the policy's delays, and [`MAX_DELAY`](crate::MAX_DELAY) at most. On the
    /// ladder, also by `after = "ladder"`: `ladder.max`. With `delayed-exchange`: 24 days. With
    /// `native`: its delay. With `in-process` it is [`MAX_DELAY`](crate::MAX_DELAY), and what a
    /// process cannot hold for so long is parked all the same. Zero if the policy never waits.
    pub fn longest_wait(&self) -> Duration {
        if self.delays.is_empty() {
            return Duration::ZERO;
        }
        let own = self.strategy.longest_wait();
        self.used_ladder().map_or(own, |ladder| own.max(ladder.longest_wait()))
    }

    /// How often the broker delivers a message again, before a wait, until it parks it.
    pub fn delivery_limit(&self) -> u32 {
        self.delivery_limit
    }

    /// How messages wait.
    pub fn strategy(&self) -> WaitStrategy {
        self.strategy.kind()
    }

    /// How long a message that always fails takes at most until it is parked, if each of its
    /// [attempts](Self::max_attempts) lasts for `handler_timeout`: those, and its
    /// [waits](Self::total_wait). It takes longer if it finds no free handler when it is due, if it
    /// is deferred, if a failure asks for another delay, or after a crash.
    pub fn longest_chain(&self, handler_timeout: Duration) -> Duration {
        self.total_wait().saturating_add(handler_timeout.saturating_mul(self.max_attempts()))
    }

    /// How long the policy's waits last in all, at most, if no failure asks for another delay.
    pub fn total_wait(&self) -> Duration {
        let longest = self.delays.iter().max().copied().unwrap_or_default();
        let waits = self.delays.iter().map(|delay| match self.jitter {
            // Each of them may be as long as the longest.
            Jitter::Decorrelated => longest,
            Jitter::None | Jitter::Full | Jitter::Equal => *delay,
        });
        waits.filter_map(|delay| self.strategy.route(delay)).map(|route| route.total).sum()
    }
}

/// A whole path of a type would look right, and no failure would ever have that class.
fn check_classes(errors: &BTreeMap<String, Treatment>) -> Result<(), InvalidPolicy> {
    let mut of_types =
        errors.keys().filter(|class| is_of_type(class)).map(|class| (class, short(class)));
    let Some((class, short)) = of_types.find(|(class, short)| class.as_str() != short) else {
        return Ok(());
    };
    let problem = format!(
        "{class:?} looks like the path of a type, and the class of that type is {short:?}: write this"
    );
    Err(InvalidPolicy { key: "errors", problem })
}

/// What the strategy cannot do is an error at the start.
fn check_strategy(
    strategy: &Strategy,
    delays: &[Duration],
    jitter: Jitter,
) -> Result<(), InvalidPolicy> {
    let (kind, longest) = (strategy.kind(), strategy.longest_wait());
    if jitter != Jitter::None && !kind.carries_jitter() {
        let without = match kind {
            WaitStrategy::Native => "or retry.jitter = \"none\"",
            WaitStrategy::Tiers
            | WaitStrategy::Ladder
            | WaitStrategy::DelayedExchange
            | WaitStrategy::InProcess => "or retry.jitter = \"none\" and several delays",
        };
        let problem = format!(
            "strategy {:?} waits for fixed delays, which cannot carry jitter: set retry.strategy = \"ladder\", {without}",
            kind.as_str()
        );
        return Err(InvalidPolicy { key: "jitter", problem });
    }
    let Some(delay) = delays.iter().find(|delay| **delay > longest) else { return Ok(()) };
    let remedy = match kind {
        WaitStrategy::Ladder => "raise ladder.max, or shorten the delay",
        WaitStrategy::Tiers
        | WaitStrategy::DelayedExchange
        | WaitStrategy::Native
        | WaitStrategy::InProcess => "shorten the delay, or set retry.strategy = \"ladder\"",
    };
    let (delay, longest) =
        (humantime::format_duration(*delay), humantime::format_duration(longest));
    let problem =
        format!("strategy {:?} cannot wait {delay}, only {longest}: {remedy}", kind.as_str());
    Err(InvalidPolicy { key: "delays", problem })
}

/// What becomes of a message that will get no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Ending {
    /// Moved to `<queue>.parked` with its history.
    Park,
    /// Acked and counted. Nothing keeps it.
    Discard,
}

/// How the failures of an error class are treated if the handler left that to the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Treatment {
    /// As [`Failure::transient`].
    Transient,
    /// As [`Failure::requeue`].
    Requeue,
    /// As [`Failure::permanent`].
    Permanent,
    /// As [`Failure::discard`].
    Discard,
    /// As [`Failure::defer`] if the failure asks for a delay, by [`Failure::after`]; else as
    /// [`Failure::transient`].
    Defer,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder() -> Ladder {
        Ladder::new(Duration::from_secs(1), 4, Duration::from_secs(3_600))
    }

    fn values() -> PolicyValues {
        PolicyValues {
            delivery_limit: 10,
            limit_is_enforced: true,
            immediate: 1,
            delays: Backoff::List(vec![Duration::from_secs(1)]),
            strategy: WaitStrategy::Tiers,
            ladder: ladder(),
            after: AskedDelays::Own,
            wait_queues: Some(WaitQueues::Own),
            jitter: Jitter::None,
            max_defers: 100,
            max_age: None,
            on_exhausted: Ending::Park,
            on_expired: Ending::Discard,
            errors: BTreeMap::from([("class".to_owned(), Treatment::Permanent)]),
        }
    }

    /// The key that is wrong.
    fn wrong(values: PolicyValues) -> Option<&'static str> {
        RetryPolicy::checked(values).err().map(|invalid| invalid.key)
    }

    #[test]
    fn a_policy_takes_over_the_ladder_of_its_namespace() {
        let policy =
            RetryPolicy::checked(PolicyValues { strategy: WaitStrategy::Ladder, ..values() })
                .unwrap();
        let other = Ladder::new(Duration::from_secs(2), 4, Duration::from_secs(7_200));
        assert_ne!(other, ladder());
        let policy = policy.on_ladder(other).unwrap();
        assert_eq!((policy.strategy, policy.ladder), (Strategy::Ladder(other), other));
    }

    #[test]
    fn a_policy_has_the_values_that_it_was_made_of() {
        let RetryPolicy {
            delivery_limit,
            immediate,
            delays,
            strategy,
            ladder,
            after,
            wait_queues,
            jitter,
            max_defers,
            max_age,
            on_exhausted,
            on_expired,
            errors,
        } = RetryPolicy::checked(values()).unwrap();
        assert_eq!(
            (ladder, after, wait_queues, jitter, max_defers),
            (self::ladder(), AskedDelays::Own, Some(WaitQueues::Own), Jitter::None, 100)
        );
        assert_eq!((delivery_limit, immediate, max_age), (10, 1, None));
        assert_eq!(
            (on_exhausted, on_expired, errors),
            (Ending::Park, Ending::Discard, values().errors)
        );
        assert_eq!(
            (&delays, strategy),
            (&vec![Duration::from_secs(1)], Strategy::of(WaitStrategy::Tiers, &delays, ladder))
        );
    }

    #[test]
    fn each_bound_of_a_policy_is_itself_allowed() {
        let limited = |delivery_limit| PolicyValues { delivery_limit, immediate: 0, ..values() };
        assert_eq!(
            [0, 1, 1000, 1001].map(limited).map(wrong),
            [Some("delivery_limit"), None, None, Some("delivery_limit")]
        );
        let aged = |max_age| PolicyValues { max_age: Some(max_age), ..values() };
        let (least, most, nano) = (Duration::from_millis(1), 10 * YEAR, Duration::from_nanos(1));
        assert_eq!(
            [least - nano, least, most, most + nano].map(aged).map(wrong),
            [Some("max_age"), None, None, Some("max_age")]
        );
        assert_eq!(
            wrong(PolicyValues { delays: Backoff::List(vec![Duration::ZERO]), ..values() }),
            Some("delays")
        );
    }

    #[test]
    fn immediate_attempts_end_below_the_delivery_limit_if_that_is_enforced() {
        let with = |immediate, limit_is_enforced| {
            wrong(PolicyValues { immediate, limit_is_enforced, ..values() })
        };
        assert_eq!(
            [9, 10, 11].map(|immediate| with(immediate, true)),
            [None, Some("immediate"), Some("immediate")]
        );
        assert_eq!([9, 10, 11].map(|immediate| with(immediate, false)), [None; 3]);
    }

    #[test]
    fn what_a_strategy_cannot_do_is_an_error_that_names_the_key_and_what_to_take_instead() {
        let wrong = |strategy, jitter, delay| {
            let delays = Backoff::List(vec![Duration::from_secs(delay)]);
            RetryPolicy::checked(PolicyValues { strategy, jitter, delays, ..values() })
                .err()
                .map(|InvalidPolicy { key, problem }| format!("{key}: {problem}"))
        };
        for jitter in [Jitter::Full, Jitter::Equal, Jitter::Decorrelated] {
            let error = wrong(WaitStrategy::Tiers, jitter, 1).unwrap();
            let remedy =
                "set retry.strategy = \"ladder\", or retry.jitter = \"none\" and several delays";
            assert!(error.starts_with("jitter: ") && error.ends_with(remedy), "{error}");
            // Several delays would be its next error.
            let error = wrong(WaitStrategy::Native, jitter, 1).unwrap();
            let remedy = "set retry.strategy = \"ladder\", or retry.jitter = \"none\"";
            assert!(error.starts_with("jitter: ") && error.ends_with(remedy), "{error}");
            for strategy in
                [WaitStrategy::Ladder, WaitStrategy::DelayedExchange, WaitStrategy::InProcess]
            {
                assert_eq!(wrong(strategy, jitter, 1), None);
            }
        }
        assert_eq!(wrong(WaitStrategy::Ladder, Jitter::None, 3_600), None);
        let error = wrong(WaitStrategy::Ladder, Jitter::None, 3_601).unwrap();
        assert!(error.starts_with("delays: ") && error.contains("raise ladder.max"), "{error}");
        assert_eq!(wrong(WaitStrategy::DelayedExchange, Jitter::None, 2_147_483), None);
        let error = wrong(WaitStrategy::DelayedExchange, Jitter::None, 2_147_484).unwrap();
        assert!(error.starts_with("delays: ") && error.contains("\"ladder\""), "{error}");
        let defers = |max_defers| self::wrong(PolicyValues { max_defers, ..values() });
        assert_eq!([0, 10_000, 10_001].map(defers), [None, None, Some("max_defers")]);
    }

    #[test]
    fn the_longest_chain_is_all_waits_as_they_are_routed_and_all_attempts() {
        let check = |strategy, jitter, delays: &[u64], waits: u64, attempts: u64| {
            let delays = Backoff::List(delays.iter().copied().map(Duration::from_secs).collect());
            let policy =
                RetryPolicy::checked(PolicyValues { strategy, jitter, delays, ..values() })
                    .unwrap();
            assert_eq!(
                policy.total_wait(),
                Duration::from_secs(waits),
                "{strategy} with {jitter:?}"
            );
            let chain = Duration::from_secs(waits + 30 * attempts);
            assert_eq!(
                policy.longest_chain(Duration::from_secs(30)),
                chain,
                "{strategy} with {jitter:?}"
            );
        };
        check(WaitStrategy::Tiers, Jitter::None, &[], 0, 2);
        check(WaitStrategy::Tiers, Jitter::None, &[10, 60, 600], 670, 8);
        check(WaitStrategy::Ladder, Jitter::None, &[10, 60, 600], 710, 8);
        check(WaitStrategy::Ladder, Jitter::Full, &[10, 60, 600], 710, 8);
        check(WaitStrategy::InProcess, Jitter::Equal, &[10, 60, 600], 670, 8);
        check(WaitStrategy::InProcess, Jitter::Decorrelated, &[10, 60, 600], 1_800, 8);
        check(WaitStrategy::DelayedExchange, Jitter::None, &[10, 60], 70, 6);
        check(WaitStrategy::Native, Jitter::None, &[30, 30], 60, 4);
    }

    #[test]
    fn for_a_delay_that_is_too_long_the_text_names_what_allows_it_where_anything_does() {
        let why = |strategy, after, longest: u64, is_ordered| {
            let ladder = Ladder::new(Duration::from_secs(1), 4, Duration::from_secs(longest));
            RetryPolicy::checked(PolicyValues { strategy, after, ladder, ..values() })
                .unwrap()
                .why_no_longer(is_ordered)
        };
        let way_out = "; set retry.after = \"ladder\" for up to 1h";
        for strategy in [WaitStrategy::Tiers, WaitStrategy::Native, WaitStrategy::InProcess] {
            let text = why(strategy, AskedDelays::Own, 3_600, false);
            assert!(text.ends_with(way_out) && text.len() > way_out.len(), "{strategy}: {text}");
            assert!(!why(strategy, AskedDelays::Own, 3_600, true).contains("ladder"), "{strategy}");
        }
        for strategy in [WaitStrategy::Tiers, WaitStrategy::Native, WaitStrategy::Ladder] {
            assert_eq!(
                why(strategy, AskedDelays::Ladder, 3_600, false),
                "ladder.max allows 1h at most",
                "{strategy}"
            );
        }
        // A ladder that is no longer than what there is.
        for (strategy, longest) in [
            (WaitStrategy::Tiers, 8),
            (WaitStrategy::Native, 1),
            (WaitStrategy::DelayedExchange, 60),
        ] {
            assert!(
                !why(strategy, AskedDelays::Own, longest, false).contains("ladder"),
                "{strategy}"
            );
        }
        assert!(
            why(WaitStrategy::InProcess, AskedDelays::Ladder, 3_600, false)
                .contains("consumer_timeout")
        );
    }

    #[test]
    fn an_asked_delay_goes_to_the_ladder_unless_one_leg_of_the_strategy_is_at_least_as_exact() {
        let policy = |after, delays: &[u64]| {
            let delays = Backoff::List(delays.iter().copied().map(Duration::from_secs).collect());
            RetryPolicy::checked(PolicyValues { after, delays, ..values() }).unwrap()
        };
        let asked = |after, delay| {
            let policy = policy(after, &[10, 290]);
            policy
                .route_asked(Duration::from_secs(delay))
                .map(|route| (route.path, route.total.as_secs()))
        };
        let (tier, rung) =
            (crate::wait::Path::Tier, crate::wait::Path::Ladder { rung: Duration::from_secs(1) });
        assert_eq!(asked(AskedDelays::Own, 20), Some((tier, 290)));
        assert_eq!(asked(AskedDelays::Ladder, 20), Some((rung, 20)));
        assert_eq!(asked(AskedDelays::Ladder, 10), Some((tier, 10)));
        assert_eq!(
            asked(AskedDelays::Ladder, 290),
            Some((tier, 290)),
            "the ladder would take 320 s"
        );
        assert_eq!(
            asked(AskedDelays::Ladder, 300),
            Some((rung, 320)),
            "two legs of a tier would take 300 s"
        );
        assert_eq!(asked(AskedDelays::Ladder, 3_600), Some((rung, 3_840)));
        assert_eq!(asked(AskedDelays::Ladder, 3_601), None);
        assert_eq!(
            policy(AskedDelays::Ladder, &[600])
                .route_asked(Duration::from_secs(4_000))
                .unwrap()
                .path,
            tier
        );
        assert_eq!(policy(AskedDelays::Ladder, &[10]).longest_wait(), Duration::from_secs(3_600));
        assert_eq!(policy(AskedDelays::Ladder, &[600]).longest_wait(), Duration::from_secs(4_800));
        assert_eq!(
            policy(AskedDelays::Ladder, &[]).route_asked(Duration::from_secs(5)).unwrap().path,
            rung
        );
    }
}
