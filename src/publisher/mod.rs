//! Publishes messages for a service: each is confirmed by the broker, or an error that says what is
//! wrong.
//!
//! Unlike a copy, such a message is not retried here: whoever publishes it learns at once that
//! nothing takes it. At most one message is under way on a lane, so a return or a closed channel
//! belongs to it alone.

mod error;
mod message;

use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

pub use self::error::PublishError;
pub use self::message::Publish;
use crate::broker::answer::answer;
use crate::broker::channel::has_lost_numbers;
use crate::broker::client::Connection;
use crate::broker::connection::{Link, unblocked};
use crate::broker::lane::{Lane, NotTaken, Outgoing};
use crate::clock;
use crate::error::Error;
use crate::lock::lock;
use crate::settings::Settings;
use crate::settings::address::{self, Server};
use crate::telemetry::metrics::{Instruments, PublisherMetrics};
use crate::telemetry::producer::PublishSpan;

/// How many messages are under way at a time, each on a channel of its own; fewer if the broker
/// allows fewer channels. Further ones wait.
const MAX_CHANNELS: usize = 64;

/// How long lapin may take after an alarm to send what has waited for its end.
const FLUSH: Duration = Duration::from_secs(1);

/// The span and the metrics of a call. One that is dropped before it has ended was cancelled.
struct Call<'a> {
    span: PublishSpan,
    metrics: &'a PublisherMetrics,
    destination: String,
    started: Instant,
    has_ended: bool,
}

impl Call<'_> {
    fn ended(mut self, error: Option<&PublishError>) {
        self.has_ended = true;
        self.record(error.map(|error| (error.class(), error.to_string())));
    }

    fn record(&self, failure: Option<(&'static str, String)>) {
        let class = failure.as_ref().map(|(class, _)| *class);
        if let Some((class, text)) = failure {
            self.span.failed(class, text);
        }
        self.metrics.published(&self.destination, clock::elapsed(self.started), class);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.record(Some(("cancelled", "its caller did not wait for the confirm".to_owned())));
        }
    }
}

/// Publishes messages, with confirms, on a connection of its own. Clones share it.
///
/// lapin logs a message that no queue takes, with its body, as a warning: filter by `lapin=off`, as
/// rehop's own subscriber does.
///
/// A message is persistent and has an id, and it carries the current trace context.
/// [`publish`](Self::publish) returns when the broker has confirmed it. A lost connection is opened
/// again for the next message. For throughput, publish concurrently: up to 64 messages are under
/// way at a time, or fewer if the broker allows fewer channels.
///
/// Exchanges of the delayed-message plugin are not supported: they return each message at once, so
/// [`publish`](Self::publish) fails with [`PublishError::Unroutable`], although the message is
/// delivered later.
///
/// ```no_run
/// use std::time::{Duration, SystemTime};
/// use rehop::{Publish, Publisher, Settings};
///
/// # #[derive(serde::Serialize)] struct Order { id: u64 }
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let publisher = Publisher::connect(&Settings::load()?).await?;
/// let order = Order { id: 7 };
/// let deadline = SystemTime::now() + Duration::from_secs(3600);
/// publisher.publish(Publish::to_queue("orders").json(&order)?.deadline(deadline)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Publisher(Arc<Inner>);

struct Inner {
    link: Link,
    server: Option<Server>,
    expiry_header: String,
    metrics: PublisherMetrics,
    /// One for each channel on which a message is under way, also after its caller has given up.
    slots: Arc<Semaphore>,
    /// How many slots there are.
    max_channels: usize,
    /// Slots that are not used for a time, because a limit of the broker was reached.
    unused: Mutex<Unused>,
    /// Lanes on which nothing is under way.
    idle: Mutex<Vec<Lane>>,
}

#[derive(Default)]
struct Unused {
    slots: usize,
    /// The last connection that the broker ended because of one channel too many.
    ended: Option<Weak<dyn Connection>>,
}

