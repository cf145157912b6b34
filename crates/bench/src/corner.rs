//! A run's own part of the broker.

use rehop::Settings;
use rehop::topology::Role;

/// The queues and exchanges that belong to one run alone.
#[derive(Clone)]
pub(crate) struct Corner {
    pub(crate) settings: Settings,
    pub(crate) queue: String,
    pub(crate) parked: String,
    /// Queues that are consumed, too, and stay empty.
    pub(crate) idle: Vec<String>,
    /// The wait queue that is reached through the default exchange, if the side uses one.
    pub(crate) cheap_wait: Option<String>,
    /// All queues that a message can be in.
    pub(crate) queues: Vec<(String, Role)>,
    pub(crate) exchanges: Vec<String>,
}
