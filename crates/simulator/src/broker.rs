//! The whole broker: connections, exchanges and queues, and the time at which something is due.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lapin::types::FieldTable;

use crate::channel::Channel;
use crate::connection::Connection;
use crate::error::Exception;
use crate::exchange::{Exchange, ExchangeType};
use crate::names::{ChannelId, Name, Publisher, QueueId};
use crate::permissions::{Access, Resource};
use crate::protocol::{ChannelNumber, ConnectionId, Event, Method, Sent, Time, Version};
use crate::queue::{Command, Effect, Handed, Queue};

/// A simulated RabbitMQ node with one virtual host.
#[derive(Debug)]
pub struct Broker {
    pub(crate) version: Version,
    pub(crate) now: Time,
    is_down: bool,
    next_number: u64,
    pub(crate) consumer_timeout: Time,
    pub(crate) max_message_size: usize,
    pub(crate) alarm: Option<Alarm>,
    permissions: BTreeMap<String, Permissions>,
    pub(crate) policies: BTreeMap<String, FieldTable>,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) channels: BTreeMap<ChannelId, Channel>,
    pub(crate) exchanges: BTreeMap<Name, Exchange>,
    pub(crate) queues: BTreeMap<QueueId, Queue>,
    pub(crate) queue_names: BTreeMap<Name, QueueId>,
    timers: BTreeSet<(Time, Timer)>,
    /// When each queue has its timer.
    queue_timers: BTreeMap<QueueId, Time>,
    /// What follows from what was done, in order.
    pub(crate) effects: VecDeque<(QueueId, Effect)>,
    /// Queues whose timer may have changed.
    pub(crate) touched: BTreeSet<QueueId>,
    /// Channels that have confirms to send.
    pub(crate) answering: BTreeSet<ChannelId>,
    sent: VecDeque<Sent>,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Queue(QueueId),
    Channel(ChannelId),
    /// The channel waits no longer for the queue's counts.
    Count(ChannelId, QueueId),
}

/// Why a broker blocks connections that publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// `low on memory`
    Memory,
    /// `low on disk`
    Disk,
}

/// What a user may not do. Names are those of queues and exchanges; everything else is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// May not be declared or deleted.
    pub not_configure: Vec<String>,
    /// May not be published to, bound as a queue or as a destination.
    pub not_write: Vec<String>,
    /// May not be consumed, bound from.
    pub not_read: Vec<String>,
}

/// A policy for one queue. Its keys are those of RabbitMQ, such as `delivery-limit`.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The queue.
    pub queue: String,
    /// What it sets.
    pub definition: FieldTable,
}

/// What a queue holds, as the management API shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueView {
    /// Ready messages, in their order, by the `message_id` of each.
    pub ready: Vec<String>,
    /// Delivered and not settled.
    pub unacked: Vec<String>,
    /// Dead-lettered at least once, and not confirmed by their target yet.
    pub dead_lettering: Vec<String>,
    /// Waiting for a delayed retry.
    pub delayed: Vec<String>,
}

impl QueueView {
    /// All messages that the queue holds, wherever they are.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        let Self { ready, unacked, dead_lettering, delayed } = self;
        ready.iter().chain(unacked).chain(dead_lettering).chain(delayed).map(String::as_str)
    }
}

impl Broker {
    /// A node that has just started. Its node-wide `consumer_timeout` is 30 minutes.
    pub fn new(version: Version) -> Self {
        let predeclared = [
            ("amq.direct", ExchangeType::Direct),
            ("amq.fanout", ExchangeType::Fanout),
            ("amq.topic", ExchangeType::Topic),
            ("amq.headers", ExchangeType::Headers),
            ("amq.match", ExchangeType::Headers),
        ];
        let exchanges = predeclared
            .into_iter()
            .map(|(name, kind)| (Name::from(name), Exchange::new(kind, true, false, false, FieldTable::default())))
            .collect();
        Self {
            version,
            now: Time::ZERO,
            is_down: false,
            next_number: 0,
            consumer_timeout: Time::from_secs(30 * 60),
            max_message_size: Self::default_max_message_size(version),
            alarm: None,
            permissions: BTreeMap::new(),
            policies: BTreeMap::new(),
            connections: BTreeMap::new(),
            channels: BTreeMap::new(),
            exchanges,
            queues: BTreeMap::new(),
            queue_names: BTreeMap::new(),
            timers: BTreeSet::new(),
            queue_timers: BTreeMap::new(),
            effects: VecDeque::new(),
            touched: BTreeSet::new(),
            answering: BTreeSet::new(),
            sent: VecDeque::new(),
        }
    }

