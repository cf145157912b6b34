//! What is under way between the processes and the broker, and when it arrives.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use lapin::Error;
use lapin::message::Delivery;
use lapin::types::ShortString;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rehop_simulator::{Broker, ChannelNumber, ConnectionId, Event, Method, Sent, Time};
use tokio::sync::{mpsc, oneshot};

use super::ends::{ChannelEnd, End, MethodReply};
use super::oddities::{OddCopy, Oddity, Replayed, without_history};
use super::parcel::{Load, Parcel};
use super::{Process, errors};

/// How the network behaves while nothing breaks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditions {
    /// How long a frame travels at most.
    pub latency: Duration,
    /// How many of a thousand frames are held up.
    pub slow_per_mille: u32,
    /// How long such a frame is held up at most.
    pub slow: Duration,
    /// How long the broker may take to apply an ack, a reject or a nack that it has read. Closing
    /// the channel or the connection meanwhile loses it, as on a busy broker (3.10, 4.0 and 4.3).
    pub applied_within: Duration,
    /// How long a delivery is on its way from its queue to its channel. If its subscription is
    /// cancelled meanwhile, it goes back, which 3.10 and 4.0 count.
    pub delivery_lag: Duration,
}

impl Default for Conditions {
    /// A quick network, and a broker that applies everything at once.
    fn default() -> Self {
        let none = Duration::ZERO;
        Self {
            latency: Duration::from_millis(1),
            slow_per_mille: 0,
            slow: none,
            applied_within: none,
            delivery_lag: none,
        }
    }
}

/// The most channels of a connection, as RabbitMQ has it by default.
const CHANNEL_MAX: u16 = 2047;

pub(super) struct NetworkState {
    pub(super) broker: Broker,
    pub(super) sleeping_until: Option<Time>,
    conditions: Conditions,
    random: SmallRng,
    under_way: BinaryHeap<Reverse<Parcel>>,
    parcels: u64,
    pub(super) ends: BTreeMap<ConnectionId, End>,
    /// Processes that are gone.
    killed: Vec<Process>,
    /// Where each message was delivered to each process last.
    delivered: HashMap<(Process, String), ChannelKey>,
    /// Copies that should not have been sent as they were.
    odd_copies: Vec<OddCopy>,
    /// What operators have sent back.
    replays: Vec<Replayed>,
    pub(super) arrivals: Vec<Arrival>,
    /// When processes heard that the broker had enforced its ack timeout.
    pub(super) timeouts: Vec<Time>,
}

/// A delivery that has arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) at: Time,
    pub(crate) process: Process,
    pub(crate) message: String,
    pub(crate) is_redelivered: bool,
    /// How many the channel then had that were not settled, this one included.
    pub(crate) held: usize,
}

/// A channel, by its connection, its number, and what tells it from others of that number.
type ChannelKey = (ConnectionId, ChannelNumber, u64);

impl NetworkState {
    pub(super) fn new(mut broker: Broker, conditions: Conditions, seed: u64) -> Self {
        broker.delivery_lag = conditions.delivery_lag;
        Self {
            broker,
            conditions,
            random: SmallRng::seed_from_u64(seed),
            sleeping_until: None,
            under_way: BinaryHeap::new(),
            parcels: 0,
            ends: BTreeMap::new(),
            killed: Vec::new(),
            delivered: HashMap::new(),
            odd_copies: Vec::new(),
            replays: Vec::new(),
            arrivals: Vec::new(),
            timeouts: Vec::new(),
        }
    }

    pub(super) fn is_killed(&self, process: Process) -> bool {
        self.killed.contains(&process)
    }

    /// How long a frame travels.
    pub(super) fn latency(&mut self) -> Duration {
        let Conditions { latency, slow, slow_per_mille, .. } = self.conditions;
        let quick = latency.mul_f64(self.random.random());
        if slow_per_mille > 0 && self.random.random_ratio(slow_per_mille, 1_000) {
            return quick + slow.mul_f64(self.random.random());
        }
        quick
    }

