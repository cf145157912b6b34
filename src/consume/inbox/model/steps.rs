//! What a process does: takes deliveries, runs handlers, settles, and fits its subscriptions.

use std::time::{Duration, Instant};

use super::process::{SentCopy, Subscription};
use super::scenario::Verdict;
use super::taken::Taken;
use super::{Channel, Delivery, Event, How, Life, World};
use crate::consume::ack_timeout::named_in;
use crate::consume::copy_deadline::{CopyDeadline, CopyTime};
use crate::consume::inbox::Fingerprint as _;
use crate::consume::settle::UNPUBLISHABLE_PAUSE;
use crate::consume::settler::CLOSE_DELAY;
use crate::consume::uncopied::{Uncopied, when_impossible, when_late};
use crate::settings::Declare;

/// How long a queue that has given its channel up is without one.
const REOPENS_AFTER: u64 = 100;

/// There are no alarms, so it matters little: some copies of ordered queues are awaited for this long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

impl World<'_> {
    pub(super) fn take(&mut self, delivery: Delivery, count: u32) {
        let now = self.instant();
        let Delivery { channel, message, .. } = delivery;
        let process = &mut self.processes[channel.life.process];
        process.watch(self.scenario, delivery, count, now);
        let ack_timeout = &process.ack_timeouts[channel.queue];
        let until = now + ack_timeout.settle_limit();
        let is_ordered = self.scenario.rules[channel.queue].is_ordered;
        let copy_time = CopyTime::new(is_ordered, now, ack_timeout.settle_limit());
        let key = self.scenario.messages[message].key;
        let taken = Taken { delivery, key, count, failed: 0, until, copy_time, is_exhausted: false };
        process.inbox.arrive(process.queues[channel.queue], Some(count), now, taken);
        self.look_soon(channel.life);
    }

    pub(super) fn cancelled(&mut self, channel: Channel) {
        let now = self.instant();
        let process = &mut self.processes[channel.life.process];
        let (queue, session) = (process.queues[channel.queue], &mut process.sessions[channel.queue]);
        let before = std::mem::replace(&mut session.subscription, Subscription::None);
        process.inbox.subscribed(queue, 0, now);
        if before == Subscription::EndedByBroker {
            let unseen = process.inbox.take_unseen(queue);
            self.hand_back(unseen);
        }
        self.settle_ended(channel.life);
    }

    /// The broker has cancelled a subscription (4.3). All others of the channel end. An ordered queue gives its channel up instead.
    pub(super) fn cancelled_by_broker(&mut self, channel: Channel) {
        let now = self.instant();
        let process = &mut self.processes[channel.life.process];
        process.unsettled[channel.queue].cancelled(now);
        if self.scenario.rules[channel.queue].is_ordered {
            self.after(self.scenario.lag, Event::Lost(channel));
            return self.notices_loss(channel, REOPENS_AFTER);
        }
        let session = &mut process.sessions[channel.queue];
        if let Subscription::Of(_) = session.subscription {
            session.subscription = Subscription::EndedByBroker;
            self.after(self.scenario.lag, Event::Cancels(channel));
        }
    }

    /// The broker has closed the channel over a delivery that was not settled in time, and says so (3.10 and 4.0).
    pub(super) fn closed_by_broker(&mut self, channel: Channel) {
        let scenario = self.scenario;
        if let Some(enforced) = scenario.enforced {
            let named = named_in(&enforced.text()).expect("the broker names its timeout");
            self.processes[channel.life.process].taken_back_after(scenario, channel.queue, named);
        }
        self.notices_loss(channel, REOPENS_AFTER);
    }

    /// The process notices that a channel is gone. Its handlers run on, except in an ordered queue and those that wait for a confirm.
    pub(super) fn notices_loss(&mut self, channel: Channel, pause: u64) {
        let now = self.instant();
        let process = &mut self.processes[channel.life.process];
        process.tokens.retain(|delivery, _| delivery.channel != channel);
        let session = &mut process.sessions[channel.queue];
        (session.is_open, session.subscription) = (false, Subscription::None);
        process.inbox.lost(process.queues[channel.queue]);
        process.drop_handlers(channel, self.scenario.rules[channel.queue].is_ordered, now);
        self.settle_ended(channel.life);
        self.after(pause, Event::Reopens(channel));
    }

    /// The session after that of this channel begins.
    pub(super) fn reopen(&mut self, Channel { life, queue, number }: Channel) {
        let process = &mut self.processes[life.process];
        process.unsettled[queue].lose_channel();
        let session = &mut process.sessions[queue];
        (session.is_open, session.channel) = (true, Channel { life, queue, number: number + 1 });
        self.look_soon(life);
    }

    /// A delivery that waits here is held in one step. Any other is settled in a second step, and the process may do other things in
    /// between. One that cannot wait here for so long is given back or, at its limit, ends with a copy.
    pub(super) fn handler_ended(&mut self, life: Life, handler: u64) {
        let now = self.instant();
        let process = &mut self.processes[life.process];
        let Some((ticket, taken)) = process.running.get_mut(&handler) else { return };
        match self.scenario.verdict(taken) {
            Verdict::Hold(delay) if self.scenario.can_be_held(taken, now + Duration::from_millis(delay)) => {
                return self.hold(life, handler, now + Duration::from_millis(delay));
            }
            Verdict::Hold(_) if !self.scenario.may_go_back(taken) => {
                taken.is_exhausted = true;
                process.inbox.handler_ended(ticket, now);
            }
            Verdict::Requeue | Verdict::Hold(_) => {
                process.inbox.handler_ended(ticket, now);
                process.inbox.requeue(ticket, taken.fingerprint());
            }
            Verdict::Ack => {
                process.inbox.handler_ended(ticket, now);
                self.order.ended(taken.delivery.message);
            }
            Verdict::Copy => process.inbox.handler_ended(ticket, now),
        }
        self.after(0, Event::Settles(life, handler));
        self.look_soon(life);
    }

    fn hold(&mut self, life: Life, handler: u64, due: Instant) {
        let now = self.instant();
        let process = &mut self.processes[life.process];
        let (ticket, taken) = process.running.remove(&handler).expect("a handler ends once");
        let not_held = process.inbox.hold(ticket, Taken { failed: taken.failed + 1, ..taken }, due, now);
        assert_eq!(
            not_held.is_none(),
            process.uses(taken.delivery.channel),
            "it waits here unless its channel is gone"
        );
        self.look_soon(life);
    }

    fn settle_ended(&mut self, life: Life) {
        for handler in std::mem::take(&mut self.processes[life.process].ended) {
            self.settle(life, handler);
        }
        self.look_soon(life);
    }

    /// What a lost channel brought is settled too late. What ends with a copy is settled when that is confirmed, or given up.
    pub(super) fn settle(&mut self, life: Life, handler: u64) {
        let now = self.instant();
        let process = &mut self.processes[life.process];
        let Some((_, taken)) = process.running.get(&handler) else { return };
        let channel = taken.delivery.channel;
        if process.uses(channel) && process.inbox.is_ending(process.queues[channel.queue]) {
            return process.ended.push(handler);
        }
        let how = match (self.scenario.verdict(taken), process.copies.get(&handler).copied()) {
            (Verdict::Copy, None) => return self.send_copy(life, handler),
            (Verdict::Copy, Some(SentCopy::Awaited(..) | SentCopy::DeadLettered | SentCopy::Stays)) => return,
            (Verdict::Requeue | Verdict::Hold(_), _) => How::Reject,
            (Verdict::Copy, Some(SentCopy::Requeued)) => How::Reject,
            (Verdict::Copy, Some(SentCopy::HandedBack)) => How::HandBack,
            (Verdict::Ack, _) | (Verdict::Copy, Some(SentCopy::Confirmed)) => How::Ack,
        };
        let (ticket, taken) = process.running.remove(&handler).expect("a handler ends once");
        match process.copies.remove(&handler) {
            Some(SentCopy::Requeued) => process.inbox.requeue(&ticket, taken.fingerprint()),
            Some(SentCopy::HandedBack) => process.inbox.wait_in_queue(&ticket, taken.fingerprint()),
            Some(SentCopy::Awaited(..) | SentCopy::Confirmed | SentCopy::DeadLettered | SentCopy::Stays) | None => {}
        }
        process.inbox.finish(ticket, now);
        process.tokens.remove(&taken.delivery);
        self.after(self.scenario.collects_for, Event::Sends(taken.delivery, how));
        self.look_soon(life);
    }

    /// Sends the copy that a delivery ends with. A delivery of a lost channel ends without one: the broker has its message again.
    fn send_copy(&mut self, life: Life, handler: u64) {
        let now = self.instant();
        let process = &mut self.processes[life.process];
        let (_, taken) = process.running[&handler];
        let channel = taken.delivery.channel;
        if !process.uses(channel) {
            let (ticket, _) = process.running.remove(&handler).expect("a handler ends once");
            return process.inbox.finish(ticket, now);
        }
        if self.scenario.messages[taken.delivery.message].is_unpublishable {
            return self.settle_uncopied(life, handler);
        }
        let (rules, declare) = (&self.scenario.rules[channel.queue], self.scenario.declares[channel.queue]);
        let outcome = self.scenario.copy_outcome(&taken);
        let if_late = when_late(outcome, declare, rules.is_ordered, Some(taken.count), rules.delivery_limit);
        let limit = CopyDeadline::new(taken.copy_time, now, ANSWER_TIMEOUT);
        process.copies.insert(handler, SentCopy::Awaited(limit, if_late));
        self.after(self.scenario.confirms_after(self.now), Event::Confirmed(life, handler));
        self.ask_for_confirm(life, handler);
    }

    /// Settles a message of which the broker accepts no copy.
    fn settle_uncopied(&mut self, life: Life, handler: u64) {
        let process = &mut self.processes[life.process];
        let (_, taken) = process.running[&handler];
        let queue = taken.delivery.channel.queue;
        match when_impossible(self.scenario.declares[queue], self.scenario.rules[queue].is_ordered) {
            Uncopied::DeadLetter => {
                process.copies.insert(handler, SentCopy::DeadLettered);
                self.dead_letter(life, handler);
            }
            Uncopied::Requeue => {
                process.copies.insert(handler, SentCopy::Requeued);
                self.after(UNPUBLISHABLE_PAUSE.as_millis() as u64, Event::Settles(life, handler));
            }
            Uncopied::HandBack | Uncopied::Stay => {
                process.copies.insert(handler, SentCopy::Stays);
            }
        }
    }

    /// Gives a copy up if it was not confirmed in time, and asks again later if there is time left.
    pub(super) fn ask_for_confirm(&mut self, life: Life, handler: u64) {
        let now = self.instant();
        let process = &mut self.processes[life.process];
        let Some(SentCopy::Awaited(limit, if_late)) = process.copies.get_mut(&handler) else { return };
        let given_up = match if_late {
            Uncopied::Stay => return,
            Uncopied::HandBack => SentCopy::HandedBack,
            Uncopied::Requeue => SentCopy::Requeued,
            Uncopied::DeadLetter => SentCopy::DeadLettered,
        };
        if let Some(at) = limit.ask_again_at(now, false) {
            let delay = at.saturating_duration_since(now).as_millis() as u64;
            return self.after(delay.max(1), Event::AsksForConfirm(life, handler));
        }
        process.copies.insert(handler, given_up);
        self.given_up += 1;
        self.handed_back += u64::from(matches!(given_up, SentCopy::HandedBack));
        if let SentCopy::DeadLettered = given_up {
            return self.dead_letter(life, handler);
        }
        self.settle(life, handler);
    }

    /// Leaves a message to the broker. In an ordered queue its handler ends only when that is carried out.
    fn dead_letter(&mut self, life: Life, handler: u64) {
        let (_, taken) = self.processes[life.process].running[&handler];
        let queue = taken.delivery.channel.queue;
        assert_eq!(self.scenario.declares[queue], Declare::Own, "an existing queue would lose it");
        self.after(0, Event::Sends(taken.delivery, How::DeadLetter));
        let is_ordered = self.scenario.rules[queue].is_ordered;
        let answered_after = if is_ordered { 2 * self.scenario.lag + CLOSE_DELAY.as_millis() as u64 } else { 0 };
        self.after(answered_after, Event::CarriedOut(life, handler));
    }

    pub(super) fn carried_out(&mut self, life: Life, handler: u64) {
        let now = self.instant();
        let process = &mut self.processes[life.process];
        let Some((_, taken)) = process.running.get(&handler) else { return };
        let channel = taken.delivery.channel;
        if self.scenario.rules[channel.queue].is_ordered && !self.broker.has(channel) {
            // No answer comes, so the handler ends when the process notices that.
            return;
        }
        let (ticket, taken) = process.running.remove(&handler).expect("it was there");
        process.copies.remove(&handler);
        process.inbox.finish(ticket, now);
        process.tokens.remove(&taken.delivery);
        self.look_soon(life);
    }

    pub(super) fn confirmed(&mut self, life: Life, handler: u64) {
        let process = &mut self.processes[life.process];
        let Some(SentCopy::Awaited(..)) = process.copies.get(&handler) else { return };
        process.copies.insert(handler, SentCopy::Confirmed);
        let (_, taken) = process.running[&handler];
        self.order.ended(taken.delivery.message);
        self.settle(life, handler);
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
        let late = process.inbox.take_late(queue, now);
        self.hand_back(late);
    }

    fn hand_back(&mut self, unseen: Vec<Taken>) {
        for Taken { delivery, .. } in unseen {
            self.processes[delivery.channel.life.process].tokens.remove(&delivery);
            self.after(self.scenario.collects_for, Event::Sends(delivery, How::HandBack));
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
            self.order.starts(self.scenario, taken.delivery.message, |message| self.broker.is_parked_or_lost(message));
            match self.scenario.kills_after(&taken) {
                Some(after) => self.after(after, Event::Dies(life, handler)),
                None => {
                    self.after(self.scenario.takes(&taken), Event::HandlerEnds(life, handler));
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
            Subscription::None | Subscription::Of(_) | Subscription::Ending | Subscription::EndedByBroker => {}
        }
    }
}
