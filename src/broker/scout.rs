//! A connection for what may cost neither consuming nor copies that are under way: looks, and
//! whatever declares the topology.
//!
//! The broker answers a channel that is one too many by closing the whole connection (530; 3.10,
//! 4.0 and 4.3). So short-lived channels are opened here, and a channel that is to stay on another
//! connection is tried here before. While that is done, nothing else of this service opens one:
//! see [`places`]. The scout has nothing to lose: after a refusal it waits, and comes back by
//! itself.

pub(crate) mod places;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};

use self::places::{Consumed, Place, Places};
use crate::broker::answer::answer;
use crate::broker::channel::STILL_COUNTED;
use crate::broker::client::Connection;
use crate::broker::connection::{Link, pause};
use crate::clock;
use crate::error::{Error, Limit};
use crate::lock::lock;

/// How long the broker may take to admit a channel that is only tried.
const TRIAL_LIMIT: Duration = Duration::from_secs(1);

/// How long a channel waits for its turn near a limit. Others may wait for it.
const TURN_LIMIT: Duration = Duration::from_secs(10);

/// The most channels that are tried at the same time.
const MOST_TRIED: usize = 8;

/// For how long after a refusal channels are opened one at a time, and none is risked beside a queue
/// that is consumed. Then the limit is tried again, as there may be room by now. If there is none,
/// that costs a connection, so the time doubles.
const NARROW_FOR: Duration = Duration::from_secs(10);

/// The longest time of that kind.
const NARROW_FOR_AT_MOST: Duration = Duration::from_secs(5 * 60);

/// The way to that connection, and what is known of the broker's limits.
pub(crate) struct Scout {
    link: Arc<Link>,
    refused: Mutex<Option<Refused>>,
    narrow: Mutex<Option<Narrow>>,
    /// The last work was done on another connection.
    works_elsewhere: AtomicBool,
    turn: tokio::sync::Mutex<()>,
    places: Arc<Places>,
    most_consumers: AtomicU16,
}

/// A limit was reached, and nothing has been admitted since then.
struct Refused {
    error: Error,
    times: u32,
    /// Nothing is tried before.
    until: Instant,
}

/// A channel was refused.
struct Narrow {
    error: Error,
    /// How many queues were consumed, so that there is room for as many.
    consumed: usize,
    until: Instant,
    lasts: Duration,
}

