//! Replays: messages go back to the queues in which they failed.

use std::pin::pin;
use std::time::Duration;

use serde::Serialize;

use crate::parked::carry::{Carrier, Job};
use crate::parked::copies::Move;
use crate::parked::error::ParkedError;
use crate::parked::fates::{FateStream, MOST_FATES};
use crate::parked::filter::Filter;
use crate::parked::group::Group;
use crate::parked::operator::Parked;
use crate::parked::progress::{Fates, Observe, Progress, StopSignal, Tally};
use crate::parked::ramp::{Ramp, RampSettings, Stop};
use crate::parked::session::OperatorSession;
use crate::parked::under_way::{DEFAULT_IN_FLIGHT, in_flight};
use crate::telemetry::{About, RestTracer, Run, RunSpan};
use rehop::Error;
use rehop::internals::attributes as names;

/// How to replay.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ReplayRequest {
    /// Which messages.
    pub filter: Filter,
    /// How the replay grows.
    pub ramp: RampSettings,
    /// How many messages must match. With another number nothing is sent. Default: any number.
    pub expect: Option<u64>,
    /// Why, for the log and the trace.
    pub why: Option<String>,
    /// Who, for the trace. Default: the user whose process this is.
    pub who: Option<String>,
    /// The work queue of messages that do not say where they belong.
    pub to: Option<String>,
    /// How many messages a second are sent at most, above 0. Default: no limit.
    pub rate: Option<f64>,
    /// Sending pauses while a work queue has more ready messages than this. Default: it never does.
    pub max_ready: Option<u64>,
    /// The messages' new deadline, from now. Without one they get the queue's `retry.max_age`.
    pub deadline: Option<Duration>,
    /// How many messages may be in flight. If this process is killed, as many may be duplicated; a
    /// larger number is faster. 0 counts as 1. With 1, a message of which the broker accepts no
    /// copy stays where it is and is counted as too large. If the filter leaves more than four
    /// times as many messages in place, the limit is a quarter of those. At most 64 MiB of bodies
    /// are in flight, or one message if it is larger. Up to 64 MiB more are being received, if the
    /// next messages are on average no larger than those so far. Default:
    /// [`DEFAULT_IN_FLIGHT`](Self::DEFAULT_IN_FLIGHT).
    pub in_flight: Option<u16>,
    /// For how long to listen for fates after the last one was heard. Default 10 s.
    pub follow: Duration,
}

impl ReplayRequest {
    /// A replay learns the fate of so many messages. Those beyond are sent and confirmed like the
    /// others, and count as unknown; and a high share of them that parks again or is discarded does
    /// not stop the replay. To learn the fate of all, set [`limit`](Filter::limit) to this number
    /// and repeat the replay: it takes the oldest first.
    pub const MOST_FATES: u64 = MOST_FATES as u64;

    /// How many messages may be in flight if nothing else is asked for.
    pub const DEFAULT_IN_FLIGHT: u16 = DEFAULT_IN_FLIGHT;
}

impl Default for ReplayRequest {
    fn default() -> Self {
        Self {
            filter: Filter::default(),
            ramp: RampSettings::default(),
            expect: None,
            why: None,
            who: None,
            to: None,
            rate: None,
            max_ready: None,
            deadline: None,
            in_flight: None,
            follow: Duration::from_secs(10),
        }
    }
}

/// How a replay ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Replayed {
    /// Names this replay; its messages carry it in `rehop-replay-run`.
    pub run: String,
    /// What it has done.
    #[serde(flatten)]
    pub tally: Tally,
    /// What became of the messages.
    pub fates: Fates,
    /// How many of them nothing is known of. Never counted as success.
    pub unknown: u64,
    /// Why it stopped before its end. `None` if it went through all messages.
    pub stopped: Option<Stop>,
    /// The messages that parked again.
    pub parked_again: Vec<Group>,
}

impl Replayed {
    /// Whether every message that matched was sent and handled.
    pub fn is_success(&self) -> bool {
        self.stopped.is_none() && self.fates.handled == self.tally.matched
    }
}

