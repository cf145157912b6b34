//! Imports exported messages, or says what an import would do.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde::Serialize;
use tokio::time::{Instant, timeout};

use crate::parked::copies::Copy;
use crate::parked::error::{ParkedError, unconfirmed_because};
use crate::parked::export::Exported;
use crate::parked::message::{Place, Raw};
use crate::parked::operator::Parked;
use crate::parked::progress::StopSignal;
use crate::parked::ramp::Stop;
use crate::parked::session::OperatorSession;
use crate::parked::under_way::{Answered, Drained, UnderWay, in_flight};
use crate::telemetry::MoveMetrics;
use rehop::Error;
use rehop::Timestamp;
use rehop::internals::Room;
use rehop::internals::at_rest::Original;
use rehop::internals::short;

/// How often the stray queue is looked at.
const CHECK_STRAY_EVERY: Duration = Duration::from_secs(1);

/// How to import.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ImportRequest {
    /// Why, for the log.
    pub why: Option<String>,
}

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

/// What an import would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ImportPlan {
    /// How many messages would be published to the queue.
    pub to_import: u64,
    /// How many would be left out because the queue has them, by chain and body.
    pub already_there: u64,
}

/// What is published for an exported message.
struct Prepared {
    /// The work queue for which it is parked.
    work_queue: Option<String>,
    chain: String,
    body: Vec<u8>,
    copy: Copy,
}

impl Parked {
    /// Publishes exported messages to the queue, in their order, each confirmed. A message that the
    /// queue already has, by chain and body, is left out: so an import that was interrupted can be
    /// run again, and makes at most a hundred duplicates. When `stop` completes, nothing more is
    /// published.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list); when a message is not an exported one, is masked or belongs to
    /// another queue; when the queue refuses a message; [`ParkedError::Unconfirmed`] if the broker
    /// confirms none for half of `broker.consumer_timeout`, or at the end for `broker.timeout`;
    /// [`ParkedError::Strayed`] if messages reach the stray queue meanwhile; and
    /// [`ParkedError::Incomplete`] if not all that is in the queue could be looked at. The messages
    /// before the one that failed may be in the queue.
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
        session: &OperatorSession,
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

