//! Imports exported messages.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lapin::types::ShortString;
use lapin::{BasicProperties, Confirmation};
use serde::Serialize;
use tokio::time::timeout;

use crate::parked::error::{ParkedError, unconfirmed_because};
use crate::parked::json_line::Exported;
use crate::parked::message::Raw;
use crate::parked::operator::Parked;
use crate::parked::place::Place;
use crate::parked::present::{Present, identity};
use crate::parked::progress::StopSignal;
use crate::parked::ramp::Stop;
use crate::parked::requests::{ImportRequest, in_flight};
use crate::parked::session::Session;
use crate::parked::under_way::has_room;
use crate::telemetry::MoveMetrics;
use rehop::Error;
use rehop::Timestamp;
use rehop::internals::Room;
use rehop::internals::at_rest::Original;
use rehop::internals::client::Channel;
use rehop::internals::short;

/// How an import ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Imported {
    /// Names this operation in logs.
    pub run: String,
    /// Published to the queue, and confirmed.
    pub imported: u64,
    /// Left out because the queue has them, by chain and body.
    pub already_there: u64,
    /// Whether it was told to stop before the end.
    pub is_stopped: bool,
}

/// What is published for an exported message.
pub(super) struct Prepared {
    /// The work queue for which it is parked.
    pub(super) work_queue: Option<String>,
    pub(super) chain: String,
    exchange: ShortString,
    routing_key: ShortString,
    properties: BasicProperties,
    pub(super) body: Vec<u8>,
    /// Headers that do not fit into a frame. They follow the body.
    overflow: Vec<u8>,
}

