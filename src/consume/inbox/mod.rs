//! The inbox: the deliveries that a process holds, of all its queues; how many more it may take;
//! and which handler starts next.
//!
//! A crash charges one delivery to every message that the process holds, of every queue, and they
//! come back to the heads of their queues (quorum queues of 3.10, 4.0 and 4.3). A message above its
//! delivery limit is parked. The inbox ensures that a message that kills its process is parked
//! alone:
//!
//! - **Suspects** ([`suspicion`]) run first, one at a time, the nearest to its limit first, and
//!   nothing else is taken or started meanwhile. So every subscription that the window does not
//!   allow ends before a suspect starts. What those subscriptions brought can afford one more
//!   charge. A suspect stays alone until it is settled, because a crash by the next one would
//!   charge it. Its copy may be refused for a long time, so [the wait is bounded](SETTLED_WITHIN).
//! - **A subscription ends when it is full or idle**, or after a short time ([`fill_up`]), because
//!   what is on its way to it would be charged.
//! - **A subscription is replaced if all of its deliveries are held between two attempts, or wait
//!   for the confirm of a copy**, so that messages in the queue are not held up.
//! - **The window opens with proof** ([`proof`]): a process starts with one delivery. A fresh one,
//!   which no crash can have given back, lets it hold one for each handler, and more as deliveries
//!   are settled. After a suspect it holds at most an eighth of what it has settled since, until it
//!   has settled enough. What is held between two attempts does not count towards this; `prefetch`
//!   bounds it.
//! - **What handlers gave back** ([`requeued`]), and what a lost channel held, is not suspect when
//!   it comes back: this process survived it.
//! - **Queues take turns** ([`turn`]) until each has brought a fresh delivery, or a few deliveries
//!   are proven: a message that kills at the head of one queue must not charge the head of another
//!   each time.
//! - **Nothing waits too long for a handler** ([`Rules::startable`]): the broker's ack timeout
//!   charges all that a channel holds (3.10 and 4.0).
//!
//! An ordered queue ([`lines`]) cannot follow the window: to end a subscription while it holds
//! something would let others overtake that. And what comes back goes behind what came back before
//! it, so a narrower window would change the order with the second crash. So its prefetch stays as
//! it is. In a queue that is ordered as a whole it is one. In one that is ordered by keys, each
//! crash charges the whole window; its suspects run alone, line by line, once all of the window has
//! come, so that a message that kills is left with its own line.
//!
//! # What is guaranteed, and its limits
//!
//! The worlds in `crates/worlds/` run this code in whole services: up to 6 processes, 3 queues, 300
//! messages and 10 messages that kill their process within 2 s of their start, prefetch 1 to 200, a
//! delivery limit of 5 to 12 and `immediate` at most the limit less 3, at most 3 ms from a broker
//! that brings each delivery from its queue to its channel within 1 ms, no lost channels, and no
//! waits in the process. No other message was parked in any world that was tried (`make worlds`),
//! and none was held for longer than the broker's ack timeout.
//!
//! In other worlds channels are lost, messages wait in their process, queues are ordered, and the
//! broker refuses copies for longer than its ack timeout: there each message ends, and none of an
//! ordered queue starts before an earlier one with its key was handled or parked. The same holds if
//! the broker's ack timeout is shorter than the settings say. Such a timeout (3.10 and 4.0) may
//! park messages that cannot wait in the process for so long, others on the same channel, and
//! whatever else an ordered queue holds.
//!
//! Copies that are refused for so long may park the messages that end with them, and in an ordered
//! queue whatever else it holds. In other queues they park nothing else on 4.3, unless a message
//! kills its process meanwhile. 3.10 and 4.0 count what is handed back because refused copies
//! occupy all handlers.
//!
//! Outside the limits above an innocent message may be parked, with:
//!
//! - `immediate` nearer to the limit, or a lower limit: handlers that fail use up the charges that
//!   a message could afford;
//! - more processes than the delivery limit less `immediate`, each with an open window when the
//!   first one dies;
//! - a message that kills after more than 10 s beside handlers that run for longer: a suspect has
//!   the process to itself for 10 s, and for longer the more often it came back, but not forever;
//! - copies that are confirmed more than 10 s after their handlers have ended, or more than 50 ms
//!   while such a copy is awaited: the next suspect may kill the process meanwhile;
//! - a broker that is further away: a process may open its window with a fresh message before what
//!   came back is delivered;
//! - waits in the process: a crash by another message charges what waits;
//! - repeated deaths for other reasons, or lost channels: they charge messages, and there is no
//!   culprit to isolate.
//!
//! Architecture invariant: pure. No channel, no task, no clock, no randomness: time and random
//! numbers are arguments.

