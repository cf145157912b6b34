//! What a script's clients know, on the simulator or on a real broker: which channels are open,
//! what they hold, what they asked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lapin::BasicProperties;
use lapin::types::{FieldTable, ShortString};
use rehop_simulator::{Delivery, Event, Method};

use crate::naming::Naming;
use crate::script::{CHANNELS, Index, Message, Oddity, Settlement, Step, Table};
use crate::seen::{Copy, Saw, Stream};

/// What a client does at its broker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Connect(Index),
    Send(Index, Method),
    Close(Index),
    Cut(Index),
    SetPolicy(Index, FieldTable),
    ClearPolicy(Index),
}

/// The queue of each subscription, by its channel and tag.
pub(crate) type Subscribed = BTreeMap<(Index, String), Index>;

/// The clients of one run.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    naming: Naming,
    connections: BTreeSet<Index>,
    channels: BTreeMap<Index, Channel>,
    queues: BTreeSet<Index>,
}

#[derive(Debug, Clone, Default)]
struct Channel {
    published: u64,
    unconfirmed: BTreeMap<u64, String>,
    subscriptions: BTreeMap<String, KnownConsumer>,
    held: Vec<Held>,
    asked: VecDeque<Asked>,
}

#[derive(Debug, Clone, Copy)]
struct KnownConsumer {
    queue: Index,
    is_no_ack: bool,
}

/// In the order of the messages, for that of the tags is chance if they came together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    queue: Index,
    /// Its number.
    message: Option<u32>,
    tag: u64,
    /// `None` if it was fetched.
    subscription: Option<ShortString>,
}

/// A question, whose answer comes in its turn.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Declare(Index),
    Delete(Index),
    Get { queue: Index, is_no_ack: bool },
    Close,
    Other,
}

impl Clients {
    pub(crate) fn new(naming: Naming) -> Self {
        Self {
            naming,
            connections: BTreeSet::new(),
            channels: BTreeMap::new(),
            queues: BTreeSet::new(),
        }
    }

    /// The queues that exist as far as the clients know.
    pub(crate) fn queues(&self) -> impl Iterator<Item = Index> {
        self.queues.iter().copied()
    }

    /// Whether a step would do anything now, once the channel is open that it needs.
    pub(crate) fn can(&self, step: &Step) -> bool {
        step.needs().is_some() || !self.clone().actions(step).is_empty()
    }

    /// Whether a channel is open.
    pub(crate) fn has(&self, channel: Index) -> bool {
        self.channels.contains_key(&channel)
    }

    /// The channels that are open.
    pub(crate) fn channels(&self) -> impl Iterator<Item = Index> {
        let is_open =
            |channel: &Channel| !channel.asked.iter().any(|asked| matches!(asked, Asked::Close));
        self.channels.iter().filter(move |(_, channel)| is_open(channel)).map(|(index, _)| *index)
    }

    /// The subscriptions of open channels.
    pub(crate) fn subscribed(&self) -> Subscribed {
        let all = self
            .channels
            .iter()
            .flat_map(|(channel, open)| open.subscriptions.iter().map(move |it| (*channel, it)));
        all.map(|(channel, (tag, it))| ((channel, tag.clone()), it.queue)).collect()
    }

