//! One channel's life: subscribes with the prefetch that the inbox asks for, takes deliveries, hands back what no handler will
//! see.

mod subscriptions;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use lapin::message::Delivery as Incoming;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use subscriptions::Subscriptions;

use crate::broker::client::{Channel, Connection};
use crate::broker::connection::Link;
use crate::broker::keeper::Keeper;
use crate::broker::look::{leader_answers, silent_leader};
use crate::broker::queued::queued;
use crate::consume::ack_timeout::{AckTimeout, is_ack_timeout, named_in};
use crate::consume::context::{InFlight, QueueContext};
use crate::consume::inbox::{QueueIndex, is_near_limit};
use crate::consume::intake::Intake;
use crate::consume::settler::{CLOSE_DELAY, Settler, SettlingChannel};
use crate::consume::unacked::Unacked;
use crate::error::{Error, Problem};
use crate::message::{Address, Delivery};
use crate::shutdown::Shutdown;
use crate::timestamp::Timestamp;
use crate::topology::Topology;
use crate::wire::parked::reunite;

/// Why a session ended.
pub(crate) enum SessionEnd {
    /// The shutdown was requested. Nothing is taken any more, and what no handler had seen was handed back.
    Stopped,
    /// The channel or its connection is gone; the broker delivers again what was not settled.
    Lost(Error),
}

/// One work queue, and what its sessions share.
pub(crate) struct WorkQueue {
    pub(crate) context: Arc<QueueContext>,
    pub(crate) intake: Arc<Intake>,
    /// Names it in the inbox.
    pub(crate) index: QueueIndex,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) publishing: Arc<Link>,
    /// What the queue itself needs.
    pub(crate) topology: Topology,
    pub(crate) shutdown: Shutdown,
    /// The time limit for one answer of the broker.
    pub(crate) answer_timeout: Duration,
    /// How long a delivery may stay unsettled.
    pub(crate) ack_timeout: AckTimeout,
}

impl WorkQueue {
    /// After the broker has taken messages back, waits until it takes copies again. During an alarm nothing can be copied, so everything would
    /// stay held, and be taken back again. No longer than the ack timeout, because an alarm may last until this queue is consumed.
    pub(crate) async fn wait_out_alarm(&self) {
        let limit = self.ack_timeout.settle_limit();
        if self.publishing.state().is_blocked {
            tracing::warn!(
                queue = self.context.config.queue,
                "the broker has taken messages back while it blocks the publishing connection, as during an alarm; consuming again when \
                 this ends, in {limit:.0?} at the latest"
            );
        }
        let _ = tokio::time::timeout(limit, self.publishing.unblocked()).await;
    }
}

/// A channel that consumes one queue.
pub(crate) struct Session<'a> {
    queue: &'a WorkQueue,
    connection: Arc<dyn Connection>,
    channel: Arc<dyn Channel>,
    settling_channel: Arc<SettlingChannel>,
    subscriptions: Subscriptions,
    window: watch::Receiver<u16>,
    /// Empty between calls of [`receive`](Self::receive). Kept, because a new vector would move lapin's large deliveries as it grows.
    arrived: Vec<Incoming>,
    has_taken: bool,
    /// When to look next at what is due, at the earliest.
    look_at: Instant,
    /// Whether it was reported that the queue is consumed.
    is_consuming: bool,
    /// Whether it ever was.
    has_consumed: bool,
    /// Whether the broker's ack timeout may have ended this session.
    is_taken_back: bool,
    lost: CancellationToken,
    _lost_with_the_session: DropGuard,
}

/// How often a channel without a subscription is checked: nothing else notices its end.
const CHECK_CHANNEL_EVERY: Duration = Duration::from_millis(500);

/// Room for this many deliveries is kept.
const ARRIVED_KEPT: usize = 1_000;

/// What is due may concern another queue, so a session does not ask again at once.
const SOONEST_WAKE: Duration = Duration::from_millis(50);

/// How long the broker may take to delete a queue after it has cancelled the subscriptions. Until then the queue may still be found,
/// and the binding that follows a declare may find none: the broker then closes the whole connection with 541 (4.3).
const DELETION: Duration = Duration::from_millis(300);

