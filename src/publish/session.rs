//! A connection that publishes, and how it ends.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use lapin::Event;
use tokio::sync::watch;

use crate::broker::client::Connection;
use crate::broker::lane;
use crate::broker::lane::cause::Cause;
use crate::clock;

/// The longest that a healthy broker takes to answer one copy on a lane of its own, or to close something because of a copy.
pub(super) const USUAL_ANSWER_TIME: Duration = Duration::from_secs(1);

/// How long the event that says why a connection ended may take.
pub(super) const NEWS_LIMIT: Duration = Duration::from_secs(1);

/// How often the end of an alarm is looked for.
const LOOK_FOR_ALARM_EVERY: Duration = Duration::from_millis(100);

/// A connection that publishes. When it has ended, nothing of it is awaited any longer.
pub(super) struct Session {
    pub(super) connection: Arc<dyn Connection>,
    /// How long the broker may take to answer anything.
    pub(super) limit: Duration,
    /// How many lanes it has.
    pub(super) lanes: AtomicUsize,
    /// Why it has ended, and when that was noticed.
    end: watch::Sender<Option<(Cause, Instant)>>,
    last_send: Mutex<Instant>,
    is_probing: AtomicBool,
    /// Whether the broker has confirmed anything on it.
    has_confirmed: AtomicBool,
    panic: Mutex<Option<Panic>>,
}

/// A fault of our own.
type Panic = Box<dyn Any + Send>;

impl Session {
    pub(super) fn new(connection: Arc<dyn Connection>, limit: Duration) -> Arc<Self> {
        Arc::new(Self {
            connection,
            limit,
            lanes: AtomicUsize::new(0),
            end: watch::Sender::new(None),
            last_send: Mutex::new(clock::now()),
            is_probing: AtomicBool::new(false),
            has_confirmed: AtomicBool::new(false),
            panic: Mutex::default(),
        })
    }

    /// Logs what happens to the connection, until it has ended. Returns why.
    pub(super) async fn run(&self, mut events: BoxStream<'static, Event>) -> Cause {
        loop {
            let is_open = self.connection.is_open();
            tokio::select! {
                biased;
                cause = self.ended() => {
                    if let Some(panic) = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
                        resume_unwind(panic);
                    }
                    return cause;
                }
                event = events.next() => match event {
                    Some(Event::ConnectionBlocked(cause)) => {
                        tracing::warn!(%cause, "the broker blocks publishing; copies wait until its alarm is over");
                    }
                    Some(Event::ConnectionUnblocked) => tracing::info!("the broker accepts copies again"),
                    // lapin reports the end of a channel here, too. If it is read after the end of the connection, it does not say why the
                    // connection ended.
                    Some(Event::Error(error)) if !self.connection.is_open() && !lane::closes_only_a_channel(&error) => {
                        self.end(lane::cause(&error));
                    }
                    Some(_) => {}
                    None => self.end(Cause::of(ENDED)),
                },
                () = tokio::time::sleep(NEWS_LIMIT), if !is_open => self.end(Cause::of(ENDED)),
            }
        }
    }

    /// Runs one of its lanes in a task. A panic in it becomes one of [`run`](Self::run), which ends the service.
    pub(super) fn spawn(self: &Arc<Self>, lane: impl Future<Output = ()> + Send + 'static) {
        let session = self.clone();
        tokio::spawn(async move {
            if let Err(panic) = AssertUnwindSafe(lane).catch_unwind().await {
                *session.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
                session.end(Cause::of("a fault of rehop's own"));
            }
        });
    }

    /// Nothing is to be awaited of it any longer.
    fn end(&self, cause: Cause) {
        self.end.send_if_modified(|end| {
            let is_first = end.is_none();
            end.get_or_insert_with(|| (cause, clock::now()));
            is_first
        });
    }

    pub(super) fn is_over(&self) -> bool {
        !self.connection.is_open() || self.end.borrow().is_some()
    }

    /// Returns when it has ended, and why.
    pub(super) async fn ended(&self) -> Cause {
        let mut end = self.end.subscribe();
        let end = end.wait_for(Option::is_some).await;
        // The sender lives as long as `self`.
        end.ok().and_then(|end| end.clone()).map_or_else(|| Cause::of(ENDED), |(cause, _)| cause)
    }

    /// A lane of it has ended for this reason: returns the end of the connection instead, if that has ended, too.
    pub(super) async fn end_of_lane(&self, cause: Cause) -> Result<Cause, Cause> {
        if !self.is_over() {
            return Ok(cause);
        }
        // The event that says why comes soon after, if not before.
        match tokio::time::timeout(NEWS_LIMIT, self.ended()).await {
            Ok(cause) => Err(cause),
            Err(_) => {
                self.end(Cause::of(ENDED));
                Err(self.ended().await)
            }
        }
    }

    /// The broker's answer to something other than a copy. A connection on which none comes has ended, unless the broker blocks it.
    pub(super) async fn answer<T>(&self, missing: &str, operation: impl Future<Output = T>) -> Result<T, Cause> {
        let mut operation = std::pin::pin!(operation);
        loop {
            tokio::select! {
                biased;
                answer = &mut operation => return Ok(answer),
                cause = self.ended() => return Err(cause),
                () = tokio::time::sleep(self.limit) => if !self.connection.is_blocked() {
                    self.end(Cause::of(missing));
                },
            }
        }
    }

    /// Finds out whether the connection is alive.
    pub(super) fn probe(self: &Arc<Self>) {
        if self.is_probing.swap(true, Ordering::Relaxed) {
            return;
        }
        let session = self.clone();
        // In a task, because whoever waits for a confirm may give up meanwhile, and lapin would keep the channel.
        tokio::spawn(async move {
            // A broker that refuses a channel is alive, too.
            let _ = session.answer("no confirm and no answer in time", session.connection.open_channel()).await;
            session.is_probing.store(false, Ordering::Relaxed);
        });
    }

    /// Returns once the broker does not block the connection. Read from the connection and not remembered from events, so that nothing is
    /// missed that happened before anybody listened.
    pub(super) async fn unblocked(&self) {
        while self.connection.is_blocked() {
            tokio::time::sleep(LOOK_FOR_ALARM_EVERY).await;
        }
    }

    /// Returns when a copy that was sent now has been under way for so long that it breaks nothing any more. While the broker blocks the
    /// connection it reads nothing, so the time that passes proves nothing.
    pub(super) async fn usual_answer_time(&self) {
        loop {
            tokio::time::sleep(USUAL_ANSWER_TIME).await;
            if !self.connection.is_blocked() {
                return;
            }
        }
    }

    /// A copy is sent now. Returns when that is.
    pub(super) fn sends(&self) -> Instant {
        let now = clock::now();
        *self.last_send.lock().unwrap_or_else(PoisonError::into_inner) = now;
        now
    }

    /// Whether a copy that was sent at this time may be why the connection has ended: it was sent lately, or none was.
    pub(super) fn may_have_ended_over(&self, sent_at: Instant) -> bool {
        let ended_at = self.end.borrow().as_ref().map_or_else(clock::now, |(_, at)| *at);
        let is_recent = |at: Instant| ended_at.saturating_duration_since(at) < USUAL_ANSWER_TIME;
        is_recent(sent_at) || !is_recent(*self.last_send.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn confirms(&self) {
        self.has_confirmed.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_confirmed(&self) -> bool {
        self.has_confirmed.load(Ordering::Relaxed)
    }
}

const ENDED: &str = "the connection ended";
