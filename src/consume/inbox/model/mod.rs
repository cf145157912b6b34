//! A model: a broker, and processes that die of some messages, each with an [`Inbox`](super::Inbox) of its own.
//!
//! The broker is a quorum queue's rules: it pushes to any subscription that has room, what a dead process or a lost channel held comes
//! back to the head with its count raised by one, and what came back too often is parked. Everything takes time: a
//! subscription ends after a delay, and deliveries and acks are under way when a process dies. What is under way to a subscription that
//! ends goes back, counted.
//!
//! A channel, or a connection with the channels of all queues, may be lost while its process lives on. Its handlers run on, may still kill
//! the process, and settle too late, while the broker delivers the same messages again, perhaps to the same process. In some queues a
//! message whose handler fails waits in its process for the next attempt. Some of these are ordered: the broker delivers to one of their
//! subscriptions at a time.
//!
//! What is settled is collected for a moment before it leaves, and what has waited too long goes back unseen.
//!
//! In some worlds the broker refuses copies for longer than the ack timeout, and some messages end with one. Each copy is sent again until
//! it is taken. Its delivery stays unsettled until then, or until [`copy_deadline`](crate::consume::copy_deadline) gives it up;
//! [`uncopied`](crate::consume::uncopied) decides what becomes of it. In other worlds the broker never accepts the copies of some messages.
//!
//! Some queues are existing ones: rehop has not declared them, and they have no dead-letter exchange. Their delivery limit is that of the
//! settings, and a message that comes back more often is lost.
//!
//! In some worlds the broker's ack timeout is shorter than the settings say. 3.10 and 4.0 then close the channel, which charges all that it
//! holds, and name the timeout. 4.3 takes back the one delivery, uncounted, and cancels its subscription without a word; what earlier
//! subscriptions brought is taken back in silence. There the processes also drive [`ack_timeout`](crate::consume::ack_timeout). Whether
//! 4.3 does take back what a subscription brought that the client has ended was not measured, so this is the worst case. Left out are
//! messages that wait in their process in a queue without an order on 4.3: in this case the process cannot notice that they were taken
//! back, and they might be handled twice again and again.

mod broker;
mod draws;
mod order;
mod process;
mod scenario;
mod steps;
mod taken;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use broker::Broker;
use draws::Draws;
use order::OrderCheck;
use process::Process;
use scenario::TakesBack;
pub(super) use scenario::{Enforced, Range, Scenario};

/// More than any scenario takes that ends.
const MAX_EVENTS: u64 = 2_000_000;

/// One life of a process. Nothing is heard of it after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Life {
    process: usize,
    number: u32,
}

/// A life has one channel for each queue, and another one after each loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Channel {
    life: Life,
    queue: usize,
    number: u32,
}

/// The `number`-th delivery of a message, on this channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Delivery {
    channel: Channel,
    message: usize,
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Published(usize),
    Starts(usize),
    /// Killed from outside; no message is to blame.
    Killed(usize),
    /// A handler kills its process.
    Dies(Life, u64),
    /// A channel or a connection breaks: the number of the loss.
    Breaks(usize),
    /// With the broker's redelivery count.
    Delivered(Delivery, u32),
    CancelledBy(Channel),
    /// The process is told that the broker has cancelled a subscription of this channel (4.3).
    CancelledByBroker(Channel),
    /// The process is told that the broker has closed the channel over its ack timeout (3.10 and 4.0).
    ClosedByBroker(Channel),
    /// The process notices, and opens another channel after a pause.
    NoticesLoss(Channel, u64),
    Reopens(Channel),
    HandlerEnds(Life, u64),
    Settles(Life, u64),
    /// The broker has confirmed the copy that this handler's delivery ends with.
    Confirmed(Life, u64),
    /// The process asks whether it still waits for that confirm.
    AsksForConfirm(Life, u64),
    /// The broker has answered after it has read the reject of this handler's delivery.
    CarriedOut(Life, u64),
    /// What was settled leaves the process.
    Sends(Delivery, How),
    LooksAround(Life),
    // What reaches the broker:
    Subscribes(Channel, u16),
    Cancels(Channel),
    Cancelled(Channel),
    Settled(Delivery, How),
    Lost(Channel),
    Gone(Life),
    /// The broker's ack timeout of a delivery is over.
    TimesOut(Delivery),
}

/// How a delivery is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Ack,
    Reject,
    /// Rejected without requeue: the broker parks it.
    DeadLetter,
    /// Given back as if no handler had seen it.
    HandBack,
}

