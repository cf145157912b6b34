//! The deliveries of one queue that the process holds.

mod pausing;
mod room;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::agenda::Entry;
use super::fill_up::FillUp;
use super::flow::Flow;
use super::gets::{Candidate, Head};
use super::isolation::SETTLED_WITHIN;
use super::lines::{Lines, Place};
use super::proof::Says;
use super::requeued::{Fingerprint, Requeued};
use super::rules::Rules;
use super::suspicion::{Rank, Redeliveries, is_near_limit, is_suspect};
use crate::consume::line::Line;

/// The number of no subscription: a get brought the delivery.
const GOT: u64 = 0;

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
    /// Started deliveries by number, so that the longest running come first.
    running: BTreeMap<u64, Running>,
    /// Those that are only to be settled, and since when.
    ended: BTreeSet<(Instant, u64)>,
    /// Handlers whose channel is gone, and that have not ended yet.
    orphans: usize,
    /// Whether a session takes deliveries.
    is_open: bool,
    /// Whether a get has not been answered.
    is_asked: bool,
    head: Head,
    subscription: Subscribed,
    /// Set from the first [`ends_at`](Self::ends_at) until the end of the subscription is reported.
    ending: Option<FillUp>,
    /// If the queue is ordered: how its subscription fills up after its first delivery.
    filling: Option<FillUp>,
    /// What a lost channel held, and what may have been on its way to it, with the counts that it
    /// will have.
    returning: Vec<Redeliveries>,
    requeued: Requeued,
    /// What is not settled, if the queue is ordered: then nothing is in `plain`, `suspects`, `held`
    /// and `due`.
    lines: Lines<Waiting<T>>,
    /// How many of them are suspects.
    suspects_in_line: usize,
    /// Nothing is held here any more: the service is stopping, and all has gone back.
    pub(super) is_emptied: bool,
    /// What the program wants.
    pub(super) flow: Flow,
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
    /// Whether a handler of this process has tried it.
    has_run: bool,
    says: Says,
    /// Where it stands in an ordered queue, once it was started.
    place: Option<Place>,
}

/// A started handler's delivery, until it is settled.
#[derive(Debug)]
pub(super) struct Running {
    subscription: u64,
    started: Instant,
    pub(super) is_suspect: bool,
    /// Since when it is only to be settled.
    handler_ended: Option<Instant>,
    pub(super) redeliveries: Redeliveries,
    pub(super) says: Says,
    /// Where it stands in an ordered queue.
    place: Option<Place>,
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
struct Subscribed {
    number: u64,
    prefetch: u16,
    /// How many of its deliveries are unsettled.
    unsettled: usize,
    /// Whether it has brought anything since it has had this prefetch.
    has_brought: bool,
}

impl<T> QueueInbox<T> {
    pub(super) fn new(rules: Rules, draw: u64) -> Self {
        Self {
            rules: Rules { start_limit: rules.start_limit.min(LONGEST_START_LIMIT), ..rules },
            plain: VecDeque::new(),
            suspects: BTreeMap::new(),
            held: BTreeMap::new(),
            due: VecDeque::new(),
            running: BTreeMap::new(),
            ended: BTreeSet::new(),
            orphans: 0,
            is_open: false,
            is_asked: false,
            head: Head::Unknown,
            subscription: Subscribed { number: GOT + 1, ..Subscribed::default() },
            ending: None,
            filling: None,
            returning: Vec::new(),
            requeued: Requeued::default(),
            lines: Lines::new(),
            suspects_in_line: 0,
            is_emptied: false,
            flow: Flow::On,
            draw,
        }
    }

    pub(super) fn subscribe(&mut self, prefetch: u16) {
        if self.is_subscribed() && prefetch > self.subscription.prefetch {
            self.subscription.prefetch = prefetch;
            self.subscription.has_brought = false;
            return;
        }
        let number = self.subscription.number + 1;
        self.subscription = Subscribed { number, prefetch, ..Subscribed::default() };
        (self.ending, self.filling) = (None, None);
        if prefetch == 0 {
            self.head = Head::Unknown;
        }
    }

    /// A session takes deliveries from now on.
    pub(super) fn open(&mut self) {
        (self.is_open, self.head) = (true, Head::Unknown);
    }

    /// A get is under way.
    pub(super) fn ask(&mut self) {
        self.is_asked = true;
    }

    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// A get was answered: nothing was there, unless something arrives now.
    pub(super) fn answered(&mut self) {
        (self.is_asked, self.head) = (false, Head::Empty);
    }

    pub(super) fn head(&self) -> Head {
        self.head
    }

    /// Whether the queue may be asked for a message.
    pub(super) fn candidate(&self) -> Option<Candidate> {
        let may_ask = self.rules.can_get
            && self.is_open
            && !self.is_emptied
            && !self.is_asked
            && self.may_take();
        let has_room = || self.has_slot() && self.prefetch_left() > 0 && !self.holds_one_alone();
        (may_ask && !self.is_subscribed())
            .then(|| Candidate { head: self.head, has_room: has_room() })
    }

