//! Proof: how many deliveries have not killed this process, and how much it may therefore hold.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A delivery that kills its process is taken to do so within this time. One that has run for
/// longer has proven as much as one that was settled.
pub(super) const CRASHES_WITHIN: Duration = Duration::from_secs(10);

/// After this many proven deliveries, what comes back a few times was probably requeued. While
/// messages are taken one by one, the process may hold one for this many proven ones.
const SOME_PROOF: u64 = 8;

/// After this many, a suspect is forgotten.
const AMPLE_PROOF: u64 = 32;

/// What a started delivery says about what else its queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// No crash has given it back, or anything else that is ready in its queue.
    IsFresh,
    /// A crash may have given it back.
    MayHaveCrashed,
    /// Its queue is ordered, and follows other rules.
    IsOrdered,
}

/// Counts the deliveries that were settled, or have run for long enough, since the process started
/// or last saw a suspect.
#[derive(Debug, Default)]
pub(super) struct Proof {
    proven: u64,
    /// Started deliveries that do not count yet, by their numbers, the longest running first.
    unproven: BTreeMap<u64, (Instant, Says)>,
    /// How many of them say each thing.
    saying: [usize; 3],
    /// A suspect has arrived, or a delivery has ended the connection, and not enough was proven
    /// since.
    is_shaken: bool,
}

impl Proof {
    /// The widest window of a queue with this concurrency, once messages are no longer taken one by
    /// one: a delivery for each handler, so that slow handlers run side by side from the start. It
    /// quadruples, because each step takes one more subscription.
    pub(super) fn window(&self, concurrency: u16) -> u16 {
        let quadruplings = (1 + self.proven / u64::from(concurrency.max(1))).ilog2() / 2;
        u16::try_from(u64::from(concurrency) << (2 * quadruplings).min(16)).unwrap_or(u16::MAX)
    }

    pub(super) fn is_shaken(&self) -> bool {
        self.is_shaken
    }

    /// A suspect has arrived, or a delivery has ended the connection: what was proven before counts
    /// no more.
    pub(super) fn shake(&mut self) {
        (self.is_shaken, self.proven) = (true, 0);
    }

    /// Whether messages are taken one by one where a crash may have given something back.
    pub(super) fn is_scant(&self) -> bool {
        self.is_shaken || self.proven < SOME_PROOF
    }

    pub(super) fn is_ample(&self) -> bool {
        self.proven >= AMPLE_PROOF
    }

    /// Whether one more message may be taken although little is proven. After a suspect the process
    /// holds at most an eighth of what it has seen to be harmless.
    pub(super) fn allows_one_more(&self) -> bool {
        let [fresh, others, _] = self.saying;
        let held = others + if self.is_shaken { fresh } else { 0 };
        (held as u64) < (self.proven / SOME_PROOF).max(1)
    }

    pub(super) fn started(&mut self, number: u64, says: Says, now: Instant) {
        self.unproven.insert(number, (now, says));
        self.saying[says as usize] += 1;
    }

    /// A started delivery takes no slot any more.
    pub(super) fn finished(&mut self, number: u64) {
        if self.forget(number) {
            self.prove();
        }
    }

    /// A started delivery proves nothing: its channel is gone. False if it counts already.
    pub(super) fn forget(&mut self, number: u64) -> bool {
        let forgotten = self.unproven.remove(&number);
        forgotten.inspect(|(_, says)| self.saying[*says as usize] -= 1).is_some()
    }

    fn prove(&mut self) {
        self.proven = self.proven.saturating_add(1);
        self.is_shaken &= !self.is_ample();
    }

    /// Counts the handlers that have run for long enough by now.
    pub(super) fn pass_time(&mut self, now: Instant) {
        while let Some((&number, (started, _))) = self.unproven.first_key_value()
            && now.saturating_duration_since(*started) >= CRASHES_WITHIN
        {
            self.finished(number);
        }
    }

    /// When the next handler counts if it runs on.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.unproven.first_key_value().map(|(_, (started, _))| *started + CRASHES_WITHIN)
    }
}
