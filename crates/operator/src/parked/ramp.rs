//! How a replay grows: a canary, then larger and larger batches, each after a verdict on the one
//! before. Pure.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::parked::progress::Fates;

/// No wait is longer than this, whatever is asked for. Added to a time, it does not overflow.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How a replay grows.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RampSettings {
    /// How many messages are sent in each batch; the last size repeats. The first batch is the
    /// canary. Empty: everything at once, without a verdict. Default 5, 10, 100, 1,000 and 10,000.
    pub batches: Vec<u32>,
    /// How long to wait for a batch's verdict. Default 1 min.
    pub verdict_within: Duration,
    /// The largest share of the messages of known fate that may park again or be discarded after
    /// the canary, from 0 to 1. Default 0.05.
    pub max_failed: f64,
}

impl Default for RampSettings {
    fn default() -> Self {
        Self {
            batches: vec![5, 10, 100, 1_000, 10_000],
            verdict_within: Duration::from_secs(60),
            max_failed: 0.05,
        }
    }
}

impl RampSettings {
    /// Everything at once.
    pub fn none() -> Self {
        Self { batches: Vec::new(), ..Self::default() }
    }
}

/// Why an operation stopped before its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stop {
    /// A message of the canary parked again.
    CanaryParked,
    /// A message of the canary was discarded by its handler or its policy. No copy of it is kept.
    CanaryDiscarded,
    /// The canary's fate did not become known in time.
    NoVerdict,
    /// More messages parked again or were discarded than are allowed.
    TooManyFailed,
    /// A message parked again with an error that none of the replayed messages had.
    NewError {
        /// The error, normalised.
        error: String,
    },
    /// A message reached the stray queue.
    StrayGrew,
    /// There are not as many messages as were expected.
    Unexpected {
        /// How many there are.
        found: u64,
    },
    /// Whoever started it stopped it.
    Requested,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CanaryParked => f.write_str("a message of the canary parked again"),
            Self::CanaryDiscarded => f.write_str(
                "a message of the canary was discarded, and no copy of it is kept: before you send the others, find out why its handler, \
                 retry.errors or retry.on_expired discarded it; if all are to be discarded, --canary 0 sends them without this check",
            ),
            Self::NoVerdict => f.write_str(
                "the fate of the canary did not become known in time: its consumer is slow, crashes, is not running, or may not publish receipts",
            ),
            Self::TooManyFailed => f.write_str("too many messages parked again or were discarded"),
            Self::NewError { error } => write!(f, "a message parked again with a new kind of error: {error}"),
            Self::StrayGrew => f.write_str("a message reached the stray queue"),
            Self::Unexpected { found } => write!(f, "{found} messages match, which is not the expected number"),
            Self::Requested => f.write_str("it was told to stop"),
        }
    }
}

impl Stop {
    /// What the log says of it: all of it, but for the text of an error, which may quote a message.
    pub(crate) fn in_log(&self) -> String {
        match self {
            Self::NewError { .. } => "a message parked again with a new kind of error".to_owned(),
            other => other.to_string(),
        }
    }
}

/// The state of a replay's growth.
#[derive(Debug, Clone)]
pub(crate) struct Ramp {
    settings: RampSettings,
    batch: usize,
    /// How many may have been sent when the present batch is full.
    allowed: u64,
    /// When the present batch was full.
    full_since: Option<Instant>,
    stopped: Option<Stop>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// Send a message. Those of the canary say so.
    Send {
        is_canary: bool,
    },
    /// Wait for the fate of what was sent, at most until this time.
    Watch(Instant),
    Stop(Stop),
}

impl Ramp {
    pub(crate) fn new(settings: RampSettings) -> Self {
        let allowed = settings.batches.first().map_or(u64::MAX, |first| u64::from(*first));
        Self { settings, batch: 0, allowed, full_since: None, stopped: None }
    }

    /// Something happened that no share excuses.
    pub(crate) fn stop(&mut self, why: Stop) {
        self.stopped.get_or_insert(why);
    }

    /// A message parked again with a new kind of error. A replay at full rate takes what comes.
    pub(crate) fn new_error(&mut self, error: String) {
        if !self.settings.batches.is_empty() {
            self.stop(if self.batch == 0 { Stop::CanaryParked } else { Stop::NewError { error } });
        }
    }

    pub(crate) fn stopped(&self) -> Option<&Stop> {
        self.stopped.as_ref()
    }