    /// The release that it simulates.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The largest body that a release takes unless it is told otherwise: 128 MiB on 3.10, 16 MiB from 4.0 on.
    pub fn default_max_message_size(version: Version) -> usize {
        const MEBIBYTE: usize = 1024 * 1024;
        if version >= Version::V4_0 { 16 * MEBIBYTE } else { 128 * MEBIBYTE }
    }

    /// Sets the largest body that is taken.
    pub fn set_max_message_size(&mut self, size: usize) {
        self.max_message_size = size;
    }

    /// Sets the node's `consumer_timeout` for channels that are opened from now on.
    pub fn set_consumer_timeout(&mut self, timeout: Time) {
        self.consumer_timeout = timeout;
    }

    /// Sets what a user may not do. It is checked with each method.
    pub fn set_permissions(&mut self, user: &str, permissions: Permissions) {
        self.permissions.insert(user.to_owned(), permissions);
    }

    /// Sets the policy of a queue, which need not exist. It replaces the one before.
    pub fn set_policy(&mut self, now: Time, policy: Policy) {
        self.advance(now);
        self.policies.insert(policy.queue.clone(), policy.definition);
        self.configure(&policy.queue);
    }

    /// Removes the policy of a queue.
    pub fn remove_policy(&mut self, now: Time, queue: &str) {
        self.advance(now);
        self.policies.remove(queue);
        self.configure(queue);
    }

    fn configure(&mut self, name: &str) {
        if let Some(&id) = self.queue_names.get(name)
            && let Some(declaration) = self.queues.get(&id).map(|queue| queue.declaration.clone())
        {
            let settings = self.settings_of(name, &declaration);
            self.change_queue(id, |queue, now| queue.configure(now, settings));
            self.run();
            // Seen in the source of all versions: the worker looks for its routes again.
            self.retry_dead_letters(id);
            self.run();
        }
    }

    /// Raises or clears an alarm. Connections that have published meanwhile go on with what they have sent.
    pub fn set_alarm(&mut self, now: Time, alarm: Option<Alarm>) {
        self.advance(now);
        self.alarm = alarm;
        if alarm.is_none() {
            self.unblock_connections();
        }
        self.run();
    }

    /// Opens a connection. A node that is down takes none.
    pub fn connect(&mut self, now: Time, user: &str) -> Option<ConnectionId> {
        self.advance(now);
        if self.is_down {
            return None;
        }
        let id = ConnectionId(self.next_number());
        self.connections.insert(id, Connection::new(user));
        Some(id)
    }

    /// Takes a method that a client has sent. One for a connection or channel that is gone is ignored.
    pub fn receive(&mut self, now: Time, connection: ConnectionId, channel: ChannelNumber, method: Method) {
        self.advance(now);
        self.read(connection, channel, method);
        self.run();
    }

    /// A connection is gone, closed by its client or lost: its channels end, and what they held goes back.
    pub fn disconnect(&mut self, now: Time, connection: ConnectionId) {
        self.advance(now);
        self.drop_connection(connection);
        self.run();
    }

    /// An operator closes all connections, such as with 320 and `CONNECTION_FORCED - Closed via management plugin`.
    pub fn close_connections(&mut self, now: Time, code: u16, text: &str) {
        self.advance(now);
        let exception = Exception { code, text: text.to_owned(), ends_connection: true };
        for connection in self.connections.keys().copied().collect::<Vec<_>>() {
            self.close_connection(connection, exception.clone());
        }
        self.run();
    }

