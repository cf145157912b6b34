//! The broker of the model.

use std::collections::VecDeque;

use super::Life;
use super::draws::Draws;
use super::scenario::Scenario;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Unpublished,
    Ready,
    /// Delivered to this life by the subscription of this number, and unsettled.
    Held(Life, u64),
    Settled,
    Parked,
}

#[derive(Debug, Clone, Copy)]
struct Subscriber {
    life: Life,
    number: u64,
    room: u16,
    /// Its channel sends nothing more.
    is_silent: bool,
}

pub(super) struct Broker<'s> {
    scenario: &'s Scenario,
    places: Vec<Place>,
    counts: Vec<u32>,
    /// What came to channels that send nothing more.
    unsent: Vec<Vec<usize>>,
    /// What came back is delivered before what was never delivered.
    returned: Vec<VecDeque<usize>>,
    ready: Vec<VecDeque<usize>>,
    subscribers: Vec<Vec<Subscriber>>,
    subscriptions: u64,
    unfinished: usize,
}

impl<'s> Broker<'s> {
    pub(super) fn new(scenario: &'s Scenario) -> Self {
        let queues = scenario.rules.len();
        Self {
            scenario,
            places: vec![Place::Unpublished; scenario.messages.len()],
            counts: scenario.messages.iter().map(|message| message.came_back_before).collect(),
            unsent: vec![Vec::new(); queues],
            returned: vec![VecDeque::new(); queues],
            ready: vec![VecDeque::new(); queues],
            subscribers: vec![Vec::new(); queues],
            subscriptions: 0,
            unfinished: scenario.messages.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unfinished == 0
    }

    pub(super) fn unfinished(&self) -> usize {
        self.unfinished
    }

    pub(super) fn count(&self, message: usize) -> u32 {
        self.counts[message]
    }

    pub(super) fn innocents_parked(&self) -> Vec<usize> {
        let parked = (0..self.places.len()).filter(|message| self.places[*message] == Place::Parked);
        parked.filter(|message| self.scenario.messages[*message].kills_after.is_none()).collect()
    }

    pub(super) fn publish(&mut self, message: usize) {
        self.places[message] = Place::Ready;
        self.ready[self.scenario.messages[message].queue].push_back(message);
    }

    pub(super) fn subscribe(&mut self, life: Life, queue: usize, prefetch: u16) {
        self.subscriptions += 1;
        self.subscribers[queue].push(Subscriber { life, number: self.subscriptions, room: prefetch, is_silent: false });
    }

    /// The channel is told to end its subscriptions of a queue. It sends nothing more, but the queue does not know yet.
    pub(super) fn cancel(&mut self, life: Life, queue: usize) {
        for subscriber in self.subscribers[queue].iter_mut().filter(|subscriber| subscriber.life == life) {
            subscriber.is_silent = true;
        }
    }

    /// The queue has ended them. What they have brought stays with the process. What came to the channel meanwhile goes back, and is
    /// counted (3.10 and 4.0).
    pub(super) fn end_cancelled(&mut self, life: Life, queue: usize) {
        let is_ended = |subscriber: &Subscriber| subscriber.life == life && subscriber.is_silent;
        self.subscribers[queue].retain(|subscriber| !is_ended(subscriber));
        let is_its_own = |message: &usize| matches!(self.places[*message], Place::Held(holder, _) if holder == life);
        let (back, others) = std::mem::take(&mut self.unsent[queue]).into_iter().partition::<Vec<_>, _>(is_its_own);
        self.unsent[queue] = others;
        for message in back {
            if self.taken_from(life, message) {
                self.take_late(message);
            }
        }
    }

    pub(super) fn ack(&mut self, life: Life, message: usize) {
        if self.taken_from(life, message) {
            self.end(message, Place::Settled);
        }
    }

    pub(super) fn reject(&mut self, life: Life, message: usize) {
        if self.taken_from(life, message) {
            self.take_late(message);
        }
    }

    /// The process is dead: all that it held is charged.
    pub(super) fn gone(&mut self, life: Life) {
        for subscribers in &mut self.subscribers {
            subscribers.retain(|subscriber| subscriber.life != life);
        }
        let is_held = |message: usize| matches!(self.places[message], Place::Held(holder, _) if holder == life);
        for unsent in &mut self.unsent {
            unsent.retain(|message| !is_held(*message));
        }
        for message in 0..self.places.len() {
            if self.taken_from(life, message) {
                self.take_late(message);
            }
        }
    }

    /// Delivers what can be delivered, each to any subscription that has room.
    pub(super) fn push(&mut self, draws: &mut Draws) -> Vec<(Life, usize)> {
        let mut pushed = Vec::new();
        for queue in 0..self.ready.len() {
            while !self.returned[queue].is_empty() || !self.ready[queue].is_empty() {
                let mut with_room: Vec<_> = self.subscribers[queue].iter_mut().filter(|of| of.room > 0).collect();
                if with_room.is_empty() {
                    break;
                }
                let Some(message) = self.returned[queue].pop_front().or_else(|| self.ready[queue].pop_front()) else {
                    break;
                };
                let subscriber = with_room.swap_remove(draws.index(with_room.len()));
                subscriber.room -= 1;
                self.places[message] = Place::Held(subscriber.life, subscriber.number);
                match subscriber.is_silent {
                    true => self.unsent[queue].push(message),
                    false => pushed.push((subscriber.life, message)),
                }
            }
        }
        pushed
    }

    /// Whether this life held the message; it does not any more.
    fn taken_from(&mut self, life: Life, message: usize) -> bool {
        let Place::Held(holder, subscription) = self.places[message] else { return false };
        if holder != life {
            return false;
        }
        let subscribers = &mut self.subscribers[self.scenario.messages[message].queue];
        if let Some(subscriber) = subscribers.iter_mut().find(|subscriber| subscriber.number == subscription) {
            subscriber.room += 1;
        }
        self.places[message] = Place::Ready;
        true
    }

    fn take_late(&mut self, message: usize) {
        let queue = self.scenario.messages[message].queue;
        self.counts[message] += 1;
        if self.counts[message] > self.scenario.rules[queue].delivery_limit {
            return self.end(message, Place::Parked);
        }
        let returned = &mut self.returned[queue];
        let at = if self.scenario.returns_in_old_order {
            returned.partition_point(|other| *other < message)
        } else {
            returned.len()
        };
        returned.insert(at, message);
    }

    fn end(&mut self, message: usize, place: Place) {
        self.places[message] = place;
        self.unfinished -= 1;
    }
}