/// The broker does not say which.
const WHY_CANCELLED: &str = "the queue was deleted, its node went away, or a message was not settled within the broker's consumer_timeout: \
    broker.consumer_timeout should say it, and for an existing quorum queue queue_type = \"quorum\" should be set";

impl<'a> Session<'a> {
    /// Declares what the queue needs, checks that its leader answers, and opens a channel.
    pub(crate) async fn open(queue: &'a WorkQueue, connection: Arc<dyn Connection>) -> Result<Self, Error> {
        queue.keeper.declare(&connection, &queue.topology).await?;
        Self::check_leader(queue, &*connection).await?;
        let opening = connection.open_channel();
        let channel = queue.shutdown.answer("opening a channel to consume", queue.answer_timeout, opening).await?;
        let lost = CancellationToken::new();
        let session = Self {
            queue,
            connection,
            settling_channel: SettlingChannel::new(channel.clone()),
            channel,
            subscriptions: Subscriptions::default(),
            window: queue.intake.window(queue.index),
            arrived: Vec::new(),
            has_taken: false,
            look_at: Instant::now(),
            is_consuming: false,
            has_consumed: false,
            is_taken_back: false,
            _lost_with_the_session: lost.clone().drop_guard(),
            lost,
        };
        session.set_prefetch(1).await?;
        Ok(session)
    }

    /// Fails if the leader of the queue hangs. The broker would carry a subscription out when the leader goes on, although nobody waits for
    /// it any more, and would charge the messages that it delivers.
    async fn check_leader(queue: &WorkQueue, connection: &dyn Connection) -> Result<(), Error> {
        let name = &queue.context.addresses.queue;
        let looking = async {
            let channel = connection.open_channel().await?;
            let answers = leader_answers(&*channel, name, queue.answer_timeout / 2).await?;
            channel.close("done").await.map(|()| answers)
        };
        match queue.shutdown.answer("asking the leader of a queue", queue.answer_timeout, looking).await {
            // The queue may be consumed all the same: some versions require more permissions to look at a queue than to consume it, and
            // what has timed out may only be slow.
            Ok(true) | Err(Error::Permission { .. } | Error::Timeout { .. }) => Ok(()),
            Ok(false) => Err(silent_leader(format!("consuming queue {:?}", name.as_str()), name)),
            Err(error) => Err(error),
        }
    }

    /// Whether anything was delivered.
    pub(crate) fn has_taken(&self) -> bool {
        self.has_taken
    }

    /// Whether the queue was consumed.
    pub(crate) fn has_consumed(&self) -> bool {
        self.has_consumed
    }

    /// Whether it may have ended over the broker's ack timeout.
    pub(crate) fn was_taken_back(&self) -> bool {
        self.is_taken_back
    }

    /// Consumes until the channel is lost or the shutdown is requested.
    pub(crate) async fn run(&mut self) -> SessionEnd {
        let end = loop {
            if self.queue.shutdown.is_requested() {
                break SessionEnd::Stopped;
            }
            match self.step().await {
                Ok(()) => {}
                // The shutdown has shortened the time limit, so this says nothing about the channel.
                Err(Error::Timeout { .. }) if self.queue.shutdown.is_requested() => break SessionEnd::Stopped,
                Err(error) => break SessionEnd::Lost(self.reason_for(error)),
            }
        };
        match end {
            SessionEnd::Stopped => self.hand_back_all().await,
            SessionEnd::Lost(ref error) => {
                // Its channel may still work: an answer of the broker may have taken too long.
                self.send_settlements();
                // Before its handlers are dropped: the slot of a dropped one would be given to the next message.
                self.queue.intake.lost(self.queue.index);
                if error.is_by_delivery() {
                    self.queue.intake.doubt();
                }
                self.lost.cancel();
                if self.is_ordered() {
                    self.close().await;
                }
            }
        }
        end
    }

    /// Returns when the channel is gone while the service is stopping. Then no handler may send a copy of what the broker has again, and those
    /// of an ordered queue end.
    pub(crate) async fn lost_while_stopping(&mut self) {
        while self.channel.is_open() {
            tokio::time::sleep(CHECK_CHANNEL_EVERY).await;
        }
        self.queue.intake.lost(self.queue.index);
        self.lost.cancel();
    }

