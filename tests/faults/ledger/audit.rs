//! Compares what was found of each message with what was expected.

use std::collections::BTreeMap;

use super::{Account, Allowed, End, Found};
use crate::expectation::{Expected, Fate, Policy};
use crate::record::{Entry, Millis, Record, Step};

/// How far two clocks of one machine may disagree.
pub(crate) const CLOCKS: Millis = 2;
/// How late an attempt may be, whatever the fault was. A dead letter that finds no leader is tried
/// again after three minutes.
const LATEST: Millis = 300_000;
/// How long it may take from the check of the deadline to the handler's first line, on a busy
/// machine.
const STARTING: Millis = 15_000;

/// Compares what was found with what was expected.
pub(crate) fn account(
    expected: &BTreeMap<u64, Expected>,
    found: &Found,
    record: &Record,
    policies: &[Policy],
    allowed: &Allowed,
) -> Account {
    let attempts = record.by_message();
    let mut account = Account { breaches: found.foreign.clone(), ..Account::default() };
    for id in found.ends.keys().chain(attempts.keys()).filter(|id| !expected.contains_key(id)) {
        account.breaches.push(format!("message {id} was never sent"));
    }
    let mut runs_too_many = 0;
    for (id, expected) in expected {
        let entries = attempts.get(id).map_or(&[][..], Vec::as_slice);
        let in_queues = found.ends.get(id).map_or(&[][..], Vec::as_slice);
        let audit = MessageAudit {
            expected,
            entries,
            in_queues,
            policy: &policies[expected.queue],
            allowed,
        };
        runs_too_many += audit.runs_too_many();
        account.enter(&audit);
    }
    let bound = allowed.duplicates();
    if account.duplicates > bound {
        account
            .breaches
            .push(format!("{} duplicates, and {bound} are allowed", account.duplicates));
    }
    let more_runs = allowed.more_runs() as usize * allowed.held;
    if runs_too_many > more_runs {
        account
            .breaches
            .push(format!("{runs_too_many} handler runs too many, and {more_runs} are allowed"));
    }
    account
}

/// One message: what is expected of it, and everything that was seen of it.
struct MessageAudit<'a> {
    expected: &'a Expected,
    entries: &'a [Entry],
    in_queues: &'a [End],
    policy: &'a Policy,
    allowed: &'a Allowed,
}

