//! Copies on their way to the broker, each with the message that it takes the place of.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lapin::BasicProperties;

use crate::parked::copies::Copy;
use crate::parked::error::ParkedError;
use crate::parked::look::Held;
use crate::parked::prefetch::BYTES_UNDER_WAY;
use crate::parked::session::Session;
use crate::telemetry::RestSpan;
use rehop::Error;
use rehop::internals::answer;
use rehop::internals::short;
use rehop::internals::{CopyId, Lane, LaneId, Outgoing, PublishResult};

/// There is only one lane.
const LANE: LaneId = LaneId(0);

/// Copies that the broker has not answered yet. A returned one is recognised by its content, as those of a service are.
pub(crate) struct UnderWay {
    lane: Lane,
    sent: u64,
    originals: HashMap<CopyId, Original>,
    /// The size of their bodies.
    bytes: u64,
    results: FuturesUnordered<BoxFuture<'static, PublishResult>>,
}

/// What a copy takes the place of.
pub(crate) struct Original {
    pub(crate) held: Held,
    /// The exchange that the copy was sent to.
    to: String,
    size: u64,
    span: Option<RestSpan>,
}

/// What the broker has answered. `Ok` means that it keeps the copy.
pub(crate) type Answered = (Held, Result<(), ParkedError>);

impl UnderWay {
    pub(crate) async fn open(session: &Session) -> Result<Self, Error> {
        let connection = session.publishing_connection().await?;
        let lane = answer("opening a channel", session.limit, Lane::open(connection, 0)).await?;
        Ok(Self { lane, sent: 0, originals: HashMap::new(), bytes: 0, results: FuturesUnordered::new() })
    }

    pub(crate) fn len(&self) -> usize {
        self.originals.len()
    }

    /// Whether a body of this size may be sent while so many copies may be under way.
    pub(crate) fn has_room(&self, most: usize, size: u64) -> bool {
        has_room((self.originals.len(), self.bytes), most, size)
    }

    /// Takes the body out of the message. The copy is sent at the next [`answers`](Self::answers). `write` gives the
    /// copy's properties again.
    ///
    /// # Errors
    ///
    /// When a name does not fit into AMQP, which those that came from the broker do.
    pub(crate) fn send(
        &mut self,
        mut held: Held,
        copy: Copy,
        write: impl Fn() -> BasicProperties + Send + Sync + 'static,
        span: Option<RestSpan>,
    ) -> Result<(), Error> {
        let Copy { exchange, routing_key, properties, mut overflow } = copy;
        let (to, key) = (short(&exchange)?, short(&routing_key)?);
        let (id, mut body) = (CopyId(self.sent), std::mem::take(&mut held.delivery.data));
        let size = body.len() as u64;
        body.append(&mut overflow);
        let outgoing = Outgoing::new(to, key, Bytes::from(body), properties, write);
        self.sent += 1;
        self.bytes += size;
        self.results.push(self.lane.send(LANE, id, Arc::new(outgoing)).boxed());
        self.originals.insert(id, Original { held, to: exchange, size, span });
        Ok(())
    }

    /// The next answers of the broker. `None` if nothing is under way. May be dropped at any time.
    pub(crate) async fn answers(&mut self) -> Option<Vec<Answered>> {
        let mut results = vec![self.results.next().await?];
        while let Some(Some(result)) = self.results.next().now_or_never() {
            results.push(result);
        }
        let mut answers = Vec::new();
        for PublishResult { id, result, .. } in &results {
            if let Err(error) = result
                && let Some(Original { held, to, .. }) = self.take(*id, false)
            {
                let error = Error::of_operation(format!("publishing to exchange {to:?}"), error);
                answers.push((held, Err(error.into())));
            }
        }
        let judgement = self.lane.sort_results(results.into_iter().map(|it| (it.id, it.result)).collect());
        for id in judgement.confirmed {
            answers.extend(self.take(id, true).map(|original| (original.held, Ok(()))));
        }
        for id in judgement.nacked.into_iter().chain(judgement.returned) {
            if let Some(Original { held, to, .. }) = self.take(id, false) {
                answers.push((held, Err(ParkedError::Refused { to: format!("exchange {to}") })));
            }
        }
        Some(answers)
    }

    fn take(&mut self, id: CopyId, is_kept: bool) -> Option<Original> {
        let mut original = self.originals.remove(&id)?;
        self.bytes -= original.size;
        if let Some(span) = original.span.as_mut().filter(|_| !is_kept) {
            span.failed("unconfirmed");
        }
        Some(original)
    }
}

/// Whether a body of this size may be sent while so many copies with so many bytes are under way, and no more than `most` may be. One
/// always may.
pub(super) fn has_room((copies, bytes): (usize, u64), most: usize, size: u64) -> bool {
    copies == 0 || (copies < most && bytes + size <= BYTES_UNDER_WAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_within_both_bounds_and_always_for_one() {
        const MIB: u64 = 1024 * 1024;
        for (under_way, most, size, expected) in [
            // The number of copies.
            ((99, 99), 100, 1, true),
            ((100, 100), 100, 1, false),
            ((1, 1), 1, 1, false),
            // Their bytes.
            ((7, 56 * MIB), 100, 8 * MIB, true),
            ((7, 56 * MIB), 100, 8 * MIB + 1, false),
            ((4, 64 * MIB), 100, 0, true),
            ((4, 64 * MIB), 100, 1, false),
            // One alone, whatever its size.
            ((0, 0), 100, 500 * MIB, true),
            ((0, 0), 1, 0, true),
            ((1, 500 * MIB), 100, 0, false),
        ] {
            assert_eq!(has_room(under_way, most, size), expected, "{under_way:?}, {most}, {size}");
        }
    }
}