    async fn look_first(
        &self,
        session: &OperatorSession,
        stop: StopSignal<'_>,
    ) -> Result<Present, ParkedError> {
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
    async fn present_in_queue(
        &self,
        session: &OperatorSession,
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
        session: &OperatorSession,
        present: Present,
        messages: impl IntoIterator<Item = Result<Exported, ParkedError>>,
        stop: StopSignal<'_>,
        imported: &mut Imported,
    ) -> Result<(), ParkedError> {
        let under_way = UnderWay::open(session, in_flight(None)).await?;
        let (queue, metrics) = (&*self.queue, self.metrics("import"));
        let watched = Some(self.interpreter.names.stray()).filter(|stray| stray != queue);
        let strays = match &watched {
            Some(stray) => session.depth_if_any(stray).await?,
            None => None,
        };
        let stray = watched.zip(strays);
        let mut publishing = Publishing {
            session,
            queue,
            under_way,
            imported,
            metrics,
            stray,
            look_at: Instant::now(),
        };
        let ended = self.publish_new(&mut publishing, present, messages, stop).await;
        let drained = publishing.drain().await;
        ended.and(drained)?;
        publishing.check_stray().await
    }

    async fn publish_new(
        &self,
        publishing: &mut Publishing<'_>,
        mut present: Present,
        messages: impl IntoIterator<Item = Result<Exported, ParkedError>>,
        stop: StopSignal<'_>,
    ) -> Result<(), ParkedError> {
        let session = publishing.session;
        // Work queues that are known to exist. The parked queue is bound for each of them.
        let mut existing: HashSet<String> = HashSet::new();
        for (line, message) in (1..).zip(messages) {
            if (&mut *stop).now_or_never().is_some() {
                publishing.imported.is_stopped = true;
                return Ok(());
            }
            let Prepared { work_queue, chain, body, copy } =
                self.prepared(&message?, line, session.room())?;
            if present.take(identity(&chain, &body)) {
                publishing.imported.already_there += 1;
                continue;
            }
            while !publishing.under_way.has_room(body.len() as u64) {
                tokio::select! {
                    biased;
                    () = &mut *stop => {
                        publishing.imported.is_stopped = true;
                        return Ok(());
                    }
                    answers = publishing.answers(self.hold()) => {
                        publishing.count(answers?)?;
                        if Instant::now() >= publishing.look_at {
                            publishing.check_stray().await?;
                        }
                    }
                }
            }
            if let Some(work) = work_queue.filter(|work| !existing.contains(work)) {
                session.exists(&work).await?;
                existing.insert(work);
            }
            publishing.under_way.send((), body, copy)?;
        }
        Ok(())
    }

    /// What is published for an exported message, which comes from this line.
    fn prepared(
        &self,
        exported: &Exported,
        line: u64,
        room: Room,
    ) -> Result<Prepared, ParkedError> {
        let bad = |problem: String| ParkedError::BadLine { line, problem };
        let (properties, body) = exported.content().map_err(bad)?;
        let (exchange, routing_key) = (&exported.exchange, &exported.routing_key);
        let raw =
            Raw { exchange, routing_key, properties: &properties, body: &body, redelivered: false };
        let mut message = self.interpreter.read_as_it_is(raw, line);
        (message.chain, message.reason) = (exported.chain.clone(), exported.reason.clone());
        (message.exchange, message.routing_key) = (exchange.clone(), routing_key.clone());
        message.destination = self.destination(exported).map_err(bad)?;
        message.parked_at = exported.parked_at.map(Timestamp::from_millis);
        let original = Original { properties: &properties, body_bytes: body.len() };
        let copy = self.interpreter.imported(&message, original, room);
        for name in [&copy.exchange, &copy.routing_key] {
            short(name).map_err(|error| bad(error.to_string()))?;
        }
        let is_parked = matches!(self.interpreter.place, Place::Queue(_));
        Ok(Prepared {
            work_queue: message.destination.filter(|_| is_parked),
            chain: message.chain,
            body,
            copy,
        })
    }

    /// The work queue that a message belongs to. Of the parked messages, only those of queues that
    /// share this parked queue can come here.
    fn destination(&self, exported: &Exported) -> Result<Option<String>, String> {
        let Place::Queue(queue) = &self.interpreter.place else {
            return Ok(exported.destination.clone());
        };
        let other = exported.destination.as_ref().filter(|other| *other != queue);
        let Some(other) = other else { return Ok(Some(queue.clone())) };
        let parked = self.resolved.queue(other).map_err(|error| error.to_string())?.parked;
        if parked != self.queue {
            return Err(format!(
                "it belongs to queue {other:?}, which parks in {parked:?}; import it there"
            ));
        }
        Ok(Some(other.clone()))
    }
}

impl Imported {
    /// Counts what the broker keeps. The first problem is returned.
    fn count(
        &mut self,
        answers: Vec<Answered<()>>,
        queue: &str,
        metrics: &MoveMetrics,
    ) -> Result<(), ParkedError> {
        let mut ended = Ok(());
        for Answered { answer, .. } in answers {
            match answer {
                Ok(()) => {
                    self.imported += 1;
                    metrics.moved(1);
                }
                Err(why) => {
                    let (to, what) = (format!("queue {queue}"), "publishing an imported message");
                    ended = ended.and(Err(ParkedError::not_taken(why, to, what.to_owned())));
                }
            }
        }
        ended
    }
}

/// An import while it publishes.
struct Publishing<'a> {
    session: &'a OperatorSession,
    queue: &'a str,
    under_way: UnderWay<()>,
    imported: &'a mut Imported,
    metrics: MoveMetrics,
    /// The stray queue, and its depth before the import. `None` if the import goes there, or the
    /// depth could not be read.
    stray: Option<(String, u64)>,
    /// When to look at the stray queue again.
    look_at: Instant,
}

