//! Publishes copies: the flow of one, and the task that keeps a connection for all.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::Either;
use tokio::sync::{Notify, RwLock, Semaphore, oneshot, watch};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::Unpublishable;
use super::exchange::{Exchange, InTrouble, LOOK_EVERY};
use super::retries::{End, Next, Retries, Verdict, Way};
use super::running_lane::{Answer, RunningLane};
use super::session::{NEWS_LIMIT, Session, USUAL_ANSWER_TIME};
use crate::broker::connection::{Link, pause};
use crate::broker::keeper::Keeper;
use crate::broker::lane::Outgoing;
use crate::broker::lane::cause::{Cause, Trouble};
use crate::clock;

/// How many copies are tried on lanes of their own at once. Those whose confirm takes longer than usual do not count.
pub(super) const TRIALS: usize = 16;

/// The shortest time between two repairs of the topology.
const REPAIR_EVERY: Duration = Duration::from_secs(5);

/// A connection that lasted this long does not count as failed.
const STEADY_AFTER: Duration = Duration::from_secs(10);

/// Publishes copies, each until the broker has confirmed it.
///
/// A *lane* is one confirming channel. Each exchange has one, which carries every copy in good standing, as many at once as there are. If the
/// broker closes it over the exchange, the exchange is *in doubt*: its copies wait, and after a pause one of them finds out whether it takes copies
/// again. A copy that the broker refuses, or that may have closed its lane, is tried alone, on a lane of its own and after pauses that grow. So it
/// neither holds up nor multiplies the others, whatever the broker does about it.
#[derive(Clone)]
pub(crate) struct CopyPublisher(Arc<Shared>);

struct Shared {
    link: Arc<Link>,
    keeper: Arc<Keeper>,
    retried: Box<dyn Fn(&str) + Send + Sync>,
    /// The connection, while there is one.
    session: watch::Sender<Option<Arc<Session>>>,
    exchanges: Mutex<BTreeMap<String, Arc<Exchange>>>,
    /// Held by each copy for as long as it may still break the connection; by one that is suspected of that, with nothing beside it.
    connection: RwLock<()>,
    trials: Semaphore,
    repair_wanted: Notify,
}

impl CopyPublisher {
    /// Starts the task that keeps the connection, which ends by itself only if it panics. The lanes of these `exchanges` are opened before their
    /// first copies. `retried` is told the exchange of each copy that has to be sent again.
    pub(crate) fn start(
        link: Arc<Link>,
        keeper: Arc<Keeper>,
        exchanges: impl IntoIterator<Item = String>,
        retried: impl Fn(&str) + Send + Sync + 'static,
    ) -> (Self, AbortOnDropHandle<()>) {
        let named = |name: String| (name.clone(), Arc::new(Exchange::new(&name)));
        let publisher = Self(Arc::new(Shared {
            link,
            keeper,
            retried: Box::new(retried),
            session: watch::Sender::new(None),
            exchanges: Mutex::new(exchanges.into_iter().map(named).collect()),
            connection: RwLock::default(),
            trials: Semaphore::new(TRIALS),
            repair_wanted: Notify::new(),
        }));
        let keeping = publisher.clone();
        let keep = async move {
            tokio::join!(keeping.keep_connected(), keeping.keep_repaired(), keeping.look_at_exchanges());
        };
        (publisher, AbortOnDropHandle::new(tokio::spawn(keep)))
    }

