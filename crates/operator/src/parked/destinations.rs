//! Counts messages by the queue that they would go to, in bounded memory. Pure.

use std::collections::BTreeMap;

use crate::parked::requests::Listing;

/// How many messages would go to each queue.
#[derive(Debug, Clone, Default)]
pub(super) struct Destinations {
    /// By queue: the first that were named.
    pub(super) told_apart: BTreeMap<String, u64>,
    /// How many would go to further queues.
    pub(super) others: u64,
    /// How many do not say which queue they would go to.
    pub(super) none: u64,
}

impl Destinations {
    pub(super) fn add(&mut self, queue: Option<&str>) {
        let Some(queue) = queue else {
            self.none += 1;
            return;
        };
        if let Some(count) = self.told_apart.get_mut(queue) {
            *count += 1;
        } else if self.told_apart.len() < Listing::MOST_DESTINATIONS {
            self.told_apart.insert(queue.to_owned(), 1);
        } else {
            self.others += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_destinations_is_bounded_and_no_message_goes_uncounted() {
        let mut destinations = Destinations::default();
        for number in 0..2 * Listing::MOST_DESTINATIONS {
            destinations.add(Some(&format!("queue-{number}")));
            destinations.add(Some("queue-0"));
            destinations.add(None);
        }
        let Destinations { told_apart, others, none } = destinations;
        assert_eq!((told_apart.len(), told_apart["queue-0"], told_apart["queue-999"]), (1_000, 2_001, 1));
        assert_eq!((told_apart.values().sum::<u64>(), others, none), (2_000 + 1_000, 1_000, 2_000));
    }
}
