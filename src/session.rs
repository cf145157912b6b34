//! One channel's life: take deliveries, start their handlers, hand back what is left.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Connection};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::error::{Error, describe};
use crate::hop::{self, Taken};
use crate::message::Envelope;
use crate::queue::{InFlight, Queue, now};
use crate::settings::TopologyMode;
use crate::settle::Settler;
use crate::topology::Topology;
use crate::topology::declare::answer;
use crate::window::{self, Returned, Window};

/// Why a session ended.
pub(crate) enum End {
    /// The caller wants to stop: nothing is taken any more, and what no handler has seen was handed back.
    Stopped,
    /// The channel or its connection is gone; the broker delivers again what was unsettled.
    Lost(Error),
}

/// How long the broker may take to answer when the service stops.
const GOODBYE_LIMIT: Duration = Duration::from_secs(5);

/// A channel that consumes one queue.
pub(crate) struct Session<'a> {
    queue: Arc<Queue>,
    topology: &'a Topology,
    mode: TopologyMode,
    limit: Duration,
    connection: Arc<Connection>,
    channel: Channel,
    stream: lapin::Consumer,
    window: Window,
    /// The prefetch that the present subscription was made with.
    size: u16,
    has_taken: bool,
    /// Waiting for a free handler, in the order of their arrival.
    inbox: VecDeque<Taken>,
    /// May be poison: handled after all others, few at a time.
    held: Vec<Taken>,
    /// Handlers of this session's deliveries. Those of an earlier session may run on for long, for nobody: the broker has
    /// their deliveries again.
    own: TaskTracker,
    lost: CancellationToken,
    _lost_with_the_session: DropGuard,
}

impl<'a> Session<'a> {
    /// Declares the queue's topology, opens a channel and subscribes.
    pub(crate) async fn open(
        queue: &Arc<Queue>,
        topology: &'a Topology,
        mode: TopologyMode,
        connection: Arc<Connection>,
        limit: Duration,
    ) -> Result<Self, Error> {
        topology.establish(&connection, mode, limit).await?;
        let channel = answer("opening a channel to consume", limit, connection.create_channel()).await?;
        let policy = &queue.plan.policy;
        let window = Window { full: queue.plan.prefetch, limit: policy.delivery_limit, immediate: policy.immediate };
        let stream = consume(&channel, &queue.plan.queue, Window::NARROW, limit).await?;
        let lost = CancellationToken::new();
        Ok(Self {
            queue: queue.clone(),
            topology,
            mode,
            limit,
            connection,
            channel,
            stream,
            window,
            size: Window::NARROW,
            has_taken: false,
            inbox: VecDeque::new(),
            held: Vec::new(),
            own: TaskTracker::new(),
            _lost_with_the_session: lost.clone().drop_guard(),
            lost,
        })
    }

    /// Whether anything was delivered.
    pub(crate) fn has_taken(&self) -> bool {
        self.has_taken
    }

    /// Consumes until the channel is lost or `stop` is cancelled. Handlers run in `running`, which outlives the session.
    pub(crate) async fn run(&mut self, running: &mut JoinSet<()>, stop: &CancellationToken) -> End {
        let end = loop {
            let turn = tokio::select! {
                biased;
                () = stop.cancelled() => break End::Stopped,
                item = self.stream.next() => self.take(item).await,
                Some(finished) = running.join_next(), if !running.is_empty() => {
                    reap(finished);
                    Ok(())
                }
                () = wait_for_health(&self.queue), if !self.inbox.is_empty() && self.free(running) > 0 => Ok(()),
            };
            let turn = match turn {
                Ok(()) => self.advance(running, stop).await,
                Err(error) => Err(error),
            };
            if let Err(error) = turn {
                break End::Lost(error);
            }
        };
        if matches!(end, End::Stopped) {
            self.hand_back().await;
        } else {
            self.lost.cancel();
        }
        end
    }

    /// Starts what can be started, and changes the window where the deliveries ask for it.
    async fn advance(&mut self, running: &mut JoinSet<()>, stop: &CancellationToken) -> Result<(), Error> {
        while let Some(finished) = running.try_join_next() {
            reap(finished);
        }
        self.start(running);
        if !self.held.is_empty() {
            self.quarantine(running, stop).await?;
        }
        Ok(())
    }