    /// Closes the channel of an ordered queue, which gives back all that it holds in its order (3.10, 4.0 and 4.3). By then no handler
    /// runs here, because the next process gets the messages at once.
    pub(crate) async fn close(&self) {
        self.lost.cancel();
        let Session { queue, channel, .. } = self;
        let settled = async {
            queue.intake.all_dropped(queue.index).await;
            self.settle().await
        };
        // In vain if a handler blocks its thread; then dropping the session closes the channel, and so the connection is not waited for.
        if tokio::time::timeout(queue.answer_timeout + CLOSE_DELAY, settled).await == Ok(true) {
            // Without an answer the connection is gone, or soon will be.
            let _ = queue.shutdown.answer("closing a channel", queue.answer_timeout, channel.close("done")).await;
        }
    }

    /// Sends the acks, rejects and nacks that were collected, and waits until the broker has read them, and a little longer for it to apply
    /// them. A busy broker reads late, and loses those that it reads together with the close. Returns false if no answer came: the channel
    /// is gone, or soon will be.
    pub(crate) async fn settle(&self) -> bool {
        let is_answered = self.answer("settling", self.settling_channel.round_trip()).await.is_ok();
        if is_answered {
            tokio::time::sleep(CLOSE_DELAY).await;
        }
        is_answered
    }

    /// Sends the acks, rejects and nacks that were collected.
    fn send_settlements(&self) {
        self.settling_channel.send();
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.queue.context.config.order.is_kept()
    }

    /// Gives the subscription the prefetch that the inbox asks for, then handles the next event.
    async fn step(&mut self) -> Result<(), Error> {
        self.resize().await?;
        let has_what_it_wants = !self.subscriptions.streams.is_empty() || *self.window.borrow() == 0;
        if !self.is_consuming && has_what_it_wants && !self.queue.shutdown.is_requested() {
            // Not before the subscription, which the broker may refuse. Without one, the inbox wants nothing delivered now.
            (self.is_consuming, self.has_consumed) = (true, true);
            self.queue.context.consuming();
        }
        let now = Instant::now();
        let check_at = now + CHECK_CHANNEL_EVERY;
        let wake_at = self.queue.intake.wake_at().map(|at| Instant::from_std(at).max(self.look_at));
        if wake_at.is_some_and(|at| at <= now) {
            // First, because deliveries may come without end.
            return self.look().await;
        }
        tokio::select! {
            biased;
            () = self.queue.shutdown.requested() => Ok(()),
            item = self.subscriptions.next() => self.take(item).await,
            // An error means that the intake is gone, and with it the service.
            _ = self.window.changed() => Ok(()),
            () = tokio::time::sleep_until(wake_at.unwrap_or(check_at)), if wake_at.is_some() => self.look().await,
            () = tokio::time::sleep_until(check_at), if self.subscriptions.streams.is_empty() => self.check_channel(),
        }
    }

    /// Looks at what is due.
    async fn look(&mut self) -> Result<(), Error> {
        self.look_at = Instant::now() + SOONEST_WAKE;
        self.hand_back_late().await
    }

    /// Takes a delivery, and all others that have arrived by now. If the broker has ended a subscription, subscribes again.
    async fn take(&mut self, first: Option<lapin::Result<Incoming>>) -> Result<(), Error> {
        if self.receive(first)? { self.cancelled().await } else { Ok(()) }
    }

    /// Takes a delivery, and all others that have arrived by now. Returns whether the broker has ended a subscription.
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

