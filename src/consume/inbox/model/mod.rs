//! A model: a broker, and processes that die of some messages, each with an [`Inbox`] of its own.
//!
//! The broker is a quorum queue's rules: it pushes to any subscription that has room, what a dead process held comes back
//! to the head with its count raised by one, and what came back too often is parked. Everything takes time: a
//! subscription ends after a delay, and deliveries and acks are under way when a process dies. What is under way to a subscription that
//! ends goes back, counted.

mod broker;
mod draws;
mod scenario;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

use super::{Fingerprint, Inbox, QueueIndex, Ticket};
use broker::Broker;
use draws::Draws;
pub(super) use scenario::{Range, Scenario};

/// More than any scenario takes that ends.
const MAX_EVENTS: u64 = 2_000_000;

/// One life of a process. Nothing is heard of it after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Life {
    process: usize,
    number: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Published(usize),
    Starts(usize),
    /// Killed from outside; no message is to blame.
    Killed(usize),
    /// A handler kills its process.
    Dies(Life),
    Delivered(Life, usize),
    CancelledBy(Life, usize),
    HandlerEnds(Life, u64),
    LooksAround(Life),
    // What reaches the broker:
    Subscribes(Life, usize, u16),
    Cancels(Life, usize),
    Cancelled(Life, usize),
    Acks(Life, usize),
    Rejects(Life, usize),
    Gone(Life),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subscription {
    None,
    Of(u16),
    Ending,
}

struct Process {
    inbox: Inbox<usize>,
    queues: Vec<QueueIndex>,
    life: Life,
    is_up: bool,
    subscriptions: Vec<Subscription>,
    running: BTreeMap<u64, (Ticket, usize)>,
    /// Handlers that have ended while their queue's subscriptions filled up.
    ended: Vec<u64>,
    next_handler: u64,
    will_look: bool,
    /// The clock is set to this time.
    wakes_at: Option<u64>,
}