    /// How many more handlers may run.
    fn free(&self, running: &JoinSet<()>) -> usize {
        usize::from(self.queue.plan.concurrency).saturating_sub(running.len())
    }

    /// Starts handlers while copies can be published: what they would have to send on would only pile up. What is left in the
    /// inbox although handlers are free is waiting for just that.
    fn start(&mut self, running: &mut JoinSet<()>) {
        let free = self.free(running);
        if free == 0 || !self.queue.publisher.is_healthy() {
            return;
        }
        for taken in self.inbox.drain(..free.min(self.inbox.len())) {
            running.spawn(self.own.track_future(hop::run(self.queue.clone(), taken)));
        }
    }

    /// Takes a delivery, and all that have arrived by now; subscribes anew when the broker has cancelled.
    async fn take(&mut self, first: Option<lapin::Result<Delivery>>) -> Result<(), Error> {
        let mut widest = self.size;
        let mut item = Some(first);
        while let Some(next) = item {
            match next {
                Some(Ok(delivery)) => widest = widest.max(self.admit(delivery)),
                Some(Err(error)) => return Err(self.lost_by(describe(&error))),
                None => return self.cancelled().await,
            }
            item = self.stream.next().now_or_never();
        }
        if widest > self.size && self.held.is_empty() { self.resize(widest).await } else { Ok(()) }
    }

    /// Reads a delivery and puts it where it belongs; says how wide the window may be with it.
    fn admit(&mut self, delivery: Delivery) -> u16 {
        self.has_taken = true;
        let taken = self.read(delivery);
        let allowed = self.window.allowed(returned(&taken), self.size);
        if allowed < self.size {
            self.held.push(taken);
            self.size
        } else {
            self.inbox.push_back(taken);
            allowed
        }
    }

    fn read(&self, delivery: Delivery) -> Taken {
        let received = now();
        let Delivery { delivery_tag, exchange, routing_key, redelivered, properties, data, acker } = delivery;
        let envelope =
            Envelope { exchange, routing_key, redelivered, delivery_tag, properties, body: Bytes::from(data) };
        Taken {
            in_flight: InFlight::new(self.queue.clone()),
            arrival: Arc::new(self.queue.read(envelope, received)),
            received,
            settler: Settler { acker, lost: self.lost.clone() },
        }
    }

    /// Deliveries that came back suspiciously often are here. Others finish first, then these are handled a few at a time,
    /// with nothing else in this process's hands; then the window opens anew.
    async fn quarantine(&mut self, running: &mut JoinSet<()>, stop: &CancellationToken) -> Result<(), Error> {
        tracing::info!(queue = %self.queue.plan.queue, held = self.held.len(), "messages came back repeatedly: handling them apart");
        self.unsubscribe().await?;
        if !self.finish_all(running, stop).await? {
            return Ok(());
        }
        let mut held = std::mem::take(&mut self.held);
        let highest = held.iter().map(|taken| returned(taken).count.unwrap_or(1)).max().unwrap_or(1);
        let group =
            held.iter().map(|taken| self.window.allowed(returned(taken), self.size)).min().unwrap_or(Window::NARROW);
        window::order(&mut held, highest);
        let mut held = VecDeque::from(held);
        while !held.is_empty() {
            let group = usize::from(group.min(self.queue.plan.concurrency)).min(held.len());
            self.inbox.extend(held.drain(..group));
            if !self.finish_all(running, stop).await? {
                self.inbox.extend(held);
                return Ok(());
            }
        }
        self.stream = self.subscribe(Window::NARROW).await?;
        Ok(())
    }