    /// What to do if this many were given to the broker, confirmed or not, and this is known of
    /// them.
    pub(crate) fn next(&mut self, started: u64, fates: &Fates, now: Instant) -> Next {
        self.judge(fates);
        if let Some(stop) = &self.stopped {
            return Next::Stop(stop.clone());
        }
        let is_canary = self.batch == 0 && !self.settings.batches.is_empty();
        if started < self.allowed {
            // Fewer than before, if the broker did not accept one.
            self.full_since = None;
            return Next::Send { is_canary };
        }
        let full_since = *self.full_since.get_or_insert(now);
        let until = full_since + self.settings.verdict_within.min(LONGEST_WAIT);
        let is_over = now >= until;
        // The canary must be known to the last message. Later on a few may be slow.
        let enough = if is_canary { started } else { started - started / 10 };
        if fates.known() < enough && !is_over {
            return Next::Watch(until);
        }
        if is_canary && fates.known() < started {
            self.stop(Stop::NoVerdict);
            return Next::Stop(Stop::NoVerdict);
        }
        self.batch += 1;
        let size = self
            .settings
            .batches
            .get(self.batch)
            .or(self.settings.batches.last())
            .copied()
            .unwrap_or(u32::MAX);
        self.allowed = self.allowed.saturating_add(u64::from(size.max(1)));
        self.full_since = None;
        Next::Send { is_canary: false }
    }

