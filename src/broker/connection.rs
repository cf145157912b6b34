//! Connections: how one is opened, and how a lost one is replaced.

use std::sync::{Arc, Mutex as StdMutex, OnceLock, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::broker::client::Connection;
use crate::broker::dial::{Dial, dialer};
use crate::broker::given_up_channels::ClosesGivenUp;
use crate::broker::open::open;
use crate::broker::rotation::Rotation;
use crate::error::{Error, Limit};
use crate::lock::lock;
use crate::random::random;
use crate::settings::address::{InvalidUrl, shown, uris};
use crate::settings::{BrokerSettings, SettingsError};
use crate::wire::Room;

/// A connection that is opened when it is needed, and opened again after it was lost.
///
/// lapin's own recovery stays off: its streams hang after a channel error, and it gives up after 16
/// tries (4.12).
pub struct Link {
    name: String,
    broker: BrokerSettings,
    /// What opens connections in place of lapin.
    dialer: Option<Arc<dyn Dial>>,
    /// What a connection must offer to be used.
    requirement: OnceLock<Requirement>,
    current: StdMutex<Current>,
    /// Held while a connection is opened, so that there is one attempt at a time.
    connecting: Mutex<()>,
}

/// Refuses a connection that does not offer what its users need.
type Requirement = Box<dyn Fn(&dyn Connection) -> Result<(), Error> + Send + Sync>;

/// The state of a link's connection.
#[derive(Debug, Clone, Copy)]
pub struct LinkState {
    pub is_open: bool,
    /// The broker does not read from it, as during a memory or disk alarm.
    pub is_blocked: bool,
}

struct Current {
    connection: Option<Arc<dyn Connection>>,
    /// The last one that was abandoned. Others may still use it, so it keeps its place in a limit
    /// of connections.
    abandoned: Option<Weak<dyn Connection>>,
    rotation: Rotation,
    /// How many attempts to open a connection have ended.
    attempts: u64,
    /// The error of the last attempt.
    failure: Option<Error>,
    /// How much of a message fits into a frame of the last connection.
    room: Room,
}

impl Link {
    pub fn new(name: String, broker: BrokerSettings) -> Self {
        let rotation = Rotation::new(broker.urls.len().max(1));
        let current = Current {
            connection: None,
            abandoned: None,
            rotation,
            attempts: 0,
            failure: None,
            room: Room::DEFAULT,
        };
        Self {
            name,
            broker,
            dialer: dialer(),
            requirement: OnceLock::new(),
            current: StdMutex::new(current),
            connecting: Mutex::default(),
        }
    }

    /// From now on uses only connections that pass this check. Each new one is checked, because the
    /// broker's limits may have changed. Only the first call counts.
    pub(crate) fn require(
        &self,
        requirement: impl Fn(&dyn Connection) -> Result<(), Error> + Send + Sync + 'static,
    ) {
        let _ = self.requirement.set(Box::new(requirement));
    }

    /// The time limit for one answer of the broker.
    pub fn answer_timeout(&self) -> Duration {
        self.broker.timeout
    }

    /// How long a service that starts waits for its broker.
    pub(crate) fn startup_timeout(&self) -> Duration {
        self.broker.startup_timeout
    }

    /// The connection, opened if none works. Tries each address once, the one that worked last
    /// first.
    ///
    /// Callers that come while a connection is opened share the outcome. If each tried anew after a
    /// failure, the last of many would wait for the sum of their time limits.
    pub async fn get(&self) -> Result<Arc<dyn Connection>, Error> {
        let ended_before = match lock(&self.current).working() {
            Ok(connection) => return Ok(connection),
            Err(attempts) => attempts,
        };
        let _connecting = self.connecting.lock().await;
        let rotation = {
            let current = lock(&self.current);
            match (current.working(), &current.failure) {
                (Ok(connection), _) => return Ok(connection),
                (Err(attempts), Some(failure)) if attempts > ended_before => {
                    return Err(failure.clone());
                }
                _ => current.rotation,
            }
        };
        let opened = self.open(rotation).await;
        let mut current = lock(&self.current);
        current.attempts += 1;
        match opened {
            Ok((index, connection)) => {
                current.room = Room::of_frame(connection.frame_max());
                current.connection = Some(connection.clone());
                current.failure = None;
                current.rotation.worked(index);
                Ok(connection)
            }
            Err(error) if error.limit().is_some_and(Limit::is_of_connections) => {
                current.failure = Some(error.clone());
                current.take_back().ok_or(error)
            }
            Err(error) => {
                current.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    /// A new connection, and the index of its address.
    async fn open(&self, rotation: Rotation) -> Result<(usize, Arc<dyn Connection>), Error> {
        let uris = uris(&self.broker)
            .map_err(|InvalidUrl { key, problem }| SettingsError::invalid(key, problem))?;
        let limit = if uris.len() > 1 {
            self.broker.timeout.min(ONE_OF_SEVERAL)
        } else {
            self.broker.timeout
        };
        let mut tried = Vec::new();
        for index in rotation.order() {
            let uri = uris[index].clone();
            let address = shown(&uri);
            let opening = match &self.dialer {
                Some(dialer) => dialer.dial(&self.broker, &address, &self.name, limit),
                None => open(&self.broker, uri, &self.name, limit).boxed(),
            };
            match opening.await {
                Ok(connection) => match self.refusal(&*connection).await {
                    None => {
                        tracing::info!(broker = %address, connection = %self.name, "connected");
                        return Ok((index, ClosesGivenUp::on(connection)));
                    }
                    Some(error) => tried.push(error),
                },
                Err(error) => tried.push(error),
            }
        }
        Err(Error::of_all_addresses(tried))
    }

    /// Closes a new connection that fails the check, and returns the error.
    async fn refusal(&self, connection: &dyn Connection) -> Option<Error> {
        let error = self.requirement.get()?(connection).err()?;
        let _ = timeout(
            CLOSE_LIMIT,
            connection.close("the limits of this connection are too low for rehop"),
        )
        .await;
        Some(error)
    }

    /// The connection, tried again for as long as the broker may take to start. A refused login is
    /// an error at once. A limit is waited for, and said once.
    pub async fn start(&self) -> Result<Arc<dyn Connection>, Error> {
        let deadline = Instant::now() + self.broker.startup_timeout;
        let mut reached = None;
        for attempt in 0.. {
            match self.get().await {
                Err(error) if error.is_transient() => {
                    let pause = pause(attempt);
                    if Instant::now() + pause >= deadline {
                        return Err(error);
                    }
                    let limit = error.limit().cloned();
                    if limit.is_none() {
                        tracing::warn!(%error, "cannot reach the broker; trying again in {pause:.1?}");
                    } else if reached != limit {
                        let most = self.broker.startup_timeout;
                        tracing::warn!(%error, "waiting for room for up to {most:.0?}");
                        reached = limit;
                    }
                    tokio::time::sleep(pause).await;
                }
                result => return result,
            }
        }
        unreachable!("there are as many attempts as it takes")
    }

    /// Returns once the broker does not block the connection, as it does during a memory or disk
    /// alarm. A connection that is lost is not blocked.
    pub(crate) async fn unblocked(&self) {
        while self.state().is_blocked {
            tokio::time::sleep(LOOK_FOR_ALARM_EVERY).await;
        }
    }

    /// The connection's state now.
    pub fn state(&self) -> LinkState {
        let current = lock(&self.current);
        let connection = current.connection.as_ref();
        LinkState {
            is_open: connection.is_some_and(|connection| connection.is_open()),
            is_blocked: connection.is_some_and(|connection| connection.is_blocked()),
        }
    }

    /// How much of a message fits into a frame of this connection, or of the last one while none is
    /// open.
    pub fn room(&self) -> Room {
        lock(&self.current).room
    }

    /// Whether this connection is the one in use.
    pub(crate) fn is_current(&self, connection: &Arc<dyn Connection>) -> bool {
        lock(&self.current).is(connection)
    }

    /// Uses another connection from now on, if this one has answered nothing or opens no more
    /// channels: it can look alive for a long time.
    pub(crate) fn leave(&self, connection: &Arc<dyn Connection>, error: &Error) {
        if matches!(error, Error::Timeout { .. }) {
            self.abandon(connection);
        } else if error.is_used_up() {
            self.retire(connection);
        }
    }

    /// Drops a connection that must not be used again, although it may look alive. It is closed
    /// once nobody has a handle to it.
    pub fn abandon(&self, connection: &Arc<dyn Connection>) {
        let mut current = lock(&self.current);
        if current.is(connection) {
            if connection.is_open() {
                current.rotation.leave();
                if !current.was_abandoned(connection) {
                    close_when_unused(connection.clone());
                }
                current.abandoned = Some(Arc::downgrade(connection));
            }
            current.connection = None;
        }
    }

    /// Replaces a connection that can open no more channels. Its open channels go on, and it is
    /// closed once nobody has a handle to it.
    pub fn retire(&self, connection: &Arc<dyn Connection>) {
        let mut current = lock(&self.current);
        if !current.is(connection) {
            return;
        }
        current.connection = None;
        tracing::warn!(
            connection = %self.name,
            "no more channels can be opened on this connection, so another one takes its place: the broker has closed many, for reasons that \
             earlier lines name, or its channel_max is low"
        );
        close_when_unused(connection.clone());
    }

    /// Closes the connection cleanly. One that is being opened meanwhile belongs to a caller that
    /// still needs it.
    pub async fn close(&self) {
        let connection = lock(&self.current).connection.take();
        if let Some(connection) = connection {
            // A broker that blocks a connection does not read that it is to be closed.
            let limit = if connection.is_blocked() { Duration::ZERO } else { CLOSE_LIMIT };
            let closed = timeout(limit, connection.close("goodbye")).await;
            if !matches!(closed, Ok(Ok(()))) {
                tracing::debug!(connection = %self.name, "the connection was gone before it could be closed");
            }
        }
    }
}

impl Current {
    fn is(&self, connection: &Arc<dyn Connection>) -> bool {
        self.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection))
    }

    fn was_abandoned(&self, connection: &Arc<dyn Connection>) -> bool {
        let abandoned = self.abandoned.as_ref().and_then(Weak::upgrade);
        abandoned.is_some_and(|abandoned| Arc::ptr_eq(&abandoned, connection))
    }

    /// Uses the abandoned connection again, because a limit allows no other one in its place. It
    /// may answer by now. One that only this and its closing task have a handle to is about to be
    /// closed, which leaves room.
    fn take_back(&mut self) -> Option<Arc<dyn Connection>> {
        let abandoned = self.abandoned.as_ref().and_then(Weak::upgrade);
        self.connection = abandoned
            .filter(|connection| connection.is_open() && Arc::strong_count(connection) > 2);
        self.connection.clone()
    }

    /// The connection if it works, or how many attempts have ended.
    fn working(&self) -> Result<Arc<dyn Connection>, u64> {
        let working = self.connection.as_ref().filter(|connection| connection.is_open());
        working.cloned().ok_or(self.attempts)
    }
}

/// As [`Link::unblocked`], for this connection, whether it is still in use or not. Read from the
/// connection and not remembered from events, so that nothing is missed that happened before
/// anybody listened.
pub(crate) async fn unblocked(connection: &dyn Connection) {
    while connection.is_blocked() {
        tokio::time::sleep(LOOK_FOR_ALARM_EVERY).await;
    }
}

/// Closes a connection that is no longer used for anything new, once its last user is gone: lapin
/// may keep it open after that (4.12).
fn close_when_unused(connection: Arc<dyn Connection>) {
    const LOOK_EVERY: Duration = Duration::from_secs(1);
    tokio::spawn(async move {
        while Arc::strong_count(&connection) > 1 && connection.is_open() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        // The last user's channel may still be closing; what was settled on it would be lost with
        // the connection.
        tokio::time::sleep(LOOK_EVERY).await;
        let _ = timeout(CLOSE_LIMIT, connection.close("no longer in use")).await;
    });
}

const LOOK_FOR_ALARM_EVERY: Duration = Duration::from_millis(500);

/// How long one of several addresses may take, so that a node that answers nothing does not hold up
/// the way to the others.
const ONE_OF_SEVERAL: Duration = Duration::from_secs(10);

/// How long the broker may take to close a connection.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// How long to wait before the next try.
pub(crate) fn pause(attempt: u32) -> Duration {
    crate::pause::pause(attempt, random())
}
