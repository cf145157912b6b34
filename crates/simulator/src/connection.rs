//! Connections: how they open and end, and how an alarm blocks those that publish.

use std::collections::{BTreeMap, VecDeque};

use crate::broker::{Alarm, Broker};
use crate::channel::Channel;
use crate::error::Exception;
use crate::names::{ChannelId, QueueId};
use crate::protocol::{ChannelNumber, ConnectionId, Event, Method};

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) user: String,
    pub(crate) channels: BTreeMap<ChannelNumber, ChannelId>,
    /// Queues that are exclusive to it, and go with it.
    pub(crate) exclusive_queues: Vec<QueueId>,
    /// It has published during an alarm, and nothing that it sends is read any more, its acks included.
    is_blocked: bool,
    unread: VecDeque<(ChannelNumber, Method)>,
}

impl Connection {
    pub(crate) fn new(user: &str) -> Self {
        Self {
            user: user.to_owned(),
            channels: BTreeMap::new(),
            exclusive_queues: Vec::new(),
            is_blocked: false,
            unread: VecDeque::new(),
        }
    }
}

impl Alarm {
    fn reason(self) -> &'static str {
        match self {
            Self::Memory => "low on memory",
            Self::Disk => "low on disk",
        }
    }
}

impl Broker {
    /// Reads a method from a connection. A connection is only told of an alarm when it publishes.
    pub(crate) fn read(&mut self, id: ConnectionId, number: ChannelNumber, method: Method) {
        let alarm = self.alarm;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut is_newly_blocked = false;
        if let (Some(_), false, Method::Publish { .. }) = (alarm, connection.is_blocked, &method) {
            connection.is_blocked = true;
            is_newly_blocked = true;
        }
        if connection.is_blocked {
            connection.unread.push_back((number, method));
            if let Some(alarm) = alarm.filter(|_| is_newly_blocked) {
                self.send(id, 0, Event::Blocked { reason: alarm.reason().to_owned() });
            }
            return;
        }
        match (connection.channels.get(&number).copied(), method) {
            (None, Method::OpenChannel) => self.open_channel(id, number),
            (Some(channel), method) => self.handle_or_keep(channel, method),
            (None, _) => {}
        }
    }

    fn open_channel(&mut self, connection: ConnectionId, number: ChannelNumber) {
        if number == 0 {
            return;
        }
        let id = ChannelId(self.next_number());
        let channel = Channel::new(connection, number, self.consumer_timeout);
        self.channels.insert(id, channel);
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.channels.insert(number, id);
        }
        self.send(connection, number, Event::Done);
    }

    /// The alarm is over: what blocked connections have sent is read now.
    pub(crate) fn unblock_connections(&mut self) {
        let blocked: Vec<_> =
            self.connections.iter().filter(|(_, connection)| connection.is_blocked).map(|(id, _)| *id).collect();
        for id in blocked {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.is_blocked = false;
            let unread = std::mem::take(&mut connection.unread);
            self.send(id, 0, Event::Unblocked);
            for (number, method) in unread {
                self.read(id, number, method);
                self.run();
            }
        }
    }

    /// The broker closes a connection.
    pub(crate) fn close_connection(&mut self, id: ConnectionId, exception: Exception) {
        self.send(id, 0, Event::Closed { code: exception.code, text: exception.text });
        self.drop_connection(id);
    }

    /// A connection is gone: its channels end, and its exclusive queues are deleted.
    pub(crate) fn drop_connection(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.remove(&id) else { return };
        for channel in connection.channels.into_values() {
            self.drop_channel(channel);
        }
        for queue in connection.exclusive_queues {
            self.remove_queue(queue);
        }
    }
}
