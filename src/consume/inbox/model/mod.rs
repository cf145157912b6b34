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
use order::Order;
use process::Process;
pub(super) use scenario::{Range, Scenario};

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
    Delivered(Channel, usize, u32),
    CancelledBy(Channel),
    /// The process notices, and opens another channel after a pause.
    NoticesLoss(Channel, u64),
    Reopens(Channel),
    HandlerEnds(Life, u64),
    Settles(Life, u64),
    /// What was settled leaves the process.
    Sends(Channel, usize, How),
    LooksAround(Life),
    // What reaches the broker:
    Subscribes(Channel, u16),
    Cancels(Channel),
    Cancelled(Channel),
    Settled(Channel, usize, How),
    Lost(Channel),
    Gone(Life),
}

/// How a delivery is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Ack,
    Reject,
    /// Given back before any handler has seen it.
    HandBack,
}

/// What became of a scenario.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Messages that kill nobody, and were parked.
    pub(super) innocents_parked: Vec<usize>,
    /// Neither settled nor parked.
    pub(super) unfinished: usize,
    /// Messages of ordered queues that started before this earlier one with their key was handled or parked.
    pub(super) overtaken: Vec<(usize, usize)>,
    /// How long, in ms, a process held a message at most.
    pub(super) longest_held: u64,
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
    order: Order,
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
            order: Order::new(scenario),
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
            for (channel, message) in self.broker.push(&mut self.draws) {
                let count = self.broker.count(message);
                self.after(self.scenario.lag, Event::Delivered(channel, message, count));
            }
        }
        Outcome {
            innocents_parked: self.broker.innocents_parked(),
            unfinished: self.broker.unfinished(),
            overtaken: self.order.overtaken,
            longest_held: self.broker.longest_held(),
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
            Event::Delivered(channel, message, count) if self.uses(channel) => self.take(channel, message, count),
            Event::CancelledBy(channel) if self.uses(channel) => self.cancelled(channel),
            Event::NoticesLoss(channel, pause) if self.uses(channel) => self.notices_loss(channel, pause),
            Event::Reopens(channel) if self.lives(channel.life) => self.reopen(channel),
            Event::HandlerEnds(life, handler) if self.lives(life) => self.handler_ended(life, handler),
            Event::Settles(life, handler) if self.lives(life) => self.settle(life, handler),
            Event::Sends(channel, message, how) if self.lives(channel.life) => {
                self.after(self.scenario.lag, Event::Settled(channel, message, how));
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
            Event::Settled(channel, message, How::Ack) => self.broker.ack(channel, message),
            Event::Settled(channel, message, How::Reject) => self.broker.reject(channel, message),
            Event::Settled(channel, message, How::HandBack) => self.broker.hand_back(channel, message),
            Event::Lost(channel) => self.broker.lost(channel),
            Event::Gone(life) => self.broker.gone(life),
            Event::Killed(_)
            | Event::Dies(..)
            | Event::Delivered(..)
            | Event::CancelledBy(_)
            | Event::NoticesLoss(..)
            | Event::Reopens(_)
            | Event::HandlerEnds(..)
            | Event::Settles(..)
            | Event::Sends(..)
            | Event::LooksAround(_)
            | Event::Subscribes(..)
            | Event::Cancels(_) => {}
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