impl Parked {
    /// Publishes exported messages to the queue, in their order, each confirmed. A message that the queue already has, by chain and body, is
    /// left out: so an import that was interrupted can be run again, and makes at most a hundred duplicates. When `stop` completes, nothing
    /// more is published.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list); when a message is not an exported one, is masked or belongs to another queue; when the queue refuses a
    /// message; [`ParkedError::Unconfirmed`] if the broker confirms none for half of `broker.consumer_timeout`, or at the end for
    /// `broker.timeout`; and [`ParkedError::Incomplete`] if not all that is in the queue could be looked at. The messages before the one
    /// that failed may be in the queue.
    pub async fn import(
        &self,
        request: &ImportRequest,
        messages: impl IntoIterator<Item = Result<Exported, ParkedError>>,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Imported, ParkedError> {
        let session = self.session().await?;
        let imported = self.import_in(&session, request, messages, &mut pin!(stop)).await;
        session.close().await;
        imported
    }

    async fn import_in(
        &self,
        session: &Session,
        request: &ImportRequest,
        messages: impl IntoIterator<Item = Result<Exported, ParkedError>>,
        stop: StopSignal<'_>,
    ) -> Result<Imported, ParkedError> {
        let why = request.why.as_deref().unwrap_or_default();
        tracing::info!(queue = self.queue, run = session.run, why, "import begins");
        let mut imported = Imported { run: session.run.clone(), ..Imported::default() };
        let ended = match self.look_first(session, &mut *stop).await {
            Ok(present) => self.publish(session, present, messages, stop, &mut imported).await,
            Err(ParkedError::Stopped) => {
                imported.is_stopped = true;
                Ok(())
            }
            Err(error) => Err(error),
        };
        tracing::info!(
            queue = self.queue,
            run = session.run,
            why,
            imported = imported.imported,
            already_there = imported.already_there,
            stopped = imported.is_stopped.then(|| tracing::field::display(Stop::Requested)),
            error = ended.as_ref().err().map(ParkedError::in_log).map(tracing::field::display),
            "import ended"
        );
        ended.map(|()| imported)
    }

    async fn look_first(&self, session: &Session, stop: StopSignal<'_>) -> Result<Present, ParkedError> {
        match self.interpreter.place {
            Place::Discarded => self.declare_discarded(session).await?,
            // A missing queue must not be declared.
            Place::Queue(_) | Place::Stray => {
                session.depth(&self.queue).await?;
            }
        }
        self.check_owner(session).await?;
        self.present_in_queue(session, stop).await
    }

    /// What the queue already has, which has to be looked at as a whole.
    pub(super) async fn present_in_queue(
        &self,
        session: &Session,
        stop: StopSignal<'_>,
    ) -> Result<Present, ParkedError> {
        let mut present = Present::default();
        let scanned = self.scan(session, None, stop, |message, held| {
            present.add(identity(&message.chain, &held.delivery.data));
            ControlFlow::Continue(())
        });
        scanned.await?.complete(&self.queue)?;
        Ok(present)
    }

    /// Whatever ends it, what is in flight is confirmed if possible.
    async fn publish(
        &self,
        session: &Session,
        present: Present,
        messages: impl IntoIterator<Item = Result<Exported, ParkedError>>,
        stop: StopSignal<'_>,
        imported: &mut Imported,
    ) -> Result<(), ParkedError> {
        let channel = session.publishing_channel().await?;
        let metrics = self.metrics("import");
        let mut unconfirmed = Unconfirmed { channel: &*channel, answers: FuturesUnordered::new(), bytes: 0, metrics };
        let ended = self.publish_new(session, &mut unconfirmed, present, messages, stop, imported).await;
        let drained = unconfirmed.drain(session, &self.queue, imported).await;
        ended.and(drained)
    }

    async fn publish_new(
        &self,
        session: &Session,
        unconfirmed: &mut Unconfirmed<'_>,
        mut present: Present,
        messages: impl IntoIterator<Item = Result<Exported, ParkedError>>,
        stop: StopSignal<'_>,
        imported: &mut Imported,
    ) -> Result<(), ParkedError> {
        // Work queues that are known to exist. The parked queue is bound for each of them.
        let mut existing: HashSet<String> = HashSet::new();
        for (line, message) in (1..).zip(messages) {
            if (&mut *stop).now_or_never().is_some() {
                imported.is_stopped = true;
                return Ok(());
            }
            let next = self.prepared(&message?, line, session.room())?;
            if present.take(identity(&next.chain, &next.body)) {
                imported.already_there += 1;
                continue;
            }
            while !unconfirmed.has_room(next.body.len() as u64) {
                tokio::select! {
                    biased;
                    () = &mut *stop => {
                        imported.is_stopped = true;
                        return Ok(());
                    }
                    answer = unconfirmed.patient_answer(session, &self.queue, self.hold()) => {
                        imported.count(answer?, &self.queue)?;
                    }
                }
            }
            if let Some(work) = next.work_queue.as_ref().filter(|work| !existing.contains(*work)) {
                session.exists(work).await?;
                existing.insert(work.clone());
            }
            unconfirmed.send(next);
        }
        Ok(())
    }

    /// What is published for an exported message, which comes from this line.
    pub(super) fn prepared(&self, exported: &Exported, line: u64, room: Room) -> Result<Prepared, ParkedError> {
        let bad = |problem: String| ParkedError::BadLine { line, problem };
        let (properties, body) = exported.content().map_err(bad)?;
        let (exchange, routing_key) = (&exported.exchange, &exported.routing_key);
        let raw = Raw { exchange, routing_key, properties: &properties, body: &body, redelivered: false };
        let mut message = self.interpreter.read(raw, line);
        (message.chain, message.reason) = (exported.chain.clone(), exported.reason.clone());
        (message.exchange, message.routing_key) = (exchange.clone(), routing_key.clone());
        message.destination = self.destination(exported).map_err(bad)?;
        message.parked_at = exported.parked_at.map(Timestamp::from_millis);
        let original = Original { properties: &properties, body_bytes: body.len() };
        let copy = self.interpreter.imported(&message, original, room);
        let name = |name: &str| short(name).map_err(|error| bad(error.to_string()));
        let is_parked = matches!(self.interpreter.place, Place::Queue(_));
        Ok(Prepared {
            work_queue: message.destination.filter(|_| is_parked),
            chain: message.chain,
            exchange: name(&copy.exchange)?,
            routing_key: name(&copy.routing_key)?,
            properties: copy.properties,
            body,
            overflow: copy.overflow,
        })
    }

    /// The work queue that a message belongs to. Of the parked messages, only those of queues that share this parked queue can come here.
    fn destination(&self, exported: &Exported) -> Result<Option<String>, String> {
        let Place::Queue(queue) = &self.interpreter.place else { return Ok(exported.destination.clone()) };
        let other = exported.destination.as_ref().filter(|other| *other != queue);
        let Some(other) = other else { return Ok(Some(queue.clone())) };
        let parked = self.resolved.queue(other).map_err(|error| error.to_string())?.parked;
        if parked != self.queue {
            return Err(format!("it belongs to queue {other:?}, which parks in {parked:?}; import it there"));
        }
        Ok(Some(other.clone()))
    }
}

impl Imported {
    fn count(&mut self, answer: Option<lapin::Result<Confirmation>>, queue: &str) -> Result<(), ParkedError> {
        match answer {
            Some(Ok(Confirmation::Ack(None))) => {
                self.imported += 1;
                Ok(())
            }
            Some(Ok(_)) => Err(ParkedError::Refused { to: format!("queue {queue}") }),
            Some(Err(error)) => Err(Error::of_operation("publishing an imported message", &error).into()),
            None => Ok(()),
        }
    }
}

fn unconfirmed(session: &Session, queue: &str, within: Duration) -> ParkedError {
    ParkedError::Unconfirmed { queue: queue.to_owned(), within, is_blocked: session.is_blocked() }
}

/// Copies that the broker has not answered yet.
struct Unconfirmed<'a> {
    channel: &'a dyn Channel,
    answers: FuturesUnordered<BoxFuture<'a, (u64, lapin::Result<Confirmation>)>>,
    /// The size of their bodies.
    bytes: u64,
    metrics: MoveMetrics,
}

