//! The accounting: where each order should have ended, against where it was found. Pure.

use std::collections::BTreeMap;

use super::script::Fate;

/// A message or request that was found, with the order that it belongs to.
pub(crate) type Found = (Option<u32>, Fate);

#[derive(Debug, Default)]
pub(crate) struct Account {
    /// For each fate, how many orders ended with it, and how many should have.
    pub(crate) rows: BTreeMap<Fate, Row>,
    /// The orders that ended differently than they should have.
    pub(crate) astray: BTreeMap<u32, Fate>,
    /// How often an order was found beyond its end.
    pub(crate) duplicates: usize,
    /// How many messages belong to no published order.
    pub(crate) unknown: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) orders: usize,
    pub(crate) meant: usize,
}

impl Account {
    pub(crate) fn of(meant: &BTreeMap<u32, Fate>, found: impl IntoIterator<Item = Found>) -> Self {
        let mut account = Self::default();
        account.rows.extend([Fate::Left, Fate::Lost].map(|fate| (fate, Row::default())));
        let mut places: BTreeMap<u32, Vec<Fate>> =
            meant.keys().map(|order| (*order, Vec::new())).collect();
        for (order, fate) in found {
            match order.and_then(|order| places.get_mut(&order)) {
                Some(fates) => fates.push(fate),
                None => account.unknown += 1,
            }
        }
        for ((order, fates), meant) in places.iter().zip(meant.values()) {
            // An order that has ended and is also in a queue has ended: the queued message is a
            // duplicate.
            let ended = if fates.contains(meant) {
                meant
            } else {
                fates.iter().min().unwrap_or(&Fate::Lost)
            };
            account.rows.entry(meant.clone()).or_default().meant += 1;
            account.rows.entry(ended.clone()).or_default().orders += 1;
            account.duplicates += fates.len().saturating_sub(1);
            if ended != meant {
                account.astray.insert(*order, ended.clone());
            }
        }
        account
    }

    /// Whether every published order ended where it should, and nothing else was found.
    pub(crate) fn adds_up(&self) -> bool {
        self.astray.is_empty() && self.unknown == 0
    }

    pub(crate) fn sum(&self) -> Row {
        let add = |sum: Row, row: &Row| Row {
            orders: sum.orders + row.orders,
            meant: sum.meant + row.meant,
        };
        self.rows.values().fold(Row::default(), add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parked(reason: &str) -> Fate {
        Fate::Parked(reason.to_owned())
    }

    /// Orders 1 to 3 are handled, 4 is parked, 5 is a stray.
    fn account(change: impl FnOnce(&mut Vec<Found>)) -> Account {
        let fates = [Fate::Handled, Fate::Handled, Fate::Handled, parked("permanent"), Fate::Stray];
        let meant: BTreeMap<u32, Fate> = (1..).zip(fates).collect();
        let mut found = meant.iter().map(|(order, fate)| (Some(*order), fate.clone())).collect();
        change(&mut found);
        Account::of(&meant, found)
    }

    #[test]
    fn a_complete_account_adds_up() {
        let account = account(|_| {});
        assert!(account.adds_up());
        assert_eq!(account.rows[&Fate::Handled], Row { orders: 3, meant: 3 });
        assert_eq!((account.sum(), account.duplicates), (Row { orders: 5, meant: 5 }, 0));
    }

    #[test]
    fn an_order_that_is_found_in_the_wrong_place_or_nowhere_does_not_add_up() {
        for (order, elsewhere, ended) in [
            (2, vec![], Fate::Lost),
            (2, vec![Fate::Left], Fate::Left),
            (2, vec![Fate::Left, parked("delivery_limit")], parked("delivery_limit")),
            (4, vec![Fate::Handled], Fate::Handled),
            (4, vec![parked("exhausted")], parked("exhausted")),
        ] {
            let account = account(|found| {
                found.retain(|(found, _)| *found != Some(order));
                found.extend(elsewhere.into_iter().map(|fate| (Some(order), fate)));
            });
            assert!(!account.adds_up());
            assert_eq!(account.rows[&ended].orders, account.rows[&ended].meant + 1, "{ended}");
            assert_eq!(account.astray, [(order, ended)].into());
        }
    }

    #[test]
    fn a_message_that_was_never_published_does_not_add_up() {
        for stranger in [(Some(99), Fate::Handled), (None, Fate::Stray), (None, Fate::Left)] {
            let account = account(|found| found.push(stranger));
            assert!(!account.adds_up());
            assert_eq!(account.unknown, 1);
        }
    }

    #[test]
    fn duplicates_are_counted_and_allowed() {
        let duplicates =
            [(1, Fate::Handled), (4, parked("permanent")), (3, parked("expired")), (2, Fate::Left)];
        let account =
            account(|found| found.extend(duplicates.map(|(order, fate)| (Some(order), fate))));
        assert!(account.adds_up());
        assert_eq!(account.duplicates, 4);
    }
}
