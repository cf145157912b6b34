//! The limits of a node, its virtual host and its users: how many connections, channels, consumers
//! and queues there may be.

use std::collections::BTreeMap;

/// Limits; `None`, or no entry, is no limit. Lowering one ends nothing that exists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// `max-connections` of each user.
    pub user_connections: BTreeMap<String, usize>,
    /// `max-channels` of each user.
    pub user_channels: BTreeMap<String, usize>,
    /// `max-connections` of the virtual host.
    pub vhost_connections: Option<usize>,
    /// `max-queues` of the virtual host.
    pub vhost_queues: Option<usize>,
    /// `cluster_queue_limit` (4.0 and 4.3).
    pub cluster_queues: Option<usize>,
    /// `connection_max` of the node (4.0 and 4.3).
    pub node_connections: Option<usize>,
    /// `channel_max_per_node` (4.0 and 4.3).
    pub node_channels: Option<usize>,
    /// `channel_max` of connections that are opened from now on. Clients know it, and most refuse
    /// further channels themselves.
    pub connection_channels: Option<u16>,
    /// `consumer_max_per_channel` (4.0 and 4.3).
    pub channel_consumers: Option<usize>,
}