    /// What a step means now. Nothing if it is about something that is not there, such as a message
    /// to settle.
    pub(crate) fn actions(&mut self, step: &Step) -> Vec<Action> {
        match step {
            Step::OpenChannel { channel } => self.open(*channel),
            Step::Publish { channel, messages } => self.publish(*channel, messages),
            Step::Subscribe { channel, queue, tag, prefetch, is_no_ack, arguments } => {
                self.subscribe(*channel, *queue, *tag, *prefetch, *is_no_ack, arguments)
            }
            Step::Cancel { channel, pick } => self.cancel(*channel, *pick),
            Step::Get { channel, queue, is_no_ack } => {
                let queue_name = self.naming.queue(*queue);
                let method = Method::Get { queue: queue_name, is_no_ack: *is_no_ack };
                self.ask(*channel, Asked::Get { queue: *queue, is_no_ack: *is_no_ack }, method)
            }
            Step::Settle { channel, pick, is_multiple, how } => {
                self.settle(*channel, *pick, *is_multiple, *how)
            }
            Step::SettleUnknown { channel } => {
                vec![Action::Send(*channel, Method::Ack { delivery_tag: 9999, is_multiple: false })]
            }
            Step::CloseChannel { channel } => match self.channels.get_mut(channel) {
                Some(open) => {
                    open.asked.push_back(Asked::Close);
                    vec![Action::Send(*channel, Method::CloseChannel)]
                }
                None => Vec::new(),
            },
            Step::CloseConnection { connection } => {
                self.disconnect(*connection, Action::Close(*connection))
            }
            Step::CutConnection { connection } => {
                self.disconnect(*connection, Action::Cut(*connection))
            }
            Step::PassTime => Vec::new(),
            // Older versions end the connection instead.
            Step::DeleteQueue { channel, if_empty: true, .. }
                if self.have_rivals(CHANNELS[*channel].0) =>
            {
                Vec::new()
            }
            Step::DeclareQueue { .. }
            | Step::DeclareOddQueue { .. }
            | Step::LookAtQueue { .. }
            | Step::Purge { .. }
            | Step::DeleteQueue { .. } => self.change_queue(step),
            Step::DeclareExchange { .. }
            | Step::DeleteExchange { .. }
            | Step::Bind { .. }
            | Step::Unbind { .. }
            | Step::BindExchange { .. } => self.change_exchange(step),
            Step::SetPolicy { queue, definition } if self.queues.contains(queue) => {
                vec![Action::SetPolicy(*queue, self.naming.queue_table(*queue, definition))]
            }
            Step::ClearPolicy { queue } if self.queues.contains(queue) => {
                vec![Action::ClearPolicy(*queue)]
            }
            Step::SetPolicy { .. } | Step::ClearPolicy { .. } => Vec::new(),
        }
    }

    fn change_queue(&mut self, step: &Step) -> Vec<Action> {
        let naming = self.naming.clone();
        match step {
            Step::DeclareQueue { channel, queue, arguments } => {
                let method = declare(&naming, *queue, false, naming.queue_table(*queue, arguments));
                self.ask(*channel, Asked::Declare(*queue), method)
            }
            Step::DeclareOddQueue { channel, queue, oddity, arguments } => {
                let method = Method::DeclareQueue {
                    queue: naming.queue(*queue),
                    is_passive: false,
                    is_durable: *oddity != Oddity::Transient,
                    is_exclusive: *oddity == Oddity::Exclusive,
                    is_auto_delete: *oddity == Oddity::AutoDelete,
                    arguments: naming.queue_table(*queue, arguments),
                };
                self.ask(*channel, Asked::Declare(*queue), method)
            }
            Step::LookAtQueue { channel, queue } => {
                let method = declare(&naming, *queue, true, FieldTable::default());
                self.ask(*channel, Asked::Declare(*queue), method)
            }
            Step::Purge { channel, queue } => {
                self.ask(*channel, Asked::Other, Method::PurgeQueue { queue: naming.queue(*queue) })
            }
            Step::DeleteQueue { channel, queue, if_empty } => {
                let method =
                    Method::DeleteQueue { queue: naming.queue(*queue), if_empty: *if_empty };
                self.ask(*channel, Asked::Delete(*queue), method)
            }
            _ => Vec::new(),
        }
    }

    fn change_exchange(&mut self, step: &Step) -> Vec<Action> {
        let naming = self.naming.clone();
        match step {
            Step::DeclareExchange { channel, exchange, kind, arguments } => {
                let method = Method::DeclareExchange {
                    exchange: naming.exchange(Some(*exchange)),
                    kind: (*kind).to_owned(),
                    is_passive: false,
                    is_durable: true,
                    arguments: naming.table(arguments),
                };
                self.ask(*channel, Asked::Other, method)
            }
            Step::Bind { channel, queue, exchange, key, arguments } => {
                let (queue, exchange) = (naming.queue(*queue), naming.exchange(Some(*exchange)));
                let (routing_key, arguments) = (naming.key(key), naming.table(arguments));
                self.ask(
                    *channel,
                    Asked::Other,
                    Method::BindQueue { queue, exchange, routing_key, arguments },
                )
            }
            Step::Unbind { channel, queue, exchange, key, arguments } => {
                let (queue, exchange) = (naming.queue(*queue), naming.exchange(Some(*exchange)));
                let (routing_key, arguments) = (naming.key(key), naming.table(arguments));
                self.ask(
                    *channel,
                    Asked::Other,
                    Method::UnbindQueue { queue, exchange, routing_key, arguments },
                )
            }
            Step::BindExchange { channel, destination, source, key, arguments } => {
                let (destination, source) =
                    (naming.exchange(Some(*destination)), naming.exchange(Some(*source)));
                let (routing_key, arguments) = (naming.key(key), naming.table(arguments));
                self.ask(
                    *channel,
                    Asked::Other,
                    Method::BindExchange { destination, source, routing_key, arguments },
                )
            }
            Step::DeleteExchange { channel, exchange } => {
                let method = Method::DeleteExchange {
                    exchange: naming.exchange(Some(*exchange)),
                    if_unused: false,
                };
                self.ask(*channel, Asked::Other, method)
            }
            _ => Vec::new(),
        }
    }