    pub(super) fn end(&mut self, connection: ConnectionId) -> Option<&mut End> {
        self.ends.get_mut(&connection)
    }

    /// How many channels a connection may have, as both ends have agreed.
    pub(super) fn channel_max(&self, connection: ConnectionId) -> u16 {
        self.broker.channel_max(connection).map_or(CHANNEL_MAX, |most| most.min(CHANNEL_MAX))
    }

    pub(super) fn channel(
        &mut self,
        connection: ConnectionId,
        number: ChannelNumber,
        key: u64,
    ) -> Option<&mut ChannelEnd> {
        self.ends
            .get_mut(&connection)?
            .channels
            .get_mut(&number)
            .filter(|channel| channel.key == key)
    }

    pub(super) fn opened(&mut self, connection: ConnectionId, process: Process) {
        let end = End {
            process,
            error: None,
            lost: None,
            lost_channels: HashMap::new(),
            is_blocked: false,
            blocked_at: Time::ZERO,
            is_silent: false,
            is_forgotten: false,
            channels: BTreeMap::new(),
            listeners: Vec::new(),
            closing: None,
            held: VecDeque::new(),
            last_up: Time::ZERO,
            last_down: Time::ZERO,
            sent_down: None,
        };
        self.ends.insert(connection, end);
    }

    pub(super) fn connections_of(&self, process: Process) -> Vec<ConnectionId> {
        let of = self.ends.iter().filter(|(_, end)| end.process == process && !end.is_forgotten);
        of.map(|(connection, _)| *connection).collect()
    }

    /// Sends a method. While the broker blocks the connection, lapin keeps what is to be published.
    pub(super) fn send(
        &mut self,
        connection: ConnectionId,
        channel: ChannelNumber,
        method: Method,
        now: Time,
    ) {
        let Some(end) = self.ends.get_mut(&connection) else { return };
        if end.is_blocked && (matches!(method, Method::Publish { .. }) || !end.held.is_empty()) {
            end.held.push_back((channel, method));
            return;
        }
        self.post(connection, channel, method, now);
    }

    fn post(
        &mut self,
        connection: ConnectionId,
        channel: ChannelNumber,
        method: Method,
        now: Time,
    ) {
        let latency = self.latency();
        let applied = match method {
            Method::Ack { .. } | Method::Reject { .. } | Method::Nack { .. }
                if !self.conditions.applied_within.is_zero() =>
            {
                self.conditions.applied_within.mul_f64(self.random.random())
            }
            _ => Duration::ZERO,
        };
        let Some(end) = self.ends.get_mut(&connection) else { return };
        let read = end.last_up.max(now + latency);
        end.last_up = read;
        let is_close = matches!(method, Method::CloseChannel);
        if let Some(channel) = end.channels.get_mut(&channel) {
            channel.settle_by(&method);
        }
        let due = match end.channels.get_mut(&channel) {
            Some(channel) if !is_close => {
                channel.applied = channel.applied.max(read + applied);
                channel.applied
            }
            _ => read,
        };
        self.push(due, Load::ToBroker(connection, channel, method));
    }

    /// Sends a method whose answer is awaited.
    pub(super) fn ask(
        &mut self,
        connection: ConnectionId,
        (number, key): (ChannelNumber, u64),
        method: Method,
        now: Time,
    ) -> Result<oneshot::Receiver<MethodReply>, Error> {
        let channel =
            self.channel(connection, number, key).ok_or_else(errors::channel_is_closed)?;
        if let Some(error) = &channel.error {
            return Err(error.clone());
        }
        if channel.is_closing {
            return Err(errors::channel_is_closed());
        }
        channel.is_closing = matches!(method, Method::CloseChannel);
        let (sender, receiver) = oneshot::channel();
        channel.awaiting.push_back(sender);
        self.send(connection, number, method, now);
        Ok(receiver)
    }

