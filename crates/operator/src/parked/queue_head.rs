//! Takes messages from the head of a queue and gives them back, each in its place.
//!
//! A subscription with a prefetch brings so many messages and no more. AMQP's prefetch ends at
//! 65,535, so more messages need several subscriptions, each on a channel of its own and each full
//! before the next one begins. They are given back in the same order: on 4.3 by one `basic.nack`,
//! which counts as no delivery; before by closing the channel, because on 3.10 a nack scrambles the
//! order.
//!
//! The broker keeps what was given back in a line of its own, before all other messages, and what
//! is given back next joins its end (4.0 and 4.3). So what a look takes of a longer line comes to
//! stand behind the rest of that line.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::options::BasicConsumeOptions;
use lapin::types::ShortString;
use tokio::time::{Instant, timeout, timeout_at};

use crate::parked::error::ParkedError;
use crate::parked::progress::StopSignal;
use crate::parked::session::OperatorSession;
use crate::subscribe::subscribe;
use rehop::Error;
use rehop::internals::answer;
use rehop::internals::at_rest::reunite;
use rehop::internals::client::{self, Channel};
use rehop::internals::describe;
use rehop::internals::look_on;
use rehop::internals::short;
use rehop::internals::table;
use rehop::internals::table_size;
use rehop::internals::{CONSUMER_TIMEOUT, ask_for};
use rehop::internals::{Frame, SettledTags};
use rehop::topology::Arguments;

/// How long nothing comes before the queue's depth is looked at: it may have shrunk.
const SILENCE: Duration = Duration::from_millis(500);
/// After so many silences in a row, with nothing ready in the queue and a channel that answers, it
/// counts as empty. What is not ready may be on its way here, and a busy broker takes its time.
const SILENCES: u32 = 10;
/// How long the broker may take to send what a subscription has room for. Quorum queues agree on
/// each ack first.
const ARRIVAL: Duration = Duration::from_secs(3);
/// How long the broker may be busy with a channel. It needs some seconds to send headers in which
/// thousands of tables are nested (6 to 10 s for 18,500), and answers nothing on that channel
/// meanwhile.
const BUSY: Duration = Duration::from_secs(300);
/// After this time an operator is told what is waited for.
const TOLD_AFTER: Duration = Duration::from_secs(5);
/// How long what was given back may take to be in the queue again.
const RETURN: Duration = Duration::from_secs(10);
/// Acks and nacks that the broker reads right before a channel is closed can be lost (3.10, 4.0 and
/// 4.3).
const LINGER: Duration = Duration::from_millis(200);
/// How many bytes of messages may be on their way to this process, and again as many of bodies on
/// their way from it.
pub(super) const BYTES_UNDER_WAY: u64 = 64 * 1024 * 1024;
/// The first subscription brings one message. The second brings this many, or as many as are moved
/// at a time, unless the first message shows that these would be too large.
const SECOND: u64 = 256;

/// Messages that this process holds.
pub(crate) struct QueueHead<'a> {
    session: &'a OperatorSession,
    queue: ShortString,
    subscriptions: Vec<HoldingSubscription>,
    taken: u64,
    bytes: u64,
    largest_prefetch: u16,
    /// How many messages at most may have a copy elsewhere while the broker still has them here.
    moving: Option<u64>,
    /// Whether it asks for the ack timeout of the settings.
    asks: bool,
    /// When nothing will have come for long enough. Kept here, because [`arrival`](Self::arrival)
    /// may be dropped before.
    silent_at: Option<Instant>,
    /// How often in a row nothing came while nothing was ready and the channel answered.
    silences: u32,
    /// Since when the broker is busy with the channel, and whether that was told.
    busy: Option<(Instant, bool)>,
}

struct HoldingSubscription {
    channel: Arc<dyn Channel>,
    stream: client::Subscription,
    prefetch: u16,
    /// How many of its messages stay held until the end.
    kept: u16,
    /// How many it has brought.
    brought: u64,
    acked: u64,
    settled: SettledTags,
    is_cancelled: bool,
}

impl HoldingSubscription {
    /// Whether the broker answers on the channel. It works through a channel in order, so while it
    /// prepares a message there it answers nothing. This request changes nothing: a prefetch
    /// applies to later subscriptions only.
    async fn answers(&self) -> bool {
        timeout(SILENCE, self.channel.set_prefetch(self.prefetch)).await.is_ok()
    }

