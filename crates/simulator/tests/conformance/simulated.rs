//! A script's clients at the simulator, in virtual time.

use std::collections::BTreeMap;

use rehop_simulator::{
    Broker, ConnectionId, Event, Method, QueueView, Sent, Time, Turnover, Version,
};

use crate::client::{Action, Clients, Subscribed};
use crate::lockstep::SOON;
use crate::naming::Naming;
use crate::random::Random;
use crate::real::look;
use crate::script::{CHANNELS, Index, Step, Table};
use crate::seen::{Saw, Seen, Stream};

const USER: &str = "guest";
/// What is due so soon is part of a step, such as the expiry of a message that may not wait at all.
const AT_ONCE: Time = Time::from_millis(3);
/// How much later one queue is than another that is held up.
const MOMENT: Time = Time::from_micros(50);
/// Longer than any step.
const ASLEEP: Time = Time::from_secs(60);
/// The channel on which queues are looked at.
const OBSERVING: u16 = 1;

/// The clients of one run, and an observer that belongs to no script.
#[derive(Debug)]
pub(crate) struct Simulated {
    broker: Broker,
    naming: Naming,
    clients: Clients,
    connections: BTreeMap<Index, ConnectionId>,
    observer: ConnectionId,
    seen: Seen,
    now: Time,
}

impl Simulated {
    pub(crate) fn new(version: Version, naming: Naming) -> Self {
        let mut broker = Broker::new(version);
        let observer = broker.connect(Time::ZERO, USER).unwrap();
        broker.receive(Time::ZERO, observer, OBSERVING, Method::OpenChannel);
        let clients = Clients::new(naming.clone());
        Self {
            broker,
            naming,
            clients,
            connections: BTreeMap::new(),
            observer,
            seen: Seen::new(),
            now: Time::ZERO,
        }
    }

    /// Does what the steps say, with all effects that they have at once.
    pub(crate) fn perform(&mut self, steps: &[Step], now: Time) {
        let now = self.now.max(now);
        self.now = now;
        let actions = steps.iter().flat_map(|step| self.clients.actions(step)).collect::<Vec<_>>();
        for action in actions {
            match action {
                Action::Connect(connection) => {
                    let id = self.broker.connect(now, USER).unwrap();
                    self.connections.insert(connection, id);
                }
                Action::Send(channel, method) => {
                    let (connection, number) = CHANNELS[channel];
                    if let Some(id) = self.connections.get(&connection) {
                        self.broker.receive(now, *id, number, method);
                    }
                }
                Action::Close(connection) | Action::Cut(connection) => {
                    if let Some(id) = self.connections.remove(&connection) {
                        self.broker.disconnect(now, id);
                    }
                }
                Action::SetPolicy(queue, definition) => {
                    let queue = self.naming.queue(queue).to_string();
                    self.broker.set_policy(now, &queue, Some(definition));
                }
                Action::ClearPolicy(queue) => {
                    self.broker.set_policy(now, self.naming.queue(queue).as_str(), None)
                }
            }
        }
        self.pass_time(now + AT_ONCE);
    }

    /// Until a moment after this time, some queues do nothing: on a real broker each is a process
    /// of its own, and may be late.
    pub(crate) fn hold_up_queues(&mut self, time: Time, random: &mut Random) {
        for queue in self.clients.queues() {
            let until = time + MOMENT * u32::try_from(random.below(4)).unwrap();
            if until > self.now {
                self.broker.silence(self.now, self.naming.queue(queue).as_str(), until);
            }
        }
    }

    /// When something is due, if nothing else happens.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.broker.next_timer()
    }

    /// Does all that is due by `now`.
    pub(crate) fn pass_time(&mut self, now: Time) {
        while let Some(due) = self.broker.next_timer().filter(|due| *due <= now) {
            self.now = self.now.max(due);
            self.broker.pass_time(self.now);
        }
        for Sent { connection, channel, event } in self.broker.sent().collect::<Vec<_>>() {
            let Some(index) =
                self.connections.iter().find(|(_, id)| **id == connection).map(|(index, _)| *index)
            else {
                continue;
            };
            for (stream, saw) in self.clients.see(index, channel, event) {
                self.seen.entry(stream).or_default().push(saw);
            }
        }
    }

    /// What the clients have seen since they [forgot](Self::forget), and what each queue holds.
    pub(crate) fn snapshot(&mut self) -> Seen {
        self.snapshot_without(None)
    }

    /// The same, apart from what one queue holds.
    pub(crate) fn snapshot_without(&mut self, left_out: Option<Index>) -> Seen {
        let mut seen = self.seen.clone();
        for queue in self.clients.queues().filter(|queue| Some(*queue) != left_out) {
            let look = look(self.naming.queue(queue));
            self.broker.receive(self.now, self.observer, OBSERVING, look);
            let mut holds = Saw::Missing;
            for sent in self.broker.sent() {
                match sent.event {
                    Event::Queue { messages, consumers, .. } => {
                        holds = Saw::Holds { ready: messages, consumers }
                    }
                    other => holds = Saw::Other(format!("{other:?}")),
                }
            }
            seen.insert(Stream::Queue(queue), vec![holds]);
        }
        seen
    }

    /// Whether a client has seen something of this kind since it [forgot](Self::forget).
    pub(crate) fn has_seen(&self, is_it: impl Fn(&Saw) -> bool) -> bool {
        self.seen.values().flatten().any(is_it)
    }

    /// What each queue holds, and what has passed through it.
    pub(crate) fn views(&self) -> BTreeMap<Index, (QueueView, Turnover)> {
        let view = |queue: Index| {
            let name = self.naming.queue(queue);
            let (view, turnover) =
                (self.broker.queue(name.as_str()), self.broker.turnover(name.as_str()));
            (view.unwrap_or_default(), turnover.unwrap_or_default())
        };
        self.clients.queues().map(|queue| (queue, view(queue))).collect()
    }

    /// From now on a queue does nothing, until it is [woken](Self::wake).
    pub(crate) fn put_to_sleep(&mut self, queue: Index) {
        self.broker.silence(self.now, self.naming.queue(queue).as_str(), self.now + ASLEEP);
    }

    /// A queue does what it was asked meanwhile.
    pub(crate) fn wake(&mut self, queue: Index) {
        self.broker.silence(self.now, self.naming.queue(queue).as_str(), self.now);
        self.pass_time(self.now + AT_ONCE);
    }

    /// The subscriptions of open channels.
    pub(crate) fn subscribed(&self) -> Subscribed {
        self.clients.subscribed()
    }

    /// The next step begins with nothing seen.
    pub(crate) fn forget(&mut self) {
        self.seen.clear();
    }

    /// Whether a step would do anything now.
    pub(crate) fn can(&self, step: &Step) -> bool {
        match step {
            Step::PassTime => {
                self.next_timer().is_some_and(|due| due <= self.now + self.naming.duration(SOON))
            }
            other => self.clients.can(other),
        }
    }

    /// Whether a channel is open.
    pub(crate) fn has(&self, channel: Index) -> bool {
        self.clients.has(channel)
    }

    /// The steps that take out what is left in each queue, so that it is compared as well.
    pub(crate) fn drain(&self) -> Vec<Step> {
        let drain = |queue| Step::Subscribe {
            channel: 2,
            queue,
            tag: 900,
            prefetch: 0,
            is_no_ack: true,
            arguments: Table::new(),
        };
        self.clients
            .queues()
            .flat_map(|queue| [drain(queue), Step::CloseChannel { channel: 2 }])
            .collect()
    }
}
