//! What travels, and what each end of each connection knows.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use lapin::message::{BasicReturnMessage, Delivery};
use lapin::types::ShortString;
use lapin::{BasicProperties, Confirmation, Error};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rehop::internals::at_rest::{self, AtRest};
use rehop::internals::names::EXPIRES_AT;
use rehop_simulator::{self as simulator, Broker, ChannelNumber, ConnectionId, Event, Method, Sent, Time};
use tokio::sync::{mpsc, oneshot};

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
    /// How long the broker may take to apply an ack, a reject or a nack that it has read. Closing the channel or the connection meanwhile
    /// loses it, as on a busy broker (3.10, 4.0 and 4.3).
    pub applied_within: Duration,
}

impl Default for Conditions {
    /// A quick network, and a broker that applies everything at once.
    fn default() -> Self {
        let none = Duration::ZERO;
        Self { latency: Duration::from_millis(1), slow_per_mille: 0, slow: none, applied_within: none }
    }
}

/// Frames that are sent at once are read at once, if they travel no longer than this.
const TOGETHER_WITHIN: Duration = Duration::from_millis(3);

/// A copy tells no more failures than this.
const MOST_FAILURES_TOLD: usize = 10;

/// The most channels of a connection, as RabbitMQ has it by default.
pub(super) const CHANNEL_MAX: u16 = 2047;

pub(super) type Answer = lapin::Result<Event>;

pub(super) struct State {
    pub(super) broker: Broker,
    pub(super) sleeping_until: Option<Time>,
    conditions: Conditions,
    random: SmallRng,
    under_way: BinaryHeap<Reverse<Parcel>>,
    parcels: u64,
    ends: BTreeMap<ConnectionId, End>,
    /// Processes that are gone.
    killed: Vec<Process>,
    /// Where each message was delivered to each process last.
    delivered: HashMap<(Process, String), Place>,
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
}

/// A channel, by its connection, its number, and what tells it from others of that number.
type Place = (ConnectionId, ChannelNumber, u64);

/// A copy that a process should not have sent as it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OddCopy {
    /// When it was sent.
    pub sent: Time,
    /// Who sent it.
    pub process: Process,
    /// The message.
    pub message: String,
    /// What is odd about it.
    pub oddity: Oddity,
}

/// What is odd about a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oddity {
    /// The process had lost the channel that brought the original, so that the broker has two.
    AfterLoss {
        /// When.
        lost: Time,
    },
    /// The broker had said that it reads nothing on this connection. lapin keeps the copy and sends it later, even if it is given up
    /// meanwhile.
    WhileBlocked,
    /// It tells fewer failures than the message had.
    WithoutHistory {
        /// How often the message has waited, as the copy says.
        waits: u32,
        /// How many failures the copy tells.
        failures: usize,
        /// Whether it says that an attempt has just failed.
        has_failed: bool,
    },
}

/// A message that an operator has sent back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// When.
    pub at: Time,
    /// By which replay.
    pub process: Process,
    /// The message.
    pub message: usize,
}

/// Something that travels. Parcels that are due at the same time arrive in the order in which they were sent.
struct Parcel {
    due: Time,
    number: u64,
    load: Load,
}

enum Load {
    ToBroker(ConnectionId, ChannelNumber, Method),
    ToClient(Sent),
    /// The client has asked for the end of the connection.
    Close(ConnectionId),
    BrokerNotices(ConnectionId),
    ClientNotices(ConnectionId, Error),
}

/// The client's end of a connection.
pub(super) struct End {
    process: Process,
    /// Why it ended.
    pub(super) error: Option<Error>,
    /// When the client noticed that.
    lost: Option<Time>,
    /// When the client noticed that channels had ended, by their keys.
    lost_channels: HashMap<u64, Time>,
    pub(super) is_blocked: bool,
    /// When the client heard of it last.
    blocked_at: Time,
    /// Nothing passes.
    is_silent: bool,
    /// The broker knows nothing of it any more.
    is_forgotten: bool,
    pub(super) channels: BTreeMap<ChannelNumber, ChannelEnd>,
    pub(super) listeners: Vec<mpsc::UnboundedSender<lapin::Event>>,
    closing: Option<oneshot::Sender<lapin::Result<()>>>,
    /// What lapin keeps while the broker blocks the connection.
    held: VecDeque<(ChannelNumber, Method)>,
    last_up: Time,
    last_down: Time,
    /// When the broker sent something last.
    sent_down: Option<Time>,
}

