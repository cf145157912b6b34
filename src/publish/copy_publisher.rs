//! The flow of one copy, until the broker has confirmed it.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::future::Either;
use tokio::sync::{
    MutexGuard, Notify, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphorePermit,
    watch,
};
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::NotPublished;
use super::exchange::Exchange;
use super::publishing_connection::{NEWS_LIMIT, PublishingConnection, USUAL_ANSWER_TIME};
use super::retries::{Guilt, Next, Reaction, Retries, Way};
use super::shared::{Shared, TRIALS};
use super::trouble::CopyTrouble;
use super::upkeep::keep;
use crate::broker::client::Connection;
use crate::broker::connection::{Link, pause, unblocked};
use crate::broker::keeper::Keeper;
use crate::broker::lane::{Lane, NotTaken, Outgoing};

/// Publishes copies, each until the broker has confirmed it.
#[derive(Clone)]
pub(crate) struct CopyPublisher(Arc<Shared>);

/// What a copy is sent with.
struct Admission<'a> {
    connection: Arc<PublishingConnection>,
    lane: Lane,
    has_own_lane: bool,
    guards: Guards<'a>,
}

/// How long a copy that is not under way may wait to be sent, if its queue stops. That is enough to
/// open a lane, or for a short doubt about its exchange to end.
pub(super) const LAST_CHANCE: Duration = Duration::from_secs(1);

/// Ends what keeps one copy from being sent, [`LAST_CHANCE`] after the stop of its queue.
struct LastChance<'a> {
    stopping: &'a CancellationToken,
    until: Option<Instant>,
}

impl LastChance<'_> {
    /// Returns when the copy is not to be sent any more. Counts from the first call after the stop,
    /// and for all calls together.
    async fn is_over(&mut self) {
        self.stopping.cancelled().await;
        sleep_until(*self.until.get_or_insert_with(|| Instant::now() + LAST_CHANCE)).await;
    }
}