    /// What the agenda has to know.
    pub(super) fn entry(&self, now: Instant) -> Entry {
        let has_slot = self.has_slot() && self.may_start();
        let has_plain = !self.plain.is_empty() || !self.due.is_empty() || self.lines.has_heads();
        Entry {
            has_plain: has_slot && has_plain,
            suspect: self.first_suspect().filter(|_| has_slot),
            at: self.next_at(now),
            is_subscribed: self.rules.line == Line::Free && self.is_subscribed(),
        }
    }

    /// When time alone next changes something.
    fn next_at(&self, now: Instant) -> Option<Instant> {
        let limit = self.rules.start_limit;
        let starts = self.running.values().map(|running| running.started + limit);
        // In the order of their start, so mostly the first one is not stuck.
        let stuck = starts.into_iter().find(|at| *at > now);
        let late = self.goes_back_at().filter(|at| *at > now);
        // What is due stays so until it is woken.
        [stuck, self.unconfirmed_at(now), late, self.due_at()].into_iter().flatten().min()
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

    /// Its handler gives a message back. If the broker does not count that, it comes again with the
    /// count that it has.
    pub(super) fn expect(&mut self, number: u64, fingerprint: u64, is_counted: bool) {
        let Some(Running { redeliveries, .. }) = self.running.get(&number) else { return };
        match is_counted {
            true => self.requeued.expect(fingerprint, redeliveries.and_requeued()),
            false if redeliveries.count > 0 => self.requeued.expect(fingerprint, *redeliveries),
            // Without a count it comes again like a new one.
            false => {}
        }
    }

    /// A handler has ended, and its delivery is held until it is due.
    pub(super) fn hold(&mut self, running: &Running, number: u64, item: T, due: Instant)
    where
        T: Fingerprint,
    {
        let Running { subscription, redeliveries, is_suspect, says, place, .. } = *running;
        let waiting = Waiting {
            item,
            redeliveries,
            subscription,
            since: due,
            is_suspect,
            has_run: true,
            says,
            place: None,
        };
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

    /// A delivery has come, from a subscription or, if `is_got`, by a get. Returns whether it is a
    /// suspect.
    pub(super) fn arrive(
        &mut self,
        count: u32,
        is_got: bool,
        number: u64,
        now: Instant,
        item: T,
    ) -> bool
    where
        T: Fingerprint,
    {
        let redeliveries = self.redeliveries(count, &item);
        let is_suspect = is_suspect(&self.rules, redeliveries);
        let subscription = if is_got { GOT } else { self.subscription.number };
        self.subscription.unsettled += usize::from(!is_got);
        self.subscription.has_brought |= !is_got;
        if let Some(ending) = &mut self.ending {
            ending.arrived(now);
        }
        // What waited in the queue may come before what a crash gave back.
        let tells = redeliveries.count > 0 || !item.has_waited_in_queue();
        let is_fresh = tells && redeliveries.unexplained() == 0;
        if tells {
            self.head = if is_fresh { Head::Fresh } else { Head::Unknown };
        }
        let says = match (self.rules.line, is_fresh) {
            (Line::Ordered, _) => Says::IsOrdered,
            (Line::Free, true) => Says::IsFresh,
            (Line::Free, false) => Says::MayHaveCrashed,
        };
        let (since, has_run, place) = (now, false, None);
        let waiting =
            Waiting { item, redeliveries, subscription, since, is_suspect, has_run, says, place };
        if self.rules.line == Line::Ordered {
            self.filling.get_or_insert_with(|| FillUp::begin(now)).arrived(now);
            self.suspects_in_line += usize::from(is_suspect);
            self.lines.arrive(waiting.item.order_key(), waiting, now);
        } else if is_suspect {
            self.suspects.insert(self.rank(&waiting, number), waiting);
        } else {
            self.plain.push_back(waiting);
        }
        is_suspect
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

    pub(super) fn waiting(&self) -> usize {
        let started = match self.rules.line {
            Line::Ordered => self.running.len(),
            Line::Free => 0,
        };
        let in_lines = self.lines.len().saturating_sub(started);
        self.plain.len() + self.suspects.len() + self.due.len() + in_lines
    }

    /// Whether anything waits for a handler, for its first attempt or for another.
    pub(super) fn has_unstarted(&self) -> bool {
        self.waiting() + self.held.len() > 0
    }

    pub(super) fn running(&self) -> usize {
        self.running.len() + self.orphans
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

    pub(super) fn has_slot(&self) -> bool {
        self.running() < usize::from(self.rules.concurrency)
    }

    #[cfg(test)]
    pub(super) fn has_suspects(&self) -> bool {
        self.first_suspect().is_some()
    }

    fn first_suspect(&self) -> Option<Rank> {
        if let Some((place, count)) = self.suspect_in_line() {
            return Some(Rank::new(self.rules.delivery_limit, count, place.key, 0));
        }
        self.suspects.first_key_value().map(|(rank, _)| *rank)
    }

    /// Starts the suspect that is to run first. Takes a slot, which has to be free.
    pub(super) fn start_suspect(&mut self, number: u64, now: Instant) -> Option<T> {
        let waiting = match self.rules.line {
            Line::Ordered => {
                let (place, _) = self.suspect_in_line()?;
                Waiting { place: Some(place), ..self.lines.take(place)? }
            }
            Line::Free => self.suspects.pop_first()?.1,
        };
        Some(self.run(waiting, true, number, now))
    }

    /// Starts the delivery that came first and is no suspect. Takes a slot, which has to be free.
    pub(super) fn start_plain(&mut self, number: u64, now: Instant) -> Option<T> {
        let waiting = self
            .due
            .pop_front()
            .or_else(|| self.plain.pop_front())
            .or_else(|| self.next_in_line())?;
        Some(self.run(waiting, false, number, now))
    }

    fn run(&mut self, waiting: Waiting<T>, is_suspect: bool, number: u64, now: Instant) -> T {
        let Waiting { item, subscription, redeliveries, says, place, .. } = waiting;
        let (started, handler_ended) = (now, None);
        let running =
            Running { subscription, started, is_suspect, handler_ended, redeliveries, says, place };
        self.running.insert(number, running);
        item
    }

    fn next_in_line(&mut self) -> Option<Waiting<T>> {
        let (place, waiting) = self.lines.start()?;
        Some(Waiting { place: Some(place), ..waiting })
    }

    /// What is known of a started delivery; `None` if its channel is gone.
    pub(super) fn started(&self, number: u64) -> Option<&Running> {
        self.running.get(&number)
    }

    /// The handler has ended, and its delivery is only to be settled.
    pub(super) fn handler_ended(&mut self, number: u64, now: Instant) -> Option<&Running> {
        let running = self.running.get_mut(&number)?;
        self.ended.insert((*running.handler_ended.get_or_insert(now), number));
        Some(running)
    }

    /// A started delivery takes its slot no more. `None` if its channel is gone.
    pub(super) fn stop(&mut self, number: u64) -> Option<Running> {
        let running = self.running.remove(&number);
        match &running {
            Some(Running { handler_ended: Some(ended), .. }) => {
                self.ended.remove(&(*ended, number));
            }
            Some(_) => {}
            None => self.orphans -= 1,
        }
        running
    }

    /// A delivery that has stopped is settled.
    pub(super) fn settled(&mut self, running: &Running) {
        self.left(running.subscription);
        if let Some(place) = running.place {
            self.lines.finish(place);
            let suspects = self.suspects_in_line;
            self.suspects_in_line = suspects.saturating_sub(usize::from(running.is_suspect));
        }
    }

    /// The channel is gone. Returns the numbers of the started deliveries that went with it.
    pub(super) fn lose(&mut self) -> Vec<u64> {
        self.ended.clear();
        let running = std::mem::take(&mut self.running);
        self.orphans += running.len();
        let held = self.held.values().map(|held| &held.waiting);
        let waiting = self.plain.iter().chain(&self.due).chain(self.suspects.values()).chain(held);
        let in_line = self.lines.take_all();
        self.suspects_in_line = 0;
        let started = running.values().map(|running| running.redeliveries);
        let unsettled = waiting.chain(&in_line).map(|waiting| waiting.redeliveries).chain(started);
        // What was on its way comes back as well, and so may what was settled just before.
        let missing =
            usize::from(self.subscription.prefetch).saturating_sub(self.subscription.unsettled);
        let unseen =
            std::iter::repeat_n(Redeliveries::default(), missing + usize::from(self.is_asked));
        self.returning = unsettled.chain(unseen).map(Redeliveries::and_excused).collect();
        self.plain.clear();
        self.due.clear();
        self.held.clear();
        self.suspects.clear();
        (self.is_open, self.is_asked, self.head) = (false, false, Head::Unknown);
        self.subscribe(0);
        running.into_keys().collect()
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
        if !self.rules.line.allows_single_return() || self.late(now).is_none() {
            return Vec::new();
        }
        let (flow, rules) = (self.flow, self.rules);
        let late = self.take_if(|waiting| waiting.late_at(flow, &rules) <= now);
        // On 3.10 and 4.0 they come again counted, and this process knows why. On 4.3 they come
        // again with the count that they have.
        for waiting in &late {
            self.requeued.expect_handed_back(waiting.item.fingerprint(), waiting.redeliveries);
        }
        late.into_iter().map(|waiting| waiting.item).collect()
    }

    /// When the oldest waiting delivery will have waited too long. In an ordered queue, a copy that
    /// is on its way gets a moment more, because it would be sent again each time.
    pub(super) fn late_at(&self) -> Option<Instant> {
        let suspect = self.suspects.values().map(|waiting| waiting.since).min();
        let first = [self.plain.front(), self.due.front()].into_iter().flatten();
        let others = first.map(|waiting| waiting.since).chain(self.lines.oldest());
        let oldest = suspect.into_iter().chain(others).min()?;
        let limit = self.rules.start_limit;
        let has_copy = self.rules.line == Line::Ordered && !self.ended.is_empty();
        let more = if has_copy { (limit / 40).min(SETTLED_WITHIN) } else { Duration::ZERO };
        Some(oldest + limit + more)
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