    /// Publishes a copy and returns when the broker has confirmed it, however long that takes. Dropping the future gives the
    /// copy up.
    ///
    /// # Errors
    ///
    /// When the broker closes the channel over this very copy each time.
    pub(crate) async fn publish(&self, copy: Arc<Outgoing>) -> Result<(), Unpublishable> {
        let exchange = self.exchange(copy.exchange.as_str());
        let exchange = &*exchange;
        let (mut retries, mut in_trouble) = (Retries::default(), InTrouble::not_yet(exchange));
        let mut was_sent = false;
        loop {
            let end = match self.send(exchange, &copy, retries.way(), &mut was_sent, &mut in_trouble).await {
                Ok(()) => return Ok(()),
                Err(end) => end,
            };
            let Verdict { next, trouble, takes_none } = retries.after(&end);
            if let Some(trouble) = trouble {
                in_trouble.note(trouble, end.text());
            }
            if takes_none {
                exchange.takes_none();
            }
            if matches!(trouble, Some(Trouble::Missing | Trouble::Unroutable)) {
                exchange.needs_repair();
                self.0.repair_wanted.notify_one();
            }
            match next {
                Next::Again => {}
                Next::Rest(tries) => sleep(pause(tries)).await,
                Next::Unpublishable => return Err(Unpublishable(end.text().to_owned())),
            }
        }
    }

    /// Sends a copy once, when nothing stands against that, and waits for its confirm. Sets `was_sent` if it was sent.
    async fn send(
        &self,
        exchange: &Exchange,
        copy: &Arc<Outgoing>,
        way: Way,
        was_sent: &mut bool,
        in_trouble: &mut InTrouble<'_>,
    ) -> Result<(), End> {
        let Shared { connection, trials, retried, .. } = &*self.0;
        loop {
            let session = self.session().await;
            let may_send = || !session.is_over() && !session.connection.is_blocked() && exchange.is_ready();
            exchange.ready().await;
            session.unblocked().await;
            let finds_out = match exchange.is_doubtful() {
                // Another one may have found out meanwhile.
                true => Some(exchange.finding_out.lock().await).filter(|_| exchange.is_doubtful()),
                false => None,
            };
            // One that finds out has a lane of its own, too, so that it closes no other's.
            let is_alone = way != Way::Together || finds_out.is_some();
            let trial = if is_alone { trials.acquire().await.ok() } else { None };
            let turn = match way {
                Way::Exclusively => Either::Left(connection.write().await),
                Way::Together | Way::Alone => Either::Right(connection.read().await),
            };
            if !may_send() {
                continue;
            }
            let opened = if is_alone { RunningLane::open(&session).await } else { exchange.lane(&session).await };
            let lane = match opened {
                Ok(lane) => lane,
                Err(cause) => return Err(not_sent(&session, cause).await),
            };
            if !may_send() {
                continue;
            }
            let (sent_at, answer) = (session.sends(), lane.send(copy.clone()));
            drop(lane);
            let Some(answer) = wait(&session, answer, (turn, trial, finds_out), in_trouble).await else { continue };
            if std::mem::replace(was_sent, true) {
                retried(&exchange.name);
            }
            return match answer {
                Answer::Confirmed => {
                    session.confirms();
                    exchange.takes_copies(sent_at);
                    if is_alone {
                        exchange.renew_lane();
                    }
                    Ok(())
                }
                Answer::Refused => {
                    exchange.takes_copies(sent_at);
                    Err(End::Refused)
                }
                Answer::Returned => {
                    exchange.takes_copies(sent_at);
                    Err(End::Returned)
                }
                Answer::Closed(cause) => Err(match session.end_of_lane(cause).await {
                    Ok(cause) => End::LaneClosed { cause, is_recent: clock::elapsed(sent_at) < USUAL_ANSWER_TIME },
                    Err(cause) => End::Disconnected { cause, is_recent: session.may_have_ended_over(sent_at) },
                }),
            };
        }
    }

    /// A connection that copies can be sent on, with the topology declared: an exchange without its bindings would send everything to the stray
    /// queue.
    async fn session(&self) -> Arc<Session> {
        let works = |session: &Option<Arc<Session>>| session.as_ref().is_some_and(|session| !session.is_over());
        let session = self.0.session.subscribe().wait_for(works).await.ok().and_then(|session| session.clone());
        match session {
            Some(session) => session,
            // The sender lives as long as `self`.
            None => std::future::pending().await,
        }
    }