/// Held until the copy is unlikely to break anything any more.
type Guards<'a> = (
    Option<MutexGuard<'a, ()>>,
    Option<SemaphorePermit<'a>>,
    Either<RwLockWriteGuard<'a, ()>, RwLockReadGuard<'a, ()>>,
);

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
    /// `stopping`: the copy's queue stops. Then one that has to pause, as after a nack or a return, is
    /// given up at once, and one that cannot be sent [`LAST_CHANCE`] later; the answer to one under
    /// way is awaited. If a channel or a connection ended while it was under way, it may be stored.
    ///
    /// # Errors
    ///
    /// When the broker closes the channel or the connection over this copy each time, or the copy's
    /// queue stops.
    pub(crate) async fn publish(
        &self,
        copy: Arc<Outgoing>,
        stopping: &CancellationToken,
    ) -> Result<(), NotPublished> {
        let _counted = self.0.copies.clone();
        let exchange = self.0.exchange(copy.exchange.as_str());
        let (mut retries, mut last_chance) =
            (Retries::default(), LastChance { stopping, until: None });
        let mut in_trouble = CopyTrouble::new(&exchange.troubles);
        let stopped = |retries: &Retries| {
            Err(NotPublished::Stopped { may_be_stored: retries.may_be_stored() })
        };
        loop {
            let admitted = tokio::select! {
                biased;
                () = last_chance.is_over() => return stopped(&retries),
                admitted = self.admit(&exchange, retries.way()) => admitted,
            };
            let sent = match admitted {
                Ok(admission) => send(&exchange, &copy, admission, &mut in_trouble).await,
                Err(why) => Err((why, Guilt::Unlikely)),
            };
            let Err((why, guilt)) = sent else { return Ok(()) };
            let Reaction { next, is_trouble, takes_none } = retries.after(&why, guilt);
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
            if next == Next::Unpublishable {
                let text = why.cause().map(|cause| cause.problem.to_string());
                return Err(NotPublished::Unpublishable(text.unwrap_or_default()));
            }
            if !matches!(why, NotTaken::NotSent | NotTaken::NoLane(_)) {
                (self.0.retried)(&exchange.name);
            }
            if let Next::AfterPause { tries } = next {
                tokio::select! {
                    biased;
                    () = stopping.cancelled() => return stopped(&retries),
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

    /// Waits until nothing stands against sending a copy in this way.
    async fn admit<'a>(
        &'a self,
        exchange: &'a Exchange,
        way: Way,
    ) -> Result<Admission<'a>, NotTaken> {
        let Shared { may_break, alone, trials, .. } = &*self.0;
        loop {
            let connection = self.0.connected().await;
            exchange.ready().await;
            unblocked(&*connection.connection).await;
            let is_alone = way == Way::NothingBeside;
            // A copy that is sent alone need not take the turn from the others.
            let finds_out = if is_alone { None } else { exchange.find_out().await };
            // All that follows takes time.
            let may_send = || {
                let is_connected = !connection.is_over() && !connection.connection.is_blocked();
                is_connected && exchange.is_ready(is_alone || finds_out.is_some())
            };
            // A copy that finds out also has a lane of its own, so that a close takes no other with
            // it.
            let has_own_lane = way != Way::SharedLane || finds_out.is_some();
            // One at a time waits to be alone, so that others are sent in between.
            let trial = match is_alone {
                true => alone.acquire().await.ok(),
                false if has_own_lane => trials.acquire().await.ok(),
                false => None,
            };
            let breaking = match way {
                Way::NothingBeside => Either::Left(may_break.write().await),
                Way::SharedLane | Way::OwnLane => Either::Right(may_break.read().await),
            };
            // Whoever waited for its turn to find out must not open a lane in vain.
            if !may_send() {
                continue;
            }
            let lane = match has_own_lane {
                true => connection.open_lane().await?,
                false => exchange.lane(&connection).await?,
            };
            if may_send() {
                return Ok(Admission {
                    lane,
                    has_own_lane,
                    guards: (finds_out, trial, breaking),
                    connection,
                });
            }
        }
    }
}

/// Sends a copy once, and waits for its confirm.
async fn send(
    exchange: &Exchange,
    copy: &Arc<Outgoing>,
    Admission { connection, lane, has_own_lane, guards }: Admission<'_>,
    in_trouble: &mut CopyTrouble<'_>,
) -> Result<(), (NotTaken, Guilt)> {
    let (sent_at, answer) = (connection.note_send(), lane.send_unless_blocked(copy.clone()));
    let mut under_way = UnderWay { exchange, lane, guards: Some(guards), is_answered: false };
    let answer = answer_to(&connection, answer, &mut under_way, in_trouble).await;
    under_way.is_answered = true;
    // The lane goes on for as long as somebody waits for its answer.
    drop(under_way);
    let answer = match answer {
        Err(NotTaken::LaneClosed(cause)) => Err(connection.not_taken(cause).await),
        answer => answer,
    };
    if matches!(answer, Ok(()) | Err(NotTaken::Refused | NotTaken::Returned)) {
        // Any answer shows that the exchange exists and may be written to.
        exchange.clear_doubt(sent_at);
    }
    if answer.is_ok() {
        connection.note_confirm();
        exchange.troubles.accepted();
        if has_own_lane {
            exchange.renew_lane();
        }
    }
    answer.map_err(|why| (why, connection.guilt(sent_at)))
}

/// A copy under way on this lane.
struct UnderWay<'a> {
    exchange: &'a Exchange,
    lane: Lane,
    /// Until it is unlikely to break anything any more.
    guards: Option<Guards<'a>>,
    is_answered: bool,
}

/// It may have been given up. The answer that did not come by then is not likely to come soon.
impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.guards.is_none() {
            self.exchange.retire_lane(&self.lane);
        }
    }
}

/// Waits for the answer to a copy. Drops its guards once it is unlikely to break anything any more.
async fn answer_to(
    connection: &Arc<PublishingConnection>,
    mut answer: impl Future<Output = Result<(), NotTaken>> + Unpin,
    under_way: &mut UnderWay<'_>,
    in_trouble: &mut CopyTrouble<'_>,
) -> Result<(), NotTaken> {
    let mut may_still_break = pin!(connection.unblocked_for(USUAL_ANSWER_TIME));
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            cause = connection.ended() => {
                // The lane may still have to pass on an answer that came before the end.
                let answer = timeout(NEWS_LIMIT, answer).await;
                return answer.unwrap_or(Err(NotTaken::LaneClosed(cause)));
            }
            () = &mut may_still_break, if under_way.guards.is_some() => under_way.guards = None,
            () = connection.unblocked_for(connection.answer_timeout) => {
                // The confirm may still come, and sending the copy again would store it twice.
                in_trouble.unconfirmed();
                connection.probe();
            }
        }
    }
}
