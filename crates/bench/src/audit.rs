//! What happened to each message, by its id.

use std::fmt;
use std::time::Duration;

use rehop::topology::Role;

use crate::job::{Fate, Job};
use crate::witness::Seen;

/// The messages that did not end as they should, by id.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Audit {
    /// Nowhere.
    pub(crate) lost: Vec<usize>,
    /// In a queue where no message should end.
    pub(crate) astray: Vec<usize>,
    /// Still waiting, or waiting to be delivered.
    pub(crate) unfinished: Vec<usize>,
    /// Ended with fewer attempts than they should have had.
    pub(crate) hurried: Vec<usize>,
    /// Came back before their wait was over.
    pub(crate) early: Vec<usize>,
    /// Surplus attempts and copies.
    pub(crate) again: usize,
}

/// A queue measures in milliseconds, so a wait may be too short by a rounding error.
const CLOCK: Duration = Duration::from_millis(2);

impl Audit {
    /// `found` is what the queues held when both clocks had stopped.
    pub(crate) fn of(job: Job, seen: &[Seen], found: &[(Fate, usize)]) -> Self {
        let mut fates: Vec<Vec<Fate>> = vec![Vec::new(); seen.len()];
        for (fate, id) in found {
            fates[*id].push(*fate);
        }
        let mut audit = Self::default();
        for (id, (seen, mut fates)) in seen.iter().zip(fates).enumerate() {
            // A requeued message does not end with its last attempt, but with its copy in the
            // parked queue.
            if job.end() == Fate::Handled && seen.last.is_some() {
                fates.push(Fate::Handled);
            }
            audit.again += seen.attempts.saturating_sub(job.attempts()) as usize
                + fates.len().saturating_sub(1);
            if job.way().is_some_and(|way| came_early(seen, way.wait(id))) {
                audit.early.push(id);
            }
            if fates.contains(&job.end()) {
                if seen.attempts < job.attempts() {
                    audit.hurried.push(id);
                }
            } else if fates.is_empty() {
                audit.lost.push(id);
            } else if fates.iter().all(|fate| matches!(fate, Fate::In(Role::Work | Role::Wait))) {
                audit.unfinished.push(id);
            } else {
                audit.astray.push(id);
            }
        }
        audit
    }

    /// How many messages did not end as they should. Unfinished ones are safe, and the caller
    /// judges them.
    pub(crate) fn failed(&self) -> usize {
        self.lost.len() + self.astray.len() + self.hurried.len() + self.early.len()
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.lost.extend(other.lost);
        self.astray.extend(other.astray);
        self.unfinished.extend(other.unfinished);
        self.hurried.extend(other.hurried);
        self.early.extend(other.early);
        self.again += other.again;
    }
}

fn came_early(seen: &Seen, wait: Duration) -> bool {
    seen.first.zip(seen.last).is_some_and(|(first, last)| last + CLOCK < first + wait)
}

/// One line for each kind of failure, with the first few ids. Without failures it prints nothing.
impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (ids, what) in [
            (&self.lost, "lost"),
            (&self.astray, "in a queue where they should not be"),
            (&self.unfinished, "unfinished"),
            (&self.hurried, "ended before all their attempts"),
            (&self.early, "back before their wait was over"),
        ] {
            if !ids.is_empty() {
                let first: Vec<_> = ids.iter().take(10).map(ToString::to_string).collect();
                let more = if ids.len() > first.len() { ", …" } else { "" };
                writeln!(f, "    {} {what}: {}{more}", ids.len(), first.join(", "))?;
            }
        }
        Ok(())
    }
}
