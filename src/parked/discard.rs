//! Into the discarded queue, and back.

use std::pin::pin;

use crate::parked::audit::selection;
use crate::parked::carry::Carrier;
use crate::parked::copies::Move;
use crate::parked::error::ParkedError;
use crate::parked::filter::Filter;
use crate::parked::operator::Parked;
use crate::parked::order::{Observe, Order, StopSignal, in_flight};
use crate::parked::place::Place;
use crate::parked::progress::{Discarded, Progress, Restored, Tally};
use crate::parked::ramp::{Ramp, RampSettings, Stop};
use crate::parked::requests::{DiscardRequest, RestoreRequest};
use crate::parked::session::Session;

/// Which messages are moved at once, without a ramp.
struct Selection<'a> {
    filter: &'a Filter,
    expect: Option<u64>,
    in_flight: Option<u16>,
}

impl Parked {
    /// Moves messages into the discarded queue of the namespace, which keeps them for seven days. [`restore`](Self::restore) brings them
    /// back.
    ///
    /// # Errors
    ///
    /// As [`replay`](Self::replay).
    pub async fn discard(
        &self,
        request: &DiscardRequest,
        mut observe: impl FnMut(&Progress) + Send,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Discarded, ParkedError> {
        let session = self.session().await?;
        let discarded = self.discard_in(&session, request, &mut observe, &mut pin!(stop)).await;
        session.close().await;
        discarded
    }

    async fn discard_in(
        &self,
        session: &Session,
        request: &DiscardRequest,
        observe: Observe<'_>,
        stop: StopSignal<'_>,
    ) -> Result<Discarded, ParkedError> {
        let why = request.why.clone().unwrap_or_default();
        tracing::info!(
            queue = self.queue,
            run = session.run,
            selection = selection(&request.filter),
            why,
            "discard begins"
        );
        self.declare_discarded(session).await?;
        let action = Move::Discard { why: why.clone(), from: self.queue.clone() };
        let selection = Selection { filter: &request.filter, expect: request.expect, in_flight: request.in_flight };
        let (tally, stopped, ended) = self.shift(session, action, &selection, observe, stop).await?;
        tracing::info!(queue = self.queue, run = session.run, why, discarded = tally.moved, "discard ended");
        ended?;
        Ok(Discarded { run: session.run.clone(), tally, stopped })
    }

    /// Moves discarded messages back to the parked or stray queue that they were discarded from, with the headers that they had there.
    /// They come to stand at its end, in their order. The filter of a discard's [`run`](Discarded::run), [`Filter::run`], takes
    /// exactly the messages that it moved, as long as they are there: seven days, unless somebody replays them first.
    ///
    /// # Errors
    ///
    /// As [`replay`](Self::replay), and [`ParkedError::NotDiscarded`] at any other place than [`Place::Discarded`].
    pub async fn restore(
        &self,
        request: &RestoreRequest,
        mut observe: impl FnMut(&Progress) + Send,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Restored, ParkedError> {
        if self.interpreter.place != Place::Discarded {
            return Err(ParkedError::NotDiscarded);
        }
        let session = self.session().await?;
        let restored = self.restore_in(&session, request, &mut observe, &mut pin!(stop)).await;
        session.close().await;
        restored
    }

    async fn restore_in(
        &self,
        session: &Session,
        request: &RestoreRequest,
        observe: Observe<'_>,
        stop: StopSignal<'_>,
    ) -> Result<Restored, ParkedError> {
        let why = request.why.as_deref().unwrap_or_default();
        tracing::info!(
            queue = self.queue,
            run = session.run,
            selection = selection(&request.filter),
            why,
            "restore begins"
        );
        let selection = Selection { filter: &request.filter, expect: request.expect, in_flight: request.in_flight };
        let (tally, stopped, ended) = self.shift(session, Move::Restore, &selection, observe, stop).await?;
        tracing::info!(queue = self.queue, run = session.run, why, restored = tally.moved, "restore ended");
        ended?;
        Ok(Restored { run: session.run.clone(), tally, stopped })
    }

    /// Moves everything that is selected, each copy confirmed before its original is acked. The last value is how it ended.
    async fn shift(
        &self,
        session: &Session,
        action: Move,
        selection: &Selection<'_>,
        observe: Observe<'_>,
        stop: StopSignal<'_>,
    ) -> Result<(Tally, Option<Stop>, Result<(), ParkedError>), ParkedError> {
        let depth = session.depth(&self.queue).await?;
        let mut ramp = Ramp::new(RampSettings::none());
        self.check_expected(session, (selection.filter, selection.expect), &mut ramp, &mut *stop).await?;
        let order = Order {
            action,
            filter: selection.filter,
            to: None,
            in_flight: in_flight(selection.in_flight),
            rate: None,
            max_ready: None,
            hold: self.hold(),
            prefetch: self.prefetch,
            limit: self.delivery_limit(session).await?,
        };
        let mut carrier = Carrier::new(session, &self.interpreter, &self.queue, order, ramp, None, observe, stop);
        let ended = match carrier.ramp.stopped() {
            Some(_) => Ok(()),
            None => carrier.run(depth).await,
        };
        Ok((carrier.tally.clone(), carrier.ramp.stopped().cloned(), ended))
    }
}
