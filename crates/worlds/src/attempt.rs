//! The attempts at each message of a test's world, as its services tell of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rehop::Outcome;
use rehop::internals::Sighting;
use rehop_simulator::Time;

/// One run of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// When the handler began, counted from the beginning of the world.
    pub began: Time,
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

/// What the services of a world tell.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<(String, Attempt)>>>);

impl Told {
    pub(crate) fn add(&self, sighting: &Sighting<'_>, now: Time) {
        let Sighting { message_id: Some(id), attempt: number, outcome, failure, .. } = *sighting
        else {
            return;
        };
        let mut all = self.lock();
        let seen = Attempt { began: now, number, settled: None, outcome, failure: None };
        if outcome.is_none() {
            all.push((id.to_owned(), seen));
            return;
        }
        let failure =
            failure.map(|failure| (failure.class().to_owned(), failure.message().to_owned()));
        let ended = |attempt: Attempt| Attempt { settled: Some(now), outcome, failure, ..attempt };
        let open = all.iter_mut().rev().find(|(message, attempt)| {
            message == id && attempt.number == number && attempt.outcome.is_none()
        });
        match open {
            Some((_, attempt)) => *attempt = ended(attempt.clone()),
            None => all.push((id.to_owned(), ended(Attempt { number: 0, ..seen }))),
        }
    }

    /// What was told of a message, in order. What ended without an attempt has the number 0.
    pub(crate) fn of(&self, id: &str) -> Vec<Attempt> {
        let all = self.lock();
        all.iter().filter(|(message, _)| message == id).map(|(_, told)| told.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, Attempt)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An outcome in words.
pub(crate) fn in_words(outcome: Option<Outcome>) -> String {
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
pub(crate) fn rounded(time: Duration) -> String {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    format!("{:?}", Duration::from_millis(millis))
}