    /// Publishes, and returns what will get the confirm if the channel confirms.
    pub(super) fn publish(
        &mut self,
        connection: ConnectionId,
        (number, key): (ChannelNumber, u64),
        method: Method,
        now: Time,
    ) -> Result<Option<oneshot::Receiver<lapin::Result<lapin::Confirmation>>>, Error> {
        let channel =
            self.channel(connection, number, key).ok_or_else(errors::channel_is_closed)?;
        if channel.error.is_some() || channel.is_closing {
            return Err(channel.error.clone().unwrap_or_else(errors::channel_is_closed));
        }
        self.note_publish(connection, &method, now);
        let channel =
            self.channel(connection, number, key).ok_or_else(errors::channel_is_closed)?;
        let confirm = channel.is_confirming.then(|| {
            channel.published += 1;
            let (sender, receiver) = oneshot::channel();
            channel.confirms.insert(channel.published, sender);
            receiver
        });
        self.send(connection, number, method, now);
        Ok(confirm)
    }

    /// Does something on a connection that is gone right after.
    pub(super) fn do_plainly(&mut self, process: Process, method: Method, now: Time) {
        let Some(connection) = self.broker.connect(now, "guest") else { return };
        self.opened(connection, process);
        self.broker.receive(now, connection, 1, Method::OpenChannel);
        self.broker.receive(now, connection, 1, method);
        self.forget(connection, now);
    }

    /// Remembers a replayed message, and a copy that should not have been sent as it is.
    fn note_publish(&mut self, connection: ConnectionId, method: &Method, now: Time) {
        let Method::Publish { properties, .. } = method else { return };
        let Some(message) = properties.message_id().as_ref().map(ToString::to_string) else {
            return;
        };
        let Some(end) = self.ends.get(&connection) else { return };
        // What was decided at the same moment may still be sent.
        let (process, is_blocked) = (end.process, end.is_blocked && end.blocked_at < now);
        if process.is_operator() {
            // An operator's messages are numbered by their ids.
            self.replays.extend(message.parse().ok().map(|message| Replayed {
                at: now,
                process,
                message,
            }));
            return;
        }
        let lost = self.lost(process, &message).map(|lost| Oddity::AfterLoss { lost });
        // A publisher's caller waits for its message, so nobody gives it up meanwhile.
        let blocked = (is_blocked && process.is_service()).then_some(Oddity::WhileBlocked);
        for oddity in [lost, blocked, without_history(properties)].into_iter().flatten() {
            self.odd_copies.push(OddCopy { sent: now, process, message: message.clone(), oddity });
        }
    }

    /// When the process lost the channel that brought this message, if it has.
    fn lost(&self, process: Process, message: &str) -> Option<Time> {
        let (connection, number, key) =
            self.delivered.get(&(process, message.to_owned())).copied()?;
        let end = self.ends.get(&connection)?;
        match (&end.lost, end.channels.get(&number).filter(|channel| channel.key == key)) {
            (Some(lost), _) => Some(*lost),
            (None, Some(_)) => None,
            (None, None) => end.lost_channels.get(&key).map(|(lost, _)| *lost),
        }
    }

    pub(super) fn take_odd_copies(&mut self) -> Vec<OddCopy> {
        std::mem::take(&mut self.odd_copies)
    }

    pub(super) fn replays(&self) -> &[Replayed] {
        &self.replays
    }

    /// Opens the client's end of a channel, on the lowest number that is free.
    pub(super) fn open_channel(
        &mut self,
        connection: ConnectionId,
        now: Time,
    ) -> Result<(ChannelNumber, u64, oneshot::Receiver<MethodReply>), Error> {
        let (key, most) = (self.parcels, self.channel_max(connection));
        let end = self.ends.get_mut(&connection).ok_or_else(errors::connection_is_closed)?;
        if let Some(error) = &end.error {
            return Err(error.clone());
        }
        let number = (1..=most).find(|number| !end.channels.contains_key(number));
        let number = number.ok_or_else(errors::no_channel_left)?;
        let (sender, receiver) = oneshot::channel();
        let channel = ChannelEnd { key, awaiting: [sender].into(), ..ChannelEnd::default() };
        end.channels.insert(number, channel);
        self.send(connection, number, Method::OpenChannel, now);
        Ok((number, key, receiver))
    }

