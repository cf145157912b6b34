//! The ledger: what a case allows, what was found, and what happened to its messages. It tracks
//! identities, not counts.

mod audit;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use rehop_testing::Received;

use crate::expectation::Fate;
pub(crate) use audit::{CLOCKS, account};

/// What a case allows beyond the one fate of each message. Anything else that is found is a
/// failure.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowed {
    /// How often the faults make the broker take back what a process holds, or make the process
    /// send its copies again.
    losses: u32,
    /// How many messages this can be each time.
    held: usize,
    /// Where messages may be found instead of their fate.
    instead: Vec<Fate>,
    /// How many attempts of a message a loss takes, if more than one.
    attempts: u32,
    /// How many messages can end once more, if fewer than the losses charge.
    duplicates: Option<usize>,
    /// The times in the headers are wrong, because the case forges them or moves a clock.
    wrong_times: bool,
    /// A delivery that no handler has seen can spend one of a message's waits.
    spent_waits: bool,
}

impl Allowed {
    pub(crate) fn nothing() -> Self {
        Self::default()
    }

    /// A loss charges up to `held` messages, at most the prefetch. Each may then be attempted once
    /// more, and end once more.
    pub(crate) fn losses(times: usize, held: usize) -> Self {
        Self { losses: times as u32, held, ..Self::default() }
    }

    /// A loss takes so many attempts of each message that it charges, and not just the last one.
    pub(crate) fn restarting(mut self, attempts: usize) -> Self {
        self.attempts = attempts as u32;
        self
    }

    /// A loss can charge messages that have not ended, and that therefore cannot end twice. Over
    /// all losses, at most so many had ended.
    pub(crate) fn duplicates_at_most(mut self, count: usize) -> Self {
        self.duplicates = Some(count);
        self
    }

    /// How many more handler runs a message may have.
    fn more_runs(&self) -> u32 {
        self.losses * self.attempts.max(1)
    }

    pub(crate) fn or(mut self, fate: Fate) -> Self {
        self.instead.push(fate);
        self
    }

    pub(crate) fn spent_waits(mut self) -> Self {
        self.spent_waits = true;
        self
    }

    pub(crate) fn wrong_times(mut self) -> Self {
        self.wrong_times = true;
        self
    }

    /// How many duplicates there may be, over all messages.
    fn duplicates(&self) -> usize {
        self.duplicates.unwrap_or(self.losses as usize * self.held)
    }
}

/// What was found in queues, by message: where, and in which of the service's queues.
#[derive(Debug, Default, Clone)]
pub(crate) struct Found {
    ends: BTreeMap<u64, Vec<End>>,
    foreign: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct End {
    fate: Fate,
    /// `None` if messages of all queues are found in the same one.
    queue: Option<usize>,
    body: Vec<u8>,
}

/// The body, without the headers that follow it because they did not fit into a frame.
fn own_body(message: &Received) -> Vec<u8> {
    let end = message.headers.get("rehop-body-bytes").and_then(serde_json::Value::as_u64);
    message.body[..end.map_or(message.body.len(), |end| end as usize)].to_vec()
}

impl Found {
    /// The messages taken out of a queue. A message is identified by its id, which no hop changes.
    pub(crate) fn received(
        &mut self,
        messages: &[Received],
        queue: Option<usize>,
        fate: impl Fn(&Received) -> Fate,
    ) {
        for message in messages {
            let id = message.properties.message_id.as_deref().and_then(|id| id.parse::<u64>().ok());
            match id {
                Some(id) => self.add(id, fate(message), queue, own_body(message)),
                None => {
                    self.foreign.push(format!("{:?} is not a message of this case", message.text()))
                }
            }
        }
    }

    pub(crate) fn add(&mut self, id: u64, fate: Fate, queue: Option<usize>, body: Vec<u8>) {
        self.ends.entry(id).or_default().push(End { fate, queue, body });
    }
}

/// What happened to the messages of one case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    pub(crate) sent: usize,
    pub(crate) fates: BTreeMap<Fate, BTreeSet<u64>>,
    pub(crate) duplicates: usize,
    pub(crate) lost: BTreeSet<u64>,
    /// What was found and not allowed.
    pub(crate) breaches: Vec<String>,
    /// The longest time until work continued after the end of a fault.
    pub(crate) recovery: Option<Duration>,
    /// A note of the case in addition to its figures.
    pub(crate) note: String,
}

impl Account {
    /// Whether each message ended as the case allows.
    pub(crate) fn is_right(&self) -> bool {
        self.lost.is_empty() && self.breaches.is_empty()
    }

    /// What is wrong, with as many examples as fit on a line.
    pub(crate) fn complaint(&self) -> String {
        let examples = self.breaches.iter().take(4).cloned().collect::<Vec<_>>().join("; ");
        format!("{self}; {} breaches: {examples}", self.breaches.len())
    }

    /// Names the part of the case if something is wrong with it.
    pub(crate) fn of(mut self, part: &str) -> Self {
        if !self.is_right() {
            self.breaches.insert(0, part.to_owned());
        }
        self
    }

    /// Adds another round's figures.
    pub(crate) fn add(&mut self, other: &Self) {
        // Every round numbers its messages from the same start.
        let shift = self.sent as u64 * 1_000_000;
        self.lost.extend(other.lost.iter().map(|id| id + shift));
        for (fate, ids) in &other.fates {
            self.fates.entry(*fate).or_default().extend(ids.iter().map(|id| id + shift));
        }
        self.sent += other.sent;
        self.duplicates += other.duplicates;
        self.breaches.extend(other.breaches.iter().cloned());
        self.recovery = self.recovery.max(other.recovery);
    }

    pub(crate) fn count(&self, fate: Fate) -> usize {
        self.fates.get(&fate).map_or(0, BTreeSet::len)
    }

    pub(crate) fn parked(&self) -> usize {
        let parked = self.fates.iter().filter(|(fate, _)| matches!(fate, Fate::Parked(_)));
        parked.map(|(_, ids)| ids.len()).sum()
    }

    pub(crate) fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sent {}", self.sent)?;
        for (fate, ids) in &self.fates {
            write!(f, ", {fate:?} {}", ids.len())?;
        }
        write!(f, ", duplicates {}", self.duplicates)?;
        if !self.lost.is_empty() {
            write!(f, ", lost {:?}", self.lost)?;
        }
        Ok(())
    }
}
