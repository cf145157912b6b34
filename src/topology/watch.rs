//! Watches the topology while a service runs.

use std::sync::Arc;
use std::time::Duration;

use lapin::Connection;
use lapin::options::QueueDeclareOptions;
use lapin::types::{FieldTable, ShortString};

use super::Topology;
use crate::connection::Link;
use crate::settings::TopologyMode;
use crate::telemetry::metrics::Instruments;

/// How often the depth of the stray queue is read.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// The first time soon, because a gauge that is missing looks like a service that is; but not before it is declared.
const LOOK_FIRST: Duration = Duration::from_secs(2);
/// How many of these looks lie between two declarations of everything.
const DECLARE_EVERY: u32 = 4;

/// Notices what was deleted while the service runs, and declares it again: no connection breaks over a missing wait queue or
/// binding, and messages would go astray, or stay in a wait queue whose return exchange is gone, until the next restart.
pub(crate) struct Watch {
    pub(crate) link: Arc<Link>,
    pub(crate) topologies: Vec<Topology>,
    pub(crate) mode: TopologyMode,
    pub(crate) stray: String,
    pub(crate) namespace: String,
    pub(crate) instruments: Instruments,
}

impl Watch {
    pub(crate) async fn run(self) {
        let (mut reported, mut pause) = (0, LOOK_FIRST);
        for look in 1u32.. {
            tokio::time::sleep(pause).await;
            pause = LOOK_EVERY;
            let Ok(connection) = self.link.get().await else { continue };
            let depth = tokio::time::timeout(self.link.patience(), self.depth(&connection)).await;
            let suspicious = if let Ok(Ok(depth)) = depth {
                self.instruments.stray(&self.namespace, depth);
                let grown = depth > reported;
                reported = depth;
                if grown {
                    tracing::warn!(queue = %self.stray, depth, "messages matched no route: declaring everything again");
                }
                grown
            } else {
                tracing::debug!(queue = %self.stray, "could not read the depth of the stray queue");
                true
            };
            if suspicious || look.is_multiple_of(DECLARE_EVERY) {
                self.establish(&connection).await;
            }
        }
    }

    async fn depth(&self, connection: &Connection) -> lapin::Result<u64> {
        let channel = connection.create_channel().await?;
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let name = ShortString::try_new(self.stray.as_str()).unwrap_or_default();
        let queue = channel.queue_declare(name, options, FieldTable::default()).await?;
        channel.close(200, "done".into()).await?;
        Ok(u64::from(queue.message_count()))
    }

    async fn establish(&self, connection: &Connection) {
        for topology in &self.topologies {
            if let Err(error) = topology.establish(connection, self.mode, self.link.patience()).await {
                tracing::warn!(%error, "the topology is not as it should be");
            }
        }
    }
}
