//! The ledger: every message that was published and confirmed ends in exactly one place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use rehop::testing::Received;

use crate::service::Job;

/// Where a message was found. The first that applies counts; each further one is a duplicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Handled,
    Parked,
    Expired,
    Discarded,
    Stray,
    Queued,
}

/// Everything that was found, by message.
#[derive(Debug, Default)]
pub(crate) struct Found(BTreeMap<u64, Vec<Place>>);

/// What became of the messages of one case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    pub(crate) sent: usize,
    pub(crate) places: BTreeMap<Place, BTreeSet<u64>>,
    pub(crate) duplicates: usize,
    pub(crate) lost: BTreeSet<u64>,
    /// What the case wants to say beside its figures.
    pub(crate) note: String,
}

impl Found {
    pub(crate) fn add(&mut self, id: u64, place: Place) {
        self.0.entry(id).or_default().push(place);
    }

    /// What was taken out of a queue.
    pub(crate) fn received(&mut self, messages: &[Received], place: Place) {
        for message in messages {
            // A foreign message, which no case has sent.
            let Ok(job) = serde_json::from_slice::<Job>(&message.body) else { continue };
            let expired = message.headers.get("rehop-reason").is_some_and(|reason| reason == "expired");
            self.add(job.id, if expired && place == Place::Parked { Place::Expired } else { place });
        }
    }

    /// What the services recorded.
    pub(crate) fn recorded(&mut self, record: &Record) {
        for id in &record.done {
            self.add(*id, Place::Handled);
        }
        for id in &record.discarded {
            self.add(*id, Place::Discarded);
        }
    }

    /// Holds what was found against what was sent. A message that was not confirmed may turn up, and does not count.
    pub(crate) fn account(&self, sent: &BTreeSet<u64>) -> Account {
        let mut account = Account { sent: sent.len(), ..Account::default() };
        for id in sent {
            match self.0.get(id) {
                None => {
                    account.lost.insert(*id);
                }
                Some(places) => {
                    let place = places.iter().min().copied().unwrap_or(Place::Queued);
                    account.places.entry(place).or_default().insert(*id);
                    account.duplicates += places.len() - 1;
                }
            }
        }
        account
    }
}

impl Account {
    /// Adds another round's figures.
    pub(crate) fn add(&mut self, other: &Self) {
        // Rounds number their messages alike.
        let shifted = |id: &u64| id + (self.sent as u64) * 1_000_000;
        self.lost.extend(other.lost.iter().map(shifted));
        for (place, ids) in &other.places {
            self.places.entry(*place).or_default().extend(ids.iter().map(shifted));
        }
        self.sent += other.sent;
        self.duplicates += other.duplicates;
    }

    pub(crate) fn count(&self, place: Place) -> usize {
        self.places.get(&place).map_or(0, BTreeSet::len)
    }

    pub(crate) fn ids(&self, place: Place) -> BTreeSet<u64> {
        self.places.get(&place).cloned().unwrap_or_default()
    }

    /// Fails the case unless all messages were handled.
    pub(crate) fn all_handled(self) -> Self {
        assert_eq!(self.count(Place::Handled), self.sent, "all messages are handled: {self}");
        self
    }

    /// Fails the case if anything is still queued.
    pub(crate) fn none_queued(self) -> Self {
        assert_eq!(self.count(Place::Queued), 0, "nothing is left in a queue: {self}");
        self
    }

    pub(crate) fn none_stray(self) -> Self {
        assert_eq!(self.count(Place::Stray), 0, "nothing went astray: {self}");
        self
    }

    pub(crate) fn none_twice(self) -> Self {
        assert_eq!(self.duplicates, 0, "nothing is handled twice: {self}");
        self
    }

    pub(crate) fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sent {}", self.sent)?;
        for (place, ids) in &self.places {
            write!(f, ", {place:?} {}", ids.len())?;
        }
        write!(f, ", duplicates {}, lost {:?}", self.duplicates, self.lost)
    }
}

/// What the services of one case have recorded so far.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) started: Vec<u64>,
    pub(crate) done: Vec<u64>,
    pub(crate) discarded: Vec<u64>,
}

impl Record {
    pub(crate) fn read(path: &Path) -> Self {
        let mut record = Self::default();
        for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
            let mut words = line.split(' ');
            let (Some(what), Some(id)) = (words.next(), words.next().and_then(|id| id.parse().ok())) else { continue };
            match what {
                "start" => record.started.push(id),
                "done" => record.done.push(id),
                _ => record.discarded.push(id),
            }
        }
        record
    }

    /// How many messages have ended at a handler.
    pub(crate) fn ended(&self) -> BTreeSet<u64> {
        self.done.iter().chain(&self.discarded).copied().collect()
    }
}
