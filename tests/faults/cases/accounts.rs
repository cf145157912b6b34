//! Tests the ledger itself: it has to notice each way in which an account can be wrong.

use std::collections::BTreeMap;

use super::order::out_of_order;
use crate::expectation::{Cause, Expected, Fate, Policy};
use crate::ground::Ground;
use crate::ledger::{Account, Allowed, Found, account};
use crate::record::{Entry, Record, Step};
use crate::service::{Does, QueueConfig};

/// A small case whose account is right.
struct Books {
    expected: BTreeMap<u64, Expected>,
    record: Record,
    parked: Vec<(u64, Fate, usize)>,
    strays: Vec<u64>,
    body_of_parked: Option<Vec<u8>>,
    allowed: Allowed,
}

const HANDLED: u64 = 1;
const WAITED: u64 = 2;
const PARKED: u64 = 3;
const DISCARDED: u64 = 4;
const EXPIRED: u64 = 5;

fn entry(id: u64, at: i64, step: Step, hop: u32) -> Entry {
    let due = (hop > 0).then_some(1200);
    Entry { at, process: 1, queue: 0, id, step, attempt: 1, hop, due, deadline: None }
}

fn right() -> Books {
    let config = QueueConfig::new("orders".to_owned());
    let kinds = [
        (HANDLED, Does::Succeed),
        (WAITED, Does::Fail(1)),
        (PARKED, Does::Permanent),
        (DISCARDED, Does::Discard),
        (EXPIRED, Does::Expired),
    ];
    let expected = kinds.map(|(id, does)| {
        (id, Expected { confirmed: true, ..Expected::new(id, 0, does, &config) })
    });
    let entries = vec![
        entry(HANDLED, 1000, Step::Started, 0),
        entry(HANDLED, 1001, Step::Succeeded, 0),
        entry(WAITED, 1000, Step::Started, 0),
        entry(WAITED, 1000, Step::Failed, 0),
        entry(WAITED, 1205, Step::Started, 1),
        entry(WAITED, 1206, Step::Succeeded, 1),
        entry(PARKED, 1000, Step::Started, 0),
        entry(PARKED, 1000, Step::Failed, 0),
        entry(DISCARDED, 1000, Step::Started, 0),
        entry(DISCARDED, 1000, Step::Discarded, 0),
    ];
    Books {
        expected: BTreeMap::from(expected),
        record: Record { entries },
        parked: vec![
            (PARKED, Fate::Parked(Cause::Permanent), 0),
            (EXPIRED, Fate::Parked(Cause::Expired), 0),
        ],
        strays: Vec::new(),
        body_of_parked: None,
        allowed: Allowed::nothing(),
    }
}

impl Books {
    fn account(&self) -> Account {
        let mut found = Found::default();
        for (id, fate, queue) in &self.parked {
            let body = self.expected.get(id).map(Expected::body).unwrap_or_default();
            found.add(*id, *fate, Some(*queue), self.body_of_parked.clone().unwrap_or(body));
        }
        for id in &self.strays {
            found.add(*id, Fate::Stray, None, self.expected[id].body());
        }
        let mut policy = Policy::default();
        policy.widen(&QueueConfig::new("orders".to_owned()));
        account(&self.expected, &found, &self.record, &[policy], &self.allowed)
    }

    fn forget(&mut self, id: u64) {
        self.record.entries.retain(|entry| entry.id != id);
        self.parked.retain(|(parked, ..)| *parked != id);
    }

    fn write(&mut self, entries: impl IntoIterator<Item = Entry>) {
        self.record.entries.extend(entries);
    }

    fn entry_of(&mut self, id: u64, step: Step, hop: u32) -> &mut Entry {
        let is_it = |entry: &&mut Entry| entry.id == id && entry.step == step && entry.hop == hop;
        self.record.entries.iter_mut().find(is_it).unwrap()
    }
}

type Break = fn(&mut Books);

