//! Into the discarded queue, and back.

use std::pin::pin;

use serde::Serialize;

use crate::parked::carry::{Carrier, Job};
use crate::parked::copies::Move;
use crate::parked::error::ParkedError;
use crate::parked::filter::Filter;
use crate::parked::message::Place;
use crate::parked::operator::Parked;
use crate::parked::progress::{Observe, Progress, StopSignal, Tally};
use crate::parked::ramp::{Ramp, RampSettings, Stop};
use crate::parked::session::OperatorSession;
use crate::parked::under_way::in_flight;
use crate::telemetry::{About, RestTracer, RunSpan};
use rehop::internals::attributes as names;

/// What to discard.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DiscardRequest {
    /// Which messages.
    pub filter: Filter,
    /// How many messages must match. With another number nothing is discarded. Default: any number.
    pub expect: Option<u64>,
    /// Why, for the log and the trace. The discarded messages carry it.
    pub why: Option<String>,
    /// Who, for the trace. Default: the user whose process this is.
    pub who: Option<String>,
    /// How many messages may be in flight, as in
    /// [`ReplayRequest::in_flight`](crate::parked::ReplayRequest::in_flight).
    pub in_flight: Option<u16>,
}

/// How a discard ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Discarded {
    /// Names this operation in logs, and on the messages that it moved:
    /// [`Filter::run`](crate::parked::Filter::run) finds them.
    pub run: String,
    /// What it has done.
    #[serde(flatten)]
    pub tally: Tally,
    /// Why it stopped before its end. `None` if it went through all messages.
    pub stopped: Option<Stop>,
}

/// What to move back from the discarded queue.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct RestoreRequest {
    /// Which messages.
    pub filter: Filter,
    /// How many messages must match. With another number nothing is moved. Default: any number.
    pub expect: Option<u64>,
    /// Why, for the log and the trace.
    pub why: Option<String>,
    /// Who, for the trace. Default: the user whose process this is.
    pub who: Option<String>,
    /// How many messages may be in flight, as in
    /// [`ReplayRequest::in_flight`](crate::parked::ReplayRequest::in_flight).
    pub in_flight: Option<u16>,
}

/// How a restore ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Restored {
    /// Names this operation in logs.
    pub run: String,
    /// What it has done.
    #[serde(flatten)]
    pub tally: Tally,
    /// Why it stopped before its end. `None` if it went through all messages.
    pub stopped: Option<Stop>,
}

/// What is asked for: to move these messages at once, without a ramp.
struct MoveRequest<'a> {
    filter: &'a Filter,
    expect: Option<u64>,
    why: Option<&'a str>,
    who: Option<&'a str>,
    in_flight: Option<u16>,
}

/// How a move ended.
struct Moved {
    /// Names this operation.
    run: String,
    tally: Tally,
    /// Why it stopped before its end.
    stopped: Option<Stop>,
}

