//! A script's clients at a real broker.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::Duration;

use lapin::types::{FieldTable, ShortString};
use lapin::uri::AMQPUri;
use rehop_simulator::{Event, Method};
use rehop_testing::Management;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout_at};

use crate::amqp::{Incoming, Link, Said};
use crate::client::{Action, Clients};
use crate::lockstep::{ANSWERS_WITHIN, DOUBTFUL};
use crate::naming::Naming;
use crate::script::{CHANNELS, Index, Script, Step};
use crate::seen::{Saw, Seen, Stream};

/// How often the broker is asked again while something is awaited and no word comes from it.
const ASKED_EVERY: Duration = Duration::from_millis(10);
/// How many times at most queues are looked at while one is said to be empty and answers are slow.
const DOUBTED: usize = 3;
/// The channel on which queues are looked at.
const OBSERVING: u16 = 1;

/// How to reach the broker.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) uri: AMQPUri,
    pub(crate) management: Management,
}

/// The clients of one run, and an observer that belongs to no script.
#[derive(Debug)]
pub(crate) struct Real {
    address: Address,
    naming: Naming,
    clients: Clients,
    links: BTreeMap<Index, Link>,
    observer: Link,
    next_link: u64,
    incoming: UnboundedReceiver<Incoming>,
    to_us: UnboundedSender<Incoming>,
    seen: Seen,
    policies: BTreeSet<Index>,
    /// Which channels still have to answer a ping.
    pinged: BTreeSet<Index>,
    /// Which queues still have to be seen, in this order.
    looked_at: VecDeque<Index>,
    holds: BTreeMap<Index, Saw>,
}

impl Real {
    pub(crate) async fn new(address: &Address, naming: Naming) -> io::Result<Self> {
        let (to_us, incoming) = unbounded_channel();
        let mut observer = Link::open(&address.uri, 0, to_us.clone()).await?;
        observer.queue(OBSERVING, &Method::OpenChannel);
        Ok(Self {
            address: address.clone(),
            clients: Clients::new(naming.clone()),
            naming,
            links: BTreeMap::new(),
            observer,
            next_link: 1,
            incoming,
            to_us,
            seen: Seen::new(),
            policies: BTreeSet::new(),
            pinged: BTreeSet::new(),
            looked_at: VecDeque::new(),
            holds: BTreeMap::new(),
        })
    }

    /// Does what the steps say, without waiting for their effects.
    pub(crate) async fn perform(&mut self, steps: &[Step]) -> io::Result<()> {
        let actions = steps.iter().flat_map(|step| self.clients.actions(step)).collect::<Vec<_>>();
        for action in actions {
            match action {
                Action::Connect(connection) => {
                    let link =
                        Link::open(&self.address.uri, self.next_link, self.to_us.clone()).await?;
                    self.next_link += 1;
                    self.links.insert(connection, link);
                }
                Action::Send(channel, method) => {
                    let (connection, number) = CHANNELS[channel];
                    if let Some(link) = self.links.get_mut(&connection) {
                        link.queue(number, &method);
                    }
                }
                Action::Close(connection) => self.close(connection).await?,
                Action::Cut(connection) => drop(self.links.remove(&connection)),
                Action::SetPolicy(queue, definition) => self.set_policy(queue, &definition).await?,
                Action::ClearPolicy(queue) => self.clear_policy(queue).await?,
            }
        }
        self.flush().await
    }

    /// The next step begins with nothing seen.
    pub(crate) fn forget(&mut self) {
        self.seen.clear();
    }

    /// What the clients have seen since they [forgot](Self::forget), and what each queue held in
    /// the last round.
    pub(crate) fn snapshot(&self) -> Seen {
        let mut seen = self.seen.clone();
        seen.extend(
            self.holds.iter().map(|(queue, holds)| (Stream::Queue(*queue), vec![holds.clone()])),
        );
        seen
    }