    /// Registers a subscription whose answer is still to come.
    pub(super) fn subscribe(
        &mut self,
        connection: ConnectionId,
        (number, key): (ChannelNumber, u64),
    ) -> Option<(ShortString, mpsc::UnboundedReceiver<lapin::Result<Delivery>>)> {
        let channel = self.channel(connection, number, key)?;
        channel.tags += 1;
        let tag: ShortString = format!("ctag{number}.{}", channel.tags).into();
        let (sender, receiver) = mpsc::unbounded_channel();
        channel.consumers.insert(tag.clone(), sender);
        Some((tag, receiver))
    }

    /// Ends the client's end of a subscription. True if it was still there.
    pub(super) fn unsubscribe(
        &mut self,
        connection: ConnectionId,
        (number, key): (ChannelNumber, u64),
        tag: &ShortString,
    ) -> bool {
        self.channel(connection, number, key)
            .is_some_and(|channel| channel.consumers.remove(tag).is_some())
    }

    /// Closes the connection, after what was sent before.
    pub(super) fn close(
        &mut self,
        connection: ConnectionId,
        now: Time,
    ) -> Result<oneshot::Receiver<lapin::Result<()>>, Error> {
        let latency = self.latency();
        let end = self.ends.get_mut(&connection).ok_or_else(errors::connection_is_closed)?;
        if let Some(error) = &end.error {
            return Err(error.clone());
        }
        let (sender, receiver) = oneshot::channel();
        end.closing = Some(sender);
        end.last_up = end.last_up.max(now + latency);
        let due = end.last_up;
        end.end(&errors::connection_is_closed(), now);
        self.push(due, Load::Close(connection));
        Ok(receiver)
    }

    pub(super) fn cut(&mut self, connection: ConnectionId, now: Time) {
        self.forget(connection, now);
        if let Some(end) = self.ends.get_mut(&connection) {
            end.fail(&errors::reset(), now);
        }
    }

    pub(super) fn silence(&mut self, connection: ConnectionId, client: Time, broker: Time) {
        if let Some(end) = self.ends.get_mut(&connection) {
            end.is_silent = true;
            self.push(client, Load::ClientNotices(connection, errors::missing_heartbeats()));
            self.push(broker, Load::BrokerNotices(connection));
        }
    }

    pub(super) fn kill(&mut self, process: Process, now: Time) {
        self.killed.push(process);
        for connection in self.connections_of(process) {
            if let Some(end) = self.ends.get_mut(&connection) {
                end.is_silent = true;
            }
            self.push(now, Load::BrokerNotices(connection));
        }
    }

    /// The broker notices the end of a connection.
    pub(super) fn forget(&mut self, connection: ConnectionId, now: Time) {
        if let Some(end) = self.ends.get_mut(&connection)
            && !std::mem::replace(&mut end.is_forgotten, true)
        {
            end.is_silent = true;
            self.broker.disconnect(now, connection);
            self.collect(now);
        }
    }

    /// Sends on its way what the broker has said.
    pub(super) fn collect(&mut self, now: Time) {
        let sent: Vec<_> = self.broker.sent().collect();
        for sent in sent {
            let latency = self.latency();
            // What is sent at once mostly arrives at once.
            let is_split = self.random.random_ratio(1, 4);
            let Some(end) = self.ends.get_mut(&sent.connection) else { continue };
            let is_next = end.sent_down.replace(now) == Some(now);
            if !is_next || is_split || latency > self.conditions.latency {
                end.last_down = end.last_down.max(now + latency);
            }
            let due = end.last_down;
            self.push(due, Load::ToClient(sent));
        }
    }