    fn judge(&mut self, fates: &Fates) {
        let failed = fates.parked_again + fates.discarded;
        if self.settings.batches.is_empty() || failed == 0 {
            return;
        }
        if self.batch == 0 {
            return self.stop(if fates.discarded > 0 {
                Stop::CanaryDiscarded
            } else {
                Stop::CanaryParked
            });
        }
        // Nothing is within a share that is NaN.
        let is_within = failed as f64 <= self.settings.max_failed * fates.known() as f64;
        if !is_within {
            self.stop(Stop::TooManyFailed);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::inputs::inputs;

    fn handled(sent: u64) -> Fates {
        Fates { sent, handled: sent, ..Fates::default() }
    }

    #[test]
    fn the_log_does_not_quote_the_error_that_a_replay_stopped_at() {
        let stop = Stop::NewError { error: "no customer Ada".to_owned() };
        assert_eq!(stop.to_string(), format!("{}: no customer Ada", stop.in_log()));
        assert_eq!(Stop::StrayGrew.in_log(), Stop::StrayGrew.to_string());
    }

    #[test]
    fn a_new_kind_of_error_stops_a_replay_unless_it_runs_at_full_rate() {
        let error = || "no customer".to_owned();
        let stopped = |batches: Vec<u32>, handled_before: u64| {
            let mut ramp = Ramp::new(RampSettings { batches, ..RampSettings::default() });
            ramp.next(handled_before, &handled(handled_before), Instant::now());
            ramp.new_error(error());
            ramp.stopped().cloned()
        };
        assert_eq!(stopped(vec![5, 10], 0), Some(Stop::CanaryParked));
        assert_eq!(stopped(vec![5, 10], 5), Some(Stop::NewError { error: error() }));
        assert_eq!(stopped(vec![], 5), None);
    }

    #[test]
    fn each_batch_is_sent_after_the_verdict_on_the_one_before() {
        let (mut ramp, now) = (
            Ramp::new(RampSettings { batches: vec![5, 10, 100], ..RampSettings::default() }),
            Instant::now(),
        );
        for started in 0..5 {
            assert_eq!(ramp.next(started, &handled(started), now), Next::Send { is_canary: true });
        }
        let until = now + Duration::from_secs(60);
        assert_eq!(
            ramp.next(5, &Fates { sent: 5, handled: 4, ..Fates::default() }, now),
            Next::Watch(until)
        );
        assert_eq!(ramp.next(5, &handled(5), now), Next::Send { is_canary: false });
        for started in 6..15 {
            assert_eq!(ramp.next(started, &handled(5), now), Next::Send { is_canary: false });
        }
        assert_eq!(ramp.next(15, &handled(13), now), Next::Watch(until));
        assert_eq!(ramp.next(15, &handled(14), now), Next::Send { is_canary: false });
        assert_eq!(ramp.next(114, &handled(15), now), Next::Send { is_canary: false });
        assert_eq!(ramp.next(115, &handled(15), now), Next::Watch(until));
        // A slow batch is no reason to stop.
        assert_eq!(ramp.next(115, &handled(15), until), Next::Send { is_canary: false });
        assert_eq!(ramp.next(214, &handled(15), until), Next::Send { is_canary: false });
        assert!(matches!(ramp.next(215, &handled(15), until), Next::Watch(_)));
    }

    #[test]
    fn one_parked_canary_stops_everything() {
        let mut ramp = Ramp::new(RampSettings::default());
        let fates = Fates { sent: 5, handled: 4, parked_again: 1, ..Fates::default() };
        assert_eq!(ramp.next(5, &fates, Instant::now()), Next::Stop(Stop::CanaryParked));
    }

    #[test]
    fn one_discarded_canary_stops_everything_for_a_reason_of_its_own() {
        for (handled, discarded, parked_again) in [(4, 1, 0), (0, 5, 0), (3, 1, 1)] {
            let mut ramp = Ramp::new(RampSettings::default());
            let fates = Fates { sent: 5, handled, discarded, parked_again, ..Fates::default() };
            assert_eq!(
                ramp.next(5, &fates, Instant::now()),
                Next::Stop(Stop::CanaryDiscarded),
                "{fates:?}"
            );
        }
    }

    #[test]
    fn a_canary_of_unknown_fate_stops_everything_in_time() {
        let (mut ramp, now) = (Ramp::new(RampSettings::default()), Instant::now());
        let fates = Fates { sent: 5, handled: 4, ..Fates::default() };
        assert!(matches!(ramp.next(5, &fates, now), Next::Watch(_)));
        assert_eq!(
            ramp.next(5, &fates, now + Duration::from_secs(60)),
            Next::Stop(Stop::NoVerdict)
        );
        assert_eq!(
            ramp.next(5, &handled(5), now),
            Next::Stop(Stop::NoVerdict),
            "and stays stopped"
        );
    }

    #[test]
    fn after_the_canary_one_in_twenty_may_park_again_or_be_discarded() {
        let now = Instant::now();
        let fates = |again, discarded| Fates {
            handled: 19,
            parked_again: again,
            discarded,
            ..Fates::default()
        };
        for (one, two) in [((1, 0), (2, 0)), ((0, 1), (0, 2)), ((0, 1), (1, 1))] {
            let mut ramp =
                Ramp::new(RampSettings { batches: vec![5, 100], ..RampSettings::default() });
            ramp.next(5, &handled(5), now);
            assert_eq!(ramp.next(50, &fates(one.0, one.1), now), Next::Send { is_canary: false });
            assert_eq!(ramp.next(50, &fates(two.0, two.1), now), Next::Stop(Stop::TooManyFailed));
        }
    }

    #[test]
    fn a_share_that_is_no_number_stops_a_replay_at_the_first_message_that_parks_again() {
        let settings =
            RampSettings { batches: vec![5, 100], max_failed: f64::NAN, ..RampSettings::default() };
        let (mut ramp, now) = (Ramp::new(settings), Instant::now());
        assert_eq!(ramp.next(5, &handled(5), now), Next::Send { is_canary: false });
        let fates = Fates { sent: 50, handled: 49, parked_again: 1, ..Fates::default() };
        assert_eq!(ramp.next(50, &fates, now), Next::Stop(Stop::TooManyFailed));
    }

    #[test]
    fn without_batches_nothing_is_waited_for_and_no_share_stops_it() {
        let mut ramp = Ramp::new(RampSettings::none());
        let fates = Fates {
            sent: 1_000_000,
            parked_again: 500_000,
            discarded: 499_999,
            ..Fates::default()
        };
        assert_eq!(ramp.next(1_000_000, &fates, Instant::now()), Next::Send { is_canary: false });
        ramp.stop(Stop::Requested);
        assert_eq!(ramp.next(1_000_000, &fates, Instant::now()), Next::Stop(Stop::Requested));
    }

    proptest! {
        #![proptest_config(inputs(500))]

        /// A consumer that fails every message, with any delay, gets no more of them than the
        /// canary has.
        #[test]
        fn a_consumer_that_still_fails_disturbs_no_more_than_the_canary(
            canary in 1u32..20, more in prop::collection::vec(0u32..100, 0..4), delays in prop::collection::vec(0u64..20, 1..50),
        ) {
            let batches = [&[canary][..], &more].concat();
            let mut ramp = Ramp::new(RampSettings { batches, ..RampSettings::default() });
            let (mut now, mut started, mut parked) = (Instant::now(), 0u64, 0u64);
            for delay in delays.iter().cycle().take(2_000) {
                let fates = Fates { sent: started, parked_again: parked, ..Fates::default() };
                match ramp.next(started, &fates, now) {
                    Next::Send { .. } => started += 1,
                    Next::Watch(_) => {
                        now += Duration::from_secs(*delay);
                        parked = if *delay % 3 == 1 { (parked + 1).min(started) } else { parked };
                    }
                    Next::Stop(_) => break,
                }
            }
            prop_assert!(started <= u64::from(canary), "{started} of {canary}");
        }

        /// While nothing is known, no more than the canary is sent.
        #[test]
        fn what_is_unknown_is_never_taken_for_success(batches in prop::collection::vec(1u32..100, 1..5), seconds in 0u64..1_000) {
            let first = u64::from(batches[0]);
            let mut ramp = Ramp::new(RampSettings { batches, ..RampSettings::default() });
            let now = Instant::now();
            let fates = Fates { sent: first, ..Fates::default() };
            ramp.next(first, &fates, now);
            let next = ramp.next(first, &fates, now + Duration::from_secs(seconds));
            let is_sent = matches!(next, Next::Send { .. });
            prop_assert!(!is_sent);
        }
    }
}
