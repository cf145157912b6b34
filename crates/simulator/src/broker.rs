//! The state of a broker, and the few things that everything else does with it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lapin::types::FieldTable;

use crate::channel::Channel;
use crate::connection::{Alarm, Connection};
use crate::error::Exception;
use crate::exchange::{Exchange, ExchangeType};
use crate::limits::Limits;
use crate::names::{ChannelId, Name, QueueId};
use crate::permissions::{Access, Permissions, Resource};
use crate::protocol::{ChannelNumber, ConnectionId, Event, Sent, Time, Version};
use crate::queue::{Command, Effect, Queue};

/// A simulated RabbitMQ node with one virtual host.
#[derive(Debug)]
pub struct Broker {
    pub(crate) version: Version,
    pub(crate) now: Time,
    pub(crate) is_down: bool,
    next_number: u64,
    pub(crate) consumer_timeout: Time,
    /// The node's `max_message_size`. There is none at first, whereas a real node has one of many
    /// megabytes.
    pub max_message_size: usize,
    /// How many connections, channels, consumers and queues there may be. No limit at first.
    pub limits: Limits,
    /// How long a delivery takes from its queue to its channel. No time at first.
    pub delivery_lag: Time,
    /// When the node's time begins, counted from 1970. It begins then unless this is changed. Dead
    /// letters bear the date.
    pub epoch: Time,
    pub(crate) alarm: Option<Alarm>,
    pub(crate) permissions: BTreeMap<String, Permissions>,
    pub(crate) policies: BTreeMap<String, FieldTable>,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) channels: BTreeMap<ChannelId, Channel>,
    pub(crate) exchanges: BTreeMap<Name, Exchange>,
    pub(crate) queues: BTreeMap<QueueId, Queue>,
    pub(crate) queue_names: BTreeMap<Name, QueueId>,
    pub(crate) timers: BTreeSet<(Time, Timer)>,
    /// When each queue has its timer.
    pub(crate) queue_timers: BTreeMap<QueueId, Time>,
    /// What follows from what was done, in order.
    pub(crate) effects: VecDeque<(QueueId, Effect)>,
    /// Deliveries on their way, and when each reaches its channel.
    pub(crate) on_their_way: VecDeque<(Time, ChannelId, QueueId, Effect)>,
    /// Queues whose timer may have changed.
    pub(crate) touched: BTreeSet<QueueId>,
    /// Channels that have confirms to send.
    pub(crate) answering: BTreeSet<ChannelId>,
    pub(crate) sent: VecDeque<Sent>,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Queue(QueueId),
    Channel(ChannelId),
    /// The channel waits no longer for the queue's counts.
    Count(ChannelId, QueueId),
    /// A delivery reaches its channel.
    Delivery,
}

impl Broker {
    /// A node that has just started. Its node-wide `consumer_timeout` is 30 minutes.
    pub fn new(version: Version) -> Self {
        let predeclared = |kind: ExchangeType| {
            (
                Name::from(format!("amq.{}", kind.name())),
                Exchange::new(kind, true, FieldTable::default()),
            )
        };
        let exchanges = ExchangeType::ALL.into_iter().map(predeclared).collect();
        Self {
            version,
            now: Time::ZERO,
            is_down: false,
            next_number: 0,
            consumer_timeout: Time::from_secs(30 * 60),
            max_message_size: usize::MAX,
            limits: Limits::default(),
            delivery_lag: Time::ZERO,
            epoch: Time::ZERO,
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
            on_their_way: VecDeque::new(),
            touched: BTreeSet::new(),
            answering: BTreeSet::new(),
            sent: VecDeque::new(),
        }
    }

    /// Sends a command to a queue. A queue that is gone takes none.
    pub(crate) fn command(&mut self, id: QueueId, command: Command) {
        self.change_queue(id, |queue, now| queue.command(now, command));
    }

    /// Changes a queue, if it is still there, and keeps what follows from it.
    pub(crate) fn change_queue(&mut self, id: QueueId, change: impl FnOnce(&mut Queue, Time)) {
        if let Some(queue) = self.queues.get_mut(&id) {
            change(queue, self.now);
            self.effects.extend(queue.take_effects().map(|effect| (id, effect)));
            self.touched.insert(id);
        }
    }

    pub(crate) fn set_timer(&mut self, time: Time, timer: Timer) {
        self.timers.insert((time, timer));
    }

    pub(crate) fn send(&mut self, connection: ConnectionId, channel: ChannelNumber, event: Event) {
        self.sent.push_back(Sent { connection, channel, event });
    }

    pub(crate) fn send_on(&mut self, channel: ChannelId, event: Event) {
        if let Some(&Channel { connection, number, .. }) = self.channels.get(&channel) {
            self.send(connection, number, event);
        }
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(crate) fn user_of(&self, channel: ChannelId) -> &str {
        let connection = self
            .channels
            .get(&channel)
            .and_then(|channel| self.connections.get(&channel.connection));
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
}
