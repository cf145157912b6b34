//! What became of the deliveries of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::policy::Reason;
use crate::telemetry::metrics::Outcome;

/// What became of the deliveries of a run, and why it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Messages whose handler succeeded.
    pub handled: u64,
    /// Deliveries given back for another attempt at once.
    pub requeued: u64,
    /// Deliveries sent into a wait queue.
    pub waited: u64,
    /// Messages parked, by reason. Those that the broker parks itself, at the delivery limit, are not seen here.
    pub parked: BTreeMap<Reason, u64>,
    /// Messages discarded, by reason.
    pub discarded: BTreeMap<Reason, u64>,
    /// Deliveries that no handler had seen and that were handed back when the run ended.
    pub handed_back: u64,
    /// Deliveries whose settlement came too late, because their channel was gone. The broker delivers them again: they are
    /// duplicates to come.
    pub too_late: u64,
    /// Deliveries whose handler was still running when the grace time was over. The broker delivers them again.
    pub unfinished: u64,
    /// Why the run ended.
    pub stopped: Stopped,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Stopped {
    /// The caller's shutdown future said so, and every running handler finished.
    #[default]
    Shutdown,
    /// The same, but some handlers were still running when the grace time was over.
    GraceOver,
}

impl fmt::Display for Summary {
    /// One line for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |counts: &BTreeMap<Reason, u64>| counts.values().sum::<u64>();
        write!(
            f,
            "stopped {}: ",
            match self.stopped {
                Stopped::Shutdown => "in order",
                Stopped::GraceOver => "when the grace time was over",
            }
        )?;
        write!(f, "handled {}, requeued {}, waited {}, ", self.handled, self.requeued, self.waited)?;
        write!(
            f,
            "parked {}, discarded {}, handed back {}",
            sum(&self.parked),
            sum(&self.discarded),
            self.handed_back
        )?;
        for (count, what) in [(self.too_late, "settled too late"), (self.unfinished, "unfinished")] {
            if count > 0 {
                write!(f, ", {what} {count}")?;
            }
        }
        Ok(())
    }
}

/// Counts while a run goes on.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Summary>);

impl Tally {
    pub(crate) fn settled(&self, outcome: Outcome, reason: Option<Reason>) {
        self.update(|summary| match (outcome, reason) {
            (Outcome::Ack, _) => summary.handled += 1,
            (Outcome::Requeue, _) => summary.requeued += 1,
            (Outcome::Wait, _) => summary.waited += 1,
            (Outcome::Park, reason) => *summary.parked.entry(reason.unwrap_or(Reason::Exhausted)).or_default() += 1,
            (Outcome::Discard, reason) => {
                *summary.discarded.entry(reason.unwrap_or(Reason::Unneeded)).or_default() += 1
            }
        });
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Summary)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn summary(&self) -> Summary {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
