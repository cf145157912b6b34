//! The inbox: the deliveries that a process holds, of all its queues; how many more it may take;
//! and which handler starts next.
//!
//! A crash charges one delivery to every message that the process holds, of every queue, and they
//! come back to the heads of their queues (quorum queues of 3.10, 4.0 and 4.3). A message above its
//! delivery limit is parked. The inbox ensures that a message that kills its process is parked
//! alone:
//!
//! - **While little is proven, messages are taken one by one** ([`taking`], [`gets`]), from one
//!   queue after the other: a crash then charges only the one that caused it. A queue that is empty
//!   is subscribed to with a prefetch of one, and one that brings a fresh message, which no crash
//!   can have given back, with one for each handler. After a suspect this takes longer, and the
//!   process holds at most an eighth of what it has settled since.
//! - **Suspects** ([`suspicion`]) run first, one at a time, and nothing else is taken or started
//!   meanwhile ([`starting`]). So every subscription ends before a suspect starts.
//!   What those subscriptions brought can afford one more charge. A suspect stays alone until it is
//!   settled, because a crash by the next one would charge it. Its copy may be refused for a long
//!   time, so [the wait is bounded](isolation).
//! - **A subscription ends when it is full or idle**, or after a short time ([`fill_up`]), because
//!   what is on its way to it would be charged.
//! - **A subscription is replaced if all of its deliveries are held between two attempts, or wait
//!   for the confirm of a copy**, so that messages in the queue are not held up.
//! - **The window opens with proof** ([`proof`]): with as many deliveries as there are handlers,
//!   and more as deliveries are settled. What is held between two attempts does not count towards
//!   this; `prefetch` bounds it. An idle queue keeps the window that it has, and then
//!   widens it in steps.
//! - **What handlers gave back** ([`requeued`]), and what a lost channel held, is not suspect when
//!   it comes back: this process survived it.
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
//! A queue that refuses `basic.get` has a subscription with a prefetch of one while little is
//! proven.
//!
//! A program may pause a queue or drain it ([`flow`]).
//!
//! Each event costs the same however many queues there are ([`agenda`]).
//!
//! # What is guaranteed, and its limits
//!
//! The worlds in `crates/worlds/` run this code in whole services: up to 6 processes, 3 queues, 300
//! messages and 10 messages that kill their process within 2 s of their start, prefetch 1 to 200, a
//! delivery limit of 5 to 12 and `immediate` at most the limit less 3, at most 3 ms from a broker
//! that brings each delivery from its queue to its channel within 1 ms, no lost channels, and no
//! waits in the process. The broker parked no other message in any world that was tried (`make
//! worlds`), and none was held for longer than its ack timeout. A policy parked some that fail:
//! each charge uses up an immediate attempt, so where deaths charge a message before and after its
//! waits, one attempt before each wait and one after the last are all that is certain.
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
//! - pauses: a suspect that came before is held beside others;
//! - repeated deaths for other reasons, or lost channels: they charge messages, and there is no
//!   culprit to isolate.
//!
//! Architecture invariant: pure. No channel, no task, no clock, no randomness: time and random
//! numbers are arguments.

mod agenda;
mod fill_up;
mod flow;
mod gets;
mod isolation;
mod lines;
mod proof;
mod queue_inbox;
mod requeued;
mod rules;
mod starting;
mod suspicion;
mod taking;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use agenda::Agenda;
pub(crate) use flow::{Flow, Late, Rest};
use gets::Gets;
use isolation::Isolation;
use proof::Proof;
use queue_inbox::{QueueInbox, Running};
pub(crate) use requeued::Fingerprint;
pub(crate) use rules::Rules;
pub(crate) use suspicion::is_near_limit;
use taking::Phase;
pub(crate) use taking::Take;

/// All deliveries that a process holds, of all its queues.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    queues: Vec<QueueInbox<T>>,
    agenda: Agenda,
    gets: Gets,
    proof: Proof,
    /// What the windows of all queues depend on.
    phase: Phase,
    isolation: Isolation,
    next_number: u64,
    draw: u64,
}

/// Identifies a queue of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct QueueIndex(usize);

impl QueueIndex {
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

impl<T> Inbox<T> {
    /// `draw` is any random number, so that processes that start together do not all begin with the
    /// same queue.
    pub(crate) fn new(draw: u64) -> Self {
        Self {
            queues: Vec::new(),
            agenda: Agenda::default(),
            gets: Gets::new(draw),
            proof: Proof::default(),
            phase: Phase::OneByOne,
            isolation: Isolation::default(),
            next_number: 0,
            draw,
        }
    }

