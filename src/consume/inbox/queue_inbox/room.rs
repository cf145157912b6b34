//! How much more a queue may bring.

use std::time::Instant;

use super::super::isolation::SETTLED_WITHIN;
use super::{Held, QueueInbox, Subscribed, is_near_limit};

impl<T> QueueInbox<T> {
    /// The prefetch that its subscriptions may have, all together, if `open` is the most that what
    /// is proven allows. It widens step by step,
    /// and not before the present ones have brought anything.
    pub(in crate::consume::inbox) fn window(&self, open: u16, now: Instant) -> u16 {
        let stuck = self.stuck(now);
        // What came could not start, would be handed back when it is late, and counted.
        let has_no_slot_in_time = self.orphans + stuck >= usize::from(self.rules.concurrency);
        // The broker counts only a subscription's own deliveries, so another one can bring more.
        if has_no_slot_in_time || self.is_full_of_resting(now) {
            return 0;
        }
        let limit = self.startable(stuck).min(self.prefetch_left());
        let wanted = self.in_steps(open.min(self.rules.prefetch), limit);
        let Subscribed { prefetch, has_brought, .. } = self.subscription;
        match (prefetch, has_brought) {
            (0, _) => wanted,
            // A process may have many queues, and most of them idle.
            (_, false) => wanted.min(prefetch),
            // Other processes may have been idle as well, and are to get their share.
            (_, true) => wanted.min(self.rules.concurrency.max(prefetch.saturating_mul(4))),
        }
    }

    /// How many slots have been taken for longer than a delivery may wait for one, as by one whose
    /// copy is refused.
    pub(in crate::consume::inbox) fn stuck(&self, now: Instant) -> usize {
        let limit = self.rules.start_limit;
        let is_stuck = |started: Instant| now.saturating_duration_since(started) >= limit;
        self.running.values().take_while(|running| is_stuck(running.started)).count()
    }

    /// How many deliveries the present subscription may bring so that none waits too long for a
    /// slot, if `stuck` of the slots do not become free. What is held between two attempts takes
    /// none.
    fn startable(&self, stuck: usize) -> u16 {
        let free = usize::from(self.rules.concurrency).saturating_sub(stuck + self.orphans);
        // The cheapest first: mostly there was no subscription before.
        let before = match self.brought_before() {
            0 => 0,
            before => before - self.held.values().filter(|held| !self.is_of_present(held)).count(),
        };
        let startable = (stuck + self.rules.startable(free)).saturating_sub(before);
        u16::try_from(startable).unwrap_or(u16::MAX)
    }

    /// How much of `prefetch` is left for the present subscription: the broker no longer counts
    /// what earlier ones and gets brought.
    pub(super) fn prefetch_left(&self) -> u16 {
        self.rules.prefetch.saturating_sub(u16::try_from(self.brought_before()).unwrap_or(u16::MAX))
    }

    /// How many of the deliveries here were not brought by the present subscription.
    fn brought_before(&self) -> usize {
        self.waiting() + self.held.len() + self.running.len() - self.subscription.unsettled
    }

    /// Whether all that the subscription may bring has come, and another one could bring more.
    fn may_be_replaced(&self) -> bool {
        let Subscribed { prefetch, .. } = self.subscription;
        // The cheapest first.
        prefetch > 0
            && self.held.len() + self.running.len() >= usize::from(prefetch)
            && self.prefetch_left() > prefetch
    }

    /// Whether the subscription is to be replaced, because all that it may bring is held between
    /// two attempts or has long been waiting for the confirm of a copy, and what another one brings
    /// could start.
    fn is_full_of_resting(&self, now: Instant) -> bool {
        if !self.may_be_replaced() {
            return false;
        }
        let ended = self.ended.iter().take_while(|(ended, _)| *ended + SETTLED_WITHIN <= now);
        let unconfirmed = ended.filter(|(_, number)| self.has_brought(*number)).count();
        let held = self.held.values().filter(|held| self.is_of_present(held)).count();
        held + unconfirmed >= usize::from(self.subscription.prefetch)
            && (unconfirmed == 0 || self.has_slot())
            && !self.holds_one_alone()
    }

    /// When the next copy will have been unconfirmed for long, if that may replace the
    /// subscription.
    pub(super) fn unconfirmed_at(&self, now: Instant) -> Option<Instant> {
        if !self.may_be_replaced() {
            return None;
        }
        let mut unconfirmed = self.ended.iter().map(|(ended, _)| *ended + SETTLED_WITHIN);
        unconfirmed.find(|at| *at > now)
    }

    /// Whether the present subscription brought this started delivery.
    fn has_brought(&self, number: u64) -> bool {
        let running = self.running.get(&number);
        running.is_some_and(|running| running.subscription == self.subscription.number)
    }

    fn is_of_present(&self, held: &Held<T>) -> bool {
        held.waiting.subscription == self.subscription.number
    }

    /// Whether a suspect near its limit is held: what comes next may kill the process, which would
    /// charge it. A message that only lost channels have charged does not count: otherwise, after a
    /// few of them, each message would wait for the one before it.
    pub(super) fn holds_one_alone(&self) -> bool {
        self.held.values().any(|held| {
            let redeliveries = held.waiting.redeliveries;
            let is_near_limit = is_near_limit(redeliveries.count, self.rules.delivery_limit);
            held.rank.is_some() && redeliveries.unexplained() > 0 && is_near_limit
        })
    }

    /// The window within this limit, if `open` is the widest that is allowed. Each step takes one
    /// more subscription, so below `open` it widens only where it can double.
    pub(in crate::consume::inbox) fn in_steps(&self, open: u16, limit: u16) -> u16 {
        let (present, wanted) = (self.subscription.prefetch, open.min(limit));
        let is_small_step = wanted > present && wanted < present.saturating_mul(2);
        if wanted < open && is_small_step { present } else { wanted }
    }
}
