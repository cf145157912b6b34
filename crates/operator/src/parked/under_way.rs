//! Copies on their way to the broker, each with what it is a copy of. What moves, imports and edits
//! publish goes this way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lapin::BasicProperties;
use tokio::time::timeout;

use crate::parked::copies::Copy;
use crate::parked::error::ParkedError;
use crate::parked::queue_head::BYTES_UNDER_WAY;
use crate::parked::session::OperatorSession;
use rehop::Error;
use rehop::internals::answer;
use rehop::internals::client::Connection;
use rehop::internals::short;
use rehop::internals::{Lane, NotTaken, Outgoing};

/// How many copies may be under way if nothing else is asked for.
pub(super) const DEFAULT_IN_FLIGHT: u16 = 100;

/// Copies that the broker has not answered yet, on a lane of their own. Each is answered once,
/// unless the broker is silent.
pub(crate) struct UnderWay<T> {
    lane: Lane,
    /// How many copies may be under way.
    most: usize,
    /// The size of their bodies.
    bytes: u64,
    /// Each ends with its answer, and the size of its body.
    copies: FuturesUnordered<BoxFuture<'static, (Answered<T>, u64)>>,
}

/// What the broker has answered to one copy.
pub(crate) struct Answered<T> {
    pub(crate) of: T,
    /// Where it was sent.
    pub(crate) exchange: String,
    /// `Ok` means that the broker keeps it.
    pub(crate) answer: Result<(), NotTaken>,
}

/// Why a copy to this exchange does not count as kept.
pub(crate) fn not_kept(why: NotTaken, exchange: &str) -> ParkedError {
    let what = format!("publishing to exchange {exchange:?}");
    ParkedError::not_taken(why, format!("exchange {exchange}"), what)
}

/// How waiting for everything that was under way ended.
#[must_use]
pub(crate) struct Drained {
    /// The first error of whoever took the answers.
    pub(crate) ended: Result<(), ParkedError>,
    /// How many copies the broker did not answer in time.
    pub(crate) unanswered: u64,
}

impl<T: Send + 'static> UnderWay<T> {
    /// `most` is how many copies may be under way at a time.
    pub(crate) async fn open(session: &OperatorSession, most: usize) -> Result<Self, Error> {
        Self::on(session.publishing_connection().await?, most, session.limit).await
    }

    async fn on(
        connection: Arc<dyn Connection>,
        most: usize,
        limit: Duration,
    ) -> Result<Self, Error> {
        let (lane, running) = answer("opening a channel", limit, Lane::open(connection)).await?;
        tokio::spawn(running);
        Ok(Self { lane, most, bytes: 0, copies: FuturesUnordered::new() })
    }

    pub(crate) fn len(&self) -> usize {
        self.copies.len()
    }

    /// Whether a body of this size may be sent now.
    pub(crate) fn has_room(&self, size: u64) -> bool {
        has_room((self.copies.len(), self.bytes), self.most, size)
    }

    /// Sends the copy, with this body.
    ///
    /// # Errors
    ///
    /// When a name does not fit into AMQP, which those that came from the broker do.
    pub(crate) fn send(&mut self, of: T, body: Vec<u8>, copy: Copy) -> Result<(), Error> {
        let properties = copy.properties.clone();
        self.send_with(of, body, copy, move || properties.clone())
    }

    /// As [`send`](Self::send), without a clone of the copy's properties: `write` gives them again,
    /// to recognise the copy if it is returned.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub(crate) fn send_with(
        &mut self,
        of: T,
        mut body: Vec<u8>,
        copy: Copy,
        write: impl Fn() -> BasicProperties + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let Copy { exchange, routing_key, properties, mut overflow } = copy;
        let (to, key) = (short(&exchange)?, short(&routing_key)?);
        let size = body.len() as u64;
        body.append(&mut overflow);
        let outgoing = Outgoing::new(to, key, Bytes::from(body), properties, write);
        self.bytes += size;
        let answer = self.lane.send(Arc::new(outgoing));
        let answered = answer.map(move |answer| (Answered { of, exchange, answer }, size));
        self.copies.push(answered.boxed());
        Ok(())
    }

    /// The next answers of the broker. `None` if nothing is under way. May be dropped at any time.
    pub(crate) async fn answers(&mut self) -> Option<Vec<Answered<T>>> {
        let mut answers = Vec::new();
        let mut next = Some(self.copies.next().await?);
        while let Some((answered, size)) = next {
            self.bytes -= size;
            answers.push(answered);
            next = self.copies.next().now_or_never().flatten();
        }
        Some(answers)
    }

    /// Waits for the answers to everything that is under way, and has `take` take them. Ends once
    /// the broker is silent for `limit`.
    pub(crate) async fn drain(
        &mut self,
        limit: Duration,
        mut take: impl FnMut(Vec<Answered<T>>) -> Result<(), ParkedError>,
    ) -> Drained {
        let mut ended = Ok(());
        loop {
            match timeout(limit, self.answers()).await {
                Ok(Some(answers)) => ended = ended.and(take(answers)),
                Ok(None) => return Drained { ended, unanswered: 0 },
                Err(_) => return Drained { ended, unanswered: self.len() as u64 },
            }
        }
    }
}

/// How many messages may be in flight; a kill may duplicate as many.
pub(super) fn in_flight(asked: Option<u16>) -> usize {
    usize::from(asked.unwrap_or(DEFAULT_IN_FLIGHT).max(1))
}

/// Whether a body of this size may be sent while so many copies with so many bytes are under way,
/// and no more than `most` may be. One always may.
fn has_room((copies, bytes): (usize, u64), most: usize, size: u64) -> bool {
    copies == 0 || (copies < most && bytes + size <= BYTES_UNDER_WAY)
}

#[cfg(test)]
mod tests;
