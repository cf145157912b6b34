//! Runs a scenario: starts the processes, publishes, breaks what is to break, lets everything come
//! to rest, and stops.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use lapin::types::{AMQPValue, FieldTable};
use rehop::internals::dial::dialing;
use rehop::settings::WaitStrategy;
use rehop::{Error, Publish, PublishError, Publisher, Summary, Topology};
use rehop_simulator::{Alarm, Broker, Limits, Permissions, QueueView, Time};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::network::{Network, OddCopy, Process, Replayed};
use crate::operator::operate;
use crate::process::{KEY, NAMESPACE, Shared, USER, serve, settings};
use crate::record::{Happened, Recorded};
use crate::scenario::{AffectedQueues, Fault, FaultKind, Limit, MessagePlan, QueuePlan, Scenario};

/// What became of a world.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// What happened, in order.
    pub events: Vec<Recorded>,
    /// What is left in each queue.
    pub queues: BTreeMap<String, QueueView>,
    /// Copies that should not have been sent as they were.
    pub odd_copies: Vec<OddCopy>,
    /// When the broker enforced its ack timeout or, on 4.3, cancelled a subscription for any
    /// reason.
    pub timeouts: Vec<Time>,
    /// Messages that operators have sent back, in order.
    pub replayed: Vec<Replayed>,
    /// The most unsettled deliveries that a process of the service had, by process and queue.
    pub held: BTreeMap<(Process, usize), usize>,
}

/// The process that publishes. Those of the service follow.
const PUBLISHER: Process = Process(0);

/// Long enough for everything that has to end by itself: dead-lettering is tried every three
/// minutes, an ack timeout takes half an hour.
const LONGEST_REST: Duration = Duration::from_secs(2 * 60 * 60);

/// How long nothing must move for everything to be at rest: longer than anything is under way.
const STILL: Duration = Duration::from_secs(3);

/// Worlds begin on this date.
pub(crate) const BEGINNING: Duration = Duration::from_secs(1_700_000_000);

/// Runs a scenario in virtual time, on a runtime of its own.
///
/// # Errors
///
/// When no runtime can be made, or the scenario's settings are refused.
pub fn run(scenario: &Scenario) -> Result<RunOutcome, Error> {
    in_virtual_time(scenario.seed, live(scenario))?
}

/// As [`run()`], but the runtime ends at this time, with everything that runs in it.
///
/// # Errors
///
/// As [`run`].
#[doc(hidden)]
pub fn abandon(scenario: &Scenario, at: Time) -> Result<(), Error> {
    let ended =
        in_virtual_time(scenario.seed, async { tokio::time::timeout(at, live(scenario)).await })?;
    // Without an end it was abandoned in time.
    ended.map_or(Ok(()), |outcome| outcome.map(drop))
}

fn in_virtual_time<T>(seed: u64, living: impl Future<Output = T>) -> Result<T, Error> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| Error::Connect {
        broker: "a simulated one".to_owned(),
        problem: format!("no runtime can be made: {error}").into(),
    })?;
    let _seeded = rehop::internals::seed(seed);
    Ok(runtime.block_on(async {
        let _dated = rehop::internals::simulate(UNIX_EPOCH + BEGINNING);
        living.await
    }))
}

async fn live(scenario: &Scenario) -> Result<RunOutcome, Error> {
    let mut broker = Broker::new(scenario.version);
    broker.epoch = BEGINNING;
    broker.set_consumer_timeout(scenario.enforced_timeout);
    let network = Network::new(broker, scenario.conditions, scenario.seed);
    let (kills, killed) = mpsc::unbounded_channel();
    let shared = Shared::new(scenario.clone(), network, kills);
    let settings = settings(scenario);
    for queue in scenario.queues.iter().filter(|queue| queue.is_existing) {
        shared.network.declare(PUBLISHER, &queue.name, existing(queue));
    }
    let declaring = async { Topology::of(&settings)?.declare(&settings).await };
    dialing(shared.dialer(PUBLISHER), declaring).await?;
    let mut run = Run {
        slots: Vec::new(),
        running: JoinSet::new(),
        operators: JoinSet::new(),
        killed,
        next: 1,
        shared,
        silent: Vec::new(),
    };
    for _ in 0..scenario.processes {
        run.slots.push(Slot::default());
    }
    for slot in 0..scenario.processes {
        run.start(slot);
    }
    run.play().await;
    run.rest().await;
    (0..scenario.processes).for_each(|slot| run.stop(slot));
    let stopped_by = run.shared.now() + scenario.grace + Duration::from_secs(60);
    while !run.running.is_empty() && run.shared.now() < stopped_by {
        run.until(run.shared.now() + Duration::from_secs(1)).await;
    }
    Ok(RunOutcome {
        events: run.shared.take_events(),
        queues: run.queues(),
        odd_copies: run.shared.network.take_odd_copies(),
        timeouts: run.shared.network.timeouts(),
        replayed: run.shared.network.replays(),
        held: run.held(),
    })
}

