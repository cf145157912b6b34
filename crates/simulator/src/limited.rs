//! What the broker refuses because of a limit.

use crate::broker::Broker;
use crate::error::Exception;
use crate::limits::Limits;
use crate::names::ChannelId;
use crate::protocol::{ConnectionId, Version};

impl Broker {
    /// The broker's answer to a client that connects, where a limit refuses it: code and text. In
    /// this order (seen in the source of 4.0 and 4.3).
    pub fn refuses_connection(&self, user: &str) -> Option<(u16, String)> {
        let exception = self.connection_limit(user).err()?;
        Some((exception.code, exception.text))
    }

    /// How many channels a connection may have, where that is limited.
    pub fn channel_max(&self, id: ConnectionId) -> Option<u16> {
        self.connections.get(&id)?.channel_max
    }

    /// How many connections and channels there are.
    pub fn usage(&self) -> (usize, usize) {
        (self.connections.len(), self.channels.len())
    }

    /// How many connections and channels a user has.
    pub fn usage_of(&self, user: &str) -> (usize, usize) {
        let own = || self.connections.values().filter(|connection| connection.user == user);
        (own().count(), own().map(|connection| connection.channels.len()).sum())
    }

    pub(crate) fn connection_limit(&self, user: &str) -> Result<(), Exception> {
        let Limits { node_connections, vhost_connections, user_connections, .. } = &self.limits;
        let all = self.connections.len();
        if let Some(limit) = node_connections.filter(|limit| all >= *limit)
            && self.version >= Version::V4_0
        {
            let text = format!("connection refused: node connection limit ({limit}) is reached");
            return Err(Exception::not_allowed(&text));
        }
        if let Some(limit) = vhost_connections.filter(|limit| all >= *limit) {
            let text = format!(
                "access to vhost '/' refused for user '{user}': connection limit ({limit}) is reached"
            );
            return Err(Exception::not_allowed(&text));
        }
        let (own, _) = self.usage_of(user);
        match user_connections.get(user) {
            Some(limit) if own >= *limit => Err(Exception::not_allowed(&format!(
                "connection refused for user '{user}': user connection limit ({limit}) is reached"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether a connection may have one channel more.
    pub(crate) fn channel_limit(&self, id: ConnectionId) -> Result<(), Exception> {
        let Limits { user_channels, node_channels, .. } = &self.limits;
        let Some(connection) = self.connections.get(&id) else { return Ok(()) };
        let (opened, user) = (connection.channels.len(), &connection.user);
        if let Some(limit) = connection.channel_max.filter(|limit| opened >= usize::from(*limit)) {
            return Err(Exception::not_allowed(&format!(
                "number of channels opened ({opened}) has reached the negotiated channel_max ({limit})"
            )));
        }
        let written = |limit: usize| match self.version {
            Version::V4_3 => limit.to_string(),
            Version::V3_10 | Version::V4_0 => format!("({limit})"),
        };
        let (_, own) = self.usage_of(user);
        if let Some(limit) = user_channels.get(user).filter(|limit| own >= **limit) {
            // 4.0 names the node in place of the user (seen in its source).
            let who = if self.version == Version::V4_0 { NODE } else { user.as_str() };
            let limit = written(*limit);
            return Err(Exception::not_allowed(&format!(
                "number of channels opened for user '{who}' has reached the maximum allowed user limit of {limit}"
            )));
        }
        match node_channels.filter(|limit| self.channels.len() >= *limit) {
            Some(limit) if self.version >= Version::V4_0 => {
                let limit = written(limit);
                Err(Exception::not_allowed(&format!(
                    "number of channels opened on node '{NODE}' has reached the maximum allowed limit of {limit}"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Whether a channel may have one consumer more.
    pub(crate) fn consumer_limit(&self, id: ChannelId) -> Result<(), Exception> {
        let consumers = self.channels.get(&id).map_or(0, |channel| channel.consumers.len());
        match self.limits.channel_consumers.filter(|limit| consumers >= *limit) {
            Some(limit) if self.version >= Version::V4_0 => Err(Exception::not_allowed(&format!(
                "reached maximum ({limit}) of consumers per channel"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether there may be one queue more.
    pub(crate) fn queue_limit(&self, name: &str) -> Result<(), Exception> {
        let Limits { vhost_queues, cluster_queues, .. } = self.limits;
        let reached = |limit: &usize| self.queues.len() >= *limit;
        let place = if let Some(limit) = vhost_queues.filter(reached) {
            format!("vhost '/' ({limit})")
        } else if let Some(limit) = cluster_queues.filter(reached)
            && self.version >= Version::V4_0
        {
            format!("cluster ({limit})")
        } else {
            return Ok(());
        };
        Err(Exception::precondition_failed(&format!(
            "cannot declare queue '{name}': queue limit in {place} is reached"
        )))
    }
}

/// The name of the node in texts.
const NODE: &str = "rabbit@simulated";