/// A fault in an account, and what the ledger has to report.
const BREAKS: [(&str, Break); 24] = [
    ("lost {1}", |books| books.forget(HANDLED)),
    ("lost {3}", |books| books.parked.retain(|(id, ..)| *id != PARKED)),
    ("lost {4}", |books| books.forget(DISCARDED)),
    ("2 duplicates, and 0 are allowed", |books| {
        books.write([
            entry(HANDLED, 1002, Step::Succeeded, 0),
            entry(HANDLED, 1003, Step::Succeeded, 0),
        ]);
    }),
    ("1 duplicates, and 0 are allowed", |books| {
        books.parked.push((PARKED, Fate::Parked(Cause::Permanent), 0))
    }),
    ("1 duplicates, and 0 are allowed", |books| {
        books.write([
            entry(HANDLED, 1002, Step::Started, 0),
            entry(HANDLED, 1003, Step::Succeeded, 0),
        ]);
        books.allowed = Allowed::losses(2, 5).duplicates_at_most(0);
    }),
    ("message 1 (Succeed) was found Parked(DeliveryLimit)", |books| {
        books.parked.push((HANDLED, Fate::Parked(Cause::DeliveryLimit), 0));
    }),
    ("message 1 (Succeed) was found Queued", |books| books.parked.push((HANDLED, Fate::Queued, 0))),
    ("message 1 (Succeed) was found Stray", |books| books.strays.push(HANDLED)),
    ("message 3 (Permanent) was found Parked(Exhausted)", |books| {
        books.parked[0].1 = Fate::Parked(Cause::Exhausted);
    }),
    ("message 4 (Discard) was found Handled", |books| {
        books.write([entry(DISCARDED, 1001, Step::Succeeded, 0)])
    }),
    ("of queue 0 was found Parked(Permanent) of queue Some(1)", |books| books.parked[0].2 = 1),
    ("with another body", |books| books.body_of_parked = Some(b"another".to_vec())),
    ("of queue 0 came to the handler of another", |books| {
        books.entry_of(HANDLED, Step::Succeeded, 0).queue = 1
    }),
    ("message 1 (Succeed) had 2 handler runs, and 1 are allowed", |books| {
        books.write([entry(HANDLED, 999, Step::Started, 0)]);
    }),
    ("message 2 (Fail(1)) had 5 handler runs, and 4 are allowed", |books| {
        books.write([997, 998, 999].map(|at| entry(WAITED, at, Step::Started, 0)));
        books.allowed = Allowed::losses(1, 5).restarting(2);
    }),
    ("4 handler runs too many, and 2 are allowed", |books| {
        books.write([HANDLED, PARKED].map(|id| entry(id, 999, Step::Started, 0)));
        books.write([HANDLED, PARKED].map(|id| entry(id, 999, Step::Started, 0)));
        books.allowed = Allowed::losses(1, 1).restarting(2);
    }),
    ("message 5 (Expired) had 1 handler runs, and 0 are allowed", |books| {
        books.write([entry(EXPIRED, 999, Step::Started, 0)]);
    }),
    ("message 2 (Fail(1)) ended after 1 handler runs, and its kind takes 2", |books| {
        books.record.entries.retain(|entry| entry.id != WAITED || entry.hop > 0);
    }),
    ("had waited 3 times, and 2 are allowed", |books| {
        books.write([entry(WAITED, 2000, Step::Succeeded, 3)])
    }),
    ("was attempted 20 ms before it was due", |books| {
        books.entry_of(WAITED, Step::Started, 1).at = 1180
    }),
    ("waited 150 ms in place of 200", |books| {
        let entry = books.entry_of(WAITED, Step::Started, 1);
        (entry.at, entry.due) = (1150, Some(1150));
    }),
    ("waited 150 ms in place of 200", |books| {
        books.entry_of(WAITED, Step::Started, 1).at = 1150;
        books.allowed = Allowed::nothing().wrong_times();
    }),
    ("message 9 was never sent", |books| books.write([entry(9, 1000, Step::Started, 0)])),
];

/// Message 2 has the same key as message 1, which comes before it and of which there are so many
/// parked copies.
fn check_order(what: &str, steps: &[(u64, Step)], copies: Option<usize>, is_kept: bool) {
    let record =
        Record { entries: steps.iter().map(|(id, step)| entry(*id, 1000, *step, 0)).collect() };
    let parked: BTreeMap<u64, usize> = copies.map(|copies| (1, copies)).into_iter().collect();
    let found = out_of_order(&record, &parked, |_| 0);
    assert_eq!(found.is_empty(), is_kept, "message 1 {what}: {found:?}");
    assert!(
        out_of_order(&record, &parked, |id| id).is_empty(),
        "with a key of its own no message has to wait"
    );
}

fn order_is_checked() {
    use Step::{Discarded, Failed, Started, Succeeded};
    check_order("was handled", &[(1, Started), (1, Succeeded), (2, Started)], None, true);
    check_order("was discarded", &[(1, Started), (1, Discarded), (2, Started)], None, true);
    check_order("is at its handler", &[(1, Started), (2, Started), (1, Succeeded)], None, false);
    let again = [(1, Started), (1, Failed), (2, Started), (1, Started), (1, Succeeded)];
    check_order("waits for another attempt", &again, None, false);
    check_order("is parked", &[(1, Started), (1, Failed), (2, Started)], Some(1), true);
    let twice = [(1, Started), (1, Failed), (2, Started), (1, Started), (1, Failed)];
    check_order("was parked only by an attempt that came later", &twice, Some(1), false);
    check_order("was parked by both attempts", &twice, Some(2), true);
}

pub(crate) async fn are_checked(_: Ground) -> Account {
    order_is_checked();
    let account = right().account();
    assert!(
        account.is_right() && account.sent == 5,
        "nothing is wrong with it: {}",
        account.complaint()
    );
    for (complaint, break_it) in BREAKS {
        let mut books = right();
        break_it(&mut books);
        let account = books.account();
        assert!(!account.is_right(), "the ledger noticed nothing of: {complaint}");
        let said = account.complaint();
        assert!(said.contains(complaint), "the ledger said {said:?}, and not {complaint:?}");
    }
    let mut books = right();
    books.write([entry(PARKED, 1002, Step::Started, 0), entry(HANDLED, 1002, Step::Succeeded, 0)]);
    books.entry_of(HANDLED, Step::Started, 0).deadline = Some(1000 - 15_600);
    let said = books.account().complaint();
    assert!(said.contains("15600 ms after its deadline"), "a late attempt is noticed: {said}");
    books = right();
    books.write([entry(HANDLED, 1002, Step::Started, 0), entry(HANDLED, 1003, Step::Succeeded, 0)]);
    books.allowed = Allowed::losses(1, 1);
    assert!(
        books.account().is_right(),
        "a duplicate that is allowed is right: {}",
        books.account().complaint()
    );
    books = right();
    books.write([998, 999].map(|at| entry(WAITED, at, Step::Started, 0)));
    books.allowed = Allowed::losses(1, 1).restarting(2).duplicates_at_most(0);
    assert!(
        books.account().is_right(),
        "the attempts that a loss takes are right: {}",
        books.account().complaint()
    );
    Account::default().with_note(format!("{} wrong accounts", BREAKS.len() + 1))
}