    /// Opens a channel, and its connection, unless they are open. It confirms.
    fn open(&mut self, channel: Index) -> Vec<Action> {
        if self.channels.contains_key(&channel) {
            return Vec::new();
        }
        let mut actions = Vec::new();
        let connection = CHANNELS[channel].0;
        if self.connections.insert(connection) {
            actions.push(Action::Connect(connection));
        }
        self.channels
            .insert(channel, Channel { asked: [Asked::Other; 2].into(), ..Channel::default() });
        actions.push(Action::Send(channel, Method::OpenChannel));
        actions.push(Action::Send(channel, Method::ConfirmSelect));
        actions
    }

    fn ask(&mut self, channel: Index, asked: Asked, method: Method) -> Vec<Action> {
        // In the topology an earlier step may have closed it.
        let Some(open) = self.channels.get_mut(&channel) else {
            return Vec::new();
        };
        open.asked.push_back(asked);
        vec![Action::Send(channel, method)]
    }

    fn publish(&mut self, channel: Index, messages: &[Message]) -> Vec<Action> {
        let mut actions = Vec::new();
        for message in messages {
            let Some(open) = self.channels.get_mut(&channel) else {
                return actions;
            };
            open.published += 1;
            open.unconfirmed.insert(open.published, format!("m{}", message.number));
            let mut properties = BasicProperties::default()
                .with_message_id(message.number.to_string().into())
                .with_delivery_mode(2);
            if !message.headers.is_empty() {
                properties = properties.with_headers(self.naming.table(&message.headers));
            }
            if let Some(expiration) = &message.expiration {
                properties = properties.with_expiration(self.naming.expiration(expiration));
            }
            if let Some(priority) = message.priority {
                properties = properties.with_priority(priority);
            }
            if let Some(user) = message.user {
                properties = properties.with_user_id(user.into());
            }
            let method = Method::Publish {
                exchange: self.naming.exchange(message.exchange),
                routing_key: self.naming.key(&message.key),
                is_mandatory: message.is_mandatory,
                properties: Box::new(properties),
                body: format!("m{}", message.number).into_bytes(),
            };
            actions.push(Action::Send(channel, method));
        }
        actions
    }

    fn subscribe(
        &mut self,
        channel: Index,
        queue: Index,
        tag: u32,
        prefetch: u16,
        is_no_ack: bool,
        arguments: &Table,
    ) -> Vec<Action> {
        let mut actions = self.ask(channel, Asked::Other, Method::Qos { prefetch });
        let tag = format!("s{tag}");
        let method = Method::Consume {
            queue: self.naming.queue(queue),
            consumer_tag: tag.as_str().into(),
            is_no_ack,
            is_exclusive: false,
            arguments: self.naming.table(arguments),
        };
        actions.extend(self.ask(channel, Asked::Other, method));
        if let Some(open) = self.channels.get_mut(&channel) {
            open.subscriptions.insert(tag, KnownConsumer { queue, is_no_ack });
        }
        actions
    }

    fn cancel(&mut self, channel: Index, pick: usize) -> Vec<Action> {
        let Some(open) = self.channels.get_mut(&channel) else {
            return Vec::new();
        };
        let Some(tag) =
            open.subscriptions.keys().cycle().nth(pick % open.subscriptions.len().max(1)).cloned()
        else {
            return Vec::new();
        };
        open.subscriptions.remove(&tag);
        self.ask(channel, Asked::Other, Method::Cancel { consumer_tag: tag.into() })
    }

