//! The handle of an operator.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::Instant;

use crate::parked::arguments::{DeliveryLimit, Found};
use crate::parked::error::ParkedError;
use crate::parked::mask::Mask;
use crate::parked::message::{Interpreter, ParkedMessage, Place, Raw};
use crate::parked::progress::StopSignal;
use crate::parked::queue_head::{Held, QueueHead};
use crate::parked::session::OperatorSession;
use crate::telemetry::MoveMetrics;
use rehop::Error;
use rehop::Settings;
use rehop::Topology;
use rehop::internals::Resolved;
use rehop::internals::{Names, build, discarded};
use rehop::settings::{BrokerSettings, TopologyMode};

/// Messages that rest in a queue, and what an operator can do with them.
///
/// Each call opens connections of its own, and takes a lock on the queue, so that two operators do
/// not disturb each other. To end a look early, use [`stopped_by`](Self::stopped_by). A call that
/// is dropped, or whose process is killed, also gives back what it holds, but after a look at more
/// than 256 messages perhaps in another order: then the broker closes several channels, in an order
/// of its own.
///
/// ```no_run
/// use rehop_operator::parked::{ListRequest, Parked, Place, ReplayRequest};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let parked = Parked::open(&rehop::Settings::load()?, Place::queue("orders"))?;
/// for group in parked.list(&ListRequest::default()).await?.groups {
///     println!("{} x {:?}", group.count, group.kind.error);
/// }
/// let replayed = parked.replay(&ReplayRequest::default(), |_| {}, std::future::pending()).await?;
/// println!("{} of {} were handled", replayed.fates.handled, replayed.tally.moved);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Parked {
    pub(super) broker: BrokerSettings,
    pub(super) interpreter: Arc<Interpreter>,
    pub(super) queue: String,
    pub(super) mask: Mask,
    /// What the queue is like if rehop has declared it.
    declared: Topology,
    pub(super) resolved: Resolved,
    pub(super) prefetch: u16,
    /// Completes when looks are to end early. Only clones of it are polled, because it must not be
    /// polled again once it has completed.
    pub(super) stop: Shared<BoxFuture<'static, ()>>,
    /// Whether a management API is known, which shows policies.
    has_management: bool,
}

impl Parked {
    /// Checks the settings. Nothing is sent to the broker.
    ///
    /// # Errors
    ///
    /// When the settings contradict themselves, or a path in `mask.json` is malformed.
    pub fn open(settings: &Settings, place: Place) -> Result<Self, ParkedError> {
        let resolved = settings.resolve()?;
        let names = Names::new(&settings.namespace);
        let queue = place.resting(&names, &resolved)?;
        let declared = declared(&names, &resolved, &place)?;
        Ok(Self {
            broker: settings.broker.clone(),
            mask: Mask::new(&settings.mask)?,
            interpreter: Arc::new(Interpreter {
                names,
                place,
                expiry_header: settings.expiry_header.clone(),
            }),
            queue,
            declared,
            resolved,
            prefetch: u16::MAX,
            stop: std::future::pending::<()>().boxed().shared(),
            has_management: settings.broker.management_url.is_some(),
        })
    }

    /// Ends looks early when this completes: [`list`](Self::list), [`show`](Self::show),
    /// [`body`](Self::body), [`export`](Self::export), [`check_import`](Self::check_import) and
    /// [`edit`](Self::edit) then give everything back, each message in its place, and return
    /// [`ParkedError::Stopped`]. An edit that has sent its message only ends its wait for the fate.
    /// What moves messages takes a `stop` of its own. Default: never.
    pub fn stopped_by(mut self, stop: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop = stop.boxed().shared();
        self
    }

    /// Shows what is masked.
    pub fn reveal(mut self) -> Self {
        self.mask = Mask::nothing();
        self
    }

    /// For tests: no subscription has a larger prefetch than this.
    #[doc(hidden)]
    pub fn with_prefetch(mut self, largest: u16) -> Self {
        self.prefetch = largest;
        self
    }

    /// The queue in which the messages rest.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// How many messages are in it now. Those that somebody holds do not count.
    ///
    /// # Errors
    ///
    /// When the broker is unreachable, the queue does not exist, or its leader does not answer.
    pub async fn depth(&self) -> Result<u64, ParkedError> {
        let session = self.session().await?;
        let depth = session.depth(&self.queue).await;
        session.close().await;
        Ok(depth?)
    }

    /// Whether something in a body is masked.
    #[doc(hidden)]
    pub fn masks(&self, body: &[u8]) -> bool {
        self.mask.json(body).is_some()
    }

    pub(super) async fn session(&self) -> Result<OperatorSession, ParkedError> {
        tokio::select! {
            biased;
            () = self.stop.clone() => Err(ParkedError::Stopped),
            session = OperatorSession::open(&self.broker, &self.interpreter.names, &self.queue) => session,
        }
    }

    /// The exchange and the queue for discarded messages.
    pub(super) async fn declare_discarded(
        &self,
        session: &OperatorSession,
    ) -> Result<(), ParkedError> {
        let topology = discarded(&self.interpreter.names);
        Ok(topology.establish(&*session.connection, TopologyMode::Declare, session.limit).await?)
    }