impl Parked {
    /// Sends messages back to the queues in which they failed. Each copy is confirmed before its
    /// original is acked. A message whose queue does not exist stays where it is.
    ///
    /// The fate of [`ReplayRequest::MOST_FATES`] messages is learnt; those beyond are sent and
    /// count as unknown.
    ///
    /// `observe` is told the progress several times a second. When `stop` completes, nothing more
    /// is sent.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list), and when the work queue that the place or [`ReplayRequest::to`]
    /// names does not exist, a queue refuses a message, or the connection is lost;
    /// [`ParkedError::CopyNotAccepted`] if the broker does not accept one of several copies in
    /// flight; and [`ParkedError::Incomplete`] if fewer messages could be looked at than there were
    /// at the start, for instance because another consumer took some. What was confirmed by then is
    /// sent, as the last progress says; run it again for the rest. Nothing is sent with
    /// [`ParkedError::NoSuchNamespace`], nor with [`ParkedError::OtherNamespace`] if the queue
    /// itself belongs to another namespace.
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
        session: &OperatorSession,
        request: &ReplayRequest,
        observe: Observe<'_>,
        stop: StopSignal<'_>,
    ) -> Result<Replayed, ParkedError> {
        let run = session.run.clone();
        let depth = session.depth(&self.queue).await?;
        self.check_way_back(session).await?;
        let why = request.why.as_deref().unwrap_or_default();
        tracing::info!(
            queue = self.queue,
            run,
            depth,
            selection = request.filter.in_log(),
            why,
            "replay begins"
        );
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
            rests_as: self.interpreter.place.rests_as(),
            was_parked: self.interpreter.place.was_parked(),
            ends: None,
            run: &replayed.run,
            who: request.who.as_deref(),
            why: request.why.as_deref(),
            selection: &request.filter.in_log(),
        })
        .into_parts();
        let ended =
            self.send_back(session, request, depth, (observe, tracer), stop, &mut replayed).await;
        self.report(&span, why, &replayed, ended.as_ref().err());
        ended.map(|()| replayed)
    }

    /// Says in the span and in the log how a replay ended.
    fn report(&self, span: &Run, why: &str, replayed: &Replayed, error: Option<&ParkedError>) {
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
        if let Some(error) = error {
            span.failed(error);
        }
        tracing::info!(
            queue = self.queue,
            run = replayed.run,
            why,
            sent = tally.moved,
            unconfirmed = tally.unconfirmed,
            handled = fates.handled,
            parked_again = fates.parked_again,
            unknown = replayed.unknown,
            stayed = tally.stayed(),
            stopped = replayed.stopped.as_ref().map(Stop::in_log).map(tracing::field::display),
            error = error.map(tracing::field::display),
            "replay ended"
        );
    }

    async fn send_back(
        &self,
        session: &OperatorSession,
        request: &ReplayRequest,
        depth: u64,
        (observe, tracer): (Observe<'_>, RestTracer),
        stop: StopSignal<'_>,
        replayed: &mut Replayed,
    ) -> Result<(), ParkedError> {
        let mut ramp = Ramp::new(request.ramp.clone());
        self.check_expected(session, (&request.filter, request.expect), &mut ramp, &mut *stop)
            .await?;
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
        let mut carrier =
            Carrier::new(session, &self.interpreter, &self.queue, job, ramp, fates, observe, stop);
        carrier.tracer = Some(tracer);
        let ended = match carrier.ramp.stopped() {
            Some(_) => Ok(()),
            None => carrier.run(depth).await,
        };
        let is_settled = matches!(ended, Ok(()) | Err(ParkedError::Incomplete { .. }));
        if is_settled && carrier.tally.moved > 0 {
            carrier.follow(request.follow).await;
            carrier.check_returned_strays().await;
        }
        replayed.fates = carrier.book.fates;
        replayed.unknown = carrier.book.fates.unknown();
        replayed.stopped = carrier.ramp.stopped().cloned();
        replayed.tally = carrier.tally;
        replayed.parked_again = carrier.book.into_groups();
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_is_a_success_if_it_went_through_and_all_that_matched_was_handled() {
        let is_success = |handled, stopped| {
            let (tally, fates) =
                (Tally { matched: 2, ..Tally::default() }, Fates { handled, ..Fates::default() });
            let run = String::new();
            Replayed { run, tally, fates, unknown: 0, stopped, parked_again: Vec::new() }
                .is_success()
        };
        assert!(is_success(2, None));
        assert!(!is_success(1, None) && !is_success(2, Some(Stop::StrayGrew)));
    }
}