    pub(crate) fn add(&mut self, rules: Rules) -> QueueIndex {
        self.queues.push(QueueInbox::new(rules, self.draw));
        self.agenda.add();
        self.gets.add();
        QueueIndex(self.queues.len() - 1)
    }

    /// A queue for which [`take`](Self::take) or anything else may have changed since it was last
    /// returned.
    pub(crate) fn next_changed(&mut self) -> Option<QueueIndex> {
        self.agenda.next_changed().map(QueueIndex)
    }

    /// A session takes the queue's deliveries from now on.
    pub(crate) fn opened(&mut self, index: QueueIndex, now: Instant) {
        self.queues[index.0].open();
        self.note(index.0, now);
    }

    /// The queue is not to be asked for single messages any more: it refuses to give them, or the
    /// broker takes them back too soon.
    pub(crate) fn refuses_gets(&mut self, index: QueueIndex, now: Instant) {
        self.queues[index.0].rules.can_get = false;
        self.note(index.0, now);
    }

    /// When the queue's subscriptions end, which fill up from now on. `None`: cancel them now.
    /// Otherwise ask again at this time, and after each arrival.
    pub(crate) fn ends_at(&mut self, index: QueueIndex, now: Instant) -> Option<Instant> {
        let ends_at = self.queues[index.0].ends_at(now);
        self.note(index.0, now);
        ends_at
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
            self.isolation.settled(now);
        }
        self.queues[index.0].subscribe(prefetch);
        self.note(index.0, now);
    }

    /// A subscription has brought a delivery. `redeliveries` is the broker's count; `None` if the
    /// message is redelivered and the queue does not count.
    pub(crate) fn arrive(
        &mut self,
        index: QueueIndex,
        redeliveries: Option<u32>,
        now: Instant,
        item: T,
    ) where
        T: Fingerprint,
    {
        self.enter(index, redeliveries, false, now, item);
    }

    /// A get was answered, with a delivery and its redeliveries or with none.
    pub(crate) fn got(&mut self, index: QueueIndex, got: Option<(Option<u32>, T)>, now: Instant)
    where
        T: Fingerprint,
    {
        self.gets.answered(index.0);
        self.queues[index.0].answered();
        match got {
            Some((redeliveries, item)) => self.enter(index, redeliveries, true, now, item),
            None => self.note(index.0, now),
        }
    }

    fn enter(
        &mut self,
        index: QueueIndex,
        redeliveries: Option<u32>,
        is_got: bool,
        now: Instant,
        item: T,
    ) where
        T: Fingerprint,
    {
        let number = self.number();
        let count = redeliveries.unwrap_or(1);
        if self.queues[index.0].arrive(count, is_got, number, now, item) {
            self.proof.shake();
        }
        self.note(index.0, now);
    }

    /// How many deliveries of a message that has just started ended without an answer before this
    /// one, as far as this process can tell: its own handlers gave none of them back. `None` if
    /// another process's handler has probably requeued it.
    pub(crate) fn unanswered(&self, ticket: &Ticket) -> Option<u32> {
        let Running { is_suspect, redeliveries, .. } =
            self.queues[ticket.queue].started(ticket.number)?;
        let may_have_killed =
            *is_suspect || (redeliveries.unexplained() > 0 && !self.proof.is_ample());
        Some(redeliveries.unanswered()).filter(|unanswered| may_have_killed && *unanswered > 0)
    }

    /// The handler has ended. Its slot stays taken until the delivery is settled, which may have to
    /// wait for the broker to confirm a copy.
    pub(crate) fn handler_ended(&mut self, ticket: &Ticket, now: Instant) {
        let queue = &mut self.queues[ticket.queue];
        let start_limit = queue.rules.start_limit;
        let Some(running) = queue.handler_ended(ticket.number, now) else { return };
        if running.is_suspect {
            self.isolation.handler_ended(ticket.number, start_limit, now);
        }
        self.note(ticket.queue, now);
    }

    /// The delivery is about to go back to its queue, and comes again with one more in the broker's
    /// count if `is_counted`. Call this before it goes, because it may come again at once.
    pub(crate) fn expect(&mut self, ticket: &Ticket, fingerprint: u64, is_counted: bool) {
        self.queues[ticket.queue].expect(ticket.number, fingerprint, is_counted);
    }

    /// A started delivery was settled, or cannot be settled any more.
    pub(crate) fn finish(&mut self, ticket: Ticket, now: Instant) {
        if let Some(running) = self.stop(&ticket, now) {
            self.queues[ticket.queue].settled(&running);
        }
        self.note(ticket.queue, now);
    }