    fn settle(
        &mut self,
        channel: Index,
        pick: usize,
        is_multiple: bool,
        how: Settlement,
    ) -> Vec<Action> {
        let Some(open) = self.channels.get_mut(&channel) else {
            return Vec::new();
        };
        open.held.sort_unstable();
        let Some(held) = open.held.iter().cycle().nth(pick % open.held.len().max(1)).cloned()
        else {
            return Vec::new();
        };
        // A broker numbers the deliveries of several queues as they happen to come, and those of
        // several subscriptions in an order of its own, so what comes before one of them is chance.
        // It is chance as well in which order several queues dead-letter to another one at once,
        // and whether what several subscriptions give back comes back in the same millisecond. So
        // only acks are for all.
        let is_of_one =
            |other: &Held| other.queue == held.queue && other.subscription == held.subscription;
        let is_in_order = open.held.iter().all(is_of_one);
        let is_multiple = is_multiple && (is_in_order || how == Settlement::Ack);
        let tag = if is_multiple && !is_in_order { 0 } else { held.tag };
        let method = match how {
            Settlement::Ack => Method::Ack { delivery_tag: tag, is_multiple },
            Settlement::Nack { is_requeued } => {
                Method::Nack { delivery_tag: tag, is_multiple, is_requeued }
            }
            Settlement::Reject { is_requeued } => {
                Method::Reject { delivery_tag: held.tag, is_requeued }
            }
        };
        let is_multiple = is_multiple && !matches!(how, Settlement::Reject { .. });
        open.held.retain(|other| {
            if is_multiple { tag != 0 && other.tag > tag } else { other.tag != held.tag }
        });
        vec![Action::Send(channel, method)]
    }

    fn disconnect(&mut self, connection: Index, how: Action) -> Vec<Action> {
        if !self.connections.contains(&connection) || self.have_rivals(connection) {
            return Vec::new();
        }
        self.lose(connection);
        vec![how]
    }

    /// Whether two channels of a connection share a queue. When the connection ends, one channel
    /// ends before the other, and it is chance whether the second one still gets what the first one
    /// held.
    fn have_rivals(&self, connection: Index) -> bool {
        let channels =
            self.channels.iter().filter(|(channel, _)| CHANNELS[**channel].0 == connection);
        let queues = channels.map(|(_, open)| {
            let subscribed = open.subscriptions.values().map(|it| it.queue);
            subscribed.chain(open.held.iter().map(|it| it.queue)).collect::<BTreeSet<_>>()
        });
        let queues = queues.collect::<Vec<_>>();
        queues.len() == 2 && !queues[0].is_disjoint(&queues[1])
    }

    fn lose(&mut self, connection: Index) {
        self.connections.remove(&connection);
        self.channels.retain(|channel, _| CHANNELS[*channel].0 != connection);
    }

    /// Takes what the broker said on a channel, or on channel 0 of a connection.
    pub(crate) fn see(
        &mut self,
        connection: Index,
        number: u16,
        event: Event,
    ) -> Vec<(Stream, Saw)> {
        let Some(channel) = CHANNELS.iter().position(|it| *it == (connection, number)) else {
            return vec![(Stream::Connection(connection), self.see_connection(connection, event))];
        };
        self.see_on_channel(channel, event)
    }

    fn see_on_channel(&mut self, channel: Index, event: Event) -> Vec<(Stream, Saw)> {
        let Some(open) = self.channels.get_mut(&channel) else {
            return vec![(
                Stream::Channel(channel),
                Saw::Other(format!("{event:?} on a closed channel")),
            )];
        };
        let naming = &self.naming;
        match event {
            Event::Done
            | Event::Subscribed { .. }
            | Event::Queue { .. }
            | Event::Removed { .. }
            | Event::Empty
            | Event::Got { .. } => {
                let asked = open.asked.pop_front();
                vec![self.see_answer(channel, asked, event)]
            }
            Event::Delivered { consumer_tag: consumer, delivery } => {
                if let Some(KnownConsumer { queue, is_no_ack: false }) =
                    open.subscriptions.get(consumer.as_str())
                {
                    open.held.push(Held::new(*queue, &delivery, Some(consumer.clone())));
                }
                vec![(
                    Stream::Subscription(channel, consumer.to_string()),
                    Saw::Delivered(copy(naming, &delivery)),
                )]
            }
            Event::Cancelled { consumer_tag: tag } => {
                open.subscriptions.remove(tag.as_str());
                vec![(Stream::Subscription(channel, tag.to_string()), Saw::Cancelled)]
            }
            Event::Returned { code, text, exchange, routing_key, properties, body } => {
                let (exchange, key) = (exchange.as_str(), routing_key.as_str());
                let copy = Copy::new(naming, false, exchange, key, &properties, &body);
                let stream = Stream::Published(channel, copy.message.clone());
                vec![(stream, Saw::Returned { code, text: naming.normalised(&text), copy })]
            }
            Event::Acked { delivery_tag: tag, is_multiple } => {
                open.fates(channel, tag, is_multiple, &Saw::Confirmed)
            }
            Event::Nacked { delivery_tag: tag, is_multiple } => {
                open.fates(channel, tag, is_multiple, &Saw::Refused)
            }
            Event::Closed { code, text } => {
                self.channels.remove(&channel);
                let text = self.naming.normalised(&text);
                vec![(Stream::Channel(channel), Saw::Closed { code, text })]
            }
            Event::Cut | Event::Blocked { .. } | Event::Unblocked => {
                vec![(Stream::Channel(channel), Saw::Other(format!("{event:?}")))]
            }
        }
    }