/// The client's end of a channel.
#[derive(Default)]
pub(super) struct ChannelEnd {
    /// Tells it from other channels of the same number.
    pub(super) key: u64,
    /// Why it ended; none while it is open.
    pub(super) error: Option<Error>,
    pub(super) is_closing: bool,
    /// Who waits for the answers to come, in their order.
    awaiting: VecDeque<oneshot::Sender<Answer>>,
    consumers: BTreeMap<ShortString, mpsc::UnboundedSender<lapin::Result<Delivery>>>,
    pub(super) tags: u32,
    pub(super) is_confirming: bool,
    published: u64,
    confirms: BTreeMap<u64, oneshot::Sender<lapin::Result<Confirmation>>>,
    /// lapin gives each confirm the first return there is, whoever it belongs to (4.12).
    returns: VecDeque<BasicReturnMessage>,
    /// Nothing that was sent on this channel is applied before this time, except its end.
    applied: Time,
}

impl State {
    pub(super) fn new(broker: Broker, conditions: Conditions, seed: u64) -> Self {
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

    pub(super) fn channel(
        &mut self,
        connection: ConnectionId,
        number: ChannelNumber,
        key: u64,
    ) -> Option<&mut ChannelEnd> {
        self.ends.get_mut(&connection)?.channels.get_mut(&number).filter(|channel| channel.key == key)
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
    pub(super) fn send(&mut self, connection: ConnectionId, channel: ChannelNumber, method: Method, now: Time) {
        let Some(end) = self.ends.get_mut(&connection) else { return };
        if end.is_blocked && (matches!(method, Method::Publish { .. }) || !end.held.is_empty()) {
            end.held.push_back((channel, method));
            return;
        }
        self.post(connection, channel, method, now);
    }

    fn post(&mut self, connection: ConnectionId, channel: ChannelNumber, method: Method, now: Time) {
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
    ) -> Result<oneshot::Receiver<Answer>, Error> {
        let channel = self.channel(connection, number, key).ok_or_else(errors::channel_is_closed)?;
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
    ) -> Result<Option<oneshot::Receiver<lapin::Result<Confirmation>>>, Error> {
        let channel = self.channel(connection, number, key).ok_or_else(errors::channel_is_closed)?;
        if channel.error.is_some() || channel.is_closing {
            return Err(channel.error.clone().unwrap_or_else(errors::channel_is_closed));
        }
        self.note_publish(connection, &method, now);
        let channel = self.channel(connection, number, key).ok_or_else(errors::channel_is_closed)?;
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
        let Some(message) = properties.message_id().as_ref().map(ToString::to_string) else { return };
        let Some(end) = self.ends.get(&connection) else { return };
        // What was decided at the same moment may still be sent.
        let (process, is_blocked) = (end.process, end.is_blocked && end.blocked_at < now);
        if process.is_operator() {
            // An operator's messages are numbered by their ids.
            self.replays.extend(message.parse().ok().map(|message| Replayed { at: now, process, message }));
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
        let (connection, number, key) = self.delivered.get(&(process, message.to_owned())).copied()?;
        let end = self.ends.get(&connection)?;
        match (&end.lost, end.channels.get(&number).filter(|channel| channel.key == key)) {
            (Some(lost), _) => Some(*lost),
            (None, Some(_)) => None,
            (None, None) => end.lost_channels.get(&key).copied(),
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
    ) -> Result<(ChannelNumber, u64, oneshot::Receiver<Answer>), Error> {
        let key = self.parcels;
        let end = self.ends.get_mut(&connection).ok_or_else(errors::connection_is_closed)?;
        if let Some(error) = &end.error {
            return Err(error.clone());
        }
        let number = (1..=CHANNEL_MAX).find(|number| !end.channels.contains_key(number));
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
        self.channel(connection, number, key).is_some_and(|channel| channel.consumers.remove(tag).is_some())
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
        end.fail(&errors::connection_is_closed(), now);
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

    pub(super) fn kill(&mut self, process: Process, noticed: Time) {
        self.killed.push(process);
        for connection in self.connections_of(process) {
            if let Some(end) = self.ends.get_mut(&connection) {
                end.is_silent = true;
            }
            self.push(noticed, Load::BrokerNotices(connection));
        }
    }

    /// The broker notices the end of a connection.
    fn forget(&mut self, connection: ConnectionId, now: Time) {
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
            // What a near broker sends at once arrives at once.
            let is_split = self.conditions.latency > TOGETHER_WITHIN && self.random.random_ratio(1, 4);
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
            Load::ToClient(sent) => {
                if let Some(end) = self.ends.get_mut(&sent.connection)
                    && (!end.is_silent || matches!(sent.event, Event::Cut | Event::Closed { .. }) && end.is_forgotten)
                {
                    if let Event::Delivered { delivery, .. } = &sent.event
                        && let Some(message) = delivery.properties.message_id()
                        && let Some(channel) = end.channels.get(&sent.channel)
                    {
                        let place = (sent.connection, sent.channel, channel.key);
                        let (process, message) = (end.process, message.to_string());
                        let is_redelivered = delivery.is_redelivered;
                        self.arrivals.push(Arrival { at: now, process, message: message.clone(), is_redelivered });
                        self.delivered.insert((process, message), place);
                    }
                    // 4.3 says only that it has cancelled, as it does when a queue is deleted.
                    let is_timeout = match &sent.event {
                        Event::Closed { text, .. } => text.contains("delivery acknowledgement on channel"),
                        Event::Cancelled { .. } => true,
                        _ => false,
                    };
                    self.timeouts.extend(is_timeout.then_some(now));
                    let is_unblocked = end.receive(sent, now);
                    if is_unblocked {
                        self.release_held(now);
                    }
                }
            }
            Load::Close(connection) => {
                let is_silent = self.ends.get(&connection).is_none_or(|end| end.is_silent);
                if !is_silent {
                    self.forget(connection, now);
                    if let Some(closing) = self.ends.get_mut(&connection).and_then(|end| end.closing.take()) {
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

    /// Sends what was held while a connection was blocked.
    fn release_held(&mut self, now: Time) {
        let free: Vec<_> = self.ends.iter().filter(|(_, end)| !end.is_blocked && !end.held.is_empty()).collect();
        let free: Vec<_> = free.into_iter().map(|(connection, _)| *connection).collect();
        for connection in free {
            let held = self.ends.get_mut(&connection).map(|end| std::mem::take(&mut end.held)).unwrap_or_default();
            for (channel, method) in held {
                self.post(connection, channel, method, now);
            }
        }
    }
}

impl End {
    pub(super) fn is_open(&self) -> bool {
        self.error.is_none()
    }

    /// The connection has ended for its client.
    pub(super) fn fail(&mut self, error: &Error, now: Time) {
        if self.error.is_some() {
            return;
        }
        self.error = Some(error.clone());
        self.lost = Some(now);
        self.is_blocked = false;
        self.held.clear();
        for channel in self.channels.values_mut() {
            channel.fail(error);
        }
        self.tell(&lapin::Event::Error(error.clone()));
    }

    fn tell(&mut self, event: &lapin::Event) {
        self.listeners.retain(|listener| listener.send(event.clone()).is_ok());
    }

    /// Takes what the broker has sent. Returns whether the broker reads again.
    fn receive(&mut self, Sent { channel, event, .. }: Sent, now: Time) -> bool {
        match (channel, event) {
            (0, Event::Closed { code, text }) => self.fail(&errors::closed(code, &text), now),
            (0, Event::Cut) => self.fail(&errors::reset(), now),
            (0, Event::Blocked { reason }) => {
                (self.is_blocked, self.blocked_at) = (true, now);
                self.tell(&lapin::Event::ConnectionBlocked(reason));
            }
            (0, Event::Unblocked) => {
                self.is_blocked = false;
                self.tell(&lapin::Event::ConnectionUnblocked);
                return true;
            }
            (0, _) => {}
            (_, Event::Closed { code, text }) => {
                let error = errors::closed(code, &text);
                // lapin forgets the channel, and its number is free again.
                if let Some(mut channel) = self.channels.remove(&channel) {
                    self.lost_channels.insert(channel.key, now);
                    channel.fail(&error);
                }
                self.tell(&lapin::Event::Error(error));
            }
            (number, event) => {
                if let Some(channel) = self.channels.get_mut(&number)
                    && channel.receive(event)
                {
                    self.channels.remove(&number);
                }
            }
        }
        false
    }
}

impl ChannelEnd {
    fn fail(&mut self, error: &Error) {
        self.error.get_or_insert_with(|| error.clone());
        for awaiting in std::mem::take(&mut self.awaiting) {
            let _ = awaiting.send(Err(error.clone()));
        }
        for consumer in std::mem::take(&mut self.consumers).into_values() {
            let _ = consumer.send(Err(error.clone()));
        }
        for confirm in std::mem::take(&mut self.confirms).into_values() {
            let _ = confirm.send(Err(error.clone()));
        }
    }

    /// Takes what the broker has sent. Returns whether it was the last that there will be.
    fn receive(&mut self, event: Event) -> bool {
        match event {
            Event::Delivered { consumer, delivery } => {
                if let Some(consumer) = self.consumers.get(&consumer) {
                    let _ = consumer.send(Ok(delivered(delivery)));
                }
            }
            Event::Cancelled { tag } => {
                self.consumers.remove(&tag);
            }
            Event::Returned { code, text, exchange, routing_key, properties, body } => {
                let mut delivery = Delivery::mock(0, exchange, routing_key, false, body);
                delivery.properties = *properties;
                let reply_text = ShortString::try_new(text.as_str()).unwrap_or_default();
                self.returns.push_back(BasicReturnMessage { delivery, reply_code: code, reply_text });
            }
            Event::Acked { tag, is_multiple } => self.confirm(tag, is_multiple, Confirmation::Ack),
            Event::Nacked { tag, is_multiple } => self.confirm(tag, is_multiple, Confirmation::Nack),
            answer => {
                if let Some(awaiting) = self.awaiting.pop_front() {
                    let _ = awaiting.send(Ok(answer));
                }
                if self.is_closing && self.awaiting.is_empty() {
                    self.fail(&errors::channel_is_closed());
                    return true;
                }
            }
        }
        false
    }

    fn confirm(&mut self, tag: u64, is_multiple: bool, how: fn(Option<BasicReturnMessage>) -> Confirmation) {
        let first = if is_multiple { self.confirms.keys().next().copied().unwrap_or(tag) } else { tag };
        for tag in first..=tag {
            if let Some(confirm) = self.confirms.remove(&tag) {
                let _ = confirm.send(Ok(how(self.returns.pop_front())));
            }
        }
    }
}

/// Each wait follows a failure, and so does the end of a message that no attempt could help.
fn without_history(properties: &BasicProperties) -> Option<Oddity> {
    let AtRest { reason, hops, errors, .. } = at_rest::read(properties, EXPIRES_AT);
    let has_failed = matches!(reason.as_deref(), Some("exhausted" | "permanent"));
    let (waits, failures) = (hops, errors.len());
    let least = (waits as usize).max(usize::from(has_failed)).min(MOST_FAILURES_TOLD);
    (failures < least).then_some(Oddity::WithoutHistory { waits, failures, has_failed })
}

pub(super) fn delivered(delivery: simulator::Delivery) -> Delivery {
    let simulator::Delivery { tag, is_redelivered, exchange, routing_key, properties, body } = delivery;
    let mut delivered = Delivery::mock(tag, exchange, routing_key, is_redelivered, body);
    delivered.properties = *properties;
    delivered
}

impl Ord for Parcel {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl PartialOrd for Parcel {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Parcel {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Parcel {}