    /// Waits until the broker says something, or until it is worth asking again.
    pub(crate) async fn wait(&mut self) -> io::Result<()> {
        match timeout_at(Instant::now() + ASKED_EVERY, self.incoming.recv()).await {
            Ok(Some(incoming)) => self.handle(incoming).await,
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// One question to each channel and each queue. When all are answered, the broker has looked at
    /// everything that it was sent.
    pub(crate) async fn round(&mut self) -> io::Result<()> {
        for _ in 0..DOUBTED {
            let began = Instant::now();
            self.ask_all().await?;
            let is_empty = |holds: &Saw| *holds == Saw::Holds { ready: 0, consumers: 0 };
            if began.elapsed() < DOUBTFUL || !self.holds.values().any(is_empty) {
                break;
            }
        }
        Ok(())
    }

    async fn ask_all(&mut self) -> io::Result<()> {
        for channel in self.clients.channels() {
            let (connection, number) = CHANNELS[channel];
            if let Some(link) = self.links.get_mut(&connection) {
                link.queue_ping(number);
                self.pinged.insert(channel);
            }
        }
        self.holds.clear();
        for queue in self.clients.queues() {
            self.observer.queue(OBSERVING, &look(self.naming.queue(queue)));
            self.looked_at.push_back(queue);
        }
        self.flush().await?;
        let deadline = Instant::now() + ANSWERS_WITHIN;
        while !self.pinged.is_empty() || !self.looked_at.is_empty() {
            match timeout_at(deadline, self.incoming.recv()).await {
                Ok(Some(incoming)) => self.handle(incoming).await?,
                Ok(None) | Err(_) => {
                    let what = format!(
                        "no answer from channels {:?}, queues {:?}",
                        self.pinged, self.looked_at
                    );
                    return Err(io::Error::other(what));
                }
            }
        }
        Ok(())
    }

    async fn handle(&mut self, incoming: Incoming) -> io::Result<()> {
        if incoming.link == self.observer.number {
            return self.observed(incoming.what).await;
        }
        let Some(connection) = self
            .links
            .iter()
            .find(|(_, link)| link.number == incoming.link)
            .map(|(index, _)| *index)
        else {
            // Of a connection that the script has ended.
            return Ok(());
        };
        let event = match incoming.what {
            Said::Pong => {
                let channel =
                    CHANNELS.iter().position(|it| *it == (connection, incoming.channel)).unwrap();
                self.pinged.remove(&channel);
                return Ok(());
            }
            Said::Ended => Event::Cut,
            Said::Event(event) => event,
        };
        let is_end_of_channel = matches!(event, Event::Closed { .. });
        let is_end = matches!(event, Event::Cut) || is_end_of_channel && incoming.channel == 0;
        if is_end_of_channel {
            let link = self.links.get_mut(&connection).unwrap();
            link.queue_close_ok(incoming.channel);
            link.flush().await?;
        }
        let channel = if matches!(event, Event::Cut) { 0 } else { incoming.channel };
        for (stream, saw) in self.clients.see(connection, channel, event) {
            self.seen.entry(stream).or_default().push(saw);
        }
        if is_end {
            self.links.remove(&connection);
        }
        let open = self.clients.channels().collect::<BTreeSet<_>>();
        self.pinged.retain(|channel| open.contains(channel));
        Ok(())
    }

    async fn observed(&mut self, said: Said) -> io::Result<()> {
        match said {
            Said::Event(Event::Queue { messages, consumers, .. }) => {
                let queue = self.looked_at.pop_front().unwrap();
                self.holds.insert(queue, Saw::Holds { ready: messages, consumers });
            }
            Said::Event(Event::Closed { .. }) => {
                // The first of them is missing; the others were not looked at.
                while let Some(queue) = self.looked_at.pop_front() {
                    self.holds.insert(queue, Saw::Missing);
                }
                self.observer.queue_close_ok(OBSERVING);
                self.observer.queue(OBSERVING, &Method::OpenChannel);
                self.observer.flush().await?;
            }
            Said::Ended => return Err(io::Error::other("the observer's connection ended")),
            Said::Event(_) | Said::Pong => {}
        }
        Ok(())
    }

    async fn close(&mut self, connection: Index) -> io::Result<()> {
        let Some(mut link) = self.links.remove(&connection) else {
            return Ok(());
        };
        link.queue_close();
        link.flush().await?;
        let deadline = Instant::now() + ANSWERS_WITHIN;
        loop {
            match timeout_at(deadline, self.incoming.recv()).await {
                Ok(Some(incoming)) if incoming.link == link.number => {
                    if matches!(incoming.what, Said::Ended) {
                        return Ok(());
                    }
                }
                Ok(Some(incoming)) => self.handle(incoming).await?,
                Ok(None) | Err(_) => {
                    return Err(io::Error::other("a connection was not closed in time"));
                }
            }
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        for link in self.links.values_mut() {
            link.flush().await?;
        }
        self.observer.flush().await
    }

    async fn set_policy(&mut self, queue: Index, definition: &FieldTable) -> io::Result<()> {
        let name = self.naming.queue(queue).to_string();
        let definition =
            definition.inner().iter().map(|(key, value)| (key.to_string(), json_of(value)));
        let definition = Value::Object(definition.collect::<Map<_, _>>());
        let pattern = format!("^{}$", name.replace('.', "\\."));
        let management = &self.address.management;
        self.policies.insert(queue);
        management.set_policy(&name, &pattern, definition).await.map_err(io::Error::other)
    }

    async fn clear_policy(&mut self, queue: Index) -> io::Result<()> {
        if !self.policies.remove(&queue) {
            return Ok(());
        }
        let name = self.naming.queue(queue).to_string();
        self.address.management.delete_policy(&name).await.map_err(io::Error::other)
    }

    /// Removes what the script made, so that the broker stays as fast as it was.
    pub(crate) async fn clean_up(mut self, script: &Script) -> io::Result<()> {
        for queue in self.policies.clone() {
            // The queue may be gone, and with it the policy's effect.
            let _ = self.address.management.delete_policy(self.naming.queue(queue).as_str()).await;
        }
        self.links.clear();
        for queue in 0..script.queues() {
            let method = Method::DeleteQueue { queue: self.naming.queue(queue), if_empty: false };
            self.observer.queue(OBSERVING, &method);
        }
        for exchange in 0..script.exchanges() {
            let method = Method::DeleteExchange {
                exchange: self.naming.exchange(Some(exchange)),
                if_unused: false,
            };
            self.observer.queue(OBSERVING, &method);
        }
        self.observer.queue_close();
        self.observer.flush().await?;
        while let Some(incoming) = self.incoming.recv().await {
            if incoming.link == self.observer.number && matches!(incoming.what, Said::Ended) {
                break;
            }
        }
        Ok(())
    }
}

pub(crate) fn look(queue: ShortString) -> Method {
    Method::DeclareQueue {
        queue,
        is_passive: true,
        is_durable: true,
        is_exclusive: false,
        is_auto_delete: false,
        arguments: FieldTable::default(),
    }
}

fn json_of(value: &lapin::types::AMQPValue) -> Value {
    use lapin::types::AMQPValue;
    match value {
        AMQPValue::LongLongInt(number) => json!(number),
        AMQPValue::LongString(text) => json!(text.to_string()),
        AMQPValue::Boolean(flag) => json!(flag),
        other => unreachable!("policies have no {other:?}"),
    }
}
