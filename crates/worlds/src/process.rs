//! A process of a world: the service that ships, with handlers that do what the scenario says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rehop::internals::dial::dialing;
use rehop::settings::{Declare, Order, QueueType, Settings};
use rehop::{Backoff, Consumer, Error, Failure, Message, ServiceHandle, Summary};
use rehop_simulator::Time;
use tokio::sync::{mpsc, oneshot};

use crate::network::{Dialer, Network, Process};
use crate::record::{AttemptId, Happened, Recorded};
use crate::scenario::{AttemptEnd, AttemptPlan, QueuePlan, Scenario};

/// The header that says which messages are kept in order.
pub(crate) const KEY: &str = "key";

/// The namespace of every world.
pub(crate) const NAMESPACE: &str = "w";

/// The user of every service.
pub(crate) const USER: &str = "service";

/// What all processes of a world share.
pub(crate) struct Shared {
    pub(crate) scenario: Scenario,
    pub(crate) network: Network,
    /// Processes whose handlers want them killed.
    pub(crate) kills: mpsc::UnboundedSender<Process>,
    log: Mutex<Log>,
    handles: Mutex<BTreeMap<Process, ServiceHandle>>,
}

#[derive(Default)]
struct Log {
    events: Vec<Recorded>,
    /// How many attempts of each message have begun.
    begun: Vec<usize>,
    attempts: usize,
    dead: Vec<Process>,
}

impl Shared {
    pub(crate) fn new(
        scenario: Scenario,
        network: Network,
        kills: mpsc::UnboundedSender<Process>,
    ) -> Arc<Self> {
        let log = Log { begun: vec![0; scenario.messages.len()], ..Log::default() };
        let handles = Mutex::default();
        Arc::new(Self { scenario, network, kills, log: Mutex::new(log), handles })
    }

    pub(crate) fn now(&self) -> Time {
        self.network.now()
    }

    pub(crate) fn record(&self, event: Happened) {
        let at = self.now();
        self.log().events.push(Recorded { at, event });
    }

    pub(crate) fn take_events(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.log().events)
    }

    /// Handlers of this process do nothing any more.
    pub(crate) fn bury(&self, process: Process) {
        self.log().dead.push(process);
        self.record(Happened::Killed(process));
    }

    fn is_dead(&self, process: Process) -> bool {
        self.log().dead.contains(&process)
    }

    fn begin(&self, process: Process, message: &Message<usize>) -> (AttemptId, AttemptPlan) {
        let (at, number, waits, message) =
            (self.now(), message.attempt(), message.hop(), message.body);
        let queued = self.queued_with(message);
        let mut log = self.log();
        let attempt = AttemptId(log.attempts);
        log.attempts += 1;
        let begun = log.begun[message];
        log.begun[message] += 1;
        log.events.push(Recorded {
            at,
            event: Happened::Began { attempt, process, message, number, waits, queued },
        });
        let attempts = &self.scenario.messages[message].attempts;
        (attempt, attempts[begun.min(attempts.len() - 1)])
    }

    /// What stands in the message's queue, if that is ordered: not what is parked or stray, nor
    /// what an operator has sent back, which is behind later ones.
    fn queued_with(&self, message: usize) -> Vec<usize> {
        let QueuePlan { name, order, .. } =
            &self.scenario.queues[self.scenario.messages[message].queue];
        if !order.is_kept() {
            return Vec::new();
        }
        let queued = self.network.broker(|broker, _| {
            let numbers = |queue: &str| {
                let view = broker.queue(queue).unwrap_or_default();
                // What is dead-lettered has left the queue, although its target may not have it
                // yet.
                view.ready
                    .iter()
                    .chain(&view.unacked)
                    .filter_map(|message| message.parse().ok())
                    .collect::<Vec<usize>>()
            };
            // A parked message is stray if the parked queue was deleted.
            let ended =
                [numbers(&format!("{name}.parked")), numbers(&format!("{NAMESPACE}.stray"))]
                    .concat();
            numbers(name).into_iter().filter(|message| !ended.contains(message)).collect::<Vec<_>>()
        });
        queued.into_iter().filter(|message| !self.network.was_replayed(*message)).collect()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, BTreeMap<Process, ServiceHandle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What controls the service of this process, while it runs.
    pub(crate) fn handle(&self, process: Process) -> Option<ServiceHandle> {
        self.handles().get(&process).cloned()
    }

    pub(crate) fn dialer(&self, process: Process) -> Arc<Dialer> {
        Arc::new(Dialer { network: self.network.clone(), process, user: USER.to_owned() })
    }
}

