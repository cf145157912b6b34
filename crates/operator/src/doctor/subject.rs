//! What the settings ask for.

use std::collections::BTreeSet;
use std::time::Duration;

use rehop::Topology;
use rehop::internals::{Names, build, discarded};
use rehop::internals::{QueueConfig, Resolved};
use rehop::settings::TopologyMode;
use rehop::topology::Role;
use rehop::{Settings, SettingsError};

/// What the settings ask for, and the broker is compared with.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) names: Names,
    pub(super) topology: Topology,
    pub(super) configs: Vec<QueueConfig>,
    pub(super) mode: TopologyMode,
    pub(super) consumer_timeout: Duration,
}

impl Subject {
    pub(super) fn of(settings: &Settings) -> Result<Self, SettingsError> {
        let Resolved { settings, queues: configs } = settings.resolve()?;
        let names = Names::new(&settings.namespace);
        let topology = build(&names, &configs);
        let consumer_timeout = settings.broker.consumer_timeout;
        Ok(Self { names, topology, configs, mode: settings.topology, consumer_timeout })
    }

    /// The exchange and the queue of discarded messages. Only operators need them, so they need not
    /// exist.
    pub(super) fn discarded(&self) -> Topology {
        discarded(&self.names)
    }

    /// Whether it is an operator who declares this, and not a service.
    pub(super) fn is_operators(&self, name: &str) -> bool {
        name == self.names.discarded()
    }

    pub(super) fn config(&self, work_queue: &str) -> Option<&QueueConfig> {
        self.configs.iter().find(|config| config.queue == work_queue)
    }

    /// The wait queues that the settings ask for.
    pub(super) fn wait_queues(&self) -> BTreeSet<&str> {
        let queues = self.topology.queues.iter().filter(|queue| queue.role == Role::Wait);
        queues.map(|queue| queue.name.as_str()).collect()
    }

    /// Whether the settings ask for this exchange.
    pub(super) fn is_own_exchange(&self, name: &str) -> bool {
        self.topology.exchanges.iter().any(|exchange| exchange.name == name)
    }

    /// The publishers' exchanges, which somebody else declares.
    pub(super) fn foreign_exchanges(&self) -> BTreeSet<&str> {
        let bound = self.topology.bindings.iter().map(|binding| binding.exchange.as_str());
        bound.filter(|exchange| !self.is_own_exchange(exchange)).collect()
    }
}