impl Unconfirmed<'_> {
    /// Whether a body of this size may be sent.
    fn has_room(&self, size: u64) -> bool {
        has_room((self.answers.len(), self.bytes), in_flight(None), size)
    }

    /// The copy is sent at the next [`answer`](Self::answer).
    fn send(&mut self, Prepared { exchange, routing_key, properties, mut body, mut overflow, .. }: Prepared) {
        let (channel, size) = (self.channel, body.len() as u64);
        self.bytes += size;
        body.append(&mut overflow);
        let publishing = async move { (size, channel.publish(exchange, routing_key, &body, properties, true).await) };
        self.answers.push(publishing.boxed());
    }

    /// The broker's next answer. `None` if nothing is in flight.
    async fn answer(&mut self) -> Option<lapin::Result<Confirmation>> {
        let (size, answer) = self.answers.next().await?;
        self.bytes -= size;
        if matches!(answer, Ok(Confirmation::Ack(None))) {
            self.metrics.moved(1);
        }
        Some(answer)
    }

    /// The broker's next answer. Logs a warning if it takes longer than `broker.timeout`. May be dropped at any time.
    ///
    /// # Errors
    ///
    /// [`ParkedError::Unconfirmed`] if none comes within `patience`.
    async fn patient_answer(
        &mut self,
        session: &Session,
        queue: &str,
        patience: Duration,
    ) -> Result<Option<lapin::Result<Confirmation>>, ParkedError> {
        let soon = session.limit.min(patience);
        if let Ok(answer) = timeout(soon, self.answer()).await {
            return Ok(answer);
        }
        tracing::warn!(
            queue,
            run = session.run,
            ends_within = %humantime::format_duration(patience.saturating_sub(soon)),
            "the broker confirms no imported message: {}",
            unconfirmed_because(session.is_blocked())
        );
        let answer = timeout(patience.saturating_sub(soon), self.answer()).await;
        answer.map_err(|_| unconfirmed(session, queue, patience))
    }

    async fn drain(&mut self, session: &Session, queue: &str, imported: &mut Imported) -> Result<(), ParkedError> {
        let mut ended = Ok(());
        while !self.answers.is_empty() {
            match timeout(session.limit, self.answer()).await {
                Ok(answer) => ended = ended.and(imported.count(answer, queue)),
                Err(_) => return ended.and(Err(unconfirmed(session, queue, session.limit))),
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use lapin::message::{BasicReturnMessage, Delivery};

    use super::*;
    use crate::parked::mask::Mask;
    use crate::parked::message::ParkedMessage;
    use crate::parked::samples::sample;
    use rehop::Settings;

    #[test]
    fn a_message_is_imported_to_where_it_belongs_and_into_a_parked_queue_only_if_its_own_queue_parks_there() {
        let mut settings = Settings::default();
        settings.namespace = "ns".to_owned();
        for queue in ["orders", "returns"] {
            settings.queue_mut(queue).parked = Some("dead".to_owned());
        }
        let prepared = |place: Place, destination: Option<&str>| {
            let message = ParkedMessage { destination: destination.map(str::to_owned), ..sample() };
            let exported = Exported::of(&message, &BasicProperties::default(), b"{}", &Mask::nothing());
            Parked::open(&settings, place)?.prepared(&exported, 7, Room::UNLIMITED)
        };
        for (place, destination, to, work_queue) in [
            (Place::queue("orders"), None, ("ns.park", "orders"), Some("orders")),
            (Place::queue("orders"), Some("returns"), ("ns.park", "returns"), Some("returns")),
            (Place::Stray, Some("orders"), ("ns.stray", "order.created"), None),
            (Place::Discarded, Some("orders"), ("ns.discarded", "orders"), None),
        ] {
            let Prepared { exchange, routing_key, work_queue: checked, .. } = prepared(place, destination).unwrap();
            assert_eq!(((exchange.as_str(), routing_key.as_str()), checked.as_deref()), (to, work_queue));
        }
        let refused = prepared(Place::queue("orders"), Some("bills")).map(drop).unwrap_err().to_string();
        let says = "line 7 cannot be imported: it belongs to queue \"bills\", which parks in \"bills.parked\"";
        assert!(refused.starts_with(says), "{refused}");
    }

    #[test]
    fn only_what_the_broker_keeps_in_a_queue_counts_as_imported() {
        let mut imported = Imported::default();
        let mut count = |answer| imported.count(answer, "orders.parked");
        assert!(count(Some(Ok(Confirmation::Ack(None)))).is_ok() && count(None).is_ok());
        let delivery = Delivery::mock(1, "".into(), "".into(), false, Vec::new());
        let returned = BasicReturnMessage { delivery, reply_code: 312, reply_text: "NO_ROUTE".into() };
        for refused in [Confirmation::Ack(Some(returned)), Confirmation::Nack(None), Confirmation::NotRequested] {
            let counted = count(Some(Ok(refused)));
            assert!(matches!(counted, Err(ParkedError::Refused { .. })), "{counted:?}");
        }
        assert_eq!(imported.imported, 1);
    }
}
