//! The agenda: what each queue wants next. It is kept, so that an event costs the same however many
//! queues there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::suspicion::Rank;

/// What one queue wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// A delivery that is no suspect can start.
    pub(super) has_plain: bool,
    /// The suspect that can start.
    pub(super) suspect: Option<Rank>,
    /// When time alone next changes something.
    pub(super) at: Option<Instant>,
    /// It has a subscription that has to end before a suspect starts.
    pub(super) is_subscribed: bool,
}

/// What all queues want.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: Vec<Entry>,
    /// Queues whose sessions have to be told, each once.
    changed: Vec<usize>,
    is_changed: Vec<bool>,
    plain: BTreeSet<usize>,
    suspects: BTreeSet<(Rank, usize)>,
    /// Since when queues have a suspect that can start.
    suspects_since: BTreeMap<usize, Instant>,
    times: BTreeSet<(Instant, usize)>,
    subscribed: usize,
}

impl Agenda {
    pub(super) fn add(&mut self) {
        self.entries.push(Entry::default());
        self.is_changed.push(false);
        self.change(self.entries.len() - 1);
    }

    /// Something about this queue has changed, and this is what it wants now.
    pub(super) fn put(&mut self, queue: usize, entry: Entry, now: Instant) {
        self.change(queue);
        let Some(kept) = self.entries.get_mut(queue) else { return };
        let before = std::mem::replace(kept, entry);
        if before.has_plain != entry.has_plain {
            let _ =
                if entry.has_plain { self.plain.insert(queue) } else { self.plain.remove(&queue) };
        }
        if before.suspect != entry.suspect {
            before.suspect.map(|rank| self.suspects.remove(&(rank, queue)));
            match entry.suspect {
                Some(rank) => {
                    self.suspects.insert((rank, queue));
                    self.suspects_since.entry(queue).or_insert(now);
                }
                None => {
                    self.suspects_since.remove(&queue);
                }
            }
        }
        if before.at != entry.at {
            before.at.map(|at| self.times.remove(&(at, queue)));
            entry.at.map(|at| self.times.insert((at, queue)));
        }
        self.subscribed += usize::from(entry.is_subscribed);
        self.subscribed -= usize::from(before.is_subscribed);
    }

    /// Something that concerns all queues has changed.
    pub(super) fn all_changed(&mut self) {
        (0..self.entries.len()).for_each(|queue| self.change(queue));
    }

    fn change(&mut self, queue: usize) {
        let is_changed = self.is_changed.get_mut(queue);
        if is_changed.is_some_and(|is_changed| !std::mem::replace(is_changed, true)) {
            self.changed.push(queue);
        }
    }

    /// A queue that has changed since it was last returned.
    pub(super) fn next_changed(&mut self) -> Option<usize> {
        let queue = self.changed.pop()?;
        self.is_changed[queue] = false;
        Some(queue)
    }

    /// The first queue with a delivery that can start and is no suspect.
    pub(super) fn first_plain(&self) -> Option<usize> {
        self.plain.first().copied()
    }

    /// Queues with a suspect that can start, the one that runs first before others.
    pub(super) fn suspects(&self) -> impl Iterator<Item = usize> {
        self.suspects.iter().map(|(_, queue)| *queue)
    }

    /// Since when a suspect can start. Before, it may have been here without a free slot, and what
    /// it has to wait for is only awaited from then on.
    pub(super) fn suspects_since(&self) -> Option<Instant> {
        self.suspects_since.values().min().copied()
    }

    pub(super) fn has_subscriptions(&self) -> bool {
        self.subscribed > 0
    }

    /// A queue for which time alone has changed something by now.
    pub(super) fn due(&self, now: Instant) -> Option<usize> {
        self.times.first().filter(|(at, _)| *at <= now).map(|(_, queue)| *queue)
    }

    /// When time alone next changes something.
    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        self.times.iter().map(|(at, _)| *at).find(|at| *at > now)
    }
}