    /// An operator closes one connection, as with [`close_connections`](Self::close_connections).
    pub fn close(&mut self, now: Time, connection: ConnectionId, code: u16, text: &str) {
        self.advance(now);
        self.close_connection(connection, Exception { code, text: text.to_owned(), ends_connection: true });
        self.run();
    }

    /// An operator deletes a queue.
    pub fn delete_queue(&mut self, now: Time, name: &str) {
        self.advance(now);
        if let Some(&id) = self.queue_names.get(name) {
            self.remove_queue(id);
        }
        self.run();
    }

    /// The leader of a queue answers nothing until then, as between the death of one leader and the election of the next.
    pub fn silence(&mut self, now: Time, queue: &str, until: Time) {
        self.advance(now);
        if let Some(&id) = self.queue_names.get(queue) {
            self.change_queue(id, |queue, _| queue.silence(until));
            self.run();
        }
    }

    /// The node goes down: connections are cut, and what consumers held comes back when it starts again.
    pub fn stop(&mut self, now: Time) {
        self.advance(now);
        self.is_down = true;
        self.alarm = None;
        self.channels.clear();
        for id in std::mem::take(&mut self.connections).into_keys() {
            self.send(id, 0, Event::Cut);
        }
        self.timers.clear();
        self.queue_timers.clear();
    }