impl Scout {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            refused: Mutex::default(),
            narrow: Mutex::default(),
            works_elsewhere: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
            places: Arc::default(),
            most_consumers: AtomicU16::new(u16::MAX),
        }
    }

    /// The time limit for one answer of the broker.
    pub(crate) fn answer_timeout(&self) -> Duration {
        self.link.answer_timeout()
    }

    /// Whether it has no connection, so that what may not fail is done on another one.
    pub(crate) fn works_elsewhere(&self) -> bool {
        self.works_elsewhere.load(Ordering::Relaxed)
    }

    /// How many of so many channels to open at the same time. Where a refusal would cost another
    /// connection, two at most.
    pub(crate) fn at_once(&self, wanted: usize) -> usize {
        match (self.is_narrow(), self.works_elsewhere()) {
            (true, _) => 1,
            (false, true) => wanted.min(2),
            (false, false) => wanted,
        }
    }

    /// Whether a channel was refused lately, so that one more on another connection is a risk.
    pub(crate) fn is_narrow(&self) -> bool {
        self.known_limit().is_some()
    }

    /// How many consumers a channel may have, as far as is known.
    pub(crate) fn most_consumers(&self) -> usize {
        self.most_consumers.load(Ordering::Relaxed).into()
    }

    /// The broker has refused a consumer.
    pub(crate) fn set_most_consumers(&self, most: u16) {
        self.most_consumers.store(most.max(1), Ordering::Relaxed);
    }

    /// Does something on the connection. `instead` is used if no further connection can be opened:
    /// then a service works with two. But while a queue is consumed, a channel that a known limit
    /// may refuse is not risked: it would cost the connection.
    ///
    /// # Errors
    ///
    /// That of `work`, and when there is no connection. After a limit was reached, that is the
    /// error for some seconds.
    pub(crate) async fn visit<T, F: Future<Output = Result<T, Error>>>(
        &self,
        instead: Option<&Arc<dyn Connection>>,
        work: impl FnOnce(Arc<dyn Connection>) -> F,
    ) -> Result<T, Error> {
        // Others have their turn while this is dialed.
        let dialed = self.connection().await;
        let _turn = if self.is_narrow() { Some(self.turn.lock().await) } else { None };
        let connection = match (dialed, instead) {
            // A limit of channels holds for the other connection, too.
            (Err(error), Some(instead)) if error.limit().is_none_or(Limit::is_of_connections) => {
                self.works_elsewhere.store(true, Ordering::Relaxed);
                if let Some(error) = self.known_limit().filter(|_| self.is_at_risk()) {
                    return Err(error);
                }
                let done = work(self.places.counted(instead.clone())).await;
                let done = done.inspect_err(|error| self.note_limit(error));
                // What follows is not tried.
                tokio::time::sleep(STILL_COUNTED).await;
                return done;
            }
            (got, _) => got?,
        };
        self.works_elsewhere.store(false, Ordering::Relaxed);
        let done = work(self.places.counted(connection.clone())).await;
        match &done {
            Ok(_) => self.admitted(),
            Err(error) => self.failed(&connection, error),
        }
        done
    }

    /// A place for a channel that consumes a queue. Until the second value is dropped, nothing is
    /// risked that could cost that channel.
    ///
    /// # Errors
    ///
    /// As [`place`](Self::place); but while no queue is consumed, or fewer than before the last
    /// refusal, a limit that is only known from before keeps none from being consumed.
    pub(crate) async fn place_to_consume(&self) -> Result<(Place, Consumed), Error> {
        let place = self.place_with(|| self.is_at_risk()).await?;
        let consumed = self.places.consumed();
        Ok((place, consumed))
    }

    /// A place for a channel that is to stay on another connection, with something to lose. Nothing
    /// else of this service opens a channel until it is used or dropped.
    ///
    /// # Errors
    ///
    /// If the broker would refuse the channel because of a limit or, when it answered last, did.
    /// Whatever else is wrong is left to whoever opens the channel.
    pub(crate) async fn place(&self) -> Result<Place, Error> {
        self.place_with(|| true).await
    }

    /// `is_at_risk`: whether something would be lost with a channel that is refused.
    async fn place_with(&self, is_at_risk: impl Fn() -> bool) -> Result<Place, Error> {
        // Others open channels while this is dialed.
        let dialed = tokio::time::timeout(2 * TRIAL_LIMIT, self.connection()).await;
        let _turn = match self.known_limit() {
            // A look may have the only channel.
            Some(limit) => {
                let turn = tokio::time::timeout(TURN_LIMIT, self.turn.lock()).await;
                Some(turn.map_err(|_| limit)?)
            }
            None => None,
        };
        let (place, others) = self.places.take().await;
        if self.places.take_tried() {
            return Ok(place);
        }
        let wanted = self.at_once((1 + others).min(MOST_TRIED));
        let (tried, refused) = match dialed {
            Ok(Ok(connection)) => {
                let trying = self.try_channels(&connection, wanted);
                let tried = tokio::time::timeout(2 * TRIAL_LIMIT, trying).await;
                // A broker that is too slow to answer has no more room for that.
                (tried.ok().and_then(Result::ok), self.refused_channel())
            }
            // The last channel was refused a moment ago.
            Ok(Err(error)) if error.limit().is_some_and(|limit| !limit.is_of_connections()) => {
                (None, Some(error))
            }
            _ => (None, None),
        };
        let limit = || refused.or_else(|| self.known_limit().filter(|_| is_at_risk()));
        if tried.is_none()
            && let Some(error) = limit()
        {
            return Err(error);
        }
        // Those who wait would not find out more.
        self.places.tried(tried.unwrap_or(wanted) - 1);
        Ok(place)
    }

    /// A place for a channel of a connection that has nothing to lose yet.
    pub(crate) async fn untried_place(&self) -> Place {
        let (place, _) = self.places.take().await;
        self.places.take_tried();
        place
    }

    /// Opens so many channels at the same time, or as many as the connection may have, and closes
    /// them. Returns how many it were.
    async fn try_channels(
        &self,
        connection: &Arc<dyn Connection>,
        wanted: usize,
    ) -> Result<usize, Error> {
        // Looks need some, too.
        let count = wanted.min((connection.channel_max() / 2).max(1).into());
        let open = |_| answer("opening a channel", TRIAL_LIMIT, connection.open_channel());
        let opened = try_join_all((0..count).map(open)).await;
        let channels = opened.inspect_err(|error| self.failed(connection, error))?;
        self.admitted();
        let close = channels
            .iter()
            .map(|channel| answer("closing a channel", TRIAL_LIMIT, channel.close("done")));
        let _ = join_all(close).await;
        tokio::time::sleep(STILL_COUNTED).await;
        Ok(count)
    }

    pub(crate) async fn close(&self) {
        self.link.close().await;
    }

    /// The limit of channels that was reached, if none was admitted since then.
    fn refused_channel(&self) -> Option<Error> {
        let error = lock(&self.refused).as_ref().map(|refused| refused.error.clone());
        error.filter(|error| error.limit().is_some_and(|limit| !limit.is_of_connections()))
    }

    /// Whether a refusal would cost what is consumed, and there is not surely room.
    fn is_at_risk(&self) -> bool {
        let before = lock(&self.narrow).as_ref().map_or(0, |narrow| narrow.consumed);
        self.places.count_consumed() >= before.max(1)
    }

    /// The limit of channels that was reached lately.
    fn known_limit(&self) -> Option<Error> {
        let narrow = lock(&self.narrow);
        let is_recent = |narrow: &&Narrow| clock::now() < narrow.until;
        narrow.as_ref().filter(is_recent).map(|narrow| narrow.error.clone())
    }

    async fn connection(&self) -> Result<Arc<dyn Connection>, Error> {
        let refused = lock(&self.refused)
            .as_ref()
            .filter(|it| clock::now() < it.until)
            .map(|refused| refused.error.clone());
        if let Some(error) = refused {
            return Err(error);
        }
        let got = self.link.get().await;
        if let Err(error) = &got {
            self.note_limit(error);
        }
        got
    }

    /// Something was done, so no limit keeps the connection from that.
    fn admitted(&self) {
        if lock(&self.refused).take().is_some() {
            tracing::info!("there is room for looks and repairs again");
        }
    }

    /// Something on this connection has failed.
    fn failed(&self, connection: &Arc<dyn Connection>, error: &Error) {
        self.note_limit(error);
        self.link.leave(connection, error);
    }

    /// Remembers that a limit is reached. This is said once, until something is done again.
    pub(crate) fn note_limit(&self, error: &Error) {
        let Some(limit) = error.limit().filter(|limit| limit.is_of_the_client()) else { return };
        if !limit.is_of_connections() {
            self.note_channel(error);
        }
        let (mut refused, now) = (lock(&self.refused), clock::now());
        let times = match &*refused {
            // Others were refused together with it.
            Some(refused) if now < refused.until => return,
            Some(refused) => refused.times.saturating_add(1),
            None => 0,
        };
        if times == 0 {
            let meanwhile = if limit.is_of_connections() {
                " on a connection of their own; meanwhile, parked and stray messages are counted only while no copy is under way"
            } else {
                "; consuming goes on, meanwhile parked and stray messages are not counted, and rehop keeps trying"
            };
            tracing::warn!(%error, "a limit leaves no room for looks and repairs{meanwhile}");
        }
        *refused = Some(Refused { error: error.clone(), times, until: now + pause(times) });
    }

    /// Several that are refused together count once.
    fn note_channel(&self, error: &Error) {
        let (mut narrow, now) = (lock(&self.narrow), clock::now());
        let lasts = match &*narrow {
            Some(narrow) if now < narrow.until => narrow.lasts,
            Some(narrow) if now < narrow.until + NARROW_FOR_AT_MOST => {
                (2 * narrow.lasts).min(NARROW_FOR_AT_MOST)
            }
            _ => NARROW_FOR,
        };
        let consumed = self.places.count_consumed();
        *narrow = Some(Narrow { error: error.clone(), consumed, until: now + lasts, lasts });
        self.places.tried(0);
    }
}