impl Publishing<'_> {
    /// The broker's next answers. Logs a warning if they take longer than `broker.timeout`. May be
    /// dropped at any time.
    ///
    /// # Errors
    ///
    /// [`ParkedError::Unconfirmed`] if none comes within `limit`.
    async fn answers(&mut self, limit: Duration) -> Result<Vec<Answered<()>>, ParkedError> {
        let soon = self.session.limit.min(limit);
        let later = limit.saturating_sub(soon);
        if let Ok(answers) = timeout(soon, self.under_way.answers()).await {
            return Ok(answers.unwrap_or_default());
        }
        tracing::warn!(
            queue = self.queue,
            run = self.session.run,
            ends_within = %humantime::format_duration(later),
            "the broker confirms no imported message: {}",
            unconfirmed_because(self.session.is_blocked())
        );
        let answers =
            timeout(later, self.under_way.answers()).await.map_err(|_| self.unconfirmed(limit))?;
        Ok(answers.unwrap_or_default())
    }

    fn count(&mut self, answers: Vec<Answered<()>>) -> Result<(), ParkedError> {
        self.imported.count(answers, self.queue, &self.metrics)
    }

    /// # Errors
    ///
    /// [`ParkedError::Strayed`] if the stray queue has grown: then the queue may lack a binding,
    /// and a confirm does not prove that a message is in it.
    async fn check_stray(&mut self) -> Result<(), ParkedError> {
        let Some((stray, before)) = &self.stray else { return Ok(()) };
        let depth = self.session.depth_if_any(stray).await;
        self.look_at = Instant::now() + CHECK_STRAY_EVERY;
        match depth {
            Ok(Some(depth)) if depth > *before => {
                Err(ParkedError::Strayed { queue: self.queue.to_owned(), stray: stray.clone() })
            }
            _ => Ok(()),
        }
    }

    async fn drain(&mut self) -> Result<(), ParkedError> {
        let limit = self.session.limit;
        let Self { queue, under_way, imported, metrics, .. } = self;
        let Drained { ended, unanswered } =
            under_way.drain(limit, |answers| imported.count(answers, queue, metrics)).await;
        if unanswered == 0 { ended } else { ended.and(Err(self.unconfirmed(limit))) }
    }

    fn unconfirmed(&self, within: Duration) -> ParkedError {
        ParkedError::Unconfirmed {
            queue: self.queue.to_owned(),
            within,
            is_blocked: self.session.is_blocked(),
        }
    }
}

/// How often a queue has each message, by chain and body.
#[derive(Debug, Default)]
struct Present(HashMap<u64, u32>);

impl Present {
    fn add(&mut self, identity: u64) {
        *self.0.entry(identity).or_default() += 1;
    }

    /// Removes one such message. False if none is left.
    fn take(&mut self, identity: u64) -> bool {
        let Some(left) = self.0.get_mut(&identity).filter(|left| **left > 0) else { return false };
        *left -= 1;
        true
    }
}

/// What tells messages apart.
fn identity(chain: &str, body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (chain, body).hash(&mut hasher);
    hasher.finish()
}

/// What a plan needs of one message of a file.
struct Line {
    identity: u64,
    /// The work queue for which it is parked.
    work_queue: Option<Arc<str>>,
}

impl Parked {
    /// What an import of these messages would do now. Each is checked before the queue is looked
    /// at, and then everything that the import needs: the queue, unless it is the discarded one,
    /// which the import declares; and for parked messages that the queue does not have, the work
    /// queue of each. The messages in the queue stay in it, as for a list. Whether the broker will
    /// take the messages is not checked.
    ///
    /// # Errors
    ///
    /// As [`import`](Self::import), which would end with the same, and [`ParkedError::Stopped`] if
    /// it was [told to stop](Self::stopped_by).
    pub async fn check_import(
        &self,
        messages: impl IntoIterator<Item = Result<Exported, ParkedError>>,
    ) -> Result<ImportPlan, ParkedError> {
        let (mut lines, mut names) = (Vec::new(), HashSet::new());
        for (number, message) in (1..).zip(messages) {
            let next = self.prepared(&message?, number, Room::UNLIMITED)?;
            let work_queue = next.work_queue.map(|name| shared(&mut names, name));
            lines.push(Line { identity: identity(&next.chain, &next.body), work_queue });
        }
        let session = self.session().await?;
        let planned = self.plan_import(&session, lines).await;
        session.close().await;
        planned
    }

