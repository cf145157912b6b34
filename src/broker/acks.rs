//! The fewest frames that settle the deliveries of one channel. Pure.
//!
//! An ack with `multiple` settles all deliveries up to its tag. A quorum queue replicates each ack
//! separately, so one ack for a hundred deliveries costs the broker far less than a hundred acks.

use std::collections::BTreeMap;

/// Which deliveries of one channel are settled: acked, or given back.
#[derive(Debug)]
pub struct SettledTags {
    /// The first unsettled delivery. The broker numbers a channel's deliveries from 1.
    first_unsettled: u64,
    /// Settled deliveries after it, as runs: first to last. There are at most as many runs as
    /// unsettled deliveries.
    settled_beyond: BTreeMap<u64, u64>,
}

/// How a delivery is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    Ack,
    /// Rejected, back to the head of the queue, and counted. Not a nack, because since 4.3 that
    /// does not count towards the delivery limit.
    Requeue,
    /// Rejected, to wherever the queue dead-letters.
    DeadLetter,
    /// Back to the queue. 4.3 does not count this towards the delivery limit, and delays it if the
    /// queue has delayed retries; 3.10 and 4.0 count every return.
    Nack,
}

impl Settlement {
    /// The name of its AMQP method.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Requeue | Self::DeadLetter => "reject",
            Self::Nack => "nack",
        }
    }
}

/// A frame that settles one delivery; with `multiple` also every earlier one that is unsettled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    Ack { tag: u64, multiple: bool },
    Reject { tag: u64, requeue: bool },
    Nack { tag: u64, multiple: bool },
}

impl Default for SettledTags {
    fn default() -> Self {
        Self { first_unsettled: 1, settled_beyond: BTreeMap::new() }
    }
}

impl SettledTags {
    /// The first delivery that is not settled, which may still be to come.
    pub fn first_unsettled(&self) -> u64 {
        self.first_unsettled
    }

    /// Marks a delivery as settled. The frame that settles it must be queued before any later ack.
    pub fn settle(&mut self, tag: u64) {
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

    /// Settles these deliveries, none of them settled yet. `send` queues a frame, and returns false
    /// if it could not.
    ///
    /// The acks come last: one that acks several deliveries would lose a message whose reject it
    /// overtakes.
    pub fn settle_all(
        &mut self,
        deliveries: Vec<(u64, Settlement)>,
        mut send: impl FnMut(Frame) -> bool,
    ) {
        let mut acked = Vec::new();
        for (tag, how) in deliveries {
            let frame = match how {
                Settlement::Ack => {
                    acked.push(tag);
                    continue;
                }
                Settlement::Requeue => Frame::Reject { tag, requeue: true },
                Settlement::DeadLetter => Frame::Reject { tag, requeue: false },
                Settlement::Nack => Frame::Nack { tag, multiple: false },
            };
            if send(frame) {
                self.settle(tag);
            }
        }
        for ack in self.ack(acked) {
            send(ack);
        }
    }

    /// Marks these deliveries, none of them settled yet, as settled, and returns the acks to send:
    /// one for all before the first unsettled delivery, and one for each of the others.
    pub fn ack(&mut self, tags: Vec<u64>) -> impl Iterator<Item = Frame> {
        for tag in &tags {
            self.settle(*tag);
        }
        let (before, single): (Vec<_>, Vec<_>) =
            tags.into_iter().partition(|tag| *tag < self.first_unsettled);
        let several = before.into_iter().max().map(|tag| Frame::Ack { tag, multiple: true });
        several.into_iter().chain(single.into_iter().map(|tag| Frame::Ack { tag, multiple: false }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::inputs::inputs;

    fn acks(tags: &mut SettledTags, settled: &[u64]) -> Vec<(u64, bool)> {
        let acks = tags.ack(settled.to_vec());
        acks.filter_map(|frame| {
            if let Frame::Ack { tag, multiple } = frame { Some((tag, multiple)) } else { None }
        })
        .collect()
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

    /// The delivery at this place among the unsettled ones, how it is settled, and whether its
    /// frame can be queued.
    type Settles = (usize, Settlement, bool);

    #[derive(Debug, Clone)]
    enum Step {
        Arrives,
        Settle(Vec<Settles>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let how = prop_oneof![
            4 => Just(Settlement::Ack),
            1 => prop_oneof![Just(Settlement::Requeue), Just(Settlement::DeadLetter)],
            1 => Just(Settlement::Nack),
        ];
        let settles = prop::collection::vec((any::<usize>(), how, prop::bool::weighted(0.9)), 0..8);
        let step = prop_oneof![4 => Just(Step::Arrives), 2 => settles.prop_map(Step::Settle)];
        prop::collection::vec(step, 0..80)
    }

    /// What the broker holds, by the meaning that AMQP gives to an ack of several deliveries, and
    /// what became of the rest.
    #[derive(Default)]
    struct Broker {
        held: BTreeSet<u64>,
        acked: BTreeSet<u64>,
        given_back: BTreeSet<u64>,
    }

    impl Broker {
        /// False where a broker closes the channel over an unknown delivery.
        fn receives(&mut self, frame: Frame) -> bool {
            match frame {
                Frame::Ack { tag, multiple } => {
                    let acked: Vec<_> = self
                        .held
                        .iter()
                        .copied()
                        .filter(|held| *held == tag || multiple && *held < tag)
                        .collect();
                    self.held.retain(|held| !acked.contains(held));
                    self.acked.extend(&acked);
                    acked.contains(&tag)
                }
                Frame::Reject { tag, .. } | Frame::Nack { tag, .. } => {
                    self.given_back.insert(tag) && self.held.remove(&tag)
                }
            }
        }
    }

    proptest! {
        #![proptest_config(inputs(256))]

        #[test]
        fn each_delivery_is_settled_as_it_was_said_and_no_other(steps in steps()) {
            let (mut tags, mut broker, mut here, mut last) = (SettledTags::default(), Broker::default(), Vec::new(), 0);
            let (mut acked, mut given_back) = (BTreeSet::new(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Arrives => {
                        last += 1;
                        broker.held.insert(last);
                        here.push(last);
                    }
                    Step::Settle(settles) => {
                        let (mut batch, mut unsent) = (Vec::new(), BTreeSet::new());
                        for (place, how, is_queued) in settles {
                            if here.is_empty() {
                                break;
                            }
                            let tag = here.remove(place % here.len());
                            batch.push((tag, how));
                            match how {
                                Settlement::Ack => acked.insert(tag),
                                _ if is_queued => given_back.insert(tag),
                                _ => unsent.insert(tag),
                            };
                        }
                        let mut is_known = true;
                        tags.settle_all(batch, |frame| match frame {
                            Frame::Reject { tag, .. } | Frame::Nack { tag, .. } if unsent.contains(&tag) => false,
                            frame => {
                                is_known &= broker.receives(frame);
                                true
                            }
                        });
                        prop_assert!(is_known, "the broker closes the channel over an unknown delivery");
                    }
                }
                prop_assert_eq!(&broker.acked, &acked);
                prop_assert_eq!(&broker.given_back, &given_back);
                prop_assert!(tags.settled_beyond.len() <= broker.held.len());
            }
        }
    }
}
