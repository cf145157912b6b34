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
    /// Its place among all that the services told, from 0: several may be told at one time.
    pub began_seq: usize,
    /// When its outcome was settled. `None` if it is still running, or its process ended or lost
    /// its connection first.
    pub settled: Option<Time>,
    /// Its place among all that the services told, as [`began_seq`](Self::began_seq).
    pub settled_seq: Option<usize>,
    /// What became of the message by it.
    pub outcome: Option<Outcome>,
    /// The class and the text of its failure.
    pub failure: Option<(String, String)>,
}

/// What the services of a test tell of their messages.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct AttemptLog(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    entries: Vec<Entry>,
    /// How often something was told.
    count: usize,
}

#[derive(Debug, Clone)]
struct Entry {
    /// The queue that the message was consumed from. One id may be in several.
    queue: String,
    message: String,
    /// False if the message came to an end, or went on waiting, without an attempt.
    is_attempt: bool,
    told: Attempt,
}

impl AttemptLog {
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
        let Sighting { queue: of, message_id: Some(id), attempt: number, outcome, failure } =
            *sighting
        else {
            return;
        };
        let failure =
            failure.map(|failure| (failure.class().to_owned(), failure.message().to_owned()));
        let mut all = self.lock();
        let place = all.count;
        all.count += 1;
        let (settled, settled_seq) = (outcome.map(|_| now), outcome.map(|_| place));
        let open = all.entries.iter_mut().rev().find(|entry| {
            let Entry { queue, message, is_attempt: true, told } = entry else { return false };
            queue == of && message == id && told.process == process && told.number == number
        });
        match open {
            Some(Entry { told, .. }) if settled.is_some() && told.settled.is_none() => {
                (told.settled, told.settled_seq) = (settled, settled_seq);
                (told.outcome, told.failure) = (outcome, failure);
            }
            _ => all.entries.push(Entry {
                queue: of.to_owned(),
                message: id.to_owned(),
                is_attempt: outcome.is_none(),
                told: Attempt {
                    began: now,
                    began_seq: place,
                    process,
                    number,
                    settled,
                    settled_seq,
                    outcome,
                    failure,
                },
            }),
        }
    }

    /// The queue of which the log tells what becomes of a message: the one that the message was
    /// published to or, if services have told of it only elsewhere, the first of these.
    pub fn queue_of(&self, message: &str, published: Option<&str>) -> Option<String> {
        let all = self.lock();
        let of_message = all.entries.iter().filter(|entry| entry.message == message);
        let queues: Vec<&str> = of_message.map(|entry| entry.queue.as_str()).collect();
        let own = published.filter(|own| queues.is_empty() || queues.contains(own));
        own.or(queues.first().copied()).map(str::to_owned)
    }

    /// Whether a service has told of the message.
    pub fn knows(&self, message: &str) -> bool {
        self.lock().entries.iter().any(|entry| entry.message == message)
    }

    /// Says so if no service has told of any message; to follow another text.
    pub fn silence(&self) -> &'static str {
        match self.lock().entries.is_empty() {
            true => {
                "; no service told of any message (one in a task that its process spawned is not seen)"
            }
            false => "",
        }
    }

    /// The attempts at a message in [its queue](Self::queue_of), in the order in which they began.
    pub fn attempts(&self, message: &str, published: Option<&str>) -> Vec<Attempt> {
        let entries = self.entries(message, published);
        let entries = entries.into_iter().filter(|entry| entry.is_attempt);
        entries.map(|entry| entry.told).collect()
    }

    /// The last outcome of a message in [its queue](Self::queue_of).
    pub fn outcome(&self, message: &str, published: Option<&str>) -> Option<Outcome> {
        self.entries(message, published).iter().rev().find_map(|entry| entry.told.outcome)
    }

    /// What was told of a message in [its queue](Self::queue_of): a line for each attempt, and for
    /// each end without one.
    pub fn lines(&self, message: &str, published: Option<&str>) -> String {
        let mut lines = String::new();
        for Entry { is_attempt, told, .. } in self.entries(message, published) {
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

    fn entries(&self, message: &str, published: Option<&str>) -> Vec<Entry> {
        let Some(queue) = self.queue_of(message, published) else { return Vec::new() };
        let is_of = |entry: &&Entry| entry.message == message && entry.queue == queue;
        self.lock().entries.iter().filter(is_of).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
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

#[cfg(test)]
mod tests {
    use rehop::Reason;

    use super::*;

    #[test]
    fn attempts_at_one_id_in_two_queues_are_told_apart() {
        let log = AttemptLog::default();
        let tell = |queue: &str, outcome: Option<Outcome>, at: u64| {
            let message_id = Some("a");
            let seen = Sighting { queue, message_id, attempt: 1, outcome, failure: None };
            log.add(Process(1), &seen, Duration::from_secs(at));
        };
        let parked = Outcome::Park(Reason::Permanent);
        tell("mails", None, 1);
        tell("orders", None, 2);
        tell("mails", Some(Outcome::Ack), 3);
        tell("orders", Some(parked), 4);
        for (queue, outcome, settled) in [("mails", Outcome::Ack, 3), ("orders", parked, 4)] {
            let attempts = log.attempts("a", Some(queue));
            assert_eq!(attempts.len(), 1, "{attempts:?}");
            assert_eq!(attempts[0].settled, Some(Duration::from_secs(settled)));
            assert_eq!(log.outcome("a", Some(queue)), Some(outcome));
        }
        // The queue that it was published to counts, unless it was only told of elsewhere.
        assert_eq!(log.queue_of("a", None).as_deref(), Some("mails"));
        assert_eq!(log.queue_of("a", Some("inbox")).as_deref(), Some("mails"));
        assert_eq!(log.queue_of("b", Some("inbox")).as_deref(), Some("inbox"));
    }
}
