//! Replays, discards and edits that were started from a page. They go on when the page is closed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::work::Work;
use rehop_operator::parked::{
    DiscardRequest, Discarded, EditRequest, Edited, Filter, Parked, ParkedError, Progress,
    ReplayRequest, Replayed, RestoreRequest, Restored,
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
    Failed {
        error: ParkedError,
        /// What it had done before, if that is known.
        seen: Option<Progress>,
    },
}

impl Phase {
    pub(super) fn is_over(&self) -> bool {
        !matches!(self, Self::Starting | Self::Running(_))
    }

    /// The progress that was seen last.
    fn seen(&self) -> Option<Progress> {
        match self {
            Self::Running(progress) => Some(progress.clone()),
            _ => None,
        }
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
    /// How many messages of the discard that this one undoes are to be brought back.
    pub(super) undoes: Option<u64>,
    is_discard: bool,
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
            Phase::Failed { .. } => false,
            // What stayed can come back once its queue is declared again.
            Phase::Restored(restored) => restored.stopped.is_none() && restored.tally.stayed() == 0,
            _ => true,
        }
    }

    /// How many messages it was to bring back and did not.
    fn left_to_undo(&self) -> u64 {
        let moved = match &*self.phase.borrow() {
            Phase::Restored(restored) => restored.tally.moved,
            Phase::Failed { seen: Some(seen), .. } => seen.tally.moved,
            _ => 0,
        };
        self.undoes.unwrap_or_default().saturating_sub(moved)
    }

    /// What it has discarded, also if it failed after a part.
    pub(super) fn undoable(&self) -> Option<Undoable> {
        let (run, moved) = match &*self.phase.borrow() {
            Phase::Discarded(discarded) => (discarded.run.clone(), discarded.tally.moved),
            Phase::Failed { seen: Some(seen), .. } if self.is_discard => {
                (seen.run.clone(), seen.tally.moved)
            }
            _ => return None,
        };
        (moved > 0).then_some(Undoable { run, moved })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Run>>> {
        self.undo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks it to send no further message.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}

/// What a discard has moved, and can be moved back.
#[derive(Debug)]
pub(super) struct Undoable {
    /// The discard's own name, which its messages carry.
    run: String,
    /// How many messages they are.
    pub(super) moved: u64,
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
#[derive(Debug)]
pub(super) struct Runs {
    work: Work,
    begun: Mutex<VecDeque<Arc<Run>>>,
}

impl Runs {
    pub(super) fn new(work: Work) -> Self {
        Self { work, begun: Mutex::default() }
    }

    pub(super) fn start(&self, parked: Parked, operation: Operation, about: About) -> Arc<Run> {
        self.begin(parked, operation, about, None)
    }

    /// Moves back exactly what this run has discarded. `None` if it has discarded nothing. There is
    /// one such run at a time, and none after one that brought everything back.
    pub(super) fn undo(&self, run: &Run, parked: Parked, why: String) -> Option<Arc<Run>> {
        let Undoable { run: discard, moved } = run.undoable()?;
        let mut undo = run.lock();
        if let Some(undo) = undo.as_ref().filter(|undo| undo.may_be_enough()) {
            return Some(undo.clone());
        }
        let filter = Filter::run(discard);
        let mut request = RestoreRequest::default();
        (request.filter, request.why) = (filter, Some(why.clone()));
        let operation = Operation::Restore(request);
        let about = About { title: format!("Undo: {}", run.title), why, from: run.from.clone() };
        let left = undo.as_ref().map_or(moved, |earlier| earlier.left_to_undo());
        let begun = self.begin(parked, operation, about, Some(left));
        *undo = Some(begun.clone());
        Some(begun)
    }

    fn begin(
        &self,
        parked: Parked,
        operation: Operation,
        about: About,
        undoes: Option<u64>,
    ) -> Arc<Run> {
        let (progress, phase) = watch::channel(Phase::Starting);
        let stop = self.work.stop_token();
        let stopped = stop.clone().cancelled_owned();
        let is_discard = matches!(operation, Operation::Discard(_));
        self.work.spawn(async move {
            let observe =
                |seen: &Progress| drop(progress.send_replace(Phase::Running(seen.clone())));
            let ended = match operation {
                Operation::Replay(request) => {
                    parked.replay(&request, observe, stopped).await.map(Phase::Replayed)
                }
                Operation::Discard(request) => {
                    parked.discard(&request, observe, stopped).await.map(Phase::Discarded)
                }
                Operation::Restore(request) => {
                    parked.restore(&request, observe, stopped).await.map(Phase::Restored)
                }
                Operation::Edit(request) => {
                    parked.stopped_by(stopped).edit(&request).await.map(Phase::Edited)
                }
            };
            let phase = ended
                .unwrap_or_else(|error| Phase::Failed { error, seen: progress.borrow().seen() });
            progress.send_replace(phase);
        });
        let About { title, why, from } = about;
        let mut runs = self.lock();
        let id = runs.front().map_or(1, |last| last.id + 1);
        let run = Arc::new(Run {
            id,
            title,
            why,
            from,
            undoes,
            is_discard,
            phase,
            undo: Mutex::default(),
            stop,
        });
        runs.push_front(run.clone());
        while runs.len() > REMEMBERED && runs.back().is_some_and(|run| run.phase.borrow().is_over())
        {
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
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use rehop::Settings;
    use rehop::settings::Secret;
    use rehop_operator::parked::Place;

    #[tokio::test]
    async fn an_edit_can_be_stopped_like_any_other_run() {
        // Takes connections, and never says a word.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = Settings::default();
        settings.broker.url = Secret::from(format!("amqp://{}", silent.local_addr().unwrap()));
        let parked = Parked::open(&settings, Place::queue("orders")).unwrap();
        let about = About { title: String::new(), why: String::new(), from: String::new() };
        let runs = Runs::new(Work::default());
        let run = runs.start(parked, Operation::Edit(EditRequest::new("chain", "body")), about);
        assert!(!run.phase.borrow().is_over());
        run.stop();
        let mut phase = run.phase.clone();
        let over =
            tokio::time::timeout(Duration::from_secs(60), phase.wait_for(Phase::is_over)).await;
        let over = over.expect("it ends in time").unwrap();
        assert!(matches!(&*over, Phase::Failed { error: ParkedError::Stopped, .. }), "{:?}", *over);
    }
}
