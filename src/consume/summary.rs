//! What became of the deliveries of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use crate::lock::lock;
use crate::retry::decision::Reason;
use crate::retry::outcome::Outcome;

/// What became of the deliveries of a run, and why it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Messages whose handler succeeded.
    pub handled: u64,
    /// Deliveries requeued for another attempt at once.
    pub requeued: u64,
    /// Deliveries whose message began a wait.
    pub waited: u64,
    /// Those of `waited` that a handler deferred.
    pub deferred: u64,
    /// Messages parked, by reason. Those that the broker parks at the delivery limit are not
    /// counted here.
    pub parked: BTreeMap<Reason, u64>,
    /// Messages discarded, by reason.
    pub discarded: BTreeMap<Reason, u64>,
    /// Deliveries handed back when the run ended: before a handler had seen them, while they waited
    /// in the process, or because the broker had not accepted their copy; and those that had waited
    /// too long for a handler.
    pub handed_back: u64,
    /// Deliveries that could not be settled as their outcome asks: their channel was gone, their
    /// copy was not confirmed in time, the broker accepts no copy of them, or the run ended while
    /// it was unknown whether a copy was kept. They come again, as duplicates if they were handled
    /// or their copy was kept.
    pub unsettled: u64,
    /// How often the broker closed a channel because a message was not settled within the broker's
    /// ack timeout. 3.10 and 4.0 always do; 4.3 does if the subscription that brought the message
    /// has ended, and otherwise cancels the subscription, which is not counted.
    pub taken_back: u64,
    /// Deliveries whose handler was still running, or whose copy was not confirmed, at the end of
    /// the grace time. The broker delivers them again. Those whose copy was given up then are also
    /// among `unsettled`.
    pub unfinished: u64,
    /// Why the run ended.
    pub stopped: Stopped,
}

impl Summary {
    /// The grace time ended before the shutdown was complete.
    pub(crate) fn overrun(&mut self, unfinished: u64) {
        self.unfinished = self.unfinished.max(unfinished);
        self.stopped = Stopped::GraceOver;
    }
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Stopped {
    /// The caller requested it, and every running handler finished.
    #[default]
    Shutdown,
    /// The caller requested it, and at the end of the grace time some deliveries were not settled,
    /// or the broker had not answered.
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
                Stopped::Shutdown => "cleanly",
                Stopped::GraceOver => "when the grace time was over",
            }
        )?;
        write!(
            f,
            "handled {}, requeued {}, waited {}, ",
            self.handled, self.requeued, self.waited
        )?;
        write!(
            f,
            "parked {}, discarded {}, handed back {}",
            sum(&self.parked),
            sum(&self.discarded),
            self.handed_back
        )?;
        for (count, what) in [
            (self.unsettled, "not settled"),
            (self.taken_back, "taken back by the broker"),
            (self.unfinished, "unfinished"),
        ] {
            if count > 0 {
                write!(f, ", {what} {count}")?;
            }
        }
        Ok(())
    }
}

/// The summary of a run that has not ended.
#[derive(Debug, Default)]
pub(crate) struct LiveSummary(Mutex<Summary>);

impl LiveSummary {
    pub(crate) fn settled(&self, outcome: Outcome) {
        self.update(|summary| match outcome {
            Outcome::Ack => summary.handled += 1,
            Outcome::Requeue => summary.requeued += 1,
            Outcome::Wait(_) => summary.waited += 1,
            Outcome::Defer(_) => {
                summary.waited += 1;
                summary.deferred += 1;
            }
            Outcome::Park(reason) => *summary.parked.entry(reason).or_default() += 1,
            Outcome::Discard(reason) => *summary.discarded.entry(reason).or_default() += 1,
        });
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Summary)) {
        change(&mut lock(&self.0));
    }

    pub(crate) fn so_far(&self) -> Summary {
        lock(&self.0).clone()
    }
}