impl Publisher {
    /// Connects to the broker. Set up [telemetry](crate::telemetry) first, if its metrics are to be
    /// recorded. Of the settings, `broker`, `namespace` (for the connection's name) and
    /// `expiry_header` matter.
    ///
    /// # Errors
    ///
    /// When the settings are wrong, when the broker refuses the login, or when it is unreachable
    /// for longer than `broker.startup_timeout`.
    pub async fn connect(settings: &Settings) -> Result<Self, Error> {
        let settings = settings.resolve()?.settings;
        let link = Link::new(format!("{} publisher", settings.namespace), settings.broker.clone());
        let max_channels = MAX_CHANNELS.min(link.start().await?.channel_max().into());
        Ok(Self(Arc::new(Inner {
            link,
            server: address::server(&settings.broker),
            expiry_header: settings.expiry_header,
            metrics: PublisherMetrics::new(Instruments::new()),
            slots: Arc::new(Semaphore::new(max_channels)),
            max_channels,
            unused: Mutex::default(),
            idle: Mutex::default(),
        })))
    }

    /// Publishes a message and returns when the broker has confirmed it.
    ///
    /// If the future is dropped, or after an error that [is transient](PublishError::is_transient),
    /// the message may have been published. Publish it again with the same [id](Publish::id), so
    /// that its consumer can recognise a duplicate.
    ///
    /// # Errors
    ///
    /// When no queue takes the message, its exchange does not exist, its deadline has passed, the
    /// broker refuses it, or the connection is lost. Nothing is confirmed then.
    pub async fn publish(&self, message: Publish) -> Result<(), PublishError> {
        let Inner { link, server, expiry_header, metrics, slots, .. } = &*self.0;
        let started = clock::now();
        let destination =
            [message.exchange(), message.routing_key()].into_iter().find(|name| !name.is_empty());
        let destination = destination.unwrap_or_default().to_owned();
        let span = PublishSpan::start(
            message.exchange(),
            message.routing_key(),
            message.id(),
            server.as_ref(),
        );
        let written =
            message.write(expiry_header, span.headers(), clock::date().into(), link.room());
        let call = Call { span, metrics, destination, started, has_ended: false };
        let published = async {
            let written = written?;
            // Before the slot: all who wait for a connection share its failure, also those who
            // would wait for a slot.
            link.get().await?;
            let mut slot = pin!(slots.clone().acquire_owned());
            let limit = link.answer_timeout();
            let slot = loop {
                match timeout(limit, &mut slot).await {
                    Ok(slot) => break slot.ok(),
                    // Those that have a slot may keep it until the end of an alarm.
                    Err(_) if link.state().is_blocked => {
                        let what = "waiting for the end of an alarm to publish".to_owned();
                        return Err(Error::Timeout { what, limit }.into());
                    }
                    Err(_) => {}
                }
            };
            self.send(written, slot, limit).await
        };
        let published = published.await;
        call.ended(published.as_ref().err());
        published
    }

    /// Closes the connection. Without this it is closed when the process ends, or when the broker
    /// misses the heartbeats.
    pub async fn close(self) {
        self.0.link.close().await;
    }