mod fill_up;
mod lines;
mod proof;
mod queue_inbox;
mod requeued;
mod rules;
mod suspicion;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lines::Place;
use proof::Proof;
use queue_inbox::{QueueInbox, Waiting};
pub(crate) use requeued::Fingerprint;
pub(crate) use rules::Rules;
pub(crate) use suspicion::is_near_limit;
use suspicion::{Redeliveries, is_suspect};
use turn::Turn;

/// All deliveries that a process holds, of all its queues.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    queues: Vec<QueueInbox<T>>,
    /// By number, so that the longest running come first. A ticket that is not here is of a handler
    /// whose channel is gone.
    running: BTreeMap<u64, Running>,
    next_number: u64,
    proof: Proof,
    turn: Turn,
    isolation: Option<Isolation>,
    /// No suspect starts before this: what was settled last must have reached the broker.
    quiet_until: Option<Instant>,
    draw: u64,
}

/// Identifies a queue of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct QueueIndex(usize);

impl QueueIndex {
    pub(crate) fn at(position: usize) -> Self {
        Self(position)
    }

    pub(crate) fn position(self) -> usize {
        self.0
    }
}

/// A started handler's delivery, until it is settled.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "its slot is taken until it is given to Inbox::finish or Inbox::hold"]
pub(crate) struct Ticket {
    number: u64,
    queue: usize,
}

#[derive(Debug)]
struct Running {
    queue: usize,
    subscription: u64,
    started: Instant,
    is_suspect: bool,
    /// Since when it is only to be settled.
    handler_ended: Option<Instant>,
    redeliveries: Redeliveries,
    /// Where it stands in an ordered queue.
    place: Option<Place>,
}

impl Running {
    /// When its copy, if it has one, counts as unconfirmed.
    fn unconfirmed_at(&self) -> Option<Instant> {
        self.handler_ended.map(|ended| ended + SETTLED_WITHIN)
    }
}

/// A suspect has the process to itself: nothing else is started or taken, for a bounded time.
#[derive(Debug)]
struct Isolation {
    number: u64,
    until: Instant,
}

/// A delivery that kills its process is taken to do so within this time. One that has run for
/// longer has proven as much as one that was settled.
const CRASHES_WITHIN: Duration = Duration::from_secs(10);

/// How long suspects wait for subscriptions to end. The broker may not answer.
const ENDED_WITHIN: Duration = Duration::from_secs(2);

/// How long the settlement of a delivery whose handler has ended may take before others go on
/// without it: other suspects, and what is behind it in its queue. The broker may not confirm its
/// copy.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// How long an ack may take to leave the process. If the process dies before, the broker never sees
/// the ack.
const ACK_FLUSH_TIME: Duration = Duration::from_millis(50);

impl<T> Inbox<T> {
    /// `draw` is any random number, so that processes that start together do not all begin with the
    /// same queue.
    pub(crate) fn new(draw: u64) -> Self {
        Self {
            queues: Vec::new(),
            running: BTreeMap::new(),
            next_number: 0,
            proof: Proof::default(),
            turn: Turn::new(draw),
            isolation: None,
            quiet_until: None,
            draw,
        }
    }

    pub(crate) fn add(&mut self, rules: Rules) -> QueueIndex {
        self.queues.push(QueueInbox::new(rules, self.draw));
        QueueIndex(self.queues.len() - 1)
    }