    /// A started delivery is not settled, but gets another attempt here when it is due. Until then
    /// it takes no slot, but still counts towards the window. If its channel is gone, it is
    /// dropped: the broker has it again. If the queue is [emptied](Self::empty), returns the
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
        let queue = &self.queues[ticket.queue];
        if queue.is_emptied && queue.started(ticket.number).is_some() {
            return Some((ticket, item));
        }
        if let Some(running) = self.stop(&ticket, now) {
            self.queues[ticket.queue].hold(&running, ticket.number, item, due);
        }
        self.note(ticket.queue, now);
        None
    }

    /// A started delivery takes its slot no more. `None` if its channel is gone: then there is
    /// nothing else to do.
    fn stop(&mut self, ticket: &Ticket, now: Instant) -> Option<Running> {
        let running = self.queues[ticket.queue].stop(ticket.number)?;
        self.proof.finished(ticket.number);
        self.isolation.end(ticket.number);
        if running.is_suspect {
            self.isolation.settled(now);
        }
        Some(running)
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
    pub(crate) fn lost(&mut self, index: QueueIndex, is_by_delivery: bool, now: Instant) {
        for number in self.queues[index.0].lose() {
            self.proof.forget(number);
            self.isolation.end(number);
        }
        self.gets.answered(index.0);
        if is_by_delivery {
            self.proof.shake();
        }
        self.note(index.0, now);
    }

    /// Deliveries that have waited too long, to be handed back now.
    pub(crate) fn take_late(&mut self, index: QueueIndex, now: Instant) -> Vec<T>
    where
        T: Fingerprint,
    {
        let late = self.queues[index.0].take_late(now);
        self.note(index.0, now);
        late
    }

    /// Why deliveries are to go back, as one that has waited too long for a handler. If the queue
    /// is ordered, the broker will soon take back what it holds for so long. To keep the order, all
    /// of it has to go back together.
    pub(crate) fn late(&self, index: QueueIndex, now: Instant) -> Option<Late> {
        self.queues[index.0].late(now)
    }

    /// The broker takes deliveries back sooner than was known, so none may wait for longer than
    /// this.
    pub(crate) fn limit_start(&mut self, index: QueueIndex, limit: Duration, now: Instant) {
        let rules = &mut self.queues[index.0].rules;
        rules.start_limit = rules.start_limit.min(limit);
        self.note(index.0, now);
    }

    /// What the program wants of the queue from now on.
    pub(crate) fn set_flow(&mut self, index: QueueIndex, flow: Flow, now: Instant) {
        self.queues[index.0].set_flow(flow, now);
        self.note(index.0, now);
    }

    /// Whether the queue rests, as a pause or a drain wants it.
    pub(crate) fn rest(&self, index: QueueIndex) -> Rest {
        self.queues[index.0].rest()
    }

    /// How many handlers of the queue may run at a time from now on, at most as many as its
    /// prefetch. Those that run go on.
    pub(crate) fn set_concurrency(&mut self, index: QueueIndex, handlers: u16, now: Instant) {
        let rules = &mut self.queues[index.0].rules;
        rules.concurrency = handlers.clamp(1, rules.prefetch);
        self.note(index.0, now);
    }

    /// The most handlers that may be asked for.
    pub(crate) fn most_handlers(&self, index: QueueIndex) -> u16 {
        self.queues[index.0].rules.prefetch
    }

    /// All deliveries that are not running, for the shutdown. From now on none is to wait here.
    pub(crate) fn empty(&mut self, index: QueueIndex, now: Instant) -> Vec<T> {
        self.queues[index.0].is_emptied = true;
        let not_running = self.queues[index.0].take_all();
        self.note(index.0, now);
        not_running
    }

    /// When time alone next changes something: then call [`start`](Self::start), and ask for
    /// everything else again. Always later than `now`.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let times = [
            self.isolation.next_at(now),
            self.proof.next_at(),
            self.gets.awaited_until(),
            self.awaited_until(now),
            self.agenda.next_at(now),
        ];
        times.into_iter().flatten().filter(|at| *at > now).min()
    }

    /// Applies what time alone changes: isolations end, and handlers that have run long enough
    /// count as proven.
    pub(crate) fn pass_time(&mut self, now: Instant) {
        self.proof.pass_time(now);
        self.isolation.pass_time(now);
        self.gets.pass_time(now);
        while let Some(queue) = self.agenda.due(now) {
            self.queues[queue].wake(now);
            self.note(queue, now);
        }
        self.enter_phase();
    }

    /// Something about this queue has changed.
    fn note(&mut self, queue: usize, now: Instant) {
        let inbox = &self.queues[queue];
        self.gets.put(queue, inbox.candidate());
        self.agenda.put(queue, inbox.entry(now), now);
        self.enter_phase();
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}
