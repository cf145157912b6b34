//! Exports messages, and imports them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::pin::pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lapin::Confirmation;
use serde::Serialize;
use tokio::time::timeout;

use crate::broker::name::short;
use crate::error::Error;
use crate::parked::error::ParkedError;
use crate::parked::export::Exported;
use crate::parked::filter::{Content, Filter};
use crate::parked::headers::headers_json;
use crate::parked::message::Raw;
use crate::parked::operator::Parked;
use crate::parked::order::now;
use crate::parked::place::Place;
use crate::parked::session::Session;
use crate::publish::channel;

/// How many imported messages may be unconfirmed.
const IMPORTED_AT_ONCE: usize = 100;

/// How an import ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Imported {
    /// Published to the parked queue, and confirmed.
    pub imported: u64,
    /// Left out because the queue has them, by chain and body.
    pub already_there: u64,
    /// Whether it was told to stop before the end.
    pub is_stopped: bool,
}

impl Parked {
    /// Hands each message that passes to `sink`, which stops the export by `false`. The messages stay in the queue. Returns how many were
    /// exported.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub async fn export(
        &self,
        filter: &Filter,
        window: Option<u64>,
        mut sink: impl FnMut(Exported) -> bool,
    ) -> Result<u64, ParkedError> {
        let session = self.session().await?;
        let (mut exported, now) = (0, now());
        let scanned = self
            .scan(&session, window, |message, held| {
                let (properties, body) = (&held.delivery.properties, &held.delivery.data[..]);
                let headers = || headers_json(properties);
                if filter.limit.is_some_and(|limit| exported >= limit) {
                    return ControlFlow::Break(());
                }
                if !filter.passes(&message, &Content::new(body, &headers), now) {
                    return ControlFlow::Continue(());
                }
                let copy = self.interpreter.imported(&message, "", properties).map(|copy| copy.properties);
                let properties = copy.as_ref().unwrap_or(properties);
                exported += 1;
                match sink(Exported::of(&message, properties, body, &self.mask)) {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })
            .await;
        session.close().await;
        scanned.map(|_| exported)
    }

    /// Publishes exported messages to the parked queue, in their order, each confirmed. A message that the queue already has, by chain and
    /// body, is left out: so an import that was interrupted can be run again, and makes at most a hundred duplicates.
    ///
    /// # Errors
    ///
    /// When a message is not an exported one or is masked, as [`list`](Self::list), and when the queue refuses one. Those before it may be
    /// in the queue.
    pub async fn import(
        &self,
        messages: impl IntoIterator<Item = Result<Exported, ParkedError>>,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Imported, ParkedError> {
        let Place::Queue(queue) = &self.interpreter.place else { return Err(ParkedError::NotParked) };
        let session = self.session().await?;
        let imported = self.import_in(&session, queue, messages, stop).await;
        session.close().await;
        imported
    }

    async fn import_in(
        &self,
        session: &Session,
        queue: &str,
        messages: impl IntoIterator<Item = Result<Exported, ParkedError>>,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Imported, ParkedError> {
        let mut there: HashMap<u64, u32> = HashMap::new();
        self.scan(session, None, |message, held| {
            *there.entry(identity(&message.chain, &held.delivery.data)).or_default() += 1;
            ControlFlow::Continue(())
        })
        .await?;
        let publishing = session.publishing_channel().await?;
        let (mut imported, mut in_flight, mut stop) = (Imported::default(), FuturesUnordered::new(), pin!(stop));
        let mut problem = None;
        for (line, message) in (1..).zip(messages) {
            let (properties, body, copy) = match message.and_then(|message| self.prepared(&message, queue, line)) {
                Ok(prepared) => prepared,
                Err(error) => {
                    problem = Some(error);
                    break;
                }
            };
            if let Some(left) = there.get_mut(&identity(&copy, &body)).filter(|left| **left > 0) {
                *left -= 1;
                imported.already_there += 1;
                continue;
            }
            let (exchange, key) = (short(&properties.exchange)?, short(&properties.routing_key)?);
            let publishing = publishing.clone();
            in_flight.push(async move {
                channel::publish(&publishing, exchange, key, &body, properties.properties, true).await
            });
            if in_flight.len() >= IMPORTED_AT_ONCE {
                tokio::select! {
                    biased;
                    () = stop.as_mut() => imported.is_stopped = true,
                    Some(result) = in_flight.next() => problem = confirmed(result, &mut imported).err(),
                }
            }
            if imported.is_stopped || problem.is_some() {
                break;
            }
        }
        loop {
            let what = "confirming imported messages".to_owned();
            match timeout(session.limit, in_flight.next()).await {
                Ok(Some(result)) => problem = problem.or(confirmed(result, &mut imported).err()),
                Ok(None) => break,
                Err(_) => return Err(Error::Timeout { what, limit: session.limit }.into()),
            }
        }
        tracing::info!(queue = self.queue, run = session.run, imported = imported.imported, "import ended");
        problem.map_or(Ok(imported), Err)
    }

    /// The copy to publish, its body and its chain.
    fn prepared(
        &self,
        exported: &Exported,
        queue: &str,
        line: u64,
    ) -> Result<(crate::parked::copies::Copy, Vec<u8>, String), ParkedError> {
        let bad = |problem: String| ParkedError::BadLine { line, problem };
        let (properties, body) = exported.content().map_err(bad)?;
        let park = self.interpreter.names.park();
        let queue = match exported.destination.as_deref() {
            // Only queues that share this parked queue.
            Some(other) if other != queue => {
                let parked = self.resolved.queue(other).map_err(|error| bad(error.to_string()))?.parked;
                if parked != self.queue {
                    return Err(bad(format!(
                        "its message belongs to queue {other:?}, which parks in {parked:?}; import it there"
                    )));
                }
                other
            }
            _ => queue,
        };
        let raw = Raw { exchange: &park, routing_key: queue, properties: &properties, body: &body, redelivered: false };
        let mut message = self.interpreter.read(raw, line);
        (message.chain, message.reason) = (exported.chain.clone(), exported.reason.clone());
        (message.exchange, message.routing_key) = (exported.exchange.clone(), exported.routing_key.clone());
        message.parked_at = exported.parked_at.map(crate::Timestamp::from_millis);
        let copy = self.interpreter.imported(&message, queue, &properties);
        let copy = copy.map_err(|problem| bad(format!("it cannot be copied: {problem:?}")))?;
        Ok((copy, body, exported.chain.clone()))
    }
}

fn identity(chain: &str, body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (chain, body).hash(&mut hasher);
    hasher.finish()
}

fn confirmed(result: lapin::Result<Confirmation>, imported: &mut Imported) -> Result<(), ParkedError> {
    match result {
        Ok(Confirmation::Ack(None)) => {
            imported.imported += 1;
            Ok(())
        }
        Ok(_) => Err(ParkedError::Refused { to: "the parked queue".to_owned() }),
        Err(error) => Err(Error::of_operation("publishing an imported message", &error).into()),
    }
}
