//! The deliveries of one queue that the process holds.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::fill_up::FillUp;
use super::lines::{Lines, Place};
use super::requeued::{Fingerprint, Requeued};
use super::suspicion::{Rank, Redeliveries, is_near_limit};
use super::{Rules, Running};

/// Longer than any broker's timeout, and short enough to add to any time.
const LONGEST_START_LIMIT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

#[derive(Debug)]
pub(super) struct QueueInbox<T> {
    pub(super) rules: Rules,
    /// In the order of their arrival.
    plain: VecDeque<Waiting<T>>,
    /// In the order in which they are to run.
    suspects: BTreeMap<Rank, Waiting<T>>,
    /// What is held between two attempts, by the time when it is due.
    held: BTreeMap<(Instant, u64), Held<T>>,
    /// What was held and is due, in that order. It runs before what is plain.
    due: VecDeque<Waiting<T>>,
    running: usize,
    /// Handlers whose channel is gone, and that have not ended yet.
    pub(super) orphans: usize,
    subscription: Subscription,
    /// Set from the first [`ends_at`](Self::ends_at) until the end of the subscription is reported.
    ending: Option<FillUp>,
    /// If the queue is ordered: how its subscription fills up after its first delivery.
    filling: Option<FillUp>,
    /// Its last delivery was new, or is known to have come back with a lost channel.
    last_was_fresh: bool,
    /// What a lost channel held, and what may have been on its way to it, with the counts that it
    /// will have.
    pub(super) returning: Vec<Redeliveries>,
    requeued: Requeued,
    /// What is not settled, if the queue is ordered: then nothing is in `plain`, `suspects`, `held`
    /// and `due`.
    lines: Lines<Waiting<T>>,
    /// How many of them are suspects.
    suspects_in_line: usize,
    /// Nothing is held here any more: the service is stopping, and all has gone back.
    pub(super) is_drained: bool,
    /// A random number of this process.
    draw: u64,
}

/// A delivery that waits for a handler, for its first attempt or for another.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) item: T,
    pub(super) redeliveries: Redeliveries,
    /// The number of the subscription that brought it.
    pub(super) subscription: u64,
    /// When it arrived or, after it was held, when it was due.
    since: Instant,
    is_suspect: bool,
    /// Where it stands in an ordered queue, once it was started.
    pub(super) place: Option<Place>,
}

/// A delivery that is held between two attempts.
#[derive(Debug)]
struct Held<T> {
    waiting: Waiting<T>,
    /// A suspect stays one: that one attempt did not kill the process says little about the next.
    rank: Option<Rank>,
}

/// The broker counts a subscription's own deliveries against its prefetch, and not those of earlier
/// ones.
#[derive(Debug, Default)]
struct Subscription {
    number: u64,
    prefetch: u16,
    /// How many of its deliveries are unsettled.
    unsettled: usize,
}

impl<T> QueueInbox<T> {
    pub(super) fn new(rules: Rules, draw: u64) -> Self {
        Self {
            rules: Rules { start_limit: rules.start_limit.min(LONGEST_START_LIMIT), ..rules },
            plain: VecDeque::new(),
            suspects: BTreeMap::new(),
            held: BTreeMap::new(),
            due: VecDeque::new(),
            running: 0,
            orphans: 0,
            subscription: Subscription::default(),
            ending: None,
            filling: None,
            last_was_fresh: false,
            returning: Vec::new(),
            requeued: Requeued::default(),
            lines: Lines::new(),
            suspects_in_line: 0,
            is_drained: false,
            draw,
        }
    }

    pub(super) fn subscribe(&mut self, prefetch: u16) {
        if self.is_subscribed() && prefetch > self.subscription.prefetch {
            self.subscription.prefetch = prefetch;
            return;
        }
        self.subscription =
            Subscription { number: self.subscription.number + 1, prefetch, unsettled: 0 };
        (self.ending, self.filling) = (None, None);
    }

