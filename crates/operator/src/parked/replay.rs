//! Replays.

use std::pin::pin;

use crate::parked::audit::selection;
use crate::parked::carry::{Carrier, Job};
use crate::parked::copies::Move;
use crate::parked::error::ParkedError;
use crate::parked::fates::FateStream;
use crate::parked::operator::Parked;
use crate::parked::progress::{Observe, Progress, Replayed, StopSignal, Tally};
use crate::parked::ramp::{Fates, Ramp, Stop};
use crate::parked::requests::{ReplayRequest, in_flight};
use crate::parked::session::Session;
use crate::telemetry::{About, RestTracer, RunSpan};
use rehop::Error;
use rehop::internals::attributes as names;

impl Parked {
    /// Sends messages back to the queues in which they failed. Each copy is confirmed before its original is acked. A message whose
    /// queue does not exist stays where it is.
    ///
    /// The fate of [`ReplayRequest::MOST_FATES`] messages is learnt; those beyond are sent and count as unknown.
    ///
    /// `observe` is told the progress several times a second. When `stop` completes, nothing more is sent.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list), and when the work queue that the place or [`ReplayRequest::to`] names does not exist, a queue refuses a message, or
    /// the connection is lost; and [`ParkedError::Incomplete`] if fewer messages could be looked at than there were at the start, for instance
    /// because another consumer took some. What was confirmed by then is sent, as the last progress says; run it again for the rest.
    /// Nothing is sent with [`ParkedError::OtherNamespace`] and [`ParkedError::NoSuchNamespace`].
    pub async fn replay(
        &self,
        request: &ReplayRequest,
        mut observe: impl FnMut(&Progress) + Send,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Replayed, ParkedError> {
        let session = self.session().await?;
        let replayed = self.replay_in(&session, request, &mut observe, &mut pin!(stop)).await;
        session.close().await;
        replayed
    }

    async fn replay_in(
        &self,
        session: &Session,
        request: &ReplayRequest,
        observe: Observe<'_>,
        stop: StopSignal<'_>,
    ) -> Result<Replayed, ParkedError> {
        let run = session.run.clone();
        let depth = session.depth(&self.queue).await?;
        self.check_way_back(session).await?;
        let why = request.why.as_deref().unwrap_or_default();
        tracing::info!(queue = self.queue, run, depth, selection = selection(&request.filter), why, "replay begins");
        let mut replayed = Replayed {
            run,
            tally: Tally::default(),
            fates: Fates::default(),
            unknown: 0,
            stopped: None,
            parked_again: Vec::new(),
        };
        let (span, tracer) = RunSpan::start(About {
            operation: "replay",
            resting: &self.queue,
            run: &replayed.run,
            who: request.who.as_deref(),
            why: request.why.as_deref(),
            selection: &selection(&request.filter),
        })
        .into_parts();
        let ended = self.send_back(session, request, depth, (observe, tracer), stop, &mut replayed).await;
        let (tally, fates) = (&replayed.tally, &replayed.fates);
        span.counted(&[
            (names::MATCHED, tally.matched),
            (names::SENT, tally.moved),
            (names::HANDLED, fates.handled),
            (names::PARKED_AGAIN, fates.parked_again),
            (names::UNKNOWN, replayed.unknown),
            (names::STAYED, tally.stayed()),
        ]);
        if let Some(stop) = &replayed.stopped {
            span.stopped(stop.in_log());
        }
        if let Err(error) = &ended {
            span.failed(error);
        }
        tracing::info!(
            queue = self.queue,
            run = replayed.run,
            why,
            sent = tally.moved,
            handled = fates.handled,
            parked_again = fates.parked_again,
            unknown = replayed.unknown,
            stayed = tally.stayed(),
            stopped = replayed.stopped.as_ref().map(Stop::in_log).map(tracing::field::display),
            error = ended.as_ref().err().map(tracing::field::display),
            "replay ended"
        );
        ended.map(|()| replayed)
    }

    async fn send_back(
        &self,
        session: &Session,
        request: &ReplayRequest,
        depth: u64,
        (observe, tracer): (Observe<'_>, RestTracer),
        stop: StopSignal<'_>,
        replayed: &mut Replayed,
    ) -> Result<(), ParkedError> {
        let mut ramp = Ramp::new(request.ramp.clone());
        self.check_expected(session, (&request.filter, request.expect), &mut ramp, &mut *stop).await?;
        let fates = match FateStream::open(session, &self.interpreter.names).await {
            Ok(fates) => Some(fates),
            Err(error @ Error::Permission { .. }) => {
                tracing::warn!(%error, "the fate of the messages will be unknown");
                None
            }
            Err(error) => return Err(error.into()),
        };
        let action = Move::Replay { deadline: request.deadline };
        let job = Job {
            metrics: self.metrics(action.as_str()),
            action,
            filter: &request.filter,
            to: request.to.as_deref(),
            in_flight: in_flight(request.in_flight),
            rate: request.rate.filter(|rate| rate.is_finite() && *rate > 0.0),
            max_ready: request.max_ready,
            hold: self.hold(),
            prefetch: self.prefetch,
            limit: self.delivery_limit(session).await?,
        };
        let mut carrier = Carrier::new(session, &self.interpreter, &self.queue, job, ramp, fates, observe, stop);
        carrier.tracer = Some(tracer);
        let ended = match carrier.ramp.stopped() {
            Some(_) => Ok(()),
            None => carrier.run(depth).await,
        };
        let is_settled = matches!(ended, Ok(()) | Err(ParkedError::Incomplete { .. }));
        if is_settled && carrier.tally.moved > 0 {
            carrier.follow(request.follow).await;
        }
        replayed.fates = carrier.book.fates;
        replayed.unknown = carrier.book.fates.unknown();
        replayed.stopped = carrier.ramp.stopped().cloned();
        replayed.tally = carrier.tally;
        replayed.parked_again = carrier.book.into_groups();
        ended
    }
}
