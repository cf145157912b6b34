//! One channel's life: subscribes with the prefetch that the inbox asks for, takes deliveries, and
//! hands back those that find no free handler in time.

mod lost;
mod stopping;
mod subscriptions;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use lapin::message::Delivery as Incoming;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use subscriptions::Subscriptions;

use crate::broker::client::{Channel, Connection};
use crate::broker::scout::places::{Consumed, Place};
use crate::consume::context::InFlight;
use crate::consume::inbox::{Late, Take, is_near_limit};
use crate::consume::line::Line;
use crate::consume::settling_channel::SettlingChannel;
use crate::consume::taken::Taken;
use crate::consume::work_queue::WorkQueue;
use crate::error::{Error, Problem};
use crate::message::{Address, Delivery};
use crate::timestamp::Timestamp;
use crate::wire::parked::reunite;

/// A channel that consumes one queue.
pub(crate) struct Session<'a> {
    queue: &'a WorkQueue,
    pub(crate) connection: Arc<dyn Connection>,
    channel: Arc<dyn Channel>,
    _consumed: Consumed,
    settling_channel: Arc<SettlingChannel>,
    subscriptions: Subscriptions,
    take: watch::Receiver<Take>,
    /// Empty between calls of [`receive`](Self::receive). Kept, because a new vector would move
    /// lapin's large deliveries as it grows.
    arrived: Vec<Incoming>,
    /// Whether anything was delivered.
    pub(crate) has_taken: bool,
    /// Why deliveries are to go back.
    late: watch::Receiver<Option<Late>>,
    /// Whether it was reported that the queue is consumed.
    is_consuming: bool,
    /// Whether it ever was.
    pub(crate) has_consumed: bool,
    /// Whether the broker's ack timeout has ended this session, as far as the broker says.
    pub(crate) is_taken_back: bool,
    /// Whether it has ended to give back what a paused queue holds.
    pub(crate) is_paused: bool,
    /// Cancelled when the session ends, or its channel is gone.
    session_ended: CancellationToken,
}

/// How often a channel without a subscription is checked: nothing else notices its end.
const CHECK_CHANNEL_EVERY: Duration = Duration::from_millis(500);

/// Room for this many deliveries is kept.
const ARRIVED_KEPT: usize = 1_000;

impl<'a> Session<'a> {
    /// Opens a channel in this place, after [`WorkQueue::prepare`].
    pub(crate) async fn open(
        queue: &'a WorkQueue,
        connection: Arc<dyn Connection>,
        (place, consumed): (Place, Consumed),
    ) -> Result<Self, Error> {
        let opening = place.open(connection.open_channel());
        let channel = queue.answer("opening a channel to consume", opening).await?;
        Ok(Self {
            queue,
            connection,
            settling_channel: SettlingChannel::new(channel.clone()),
            channel,
            _consumed: consumed,
            subscriptions: Subscriptions::default(),
            take: queue.intake.take(queue.index),
            arrived: Vec::new(),
            has_taken: false,
            late: queue.intake.late(queue.index),
            is_consuming: false,
            has_consumed: false,
            is_taken_back: false,
            is_paused: false,
            session_ended: CancellationToken::new(),
        })
    }

    /// Consumes until the shutdown is requested, and then stops.
    ///
    /// # Errors
    ///
    /// When the channel or its connection is gone. The broker delivers again what was not settled.
    pub(crate) async fn run(&mut self) -> Result<(), Error> {
        self.queue.intake.opened(self.queue.index);
        while !self.queue.shutdown.is_requested() {
            let error = match self.step().await {
                Ok(()) => continue,
                // The shutdown has shortened the time limit, so this says nothing about the
                // channel.
                Err(Error::Timeout { .. }) if self.queue.shutdown.is_requested() => break,
                Err(error) => self.reason_for(error),
            };
            // Before its handlers are dropped: the slot of a dropped one would be given to the next
            // message.
            self.queue.intake.lost(self.queue.index, error.is_by_delivery());
            self.session_ended.cancel();
            if !self.line().allows_single_return() {
                self.close().await;
            }
            return Err(error);
        }
        self.stop().await;
        Ok(())
    }

    pub(crate) fn line(&self) -> Line {
        self.queue.context.line
    }

    /// Asks for a message or gives the subscription its prefetch, as the inbox wants it, then
    /// handles the next event.
    async fn step(&mut self) -> Result<(), Error> {
        self.resize().await?;
        if *self.take.borrow() == Take::One {
            return self.get().await;
        }
        let has_what_it_wants =
            !self.subscriptions.streams.is_empty() || *self.take.borrow() == Take::Window(0);
        if !self.is_consuming && has_what_it_wants && !self.queue.shutdown.is_requested() {
            // Not before the subscription, which the broker may refuse. Without one, the inbox
            // wants nothing delivered now.
            (self.is_consuming, self.has_consumed) = (true, true);
            self.queue.context.consuming();
        }
        let is_unsubscribed = self.subscriptions.streams.is_empty();
        if is_unsubscribed {
            // Before whatever else happens, because that may happen without end.
            self.check_channel()?;
        }
        tokio::select! {
            biased;
            () = self.queue.shutdown.requested() => Ok(()),
            // Before deliveries, because these may come without end.
            () = until_late(&mut self.late) => self.hand_back_late().await,
            item = self.subscriptions.next() => if self.receive(item)? { self.cancelled().await } else { Ok(()) },
            // An error means that the intake is gone, and with it the service.
            _ = self.take.changed() => Ok(()),
            () = tokio::time::sleep(CHECK_CHANNEL_EVERY), if is_unsubscribed => Ok(()),
        }
    }

