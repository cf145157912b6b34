//! What a process does: takes deliveries, runs handlers, settles, and fits its subscriptions.

use std::time::{Duration, Instant};

use super::process::Subscription;
use super::scenario::Verdict;
use super::taken::Taken;
use super::{Channel, Event, How, Life, World};
use crate::consume::inbox::Fingerprint as _;

/// How long a queue that has given its channel up is without one.
const REOPENS_AFTER: u64 = 100;

impl World<'_> {
    pub(super) fn take(&mut self, channel: Channel, message: usize, count: u32) {
        let now = self.instant();
        let process = &mut self.processes[channel.life.process];
        let taken = Taken { message, key: self.scenario.messages[message].key, channel, count, failed: 0 };
        process.inbox.arrive(process.queues[channel.queue], Some(count), now, taken);
        self.look_soon(channel.life);
    }

    pub(super) fn cancelled(&mut self, channel: Channel) {
        let now = self.instant();
        let process = &mut self.processes[channel.life.process];
        process.sessions[channel.queue].subscription = Subscription::None;
        process.inbox.subscribed(process.queues[channel.queue], 0, now);
        self.settle_ended(channel.life);
    }

    /// The process notices that a channel is gone. Its handlers run on, unless the queue is ordered.
    pub(super) fn notices_loss(&mut self, channel: Channel, pause: u64) {
        let process = &mut self.processes[channel.life.process];
        if self.scenario.rules[channel.queue].is_ordered {
            process.drop_handlers(channel);
        }
        let session = &mut process.sessions[channel.queue];
        (session.is_open, session.subscription) = (false, Subscription::None);
        process.inbox.lost(process.queues[channel.queue]);
        self.settle_ended(channel.life);
        self.after(pause, Event::Reopens(channel));
    }

    /// The session after that of this channel begins.
    pub(super) fn reopen(&mut self, Channel { life, queue, number }: Channel) {
        let session = &mut self.processes[life.process].sessions[queue];
        (session.is_open, session.channel) = (true, Channel { life, queue, number: number + 1 });
        self.look_soon(life);
    }

    /// A delivery that waits here is held in one step. Any other is settled in a second step, and the process may do other things in
    /// between.
    pub(super) fn handler_ended(&mut self, life: Life, handler: u64) {
        let now = self.instant();
        let process = &mut self.processes[life.process];
        let Some((ticket, taken)) = process.running.get(&handler) else { return };
        match self.scenario.verdict(taken) {
            Verdict::Hold(delay) => return self.hold(life, handler, now + Duration::from_millis(delay)),
            Verdict::Requeue => {
                process.inbox.handler_ended(ticket, now);
                process.inbox.requeue(ticket, taken.fingerprint());
            }
            Verdict::Ack => {
                process.inbox.handler_ended(ticket, now);
                self.order.handled(taken.message);
            }
        }
        self.after(0, Event::Settles(life, handler));
        self.look_soon(life);
    }

    fn hold(&mut self, life: Life, handler: u64, due: Instant) {
        let now = self.instant();
        let process = &mut self.processes[life.process];
        let (ticket, taken) = process.running.remove(&handler).expect("a handler ends once");
        let not_held = process.inbox.hold(ticket, Taken { failed: taken.failed + 1, ..taken }, due, now);
        assert_eq!(not_held.is_none(), process.uses(taken.channel), "it waits here unless its channel is gone");
        self.look_soon(life);
    }

    fn settle_ended(&mut self, life: Life) {
        for handler in std::mem::take(&mut self.processes[life.process].ended) {
            self.settle(life, handler);
        }
        self.look_soon(life);
    }

    /// What a lost channel brought is settled too late.
    pub(super) fn settle(&mut self, life: Life, handler: u64) {
        let now = self.instant();
        let process = &mut self.processes[life.process];
        let Some(channel) = process.running.get(&handler).map(|(_, taken)| taken.channel) else { return };
        if process.uses(channel) && process.inbox.is_ending(process.queues[channel.queue]) {
            return process.ended.push(handler);
        }
        let (ticket, taken) = process.running.remove(&handler).expect("a handler ends once");
        process.inbox.finish(ticket, now);
        let how = match self.scenario.verdict(&taken) {
            Verdict::Requeue => How::Reject,
            Verdict::Ack | Verdict::Hold(_) => How::Ack,
        };
        self.after(self.scenario.collects_for, Event::Sends(channel, taken.message, how));
        self.look_soon(life);
    }

    /// Hands back what has waited too long. An ordered queue gives its channel up instead.
    fn hand_back_late(&mut self, channel: Channel, now: Instant) {
        let process = &mut self.processes[channel.life.process];
        let queue = process.queues[channel.queue];
        if process.inbox.is_overdue(queue, now) {
            self.after(self.scenario.lag, Event::Lost(channel));
            return self.notices_loss(channel, REOPENS_AFTER);
        }
        if process.inbox.is_ending(queue) {
            return;
        }
        for taken in process.inbox.take_late(queue, now) {
            self.after(self.scenario.collects_for, Event::Sends(taken.channel, taken.message, How::HandBack));
        }
    }

    pub(super) fn look_soon(&mut self, life: Life) {
        let process = &mut self.processes[life.process];
        if !process.will_look {
            process.will_look = true;
            self.after(self.scenario.thinks_for, Event::LooksAround(life));
        }
    }

    /// What a process does after anything happened: start handlers, fit subscriptions, set the clock.
    pub(super) fn look_around(&mut self, life: Life) {
        let now = self.instant();
        self.processes[life.process].will_look = false;
        while let Some((handler, taken)) = self.processes[life.process].start_next(self.scenario, now) {
            self.order.starts(self.scenario, taken.message, |message| self.broker.is_parked(message));
            match self.scenario.kills_after(&taken) {
                Some(after) => self.after(after, Event::Dies(life, handler)),
                None => {
                    self.after(self.scenario.messages[taken.message].takes, Event::HandlerEnds(life, handler));
                }
            }
        }
        for queue in 0..self.scenario.rules.len() {
            let session = self.processes[life.process].sessions[queue];
            if session.is_open {
                self.fit_subscription(session.channel, now);
                self.hand_back_late(session.channel, now);
            }
        }
        self.set_clock(life, now);
    }

    fn set_clock(&mut self, life: Life, now: Instant) {
        let process = &mut self.processes[life.process];
        let Some(at) = process.inbox.wake_at(now) else { return };
        let delay = u64::try_from(at.saturating_duration_since(now).as_millis()).unwrap_or(u64::MAX).max(1);
        if process.wakes_at.is_none_or(|set| set <= self.now || set > self.now + delay) {
            process.wakes_at = Some(self.now + delay);
            self.after(delay, Event::LooksAround(life));
        }
    }

    fn fit_subscription(&mut self, channel: Channel, now: Instant) {
        let process = &mut self.processes[channel.life.process];
        let (queue, session) = (process.queues[channel.queue], &mut process.sessions[channel.queue]);
        let window = process.inbox.window(queue, now);
        assert!(window <= self.scenario.rules[channel.queue].prefetch, "the window is never above the prefetch");
        match session.subscription {
            Subscription::None if window > 0 => {
                session.subscription = Subscription::Of(window);
                process.inbox.subscribed(queue, window, now);
                self.after(self.scenario.lag, Event::Subscribes(channel, window));
            }
            Subscription::Of(present) if present > window || process.inbox.is_ending(queue) => {
                match process.inbox.fill_until(queue, now) {
                    Some(at) => {
                        let delay = at.saturating_duration_since(now).as_millis() as u64;
                        self.after(delay.max(1), Event::LooksAround(channel.life));
                    }
                    None => {
                        session.subscription = Subscription::Ending;
                        self.after(self.scenario.lag, Event::Cancels(channel));
                    }
                }
            }
            // Wider takes one more subscription.
            Subscription::Of(present) if present < window => {
                session.subscription = Subscription::Of(window);
                process.inbox.subscribed(queue, window, now);
                self.after(self.scenario.lag, Event::Subscribes(channel, window - present));
            }
            Subscription::None | Subscription::Of(_) | Subscription::Ending => {}
        }
    }
}