/// What became of a scenario.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Messages that kill nobody, and were parked.
    pub(super) innocents_parked: Vec<usize>,
    /// Neither settled nor parked.
    pub(super) unfinished: usize,
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
            processes: (0..scenario.starts.len()).map(|process| Process::new(scenario, process)).collect(),
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
        world
    }

    pub(super) fn run(mut self) -> Outcome {
        for _ in 0..MAX_EVENTS {
            if self.broker.is_empty() {
                break;
            }
            let Some(Reverse((at, _, event))) = self.events.pop() else { break };
            self.now = at;
            self.happens(event);
            for (subscriber, message) in self.broker.push(&mut self.draws) {
                self.after(self.scenario.lag, Event::Delivered(subscriber, message));
            }
        }
        Outcome { innocents_parked: self.broker.innocents_parked(), unfinished: self.broker.unfinished() }
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

    fn happens(&mut self, event: Event) {
        match event {
            Event::Published(message) => self.broker.publish(message),
            Event::Starts(process) => self.start(process),
            Event::Killed(process) if self.processes[process].is_up => self.die(process),
            Event::Dies(life) if self.lives(life) => self.die(life.process),
            Event::Delivered(life, message) if self.lives(life) => self.take(life, message),
            Event::CancelledBy(life, queue) if self.lives(life) => self.cancelled(life, queue),
            Event::HandlerEnds(life, handler) if self.lives(life) => self.handler_ended(life, handler),
            Event::LooksAround(life) if self.lives(life) => self.look_around(life),
            Event::Subscribes(life, queue, prefetch) if self.lives(life) => {
                self.broker.subscribe(life, queue, prefetch)
            }
            Event::Cancels(life, queue) if self.lives(life) => {
                self.broker.cancel(life, queue);
                self.after(self.scenario.agrees_for, Event::Cancelled(life, queue));
            }
            Event::Cancelled(life, queue) => {
                self.broker.end_cancelled(life, queue);
                self.after(self.scenario.lag, Event::CancelledBy(life, queue));
            }
            Event::Acks(life, message) => self.broker.ack(life, message),
            Event::Rejects(life, message) => self.broker.reject(life, message),
            Event::Gone(life) => self.broker.gone(life),
            Event::Killed(_)
            | Event::Dies(_)
            | Event::Delivered(..)
            | Event::CancelledBy(..)
            | Event::HandlerEnds(..)
            | Event::LooksAround(_)
            | Event::Subscribes(..)
            | Event::Cancels(..) => {}
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

    fn take(&mut self, life: Life, message: usize) {
        let (now, queue, count) = (self.instant(), self.scenario.messages[message].queue, self.broker.count(message));
        let process = &mut self.processes[life.process];
        process.inbox.arrive(process.queues[queue], Some(count), now, message);
        self.look_soon(life);
    }

    fn cancelled(&mut self, life: Life, queue: usize) {
        let now = self.instant();
        let process = &mut self.processes[life.process];
        process.subscriptions[queue] = Subscription::None;
        process.inbox.subscribed(process.queues[queue], 0, now);
        for handler in std::mem::take(&mut process.ended) {
            self.settle(life, handler);
        }
        self.look_soon(life);
    }

    fn handler_ended(&mut self, life: Life, handler: u64) {
        let now = self.instant();
        let process = &mut self.processes[life.process];
        process.inbox.handler_ended(&process.running[&handler].0, now);
        self.settle(life, handler);
    }

    fn settle(&mut self, life: Life, handler: u64) {
        let now = self.instant();
        let process = &mut self.processes[life.process];
        let message = process.running[&handler].1;
        if process.inbox.is_ending(process.queues[self.scenario.messages[message].queue]) {
            return process.ended.push(handler);
        }
        let (ticket, message) = process.running.remove(&handler).expect("a handler ends once");
        let (described, count) = (&self.scenario.messages[message], self.broker.count(message));
        let again = count < described.failures && count < self.scenario.rules[described.queue].immediate;
        if again {
            process.inbox.requeue(&ticket, message.fingerprint());
        }
        process.inbox.finish(ticket, now);
        let settles = if again { Event::Rejects(life, message) } else { Event::Acks(life, message) };
        self.after(self.scenario.lag, settles);
        self.look_soon(life);
    }

    fn look_soon(&mut self, life: Life) {
        let process = &mut self.processes[life.process];
        if !process.will_look {
            process.will_look = true;
            self.after(self.scenario.thinks_for, Event::LooksAround(life));
        }
    }

    /// What a process does after anything happened: start handlers, fit subscriptions, set the clock.
    fn look_around(&mut self, life: Life) {
        let now = self.instant();
        self.processes[life.process].will_look = false;
        while let Some((ticket, message)) = self.processes[life.process].next(now) {
            let described = &self.scenario.messages[message];
            let process = &mut self.processes[life.process];
            let handler = process.next_handler;
            process.next_handler += 1;
            process.running.insert(handler, (ticket, message));
            process.assert_concurrency(self.scenario, described.queue);
            match described.kills_after {
                Some(after) => self.after(after, Event::Dies(life)),
                None => self.after(described.takes, Event::HandlerEnds(life, handler)),
            }
        }
        for queue in 0..self.scenario.rules.len() {
            self.fit_subscription(life, queue, now);
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

    fn fit_subscription(&mut self, life: Life, queue: usize, now: Instant) {
        let process = &mut self.processes[life.process];
        let window = process.inbox.window(process.queues[queue], now);
        assert!(window <= self.scenario.rules[queue].prefetch, "the window is never above the prefetch");
        match process.subscriptions[queue] {
            Subscription::None if window > 0 => {
                process.subscriptions[queue] = Subscription::Of(window);
                process.inbox.subscribed(process.queues[queue], window, now);
                self.after(self.scenario.lag, Event::Subscribes(life, queue, window));
            }
            Subscription::Of(present) if present > window || process.inbox.is_ending(process.queues[queue]) => {
                match process.inbox.fill_until(process.queues[queue], now) {
                    Some(at) => {
                        let delay = at.saturating_duration_since(now).as_millis() as u64;
                        self.after(delay.max(1), Event::LooksAround(life));
                    }
                    None => {
                        process.subscriptions[queue] = Subscription::Ending;
                        self.after(self.scenario.lag, Event::Cancels(life, queue));
                    }
                }
            }
            // Wider takes one more subscription.
            Subscription::Of(present) if present < window => {
                process.subscriptions[queue] = Subscription::Of(window);
                process.inbox.subscribed(process.queues[queue], window, now);
                self.after(self.scenario.lag, Event::Subscribes(life, queue, window - present));
            }
            Subscription::None | Subscription::Of(_) | Subscription::Ending => {}
        }
    }
}

impl Fingerprint for usize {
    fn fingerprint(&self) -> u64 {
        *self as u64
    }
}

impl Process {
    fn new(scenario: &Scenario, process: usize) -> Self {
        Self {
            inbox: Inbox::new(0),
            queues: Vec::new(),
            life: Life { process, number: 0 },
            is_up: false,
            subscriptions: vec![Subscription::None; scenario.rules.len()],
            running: BTreeMap::new(),
            ended: Vec::new(),
            next_handler: 0,
            will_look: false,
            wakes_at: None,
        }
    }

    fn begin_life(&mut self, scenario: &Scenario, draw: u64) {
        let life = Life { number: self.life.number + 1, ..self.life };
        let mut inbox = Inbox::new(draw);
        let queues = scenario.rules.iter().map(|rules| inbox.add(*rules)).collect();
        *self = Self { inbox, queues, life, is_up: true, ..Self::new(scenario, life.process) };
    }

    fn next(&mut self, now: Instant) -> Option<(Ticket, usize)> {
        let (_, ticket, message) = self.inbox.start(now)?;
        Some((ticket, message))
    }

    fn assert_concurrency(&self, scenario: &Scenario, queue: usize) {
        let running = self.running.values().filter(|(_, message)| scenario.messages[*message].queue == queue).count();
        assert!(running <= usize::from(scenario.rules[queue].concurrency), "{running} handlers of one queue run");
    }
}