    fn push(&mut self, due: Time, load: Load) {
        self.parcels += 1;
        self.under_way.push(Reverse(Parcel { due, number: self.parcels, load }));
    }

    /// When something happens if nobody does anything.
    pub(super) fn next_due(&self) -> Option<Time> {
        let parcel = self.under_way.peek().map(|Reverse(parcel)| parcel.due);
        parcel.into_iter().chain(self.broker.next_timer()).min()
    }

    /// Lets everything happen that is due.
    pub(super) fn advance(&mut self, now: Time) {
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            if self.broker.next_timer().is_some_and(|timer| timer <= due) {
                self.broker.pass_time(due);
                self.collect(due);
                continue;
            }
            if let Some(Reverse(parcel)) = self.under_way.pop() {
                self.arrive(parcel.load, due);
            }
        }
    }

    fn arrive(&mut self, load: Load, now: Time) {
        match load {
            Load::ToBroker(connection, channel, method) => {
                if self.ends.get(&connection).is_some_and(|end| !end.is_silent) {
                    self.broker.receive(now, connection, channel, method);
                    self.collect(now);
                }
            }
            Load::ToClient(sent) => self.arrive_at_client(sent, now),
            Load::Close(connection) => {
                let is_silent = self.ends.get(&connection).is_none_or(|end| end.is_silent);
                if !is_silent {
                    self.forget(connection, now);
                    if let Some(closing) =
                        self.ends.get_mut(&connection).and_then(|end| end.closing.take())
                    {
                        let _ = closing.send(Ok(()));
                    }
                }
            }
            Load::BrokerNotices(connection) => self.forget(connection, now),
            Load::ClientNotices(connection, error) => {
                if let Some(end) = self.ends.get_mut(&connection) {
                    end.fail(&error, now);
                }
            }
        }
    }

    fn arrive_at_client(&mut self, sent: Sent, now: Time) {
        let Some(end) = self.ends.get_mut(&sent.connection) else { return };
        let is_end = matches!(sent.event, Event::Cut | Event::Closed { .. });
        if end.is_silent && !(is_end && end.is_forgotten) {
            return;
        }
        if let Event::Delivered { delivery, .. } | Event::Got { delivery, .. } = &sent.event
            && let Some(message) = delivery.properties.message_id()
            && let Some(channel) = end.channels.get_mut(&sent.channel)
        {
            channel.unsettled.insert(delivery.tag);
            let key = (sent.connection, sent.channel, channel.key);
            let (process, message, held) =
                (end.process, message.to_string(), channel.unsettled.len());
            let is_redelivered = delivery.is_redelivered;
            self.arrivals.push(Arrival {
                at: now,
                process,
                message: message.clone(),
                is_redelivered,
                held,
            });
            self.delivered.insert((process, message), key);
        }
        // 4.3 says only that it has cancelled, as it does when a queue is deleted.
        let is_timeout = match &sent.event {
            Event::Closed { text, .. } => text.contains("delivery acknowledgement on channel"),
            Event::Cancelled { .. } => true,
            _ => false,
        };
        self.timeouts.extend(is_timeout.then_some(now));
        if end.receive(sent, now) {
            self.release_held(now);
        }
    }

    /// Sends what was held while a connection was blocked.
    fn release_held(&mut self, now: Time) {
        let free: Vec<_> =
            self.ends.iter().filter(|(_, end)| !end.is_blocked && !end.held.is_empty()).collect();
        let free: Vec<_> = free.into_iter().map(|(connection, _)| *connection).collect();
        for connection in free {
            let held = self
                .ends
                .get_mut(&connection)
                .map(|end| std::mem::take(&mut end.held))
                .unwrap_or_default();
            for (channel, method) in held {
                self.post(connection, channel, method, now);
            }
        }
    }
}
