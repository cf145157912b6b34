//! The attempts at each message of a test, as its services tell of them.

use std::fmt::Write as _;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rehop::Outcome;
use rehop::internals::{Sighting, watched};
use rehop_simulator::Time;

use crate::network::Process;

/// One run of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// When the handler began, counted from the beginning of the world.
    pub began: Time,
    /// In which process.
    pub process: Process,
    /// The number of the attempt, from 1, as the handler sees it.
    pub number: u32,
    /// When its outcome was settled. `None` if it is still running, or its process ended or lost
    /// its connection first.
    pub settled: Option<Time>,
    /// What became of the message by it.
    pub outcome: Option<Outcome>,
    /// The class and the text of its failure.
    pub failure: Option<(String, String)>,
}

/// What the services of a test tell of their messages.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct Told(Arc<Mutex<Vec<Entry>>>);

#[derive(Debug, Clone)]
struct Entry {
    message: String,
    /// False if the message came to an end, or went on waiting, without an attempt.
    is_attempt: bool,
    told: Attempt,
}

impl Told {
    /// Runs a process, and remembers what its services tell. `now` is the time since the test
    /// began.
    pub async fn of<F: Future>(
        &self,
        process: Process,
        now: impl Fn() -> Time + Send + Sync + 'static,
        running: F,
    ) -> F::Output {
        let told = self.clone();
        let onlooker = Arc::new(move |seen: &Sighting<'_>| told.add(process, seen, now()));
        watched(onlooker, running).await
    }

    fn add(&self, process: Process, sighting: &Sighting<'_>, now: Time) {
        let Sighting { message_id: Some(id), attempt: number, outcome, failure } = *sighting else {
            return;
        };
        let failure =
            failure.map(|failure| (failure.class().to_owned(), failure.message().to_owned()));
        let settled = outcome.map(|_| now);
        let mut all = self.lock();
        let open = all.iter_mut().rev().find(|entry| {
            let Entry { message, is_attempt: true, told } = entry else { return false };
            message == id && told.process == process && told.number == number
        });
        match open {
            Some(Entry { told, .. }) if settled.is_some() && told.settled.is_none() => {
                (told.settled, told.outcome, told.failure) = (settled, outcome, failure);
            }
            _ => all.push(Entry {
                message: id.to_owned(),
                is_attempt: outcome.is_none(),
                told: Attempt { began: now, process, number, settled, outcome, failure },
            }),
        }
    }

    /// The attempts at a message, in the order in which they began.
    pub fn attempts(&self, message: &str) -> Vec<Attempt> {
        let entries = self.entries(message).into_iter().filter(|entry| entry.is_attempt);
        entries.map(|entry| entry.told).collect()
    }

    /// The last outcome of a message.
    pub fn outcome(&self, message: &str) -> Option<Outcome> {
        self.entries(message).iter().rev().find_map(|entry| entry.told.outcome)
    }

    /// What was told of a message: a line for each attempt, and for each end without one.
    pub fn lines(&self, message: &str) -> String {
        let mut lines = String::new();
        for Entry { is_attempt, told, .. } in self.entries(message) {
            let Attempt { began, process: Process(process), number, .. } = told;
            let _ = write!(lines, "\n  {:>10}  ", rounded(began));
            if is_attempt {
                let _ = write!(lines, "attempt {number} in process {process}, ");
            }
            lines.push_str(&in_words(told.outcome));
            if let Some((class, error)) = &told.failure {
                let _ = write!(lines, " ({class}: {error})");
            }
        }
        lines
    }

    fn entries(&self, message: &str) -> Vec<Entry> {
        self.lock().iter().filter(|entry| entry.message == message).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An outcome in words.
fn in_words(outcome: Option<Outcome>) -> String {
    match outcome {
        None => "no outcome: it runs, or its process ended or lost its connection".to_owned(),
        Some(Outcome::Ack) => "handled".to_owned(),
        Some(Outcome::Requeue) => "requeued".to_owned(),
        Some(Outcome::Wait(delay)) => format!("waits {}", rounded(delay)),
        Some(Outcome::Defer(delay)) => format!("deferred by {}", rounded(delay)),
        Some(Outcome::Park(reason)) => format!("parked: {reason}"),
        Some(Outcome::Discard(reason)) => format!("discarded: {reason}"),
        Some(other) => other.as_str().to_owned(),
    }
}

/// A time without what is below a millisecond.
#[doc(hidden)]
pub fn rounded(time: Duration) -> String {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    format!("{:?}", Duration::from_millis(millis))
}
