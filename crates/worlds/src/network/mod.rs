//! The network between the processes of a world and its broker.
//!
//! Everything that is sent travels for a while, in order within its connection and direction. A
//! connection can be cut, can fall silent, and can be refused.

mod channel;
mod connection;
mod dialer;
mod ends;
mod errors;
mod oddities;
mod parcel;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::{FieldTable, ShortString};
use rehop_simulator::{Broker, ConnectionId, Method, Time};
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use dialer::Dialer;
pub use oddities::{OddCopy, Oddity, Replayed};
pub(crate) use state::Arrival;
pub use state::Conditions;
use state::NetworkState;

/// A process of a world: one run of a service or a tool, from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process(pub u32);

impl Process {
    /// The first number of an operator's process. Services begin at 1.
    const FIRST_OPERATOR: u32 = 1_000_000;

    /// The process of a scenario's replay.
    pub(crate) fn operator(number: usize) -> Self {
        Self(Self::FIRST_OPERATOR + u32::try_from(number).unwrap_or(0))
    }

    /// Whether it handles messages.
    pub(crate) fn is_service(self) -> bool {
        self.0 > 0 && !self.is_operator()
    }

    /// Whether it replays messages instead of handling them.
    pub(crate) fn is_operator(self) -> bool {
        self.0 >= Self::FIRST_OPERATOR
    }
}

/// The network and the broker at its other end. It belongs to the runtime in which it was made, and
/// ends with it.
#[derive(Clone)]
pub(crate) struct Network(Arc<Shared>);

struct Shared {
    state: Mutex<NetworkState>,
    epoch: Instant,
    /// Something is due sooner than the pump believes.
    sooner: Notify,
}

impl Network {
    /// Connects processes to this broker. What the conditions leave open follows from the seed.
    pub(crate) fn new(broker: Broker, conditions: Conditions, seed: u64) -> Self {
        let state = Mutex::new(NetworkState::new(broker, conditions, seed));
        let network =
            Self(Arc::new(Shared { state, epoch: Instant::now(), sooner: Notify::new() }));
        let pumped = network.clone();
        tokio::spawn(async move { pumped.pump().await });
        network
    }

    /// The time since the world began.
    pub(crate) fn now(&self) -> Time {
        self.0.epoch.elapsed()
    }

    /// Does something to the broker, or reads it.
    pub(crate) fn broker<T>(&self, act: impl FnOnce(&mut Broker, Time) -> T) -> T {
        self.change(|state, now| {
            let result = act(&mut state.broker, now);
            state.collect(now);
            result
        })
    }

    /// The connections of a process that the broker knows, in the order in which they were opened.
    pub(crate) fn connections(&self, process: Process) -> Vec<ConnectionId> {
        self.change(|state, _| state.connections_of(process))
    }

    /// Cuts a connection: both ends notice at once, and what is under way is lost.
    pub(crate) fn cut(&self, connection: ConnectionId) {
        self.change(|state, now| state.cut(connection, now));
    }

    /// A connection falls silent: nothing passes any more. Its client notices after `client`, the
    /// broker after `broker`, as by missing heartbeats.
    pub(crate) fn silence(&self, connection: ConnectionId, client: Duration, broker: Duration) {
        self.change(|state, now| state.silence(connection, now + client, now + broker));
    }

    /// A process is gone: the broker notices the end of its connections at once, and the process
    /// notices nothing any more.
    pub(crate) fn kill(&self, process: Process) {
        self.change(|state, now| state.kill(process, now));
    }

    /// Every delivery so far, in the order of their arrival.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.lock().arrivals.clone()
    }

    /// Publishes a message to a queue, as a process without rehop would.
    pub(crate) fn publish(
        &self,
        process: Process,
        queue: ShortString,
        properties: BasicProperties,
        body: Vec<u8>,
    ) {
        let (exchange, properties) = (ShortString::default(), Box::new(properties));
        let publish =
            Method::Publish { exchange, routing_key: queue, is_mandatory: false, properties, body };
        self.change(|state, now| state.do_plainly(process, publish, now));
    }

    /// Declares a durable queue, as somebody without rehop would.
    pub(crate) fn declare(&self, process: Process, queue: &str, arguments: FieldTable) {
        let queue = ShortString::try_new(queue).unwrap_or_default();
        let declare = Method::DeclareQueue {
            queue,
            is_passive: false,
            is_durable: true,
            is_exclusive: false,
            is_auto_delete: false,
            arguments,
        };
        self.change(|state, now| state.do_plainly(process, declare, now));
    }

    /// When the broker enforced its ack timeout, as far as processes have heard of it.
    pub(crate) fn timeouts(&self) -> Vec<Time> {
        self.lock().timeouts.clone()
    }

    /// The copies that should not have been sent as they were, since the last call.
    pub(crate) fn take_odd_copies(&self) -> Vec<OddCopy> {
        self.change(|state, _| state.take_odd_copies())
    }

    /// Every message that an operator has sent back so far.
    pub(crate) fn replays(&self) -> Vec<Replayed> {
        self.lock().replays().to_vec()
    }

    /// Whether an operator has sent this message back.
    pub(crate) fn was_replayed(&self, message: usize) -> bool {
        self.lock().replays().iter().any(|replayed| replayed.message == message)
    }

    fn change<T>(&self, change: impl FnOnce(&mut NetworkState, Time) -> T) -> T {
        let now = self.now();
        let mut state = self.lock();
        let result = change(&mut state, now);
        let is_sooner = state
            .next_due()
            .is_some_and(|due| state.sleeping_until.is_none_or(|until| due < until));
        drop(state);
        if is_sooner {
            self.0.sooner.notify_one();
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, NetworkState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers what is due, for as long as the runtime lives.
    async fn pump(&self) {
        loop {
            let due = {
                let mut state = self.lock();
                state.advance(self.now());
                state.sleeping_until = state.next_due();
                state.sleeping_until
            };
            tokio::select! {
                biased;
                () = self.0.sooner.notified() => {}
                () = sleep_until(due.map(|due| self.0.epoch + due)) => {}
            }
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
