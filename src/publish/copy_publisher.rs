//! The flow of one copy, until the broker has confirmed it.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, RwLock, Semaphore, watch};
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::admission::Admission;
use super::exchange::Exchange;
use super::retries::{GivenUp, Guilt, Reaction, Retries};
use super::shared::{Shared, TRIALS};
use super::trouble::CopyTrouble;
use super::upkeep::keep;
use crate::broker::client::Connection;
use crate::broker::connection::{Link, pause};
use crate::broker::keeper::Keeper;
use crate::broker::lane::{NotTaken, Outgoing};

/// Publishes copies, each until the broker has confirmed it.
#[derive(Clone)]
pub(crate) struct CopyPublisher(Arc<Shared>);

/// How long a copy that is not under way may wait to be sent, if its queue stops. That is enough to
/// open a lane, or for a short doubt about its exchange to end.
pub(super) const LAST_CHANCE: Duration = Duration::from_secs(1);

impl CopyPublisher {
    /// Starts a task that keeps a connection open; only a panic ends the task. Opens the lanes of
    /// `exchanges` ahead of their first copies. Calls `retried` with the exchange each time a copy
    /// has to be sent again.
    pub(crate) fn start(
        link: Arc<Link>,
        keeper: Arc<Keeper>,
        exchanges: impl IntoIterator<Item = String>,
        retried: impl Fn(&str) + Send + Sync + 'static,
    ) -> (Self, AbortOnDropHandle<()>) {
        let exchanges =
            exchanges.into_iter().map(|name| (name.clone(), Exchange::new(name))).collect();
        let shared = Arc::new(Shared {
            link,
            keeper,
            retried: Box::new(retried),
            connection: watch::Sender::new(None),
            exchanges: Mutex::new(exchanges),
            may_break: RwLock::default(),
            alone: Semaphore::new(1),
            trials: Semaphore::new(TRIALS),
            repair_wanted: Notify::new(),
            copies: Arc::default(),
        });
        let keeping = AbortOnDropHandle::new(tokio::spawn(keep(shared.clone())));
        (Self(shared), keeping)
    }

    /// Publishes a copy and returns when the broker has confirmed it, however long that takes.
    /// Dropping the future gives the copy up.
    ///
    /// `stopping`: the copy's queue stops. Then a copy that has to pause, as after a nack or a
    /// return, is given up at once. One that waits to be sent has [`LAST_CHANCE`] from then on. The
    /// answer to one under way is awaited. If a channel or a connection ended while it was under
    /// way, it may be stored.
    ///
    /// # Errors
    ///
    /// When the broker closes the channel or the connection over this copy each time, or the copy's
    /// queue stops.
    pub(crate) async fn publish(
        &self,
        copy: Arc<Outgoing>,
        stopping: &CancellationToken,
    ) -> Result<(), GivenUp> {
        let _counted = self.0.copies.clone();
        let exchange = self.0.exchange(copy.exchange.as_str());
        let mut retries = Retries::default();
        let mut in_trouble = CopyTrouble::new(&exchange.troubles);
        // The second begins when the copy next has to wait for its turn, which may be some time
        // after the stop.
        let mut last_chance_is_over = pin!(async {
            stopping.cancelled().await;
            sleep(LAST_CHANCE).await;
        });
        loop {
            let admitted = tokio::select! {
                biased;
                () = &mut last_chance_is_over => return Err(retries.stopped()),
                admitted = Admission::of(&self.0, &exchange, retries.way()) => admitted,
            };
            let sent = match admitted {
                Ok(admission) => admission.send(&copy, &mut in_trouble).await,
                Err(why) => Err((why, Guilt::Unlikely)),
            };
            let Err((why, guilt)) = sent else { return Ok(()) };
            let reaction = retries.after(&why, guilt).inspect_err(|_| in_trouble.not_taken(&why));
            let Reaction { pause_after, is_trouble, takes_none } = reaction?;
            if is_trouble {
                in_trouble.not_taken(&why);
            }
            if takes_none {
                exchange.mark_in_doubt();
            }
            if why.asks_for_repair() {
                exchange.request_repair();
                self.0.repair_wanted.notify_one();
            }
            if !matches!(why, NotTaken::NotSent | NotTaken::NoLane(_)) {
                (self.0.retried)(&exchange.name);
            }
            if let Some(tries) = pause_after {
                tokio::select! {
                    biased;
                    () = stopping.cancelled() => return Err(retries.stopped()),
                    () = sleep(pause(tries)) => {}
                }
            }
        }
    }

    /// The connection, if no copy would be lost with it now.
    pub(crate) fn idle_connection(&self) -> Option<Arc<dyn Connection>> {
        let present = self.0.connection.borrow().clone().filter(|it| !it.is_over());
        let is_idle = Arc::strong_count(&self.0.copies) == 1;
        present.filter(|_| is_idle).map(|publishing| publishing.connection.clone())
    }
}