    /// The prefetch that the queue's subscriptions should have now, all together; 0: there should
    /// be none.
    ///
    /// If they have less, add one. If they have more, ask [`ends_at`](Self::ends_at) when to cancel
    /// all of them, take what is under way, and subscribe again. Report both with
    /// [`subscribed`](Self::subscribed). What a cancelled subscription brought stays here and can
    /// still be settled. Ask only after [`start`](Self::start) has returned `None`.
    pub(crate) fn window(&self, index: QueueIndex, now: Instant) -> u16 {
        let queue = &self.queues[index.0];
        if queue.rules.is_ordered {
            return queue.rules.prefetch;
        }
        let stuck = self.stuck(index, now);
        if queue.orphans + stuck >= usize::from(queue.rules.concurrency) {
            // What came could not start, would be handed back when it is late, and counted.
            return 0;
        }
        if self.has_suspects(now) {
            // A subscription with a prefetch of one, which the suspect uses up, brings nothing else
            // and can stay.
            return u16::from(queue.is_used_up_by_one() && self.in_hand() == 1);
        }
        if queue.is_full_of_resting(|| self.unconfirmed(index, now)) {
            // Ends it: the broker counts only a subscription's own deliveries, so another one can
            // bring more.
            return 0;
        }
        let proven = match self.takes_first(queue) {
            true => u16::from(self.may_take_first(index)),
            false => self.proof.window(queue.rules.concurrency),
        };
        queue.in_steps(
            proven.min(queue.rules.prefetch),
            queue.startable(stuck).min(queue.prefetch_left()),
        )
    }

    /// When the queue's subscriptions end, which fill up from now on. `None`: cancel them now.
    /// Otherwise ask again at this time, and after each arrival.
    pub(crate) fn ends_at(&mut self, index: QueueIndex, now: Instant) -> Option<Instant> {
        self.queues[index.0].ends_at(now)
    }

    /// Whether the queue's subscriptions are ending. Nothing of the queue is to be settled until
    /// their end is reported: a subscription that is no longer full is sent more, which the broker
    /// counts when it ends.
    pub(crate) fn is_ending(&self, index: QueueIndex) -> bool {
        self.queues[index.0].is_ending()
    }

    /// The queue's subscriptions have this prefetch from now on. 0: there are none, and nothing is
    /// under way any more.
    pub(crate) fn subscribed(&mut self, index: QueueIndex, prefetch: u16, now: Instant) {
        if self.is_ending(index) {
            // What waited to be settled is settled now.
            self.quiet_until = Some(now + ACK_FLUSH_TIME);
        }
        self.queues[index.0].subscribe(prefetch);
    }

    /// A delivery has arrived. `redeliveries` is the broker's count; `None` if the message is
    /// redelivered and the queue does not count.
    pub(crate) fn arrive(
        &mut self,
        index: QueueIndex,
        redeliveries: Option<u32>,
        now: Instant,
        item: T,
    ) where
        T: Fingerprint,
    {
        let number = self.number();
        let queue = &mut self.queues[index.0];
        let count = redeliveries.unwrap_or(1);
        let redeliveries = queue.redeliveries(count, &item);
        let is_suspect = is_suspect(&queue.rules, redeliveries);
        queue.arrive(redeliveries, is_suspect, number, now, item);
        let is_fresh = queue.last_was_fresh();
        self.turn.arrived();
        if is_suspect {
            self.proof.shake();
            self.turn.give_to(index.0, now);
        } else if is_fresh && !self.proof.is_shaken() {
            self.turn.finished(index.0, self.queues.len(), now);
        }
    }

    /// The next handler to start, if one may start now. Call it until it returns `None`.
    pub(crate) fn start(&mut self, now: Instant) -> Option<(Ticket, T)> {
        self.pass_time(now);
        if self.isolation.is_some() {
            return None;
        }
        let suspect = self.queues.iter().enumerate().filter(|(_, queue)| queue.has_slot());
        let suspect =
            suspect.filter_map(|(index, queue)| Some((queue.first_suspect()?, index))).min();
        if suspect.is_some()
            && (self.quiet_until.is_some() || self.awaits_subscriptions_until(now).is_some())
        {
            return None;
        }
        let (queue, waiting) = match suspect {
            Some((_, index)) => (index, self.queues[index].take_suspect()?),
            None => self
                .queues
                .iter_mut()
                .enumerate()
                .find_map(|(index, queue)| Some((index, queue.take_plain()?)))?,
        };
        let number = self.number();
        if suspect.is_some() {
            let limit =
                suspicion::isolated_for(&self.queues[queue].rules, waiting.redeliveries.count);
            self.isolation = Some(Isolation { number, until: now + limit });
        }
        let Waiting { subscription, redeliveries, item, place, .. } = waiting;
        let is_suspect = suspect.is_some();
        let running = Running {
            queue,
            subscription,
            started: now,
            is_suspect,
            handler_ended: None,
            redeliveries,
            place,
        };
        self.running.insert(number, running);
        Some((Ticket { number, queue }, item))
    }