/// A place for one process after the other.
#[derive(Default)]
struct Slot {
    process: Option<Process>,
    task: Option<AbortHandle>,
    stop: Option<oneshot::Sender<()>>,
    /// When the next process starts.
    starts_at: Option<Time>,
    /// How long that takes after a kill.
    restart: Duration,
    is_ending: bool,
}

/// A scenario that is being run.
struct Run {
    shared: Arc<Shared>,
    slots: Vec<Slot>,
    running: JoinSet<(Process, Result<Summary, Error>)>,
    /// Those who send messages back. They end with the run.
    operators: JoinSet<()>,
    killed: mpsc::UnboundedReceiver<Process>,
    next: u32,
    /// Queues whose leaders answer nothing, and until when.
    silent: Vec<(String, Time)>,
}

impl Run {
    /// Publishes, replays and breaks what the scenario says, until nothing more is done or broken.
    async fn play(&mut self) {
        let shared = self.shared.clone();
        let scenario = &shared.scenario;
        let publishing = tokio::spawn(publish_all(shared.clone()));
        for (number, plan) in scenario.replays.iter().enumerate() {
            self.operators.spawn(operate(shared.clone(), Process::operator(number), plan.clone()));
        }
        for fault in &scenario.faults {
            self.until(fault.at).await;
            self.cause(*fault);
        }
        let replayed_by = scenario.replays.iter().map(|replay| replay.at).max().unwrap_or_default()
            + LONGEST_REST;
        loop {
            while self.operators.try_join_next().is_some() {}
            let is_replaying = !self.operators.is_empty() && shared.now() < replayed_by;
            if publishing.is_finished() && self.is_whole() && !is_replaying {
                break;
            }
            self.until(shared.now() + Duration::from_secs(1)).await;
        }
        shared.record(Happened::Quiet);
    }

    /// Waits until every message has been where it ends for a while, but not forever.
    async fn rest(&mut self) {
        let quiet_since = self.shared.now();
        let mut rested_since = self.is_at_rest().then_some(quiet_since);
        // What is under way is nowhere.
        while rested_since.is_none_or(|since| self.shared.now() < since + STILL)
            && self.shared.now() < quiet_since + LONGEST_REST
        {
            let pause =
                if self.shared.now() < quiet_since + Duration::from_secs(60) { 1 } else { 10 };
            self.until(self.shared.now() + Duration::from_secs(pause)).await;
            rested_since = rested_since.or(Some(self.shared.now())).filter(|_| self.is_at_rest());
        }
        if self.is_at_rest() {
            self.shared.record(Happened::AtRest);
        }
    }

    fn start(&mut self, slot: usize) {
        let process = Process(self.next);
        self.next += 1;
        let (stop, stopped) = oneshot::channel();
        let shared = self.shared.clone();
        let task =
            self.running.spawn(async move { (process, serve(shared, process, stopped).await) });
        let restart = self.shared.scenario.restart;
        self.slots[slot] = Slot {
            process: Some(process),
            task: Some(task),
            stop: Some(stop),
            restart,
            ..Slot::default()
        };
    }

