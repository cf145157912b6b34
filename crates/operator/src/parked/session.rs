//! One operation's connections, and the lock that keeps a second operator away.

use std::sync::Arc;
use std::time::Duration;

use lapin::ErrorKind;
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use tokio::time::Instant;

use crate::parked::error::ParkedError;
use rehop::Error;
use rehop::internals::Link;
use rehop::internals::Names;
use rehop::internals::Room;
use rehop::internals::answer;
use rehop::internals::client::{Channel, Connection};
use rehop::internals::knows_delayed_retry;
use rehop::internals::look_at;
use rehop::internals::random;
use rehop::internals::short;
use rehop::settings::BrokerSettings;

/// One operation's connections. Whatever ends the operation, also a dropped future, ends them: then
/// the broker has every message that was taken back, those of one channel in their places.
pub(crate) struct OperatorSession {
    links: Links,
    pub(super) connection: Arc<dyn Connection>,
    /// Keeps the lock.
    _lock: Arc<dyn Channel>,
    pub(super) limit: Duration,
    /// How long the broker lets a delivery stay unsettled, by the settings.
    pub(super) ack_timeout: Duration,
    /// Names this operation.
    pub(super) run: String,
    /// Whether the broker gives back without counting: 4.3 and later.
    pub(super) nack_is_free: bool,
}

/// The connections. Dropped, they are closed: lapin closes a connection only when nothing refers to
/// it any more, and an operation that was dropped halfway may leave something that does.
struct Links {
    consuming: Arc<Link>,
    publishing: Arc<Link>,
}

impl Drop for Links {
    fn drop(&mut self) {
        // Without a runtime nothing drives the connections either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(close(self.consuming.clone(), self.publishing.clone()));
        }
    }
}

async fn close(consuming: Arc<Link>, publishing: Arc<Link>) {
    tokio::join!(publishing.close(), consuming.close());
}

impl OperatorSession {
    pub(super) async fn open(
        broker: &BrokerSettings,
        names: &Names,
        queue: &str,
    ) -> Result<Self, ParkedError> {
        let run = format!("{:012x}", random::<u64>() >> 16);
        let link = |purpose: &str| {
            Arc::new(Link::new(format!("rehop parked {purpose} {run}"), broker.clone()))
        };
        let links = Links { consuming: link("consuming"), publishing: link("publishing") };
        let limit = links.consuming.answer_timeout();
        let connection = links.consuming.start().await?;
        let lock = lock(&*connection, names, queue, limit).await?;
        let nack_is_free = match knows_delayed_retry(&*connection, names, limit).await {
            // Then the careful way is taken.
            Err(Error::Permission { .. }) => false,
            known => known?,
        };
        Ok(Self {
            links,
            connection,
            _lock: lock,
            limit,
            ack_timeout: broker.consumer_timeout,
            run,
            nack_is_free,
        })
    }

    pub(super) async fn channel(&self) -> Result<Arc<dyn Channel>, Error> {
        answer("opening a channel", self.limit, self.connection.open_channel()).await
    }

    /// A connection of its own for what publishes: an alarm blocks it.
    pub(super) async fn publishing_connection(&self) -> Result<Arc<dyn Connection>, Error> {
        self.links.publishing.start().await
    }

    /// How much of a message fits into a frame.
    pub(super) fn room(&self) -> Room {
        self.links.consuming.room()
    }

    /// Whether the broker has stopped reading what is published, as during an alarm.
    pub(super) fn is_blocked(&self) -> bool {
        self.links.publishing.state().is_blocked
    }

    /// How many messages are ready in a queue. `None` if it does not exist, may not be looked at,
    /// or does not answer now.
    pub(super) async fn depth_if_any(&self, queue: &str) -> Result<Option<u64>, Error> {
        match self.depth(queue).await {
            Ok(depth) => Ok(Some(depth)),
            Err(Error::Missing { .. } | Error::Permission { .. } | Error::Unavailable { .. }) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// How many messages are ready in a queue.
    ///
    /// # Errors
    ///
    /// Also when its leader does not answer: then this cannot be known.
    pub(super) async fn depth(&self, queue: &str) -> Result<u64, Error> {
        Ok(u64::from(look_at(&*self.connection, queue, self.limit).await?.messages))
    }

    /// # Errors
    ///
    /// When a queue does not exist, or may not be looked at.
    pub(super) async fn exists(&self, queue: &str) -> Result<(), Error> {
        match self.depth(queue).await {
            // Its leader does not answer, so there is one.
            Ok(_) | Err(Error::Unavailable { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn close(self) {
        close(self.links.consuming.clone(), self.links.publishing.clone()).await;
    }
}

/// How long the lock is tried: the broker may not have noticed yet that its last owner was killed.
const LOCK_WITHIN: Duration = Duration::from_secs(2);

async fn lock(
    connection: &dyn Connection,
    names: &Names,
    queue: &str,
    limit: Duration,
) -> Result<Arc<dyn Channel>, ParkedError> {
    let until = Instant::now() + LOCK_WITHIN;
    loop {
        match try_lock(connection, names, queue, limit).await {
            Err(ParkedError::Busy { .. }) if Instant::now() < until => {
                tokio::time::sleep(LOCK_WITHIN / 20).await
            }
            locked => return locked,
        }
    }
}

/// An exclusive queue belongs to its connection, and goes with it.
async fn try_lock(
    connection: &dyn Connection,
    names: &Names,
    queue: &str,
    limit: Duration,
) -> Result<Arc<dyn Channel>, ParkedError> {
    let channel = answer("opening a channel", limit, connection.open_channel()).await?;
    let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let name = short(&names.operator_lock(queue))?;
    let what = format!("declaring queue {:?}", name.as_str());
    match tokio::time::timeout(limit, channel.declare_queue(name, options, FieldTable::default()))
        .await
    {
        Ok(Ok(_)) => Ok(channel),
        Ok(Err(error)) => Err(match error.kind() {
            ErrorKind::ProtocolError(answer) if answer.get_id() == 405 => {
                ParkedError::Busy { queue: queue.to_owned() }
            }
            _ => Error::of_operation(what, &error).into(),
        }),
        Err(_) => Err(Error::Timeout { what, limit }.into()),
    }
}