    fn read(&self, incoming: Incoming) -> Unacked {
        let received = Timestamp::now();
        let Incoming { delivery_tag, exchange, routing_key, redelivered, mut properties, mut data, .. } = incoming;
        // A parked message may have come back by another way than a replay.
        reunite(&mut properties, &mut data);
        let (context, address) = (self.queue.context.clone(), Address { exchange, routing_key });
        let (ledger, origin, ignored) = context.contract.read(&address, redelivered, &properties, received);
        context.warned.about(&context.config.queue, ignored);
        let body = Bytes::from(data);
        let delivery = Delivery { address, origin, redelivered, delivery_tag, properties, body, ledger };
        let (arrived, settle_limit) = (Instant::now(), self.queue.ack_timeout.settle_limit());
        let limit = context.config.policy.delivery_limit;
        let is_urgent = delivery.ledger.redeliveries.is_some_and(|count| is_near_limit(count, limit));
        let (channel, lost) = (Arc::downgrade(&self.settling_channel), self.lost.clone());
        Unacked {
            delivery: Arc::new(delivery),
            received,
            settler: Settler { channel, tag: delivery_tag, lost, arrived, settle_limit, is_urgent },
            in_flight: InFlight::new(context.clone()),
            context,
            held: None,
            unanswered: None,
        }
    }

    /// What ended the session. A request that fails because the broker has closed the channel does not say why; the subscriptions do. If
    /// it was the ack timeout, it is noted.
    fn reason_for(&mut self, error: Error) -> Error {
        let error = self.told().unwrap_or(error);
        let text = error.to_string();
        if is_ack_timeout(&text) {
            self.taken_back_after(named_in(&text));
        }
        // Without a subscription, the channel ends without a word.
        self.is_taken_back |= is_ack_timeout(&text) || self.queue.intake.is_stuck(self.queue.index);
        error
    }

    /// What the subscriptions say about the end of the channel.
    fn told(&mut self) -> Option<Error> {
        let told = self.subscriptions.error()?;
        Some(self.lost_by(Problem::of_lapin(&told)))
    }

    /// The broker has taken back a message that was not settled within this time, if it is known. If the settings know of a longer time,
    /// says so once, and settles what comes from now on in the shorter one: a message that cannot be held for so long is requeued, and
    /// parked at the delivery limit.
    fn taken_back_after(&self, timeout: Option<Duration>) {
        let WorkQueue { ack_timeout, context, .. } = self.queue;
        context.summary.update(|summary| summary.taken_back += 1);
        if let Some(timeout) = timeout
            && ack_timeout.named(timeout)
        {
            self.queue.intake.limit_hold(self.queue.index, ack_timeout.hold_limit(self.is_ordered()));
            let text = humantime::format_duration;
            tracing::warn!(
                queue = %self.name(),
                "the broker took back a message that was not settled within {}, and broker.consumer_timeout is {}: set \
                 broker.consumer_timeout = \"{}\", or raise consumer_timeout on the broker; until then, a message that waits longer in \
                 this process is given back, which the broker counts",
                text(timeout), text(ack_timeout.configured), text(timeout)
            );
        }
    }

    /// The broker has ended the subscription: the queue was deleted, its node went away, or (from 4.3 on) a message was not
    /// settled in time. What is unsettled can still be settled here.
    async fn cancelled(&mut self) -> Result<(), Error> {
        if let Err(error) = self.check_channel() {
            let told = self.told();
            if told.is_none() {
                // A subscription that has ended is not told why its channel was closed.
                self.subscriptions = Subscriptions::default();
            }
            return Err(told.unwrap_or(error));
        }
        let error = self.lost_by(format!("the broker cancelled the subscription: {WHY_CANCELLED}").into());
        if self.is_ordered() {
            self.is_taken_back = true;
            // Another process may be active by now. Only a closed channel gives back what is held here.
            return Err(error);
        }
        self.unsubscribe().await?;
        tracing::warn!(queue = %self.name(), "the broker cancelled the subscription: {WHY_CANCELLED}; subscribing again");
        self.queue.context.not_consuming(Some(&error));
        self.is_consuming = false;
        // Otherwise nothing can have been held for as long as the ack timeout.
        self.is_taken_back = self.queue.intake.is_stuck(self.queue.index);
        self.declare_again().await?;
        self.is_taken_back = false;
        Ok(())
    }

