//! Proof: how many deliveries have not killed this process, and how wide the window may therefore
//! be.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{CRASHES_WITHIN, Running};

/// The process may hold one delivery for this many proven ones.
const PER_HELD: u64 = 8;

/// After this many proven deliveries, a suspect is forgotten, and what comes back a few times was
/// probably requeued.
const AMPLE_PROOF: u64 = 32;

/// Counts the deliveries that were settled, or have run for long enough, since the process started
/// or last saw a suspect.
#[derive(Debug, Default)]
pub(super) struct Proof {
    proven: u64,
    /// Running handlers up to this number are counted already.
    counted: u64,
    /// A suspect has arrived, or a delivery has ended the connection, and not enough was proven
    /// since.
    is_shaken: bool,
}

impl Proof {
    /// The widest window of a queue with this concurrency. It doubles or quadruples, because each
    /// step takes one more subscription.
    ///
    /// After a suspect the process holds little compared to what it has seen to be harmless. Before
    /// one it may hold a delivery for each handler, so that slow handlers run side by side from the
    /// start.
    pub(super) fn window(&self, concurrency: u16) -> u16 {
        let (first, doublings) = match self.is_shaken {
            true => (1, (self.proven / PER_HELD).max(1).ilog2()),
            false => {
                (concurrency, (1 + self.proven / u64::from(concurrency.max(1))).ilog2() / 2 * 2)
            }
        };
        u16::try_from(u64::from(first) << doublings.min(16)).unwrap_or(u16::MAX)
    }

    pub(super) fn is_shaken(&self) -> bool {
        self.is_shaken
    }

    /// A suspect has arrived, or a delivery has ended the connection: what was proven before counts
    /// no more.
    pub(super) fn shake(&mut self) {
        (self.is_shaken, self.proven) = (true, 0);
    }

    /// Whether queues still take turns.
    pub(super) fn is_scant(&self) -> bool {
        self.proven < PER_HELD
    }

    pub(super) fn is_ample(&self) -> bool {
        self.proven >= AMPLE_PROOF
    }

    pub(super) fn finished(&mut self, number: u64) {
        if number > self.counted {
            self.prove();
        }
    }

    fn prove(&mut self) {
        self.proven = self.proven.saturating_add(1);
        self.is_shaken &= !self.is_ample();
    }

    /// Counts the handlers that have run for long enough by now.
    pub(super) fn pass_time(&mut self, running: &BTreeMap<u64, Running>, now: Instant) {
        for (number, running) in running.range(self.counted + 1..) {
            if now.saturating_duration_since(running.started) < CRASHES_WITHIN {
                return;
            }
            self.counted = *number;
            self.prove();
        }
    }

    /// The next handler that will count as proven if it runs on.
    pub(super) fn youngest<'a>(&self, running: &'a BTreeMap<u64, Running>) -> Option<&'a Running> {
        running.range(self.counted + 1..).next().map(|(_, running)| running)
    }
}