    /// Takes a delivery, and all others that have arrived by now. Returns whether the broker has
    /// ended a subscription.
    fn receive(&mut self, first: Option<lapin::Result<Incoming>>) -> Result<bool, Error> {
        let mut item = Some(first);
        let ended = loop {
            match item {
                None => break Ok(false),
                Some(Some(Ok(incoming))) => self.arrived.push(incoming),
                Some(Some(Err(error))) => break Err(self.lost_by(Problem::of_lapin(&error))),
                Some(None) => break Ok(true),
            }
            item = self.subscriptions.next().now_or_never();
        };
        let cancelled = ended?;
        self.has_taken |= !self.arrived.is_empty();
        let mut arrived = std::mem::take(&mut self.arrived);
        let taken = arrived.drain(..).map(|incoming| self.read(incoming)).collect();
        arrived.shrink_to(ARRIVED_KEPT);
        self.arrived = arrived;
        self.queue.intake.arrive(self.queue.index, taken);
        Ok(cancelled)
    }

    fn read(&self, incoming: Incoming) -> Taken {
        let received = Timestamp::now();
        let Incoming {
            delivery_tag,
            exchange,
            routing_key,
            redelivered,
            mut properties,
            mut data,
            ..
        } = incoming;
        // A parked message may have come back by another way than a replay.
        reunite(&mut properties, &mut data);
        let (context, address) = (self.queue.context.clone(), Address { exchange, routing_key });
        context.contract.restore_priority(&address, &mut properties);
        let (ledger, origin, ignored) =
            context.contract.read(&address, redelivered, &properties, received);
        context.malformed.note(&context.config.queue, &properties, ignored);
        let body = Bytes::from(data);
        let delivery =
            Delivery { address, origin, redelivered, delivery_tag, properties, body, ledger };
        let (arrived, settle_limit) = (Instant::now(), self.queue.ack_timeout.settle_limit());
        self.settling_channel.arrived(delivery_tag, arrived);
        let limit = context.config.policy.delivery_limit;
        let is_urgent =
            delivery.ledger.redeliveries.is_some_and(|count| is_near_limit(count, limit));
        let (channel, session_ended) =
            (Arc::downgrade(&self.settling_channel), self.session_ended.clone());
        Taken {
            delivery: Arc::new(delivery),
            received,
            channel,
            session_ended,
            arrived,
            settle_limit,
            is_urgent,
            _in_flight: InFlight::new(context.clone()),
            context,
            chain: None,
            unanswered: None,
        }
    }

    /// Hands back what has waited too long, after the window has become narrower.
    async fn hand_back_late(&mut self) -> Result<(), Error> {
        self.resize().await?;
        let Some(late) = *self.late.borrow() else { return Ok(()) };
        if !self.line().allows_single_return() {
            let why = match late {
                Late::Paused => "the queue has been paused for a while",
                Late::Waited => {
                    "a message was held for nearly as long as the broker's consumer_timeout"
                }
            };
            (self.is_paused, self.is_taken_back) = (late == Late::Paused, late == Late::Waited);
            let problem = format!("{why}; closing the channel, to give back all in its order");
            return Err(self.lost_by(problem.into()));
        }
        self.hand_back_unstarted(late);
        Ok(())
    }

    fn hand_back_unstarted(&self, late: Late) {
        let why = match late {
            Late::Paused => "the queue has been paused for a while",
            Late::Waited => "they waited too long for a handler to start",
        };
        self.hand_back(&self.queue.intake.take_late(self.queue.index), why);
    }

    fn hand_back(&self, not_running: &[Taken], why: &str) {
        if not_running.is_empty() {
            return;
        }
        let handed_back = not_running.iter().filter(|taken| taken.hand_back()).count();
        tracing::info!(queue = %self.name(), handed_back, "handed back deliveries that were not running: {why}");
        self.queue.context.summary.update(|summary| summary.handed_back += handed_back as u64);
    }

    async fn answer<T>(
        &self,
        what: &str,
        operation: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, Error> {
        self.queue.answer(what, operation).await
    }

    fn name(&self) -> &str {
        &self.queue.context.config.queue
    }
}

/// Returns once deliveries are to go back.
async fn until_late(late: &mut watch::Receiver<Option<Late>>) {
    let _ = late.wait_for(Option::is_some).await;
}