    /// How many deliveries of a message that has just started ended without an answer before this
    /// one, as far as this process can tell: its own handlers gave none of them back. `None` if
    /// another process's handler has probably requeued it.
    pub(crate) fn unanswered(&self, ticket: &Ticket) -> Option<u32> {
        let Running { is_suspect, redeliveries, .. } = *self.running.get(&ticket.number)?;
        let may_have_killed =
            is_suspect || (redeliveries.unexplained() > 0 && !self.proof.is_ample());
        Some(redeliveries.unanswered()).filter(|unanswered| may_have_killed && *unanswered > 0)
    }

    /// The handler has ended. Its slot stays taken until the delivery is settled, which may have to
    /// wait for the broker to confirm a copy. Until then a suspect has the process to itself,
    /// because the next one may kill the process. This is bounded: while one suspect is unsettled,
    /// those after it hardly wait, so refused copies do not add up.
    pub(crate) fn handler_ended(&mut self, ticket: &Ticket, now: Instant) {
        let Some(running) = self.running.get_mut(&ticket.number) else { return };
        running.handler_ended.get_or_insert(now);
        if let Some(isolation) =
            self.isolation.as_mut().filter(|isolation| isolation.number == ticket.number)
        {
            let mut others = self.running.iter().filter(|(number, _)| **number != ticket.number);
            let another_is_unsettled =
                others.any(|(_, other)| other.is_suspect && other.handler_ended.is_some());
            let limit = SETTLED_WITHIN.min(self.queues[ticket.queue].rules.start_limit / 2);
            isolation.until = isolation
                .until
                .min(now + if another_is_unsettled { ACK_FLUSH_TIME } else { limit });
        }
    }

    /// The delivery is about to go back to its queue, and comes again with one more in the broker's
    /// count if `is_counted`. Call this before it goes, because it may come again at once.
    pub(crate) fn expect(&mut self, ticket: &Ticket, fingerprint: u64, is_counted: bool) {
        if let Some(running) = self.running.get(&ticket.number) {
            self.queues[running.queue].expect(fingerprint, running.redeliveries, is_counted);
        }
    }

    /// A started delivery was settled, or cannot be settled any more.
    pub(crate) fn finish(&mut self, ticket: Ticket, now: Instant) {
        if let Some(running) = self.take_running(&ticket) {
            self.queues[ticket.queue].finish(&running);
            self.ended(&ticket, &running, now);
        }
    }

    /// A started delivery is not settled, but gets another attempt here when it is due. Until then
    /// it takes no slot, but still counts towards the window. If its channel is gone, it is
    /// dropped: the broker has it again. If the queue is [drained](Self::drain), returns the
    /// delivery, and its slot stays taken.
    pub(crate) fn hold(
        &mut self,
        ticket: Ticket,
        item: T,
        due: Instant,
        now: Instant,
    ) -> Option<(Ticket, T)>
    where
        T: Fingerprint,
    {
        if self.queues[ticket.queue].is_drained && self.running.contains_key(&ticket.number) {
            return Some((ticket, item));
        }
        if let Some(running) = self.take_running(&ticket) {
            self.queues[ticket.queue].hold(&running, ticket.number, item, due);
            self.ended(&ticket, &running, now);
        }
        None
    }

    /// `None` if the channel of the delivery is gone: then its slot is free now, and there is
    /// nothing else to do.
    fn take_running(&mut self, ticket: &Ticket) -> Option<Running> {
        let running = self.running.remove(&ticket.number);
        if running.is_none() {
            self.queues[ticket.queue].orphans -= 1;
        }
        running
    }

    /// A started delivery takes no slot any more.
    fn ended(&mut self, ticket: &Ticket, running: &Running, now: Instant) {
        self.proof.finished(ticket.number);
        self.isolation.take_if(|isolation| isolation.number == ticket.number);
        if running.is_suspect {
            self.quiet_until = Some(now + ACK_FLUSH_TIME);
        }
        if !self.has_suspects(now) {
            self.turn.finished(ticket.queue, self.queues.len(), now);
        }
    }

