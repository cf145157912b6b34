//! What every demo plays: a publisher, an HTTP service with an outage and a bug, an operator, and
//! the count of all orders.

use std::time::Duration;

use anyhow::{Context as _, bail};
use rehop::topology::Role;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::lock::lock;
use super::play::Play;
use super::policy::STRAY;
use super::progress::Progress;
use super::script::{BINDINGS, EXCHANGE, Fate};
use super::witness::Witness;

/// How long the service may take to start, or to stop.
const IN_TIME: Duration = Duration::from_secs(90);

impl<C: Client> Play<C> {
    /// Plays it from the first order to the count at the end. Meanwhile `consuming` keeps the
    /// service running, and ends when `stop` is cancelled. The witness has no spans yet.
    pub(crate) async fn run(
        self,
        consuming: impl Future<Output = anyhow::Result<()>> + Send,
        stop: CancellationToken,
        mut progress: Progress,
    ) -> anyhow::Result<Witness> {
        let mut consuming = std::pin::pin!(consuming);
        let orders_end = async {
            self.client.declare_exchange(EXCHANGE, STRAY).await?;
            self.bind().await?;
            let ((), seen) = tokio::try_join!(self.publish(), self.watch(&mut progress))?;
            let replay = self.replay(&seen.listing, &mut progress).await?;
            anyhow::Ok((seen, replay))
        };
        let (seen, replay) = tokio::select! {
            ended = orders_end => ended?,
            ended = &mut consuming => {
                ended?;
                bail!("the consumer process is no longer supervised");
            }
        };
        progress.erase();
        stop.cancel();
        tokio::time::timeout(IN_TIME, consuming)
            .await
            .context("the consumer did not stop in time")??;
        let strays = seen.found.iter().filter(|(_, fate)| *fate == Fate::Stray).cloned();
        let found = strays.chain(self.empty().await?).collect();
        let sent = std::mem::take(&mut *lock(&self.sent));
        Ok(Witness {
            found,
            seen,
            replay,
            sent: sent.into_iter().map(|sent| (sent.order.id, sent)).collect(),
            requests: self.shop.log(),
            crashes: lock(&self.crashes).clone(),
            spans: Vec::new(),
        })
    }

    /// Binds the service's queues, as soon as it has declared them and all others.
    async fn bind(&self) -> anyhow::Result<()> {
        let until = Instant::now() + IN_TIME;
        loop {
            match self.try_to_bind().await {
                Err(_) if Instant::now() < until => sleep(Duration::from_millis(100)).await,
                bound => return bound.context("the service has not declared its queues"),
            }
        }
    }

    async fn try_to_bind(&self) -> anyhow::Result<()> {
        for (queue, pattern) in BINDINGS {
            self.client.bind(queue, EXCHANGE, pattern).await?;
        }
        for role in [Role::Wait, Role::Parked, Role::Stray] {
            self.depth(role).await?;
        }
        Ok(())
    }
}
