//! Which handler starts next.

use std::time::{Duration, Instant};

use super::isolation::isolated_for;
use super::queue_inbox::QueueInbox;
use super::{Inbox, Ticket};

/// How long suspects wait for subscriptions to end. The broker may not answer.
pub(super) const ENDED_WITHIN: Duration = Duration::from_secs(2);

impl<T> Inbox<T> {
    /// The next handler to start, if one may start now. Call it until it returns `None`.
    pub(crate) fn start(&mut self, now: Instant) -> Option<(Ticket, T)> {
        self.pass_time(now);
        let Some((queue, is_suspect)) = self.next_to_start(now) else {
            self.ask(now);
            return None;
        };
        let number = self.number();
        let inbox = &mut self.queues[queue];
        let item = if is_suspect {
            inbox.start_suspect(number, now)?
        } else {
            inbox.start_plain(number, now)?
        };
        let running = inbox.started(number)?;
        self.proof.started(number, running.says, now);
        if is_suspect {
            let limit = isolated_for(&inbox.rules, running.redeliveries.count);
            self.isolation.begin(number, now + limit);
        }
        self.note(queue, now);
        Some((Ticket { number, queue }, item))
    }

    /// The queue whose delivery starts next, and whether it is a suspect.
    fn next_to_start(&self, now: Instant) -> Option<(usize, bool)> {
        if self.isolation.is_in_effect() {
            return None;
        }
        match self.agenda.suspects().next() {
            None => self.agenda.first_plain().map(|queue| (queue, false)),
            Some(_) if !self.isolation.lets_suspects_start() => None,
            Some(_) if self.awaited_until(now).is_some() => None,
            Some(queue) => Some((queue, true)),
        }
    }

    /// Until when suspects wait for gets to be answered, for subscriptions to end or, in ordered
    /// queues, to fill up, if they do. What came later would be charged without having had its
    /// turn.
    pub(super) fn awaited_until(&self, now: Instant) -> Option<Instant> {
        let suspects = || self.agenda.suspects().map(|queue| &self.queues[queue]);
        let is_awaiting = self.agenda.has_subscriptions() || self.gets.awaited_until().is_some();
        let since = self.agenda.suspects_since()?;
        let ended = Some(since + ENDED_WITHIN).filter(|_| is_awaiting);
        let filled = suspects().filter_map(QueueInbox::first_fill_until).max();
        [ended, filled].into_iter().flatten().filter(|until| *until > now).max()
    }
}
