//! The parts of the demo, apart from the service that consumes.

use std::sync::{Arc, Mutex};

use rehop::topology::Role;
use rehop::{Settings, Topology};

use super::client::Client;
use super::crash::Crashes;
use super::script::Order;
use super::shop::Shop;

/// An order that the broker has confirmed.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) order: Order,
    /// When it was published, in nanoseconds since the epoch.
    pub(crate) at: u64,
    pub(crate) trace_id: String,
}

/// The parts of the demo, apart from the service that consumes.
pub(crate) struct Play<C> {
    pub(crate) orders: Vec<Order>,
    pub(crate) settings: Settings,
    /// What the service declares.
    pub(crate) topology: Topology,
    pub(crate) client: C,
    pub(crate) shop: Arc<Shop>,
    pub(crate) crashes: Crashes,
    /// What the broker has confirmed so far.
    pub(crate) sent: Mutex<Vec<Sent>>,
}

impl<C: Client> Play<C> {
    pub(crate) fn new(
        orders: Vec<Order>,
        settings: Settings,
        client: C,
        shop: Arc<Shop>,
        crashes: Crashes,
    ) -> anyhow::Result<Self> {
        let topology = Topology::of(&settings)?;
        Ok(Self { orders, settings, topology, client, shop, crashes, sent: Mutex::default() })
    }

    /// How many messages are in all queues of this role together.
    pub(crate) async fn depth(&self, role: Role) -> anyhow::Result<usize> {
        let mut depth = 0;
        for queue in self.queues(role) {
            depth += self.client.depth(queue).await?;
        }
        Ok(depth)
    }

    pub(crate) fn queues(&self, role: Role) -> Vec<&str> {
        self.topology
            .queues
            .iter()
            .filter(|queue| queue.role == role)
            .map(|queue| queue.name.as_str())
            .collect()
    }
}
