//! A connection that copies are published on, and how it ends.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use lapin::Event;
use tokio::sync::{oneshot, watch};

use super::retries::Guilt;
use crate::broker::channel::is_replaced;
use crate::broker::client::Connection;
use crate::broker::lane::{Blame, Cause};
use crate::broker::lane::{Lane, NotTaken};
use crate::broker::queued::queued;
use crate::broker::scout::Scout;
use crate::broker::scout::places::Place;
use crate::clock;
use crate::error::Error;
use crate::lock::lock;

/// The longest that a healthy broker takes to answer one copy on a lane of its own, or to close
/// something because of a copy. After this, a copy is unlikely to be the reason.
pub(super) const USUAL_ANSWER_TIME: Duration = Duration::from_secs(1);

/// How long the event that says why a connection ended may take.
pub(super) const NEWS_LIMIT: Duration = Duration::from_secs(1);

/// Why it has ended, if nothing says more.
const ENDED: &str = "the connection ended";

/// A connection that copies are published on. Once it has ended, nobody waits for its answers.
pub(super) struct PublishingConnection {
    pub(super) connection: Arc<dyn Connection>,
    /// How long the broker may take to answer anything.
    pub(super) answer_timeout: Duration,
    scout: Arc<Scout>,
    /// Whether copies may be under way on it.
    has_begun: AtomicBool,
    /// Each of its lanes has a clone.
    lanes: Arc<()>,
    /// Why it has ended, and when that was noticed.
    end: watch::Sender<Option<(Cause, Instant)>>,
    last_send: Mutex<Instant>,
    /// When a probe may begin next.
    next_probe: Mutex<Instant>,
    /// Whether the broker has confirmed anything on it.
    has_confirmed: AtomicBool,
    panic: Mutex<Option<Panic>>,
}

/// A fault of our own.
type Panic = Box<dyn Any + Send>;