    async fn plan_import(
        &self,
        session: &OperatorSession,
        lines: Vec<Line>,
    ) -> Result<ImportPlan, ParkedError> {
        let mut present = match session.depth(&self.queue).await {
            Ok(_) => {
                self.check_owner(session).await?;
                self.present_in_queue(session, &mut self.stop.clone()).await?
            }
            // The import declares it.
            Err(Error::Missing { .. }) if self.interpreter.place == Place::Discarded => {
                Present::default()
            }
            Err(error) => return Err(error.into()),
        };
        let mut plan = ImportPlan::default();
        // Work queues that are known to exist. The parked queue is bound for each of them.
        let mut existing: HashSet<Arc<str>> = HashSet::new();
        for Line { identity, work_queue } in lines {
            if present.take(identity) {
                plan.already_there += 1;
                continue;
            }
            if let Some(work) = work_queue.filter(|work| !existing.contains(work)) {
                session.exists(&work).await?;
                existing.insert(work);
            }
            plan.to_import += 1;
        }
        Ok(plan)
    }
}

/// Each name is kept once, because a file may have millions of lines.
fn shared(names: &mut HashSet<Arc<str>>, name: String) -> Arc<str> {
    if let Some(known) = names.get(name.as_str()) {
        return known.clone();
    }
    let name = Arc::<str>::from(name);
    names.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use lapin::BasicProperties;

    use super::*;
    use crate::parked::mask::Mask;
    use crate::parked::message::ParkedMessage;
    use crate::parked::samples::sample;
    use rehop::Settings;
    use rehop::internals::NotTaken;

    #[test]
    fn a_message_is_imported_to_where_it_belongs_and_into_a_parked_queue_only_if_its_own_queue_parks_there()
     {
        let mut settings = Settings::default();
        settings.namespace = "ns".to_owned();
        for queue in ["orders", "returns"] {
            settings.queue_mut(queue).parked = Some("dead".to_owned());
        }
        let prepared = |place: Place, destination: Option<&str>| {
            let message = ParkedMessage { destination: destination.map(str::to_owned), ..sample() };
            let exported =
                Exported::of(&message, &BasicProperties::default(), b"{}", &Mask::nothing());
            Parked::open(&settings, place)?.prepared(&exported, 7, Room::UNLIMITED)
        };
        for (place, destination, to, work_queue) in [
            (Place::queue("orders"), None, ("ns.park", "orders"), Some("orders")),
            (Place::queue("orders"), Some("returns"), ("ns.park", "returns"), Some("returns")),
            (Place::Stray, Some("orders"), ("ns.stray", "order.created"), None),
            (Place::Discarded, Some("orders"), ("ns.discarded", "orders"), None),
        ] {
            let Prepared { copy, work_queue: checked, .. } = prepared(place, destination).unwrap();
            assert_eq!(
                ((&*copy.exchange, &*copy.routing_key), checked.as_deref()),
                (to, work_queue)
            );
        }
        let refused =
            prepared(Place::queue("orders"), Some("bills")).map(drop).unwrap_err().to_string();
        let says = "line 7 cannot be imported: it belongs to queue \"bills\", which parks in \"bills.parked\"";
        assert!(refused.starts_with(says), "{refused}");
    }

    #[test]
    fn only_what_the_broker_keeps_in_a_queue_counts_as_imported() {
        let mut imported = Imported::default();
        let metrics = MoveMetrics::new("import", "orders.parked", None);
        let mut count = |answers: Vec<Result<(), NotTaken>>| {
            let answered = |answer| Answered { of: (), exchange: "ns.park".to_owned(), answer };
            let answers = answers.into_iter().map(answered).collect();
            imported.count(answers, "orders.parked", &metrics)
        };
        assert!(count(vec![Ok(()), Ok(())]).is_ok());
        let counted = count(vec![Err(NotTaken::Returned), Ok(()), Err(NotTaken::NotSent)]);
        assert!(
            matches!(&counted, Err(ParkedError::Refused { to }) if to == "queue orders.parked"),
            "{counted:?}"
        );
        let counted = count(vec![Err(NotTaken::NotSent)]);
        assert!(matches!(counted, Err(ParkedError::Broker(Error::Lost { .. }))), "{counted:?}");
        assert_eq!(imported.imported, 3);
    }

    #[test]
    fn each_message_that_is_there_stands_for_one() {
        let (one, other) = (identity("chain", b"one"), identity("chain", b"other"));
        let mut present = Present::default();
        present.add(one);
        present.add(one);
        assert_eq!(
            [one, other, one, one].map(|identity| present.take(identity)),
            [true, false, true, false]
        );
        assert_ne!(identity("chain-2", b"one"), one);
    }
}
