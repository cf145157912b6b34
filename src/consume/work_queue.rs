//! A queue that this process consumes.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::timeout;

use crate::broker::answer::answer;
use crate::broker::client::Connection;
use crate::broker::connection::Link;
use crate::broker::keeper::Keeper;
use crate::broker::look::look_at;
use crate::consume::ack_timeout::AckTimeout;
use crate::consume::context::QueueContext;
use crate::consume::inbox::QueueIndex;
use crate::consume::intake::Intake;
use crate::error::Error;
use crate::shutdown::Shutdown;

/// One work queue, and what its sessions share.
pub(crate) struct WorkQueue {
    pub(crate) context: Arc<QueueContext>,
    pub(crate) intake: Arc<Intake>,
    /// Names it in the inbox and, as a position, for the keeper.
    pub(crate) index: QueueIndex,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) shutdown: Shutdown,
    /// The connection that it is consumed on.
    pub(crate) consuming: Arc<Link>,
    /// How long a delivery may stay unsettled.
    pub(crate) ack_timeout: AckTimeout,
}

impl WorkQueue {
    /// Declares what the queue needs, and checks that its leader answers. Both are done on another
    /// connection, where a channel that the broker refuses costs nothing: the other queues go on.
    pub(crate) async fn prepare(&self, consuming: &Arc<dyn Connection>) -> Result<(), Error> {
        self.keeper.declare(consuming, self.index.position()).await?;
        self.check_leader(consuming).await
    }

    /// Fails if the leader of the queue hangs. The broker would carry a subscription out when the
    /// leader goes on, although nobody waits for it any more, and would charge the messages that it
    /// delivers.
    async fn check_leader(&self, consuming: &Arc<dyn Connection>) -> Result<(), Error> {
        let (name, limit) = (&self.context.addresses.queue, self.consuming.answer_timeout());
        let look = |connection: Arc<dyn Connection>| async move {
            look_at(&*connection, name.as_str(), limit).await
        };
        match self.keeper.scout().visit(Some(consuming), look).await {
            // The queue may be consumed all the same: some versions require more permissions to
            // look at a queue than to consume it, and what gives no answer at all may only be slow.
            Ok(_) | Err(Error::Permission { .. } | Error::Timeout { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// One answer of the broker, in time. A shutdown shortens the time.
    pub(crate) async fn answer<T>(
        &self,
        what: &str,
        operation: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, Error> {
        let limit = self.shutdown.closing_time();
        let mut answered = pin!(answer(what, self.consuming.answer_timeout(), operation));
        tokio::select! {
            biased;
            result = &mut answered => result,
            () = self.shutdown.requested() => match timeout(limit, answered).await {
                Ok(result) => result,
                Err(_) => Err(Error::Timeout { what: what.to_owned(), limit }),
            }
        }
    }

    /// After the broker has taken messages back, waits until it accepts copies again. During an
    /// alarm nothing can be copied, so new deliveries would only be taken back, too. Waits no
    /// longer than the ack timeout, because the messages of this queue may have caused the alarm.
    pub(crate) async fn wait_out_alarm(&self) {
        let limit = self.ack_timeout.settle_limit();
        let publishing = &self.context.publishing;
        if publishing.state().is_blocked {
            tracing::warn!(
                queue = self.context.config.queue,
                "the broker has taken messages back while it blocks the publishing connection, as during an alarm; consuming again when \
                 this ends, in {limit:.0?} at the latest"
            );
        }
        let _ = timeout(limit, publishing.unblocked()).await;
    }
}