    async fn keep_connected(&self) {
        let Shared { link, keeper, .. } = &*self.0;
        let (mut failures, mut logged) = (0, None);
        loop {
            let problem = match link.get().await {
                Ok(connection) => {
                    logged = None;
                    let (since, events) = (clock::now(), connection.events());
                    // Copies wait for this, so the limit is for all parts together, not for each.
                    let _ = timeout(link.answer_timeout(), keeper.repair()).await;
                    let session = Session::new(connection.clone(), link.answer_timeout());
                    self.0.session.send_replace(Some(session.clone()));
                    let (cause, ()) = tokio::join!(session.run(events), self.open_lanes(&session));
                    self.0.session.send_replace(None);
                    link.abandon(&connection);
                    if session.has_confirmed() || clock::elapsed(since) >= STEADY_AFTER {
                        failures = 0;
                    }
                    cause.text
                }
                Err(error) => error.to_string(),
            };
            if logged.as_ref() != Some(&problem) {
                tracing::warn!(cause = %problem, "cannot publish; reconnecting");
                logged = Some(problem);
            }
            sleep(pause(failures)).await;
            failures += 1;
        }
    }

    async fn open_lanes(&self, session: &Arc<Session>) {
        for exchange in self.exchanges() {
            // The first copy finds out what is wrong.
            let _ = exchange.lane(session).await;
        }
    }

    async fn keep_repaired(&self) {
        loop {
            self.0.repair_wanted.notified().await;
            let next = tokio::time::Instant::now() + REPAIR_EVERY;
            let exchanges = self.exchanges();
            exchanges.iter().for_each(|exchange| exchange.begin_repair());
            // Copies wait for this, too.
            let _ = timeout(self.0.link.answer_timeout(), self.0.keeper.repair()).await;
            exchanges.iter().for_each(|exchange| exchange.end_repair());
            sleep_until(next).await;
        }
    }

    async fn look_at_exchanges(&self) {
        loop {
            sleep(LOOK_EVERY).await;
            self.exchanges().iter().for_each(|exchange| exchange.look());
        }
    }

    fn exchange(&self, name: &str) -> Arc<Exchange> {
        let mut exchanges = self.0.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(exchange) = exchanges.get(name) {
            return exchange.clone();
        }
        exchanges.entry(name.to_owned()).or_insert_with(|| Arc::new(Exchange::new(name))).clone()
    }

    fn exchanges(&self) -> Vec<Arc<Exchange>> {
        self.0.exchanges.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// Why a copy could not be sent for which no lane could be opened.
async fn not_sent(session: &Session, cause: Cause) -> End {
    match session.end_of_lane(cause).await {
        Ok(cause) => End::NoLane(cause),
        Err(cause) => End::Disconnected { cause, is_recent: false },
    }
}

/// Waits for the answer to a copy. `None` if it was not sent. Drops `held` as soon as the copy breaks nothing any more.
async fn wait<T>(
    session: &Arc<Session>,
    mut answer: oneshot::Receiver<Answer>,
    held: T,
    in_trouble: &mut InTrouble<'_>,
) -> Option<Answer> {
    let (mut held, mut usual) = (Some(held), pin!(session.usual_answer_time()));
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return answer.ok(),
            cause = session.ended() => {
                // An answer that has come before the end holds.
                let answer = timeout(NEWS_LIMIT, answer).await.ok().and_then(Result::ok);
                return Some(answer.unwrap_or(Answer::Closed(cause)));
            }
            () = &mut usual, if held.is_some() => held = None,
            () = sleep(session.limit) => if !session.connection.is_blocked() {
                // On a live connection the confirm still comes, and sending the copy again would store it twice.
                in_trouble.note(Trouble::Unconfirmed, "");
                session.probe();
            },
        }
    }
}
