//! The broker of the model.

use std::collections::{BTreeSet, VecDeque};

use super::draws::Draws;
use super::scenario::Scenario;
use super::{Channel, Delivery, Life};
use crate::settings::Declare;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Unpublished,
    Ready,
    /// Delivered by the subscription of this number, and unsettled.
    Held(Delivery, u64),
    Settled,
    Parked,
    /// The broker has deleted it, because it exceeded the limit of an existing queue.
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Subscriber {
    channel: Channel,
    number: u64,
    room: u16,
    /// It brings nothing more.
    is_silent: bool,
}

pub(super) struct Broker<'s> {
    scenario: &'s Scenario,
    places: Vec<Place>,
    counts: Vec<u32>,
    /// How often each was delivered.
    deliveries: Vec<u64>,
    /// What came to channels that send nothing more.
    unsent: Vec<Vec<Delivery>>,
    /// What came back is delivered before what was never delivered.
    returned: Vec<VecDeque<usize>>,
    ready: Vec<VecDeque<usize>>,
    subscribers: Vec<Vec<Subscriber>>,
    subscriptions: u64,
    lost_channels: BTreeSet<Channel>,
    unfinished: usize,
    now: u64,
    delivered_at: Vec<u64>,
    longest_held: u64,
}

impl<'s> Broker<'s> {
    pub(super) fn new(scenario: &'s Scenario) -> Self {
        let queues = scenario.rules.len();
        Self {
            scenario,
            places: vec![Place::Unpublished; scenario.messages.len()],
            counts: scenario.messages.iter().map(|message| message.came_back_before).collect(),
            deliveries: vec![0; scenario.messages.len()],
            unsent: vec![Vec::new(); queues],
            returned: vec![VecDeque::new(); queues],
            ready: vec![VecDeque::new(); queues],
            subscribers: vec![Vec::new(); queues],
            subscriptions: 0,
            lost_channels: BTreeSet::new(),
            unfinished: scenario.messages.len(),
            now: 0,
            delivered_at: vec![0; scenario.messages.len()],
            longest_held: 0,
        }
    }

    pub(super) fn pass_time(&mut self, now: u64) {
        self.now = now;
    }

    pub(super) fn longest_held(&self) -> u64 {
        self.longest_held
    }

    pub(super) fn is_parked_or_lost(&self, message: usize) -> bool {
        matches!(self.places[message], Place::Parked | Place::Lost)
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
        self.innocents_at(Place::Parked)
    }

    pub(super) fn innocents_lost(&self) -> Vec<usize> {
        self.innocents_at(Place::Lost)
    }

    fn innocents_at(&self, place: Place) -> Vec<usize> {
        let there = (0..self.places.len()).filter(|message| self.places[*message] == place);
        there.filter(|message| self.scenario.messages[*message].kills_after.is_none()).collect()
    }

    pub(super) fn publish(&mut self, message: usize) {
        self.places[message] = Place::Ready;
        self.ready[self.scenario.messages[message].queue].push_back(message);
    }

    /// Whether the broker still has this channel.
    pub(super) fn has(&self, channel: Channel) -> bool {
        !self.lost_channels.contains(&channel)
    }

    pub(super) fn subscribe(&mut self, channel: Channel, prefetch: u16) {
        self.subscriptions += 1;
        let number = self.subscriptions;
        self.subscribers[channel.queue].push(Subscriber { channel, number, room: prefetch, is_silent: false });
    }

    /// The channel is told to end its subscriptions. They bring nothing more, but the queue does not know yet.
    pub(super) fn cancel(&mut self, channel: Channel) {
        for subscriber in self.subscribers[channel.queue].iter_mut().filter(|subscriber| subscriber.channel == channel)
        {
            subscriber.is_silent = true;
        }
    }

    /// The queue has ended them. What they have brought stays with the process. What came to the channel meanwhile goes back, and is
    /// counted on 3.10 and 4.0.
    pub(super) fn end_cancelled(&mut self, channel: Channel) {
        let queue = channel.queue;
        let is_ended = |subscriber: &Subscriber| subscriber.channel == channel && subscriber.is_silent;
        self.subscribers[queue].retain(|subscriber| !is_ended(subscriber));
        let (back, others) = std::mem::take(&mut self.unsent[queue])
            .into_iter()
            .partition::<Vec<_>, _>(|unsent| unsent.channel == channel);
        self.unsent[queue] = others;
        for delivery in back {
            if self.taken_from(delivery) {
                self.take_back(delivery.message, self.scenario.unsent_count);
            }
        }
    }

    pub(super) fn ack(&mut self, delivery: Delivery) {
        if self.taken_from(delivery) {
            self.end(delivery.message, Place::Settled);
        }
    }