    /// Lets time pass until then: processes end, and others take their places.
    async fn until(&mut self, at: Time) {
        loop {
            let now = self.shared.now();
            for slot in 0..self.slots.len() {
                if self.slots[slot].starts_at.is_some_and(|starts| starts <= now) {
                    self.start(slot);
                }
            }
            let next =
                self.slots.iter().filter_map(|slot| slot.starts_at).chain([at]).min().unwrap_or(at);
            tokio::select! {
                biased;
                Some(process) = self.killed.recv() => self.kill(process),
                Some(ended) = self.running.join_next() => {
                    if let Ok((process, result)) = ended {
                        self.ended(process, result);
                    }
                }
                () = sleep(next.saturating_sub(now)) => {
                    if next == at {
                        return;
                    }
                }
            }
        }
    }

    fn ended(&mut self, process: Process, result: Result<Summary, Error>) {
        let result = result.map(|summary| summary.to_string()).map_err(|error| error.to_string());
        self.shared.record(Happened::Stopped(process, result));
        // What is left of its tasks does nothing any more.
        self.shared.network.kill(process);
        let now = self.shared.now();
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.process == Some(process)) {
            let restart = slot.restart;
            let is_ending = slot.is_ending;
            *slot = Slot { is_ending, ..Slot::default() };
            slot.starts_at = (!is_ending).then_some(now + restart);
        }
    }

    fn kill(&mut self, process: Process) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.process == Some(process)) else {
            return;
        };
        self.shared.bury(process);
        self.shared.network.kill(process);
        if let Some(task) = slot.task.take() {
            task.abort();
        }
        let (starts_at, is_ending) = (self.shared.now() + slot.restart, slot.is_ending);
        *slot = Slot { is_ending, starts_at: (!is_ending).then_some(starts_at), ..Slot::default() };
    }

    /// Asks the process to stop, for good.
    fn stop(&mut self, slot: usize) {
        self.slots[slot].is_ending = true;
        self.slots[slot].starts_at = None;
        self.ask_to_stop(slot);
    }

    fn ask_to_stop(&mut self, slot: usize) {
        let slot = &mut self.slots[slot];
        if let (Some(process), Some(stop)) = (slot.process, slot.stop.take()) {
            self.shared.record(Happened::AskedToStop(process));
            let _ = stop.send(());
        }
    }

    fn cause(&mut self, Fault { kind, .. }: Fault) {
        let shared = self.shared.clone();
        let network = &shared.network;
        shared.record(Happened::Fault(format!("{kind:?}")));
        match kind {
            FaultKind::Cut { .. } | FaultKind::Close { .. } | FaultKind::Silence { .. } => {
                self.break_connection(kind);
            }
            FaultKind::Kill { process, restart } => {
                self.slots[process].restart = restart;
                if let Some(process) = self.slots[process].process {
                    self.kill(process);
                }
            }
            FaultKind::Stop { process } => self.ask_to_stop(process),
            FaultKind::Restart { down } => {
                network.broker(|broker, now| broker.stop(now));
                self.later(down, |shared| shared.network.broker(|broker, now| broker.start(now)));
            }
            FaultKind::Alarm { lasts } => {
                network.broker(|broker, now| broker.set_alarm(now, Some(Alarm::Memory)));
                self.later(lasts, |shared| {
                    shared.network.broker(|broker, now| broker.set_alarm(now, None))
                });
            }
            FaultKind::SilentLeader { queues: affected, lasts } => {
                let queues = self.names_of(affected);
                network.broker(|broker, now| {
                    queues.iter().for_each(|name| broker.silence(now, name, now + lasts))
                });
                self.silent.extend(queues.into_iter().map(|queue| (queue, shared.now() + lasts)));
            }
            FaultKind::Full { queues, lasts } => self.fill(queues, lasts),
            FaultKind::NoBodies { lasts } => {
                network.broker(|broker, _| broker.max_message_size = 0);
                self.later(lasts, |shared| {
                    shared.network.broker(|broker, _| broker.max_message_size = usize::MAX)
                });
            }
            FaultKind::DeleteEmptyQueues => self.delete_empty_queues(),
            FaultKind::NoCopies { lasts } => self.forbid_copies(lasts),
            FaultKind::Limit { limit, lasts } => self.limit(limit, lasts),
            FaultKind::Pause { .. } | FaultKind::Concurrency { .. } => self.ask(kind),
        }
    }

    /// Asks a process for something, if it runs.
    fn ask(&self, kind: FaultKind) {
        let (FaultKind::Pause { process, queue, .. }
        | FaultKind::Concurrency { process, queue, .. }) = kind
        else {
            return;
        };
        let Some(process) = self.slots[process].process else { return };
        let Some(handle) = self.shared.handle(process) else { return };
        let name = self.shared.scenario.queues[queue].name.clone();
        match kind {
            FaultKind::Pause { lasts, drains, .. } => {
                let asked = if drains { handle.drain(&name) } else { handle.pause(&name) };
                let paused = Happened::Paused(process, queue);
                let resumed = Happened::Resumed(process, queue);
                // A process that has ended takes no requests.
                let Ok(_) = asked else { return };
                self.shared.record(if drains { resumed.clone() } else { paused });
                self.later(lasts, move |shared| {
                    shared.record(resumed);
                    let _ = handle.resume(&name);
                });
            }
            FaultKind::Concurrency { handlers, .. } => {
                let _ = handle.set_concurrency(&name, handlers);
            }
            _ => {}
        }
    }

    /// Ends or silences a connection, if the process has one.
    fn break_connection(&self, kind: FaultKind) {
        let network = &self.shared.network;
        let connection = |process: usize, number: usize| {
            let process = self.slots[process].process?;
            let connections = network.connections(process);
            connections.get(number.min(connections.len().saturating_sub(1))).copied()
        };
        match kind {
            FaultKind::Cut { process, connection: number } => {
                if let Some(connection) = connection(process, number) {
                    network.cut(connection);
                }
            }
            FaultKind::Close { process, connection: number } => {
                if let Some(connection) = connection(process, number) {
                    let text = "CONNECTION_FORCED - closed by an operator";
                    network.broker(|broker, now| broker.close(now, connection, 320, text));
                }
            }
            FaultKind::Silence { process, connection: number, client, broker } => {
                if let Some(connection) = connection(process, number) {
                    network.silence(connection, client, broker);
                }
            }
            _ => {}
        }
    }

    /// Lets queues refuse what is published to them, for a while.
    fn fill(&self, affected: AffectedQueues, lasts: Duration) {
        let queues = self.names_of(affected);
        let set = |network: &Network, queues: &[String], policy: Option<FieldTable>| {
            network.broker(|broker, now| {
                queues.iter().for_each(|queue| broker.set_policy(now, queue, policy.clone()));
            });
        };
        set(&self.shared.network, &queues, Some(no_more_than(0)));
        let is_ladder = |queue: &QueuePlan| queue.strategy == WaitStrategy::Ladder;
        let gets_dead_letters = match affected {
            AffectedQueues::Parked(_) | AffectedQueues::Work(_) => true,
            AffectedQueues::Waits => self.shared.scenario.queues.iter().any(is_ladder),
        };
        // 3.10 goes on refusing publishers that it has refused if the limit is removed. rehop then
        // opens another channel; the worker that dead-letters cannot, so it gets a limit that is
        // never reached.
        let relief = gets_dead_letters.then(|| no_more_than(1_000_000));
        self.later(lasts, move |shared| set(&shared.network, &queues, relief.clone()));
    }

    fn delete_empty_queues(&self) {
        let shared = &self.shared;
        shared.network.broker(|broker, now| {
            // What is due at this moment moves to its next queue first.
            broker.pass_time(now);
            let is_empty = |(name, view): (&str, QueueView)| {
                let is_of_work = shared.scenario.queues.iter().any(|queue| queue.name == name);
                // Without its leader a queue cannot be deleted, and what it will hold cannot be
                // seen.
                let is_silent =
                    self.silent.iter().any(|(silent, until)| silent == name && now <= *until);
                (!is_of_work && !is_silent && view.messages().next().is_none())
                    .then(|| name.to_owned())
            };
            let empty: Vec<_> = broker.queues().filter_map(is_empty).collect();
            empty.iter().for_each(|name| broker.delete_queue(now, name));
        });
    }

    /// Lets the service publish no copies for a while.
    fn forbid_copies(&self, lasts: Duration) {
        let waits = self.shared.scenario.queues.iter().flat_map(|QueuePlan { name, .. }| {
            ["wait", "ladder"].map(|kind| format!("{NAMESPACE}.{kind}.{name}"))
        });
        let names = ["wait", "ladder", "park"].map(|name| format!("{NAMESPACE}.{name}"));
        let not_write = names.into_iter().chain(waits).collect();
        let permissions = Permissions { not_write, ..Permissions::default() };
        self.shared.network.broker(|broker, _| broker.set_permissions(USER, permissions));
        self.later(lasts, |shared| {
            shared.network.broker(|broker, _| broker.set_permissions(USER, Permissions::default()));
        });
    }

    /// Sets a limit for a while.
    fn limit(&self, limit: Limit, lasts: Duration) {
        self.shared.network.broker(|broker, _| {
            let (connections, channels) = broker.usage_of(USER);
            let (all_connections, all_channels) = broker.usage();
            let queues = broker.queues().count();
            let limits = &mut broker.limits;
            match limit {
                Limit::UserChannels => {
                    limits.user_channels.insert(USER.to_owned(), channels);
                }
                Limit::UserConnections => {
                    limits.user_connections.insert(USER.to_owned(), connections);
                }
                Limit::VhostConnections => limits.vhost_connections = Some(all_connections),
                Limit::NodeConnections => limits.node_connections = Some(all_connections),
                Limit::NodeChannels => limits.node_channels = Some(all_channels),
                Limit::ConnectionChannels(most) => limits.connection_channels = Some(most),
                Limit::ChannelConsumers => limits.channel_consumers = Some(1),
                Limit::VhostQueues => limits.vhost_queues = Some(queues),
            }
        });
        self.later(lasts, move |shared| {
            shared.network.broker(|broker, _| lift(limit, &mut broker.limits));
        });
    }

    fn held(&self) -> BTreeMap<(Process, usize), usize> {
        let mut most = BTreeMap::new();
        for arrival in
            self.shared.network.arrivals().iter().filter(|arrival| arrival.process.is_service())
        {
            let message = arrival
                .message
                .parse()
                .ok()
                .and_then(|number: usize| self.shared.scenario.messages.get(number));
            if let Some(message) = message {
                let most = most.entry((arrival.process, message.queue)).or_default();
                *most = arrival.held.max(*most);
            }
        }
        most
    }

    /// The queues that break.
    fn names_of(&self, affected: AffectedQueues) -> Vec<String> {
        let queues = &self.shared.scenario.queues;
        match affected {
            AffectedQueues::Work(queue) => vec![queues[queue].name.clone()],
            AffectedQueues::Parked(queue) => vec![format!("{}.parked", queues[queue].name)],
            AffectedQueues::Waits => self.shared.network.broker(|broker, _| {
                let waits = broker.queues().map(|(name, _)| name.to_owned());
                waits.filter(|name| is_of_waits(name)).collect()
            }),
        }
    }

    /// Repairs something after a while.
    fn later(&self, after: Duration, repair: impl FnOnce(&Shared) + Send + 'static) {
        let shared = self.shared.clone();
        tokio::spawn(async move {
            sleep(after).await;
            repair(&shared);
            shared.record(Happened::Fault("repaired".to_owned()));
        });
    }

    /// Whether nothing is broken any more, and each process runs.
    fn is_whole(&self) -> bool {
        let ends_at = |fault: &Fault| {
            fault.at
                + match fault.kind {
                    FaultKind::Silence { client, broker, .. } => client.max(broker),
                    FaultKind::Restart { down: lasts }
                    | FaultKind::Alarm { lasts }
                    | FaultKind::SilentLeader { lasts, .. }
                    | FaultKind::Full { lasts, .. }
                    | FaultKind::NoBodies { lasts }
                    | FaultKind::Pause { lasts, .. }
                    | FaultKind::Limit { lasts, .. }
                    | FaultKind::NoCopies { lasts } => lasts,
                    _ => Duration::ZERO,
                }
        };
        let is_over =
            self.shared.scenario.faults.iter().all(|fault| ends_at(fault) < self.shared.now());
        is_over && self.slots.iter().all(|slot| slot.process.is_some() && slot.stop.is_some())
    }

    /// Whether every message has come to an end.
    fn is_at_rest(&self) -> bool {
        self.slots.iter().all(|slot| slot.process.is_some() && slot.stop.is_some())
            && self.shared.network.broker(|broker, _| {
                let mut moving = broker.queues().filter(|(name, _)| !is_final(name));
                moving.all(|(_, view)| view.messages().next().is_none())
            })
    }

    fn queues(&self) -> BTreeMap<String, QueueView> {
        self.shared.network.broker(|broker, _| {
            broker.queues().map(|(name, view)| (name.to_owned(), view)).collect()
        })
    }
}

