//! Copies on their way to the broker, each with what it is a copy of. What moves, imports and edits
//! publish goes this way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lapin::{BasicProperties, ErrorKind};
use tokio::time::timeout;

use crate::parked::copies::Copy;
use crate::parked::error::ParkedError;
use crate::parked::look::BYTES_UNDER_WAY;
use crate::parked::session::Session;
use rehop::Error;
use rehop::internals::answer;
use rehop::internals::client::Connection;
use rehop::internals::short;
use rehop::internals::{CopyId, Lane, Outgoing, PublishResult};

/// How many copies may be under way if nothing else is asked for.
pub(super) const DEFAULT_IN_FLIGHT: u16 = 100;

/// Copies that the broker has not answered yet, on a channel of their own. Each is answered once,
/// unless the broker is silent. A returned one is recognised by its content, as those of a service
/// are.
pub(crate) struct UnderWay<T> {
    lane: Lane,
    /// How many copies may be under way.
    most: usize,
    /// How many were sent.
    sent: u64,
    copies: HashMap<CopyId, Sent<T>>,
    /// The size of their bodies.
    bytes: u64,
    results: FuturesUnordered<BoxFuture<'static, PublishResult>>,
}

struct Sent<T> {
    of: T,
    exchange: String,
    size: u64,
}

/// What the broker has answered to one copy. `Ok` means that it keeps the copy.
pub(crate) type Answered<T> = (T, Result<(), Unkept>);

/// Why a copy does not count as kept.
#[derive(Debug)]
pub(crate) enum Unkept {
    /// The broker did not take it, or returned it.
    Refused { exchange: String },
    /// It could not be sent, or its channel ended before its confirm. The broker may keep it all
    /// the same.
    Failed { exchange: String, error: lapin::Error },
    /// Its channel ended before it was clear whether it was returned.
    Unclear { exchange: String },
}

impl Unkept {
    /// Whether the broker has closed the channel because of one of its copies, as when a body is
    /// too large: 406.
    pub(crate) fn blames_a_copy(&self) -> bool {
        match self {
            Self::Failed { error, .. } => {
                matches!(error.kind(), ErrorKind::ProtocolError(answer) if answer.get_id() == 406)
            }
            Self::Refused { .. } | Self::Unclear { .. } => false,
        }
    }
}

impl From<Unkept> for ParkedError {
    fn from(unkept: Unkept) -> Self {
        let publishing_to = |exchange: String| format!("publishing to exchange {exchange:?}");
        match unkept {
            Unkept::Refused { exchange } => Self::Refused { to: format!("exchange {exchange}") },
            Unkept::Failed { exchange, error } => {
                Error::of_operation(publishing_to(exchange), &error).into()
            }
            Unkept::Unclear { exchange } => {
                let problem = "its channel ended before the broker had confirmed everything"
                    .to_owned()
                    .into();
                Error::Lost { what: publishing_to(exchange), problem }.into()
            }
        }
    }
}

/// How waiting for everything that was under way ended.
#[must_use]
pub(crate) struct Drained {
    /// The first error of whoever took the answers.
    pub(crate) ended: Result<(), ParkedError>,
    /// How many copies the broker did not answer in time.
    pub(crate) unanswered: u64,
}

impl<T> UnderWay<T> {
    /// `most` is how many copies may be under way at a time.
    pub(crate) async fn open(session: &Session, most: usize) -> Result<Self, Error> {
        Self::on(session.publishing_connection().await?, most, session.limit).await
    }

    async fn on(
        connection: Arc<dyn Connection>,
        most: usize,
        limit: Duration,
    ) -> Result<Self, Error> {
        let lane = answer("opening a channel", limit, Lane::open(connection, 0)).await?;
        Ok(Self {
            lane,
            most,
            sent: 0,
            copies: HashMap::new(),
            bytes: 0,
            results: FuturesUnordered::new(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.copies.len()
    }

    /// Whether a body of this size may be sent now.
    pub(crate) fn has_room(&self, size: u64) -> bool {
        has_room((self.copies.len(), self.bytes), self.most, size)
    }

    /// The copy, with this body, is sent at the next [`answers`](Self::answers).
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
        let (id, size) = (CopyId(self.sent), body.len() as u64);
        body.append(&mut overflow);
        let outgoing = Outgoing::new(to, key, Bytes::from(body), properties, write);
        self.sent += 1;
        self.bytes += size;
        self.results.push(self.lane.send(id, Arc::new(outgoing)).boxed());
        self.copies.insert(id, Sent { of, exchange, size });
        Ok(())
    }

    /// The next answers of the broker. `None` if nothing is under way. May be dropped at any time.
    pub(crate) async fn answers(&mut self) -> Option<Vec<Answered<T>>> {
        let mut results = vec![self.results.next().await?];
        while let Some(Some(result)) = self.results.next().now_or_never() {
            results.push(result);
        }
        let mut answers = Vec::new();
        for PublishResult { id, result } in &results {
            if let Err(error) = result {
                let failed = |exchange| Unkept::Failed { exchange, error: error.clone() };
                answers.extend(self.unkept(*id, failed));
            }
        }
        let judgement = self.lane.sort_results(results);
        for id in judgement.confirmed {
            answers.extend(self.take(id).map(|sent| (sent.of, Ok(()))));
        }
        for id in judgement.nacked.into_iter().chain(judgement.returned) {
            answers.extend(self.unkept(id, |exchange| Unkept::Refused { exchange }));
        }
        if self.results.is_empty() {
            // No result is to come, so nothing will tell more about these.
            let unclear: Vec<_> = self.copies.keys().copied().collect();
            for id in unclear {
                answers.extend(self.unkept(id, |exchange| Unkept::Unclear { exchange }));
            }
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

    fn unkept(&mut self, id: CopyId, why: impl FnOnce(String) -> Unkept) -> Option<Answered<T>> {
        self.take(id).map(|Sent { of, exchange, .. }| (of, Err(why(exchange))))
    }

    fn take(&mut self, id: CopyId) -> Option<Sent<T>> {
        let sent = self.copies.remove(&id)?;
        self.bytes -= sent.size;
        Some(sent)
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
