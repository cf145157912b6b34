//! When a copy may be sent, and what it is sent with.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::Either;
use tokio::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard, SemaphorePermit};
use tokio::time::timeout;

use super::exchange::Exchange;
use super::publishing_connection::{NEWS_LIMIT, PublishingConnection, USUAL_ANSWER_TIME};
use super::retries::{Guilt, Way};
use super::shared::Shared;
use super::trouble::CopyTrouble;
use crate::broker::connection::unblocked;
use crate::broker::lane::{Lane, NotTaken, Outgoing};

/// Lets a copy be sent once.
pub(super) struct Admission<'a> {
    exchange: &'a Exchange,
    connection: Arc<PublishingConnection>,
    lane: Lane,
    has_own_lane: bool,
    /// Until the copy is unlikely to break anything any more.
    guards: Option<Guards<'a>>,
    is_answered: bool,
}

/// Whether the copy finds out if its exchange takes copies, one of the trials or the turn to be
/// alone, and the lock of what may break the connection.
type Guards<'a> = (
    Option<MutexGuard<'a, ()>>,
    Option<SemaphorePermit<'a>>,
    Either<RwLockWriteGuard<'a, ()>, RwLockReadGuard<'a, ()>>,
);

impl<'a> Admission<'a> {
    /// Waits until nothing stands against sending a copy in this way.
    pub(super) async fn of(
        shared: &'a Shared,
        exchange: &'a Exchange,
        way: Way,
    ) -> Result<Self, NotTaken> {
        let Shared { may_break, alone, trials, .. } = shared;
        loop {
            let connection = shared.connected().await;
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
                let guards = Some((finds_out, trial, breaking));
                let is_answered = false;
                return Ok(Self { exchange, connection, lane, has_own_lane, guards, is_answered });
            }
        }
    }

    /// Sends the copy, and waits for its confirm.
    pub(super) async fn send(
        mut self,
        copy: &Arc<Outgoing>,
        in_trouble: &mut CopyTrouble<'_>,
    ) -> Result<(), (NotTaken, Guilt)> {
        let (exchange, connection) = (self.exchange, self.connection.clone());
        let has_own_lane = self.has_own_lane;
        let sent_at = connection.note_send();
        let answer = self.lane.send_unless_blocked(copy.clone());
        let answer = self.answer(answer, in_trouble).await;
        self.is_answered = true;
        // What follows may take time. The lane goes on for as long as somebody waits for its answer.
        drop(self);
        let answer = match answer {
            Err(NotTaken::LaneClosed(cause)) => Err(connection.not_taken(cause).await),
            answer => answer,
        };
        if matches!(answer, Ok(()) | Err(NotTaken::Nacked | NotTaken::Returned)) {
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

    /// Waits for the answer to the copy. Drops its guards once it is unlikely to break anything any
    /// more.
    async fn answer(
        &mut self,
        mut answer: impl Future<Output = Result<(), NotTaken>> + Unpin,
        in_trouble: &mut CopyTrouble<'_>,
    ) -> Result<(), NotTaken> {
        let connection = &self.connection;
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
                () = &mut may_still_break, if self.guards.is_some() => self.guards = None,
                () = connection.unblocked_for(connection.answer_timeout) => {
                    // The confirm may still come, and sending the copy again would store it twice.
                    in_trouble.unconfirmed();
                    connection.probe();
                }
            }
        }
    }
}

/// The copy may have been given up. The answer that did not come by then is not likely to come
/// soon.
impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.guards.is_none() {
            self.exchange.retire_lane(&self.lane);
        }
    }
}