    fn see_answer(&mut self, channel: Index, asked: Option<Asked>, answer: Event) -> (Stream, Saw) {
        let saw = match (answer, asked) {
            (Event::Done, Some(Asked::Close)) => {
                self.channels.remove(&channel);
                Saw::Done
            }
            (Event::Done, Some(_)) => Saw::Done,
            (Event::Done, None) => Saw::Other("an answer to no question".to_owned()),
            (Event::Subscribed { consumer_tag: tag }, _) => {
                return (Stream::Subscription(channel, tag.to_string()), Saw::Subscribed);
            }
            (Event::Queue { messages, consumers, queue }, Some(Asked::Declare(index)))
                if self.naming.queue(index) == queue =>
            {
                self.queues.insert(index);
                Saw::Declared { ready: messages, consumers }
            }
            (Event::Queue { queue, .. }, other) => {
                Saw::Other(format!("{queue} declared, asked for {other:?}"))
            }
            (Event::Removed { messages }, asked) => {
                if let Some(Asked::Delete(queue)) = asked {
                    self.queues.remove(&queue);
                }
                Saw::Removed { messages }
            }
            (Event::Empty, _) => Saw::Empty,
            (Event::Got { delivery, messages }, asked) => {
                if let Some(Asked::Get { queue, is_no_ack: false }) = asked
                    && let Some(open) = self.channels.get_mut(&channel)
                {
                    open.held.push(Held::new(queue, &delivery, None));
                }
                Saw::Got { copy: copy(&self.naming, &delivery), left: messages }
            }
            (other, _) => Saw::Other(format!("{other:?}")),
        };
        (Stream::Channel(channel), saw)
    }

    fn see_connection(&mut self, connection: Index, event: Event) -> Saw {
        match event {
            Event::Closed { code, text } => {
                self.lose(connection);
                Saw::Closed { code, text: self.naming.normalised(&text) }
            }
            Event::Cut => {
                self.lose(connection);
                Saw::Cut
            }
            other => Saw::Other(format!("{other:?}")),
        }
    }
}

impl Held {
    fn new(queue: Index, delivery: &Delivery, subscription: Option<ShortString>) -> Self {
        let message =
            delivery.properties.message_id().as_ref().and_then(|id| id.as_str().parse().ok());
        Self { queue, message, tag: delivery.tag, subscription }
    }
}

impl Channel {
    fn fates(
        &mut self,
        channel: Index,
        tag: u64,
        is_multiple: bool,
        saw: &Saw,
    ) -> Vec<(Stream, Saw)> {
        let settled = if is_multiple {
            let later = self.unconfirmed.split_off(&(tag + 1));
            std::mem::replace(&mut self.unconfirmed, later).into_values().collect()
        } else {
            self.unconfirmed.remove(&tag).into_iter().collect::<Vec<_>>()
        };
        settled
            .into_iter()
            .map(|message| (Stream::Published(channel, message), saw.clone()))
            .collect()
    }
}

fn declare(naming: &Naming, queue: Index, is_passive: bool, arguments: FieldTable) -> Method {
    Method::DeclareQueue {
        queue: naming.queue(queue),
        is_passive,
        is_durable: true,
        is_exclusive: false,
        is_auto_delete: false,
        arguments,
    }
}

fn copy(naming: &Naming, delivery: &Delivery) -> Copy {
    let (exchange, key): (&ShortString, &ShortString) = (&delivery.exchange, &delivery.routing_key);
    Copy::new(
        naming,
        delivery.is_redelivered,
        exchange.as_str(),
        key.as_str(),
        &delivery.properties,
        &delivery.body,
    )
}
