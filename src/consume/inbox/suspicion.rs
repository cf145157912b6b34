//! Suspicion: which deliveries may have killed a process.

use super::rules::Rules;

/// A suspect with no more headroom than this is isolated for as long as it runs, and at most for as
/// long as a delivery may wait for a handler.
const LAST_CHARGES: u32 = 2;

/// How often a message came back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Redeliveries {
    /// The broker's count.
    pub(super) count: u32,
    /// How many of these are requeues by this process's handlers.
    pub(super) requeued: u32,
    /// How many of these this process explains otherwise: it lost a channel, and survived.
    pub(super) excused: u32,
}

impl Redeliveries {
    pub(super) fn unexplained(self) -> u32 {
        self.count.saturating_sub(self.requeued).saturating_sub(self.excused)
    }

    /// Without those that came back because this process's handlers gave them back.
    pub(super) fn unanswered(self) -> u32 {
        self.count.saturating_sub(self.requeued)
    }

    pub(super) fn and_requeued(self) -> Self {
        Self {
            count: self.count.saturating_add(1),
            requeued: self.requeued.saturating_add(1),
            ..self
        }
    }

    pub(super) fn and_excused(self) -> Self {
        Self {
            count: self.count.saturating_add(1),
            excused: self.excused.saturating_add(1),
            ..self
        }
    }
}

/// Whether a message that came back this often may have killed a process.
///
/// A requeue by another process's handler and a charge by a crash look alike. If handlers can have
/// caused the count, the message is taken for an ordinary requeue as long as it can afford that
/// mistake: it has used up at most a third of its limit. The same holds for what came back with a
/// lost channel, because a message may break its channel too. A message that this process's own
/// handlers gave back each time is no suspect, however often that was.
pub(super) fn is_suspect(rules: &Rules, redeliveries: Redeliveries) -> bool {
    let is_affordable = redeliveries.count <= rules.delivery_limit / 3;
    redeliveries.unanswered() > 0
        && (redeliveries.unexplained() > rules.immediate || !is_affordable)
}

/// Whether a message that came back this often may be parked soon: few charges are left.
pub(crate) fn is_near_limit(redeliveries: u32, delivery_limit: u32) -> bool {
    delivery_limit.saturating_sub(redeliveries) <= LAST_CHARGES
}

/// The order in which suspects run, within a process.
///
/// Those near their limits run first, the nearest before the others, because each crash by another
/// would charge them. Of the rest, what came back most often runs first: it was charged by every
/// message that killed, also by those of queues with lower limits, and would be used up before they
/// are.
///
/// Equals are charged together. In a fixed order, those behind a message that kills would never
/// run. So they are shuffled, and run in the reverse order after the next crash: in one of the two
/// processes, each runs before that message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    has_headroom: bool,
    /// Less comes first.
    urgency: u32,
    lot: u64,
    number: u64,
}

impl Rank {
    /// `fingerprint` is the same in each life, and `number` puts messages with the same fingerprint
    /// in order.
    pub(super) fn new(delivery_limit: u32, count: u32, fingerprint: u64, number: u64) -> Self {
        let has_headroom = !is_near_limit(count, delivery_limit);
        let urgency = match has_headroom {
            true => u32::MAX - count,
            false => delivery_limit.saturating_sub(count),
        };
        // Counted from the limit, so that the last two lives have opposite orders; and beyond it,
        // because the broker's limit may be higher.
        let life = delivery_limit.wrapping_sub(count);
        let lot = shuffled(fingerprint ^ shuffled(u64::from(life / 2)));
        match life % 2 {
            0 => Self { has_headroom, urgency, lot: !lot, number: !number },
            _ => Self { has_headroom, urgency, lot, number },
        }
    }
}

/// splitmix64's last step.
fn shuffled(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::inputs::inputs;

    proptest! {
        #![proptest_config(inputs(500))]

        #[test]
        fn of_two_equals_the_other_runs_first_in_the_next_life(of_one: u64, of_other: u64, crashes in 0u32..20) {
            let is_first = |count| Rank::new(10, count, of_one, 1) < Rank::new(10, count, of_other, 2);
            prop_assert_ne!(is_first(2 * crashes + 1), is_first(2 * crashes + 2));
        }
    }

    #[test]
    fn equals_run_in_many_orders_and_behind_the_one_that_is_nearer_to_its_limit() {
        let order_at = |count: u32| {
            let mut equals: Vec<_> =
                (0..4).map(|number| (Rank::new(20, count, number, number), number)).collect();
            equals.sort_unstable();
            equals.into_iter().map(|(_, number)| number).collect::<Vec<_>>()
        };
        let mut orders: Vec<_> = (1..40).step_by(2).map(order_at).collect();
        orders.sort_unstable();
        orders.dedup();
        assert!(orders.len() > 8, "{orders:?}");
        assert!(
            Rank::new(6, 4, 7, 7)
                < (0..100).map(|number| Rank::new(6, 3, number, number)).min().unwrap()
        );
    }

    #[test]
    fn what_came_back_most_often_runs_first_unless_another_is_about_to_be_parked() {
        let rank = |limit, count| Rank::new(limit, count, 1, 1);
        assert!(rank(10, 3) < rank(6, 2), "it is charged by each message that kills");
        assert!(rank(6, 4) < rank(12, 8), "two charges are left");
        assert!(rank(12, 11) < rank(6, 4), "one charge is left");
        assert!(rank(6, 7) < rank(12, 11), "the broker's limit may be higher");
    }
}
