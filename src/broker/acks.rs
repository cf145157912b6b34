//! The fewest acks for the deliveries of one channel. Pure.
//!
//! An ack with `multiple` settles all deliveries up to its tag. A quorum queue replicates each ack separately, so one ack for a hundred
//! deliveries costs the broker far less than a hundred acks.

use std::collections::BTreeMap;

/// Which deliveries of one channel are settled: acked, or given back.
#[derive(Debug)]
pub(crate) struct SettledTags {
    /// The first unsettled delivery. The broker numbers a channel's deliveries from 1.
    first_unsettled: u64,
    /// Settled deliveries after it, as runs: first to last. There are at most as many runs as unsettled deliveries.
    settled_beyond: BTreeMap<u64, u64>,
}

/// One `basic.ack`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) tag: u64,
    /// Whether it also acks every earlier delivery that is unsettled.
    pub(crate) multiple: bool,
}

impl Default for SettledTags {
    fn default() -> Self {
        Self { first_unsettled: 1, settled_beyond: BTreeMap::new() }
    }
}

impl SettledTags {
    /// Marks a delivery as settled. The frame that settles it must be queued before any later ack.
    pub(crate) fn settle(&mut self, tag: u64) {
        if tag < self.first_unsettled {
            return;
        }
        let last = self.settled_beyond.remove(&(tag + 1)).unwrap_or(tag);
        if tag == self.first_unsettled {
            self.first_unsettled = last + 1;
            return;
        }
        match self.settled_beyond.range_mut(..tag).next_back() {
            Some((_, before)) if *before + 1 == tag => *before = last,
            _ => {
                self.settled_beyond.insert(tag, last);
            }
        }
    }

    /// Marks these deliveries, none of them settled yet, as settled, and returns the acks to send: one for all before the first unsettled
    /// delivery, and one for each of the others.
    pub(crate) fn ack(&mut self, tags: Vec<u64>) -> impl Iterator<Item = Ack> {
        for tag in &tags {
            self.settle(*tag);
        }
        let (before, single): (Vec<_>, Vec<_>) = tags.into_iter().partition(|tag| *tag < self.first_unsettled);
        let several = before.into_iter().max().map(|tag| Ack { tag, multiple: true });
        several.into_iter().chain(single.into_iter().map(|tag| Ack { tag, multiple: false }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::inputs::inputs;

    fn acks(tags: &mut SettledTags, settled: &[u64]) -> Vec<(u64, bool)> {
        tags.ack(settled.to_vec()).map(|ack| (ack.tag, ack.multiple)).collect()
    }

    #[test]
    fn one_ack_settles_all_deliveries_before_the_first_unsettled_one() {
        let mut tags = SettledTags::default();
        assert_eq!(acks(&mut tags, &[2, 1, 5]), [(2, true), (5, false)]);
        assert_eq!(acks(&mut tags, &[4]), [(4, false)], "3 is unsettled");
        tags.settle(3);
        assert_eq!(acks(&mut tags, &[6]), [(6, true)]);
        assert_eq!(acks(&mut tags, &[]), []);
    }

    #[test]
    fn what_is_remembered_does_not_grow_while_one_delivery_is_unsettled() {
        let mut tags = SettledTags::default();
        (2..10_000).for_each(|tag| tags.settle(tag));
        assert_eq!(tags.settled_beyond.len(), 1);
        assert_eq!(acks(&mut tags, &[1]), [(1, true)]);
        assert_eq!((tags.first_unsettled, tags.settled_beyond.len()), (10_000, 0));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Arrives,
        /// Gives back the delivery at this place.
        GivesBack(usize),
        /// Acks the deliveries at the places of the ones.
        Acks(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => Just(Step::Arrives),
            1 => any::<usize>().prop_map(Step::GivesBack),
            2 => any::<u64>().prop_map(Step::Acks),
        ];
        prop::collection::vec(step, 0..80)
    }

    proptest! {
        #![proptest_config(inputs(256))]

        /// `broker` is what the broker holds, by the meaning that AMQP gives to an ack of several deliveries.
        #[test]
        fn exactly_the_deliveries_that_are_named_are_acked(steps in steps()) {
            let (mut tags, mut broker, mut here, mut last) = (SettledTags::default(), BTreeSet::new(), BTreeSet::new(), 0);
            for step in steps {
                match step {
                    Step::Arrives => {
                        last += 1;
                        broker.insert(last);
                        here.insert(last);
                    }
                    Step::GivesBack(place) => if let Some(tag) = here.iter().nth(place % here.len().max(1)).copied() {
                        here.remove(&tag);
                        broker.remove(&tag);
                        tags.settle(tag);
                    },
                    Step::Acks(places) => {
                        let is_chosen = |place: usize| places >> (place % 64) & 1 == 1;
                        let chosen: Vec<u64> = here.iter().enumerate().filter(|(place, _)| is_chosen(*place)).map(|(_, tag)| *tag).collect();
                        here.retain(|tag| !chosen.contains(tag));
                        for Ack { tag, multiple } in tags.ack(chosen) {
                            prop_assert!(broker.remove(&tag), "the broker closes the channel over an unknown delivery");
                            broker.retain(|other| *other > tag || !multiple);
                        }
                    }
                }
                prop_assert_eq!(&broker, &here);
                prop_assert!(tags.settled_beyond.len() <= here.len());
            }
        }
    }
}
