//! The messages that wait in a queue and were not delivered yet, in the order in which they will
//! be.
//!
//! 3.10 keeps one line. 4.0 has a second one for priorities above 4, which gets two deliveries of
//! three. 4.3 has a line for each priority, and a lower one only moves when those above it are
//! empty.

use std::collections::{BTreeMap, VecDeque};

use super::Entry;
use crate::protocol::{Time, Version};

const DEFAULT_PRIORITY: u8 = 4;
const MAX_PRIORITY: u8 = 31;
/// How many deliveries 4.0 makes from its line of high priority before one from the other.
const HIGH_PRIORITY_WEIGHT: u8 = 2;

#[derive(Debug)]
pub(super) struct Backlog {
    version: Version,
    /// By rank: the line that moves first comes first.
    lines: BTreeMap<u8, VecDeque<Entry>>,
    len: usize,
    /// Deliveries on 4.0 since the last turn of the lower line.
    turn: u8,
}

impl Backlog {
    pub(super) fn new(version: Version) -> Self {
        Self { version, lines: BTreeMap::new(), len: 0, turn: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A classic queue has one line.
    pub(super) fn push(&mut self, entry: Entry, is_classic: bool) {
        let priority = entry.message.properties.priority().unwrap_or(DEFAULT_PRIORITY);
        let rank = match self.version {
            _ if is_classic => 0,
            Version::V3_10 => 0,
            Version::V4_0 => u8::from(priority <= DEFAULT_PRIORITY),
            Version::V4_3 => MAX_PRIORITY - priority.min(MAX_PRIORITY),
        };
        self.push_to(rank, entry);
    }

    /// A requeued message on 3.10 and 4.0 goes to the end of the ordinary line, whatever its
    /// priority.
    pub(super) fn push_requeued(&mut self, entry: Entry) {
        self.push_to(u8::from(self.version == Version::V4_0), entry);
    }

    /// A classic queue puts a message back to where it was.
    pub(super) fn push_by_index(&mut self, entry: Entry) {
        let line = self.lines.entry(0).or_default();
        let position = line.partition_point(|other| other.index < entry.index);
        line.insert(position, entry);
        self.len += 1;
    }

    fn push_to(&mut self, rank: u8, entry: Entry) {
        self.lines.entry(rank).or_default().push_back(entry);
        self.len += 1;
    }

    pub(super) fn next(&self) -> Option<&Entry> {
        self.lines.get(&self.next_rank()?)?.front()
    }

    pub(super) fn take_next(&mut self) -> Option<Entry> {
        let rank = self.next_rank()?;
        if self.version == Version::V4_0 {
            self.turn = if self.turn == HIGH_PRIORITY_WEIGHT { 0 } else { self.turn + 1 };
        }
        let line = self.lines.get_mut(&rank)?;
        let entry = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&rank);
        }
        self.len -= usize::from(entry.is_some());
        entry
    }

    fn next_rank(&self) -> Option<u8> {
        let (&first, line) = self.lines.first_key_value()?;
        let (&last, ordinary) = self.lines.last_key_value()?;
        if self.version == Version::V4_0 && first != last && self.turn == HIGH_PRIORITY_WEIGHT {
            // The lower line has its turn, unless the other message is the older one.
            let high = line.front().map(|entry| entry.index);
            let low = ordinary.front().map(|entry| entry.index);
            return Some(if high < low { first } else { last });
        }
        Some(first)
    }

    /// The heads of all lines: only a head can expire.
    pub(super) fn heads(&self) -> impl Iterator<Item = &Entry> {
        self.lines.values().filter_map(VecDeque::front)
    }

    /// Takes the expired messages from the head of each line, as 4.3 does.
    pub(super) fn take_expired(&mut self, now: Time, expired: &mut Vec<Entry>) {
        for line in self.lines.values_mut() {
            let count = line.iter().take_while(|entry| entry.is_expired(now)).count();
            expired.extend(line.drain(..count));
            self.len -= count;
        }
        self.lines.retain(|_, line| !line.is_empty());
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&Entry) -> bool) {
        for line in self.lines.values_mut() {
            line.retain(&is_kept);
        }
        self.lines.retain(|_, line| !line.is_empty());
        self.len = self.lines.values().map(VecDeque::len).sum();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.lines.values().flatten()
    }
}