    /// Declares the queue again, after an alarm if the ack timeout may have been over. Meanwhile nothing is subscribed: what waits for a slot must
    /// not time out, because the broker would close the channel over it, and nothing else notices that the channel is gone. Then no copy may
    /// be sent of what it has brought.
    async fn declare_again(&self) -> Result<(), Error> {
        let declare = async {
            tokio::time::sleep(DELETION).await;
            if self.is_taken_back {
                self.queue.wait_out_alarm().await;
            }
            self.queue.keeper.declare(&self.connection, &self.queue.topology).await
        };
        let mut declare = pin!(declare);
        loop {
            tokio::select! {
                biased;
                () = self.queue.shutdown.requested() => return Ok(()),
                declared = &mut declare => return declared,
                () = tokio::time::sleep(CHECK_CHANNEL_EVERY) => {}
            }
            self.check_channel()?;
            self.hand_back(&self.queue.intake.take_late(self.queue.index), "they waited too long for a free handler");
        }
    }

    /// Hands back what no handler has seen, after the subscription has ended: otherwise the broker would deliver it here again,
    /// which 3.10 and 4.0 count.
    async fn hand_back_all(&mut self) {
        self.queue.intake.stop();
        if self.is_ordered() {
            // To cancel, or to give back single messages, would let others overtake them. All go back when the channel closes.
            let left = self.queue.intake.drain(self.queue.index).len() as u64;
            return self.queue.context.summary.update(|summary| summary.handed_back += left);
        }
        if let Err(error) = self.unsubscribe().await {
            tracing::debug!(%error, "the channel was gone before the subscription ended");
        }
        // Also if an earlier try to end them got no answer: settling must not wait for that.
        self.queue.intake.subscribed(self.queue.index, 0);
        let unseen = self.queue.intake.drain(self.queue.index);
        self.hand_back(&unseen, "the service is stopping");
    }

    /// Hands back what has waited too long, after the window has become narrower.
    async fn hand_back_late(&mut self) -> Result<(), Error> {
        self.queue.intake.tick();
        self.resize().await?;
        if self.queue.intake.is_overdue(self.queue.index) {
            self.is_taken_back = true;
            let problem = "a message was held for nearly as long as the broker's consumer_timeout; closing the channel, to give back \
                           all in its order";
            return Err(self.lost_by(problem.to_owned().into()));
        }
        let late = self.queue.intake.take_late(self.queue.index);
        self.hand_back(&late, "they waited too long for a free handler");
        Ok(())
    }

    fn hand_back(&self, unseen: &[Unacked], why: &str) {
        if unseen.is_empty() {
            return;
        }
        let handed_back = unseen.iter().filter(|taken| taken.hand_back()).count();
        tracing::info!(queue = %self.name(), handed_back, "handed back deliveries that no handler has seen: {why}");
        self.queue.context.summary.update(|summary| summary.handed_back += handed_back as u64);
    }

    fn check_channel(&self) -> Result<(), Error> {
        if self.channel.is_open() {
            return Ok(());
        }
        Err(self.lost_by("the channel was closed".to_owned().into()))
    }

    async fn answer<T>(&self, what: &str, operation: impl Future<Output = lapin::Result<T>>) -> Result<T, Error> {
        self.queue.shutdown.answer(what, self.queue.answer_timeout, operation).await
    }

    fn name(&self) -> &str {
        &self.queue.context.config.queue
    }

    fn lost_by(&self, problem: Problem) -> Error {
        Error::of_end(format!("consuming queue {:?}", self.name()), problem)
    }
}

/// Closes the channel, because lapin alone would only cancel each subscription, and keep the channel until the broker has answered.
/// Meanwhile the next process would get messages of an ordered queue before those that are held here. And a subscription that was given up
/// before it was answered would stay, with all that is delivered to it.
impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.lost.cancel();
        self.send_settlements();
        let (channel, limit) = (self.channel.clone(), self.queue.answer_timeout);
        match Handle::try_current() {
            // Later, so that the last acks are not lost. In an ordered queue the close has to come before lapin's cancel.
            Ok(runtime) if !self.is_ordered() => {
                runtime.spawn(async move {
                    tokio::time::sleep(CLOSE_DELAY).await;
                    tokio::time::timeout(limit, channel.close("done")).await
                });
            }
            _ => {
                queued(channel.close("done"));
            }
        }
    }
}
