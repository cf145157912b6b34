//! Replays, discards and edits that were started from a page. They go on when the page is closed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::parked::{
    DiscardRequest, Discarded, EditRequest, Edited, Filter, Parked, ParkedError, Progress, ReplayRequest, Replayed,
    RestoreRequest, Restored,
};

/// How many runs are remembered. One that still goes on is never forgotten.
const REMEMBERED: usize = 50;

/// How far a run is, or how it ended.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    Starting,
    Running(Progress),
    Replayed(Replayed),
    Discarded(Discarded),
    Restored(Restored),
    Edited(Edited),
    Failed(ParkedError),
}

impl Phase {
    pub(super) fn is_over(&self) -> bool {
        !matches!(self, Self::Starting | Self::Running(_))
    }
}

/// One replay, discard or edit.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: u64,
    /// What it does, in words.
    pub(super) title: String,
    pub(super) why: String,
    /// The query of the address that it was started from.
    pub(super) from: String,
    /// How many messages the discard moved that this one undoes.
    pub(super) undoes: Option<u64>,
    pub(super) phase: watch::Receiver<Phase>,
    /// The last run that was to undo this one.
    undo: Mutex<Option<Arc<Run>>>,
    stop: CancellationToken,
}

impl Run {
    /// The run that undoes this one, if there is any that did not fail.
    pub(super) fn undone_by(&self) -> Option<u64> {
        Some(self.lock().as_ref().filter(|undo| undo.may_be_enough())?.id)
    }

    /// Whether another attempt to undo would be too much.
    fn may_be_enough(&self) -> bool {
        match &*self.phase.borrow() {
            Phase::Failed(_) => false,
            Phase::Restored(restored) => restored.stopped.is_none(),
            _ => true,
        }
    }

    /// The discard that can be undone, and how many messages it has moved.
    pub(super) fn discarded(&self) -> Option<Discarded> {
        match &*self.phase.borrow() {
            Phase::Discarded(discarded) if discarded.tally.moved > 0 => Some(discarded.clone()),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Run>>> {
        self.undo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks it to send no further message.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}

/// What a run is to do.
#[derive(Debug)]
pub(super) enum Operation {
    Replay(ReplayRequest),
    Discard(DiscardRequest),
    Restore(RestoreRequest),
    Edit(EditRequest),
}

/// What is said of a run.
#[derive(Debug)]
pub(super) struct About {
    pub(super) title: String,
    pub(super) why: String,
    pub(super) from: String,
}

/// The runs since the start, the last ones first.
#[derive(Debug, Default)]
pub(super) struct Runs(Mutex<VecDeque<Arc<Run>>>);

impl Runs {
    pub(super) fn start(&self, parked: Parked, operation: Operation, about: About) -> Arc<Run> {
        self.begin(parked, operation, about, None)
    }

    /// Moves back exactly what this run has discarded. `None` if it has discarded nothing. There is one such run at a time, and no
    /// other after one that went to its end.
    pub(super) fn undo(&self, run: &Run, parked: Parked, why: String) -> Option<Arc<Run>> {
        let discarded = run.discarded()?;
        let mut undo = run.lock();
        if let Some(undo) = undo.as_ref().filter(|undo| undo.may_be_enough()) {
            return Some(undo.clone());
        }
        let filter = Filter::run(discarded.run);
        let operation =
            Operation::Restore(RestoreRequest { filter, why: Some(why.clone()), ..RestoreRequest::default() });
        let about = About { title: format!("Undo: {}", run.title), why, from: run.from.clone() };
        let begun = self.begin(parked, operation, about, Some(discarded.tally.moved));
        *undo = Some(begun.clone());
        Some(begun)
    }

    fn begin(&self, parked: Parked, operation: Operation, about: About, undoes: Option<u64>) -> Arc<Run> {
        let (progress, phase) = watch::channel(Phase::Starting);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move {
            let observe = |seen: &Progress| drop(progress.send_replace(Phase::Running(seen.clone())));
            let ended = match operation {
                Operation::Replay(request) => parked.replay(&request, observe, stopped).await.map(Phase::Replayed),
                Operation::Discard(request) => parked.discard(&request, observe, stopped).await.map(Phase::Discarded),
                Operation::Restore(request) => parked.restore(&request, observe, stopped).await.map(Phase::Restored),
                Operation::Edit(request) => parked.edit(&request).await.map(Phase::Edited),
            };
            progress.send_replace(ended.unwrap_or_else(Phase::Failed));
        });
        let About { title, why, from } = about;
        let mut runs = self.lock();
        let id = runs.front().map_or(1, |last| last.id + 1);
        let run = Arc::new(Run { id, title, why, from, undoes, phase, undo: Mutex::default(), stop });
        runs.push_front(run.clone());
        while runs.len() > REMEMBERED && runs.back().is_some_and(|run| run.phase.borrow().is_over()) {
            runs.pop_back();
        }
        run
    }

    pub(super) fn find(&self, id: u64) -> Option<Arc<Run>> {
        self.lock().iter().find(|run| run.id == id).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Run>> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Run>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