    /// The subscription fills up from now on, if it does not yet. Returns when it may end; `None`
    /// if it is full.
    pub(super) fn ends_at(&mut self, now: Instant) -> Option<Instant> {
        let is_full = self.subscription.unsettled >= usize::from(self.subscription.prefetch);
        let ending = self.ending.get_or_insert_with(|| FillUp::begin(now));
        if is_full { None } else { Some(ending.ends_at()).filter(|until| now < *until) }
    }

    /// Until when suspects of an ordered queue wait for the rest of its window: which line runs
    /// first depends on all of them.
    pub(super) fn first_fill_until(&self) -> Option<Instant> {
        let is_full = self.subscription.unsettled >= usize::from(self.subscription.prefetch);
        let filling = self.filling.filter(|_| !is_full && self.suspects_in_line > 0)?;
        Some(filling.ends_at())
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    pub(super) fn is_subscribed(&self) -> bool {
        self.subscription.prefetch > 0
    }

    /// Since when the oldest suspect is here.
    pub(super) fn suspects_since(&self) -> Option<Instant> {
        let in_line = || self.suspect_in_line().and_then(|_| self.lines.oldest());
        self.suspects.values().map(|waiting| waiting.since).min().or_else(in_line)
    }

    pub(super) fn prefetch(&self) -> u16 {
        self.subscription.prefetch
    }

    /// Whether the subscription is for a single delivery, which is here.
    pub(super) fn is_used_up_by_one(&self) -> bool {
        self.subscription.prefetch == 1 && self.subscription.unsettled == 1
    }

    /// What is known of a message that the broker gave back `count` times. One that a lost channel
    /// held comes back with one more, and before anything that is fresh.
    pub(super) fn redeliveries(&mut self, count: u32, item: &impl Fingerprint) -> Redeliveries {
        if count == 0 {
            // A fingerprint takes time, so it is asked for only where something was handed back.
            let was_handed_back = self.requeued.has_handed_back()
                && self.requeued.take(item.fingerprint(), 0).is_some();
            if !was_handed_back && !item.has_waited_in_queue() {
                self.returning.clear();
            }
            return Redeliveries::default();
        }
        self.requeued.take(item.fingerprint(), count).unwrap_or_else(|| {
            match self.returning.iter().position(|redeliveries| redeliveries.count == count) {
                Some(position) => self.returning.swap_remove(position),
                None => Redeliveries { count, ..Redeliveries::default() },
            }
        })
    }

    /// A handler gives a message back. If the broker does not count that, it comes again with the
    /// count that it has.
    pub(super) fn expect(
        &mut self,
        fingerprint: u64,
        redeliveries: Redeliveries,
        is_counted: bool,
    ) {
        match is_counted {
            true => self.requeued.expect(fingerprint, redeliveries.and_requeued()),
            false if redeliveries.count > 0 => self.requeued.expect(fingerprint, redeliveries),
            // Without a count it comes again like a new one.
            false => {}
        }
    }

    /// A handler has ended, and its delivery is held until it is due.
    pub(super) fn hold(&mut self, running: &Running, number: u64, item: T, due: Instant)
    where
        T: Fingerprint,
    {
        let Running { subscription, redeliveries, is_suspect, place, .. } = *running;
        self.running -= 1;
        let waiting =
            Waiting { item, redeliveries, subscription, since: due, is_suspect, place: None };
        if let Some(place) = place {
            return self.lines.hold(place, waiting, due);
        }
        let rank = is_suspect.then(|| self.rank(&waiting, number));
        self.held.insert((due, number), Held { waiting, rank });
    }

    /// What is due by now waits for a handler again.
    pub(super) fn wake(&mut self, now: Instant) {
        self.lines.wake(now);
        while let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= now) {
            let Held { waiting, rank } = first.remove();
            match rank {
                None => self.due.push_back(waiting),
                Some(rank) => {
                    self.suspects.insert(rank, waiting);
                }
            }
        }
    }