    /// Waits for what the broker has sent, or will send for the last acks: what arrives after the
    /// rest was given back would come to stand before it.
    async fn arrive(
        &mut self,
        session: &OperatorSession,
        queue: &ShortString,
    ) -> Result<(), Error> {
        let until = Instant::now() + ARRIVAL;
        while self.brought < u64::from(self.prefetch) + self.acked && Instant::now() < until {
            match timeout(ARRIVAL / 20, self.stream.deliveries.next()).await {
                Ok(Some(Ok(_))) => self.brought += 1,
                Ok(_) => break,
                Err(_) if or_none(session.depth(queue.as_str()).await)? == 0 => break,
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// False if the channel was gone: then the broker delivers the messages again.
    fn ack(&mut self, tags: Vec<u64>) -> bool {
        self.acked += tags.len() as u64;
        self.settled.ack(tags).all(|ack| self.channel.send_settlement(ack))
    }

    /// How many of its messages the broker counts as held here.
    fn unacked(&self) -> u64 {
        self.brought - self.acked
    }

    async fn cancel(&mut self, limit: Duration) -> Result<(), Error> {
        if !self.is_cancelled {
            let cancelling = self.channel.cancel(self.stream.tag.clone());
            answer("ending a subscription", limit, cancelling).await?;
            self.is_cancelled = true;
        }
        Ok(())
    }
}

/// One message that is held.
pub(crate) struct Held {
    pub(crate) delivery: Delivery,
    subscription: usize,
}

impl<'a> QueueHead<'a> {
    pub(crate) fn new(session: &'a OperatorSession, queue: &str) -> Result<Self, Error> {
        Ok(Self {
            session,
            queue: short(queue)?,
            subscriptions: Vec::new(),
            taken: 0,
            bytes: 0,
            largest_prefetch: u16::MAX,
            moving: None,
            asks: false,
            silent_at: None,
            silences: 0,
            busy: None,
        })
    }

    /// Whether the queue is as rehop declares it, and so a quorum queue. Then 4.3 gives a
    /// subscription the ack timeout that it asks for.
    pub(crate) fn asking(mut self, is_own: bool) -> Self {
        self.asks = is_own;
        self
    }

    /// For messages that are moved, so many at a time. Nothing answers an ack, so only the prefetch
    /// bounds how many are acked while the broker does not know it yet. A subscription that fills
    /// with messages that stay is followed by a larger one, because each is a channel.
    pub(crate) fn moving(mut self, at_once: usize) -> Self {
        self.moving = Some(at_once as u64);
        self
    }

    /// For tests of what several subscriptions do.
    pub(crate) fn with_prefetch(mut self, largest: u16) -> Self {
        self.largest_prefetch = largest.max(1);
        self
    }

    /// Makes sure that another message can come, if at most so many more are wanted. Not to be
    /// dropped halfway: messages would go back to another place than their own.
    pub(crate) async fn prepare(&mut self, wanted: u64) -> Result<(), Error> {
        let is_first = self.subscriptions.len() == 1;
        if let Some(last) = self.subscriptions.last_mut()
            // The first subscription brought its message to show its delivery count. When that is
            // acked, it must not bring another. A full one is cancelled as well, because a queue
            // with a single active consumer delivers nothing to the next one before that.
            && (last.kept == last.prefetch || (is_first && last.brought > 0))
        {
            last.cancel(self.session.limit).await?;
        }
        if self.subscriptions.last().is_none_or(|last| last.is_cancelled) {
            let prefetch = self.next_prefetch(wanted);
            let subscription = self.subscribe(prefetch).await?;
            self.subscriptions.push(subscription);
            self.silent_at = None;
        }
        Ok(())
    }

    /// The next message, once [`prepare`](Self::prepare) has returned. `None` if the queue has no
    /// more, or if none has come by `until`: another consumer may get them all.
    ///
    /// # Errors
    ///
    /// [`ParkedError::Stopped`] once `stop` has completed.
    pub(crate) async fn next(
        &mut self,
        stop: StopSignal<'_>,
        until: Instant,
    ) -> Result<Option<Held>, ParkedError> {
        loop {
            // Nothing else of a look may be dropped halfway.
            let arrived = tokio::select! {
                biased;
                () = &mut *stop => return Err(ParkedError::Stopped),
                arrived = self.arrival() => arrived?,
            };
            if arrived.is_some() {
                return Ok(arrived);
            }
            if !self.has_more().await? || Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// The next message, or `None` if nothing came for a while. May be dropped at any time, because
    /// it asks the broker nothing.
    pub(crate) async fn arrival(&mut self) -> Result<Option<Held>, Error> {
        let subscription = self.subscriptions.len() - 1;
        let last = &mut self.subscriptions[subscription];
        let silent_at = *self.silent_at.get_or_insert_with(|| Instant::now() + SILENCE);
        match timeout_at(silent_at, last.stream.deliveries.next()).await {
            Ok(Some(Ok(mut delivery))) => {
                reunite(&mut delivery.properties, &mut delivery.data);
                (self.silent_at, self.silences, self.busy) = (None, 0, None);
                last.brought += 1;
                self.taken += 1;
                self.bytes += size(&delivery.properties, &delivery.data);
                Ok(Some(Held { delivery, subscription }))
            }
            Ok(Some(Err(error))) => Err(Error::of_operation(self.what(), &error)),
            Ok(None) => {
                let problem = "the broker ended the subscription".to_owned().into();
                Err(Error::Lost { what: self.what(), problem })
            }
            Err(_) => Ok(None),
        }
    }

    /// Whether nothing came lately, and nothing was ready.
    pub(crate) fn is_silent(&self) -> bool {
        self.silences > 0
    }

    /// After a silence: whether something may still come.
    pub(crate) async fn has_more(&mut self) -> Result<bool, Error> {
        self.silent_at = None;
        let ready = or_none(self.session.depth(self.queue.as_str()).await)?;
        let is_busy = !self.last().answers().await;
        let was_busy_for = self.busy_for(is_busy);
        self.silences = if ready > 0 || is_busy { 0 } else { self.silences + 1 };
        let last = self.last();
        let holds_unseen = last.unacked() > u64::from(last.kept);
        let may_come = if is_busy { was_busy_for < BUSY } else { self.silences < SILENCES };
        Ok(ready > 0 || holds_unseen || may_come)
    }

    /// How long the broker has been busy with the channel. Tells an operator once.
    fn busy_for(&mut self, is_busy: bool) -> Duration {
        if !is_busy {
            self.busy = None;
            return Duration::ZERO;
        }
        let (since, is_told) = self.busy.get_or_insert_with(|| (Instant::now(), false));
        if !*is_told && since.elapsed() >= TOLD_AFTER {
            *is_told = true;
            tracing::warn!(
                queue = self.queue.as_str(),
                position = self.taken + 1,
                "waiting for a message that the broker takes long to deliver, as it does where thousands of tables are nested in the headers; \
                 those behind it come after it"
            );
        }
        since.elapsed()
    }

    fn last(&self) -> &HoldingSubscription {
        &self.subscriptions[self.subscriptions.len() - 1]
    }

    /// The message stays held until everything is given back.
    pub(crate) fn keep(&mut self, held: &Held) {
        self.subscriptions[held.subscription].kept += 1;
    }

    /// Acks messages whose copies are confirmed. Returns how many: those of a channel that is gone
    /// come again.
    pub(crate) fn ack<'h>(&mut self, moved: impl IntoIterator<Item = &'h Held>) -> u64 {
        let mut tags: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for held in moved {
            tags.entry(held.subscription).or_default().push(held.delivery.delivery_tag);
        }
        let mut acked = 0;
        for (subscription, tags) in tags {
            let count = tags.len() as u64;
            acked += if self.subscriptions[subscription].ack(tags) { count } else { 0 };
        }
        acked
    }

    /// Gives everything back, and returns how the look ended.
    pub(crate) async fn end<T>(self, ended: Result<T, ParkedError>) -> Result<T, ParkedError> {
        let given_back = self.give_back().await;
        match ended {
            // Both of these promise that nothing is held any more.
            Ok(_) | Err(ParkedError::Stopped) => {
                given_back?;
                ended
            }
            ended => ended,
        }
    }

    /// Gives everything back that is held, each message in its place.
    pub(crate) async fn give_back(self) -> Result<(), Error> {
        let Self { session, queue, mut subscriptions, .. } = self;
        let limit = session.limit;
        if let Some(last) = subscriptions.last_mut().filter(|last| !last.is_cancelled) {
            last.arrive(session, &queue).await?;
        }
        // A subscription with room would take what another one gives back.
        for subscription in &mut subscriptions {
            subscription.cancel(limit).await?;
        }
        let mut has_acked = false;
        for subscription in subscriptions.iter().filter(|subscription| subscription.acked > 0) {
            answer("settling", limit, subscription.channel.flush()).await?;
            has_acked = true;
        }
        if has_acked {
            tokio::time::sleep(LINGER).await;
        }
        let mut is_all_back = true;
        for subscription in &subscriptions {
            let HoldingSubscription { channel, .. } = subscription;
            let before = or_none(session.depth(queue.as_str()).await)?;
            if session.nack_is_free {
                channel.send_settlement(Frame::Nack { tag: 0, multiple: true });
                answer("giving messages back", limit, channel.flush()).await?;
            } else {
                answer("giving messages back", limit, channel.close("given back")).await?;
            }
            is_all_back &= session.returned(&queue, before + subscription.unacked()).await?;
        }
        if session.nack_is_free {
            // Once its messages are back, the broker has processed the nack, and closing cannot
            // lose it.
            if !is_all_back {
                tokio::time::sleep(LINGER).await;
            }
            for subscription in &subscriptions {
                let _ = timeout(limit, subscription.channel.close("given back")).await;
            }
        }
        Ok(())
    }

    async fn subscribe(&self, prefetch: u16) -> Result<HoldingSubscription, Error> {
        let (channel, limit, what) =
            (self.session.channel().await?, self.session.limit, self.what());
        answer(&what, limit, channel.set_prefetch(prefetch)).await?;
        let mut arguments = Arguments::new();
        if self.asks {
            arguments.insert(CONSUMER_TIMEOUT.to_owned(), ask_for(self.session.ack_timeout));
        }
        let options = BasicConsumeOptions::default();
        let consuming = subscribe(&*channel, self.queue.clone(), options, table(&arguments)?);
        let stream = answer(&what, limit, consuming).await?;
        let settled = SettledTags::default();
        Ok(HoldingSubscription {
            channel,
            stream,
            prefetch,
            kept: 0,
            brought: 0,
            acked: 0,
            settled,
            is_cancelled: false,
        })
    }

    fn next_prefetch(&self, wanted: u64) -> u16 {
        let kept: u64 =
            self.subscriptions.iter().map(|subscription| u64::from(subscription.kept)).sum();
        let demand = Demand {
            subscriptions: self.subscriptions.len(),
            wanted: wanted.min(u64::from(self.largest_prefetch)),
            moving: self.moving.map(|at_once| Moving { at_once, kept }),
            received: self.taken,
            bytes: self.bytes,
        };
        demand.prefetch()
    }

    fn what(&self) -> String {
        format!("reading queue {:?}", self.queue.as_str())
    }
}

impl OperatorSession {
    /// Waits until a queue has this many messages again, though not forever: others may take some.
    /// Returns whether it has exactly that many: with more, it is unclear whose they are.
    async fn returned(&self, queue: &ShortString, wanted: u64) -> Result<bool, Error> {
        let until = Instant::now() + RETURN;
        let channel = self.channel().await?;
        let look = async || {
            let seen = look_on(&*channel, queue.as_str(), self.limit, Duration::MAX).await;
            or_none(seen.map(|seen| u64::from(seen.messages)))
        };
        let mut there = look().await?;
        while there < wanted && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
            there = look().await?;
        }
        if let Err(error) = channel.close("done").await {
            tracing::debug!(error = describe(&error), "a channel could not be closed");
        }
        if there < wanted {
            tracing::warn!(
                queue = queue.as_str(),
                missing = wanted - there,
                "messages that were given back are not ready again: others took them, they expired, a policy delays them, or the queue's leader \
                 does not answer"
            );
        }
        Ok(there == wanted)
    }
}

/// A queue whose leader does not answer counts as empty: a leader that is silent for some seconds
/// must not end a look half way, and nothing but the end of a look depends on it.
fn or_none<T: Default>(counts: Result<T, Error>) -> Result<T, Error> {
    match counts {
        Err(Error::Unavailable { .. }) => Ok(T::default()),
        counts => counts,
    }
}

/// What the next subscription's prefetch follows from.
#[derive(Debug, Clone, Copy)]
struct Demand {
    /// How many subscriptions there are already.
    subscriptions: usize,
    /// How many more messages are wanted.
    wanted: u64,
    /// `None` if messages are only looked at.
    moving: Option<Moving>,
    /// How many messages have come.
    received: u64,
    /// Their [size].
    bytes: u64,
}

/// The size of a message. Anyone may have filled its headers, up to a frame, and left its body
/// empty.
pub(super) fn size(properties: &BasicProperties, body: &[u8]) -> u64 {
    let headers = properties.headers().as_ref().map_or(0, |headers| table_size(headers.inner()));
    (headers + body.len()) as u64
}

/// For messages that are moved.
#[derive(Debug, Clone, Copy)]
struct Moving {
    /// How many are moved at a time.
    at_once: u64,
    /// How many have stayed.
    kept: u64,
}

impl Demand {
    /// How many messages the next subscription may bring. One message first, for its delivery count
    /// and its size; then as many as are wanted and memory allows, by the average size of those
    /// that have come.
    fn prefetch(self) -> u16 {
        let most = match self.subscriptions {
            0 => 1,
            1 => self.moving.map_or(0, |moving| moving.at_once).max(SECOND),
            _ => u64::MAX,
        };
        let moved = self.moving.map_or(u64::MAX, |moving| moving.at_once.max(moving.kept / 4));
        let in_memory = BYTES_UNDER_WAY / (self.bytes / self.received.max(1)).max(1);
        u16::try_from(most.min(self.wanted).min(moved).min(in_memory)).unwrap_or(u16::MAX).max(1)
    }
}

#[cfg(test)]
mod tests;
