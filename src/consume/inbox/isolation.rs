//! Isolation: a suspect has the process to itself until it is settled, for a bounded time. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::proof::CRASHES_WITHIN;
use super::rules::Rules;
use super::suspicion::is_near_limit;

/// How long the settlement of a delivery whose handler has ended may take before others go on
/// without it: other suspects, and what is behind it in its queue. The broker may not confirm its
/// copy.
pub(super) const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// How long an ack may take to leave the process. If the process dies before, the broker never sees
/// the ack.
pub(super) const ACK_FLUSH_TIME: Duration = Duration::from_millis(50);

/// How long a suspect has the process to itself at most: the more often it came back, the longer.
pub(super) fn isolated_for(rules: &Rules, count: u32) -> Duration {
    if is_near_limit(count, rules.delivery_limit) {
        return rules.start_limit;
    }
    let longer = 4u32.saturating_pow(count.saturating_sub(1));
    CRASHES_WITHIN.saturating_mul(longer).min(rules.start_limit)
}

/// Whether a suspect has the process to itself, and when the next one may.
#[derive(Debug, Default)]
pub(super) struct Isolation {
    /// The suspect, and until when nothing else starts or is taken.
    present: Option<(u64, Instant)>,
    /// Suspects whose handler has ended, and that are not settled.
    unsettled: BTreeSet<u64>,
    /// No suspect starts before this: what was settled last must have reached the broker.
    quiet_until: Option<Instant>,
}

impl Isolation {
    /// Whether nothing else starts or is taken now.
    pub(super) fn is_in_effect(&self) -> bool {
        self.present.is_some()
    }

    /// Whether the next suspect may start, as far as the last one is concerned.
    pub(super) fn lets_suspects_start(&self) -> bool {
        self.quiet_until.is_none()
    }

    /// This suspect has started.
    pub(super) fn begin(&mut self, suspect: u64, until: Instant) {
        self.present = Some((suspect, until));
    }

    /// Something was settled.
    pub(super) fn settled(&mut self, now: Instant) {
        self.quiet_until = Some(now + ACK_FLUSH_TIME);
    }

    /// The suspect's handler has ended. Until the suspect is settled it keeps the process to
    /// itself, because the next one may kill the process. This is bounded: while one suspect is
    /// unsettled, those after it hardly wait, so refused copies do not add up.
    pub(super) fn handler_ended(&mut self, suspect: u64, start_limit: Duration, now: Instant) {
        if let Some((_, until)) = self.present.as_mut().filter(|(of, _)| *of == suspect) {
            let another_is_unsettled = self.unsettled.iter().any(|other| *other != suspect);
            let limit = match another_is_unsettled {
                true => ACK_FLUSH_TIME,
                false => SETTLED_WITHIN.min(start_limit / 2),
            };
            *until = (*until).min(now + limit);
        }
        self.unsettled.insert(suspect);
    }

    /// The suspect is settled, or is here no more.
    pub(super) fn end(&mut self, suspect: u64) {
        self.present.take_if(|(of, _)| *of == suspect);
        self.unsettled.remove(&suspect);
    }

    pub(super) fn pass_time(&mut self, now: Instant) {
        self.present.take_if(|(_, until)| *until <= now);
        self.quiet_until.take_if(|until| *until <= now);
    }

    /// When time alone next changes something.
    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        let times = [self.present.map(|(_, until)| until), self.quiet_until];
        times.into_iter().flatten().filter(|at| *at > now).min()
    }
}