    pub(super) fn reject(&mut self, delivery: Delivery) {
        if self.taken_from(delivery) {
            self.take_back(delivery.message, true);
        }
    }

    pub(super) fn hand_back(&mut self, delivery: Delivery) {
        if self.taken_from(delivery) {
            self.take_back(delivery.message, self.scenario.hand_backs_count);
        }
    }

    /// Whether this delivery is unsettled.
    pub(super) fn has_unsettled(&self, delivery: Delivery) -> bool {
        matches!(self.places[delivery.message], Place::Held(holder, _) if holder == delivery)
    }

    /// Takes back one delivery that was not settled in time, uncounted, and ends the subscription that brought it (4.3). Returns whether
    /// there was one to end: otherwise the process is not told.
    pub(super) fn take_back_late(&mut self, delivery: Delivery) -> bool {
        let Place::Held(_, subscription) = self.places[delivery.message] else { return false };
        if !self.taken_from(delivery) {
            return false;
        }
        self.take_back(delivery.message, false);
        let subscribers = &mut self.subscribers[delivery.channel.queue];
        let before = subscribers.len();
        subscribers.retain(|subscriber| subscriber.number != subscription);
        subscribers.len() < before
    }

    /// The process is dead, and with it all its channels. All that they held is charged, and what was on its way to them (3.10, 4.0 and
    /// 4.3).
    pub(super) fn gone(&mut self, life: Life) {
        self.lose(|channel| channel.life == life, true);
    }

    /// The channel is gone, and its process lives on.
    pub(super) fn lost(&mut self, channel: Channel) {
        self.lost_channels.insert(channel);
        self.lose(|other| other == channel, self.scenario.losses_count);
    }

    fn lose(&mut self, is_lost: impl Fn(Channel) -> bool, is_counted: bool) {
        for subscribers in &mut self.subscribers {
            subscribers.retain(|subscriber| !is_lost(subscriber.channel));
        }
        for message in 0..self.places.len() {
            let Place::Held(holder, _) = self.places[message] else { continue };
            if is_lost(holder.channel) && self.taken_from(holder) {
                self.unsent[holder.channel.queue].retain(|unsent| *unsent != holder);
                self.take_back(message, is_counted);
            }
        }
    }

    /// Delivers what can be delivered, each to any subscription that has room. Those of an ordered queue wait behind its first one.
    pub(super) fn push(&mut self, draws: &mut Draws) -> Vec<Delivery> {
        let mut pushed = Vec::new();
        for queue in 0..self.ready.len() {
            while !self.returned[queue].is_empty() || !self.ready[queue].is_empty() {
                let active = if self.scenario.rules[queue].is_ordered { 1 } else { usize::MAX };
                let subscribers = self.subscribers[queue].iter_mut().take(active);
                let mut with_room: Vec<_> = subscribers.filter(|of| of.room > 0).collect();
                if with_room.is_empty() {
                    break;
                }
                let Some(message) = self.returned[queue].pop_front().or_else(|| self.ready[queue].pop_front()) else {
                    break;
                };
                let subscriber = with_room.swap_remove(draws.index(with_room.len()));
                subscriber.room -= 1;
                self.deliveries[message] += 1;
                let delivery = Delivery { channel: subscriber.channel, message, number: self.deliveries[message] };
                self.places[message] = Place::Held(delivery, subscriber.number);
                self.delivered_at[message] = self.now;
                match subscriber.is_silent {
                    true => self.unsent[queue].push(delivery),
                    false => pushed.push(delivery),
                }
            }
        }
        pushed
    }

    /// Whether this delivery was unsettled; it is not any more. To settle one that was taken back changes nothing.
    fn taken_from(&mut self, delivery: Delivery) -> bool {
        let Delivery { channel, message, .. } = delivery;
        let Place::Held(holder, subscription) = self.places[message] else { return false };
        if holder != delivery {
            return false;
        }
        let subscribers = &mut self.subscribers[channel.queue];
        if let Some(subscriber) = subscribers.iter_mut().find(|subscriber| subscriber.number == subscription) {
            subscriber.room += 1;
        }
        self.places[message] = Place::Ready;
        self.longest_held = self.longest_held.max(self.now - self.delivered_at[message]);
        true
    }

    fn take_back(&mut self, message: usize, is_counted: bool) {
        let queue = self.scenario.messages[message].queue;
        self.counts[message] += u32::from(is_counted);
        if self.counts[message] > self.scenario.rules[queue].delivery_limit {
            let place = match self.scenario.declares[queue] {
                Declare::Own => Place::Parked,
                Declare::Existing => Place::Lost,
            };
            return self.end(message, place);
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