impl Parked {
    /// Moves messages into the discarded queue of the namespace, which keeps them for seven days.
    /// [`restore`](Self::restore) brings them back.
    ///
    /// # Errors
    ///
    /// As [`replay`](Self::replay), and [`ParkedError::AlreadyDiscarded`] if this is the place
    /// [`Place::Discarded`].
    pub async fn discard(
        &self,
        request: &DiscardRequest,
        mut observe: impl FnMut(&Progress) + Send,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Discarded, ParkedError> {
        if self.interpreter.place == Place::Discarded {
            return Err(ParkedError::AlreadyDiscarded);
        }
        let DiscardRequest { filter, expect, why, who, in_flight } = request;
        let action =
            Move::Discard { why: why.clone().unwrap_or_default(), from: self.queue.clone() };
        let (why, who, in_flight) = (why.as_deref(), who.as_deref(), *in_flight);
        let request = MoveRequest { filter, expect: *expect, why, who, in_flight };
        let Moved { run, tally, stopped } =
            self.shift(action, &request, &mut observe, &mut pin!(stop)).await?;
        Ok(Discarded { run, tally, stopped })
    }

    /// Moves discarded messages back to the parked or stray queue that they were discarded from,
    /// with the headers that they had there. They come to stand at its end, in their order. The
    /// filter of a discard's [`run`](Discarded::run), [`Filter::run`], takes exactly the messages
    /// that it moved, as long as they are there: seven days, unless somebody replays them first. A
    /// message whose queue does not exist stays among the discarded ones, and so does one that does
    /// not say where it was.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list), [`ParkedError::NotDiscarded`] if this is another place than
    /// [`Place::Discarded`], [`ParkedError::Incomplete`] as in a [`replay`](Self::replay), and when
    /// a queue refuses a message or the connection is lost. What was confirmed by then is back; run
    /// it again for the rest.
    pub async fn restore(
        &self,
        request: &RestoreRequest,
        mut observe: impl FnMut(&Progress) + Send,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Restored, ParkedError> {
        if self.interpreter.place != Place::Discarded {
            return Err(ParkedError::NotDiscarded);
        }
        let RestoreRequest { filter, expect, why, who, in_flight } = request;
        let (why, who, in_flight) = (why.as_deref(), who.as_deref(), *in_flight);
        let request = MoveRequest { filter, expect: *expect, why, who, in_flight };
        let Moved { run, tally, stopped } =
            self.shift(Move::Restore, &request, &mut observe, &mut pin!(stop)).await?;
        Ok(Restored { run, tally, stopped })
    }

    /// Moves everything that is selected, each copy confirmed before its original is acked.
    async fn shift(
        &self,
        action: Move,
        request: &MoveRequest<'_>,
        observe: Observe<'_>,
        stop: StopSignal<'_>,
    ) -> Result<Moved, ParkedError> {
        let session = self.session().await?;
        let shifted = self.shift_in(&session, action, request, observe, stop).await;
        session.close().await;
        shifted
    }

    /// Logs the beginning and the end, whatever the end is.
    async fn shift_in(
        &self,
        session: &OperatorSession,
        action: Move,
        request: &MoveRequest<'_>,
        observe: Observe<'_>,
        stop: StopSignal<'_>,
    ) -> Result<Moved, ParkedError> {
        let (what, why) = (action.as_str(), request.why.unwrap_or_default());
        tracing::info!(
            queue = self.queue,
            run = session.run,
            selection = request.filter.in_log(),
            why,
            "{what} begins"
        );
        let mut moved = Moved { run: session.run.clone(), tally: Tally::default(), stopped: None };
        let (span, tracer) = self.spans(session, &action, request).into_parts();
        let ended =
            self.shift_all(session, (action, tracer), request, observe, stop, &mut moved).await;
        span.counted(&[
            (names::MATCHED, moved.tally.matched),
            (names::SENT, moved.tally.moved),
            (names::STAYED, moved.tally.stayed()),
        ]);
        if let Some(stop) = &moved.stopped {
            span.stopped(stop.in_log());
        }
        if let Err(error) = &ended {
            span.failed(error);
        }
        tracing::info!(
            queue = self.queue,
            run = session.run,
            why,
            moved = moved.tally.moved,
            unconfirmed = moved.tally.unconfirmed,
            stayed = moved.tally.stayed(),
            stopped = moved.stopped.as_ref().map(Stop::in_log).map(tracing::field::display),
            error = ended.as_ref().err().map(tracing::field::display),
            "{what} ended"
        );
        ended.map(|()| moved)
    }

    /// What the traces say of it.
    fn spans(
        &self,
        session: &OperatorSession,
        action: &Move,
        request: &MoveRequest<'_>,
    ) -> RunSpan {
        let is_discard = matches!(action, Move::Discard { .. });
        RunSpan::start(About {
            operation: action.as_str(),
            resting: &self.queue,
            rests_as: self.interpreter.place.rests_as(),
            was_parked: self.interpreter.place.was_parked(),
            ends: is_discard.then_some(Place::Discarded.rests_as()),
            run: &session.run,
            who: request.who,
            why: request.why,
            selection: &request.filter.in_log(),
        })
    }

    async fn shift_all(
        &self,
        session: &OperatorSession,
        (action, tracer): (Move, RestTracer),
        request: &MoveRequest<'_>,
        observe: Observe<'_>,
        stop: StopSignal<'_>,
        moved: &mut Moved,
    ) -> Result<(), ParkedError> {
        let depth = session.depth(&self.queue).await?;
        self.check_way_back(session).await?;
        if matches!(action, Move::Discard { .. }) {
            self.declare_discarded(session).await?;
        }
        let mut ramp = Ramp::new(RampSettings::none());
        self.check_expected(session, (request.filter, request.expect), &mut ramp, &mut *stop)
            .await?;
        let job = Job {
            metrics: self.metrics(action.as_str()),
            action,
            filter: request.filter,
            to: None,
            in_flight: in_flight(request.in_flight),
            rate: None,
            max_ready: None,
            hold: self.hold(),
            prefetch: self.prefetch,
            limit: self.delivery_limit(session).await?,
        };
        let mut carrier =
            Carrier::new(session, &self.interpreter, &self.queue, job, ramp, None, observe, stop);
        carrier.tracer = Some(tracer);
        let ended = match carrier.ramp.stopped() {
            Some(_) => Ok(()),
            None => carrier.run(depth).await,
        };
        moved.stopped = carrier.ramp.stopped().cloned();
        moved.tally = carrier.tally;
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use rehop::Settings;

    fn at(place: Place) -> Parked {
        Parked::open(&Settings::default(), place).unwrap()
    }

    #[tokio::test]
    async fn what_is_discarded_is_not_discarded_again_and_only_that_is_restored() {
        let discarded =
            at(Place::Discarded).discard(&DiscardRequest::default(), |_| {}, pending()).await;
        assert!(matches!(discarded, Err(ParkedError::AlreadyDiscarded)), "{discarded:?}");
        let restored =
            at(Place::Stray).restore(&RestoreRequest::default(), |_| {}, pending()).await;
        assert!(matches!(restored, Err(ParkedError::NotDiscarded)), "{restored:?}");
    }
}