    /// How many of the queue's slots are taken, also by handlers whose channel is gone.
    pub(crate) fn running(&self, index: QueueIndex) -> usize {
        self.queues[index.0].running()
    }

    /// The queue's channel is gone: what has not started is forgotten, and what is running only
    /// takes its slot, until its handler ends. The broker has it all again. `is_by_delivery`: a
    /// delivery that never arrives here has ended the connection. It does so each time, and charges
    /// what the process holds beside it. So what was proven no longer counts, and little is taken
    /// at a time.
    pub(crate) fn lost(&mut self, index: QueueIndex, is_by_delivery: bool) {
        let running = std::mem::take(&mut self.running).into_iter();
        let (lost, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
            running.partition(|(_, running)| running.queue == index.0);
        self.running = kept;
        self.isolation.take_if(|isolation| !self.running.contains_key(&isolation.number));
        self.queues[index.0].lose(lost.into_values().map(|running| running.redeliveries).collect());
        if is_by_delivery {
            self.proof.shake();
        }
    }

    /// Deliveries that have waited too long, to be handed back now.
    pub(crate) fn take_late(&mut self, index: QueueIndex, now: Instant) -> Vec<T>
    where
        T: Fingerprint,
    {
        self.queues[index.0].take_late(now)
    }

    /// Whether a delivery has waited too long for a handler. If the queue is ordered, the broker
    /// will soon take back what it holds for so long. To keep the order, all of it has to go back
    /// together.
    pub(crate) fn has_late(&self, index: QueueIndex, now: Instant) -> bool {
        self.late_at(index.0).is_some_and(|at| at <= now)
    }

    /// When a delivery of the queue will have waited too long. In an ordered queue, a copy that is
    /// on its way gets a moment more, because it would be sent again each time.
    fn late_at(&self, queue: usize) -> Option<Instant> {
        let (late_at, rules) = (self.queues[queue].late_at()?, &self.queues[queue].rules);
        let has_copy = || {
            self.running
                .values()
                .any(|running| running.queue == queue && running.handler_ended.is_some())
        };
        let more =
            if rules.is_ordered && has_copy() { rules.start_limit / 40 } else { Duration::ZERO };
        Some(late_at + more.min(SETTLED_WITHIN))
    }

    /// The broker takes deliveries back sooner than was known, so none may wait for longer than
    /// this.
    pub(crate) fn limit_start(&mut self, index: QueueIndex, limit: Duration) {
        let rules = &mut self.queues[index.0].rules;
        rules.start_limit = rules.start_limit.min(limit);
    }

    /// All deliveries that are not running, for the shutdown. From now on none is to wait here.
    pub(crate) fn drain(&mut self, index: QueueIndex) -> Vec<T> {
        self.queues[index.0].is_drained = true;
        self.queues[index.0].take_all()
    }

    /// When time alone next changes something: then call [`start`](Self::start), and ask for
    /// everything else again. Always later than `now`.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let isolation = self.isolation.as_ref().map(|isolation| isolation.until);
        let proven =
            self.proof.youngest(&self.running).map(|running| running.started + CRASHES_WITHIN);
        let turn = if self.takes_turns(now) {
            self.turn.ends_at(self.queues.len(), self.is_turn_idle())
        } else {
            None
        };
        // They are in the order of their start, so mostly the first one is not stuck.
        let stuck = (0..self.queues.len()).filter_map(|queue| {
            let (limit, running) = (self.queues[queue].rules.start_limit, self.running.values());
            running
                .filter(|running| running.queue == queue)
                .map(|running| running.started + limit)
                .find(|at| *at > now)
        });
        let may_be_replaced = self.queues.iter().any(QueueInbox::may_be_replaced);
        let unconfirmed =
            may_be_replaced.then(|| self.running.values().filter_map(Running::unconfirmed_at));
        let late = (0..self.queues.len()).filter_map(|queue| self.late_at(queue));
        let due = self.queues.iter().filter_map(QueueInbox::due_at);
        let ended = self.awaits_subscriptions_until(now);
        let single = [isolation, self.quiet_until, proven, turn, ended].into_iter().flatten();
        single
            .chain(stuck)
            .chain(unconfirmed.into_iter().flatten())
            .chain(late)
            .chain(due)
            .filter(|at| *at > now)
            .min()
    }