    /// Starts everything in the inbox and waits until nothing of this session is running. False when the caller wants to stop
    /// instead.
    async fn finish_all(&mut self, running: &mut JoinSet<()>, stop: &CancellationToken) -> Result<bool, Error> {
        while !self.inbox.is_empty() || !self.own.is_empty() {
            self.start(running);
            if !self.one_finished(running, stop).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for a handler to finish. False when the caller wants to stop instead; an error when the channel is gone, which
    /// nobody else notices while there is no subscription.
    async fn one_finished(&self, running: &mut JoinSet<()>, stop: &CancellationToken) -> Result<bool, Error> {
        const LOOK_EVERY: Duration = Duration::from_millis(500);
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(false),
                Some(finished) = running.join_next() => {
                    reap(finished);
                    return Ok(true);
                }
                () = wait_for_health(&self.queue), if self.own.is_empty() && !self.queue.publisher.is_healthy() => return Ok(true),
                () = tokio::time::sleep(LOOK_EVERY) => {
                    if !self.channel.status().connected() {
                        return Err(self.lost_by("the channel was closed".to_owned()));
                    }
                    if self.own.is_empty() {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// The broker has ended the subscription: the queue was deleted, its node went away, or (from 4.3 on) a message was not
    /// settled in time. What is unsettled can still be settled here.
    async fn cancelled(&mut self) -> Result<(), Error> {
        if !self.channel.status().connected() {
            return Err(self.lost_by("the channel was closed".to_owned()));
        }
        tracing::warn!(queue = %self.queue.plan.queue, "the broker cancelled the subscription; subscribing again");
        self.topology.establish(&self.connection, self.mode, self.limit).await?;
        self.stream = self.subscribe(Window::NARROW).await?;
        Ok(())
    }

    /// A subscription's prefetch is fixed, so another window takes another subscription.
    async fn resize(&mut self, size: u16) -> Result<(), Error> {
        self.unsubscribe().await?;
        self.stream = self.subscribe(size).await?;
        Ok(())
    }

    async fn subscribe(&mut self, size: u16) -> Result<lapin::Consumer, Error> {
        self.size = size;
        consume(&self.channel, &self.queue.plan.queue, size, self.limit).await
    }

    /// Ends the subscription, and takes what was under way.
    async fn unsubscribe(&mut self) -> Result<(), Error> {
        let cancelling = self.channel.basic_cancel(self.stream.tag(), BasicCancelOptions::default());
        answer("ending a subscription", self.limit, cancelling).await?;
        while let Some(Some(Ok(delivery))) = self.stream.next().now_or_never() {
            self.admit(delivery);
        }
        Ok(())
    }

    /// Gives back what no handler has seen.
    async fn hand_back(&mut self) {
        self.limit = self.limit.min(GOODBYE_LIMIT);
        if let Err(error) = self.unsubscribe().await {
            tracing::debug!(%error, "the channel was gone before the subscription could be ended");
        }
        let unseen: Vec<_> = self.inbox.drain(..).chain(self.held.drain(..)).collect();
        let handed_back = unseen.iter().filter(|taken| taken.settler.hand_back()).count();
        self.queue.tally.update(|summary| summary.handed_back += handed_back as u64);
    }

    fn lost_by(&self, problem: String) -> Error {
        Error::Lost { what: format!("consuming queue {:?}", self.queue.plan.queue), problem }
    }
}

fn returned(taken: &Taken) -> Returned {
    Returned { count: taken.arrival.ledger.redeliveries }
}

async fn wait_for_health(queue: &Queue) {
    queue.publisher.healthy().await;
}

/// Handlers' panics are caught; one that arrives here is a bug of ours, and its delivery stays unacked until the channel ends.
fn reap(finished: Result<(), tokio::task::JoinError>) {
    if let Err(error) = finished
        && error.is_panic()
    {
        tracing::error!(%error, "rehop itself panicked over a message, which stays with the broker; please report this");
    }
}

async fn consume(channel: &Channel, queue: &str, prefetch: u16, limit: Duration) -> Result<lapin::Consumer, Error> {
    answer("setting the prefetch", limit, channel.basic_qos(prefetch, BasicQosOptions::default())).await?;
    let what = format!("consuming queue {queue:?}");
    let queue = ShortString::try_new(queue).unwrap_or_default();
    let consuming =
        channel.basic_consume(queue, ShortString::default(), BasicConsumeOptions::default(), FieldTable::default());
    answer(&what, limit, consuming).await
}