/// Records that a handler was dropped, unless it came to its end.
struct Running {
    shared: Arc<Shared>,
    process: Process,
    attempt: AttemptId,
    has_ended: bool,
}

impl Running {
    fn ends(mut self, ending: AttemptEnd) {
        self.has_ended = true;
        self.shared.record(Happened::Ended(self.attempt, ending));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended && !self.shared.is_dead(self.process) {
            self.shared.record(Happened::Dropped(self.attempt));
        }
    }
}

/// The settings of the service of a scenario.
pub(crate) fn settings(scenario: &Scenario) -> Settings {
    let mut settings = Settings::default();
    settings.namespace = NAMESPACE.to_owned();
    settings.broker.timeout = Duration::from_secs(10);
    settings.broker.startup_timeout = Duration::from_secs(600);
    settings.shutdown.grace = scenario.grace;
    settings.broker.consumer_timeout = scenario.consumer_timeout;
    // Fewer queues to declare.
    settings.ladder.max = Duration::from_secs(60);
    for plan in &scenario.queues {
        let queue = settings.queue_mut(&plan.name);
        if plan.is_existing {
            (queue.declare, queue.queue_type) = (Declare::Existing, Some(QueueType::Quorum));
        }
        let retry = &mut queue.retry;
        retry.on_expired = Some(rehop::settings::Ending::Park);
        (retry.delivery_limit, retry.immediate) = (Some(plan.delivery_limit), Some(plan.immediate));
        (retry.delays, retry.strategy) =
            (Some(Backoff::List(plan.delays.clone())), Some(plan.strategy));
        retry.wait_queues = plan.wait_queues;
        queue.consume.concurrency = Some(plan.concurrency);
        queue.consume.prefetch = Some(plan.prefetch);
        queue.consume.handler_timeout = Some(plan.handler_timeout);
        queue.consume.order = Some(match plan.order {
            Order::RoutingKey => Order::Header(KEY.to_owned()),
            ref order => order.clone(),
        });
    }
    settings
}

/// Runs the service until it is asked to stop.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    process: Process,
    stop: oneshot::Receiver<()>,
) -> Result<Summary, Error> {
    let settings = settings(&shared.scenario);
    shared.record(Happened::Started(process));
    let serving = async {
        let stopped = async {
            // A process that is killed does not come to this.
            let _ = stop.await;
        };
        let mut service = rehop::Service::new(&settings).with_graceful_shutdown(stopped);
        for QueuePlan { name, .. } in &shared.scenario.queues {
            let shared = shared.clone();
            let handler = move |message: Message<usize>| attempt(shared.clone(), process, message);
            service = service.with_consumer(Consumer::new(name, handler));
        }
        shared.handles().insert(process, service.handle());
        service.await
    };
    dialing(shared.dialer(process), serving).await
}

async fn attempt(
    shared: Arc<Shared>,
    process: Process,
    message: Message<usize>,
) -> Result<(), Failure> {
    if shared.is_dead(process) {
        return std::future::pending().await;
    }
    let (attempt, plan) = shared.begin(process, &message);
    let running = Running { shared: shared.clone(), process, attempt, has_ended: false };
    if !plan.runs.is_zero() {
        tokio::time::sleep(plan.runs).await;
    }
    match plan.ends {
        AttemptEnd::Hangs => return std::future::pending().await,
        AttemptEnd::Kills => {
            let _ = shared.kills.send(process);
            return std::future::pending().await;
        }
        ending => running.ends(ending),
    }
    match plan.ends {
        AttemptEnd::Fails => Err(Failure::transient("as planned")),
        AttemptEnd::Requeues => Err(Failure::requeue("as planned")),
        AttemptEnd::FailsForGood => Err(Failure::permanent("as planned")),
        AttemptEnd::Defers(delay) => Err(Failure::defer(delay)),
        AttemptEnd::Discards => Err(Failure::discard("as planned")),
        AttemptEnd::Panics => panic!("as planned"),
        AttemptEnd::Succeeds | AttemptEnd::Hangs | AttemptEnd::Kills => Ok(()),
    }
}