    /// Applies what time alone changes: turns and isolations end, and handlers that have run long
    /// enough count as proven.
    pub(crate) fn pass_time(&mut self, now: Instant) {
        self.proof.pass_time(&self.running, now);
        self.isolation.take_if(|isolation| isolation.until <= now);
        self.quiet_until.take_if(|until| *until <= now);
        for queue in &mut self.queues {
            queue.wake(now);
        }
        if self.takes_turns(now) {
            self.turn.pass_time(self.queues.len(), self.is_turn_idle(), now);
        }
    }

    /// Whether nothing of the queue whose turn it is may kill the process: a delivery that is only
    /// to be settled does not.
    fn is_turn_idle(&self) -> bool {
        let queue = self.turn.queue(self.queues.len());
        let mut running = self.running.values();
        self.queues[queue].waiting() == 0
            && !running.any(|running| running.queue == queue && running.handler_ended.is_none())
    }

    fn takes_turns(&self, now: Instant) -> bool {
        self.queues.len() > 1
            && !self.has_suspects(now)
            && self.queues.iter().any(|queue| self.takes_first(queue))
    }

    /// Whether nothing is known yet about what the queue brings.
    fn takes_first(&self, queue: &QueueInbox<T>) -> bool {
        self.proof.is_scant() && (self.proof.is_shaken() || !queue.last_was_fresh())
    }

    /// Whether the queue may be taken from although little is proven: one queue at a time, unless
    /// all are idle.
    fn may_take_first(&self, index: QueueIndex) -> bool {
        let mut others = self.queues.iter().enumerate().filter(|(other, _)| *other != index.0);
        self.turn.is_over(self.queues.len())
            || self.turn.queue(self.queues.len()) == index.0
                && !others.any(|(_, queue)| {
                    !queue.rules.is_ordered && queue.is_subscribed() && self.takes_first(queue)
                })
    }

    /// Whether a suspect runs in isolation, or could start.
    fn has_suspects(&self, now: Instant) -> bool {
        self.isolation.as_ref().is_some_and(|isolation| now < isolation.until)
            || self.queues.iter().any(QueueInbox::has_startable_suspects)
    }

    /// Until when suspects wait for subscriptions to end or, in ordered queues, to fill up, if they
    /// do. What came later would be charged without having had its turn: the nearest to its limit
    /// runs first.
    fn awaits_subscriptions_until(&self, now: Instant) -> Option<Instant> {
        let filled = self
            .queues
            .iter()
            .filter_map(QueueInbox::first_fill_until)
            .max()
            .filter(|until| *until > now);
        self.awaits_ends_until(now).or(filled)
    }

    /// Until when suspects wait for subscriptions to end, if they do.
    fn awaits_ends_until(&self, now: Instant) -> Option<Instant> {
        let startable = self.queues.iter().filter(|queue| queue.has_startable_suspects());
        let since = startable.filter_map(QueueInbox::suspects_since).min()?;
        let mut indexes = (0..self.queues.len()).map(QueueIndex);
        let until = Some(since + ENDED_WITHIN).filter(|until| *until > now)?;
        indexes
            .any(|index| self.queues[index.0].prefetch() > self.window(index, now))
            .then_some(until)
    }

    /// How many deliveries a crash would charge although they could still be handed back.
    fn in_hand(&self) -> usize {
        self.queues.iter().map(QueueInbox::waiting).sum::<usize>()
            + usize::from(self.isolation.is_some())
    }

    /// How many of the queue's slots have been taken for longer than a delivery may wait for one,
    /// as one is whose copy is refused.
    fn stuck(&self, index: QueueIndex, now: Instant) -> usize {
        let limit = self.queues[index.0].rules.start_limit;
        let long = self
            .running
            .values()
            .take_while(|running| now.saturating_duration_since(running.started) >= limit);
        long.filter(|running| running.queue == index.0).count()
    }

    /// How many deliveries of the queue's present subscription have long been waiting for the
    /// confirm of a copy.
    fn unconfirmed(&self, index: QueueIndex, now: Instant) -> usize {
        let subscription = self.queues[index.0].present_subscription();
        let of_it =
            |running: &&Running| running.queue == index.0 && running.subscription == subscription;
        self.running
            .values()
            .filter(of_it)
            .filter(|running| running.unconfirmed_at().is_some_and(|at| at <= now))
            .count()
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}