/// What became of a scenario.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Messages that kill nobody, and were parked.
    pub(super) innocents_parked: Vec<usize>,
    /// Messages of existing queues that kill nobody, and were lost.
    pub(super) innocents_lost: Vec<usize>,
    /// Neither settled, parked nor lost.
    pub(super) unfinished: usize,
    /// Messages of ordered queues that started before this earlier one with their key was handled, parked or lost.
    pub(super) overtaken: Vec<(usize, usize)>,
    /// How long, in ms, a process held a message at most.
    pub(super) longest_held: u64,
    /// How often the broker closed a channel or cancelled a subscription because a delivery was not settled in time.
    pub(super) taken_back: u64,
    /// How often a copy was given up because it was not confirmed in time.
    pub(super) given_up: u64,
    /// How often the message of such a copy was handed back, because it was at its limit.
    pub(super) handed_back: u64,
}

pub(super) struct World<'s> {
    scenario: &'s Scenario,
    draws: Draws,
    began: Instant,
    now: u64,
    sequence: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    broker: Broker<'s>,
    processes: Vec<Process>,
    order: OrderCheck,
    taken_back: u64,
    given_up: u64,
    handed_back: u64,
}

impl<'s> World<'s> {
    pub(super) fn new(scenario: &'s Scenario, seed: u64) -> Self {
        let mut world = Self {
            scenario,
            draws: Draws::new(!seed),
            began: Instant::now(),
            now: 0,
            sequence: 0,
            events: BinaryHeap::new(),
            broker: Broker::new(scenario),
            processes: (0..scenario.starts.len()).map(Process::new).collect(),
            order: OrderCheck::new(scenario),
            taken_back: 0,
            given_up: 0,
            handed_back: 0,
        };
        for (message, described) in scenario.messages.iter().enumerate() {
            world.after(described.published_at, Event::Published(message));
        }
        for (process, at) in scenario.starts.iter().enumerate() {
            world.after(*at, Event::Starts(process));
        }
        for (at, process) in &scenario.kills {
            world.after(*at, Event::Killed(*process));
        }
        for (number, loss) in scenario.losses.iter().enumerate() {
            world.after(loss.at, Event::Breaks(number));
        }
        world
    }