    /// The node starts again, with what was durable.
    pub fn start(&mut self, now: Time) {
        if !self.is_down {
            return;
        }
        self.is_down = false;
        self.now = self.now.max(now);
        let transient = self.exchanges.iter().filter(|(_, exchange)| !exchange.is_durable);
        for name in transient.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.remove_exchange(&name);
        }
        for id in self.queues.keys().copied().collect::<Vec<_>>() {
            if self.queues.get(&id).is_some_and(|queue| queue.declaration.is_durable) {
                self.change_queue(id, |queue, now| queue.restart(now));
            } else {
                self.remove_queue(id);
            }
        }
        self.run();
    }

    /// What a queue holds.
    pub fn queue(&self, name: &str) -> Option<QueueView> {
        self.queue_names.get(name).and_then(|id| self.queues.get(id)).map(Queue::view)
    }

    /// What all queues hold, in the order of their names.
    pub fn queues(&self) -> impl Iterator<Item = (&str, QueueView)> {
        self.queue_names.iter().filter_map(|(name, id)| Some((&**name, self.queues.get(id)?.view())))
    }

    /// When [`pass_time`](Self::pass_time) has something to do, if nothing else happens.
    pub fn next_timer(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// Does what is due: messages expire, deliveries time out, dead-lettering is tried again.
    pub fn pass_time(&mut self, now: Time) {
        self.advance(now);
    }

    /// What the broker has sent since the last call, in order.
    pub fn sent(&mut self) -> impl Iterator<Item = Sent> {
        self.sent.drain(..)
    }

    /// Lets time pass until now, doing each thing at its time. A node that is down does nothing.
    fn advance(&mut self, now: Time) {
        while let Some(&(time, timer)) = self.timers.first()
            && time <= now
        {
            self.timers.pop_first();
            self.now = self.now.max(time);
            match timer {
                Timer::Queue(queue) => self.pass_queue_time(queue),
                Timer::Channel(channel) => self.tick_channel(channel),
                Timer::Count(channel, queue) => self.give_up_count(channel, queue),
            }
            self.run();
        }
        self.now = self.now.max(now);
    }

    fn pass_queue_time(&mut self, id: QueueId) {
        self.queue_timers.remove(&id);
        let now = self.now;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if queue.is_unused(now) {
            self.remove_queue(id);
            return;
        }
        if !queue.is_silent() && queue.worker.timer.is_some_and(|time| time <= now) {
            queue.worker.timer = None;
            self.retry_dead_letters(id);
        }
        self.change_queue(id, |queue, now| queue.pass_time(now));
    }

    /// Carries out what follows, until nothing more does.
    pub(crate) fn run(&mut self) {
        loop {
            while let Some((queue, effect)) = self.effects.pop_front() {
                self.carry_out(queue, effect);
            }
            for channel in std::mem::take(&mut self.answering) {
                self.send_confirms(channel);
            }
            if self.effects.is_empty() {
                break;
            }
        }
        while let Some(id) = self.touched.pop_first() {
            self.set_queue_timer(id);
        }
    }

    fn carry_out(&mut self, queue: QueueId, effect: Effect) {
        match effect {
            Effect::Answer(channel, _)
            | Effect::TimedOut(channel, _)
            | Effect::Deliver(Handed { channel, .. }, _)
            | Effect::Taken(Publisher::Channel(channel), _)
            | Effect::Refused(Publisher::Channel(channel), _) => self.notify_channel(channel, queue, effect),
            Effect::Taken(Publisher::Worker(worker), id) => self.answer_worker(worker, id, queue, true),
            Effect::Refused(Publisher::Worker(worker), id) => self.answer_worker(worker, id, queue, false),
            Effect::DeadLetter(reason, entry) => self.dead_letter_once(queue, reason, &entry),
            Effect::Forward(id, reason, entry) => self.forward(queue, id, reason, &entry),
            Effect::Unused => _ = self.remove_queue(queue),
        }
    }

    /// Sends a command to a queue. A queue that is gone takes none.
    pub(crate) fn command(&mut self, id: QueueId, command: Command) {
        self.change_queue(id, |queue, now| queue.command(now, command));
    }

    fn change_queue(&mut self, id: QueueId, change: impl FnOnce(&mut Queue, Time)) {
        if let Some(queue) = self.queues.get_mut(&id) {
            change(queue, self.now);
            self.effects.extend(queue.take_effects().map(|effect| (id, effect)));
            self.touched.insert(id);
        }
    }

    fn set_queue_timer(&mut self, id: QueueId) {
        let time = self.queues.get(&id).and_then(Queue::next_timer);
        if time == self.queue_timers.get(&id).copied() {
            return;
        }
        if let Some(former) = self.queue_timers.remove(&id) {
            self.timers.remove(&(former, Timer::Queue(id)));
        }
        if let Some(time) = time {
            self.queue_timers.insert(id, time);
            self.timers.insert((time, Timer::Queue(id)));
        }
    }

    pub(crate) fn set_timer(&mut self, time: Time, timer: Timer) {
        self.timers.insert((time, timer));
    }

    pub(crate) fn send(&mut self, connection: ConnectionId, channel: ChannelNumber, event: Event) {
        self.sent.push_back(Sent { connection, channel, event });
    }

    pub(crate) fn send_on(&mut self, channel: ChannelId, event: Event) {
        if let Some(channel) = self.channels.get(&channel) {
            let (connection, number) = (channel.connection, channel.number);
            self.send(connection, number, event);
        }
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(crate) fn user_of(&self, channel: ChannelId) -> &str {
        let connection = self.channels.get(&channel).and_then(|channel| self.connections.get(&channel.connection));
        connection.map(|connection| connection.user.as_str()).unwrap_or_default()
    }

    pub(crate) fn check_access(
        &self,
        channel: ChannelId,
        access: Access,
        resource: Resource<'_>,
    ) -> Result<(), Exception> {
        let user = self.user_of(channel);
        let Some(permissions) = self.permissions.get(user) else { return Ok(()) };
        permissions.check(self.version, user, access, resource)
    }

    pub(crate) fn check_any_access(&self, channel: ChannelId, resource: Resource<'_>) -> Result<(), Exception> {
        let user = self.user_of(channel);
        let Some(permissions) = self.permissions.get(user) else { return Ok(()) };
        permissions.check_any(self.version, user, resource)
    }
}
