//! Replays.

use std::pin::pin;

use crate::error::Error;
use crate::parked::audit::selection;
use crate::parked::carry::Carrier;
use crate::parked::copies::Move;
use crate::parked::error::ParkedError;
use crate::parked::fates::FateStream;
use crate::parked::operator::Parked;
use crate::parked::order::{Observe, Order, StopSignal, in_flight};
use crate::parked::progress::{Progress, Replayed};
use crate::parked::ramp::Ramp;
use crate::parked::requests::ReplayRequest;
use crate::parked::session::Session;

impl Parked {
    /// Sends messages back to the queues in which they failed. Each copy is confirmed before its original is acked.
    ///
    /// The fate of [`ReplayRequest::MOST_FATES`] messages is learnt; those beyond are sent and count as unknown.
    ///
    /// `observe` is told the progress several times a second. When `stop` completes, nothing more is sent.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list), and when a queue refuses a message or the connection is lost. What was confirmed by then is sent; run it
    /// again for the rest.
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
        let (run, names) = (session.run.clone(), &self.interpreter.names);
        let depth = session.depth(&self.queue).await?;
        // It keeps what finds no other queue. Without it such copies would be returned.
        match session.depth(&self.interpreter.names.stray()).await {
            Ok(_) | Err(Error::Permission { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let why = request.why.as_deref().unwrap_or_default();
        tracing::info!(queue = self.queue, run, depth, selection = selection(&request.filter), why, "replay begins");
        let mut ramp = Ramp::new(request.ramp.clone());
        self.check_expected(session, (&request.filter, request.expect), &mut ramp, &mut *stop).await?;
        let fates = match FateStream::open(session, names).await {
            Ok(fates) => Some(fates),
            Err(error @ Error::Permission { .. }) => {
                tracing::warn!(%error, "the fate of the messages will be unknown");
                None
            }
            Err(error) => return Err(error.into()),
        };
        let order = Order {
            action: Move::Replay { deadline: request.deadline },
            filter: &request.filter,
            to: request.to.as_deref(),
            in_flight: in_flight(request.in_flight),
            rate: request.rate.filter(|rate| rate.is_finite() && *rate > 0.0),
            max_ready: request.max_ready,
            hold: self.hold(),
            prefetch: self.prefetch,
            limit: self.delivery_limit(session).await?,
        };
        let mut carrier = Carrier::new(session, &self.interpreter, &self.queue, order, ramp, fates, observe, stop);
        let ended = match carrier.ramp.stopped() {
            Some(_) => Ok(()),
            None => carrier.run(depth).await,
        };
        if ended.is_ok() && carrier.tally.moved > 0 {
            carrier.follow(request.follow).await;
        }
        let replayed = Replayed {
            run,
            tally: carrier.tally.clone(),
            fates: carrier.book.fates,
            unknown: carrier.book.fates.unknown(),
            stopped: carrier.ramp.stopped().cloned(),
            parked_again: carrier.book.into_groups(),
        };
        let (tally, fates) = (&replayed.tally, &replayed.fates);
        tracing::info!(
            queue = self.queue,
            run = replayed.run,
            why,
            sent = tally.moved,
            handled = fates.handled,
            parked_again = fates.parked_again,
            unknown = replayed.unknown,
            stopped = replayed.stopped.as_ref().map(tracing::field::display),
            "replay ended"
        );
        ended?;
        Ok(replayed)
    }
}