    async fn send(
        &self,
        message: Outgoing,
        slot: Option<OwnedSemaphorePermit>,
        limit: Duration,
    ) -> Result<(), PublishError> {
        let (to, key) = (message.exchange.to_string(), message.routing_key.to_string());
        let what = format!("publishing to {}", error::destination(&to, &key));
        // What is sent to a blocked connection waits in the client, and would be published after
        // the caller was told that it is not.
        if timeout(limit, self.0.link.unblocked()).await.is_err() {
            return Err(Error::Timeout { what, limit }.into());
        }
        let lane = match self.take_idle() {
            Some(lane) => lane,
            None => self.open_lane(limit).await?,
        };
        // A lane is used again only after its message is confirmed or refused. Until then a return
        // could still come on it. In a task that keeps the slot, because this future may be
        // dropped, and its message may still wait for the end of an alarm.
        let inner = self.0.clone();
        let publishing = tokio::spawn(async move {
            let given_up = async {
                tokio::time::sleep(limit).await;
                unblocked(&**lane.connection()).await;
                tokio::time::sleep(FLUSH).await;
            };
            let answer = tokio::select! {
                biased;
                answer = lane.send(Arc::new(message)) => answer,
                () = given_up => return None,
            };
            if matches!(answer, Ok(()) | Err(NotTaken::Nacked | NotTaken::Returned)) {
                inner.keep(lane);
            }
            // Only now, because whoever waits for the slot takes this lane.
            drop(slot);
            Some(answer)
        });
        match timeout(limit, publishing).await {
            Ok(Ok(Some(answer))) => answer.map_err(|why| PublishError::not_taken(why, to, key)),
            Ok(Err(ended)) => Err(Error::Lost { what, problem: ended.to_string().into() }.into()),
            Ok(Ok(None)) | Err(_) => Err(Error::Timeout { what, limit }.into()),
        }
    }

    /// A connection that answers nothing may look alive, so it is given up, and the next message is
    /// published by another.
    async fn open_lane(&self, limit: Duration) -> Result<Lane, Error> {
        let connection = self.0.link.get().await?;
        match answer("opening a channel", limit, Lane::open(connection.clone())).await {
            Ok((lane, running)) => {
                tokio::spawn(running);
                Ok(lane)
            }
            Err(error) => {
                let in_use = self.0.in_use();
                if error.limit().is_some_and(|limit| !limit.is_of_connections()) {
                    self.0.leave_unused(&connection, in_use);
                }
                if matches!(error, Error::Timeout { .. }) && !self.0.link.state().is_blocked {
                    self.0.link.abandon(&connection);
                } else if error.is_used_up() && has_lost_numbers(&*connection, in_use) {
                    self.0.link.retire(&connection);
                }
                lock(&self.0.idle).retain(|lane| self.0.link.is_current(lane.connection()));
                Err(error)
            }
        }
    }

    /// A lane that works. Those of a lost connection are dropped.
    fn take_idle(&self) -> Option<Lane> {
        let mut idle = lock(&self.0.idle);
        idle.retain(Lane::is_open);
        idle.pop()
    }
}

impl Inner {
    /// How many channels are used, or are to be opened.
    fn in_use(&self) -> usize {
        let busy = self.max_channels - self.slots.available_permits();
        busy.saturating_sub(lock(&self.unused).slots)
    }

    /// The broker has ended a connection that opened a channel too many, and what was under way on
    /// it. For some minutes, half as many are used.
    fn leave_unused(self: &Arc<Self>, connection: &Arc<dyn Connection>, in_use: usize) {
        const FOR: Duration = Duration::from_secs(5 * 60);
        let mut unused = lock(&self.unused);
        let ended = Arc::downgrade(connection);
        // All who were opening a channel learn of it.
        if unused.ended.as_ref().is_some_and(|before| before.ptr_eq(&ended)) {
            return;
        }
        let less = (self.max_channels - unused.slots).saturating_sub((in_use / 2).max(1));
        unused.ended = Some(ended);
        unused.slots += less;
        drop(unused);
        let (inner, less_as_permits) = (self.clone(), u32::try_from(less).unwrap_or(u32::MAX));
        tokio::spawn(async move {
            let held = inner.slots.acquire_many(less_as_permits).await;
            tokio::time::sleep(FOR).await;
            lock(&inner.unused).slots -= less;
            drop(held);
        });
    }

    /// Nothing is under way on the lane any more.
    fn keep(&self, lane: Lane) {
        let mut idle = lock(&self.idle);
        if self.link.is_current(lane.connection()) {
            idle.push(lane);
        }
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("server", &self.0.server).finish_non_exhaustive()
    }
}
