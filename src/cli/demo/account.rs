//! The accounting: what was published against what was found, and whether the two agree. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::script::Fate;

/// What was seen, each part by its own witness.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    /// The publisher: the orders that the broker has confirmed, and what is meant to become of each.
    pub(super) published: BTreeMap<u32, Fate>,
    /// The HTTP service: the order of each request that it answered with success.
    pub(super) handled: Vec<u32>,
    /// The queues of the dead: each message that was read from the parked queue and the stray queue.
    pub(super) found: Vec<(Option<u32>, Fate)>,
    /// The queues of the living: each message that was still in the work queue or a wait queue at the end.
    pub(super) left: Vec<Option<u32>>,
}

/// The evidence, added up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) published: usize,
    /// How many orders ended so, and how many were meant to.
    pub(super) rows: BTreeMap<Fate, Row>,
    /// Endings beyond an order's first.
    pub(super) duplicates: usize,
    /// Still in a queue, without an ending.
    pub(super) left: BTreeSet<u32>,
    /// Neither ended nor in any queue.
    pub(super) lost: BTreeSet<u32>,
    /// Ended otherwise than they were meant to.
    pub(super) astray: BTreeMap<u32, Fate>,
    /// Messages and requests of no published order.
    pub(super) unknown: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) orders: usize,
    pub(super) meant: usize,
}

impl Account {
    pub(super) fn of(evidence: &Evidence) -> Self {
        let mut account = Self { published: evidence.published.len(), ..Self::default() };
        let mut endings: BTreeMap<u32, Vec<Fate>> = BTreeMap::new();
        let handled = evidence.handled.iter().map(|id| (Some(*id), Fate::Handled));
        for (id, fate) in handled.chain(evidence.found.iter().cloned()) {
            match id.filter(|id| evidence.published.contains_key(id)) {
                Some(id) => endings.entry(id).or_default().push(fate),
                None => account.unknown += 1,
            }
        }
        let left = evidence.left.iter().copied();
        let (left, unknown): (Vec<_>, Vec<_>) =
            left.partition(|id| id.is_some_and(|id| evidence.published.contains_key(&id)));
        account.unknown += unknown.len();
        for id in left.into_iter().flatten() {
            // A copy of what has ended is a duplicate on its way.
            if endings.contains_key(&id) || !account.left.insert(id) {
                account.duplicates += 1;
            }
        }
        for (id, meant) in &evidence.published {
            account.rows.entry(meant.clone()).or_default().meant += 1;
            match endings.get(id).map(Vec::as_slice) {
                None | Some([]) if account.left.contains(id) => {}
                None | Some([]) => drop(account.lost.insert(*id)),
                Some(fates @ [first, rest @ ..]) => {
                    let fate = if fates.contains(meant) { meant } else { first };
                    account.rows.entry(fate.clone()).or_default().orders += 1;
                    account.duplicates += rest.len();
                    if fate != meant {
                        account.astray.insert(*id, fate.clone());
                    }
                }
            }
        }
        account
    }

    /// Whether every published order ended exactly where it was meant to, and nothing else did.
    pub(super) fn adds_up(&self) -> bool {
        let ended: usize = self.rows.values().map(|row| row.orders).sum();
        ended == self.published
            && self.rows.values().all(|row| row.orders == row.meant)
            && self.left.is_empty()
            && self.lost.is_empty()
            && self.astray.is_empty()
            && self.unknown == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parked(reason: &str) -> Fate {
        Fate::Parked(reason.to_owned())
    }

    /// Orders 1 to 3 are handled, 4 is parked, 5 is a stray.
    fn sound() -> Evidence {
        Evidence {
            published: [Fate::Handled, Fate::Handled, Fate::Handled, parked("permanent"), Fate::Stray]
                .into_iter()
                .enumerate()
                .map(|(index, fate)| (index as u32 + 1, fate))
                .collect(),
            handled: vec![2, 1, 3],
            found: vec![(Some(4), parked("permanent")), (Some(5), Fate::Stray)],
            left: Vec::new(),
        }
    }

    fn account(change: impl FnOnce(&mut Evidence)) -> Account {
        let mut evidence = sound();
        change(&mut evidence);
        Account::of(&evidence)
    }

    #[test]
    fn what_is_all_there_adds_up() {
        let account = account(|_| {});
        assert!(account.adds_up());
        assert_eq!(account.rows[&Fate::Handled], Row { orders: 3, meant: 3 });
        assert_eq!(account.rows.values().map(|row| row.orders).sum::<usize>(), account.published);
    }

    #[test]
    fn an_order_that_is_nowhere_is_lost() {
        let account = account(|evidence| evidence.handled.retain(|id| *id != 2));
        assert!(!account.adds_up());
        assert_eq!(account.lost, [2].into());
    }

    #[test]
    fn an_order_that_is_still_in_a_queue_is_left_and_not_lost() {
        let account = account(|evidence| {
            evidence.handled.retain(|id| *id != 2);
            evidence.left.push(Some(2));
        });
        assert!(!account.adds_up());
        assert_eq!((account.left, account.lost.len()), ([2].into(), 0));
    }

    #[test]
    fn an_innocent_that_is_parked_does_not_add_up() {
        let account = account(|evidence| {
            evidence.handled.retain(|id| *id != 2);
            evidence.found.push((Some(2), parked("delivery_limit")));
        });
        assert!(!account.adds_up());
        assert_eq!(account.astray, [(2, parked("delivery_limit"))].into());
    }

    #[test]
    fn a_permanent_failure_that_was_handled_does_not_add_up() {
        let account =
            account(|evidence| evidence.found.remove(0).0.into_iter().for_each(|id| evidence.handled.push(id)));
        assert!(!account.adds_up());
        assert_eq!(account.astray, [(4, Fate::Handled)].into());
    }

    #[test]
    fn what_was_never_published_does_not_add_up() {
        for change in [
            |evidence: &mut Evidence| evidence.handled.push(99),
            |evidence: &mut Evidence| evidence.found.push((None, Fate::Stray)),
            |evidence: &mut Evidence| evidence.left.push(None),
        ] {
            let account = account(change);
            assert!(!account.adds_up());
            assert_eq!(account.unknown, 1);
        }
    }

    #[test]
    fn duplicates_are_counted_and_allowed() {
        let account = account(|evidence| {
            evidence.handled.extend([1, 1]);
            evidence.found.push((Some(4), parked("permanent")));
            evidence.found.push((Some(3), parked("expired")));
            evidence.left.push(Some(2));
        });
        assert!(account.adds_up());
        assert_eq!(account.duplicates, 5);
    }

    #[test]
    fn nothing_published_and_nothing_found_adds_up() {
        assert!(Account::of(&Evidence::default()).adds_up());
    }
}