/// Takes a limit away.
fn lift(limit: Limit, limits: &mut Limits) {
    match limit {
        Limit::UserChannels => limits.user_channels.clear(),
        Limit::UserConnections => limits.user_connections.clear(),
        Limit::VhostConnections => limits.vhost_connections = None,
        Limit::NodeConnections => limits.node_connections = None,
        Limit::NodeChannels => limits.node_channels = None,
        Limit::ConnectionChannels(_) => limits.connection_channels = None,
        Limit::ChannelConsumers => limits.channel_consumers = None,
        Limit::VhostQueues => limits.vhost_queues = None,
    }
}

/// The arguments of a queue that somebody else has declared.
fn existing(QueuePlan { delivery_limit, order, .. }: &QueuePlan) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongUInt(*delivery_limit));
    if order.is_kept() {
        arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
    }
    arguments
}

/// A policy that limits a queue to this many messages, and has it refuse others.
pub(crate) fn no_more_than(messages: u32) -> FieldTable {
    let mut definition = FieldTable::default();
    definition.insert("max-length".into(), AMQPValue::LongUInt(messages));
    definition.insert("overflow".into(), AMQPValue::LongString("reject-publish".into()));
    definition
}

/// Whether messages wait in this queue.
fn is_of_waits(queue: &str) -> bool {
    ["wait", "ladder"].iter().any(|kind| queue.starts_with(&format!("{NAMESPACE}.{kind}.")))
}