    /// When the next of what is held is due.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((due, _), _)| *due).or_else(|| self.lines.due_at())
    }

    pub(super) fn arrive(
        &mut self,
        redeliveries: Redeliveries,
        is_suspect: bool,
        number: u64,
        now: Instant,
        item: T,
    ) where
        T: Fingerprint,
    {
        let subscription = self.subscription.number;
        let waiting =
            Waiting { item, redeliveries, subscription, since: now, is_suspect, place: None };
        self.subscription.unsettled += 1;
        if let Some(ending) = &mut self.ending {
            ending.arrived(now);
        }
        // What waited in the queue may come before suspects, so it says nothing about them.
        if redeliveries.count > 0 || !waiting.item.has_waited_in_queue() {
            self.last_was_fresh = redeliveries.unexplained() == 0;
        }
        if self.rules.is_ordered {
            self.filling.get_or_insert_with(|| FillUp::begin(now)).arrived(now);
            self.suspects_in_line += usize::from(is_suspect);
            return self.lines.arrive(waiting.item.order_key(), waiting, now);
        }
        if is_suspect {
            self.suspects.insert(self.rank(&waiting, number), waiting);
        } else {
            self.plain.push_back(waiting);
        }
    }

    fn rank(&self, waiting: &Waiting<T>, number: u64) -> Rank
    where
        T: Fingerprint,
    {
        // Without a count, the order could not change from life to life, so it follows from the
        // process.
        let fingerprint = if self.rules.counts_deliveries {
            waiting.item.fingerprint()
        } else {
            number ^ self.draw
        };
        Rank::new(self.rules.delivery_limit, waiting.redeliveries.count, fingerprint, number)
    }

    pub(super) fn last_was_fresh(&self) -> bool {
        self.last_was_fresh
    }

    pub(super) fn waiting(&self) -> usize {
        let in_lines =
            self.lines.len().saturating_sub(if self.rules.is_ordered { self.running } else { 0 });
        self.plain.len() + self.suspects.len() + self.due.len() + in_lines
    }

    pub(super) fn running(&self) -> usize {
        self.running + self.orphans
    }

    /// Whether a suspect is to run next.
    pub(super) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty() || self.suspect_in_line().is_some()
    }

    /// The suspect of an ordered queue that is to run first, and how often it came back.
    ///
    /// A crash charges all that the queue holds alike, so the counts do not tell which message
    /// kills. But what runs before it is settled and gone. So whole lines run one after the other,
    /// by their keys, after one crash upwards and after the next one downwards: in one of these two
    /// lives, each other line runs before the line of the message that kills.
    fn suspect_in_line(&self) -> Option<(Place, u32)> {
        if self.suspects_in_line == 0 {
            return None;
        }
        let suspects = || self.lines.heads().filter(|(_, waiting)| waiting.is_suspect);
        let most = suspects().map(|(_, waiting)| waiting.redeliveries.count).max()?;
        let is_downwards =
            if self.rules.counts_deliveries { most % 2 == 1 } else { self.draw % 2 == 1 };
        let first = suspects()
            .min_by_key(|(place, _)| if is_downwards { u64::MAX - place.key } else { place.key });
        first.map(|(place, waiting)| (place, waiting.redeliveries.count))
    }

    /// Whether a suspect could start. One whose queue has no free slot blocks no other queue.
    pub(super) fn has_startable_suspects(&self) -> bool {
        self.has_suspects() && self.has_slot()
    }

    pub(super) fn has_slot(&self) -> bool {
        self.running + self.orphans < usize::from(self.rules.concurrency)
    }

    pub(super) fn first_suspect(&self) -> Option<Rank> {
        if let Some((place, count)) = self.suspect_in_line() {
            return Some(Rank::new(self.rules.delivery_limit, count, place.key, 0));
        }
        self.suspects.first_key_value().map(|(rank, _)| *rank)
    }

    /// Takes a slot, and the suspect that is to run first.
    pub(super) fn take_suspect(&mut self) -> Option<Waiting<T>> {
        let waiting = match self.rules.is_ordered {
            true => {
                let (place, _) = self.suspect_in_line()?;
                Waiting { place: Some(place), ..self.lines.take(place)? }
            }
            false => self.suspects.pop_first()?.1,
        };
        self.running += 1;
        Some(waiting)
    }

    /// Takes a slot, if one is free, and the plain delivery that came first.
    pub(super) fn take_plain(&mut self) -> Option<Waiting<T>> {
        if !self.has_slot() {
            return None;
        }
        let waiting = self
            .due
            .pop_front()
            .or_else(|| self.plain.pop_front())
            .or_else(|| self.next_in_line())?;
        self.running += 1;
        Some(waiting)
    }

    fn next_in_line(&mut self) -> Option<Waiting<T>> {
        let (place, waiting) = self.lines.start()?;
        Some(Waiting { place: Some(place), ..waiting })
    }

    /// Frees a slot.
    pub(super) fn finish(&mut self, running: &Running) {
        self.running -= 1;
        self.left(running.subscription);
        if let Some(place) = running.place {
            self.lines.finish(place);
            self.suspects_in_line =
                self.suspects_in_line.saturating_sub(usize::from(running.is_suspect));
        }
    }

    /// The channel is gone. `running`: how often each started message came back.
    pub(super) fn lose(&mut self, running: Vec<Redeliveries>) {
        let held = self.held.values().map(|held| &held.waiting);
        let waiting = self.plain.iter().chain(&self.due).chain(self.suspects.values()).chain(held);
        let in_line = self.lines.take_all();
        self.suspects_in_line = 0;
        let unsettled = waiting.chain(&in_line).map(|waiting| waiting.redeliveries).chain(running);
        // What was on its way comes back as well, and so may what was settled just before.
        let missing =
            usize::from(self.subscription.prefetch).saturating_sub(self.subscription.unsettled);
        let unseen = std::iter::repeat_n(Redeliveries::default(), missing);
        self.returning = unsettled.chain(unseen).map(Redeliveries::and_excused).collect();
        self.plain.clear();
        self.due.clear();
        self.held.clear();
        self.suspects.clear();
        self.orphans += std::mem::take(&mut self.running);
        self.subscribe(0);
    }

    pub(super) fn take_all(&mut self) -> Vec<T> {
        let mut taken = self.lines.take_all();
        // What is running is not in its line any more.
        self.suspects_in_line = 0;
        taken.extend(std::mem::take(&mut self.held).into_values().map(|held| held.waiting));
        for waiting in &taken {
            self.left(waiting.subscription);
        }
        let all = self.take_if(|_| true).into_iter().chain(taken);
        all.map(|waiting| waiting.item).collect()
    }

    /// Takes what has waited too long for a handler, to be handed back.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<T>
    where
        T: Fingerprint,
    {
        if self.rules.is_ordered || self.late_at().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let limit = self.rules.start_limit;
        let late = self.take_if(|waiting| waiting.since + limit <= now);
        // On 3.10 and 4.0 they come again counted, and this process knows why. On 4.3 they come
        // again with the count that they have.
        for waiting in &late {
            self.requeued.expect_handed_back(waiting.item.fingerprint(), waiting.redeliveries);
        }
        late.into_iter().map(|waiting| waiting.item).collect()
    }

    /// When the oldest waiting delivery will have waited too long.
    pub(super) fn late_at(&self) -> Option<Instant> {
        let suspect = self.suspects.values().map(|waiting| waiting.since).min();
        let first = [self.plain.front(), self.due.front()]
            .into_iter()
            .flatten()
            .map(|waiting| waiting.since);
        suspect
            .into_iter()
            .chain(first)
            .chain(self.lines.oldest())
            .min()
            .map(|since| since + self.rules.start_limit)
    }

    /// How many deliveries the present subscription may bring so that none waits too long for a
    /// slot, if `stuck` of the slots do not become free. What is held between two attempts takes
    /// none.
    pub(super) fn startable(&self, stuck: usize) -> u16 {
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
    /// what earlier ones brought.
    pub(super) fn prefetch_left(&self) -> u16 {
        self.rules.prefetch.saturating_sub(u16::try_from(self.brought_before()).unwrap_or(u16::MAX))
    }

    /// Whether all that the subscription may bring has come, and another one could bring more.
    pub(super) fn may_be_replaced(&self) -> bool {
        let Subscription { prefetch, .. } = self.subscription;
        // The cheapest first.
        prefetch > 0
            && self.held.len() + self.running >= usize::from(prefetch)
            && self.prefetch_left() > prefetch
    }

    /// Whether the subscription is to be replaced, because all that it may bring is held between
    /// two attempts or is `unconfirmed`, and what another one brings could start. Not while a
    /// suspect near its limit is held: what another one brings may kill the process, which would
    /// charge it. A message that only lost channels have charged does not count: otherwise, after a
    /// few of them, each message would wait for the one before it.
    pub(super) fn is_full_of_resting(&self, unconfirmed: impl FnOnce() -> usize) -> bool {
        if !self.may_be_replaced() {
            return false;
        }
        let (unconfirmed, held) =
            (unconfirmed(), self.held.values().filter(|held| self.is_of_present(held)).count());
        held + unconfirmed >= usize::from(self.subscription.prefetch)
            && (unconfirmed == 0 || self.has_slot())
            && !self.held.values().any(|held| self.is_kept_alone(held))
    }

    pub(super) fn present_subscription(&self) -> u64 {
        self.subscription.number
    }

    /// Whether the present subscription brought it.
    fn is_of_present(&self, held: &Held<T>) -> bool {
        held.waiting.subscription == self.subscription.number
    }

    /// Whether it is a suspect near its limit that no more deliveries should join.
    fn is_kept_alone(&self, held: &Held<T>) -> bool {
        let redeliveries = held.waiting.redeliveries;
        let is_near_limit = is_near_limit(redeliveries.count, self.rules.delivery_limit);
        held.rank.is_some() && redeliveries.unexplained() > 0 && is_near_limit
    }

    /// How many of the deliveries here were brought by earlier subscriptions.
    fn brought_before(&self) -> usize {
        self.waiting() + self.held.len() + self.running - self.subscription.unsettled
    }

    /// The window within this limit, if `open` is the widest that is allowed. Each step takes one
    /// more subscription, so below `open` it widens only where it can double.
    pub(super) fn in_steps(&self, open: u16, limit: u16) -> u16 {
        let (present, wanted) = (self.subscription.prefetch, open.min(limit));
        let is_small_step = wanted > present && wanted < present.saturating_mul(2);
        if wanted < open && is_small_step { present } else { wanted }
    }

    fn take_if(&mut self, is_taken: impl Fn(&Waiting<T>) -> bool) -> Vec<Waiting<T>> {
        let mut taken: Vec<Waiting<T>> = Vec::new();
        for line in [&mut self.plain, &mut self.due] {
            let (of_line, kept): (VecDeque<_>, _) =
                std::mem::take(line).into_iter().partition(&is_taken);
            *line = kept;
            taken.extend(of_line);
        }
        let suspects = std::mem::take(&mut self.suspects).into_iter();
        let (of_suspects, kept): (BTreeMap<_, _>, _) =
            suspects.partition(|(_, waiting)| is_taken(waiting));
        self.suspects = kept;
        taken.extend(of_suspects.into_values());
        for waiting in &taken {
            self.left(waiting.subscription);
        }
        taken
    }

    /// A delivery is not held any more.
    fn left(&mut self, subscription: u64) {
        if subscription == self.subscription.number {
            self.subscription.unsettled -= 1;
        }
    }
}