    pub(super) fn run(mut self) -> Outcome {
        for _ in 0..MAX_EVENTS {
            if self.broker.is_empty() {
                break;
            }
            let Some(Reverse((at, _, event))) = self.events.pop() else { break };
            self.now = at;
            self.broker.pass_time(at);
            self.happens(event);
            for delivery in self.broker.push(&mut self.draws) {
                let count = self.broker.count(delivery.message);
                self.after(self.scenario.lag, Event::Delivered(delivery, count));
                if let Some(enforced) = self.scenario.enforced {
                    self.after(enforced.acts_after(self.now), Event::TimesOut(delivery));
                }
            }
        }
        Outcome {
            innocents_parked: self.broker.innocents_parked(),
            innocents_lost: self.broker.innocents_lost(),
            unfinished: self.broker.unfinished(),
            overtaken: self.order.overtaken,
            longest_held: self.broker.longest_held(),
            taken_back: self.taken_back,
            given_up: self.given_up,
            handed_back: self.handed_back,
        }
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now + delay, self.sequence, event)));
    }

    fn instant(&self) -> Instant {
        self.began + Duration::from_millis(self.now)
    }

    fn lives(&self, life: Life) -> bool {
        let process = &self.processes[life.process];
        process.is_up && process.life == life
    }

    /// Whether the channel's process lives, and takes the channel for open.
    fn uses(&self, channel: Channel) -> bool {
        self.lives(channel.life) && self.processes[channel.life.process].uses(channel)
    }

    fn runs(&self, life: Life, handler: u64) -> bool {
        self.processes[life.process].running.contains_key(&handler)
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Published(message) => self.broker.publish(message),
            Event::Starts(process) => self.start(process),
            Event::Killed(process) if self.processes[process].is_up => self.die(process),
            Event::Dies(life, handler) if self.lives(life) && self.runs(life, handler) => self.die(life.process),
            Event::Breaks(loss) => self.breaks(loss),
            Event::Delivered(delivery, count) if self.uses(delivery.channel) => self.take(delivery, count),
            Event::CancelledBy(channel) if self.uses(channel) => self.cancelled(channel),
            Event::CancelledByBroker(channel) if self.uses(channel) => self.cancelled_by_broker(channel),
            Event::ClosedByBroker(channel) if self.uses(channel) => self.closed_by_broker(channel),
            Event::NoticesLoss(channel, pause) if self.uses(channel) => self.notices_loss(channel, pause),
            Event::Reopens(channel) if self.lives(channel.life) => self.reopen(channel),
            Event::HandlerEnds(life, handler) if self.lives(life) => self.handler_ended(life, handler),
            Event::Settles(life, handler) if self.lives(life) => self.settle(life, handler),
            Event::Confirmed(life, handler) if self.lives(life) => self.confirmed(life, handler),
            Event::AsksForConfirm(life, handler) if self.lives(life) => self.ask_for_confirm(life, handler),
            Event::CarriedOut(life, handler) if self.lives(life) => self.carried_out(life, handler),
            Event::Sends(delivery, how) if self.lives(delivery.channel.life) => {
                self.after(self.scenario.lag, Event::Settled(delivery, how));
            }
            Event::LooksAround(life) if self.lives(life) => self.look_around(life),
            Event::Subscribes(channel, prefetch) if self.lives(channel.life) && self.broker.has(channel) => {
                self.broker.subscribe(channel, prefetch);
            }
            Event::Cancels(channel) if self.lives(channel.life) => {
                self.broker.cancel(channel);
                self.after(self.scenario.agrees_for, Event::Cancelled(channel));
            }
            Event::Cancelled(channel) => {
                self.broker.end_cancelled(channel);
                if self.broker.has(channel) {
                    self.after(self.scenario.lag, Event::CancelledBy(channel));
                }
            }
            Event::Settled(delivery, How::Ack) => self.broker.ack(delivery),
            Event::Settled(delivery, How::DeadLetter) => {
                if self.broker.has_unsettled(delivery) {
                    self.order.ended(delivery.message);
                }
                self.broker.ack(delivery);
            }
            Event::Settled(delivery, How::Reject) => self.broker.reject(delivery),
            Event::Settled(delivery, How::HandBack) => self.broker.hand_back(delivery),
            Event::Lost(channel) => self.broker.lost(channel),
            Event::Gone(life) => self.broker.gone(life),
            Event::TimesOut(delivery) if self.broker.has_unsettled(delivery) => self.times_out(delivery),
            Event::Killed(_)
            | Event::Dies(..)
            | Event::Delivered(..)
            | Event::CancelledBy(_)
            | Event::CancelledByBroker(_)
            | Event::ClosedByBroker(_)
            | Event::NoticesLoss(..)
            | Event::Reopens(_)
            | Event::HandlerEnds(..)
            | Event::Settles(..)
            | Event::Confirmed(..)
            | Event::AsksForConfirm(..)
            | Event::CarriedOut(..)
            | Event::Sends(..)
            | Event::LooksAround(_)
            | Event::Subscribes(..)
            | Event::Cancels(_)
            | Event::TimesOut(_) => {}
        }
    }

    /// The broker enforces its ack timeout.
    fn times_out(&mut self, delivery: Delivery) {
        let Some(enforced) = self.scenario.enforced else { return };
        let (channel, lag) = (delivery.channel, self.scenario.lag);
        self.taken_back += 1;
        match enforced.how {
            TakesBack::WithTheChannel => {
                self.broker.lost(channel);
                self.after(lag, Event::ClosedByBroker(channel));
            }
            TakesBack::Alone => {
                if self.broker.take_back_late(delivery) {
                    self.after(lag, Event::CancelledByBroker(channel));
                }
            }
        }
    }

    fn start(&mut self, index: usize) {
        let draw = self.draws.next();
        let process = &mut self.processes[index];
        process.begin_life(self.scenario, draw);
        let life = process.life;
        self.look_soon(life);
    }

    /// What it held comes back, acks that are under way arrive or do not, and it starts again.
    fn die(&mut self, process: usize) {
        let dying = &mut self.processes[process];
        dying.is_up = false;
        let life = dying.life;
        let under_way = if self.scenario.acks_are_lost { 0 } else { self.scenario.lag };
        if under_way == 0 {
            self.broker.gone(life)
        } else {
            self.after(under_way, Event::Gone(life))
        }
        let (shortest, longest) = self.scenario.restart;
        let pause = self.draws.within(shortest, longest).max(self.scenario.lag + 1);
        self.after(pause, Event::Starts(process));
    }

    /// The broker and the process notice this independently of each other.
    fn breaks(&mut self, loss: usize) {
        let loss = &self.scenario.losses[loss];
        let process = &self.processes[loss.process];
        let sessions = process.sessions.iter().filter(|session| process.is_up && session.is_open);
        let channels = sessions.map(|session| session.channel);
        let broken: Vec<_> = channels.filter(|channel| loss.queue.is_none_or(|queue| queue == channel.queue)).collect();
        for channel in broken {
            self.after(loss.broker_notices, Event::Lost(channel));
            self.after(loss.process_notices, Event::NoticesLoss(channel, loss.pause));
        }
    }
}