    /// Looks at the first messages, and gives them back.
    pub(super) async fn scan(
        &self,
        session: &OperatorSession,
        most: Option<u64>,
        stop: StopSignal<'_>,
        mut visit: impl FnMut(ParkedMessage, &Held) -> ControlFlow<()>,
    ) -> Result<Scanned, ParkedError> {
        let depth = session.depth(&self.queue).await?;
        let wanted = most.unwrap_or(u64::MAX).min(depth);
        let mut limit = self.delivery_limit(session).await?;
        limit.check_first(wanted)?;
        let until = Instant::now() + self.hold();
        let head = QueueHead::new(session, &self.queue)?.asking(limit.is_own());
        let mut head = head.with_prefetch(self.prefetch);
        let (mut seen, mut is_enough, mut problem) = (0, false, None);
        while seen < wanted && Instant::now() < until {
            let next = async {
                head.prepare(wanted - seen).await?;
                head.next(&mut *stop, until).await
            };
            let held = match next.await {
                Ok(Some(held)) => held,
                Ok(None) => break,
                Err(error) => {
                    problem = Some(error);
                    break;
                }
            };
            head.keep(&held);
            seen += 1;
            let message = self.interpreter.read(Raw::of(&held.delivery), seen);
            if let Err(error) = limit.check(message.returns) {
                problem = Some(error);
                break;
            }
            is_enough = visit(message, &held).is_break();
            if is_enough {
                break;
            }
        }
        let ended = problem.map_or(Ok(()), Err);
        head.end(ended).await?;
        Ok(Scanned { depth, wanted: if is_enough { seen } else { wanted }, looked_at: seen })
    }

    /// How often the messages of the queue may be given back.
    pub(super) async fn delivery_limit(
        &self,
        session: &OperatorSession,
    ) -> Result<DeliveryLimit, ParkedError> {
        let found = self.found(session).await?;
        Ok(DeliveryLimit::new(&self.queue, &found, !session.nack_is_free, self.has_management))
    }

    /// What the queue's arguments are. It is declared as rehop would declare it, which creates a
    /// queue that is missing. The broker names one difference at a time, so it is asked again with
    /// each that it has named.
    pub(super) async fn found(&self, session: &OperatorSession) -> Result<Found, ParkedError> {
        let (mut asked, mut found) = (self.declared.clone(), Found::default());
        loop {
            match asked.establish(&*session.connection, TopologyMode::Declare, session.limit).await
            {
                Ok(()) => return Ok(found.complete()),
                Err(Error::Mismatch { argument, found: value, .. }) => {
                    let queue = asked.queues.first_mut();
                    if !queue
                        .is_some_and(|queue| found.differs(&mut queue.arguments, &argument, &value))
                    {
                        return Ok(found);
                    }
                }
                Err(
                    Error::Refused { .. }
                    | Error::UnsuitableQueue { .. }
                    | Error::Permission { .. },
                ) => return Ok(found),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Counts what an operation moves.
    pub(super) fn metrics(&self, operation: &'static str) -> MoveMetrics {
        MoveMetrics::new(operation, &self.queue, self.work_queue())
    }

    /// The work queue whose messages these are, if they are of one.
    pub(super) fn work_queue(&self) -> Option<&str> {
        match &self.interpreter.place {
            Place::Queue(queue) => Some(queue),
            Place::Stray | Place::Discarded => None,
        }
    }

    /// Messages are given back long before the broker would take them back.
    pub(super) fn hold(&self) -> Duration {
        self.broker.consumer_timeout / 2
    }
}

/// How far a look came.
pub(super) struct Scanned {
    /// How many messages there were.
    pub(super) depth: u64,
    /// How many of them were to be looked at.
    pub(super) wanted: u64,
    pub(super) looked_at: u64,
}

impl Scanned {
    /// Checks that everything was looked at that was to be.
    ///
    /// # Errors
    ///
    /// [`ParkedError::Incomplete`] if not.
    pub(super) fn complete(&self, queue: &str) -> Result<(), ParkedError> {
        let Self { wanted, looked_at, .. } = *self;
        if looked_at < wanted {
            return Err(ParkedError::Incomplete { queue: queue.to_owned(), looked_at, wanted });
        }
        Ok(())
    }
}

/// The queue in which the messages rest, without anything else.
fn declared(names: &Names, resolved: &Resolved, place: &Place) -> Result<Topology, ParkedError> {
    let all = match place {
        Place::Queue(queue) => build(names, &[resolved.queue(queue)?]),
        Place::Stray => build(names, &[]),
        Place::Discarded => discarded(names),
    };
    let resting = place.resting(names, resolved)?;
    let queues = all.queues.into_iter().filter(|queue| queue.name == resting).collect();
    let mut declared = Topology::default();
    declared.queues = queues;
    Ok(declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_compared_with_the_queue_that_rehop_would_declare_for_it_and_with_nothing_else() {
        let mut settings = Settings::default();
        settings.namespace = "ns".to_owned();
        for (place, queue) in [
            (Place::queue("orders"), "orders.parked"),
            (Place::Stray, "ns.stray"),
            (Place::Discarded, "ns.discarded"),
        ] {
            let parked = Parked::open(&settings, place).unwrap();
            let Topology { exchanges, queues, bindings, .. } = &parked.declared;
            let names: Vec<_> = queues.iter().map(|queue| queue.name.as_str()).collect();
            assert_eq!((parked.queue(), names), (queue, vec![queue]));
            assert!(exchanges.is_empty() && bindings.is_empty());
        }
    }

    #[test]
    fn messages_are_held_for_half_of_the_ack_timeout() {
        let mut settings = Settings::default();
        settings.broker.consumer_timeout = Duration::from_secs(100);
        assert_eq!(Parked::open(&settings, Place::Stray).unwrap().hold(), Duration::from_secs(50));
    }

    #[test]
    fn a_look_is_complete_if_it_has_seen_all_that_it_was_to_see() {
        let seen = |looked_at| Scanned { depth: 9, wanted: 7, looked_at }.complete("orders.parked");
        assert!(seen(7).is_ok());
        let incomplete = seen(6);
        assert!(
            matches!(incomplete, Err(ParkedError::Incomplete { looked_at: 6, wanted: 7, .. })),
            "{incomplete:?}"
        );
    }
}