impl PublishingConnection {
    pub(super) fn new(
        connection: Arc<dyn Connection>,
        answer_timeout: Duration,
        scout: Arc<Scout>,
    ) -> Arc<Self> {
        Arc::new(Self {
            connection,
            answer_timeout,
            scout,
            has_begun: AtomicBool::new(false),
            lanes: Arc::default(),
            end: watch::Sender::new(None),
            last_send: Mutex::new(clock::now()),
            next_probe: Mutex::new(clock::now()),
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
                    if let Some(panic) = lock(&self.panic).take() {
                        resume_unwind(panic);
                    }
                    return cause;
                }
                event = events.next() => match event {
                    Some(Event::ConnectionBlocked(cause)) => {
                        tracing::warn!(
                            %cause,
                            "the broker blocks publishing; copies wait until its alarm is over"
                        );
                    }
                    Some(Event::ConnectionUnblocked) => {
                        tracing::info!("the broker accepts copies again");
                    }
                    // lapin also reports channel errors here. One that is read after the connection
                    // has ended is not why it ended.
                    Some(Event::Error(error)) if !self.connection.is_open() => {
                        let cause = Cause::from(&error);
                        if !cause.is_of_channel() {
                            self.end(cause);
                        }
                    }
                    Some(_) => {}
                    None => self.end(Cause::of(ENDED)),
                },
                // An end that no event reports is noticed here, within twice this time.
                () = tokio::time::sleep(NEWS_LIMIT) => if !is_open {
                    self.end(Cause::of(ENDED));
                },
            }
        }
    }

    /// Runs something in a task. A panic in it becomes one of [`run`](Self::run), which ends the
    /// service.
    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let connection = self.clone();
        tokio::spawn(async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                *lock(&connection.panic) = Some(panic);
                connection.end(Cause::of("a fault of rehop's own"));
            }
        });
    }

    /// Ends it, unless it has ended already.
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
        // `self` owns the sender, so this cannot fail.
        end.ok().and_then(|end| end.clone()).map_or_else(|| Cause::of(ENDED), |(cause, _)| cause)
    }

    /// Opens a lane.
    ///
    /// # Errors
    ///
    /// [`NotTaken::NoLane`], or [`NotTaken::NotSent`] if the connection has ended.
    pub(super) async fn open_lane(self: &Arc<Self>) -> Result<Lane, NotTaken> {
        let opened = match self.place().await {
            Ok(place) => self.open_lane_in_task(place).await,
            Err(error) => Err(Cause::of(&error.to_string())),
        };
        let cause = match opened {
            Ok(lane) => return Ok(lane),
            Err(cause) => cause,
        };
        Err(self.end_of_lane(cause).await.map_or(NotTaken::NotSent, NotTaken::NoLane))
    }

    /// In a task, because the lane outlives whoever needs it first.
    async fn open_lane_in_task(self: &Arc<Self>, place: Place) -> Result<Lane, Cause> {
        let counted = self.lanes.clone();
        let in_use = Arc::strong_count(&self.lanes) - 2;
        let (opened, opening) = oneshot::channel();
        let of = self.clone();
        self.spawn(async move {
            let _counted = counted;
            match place.open(Lane::open(of.connection.clone())).await {
                Ok((lane, running)) => {
                    let _ = opened.send(Ok(lane));
                    running.await;
                }
                Err(error) => {
                    of.scout.note_limit(&Error::of_operation("opening a channel", &error));
                    let cause = Cause::from(&error);
                    if is_replaced(&*of.connection, &error, in_use) {
                        // What is not confirmed is sent again on the next connection. lapin tells
                        // nothing of an end that was asked for here.
                        queued(of.connection.close("no more channels can be opened"));
                        of.end(cause.clone());
                    }
                    let _ = opened.send(Err(cause));
                }
            }
        });
        match self.answer("no answer to opening a channel", opening).await? {
            Ok(opened) => opened,
            // The task has panicked, which ends the connection.
            Err(_) => Err(self.ended().await),
        }
    }

    /// Whether it has this lane, and copies can be sent on it.
    pub(super) fn has(&self, lane: &Lane) -> bool {
        lane.is_open() && Arc::ptr_eq(lane.connection(), &self.connection)
    }

    /// Why a copy was not taken whose lane has ended for this reason: perhaps because the
    /// connection has.
    pub(super) async fn not_taken(&self, cause: Cause) -> NotTaken {
        self.end_of_lane(cause).await.map_or_else(NotTaken::Disconnected, NotTaken::LaneClosed)
    }

    /// A lane of it has ended for this reason: returns the end of the connection instead, if that
    /// is why.
    async fn end_of_lane(&self, cause: Cause) -> Result<Cause, Cause> {
        // 501 and 502 end the whole connection. lapin tells whoever waits for a result before
        // `is_open` says so.
        let has_connection_ended = self.is_over() || cause.blame() == Blame::Copy;
        if !has_connection_ended || cause.is_of_channel() {
            return Ok(cause);
        }
        // The event that says why comes soon after, if not before.
        match tokio::time::timeout(NEWS_LIMIT, self.ended()).await {
            Ok(cause) => Err(cause),
            Err(_) => {
                self.end(if cause.code.is_some() { cause } else { Cause::of(ENDED) });
                Err(self.ended().await)
            }
        }
    }

    /// The broker's answer to something other than a copy. A connection on which none comes has
    /// ended, unless the broker blocks it.
    async fn answer<T>(
        &self,
        missing: &str,
        operation: impl Future<Output = T>,
    ) -> Result<T, Cause> {
        let mut operation = std::pin::pin!(operation);
        loop {
            tokio::select! {
                biased;
                answer = &mut operation => return Ok(answer),
                cause = self.ended() => return Err(cause),
                () = self.unblocked_for(self.answer_timeout) => self.end(Cause::of(missing)),
            }
        }
    }

    /// Copies are sent on it from now on.
    pub(super) fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// A place for a channel. Fails if the broker would refuse the channel, and with it end the
    /// connection and what is under way on it.
    async fn place(&self) -> Result<Place, Error> {
        if self.has_begun.load(Ordering::Relaxed) {
            self.scout.place().await
        } else {
            Ok(self.scout.untried_place().await)
        }
    }

    /// Finds out whether the connection is alive, if it was not found out a moment ago.
    pub(super) fn probe(self: &Arc<Self>) {
        let now = clock::now();
        let mut next_probe = lock(&self.next_probe);
        if now < *next_probe {
            return;
        }
        *next_probe = now + self.answer_timeout;
        drop(next_probe);
        let connection = self.clone();
        // In a task, because whoever waits for a confirm goes on.
        self.spawn(async move {
            let Ok(place) = connection.place().await else { return };
            let opening = place.open(connection.connection.open_channel());
            // A broker that refuses a channel is alive, too.
            let answered = connection.answer("no confirm and no answer in time", opening).await;
            if let Ok(Err(error)) = answered {
                connection.scout.note_limit(&Error::of_operation("opening a channel", &error));
            }
        });
    }

    /// Returns once the broker has not blocked the connection for about this long. While it does,
    /// it reads nothing, and after that it first has to read what the alarm held up. So then the
    /// time begins anew.
    pub(super) async fn unblocked_for(&self, time: Duration) {
        const LOOKS: u32 = 4;
        let mut looks = 0;
        while looks < LOOKS {
            tokio::time::sleep(time / LOOKS).await;
            looks = if self.connection.is_blocked() { 0 } else { looks + 1 };
        }
    }

    /// A copy is sent now. Returns the time.
    pub(super) fn note_send(&self) -> Instant {
        let now = clock::now();
        *lock(&self.last_send) = now;
        now
    }

    /// Whether a copy that was sent at this time may be why the connection has ended, or else its
    /// lane.
    pub(super) fn guilt(&self, sent_at: Instant) -> Guilt {
        let ended_at = self.end.borrow().as_ref().map_or_else(clock::now, |(_, at)| *at);
        let is_recent = |at: Instant| ended_at.saturating_duration_since(at) < USUAL_ANSWER_TIME;
        let last_send = *lock(&self.last_send);
        match (is_recent(sent_at), is_recent(last_send)) {
            (true, _) => Guilt::Likely,
            (false, true) => Guilt::Unlikely,
            (false, false) => Guilt::Possible,
        }
    }

    pub(super) fn note_confirm(&self) {
        self.has_confirmed.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_confirmed(&self) -> bool {
        self.has_confirmed.load(Ordering::Relaxed)
    }
}