impl MessageAudit<'_> {
    /// What became of it, once for each time that it has ended.
    fn fates(&self) -> Vec<Fate> {
        let recorded = self.entries.iter().filter_map(|entry| match entry.step {
            Step::Succeeded => Some(Fate::Handled),
            Step::Discarded => Some(Fate::Discarded),
            Step::Started | Step::Failed => None,
        });
        recorded.chain(self.in_queues.iter().map(|end| end.fate)).collect()
    }

    fn runs(&self) -> u32 {
        self.entries.iter().filter(|entry| entry.step == Step::Started).count() as u32
    }

    /// The most handler runs that its kind needs. Each further end is the end of a separate chain.
    fn runs_at_most(&self) -> u32 {
        self.policy.runs(self.expected.does).end() * self.fates().len().max(1) as u32
    }

    fn runs_too_many(&self) -> usize {
        self.runs().saturating_sub(self.runs_at_most()) as usize
    }

    fn breaches(&self) -> Vec<String> {
        let (id, does) = (self.expected.id, self.expected.does);
        self.misplaced()
            .into_iter()
            .chain(self.miscounted())
            .chain(self.mistimed())
            .map(|breach| format!("message {id} ({does:?}) {breach}"))
            .collect()
    }

    fn misplaced(&self) -> Vec<String> {
        let mut breaches = Vec::new();
        let Expected { fate, queue, .. } = self.expected;
        let fates = self.fates();
        // A duplicate that has not ended yet: a service that has stopped has handed it back.
        let is_pending =
            |found| found == Fate::Queued && fates.contains(fate) && self.allowed.duplicates() > 0;
        for found in fates.iter().copied() {
            if found != *fate && !self.allowed.instead.contains(&found) && !is_pending(found) {
                breaches.push(format!("was found {found:?}, and was to be {fate:?}"));
            }
        }
        for end in self.in_queues {
            if end.queue.is_some_and(|other| other != *queue) {
                breaches.push(format!(
                    "of queue {queue} was found {:?} of queue {:?}",
                    end.fate, end.queue
                ));
            }
            if end.body != self.expected.body() {
                breaches.push(format!("was found {:?} with another body", end.fate));
            }
        }
        if self.entries.iter().any(|entry| entry.queue != *queue) {
            breaches.push(format!("of queue {queue} came to the handler of another"));
        }
        breaches
    }

    fn miscounted(&self) -> Vec<String> {
        let mut breaches = Vec::new();
        let (runs, most) = (self.runs(), self.runs_at_most() + self.allowed.more_runs());
        let least = *self.policy.runs(self.expected.does).start();
        if runs > most {
            breaches.push(format!("had {runs} handler runs, and {most} are allowed"));
        }
        if self.fates().contains(&self.expected.fate)
            && !self.expected.diverted
            && !self.allowed.spent_waits
            && runs < least
        {
            breaches.push(format!("ended after {runs} handler runs, and its kind takes {least}"));
        }
        let too_many = self.entries.iter().find(|entry| entry.hop > self.policy.waits);
        if let Some(entry) = too_many.filter(|_| !self.allowed.spent_waits) {
            breaches.push(format!(
                "had waited {} times, and {} are allowed",
                entry.hop, self.policy.waits
            ));
        }
        breaches
    }

    /// Checks that it is neither early nor lost in a wait, by the record and by the header, and not
    /// attempted after the deadline. Wrong headers are not believed.
    fn mistimed(&self) -> Vec<String> {
        let mut breaches = Vec::new();
        let is_to_be_right =
            |entry: &&Entry| entry.step == Step::Started && !self.allowed.wrong_times;
        for entry in self.entries.iter().filter(is_to_be_right) {
            let early = entry.due.map_or(0, |due| due - entry.at);
            if early > CLOCKS {
                breaches.push(format!("was attempted {early} ms before it was due"));
            }
            for deadline in [entry.deadline, self.expected.deadline].into_iter().flatten() {
                if entry.at > deadline + STARTING {
                    breaches.push(format!(
                        "was attempted {} ms after its deadline",
                        entry.at - deadline
                    ));
                }
            }
        }
        for (hop, delay) in self.policy.delays.iter().enumerate() {
            let first = |step, hop| {
                let of_the_hop = self
                    .entries
                    .iter()
                    .filter(|entry| entry.step == step && entry.hop == hop as u32);
                of_the_hop.map(|entry| entry.at).min()
            };
            // A handler that hung or panicked has not recorded its failure.
            let (Some(failed), Some(next)) =
                (first(Step::Failed, hop), first(Step::Started, hop + 1))
            else {
                continue;
            };
            let waited = next - failed;
            if waited + CLOCKS < *delay as Millis || waited > *delay as Millis + LATEST {
                breaches.push(format!("waited {waited} ms in place of {delay}"));
            }
        }
        breaches
    }
}

impl Account {
    fn enter(&mut self, audit: &MessageAudit<'_>) {
        let id = audit.expected.id;
        self.breaches.extend(audit.breaches());
        let fates = audit.fates();
        self.duplicates += fates.len().saturating_sub(1);
        if !audit.expected.confirmed {
            return;
        }
        self.sent += 1;
        match fates.iter().min() {
            // Its fate, if it has one. A duplicate elsewhere is counted separately.
            Some(first) => {
                let fate =
                    if fates.contains(&audit.expected.fate) { audit.expected.fate } else { *first };
                self.fates.entry(fate).or_default().insert(id);
            }
            None => {
                self.lost.insert(id);
            }
        }
    }
}