/// Whether messages stay in this queue.
pub(crate) fn is_final(queue: &str) -> bool {
    queue.ends_with(".parked") || queue.ends_with(".stray") || queue.ends_with(".discarded")
}

/// Publishes every message at its time, again and again until the broker confirms it.
async fn publish_all(shared: Arc<Shared>) {
    let settings = settings(&shared.scenario);
    let publishing = async {
        let Ok(publisher) = Publisher::connect(&settings).await else { return };
        let mut tasks = JoinSet::new();
        for number in 0..shared.scenario.messages.len() {
            sleep(shared.scenario.messages[number].at.saturating_sub(shared.now())).await;
            tasks.spawn(publish(shared.clone(), publisher.clone(), number));
        }
        while tasks.join_next().await.is_some() {}
    };
    dialing(shared.dialer(PUBLISHER), publishing).await;
}

async fn publish(shared: Arc<Shared>, publisher: Publisher, number: usize) {
    let MessagePlan { at, queue, key, deadline, priority, .. } = shared.scenario.messages[number];
    let worthless_from = deadline.map(|deadline| UNIX_EPOCH + BEGINNING + at + deadline);
    loop {
        let name = &shared.scenario.queues[queue].name;
        let Ok(message) = Publish::to_queue(name).json(&number) else { return };
        let message = message.message_id(number.to_string()).header(KEY, key.to_string().as_str());
        // As of a producer that sends on what it was delivered.
        let message = if number % 8 == 3 { message.header("x-delivery-count", 7) } else { message };
        let message = match priority {
            Some(priority) => message.priority(priority),
            None => message,
        };
        let message = match worthless_from {
            Some(deadline) => message.deadline(deadline),
            None => message,
        };
        match publisher.publish(message).await {
            Err(PublishError::Expired { .. }) => return shared.record(Happened::Expired(number)),
            Ok(()) => return shared.record(Happened::Published(number)),
            Err(error) => shared.record(Happened::NotPublished(number, error.to_string())),
        }
        sleep(Duration::from_millis(500)).await;
    }
}
