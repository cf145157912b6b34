//! The whole broker: connections, exchanges and queues, and the time at which something is due.

use std::collections::VecDeque;

use lapin::types::FieldTable;

use crate::protocol::{ChannelNumber, ConnectionId, Method, Sent, Time, Version};

/// A simulated RabbitMQ node with one virtual host.
#[derive(Debug)]
pub struct Broker {
    version: Version,
    sent: VecDeque<Sent>,
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

impl Broker {
    /// A node that has just started. Its node-wide `consumer_timeout` is 30 minutes.
    pub fn new(version: Version) -> Self {
        Self { version, sent: VecDeque::new() }
    }

    /// The release that it simulates.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Sets the node's `consumer_timeout` for channels that are opened from now on.
    pub fn set_consumer_timeout(&mut self, _timeout: Time) {
        unimplemented!()
    }

    /// Opens a connection. A node that is down takes none.
    pub fn connect(&mut self, _now: Time, _user: &str) -> Option<ConnectionId> {
        unimplemented!()
    }

    /// Takes a method that a client has sent. One for a connection or channel that is gone is ignored.
    pub fn receive(&mut self, _now: Time, _connection: ConnectionId, _channel: ChannelNumber, _method: Method) {
        unimplemented!()
    }

    /// A connection is gone, closed by its client or lost: its channels end, and what they held goes back.
    pub fn disconnect(&mut self, _now: Time, _connection: ConnectionId) {
        unimplemented!()
    }

    /// When [`pass_time`](Self::pass_time) has something to do, if nothing else happens.
    pub fn next_timer(&self) -> Option<Time> {
        unimplemented!()
    }

    /// Does what is due: messages expire, deliveries time out, dead-lettering is tried again.
    pub fn pass_time(&mut self, _now: Time) {
        unimplemented!()
    }

    /// What the broker has sent since the last call, in order.
    pub fn sent(&mut self) -> impl Iterator<Item = Sent> {
        self.sent.drain(..)
    }
}
