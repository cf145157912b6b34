//! What all copies share: the connection, and the exchanges.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, RwLock, Semaphore, watch};

use super::exchange::Exchange;
use super::publishing_connection::PublishingConnection;
use crate::broker::connection::Link;
use crate::broker::keeper::Keeper;
use crate::lock::lock;

/// How many copies are tried on lanes of their own at once. Those whose confirm takes longer than
/// usual do not count.
pub(super) const TRIALS: usize = 16;

pub(super) struct Shared {
    pub(super) link: Arc<Link>,
    pub(super) keeper: Arc<Keeper>,
    /// Told the exchange of each copy that has to be sent again.
    pub(super) retried: Box<dyn Fn(&str) + Send + Sync>,
    /// The connection, while there is one.
    pub(super) connection: watch::Sender<Option<Arc<PublishingConnection>>>,
    pub(super) exchanges: Mutex<BTreeMap<String, Arc<Exchange>>>,
    /// Read-locked by each copy while it may still break the connection. Write-locked by a copy
    /// that is suspected of having broken it, so that it is sent with nothing beside it.
    pub(super) may_break: RwLock<()>,
    /// Lets one copy at a time wait for that.
    pub(super) alone: Semaphore,
    /// Limits the other copies that are tried on lanes of their own.
    pub(super) trials: Semaphore,
    pub(super) repair_wanted: Notify,
    /// Each copy that is not confirmed or given up has a clone.
    pub(super) copies: Arc<()>,
}

impl Shared {
    /// Returns a connection that copies can be sent on, as soon as there is one. The topology has
    /// been declared by then: an exchange without its bindings would send everything to the stray
    /// queue.
    pub(super) async fn connected(&self) -> Arc<PublishingConnection> {
        let mut present = self.connection.subscribe();
        loop {
            if let Some(connection) =
                present.borrow_and_update().clone().filter(|connection| !connection.is_over())
            {
                return connection;
            }
            // `self` owns the sender, so this cannot fail.
            let _ = present.changed().await;
        }
    }

    pub(super) fn exchange(&self, name: &str) -> Arc<Exchange> {
        let mut exchanges = lock(&self.exchanges);
        if let Some(exchange) = exchanges.get(name) {
            return exchange.clone();
        }
        exchanges.entry(name.to_owned()).or_insert_with(|| Exchange::new(name.to_owned())).clone()
    }

    pub(super) fn exchanges(&self) -> Vec<Arc<Exchange>> {
        lock(&self.exchanges).values().cloned().collect()
    }
}
