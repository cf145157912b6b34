//! A world's plan: what is consumed how, what is published when, what each attempt does, and what
//! breaks. Plain data.

use std::fmt;
use std::time::Duration;

use rehop::settings::{Order, WaitQueues, WaitStrategy};
use rehop_simulator::{Time, Version};

use crate::network::Conditions;

/// With this ack timeout, messages whose handlers may run for long are not asked for singly.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Everything that is decided before a world begins. The same scenario and seed give the same run,
/// event for event.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What the network's delays and the service's own randomness follow from.
    pub seed: u64,
    /// The broker's release.
    pub version: Version,
    /// How the network behaves while nothing breaks.
    pub conditions: Conditions,
    /// How many processes run the service.
    pub processes: usize,
    /// After how long the next process starts where one was killed by a message.
    pub restart: Duration,
    /// How long the broker lets a delivery be unsettled, as the service's settings say.
    pub consumer_timeout: Duration,
    /// The broker's own, if that is shorter. 4.3 obeys it only for queues that somebody else has
    /// declared.
    pub enforced_timeout: Duration,
    /// How long a process that stops may take.
    pub grace: Duration,
    /// The queues that each of them consumes.
    pub queues: Vec<QueuePlan>,
    /// What is published, in the order of the times.
    pub messages: Vec<MessagePlan>,
    /// What breaks, in the order of the times.
    pub faults: Vec<Fault>,
    /// What operators send back.
    pub replays: Vec<ReplayPlan>,
}

/// How a queue is consumed.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuePlan {
    /// Its name.
    pub name: String,
    /// Whether somebody else has declared it, without a dead-letter exchange: above its limit the
    /// broker deletes a message.
    pub is_existing: bool,
    /// How its messages wait.
    pub strategy: WaitStrategy,
    /// Whose wait queues they wait in; `None` leaves it to rehop.
    pub wait_queues: Option<WaitQueues>,
    /// Whether its messages are kept in order.
    pub order: Order,
    /// The most handlers of a process at a time.
    pub concurrency: u16,
    /// The most deliveries that a process holds.
    pub prefetch: u16,
    /// How often a message may come again before the broker parks it.
    pub delivery_limit: u32,
    /// Retries at once.
    pub immediate: u32,
    /// Waits after that.
    pub delays: Vec<Duration>,
    /// How long an attempt may take.
    pub handler_timeout: Duration,
}

impl QueuePlan {
    /// Whether its messages wait in wait queues of its own, where they wait in any.
    pub(crate) fn has_own_wait_queues(&self) -> bool {
        self.wait_queues.map_or(self.is_existing, |wait_queues| wait_queues == WaitQueues::Own)
    }
}

/// A message, and what its attempts do.
#[derive(Debug, Clone, PartialEq)]
pub struct MessagePlan {
    /// When it is published.
    pub at: Time,
    /// To which of the queues.
    pub queue: usize,
    /// Its routing key in an ordered queue is this number.
    pub key: u8,
    /// After how long it is worthless.
    pub deadline: Option<Duration>,
    /// The `priority` property.
    pub priority: Option<u8>,
    /// The attempts, one after the other. Every further one does what the last does.
    pub attempts: Vec<AttemptPlan>,
}

/// What one attempt does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptPlan {
    /// How long the handler runs.
    pub runs: Duration,
    /// How it ends.
    pub ends: AttemptEnd,
}

/// How a handler ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptEnd {
    /// It succeeds.
    Succeeds,
    /// It fails, and may work later.
    Fails,
    /// It fails, and asks for the next attempt at once.
    Requeues,
    /// It fails for good.
    FailsForGood,
    /// It asks to wait, which is no failure.
    Defers(Duration),
    /// It gives the message up.
    Discards,
    /// It panics.
    Panics,
    /// It never ends by itself.
    Hangs,
    /// It ends its process, as an abort does.
    Kills,
}

/// An operator sends parked messages back to their queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayPlan {
    /// When.
    pub at: Time,
    /// The queue in which they failed.
    pub queue: usize,
    /// At most so many of them.
    pub most: Option<u64>,
    /// The first batches, as `ReplayRequest` has them; without any, all are sent at once.
    pub batches: Vec<u32>,
    /// How many messages may be in flight.
    pub in_flight: u16,
    /// After how long the replay is disturbed, and how.
    pub disturbed: Option<(Duration, Disturbance)>,
}

/// What happens to an operator's process half-way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    /// It is killed.
    Killed,
    /// One of its connections is cut: the one that consumes, or the one that publishes.
    Cut {
        /// Which, in the order in which they were opened.
        connection: usize,
    },
}

/// Something that breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// When.
    pub at: Time,
    /// What.
    pub kind: FaultKind,
}

/// What breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A connection of a process is cut.
    Cut {
        /// The process.
        process: usize,
        /// Which of its connections, in the order in which they were opened.
        connection: usize,
    },
    /// An operator closes a connection of a process.
    Close {
        /// The process.
        process: usize,
        /// Which of its connections, in the order in which they were opened.
        connection: usize,
    },
    /// Nothing passes on a connection any more, and the ends notice one after the other.
    Silence {
        /// The process.
        process: usize,
        /// Which of its connections, in the order in which they were opened.
        connection: usize,
        /// After how long the process notices.
        client: Duration,
        /// After how long the broker notices.
        broker: Duration,
    },
    /// A process is killed, and another one takes its place.
    Kill {
        /// The process.
        process: usize,
        /// After how long the next one starts.
        restart: Duration,
    },
    /// A process is asked to stop, and another one takes its place once it has.
    Stop {
        /// The process.
        process: usize,
    },
    /// The broker is down for a while.
    Restart {
        /// How long.
        down: Duration,
    },
    /// Connections that publish are blocked.
    Alarm {
        /// How long.
        lasts: Duration,
    },
    /// The leader of a queue answers nothing.
    SilentLeader {
        /// Which queue.
        queues: AffectedQueues,
        /// How long.
        lasts: Duration,
    },
    /// Queues are full, and refuse what is published to them.
    Full {
        /// Which queues.
        queues: AffectedQueues,
        /// How long.
        lasts: Duration,
    },
    /// The broker accepts no message with a body, as after its largest size was set too low.
    NoBodies {
        /// How long.
        lasts: Duration,
    },
    /// An operator deletes the queues that are empty at this moment, work queues apart.
    DeleteEmptyQueues,
    /// The service's user may not publish to the exchange behind which messages wait, nor to the
    /// one for parked messages.
    NoCopies {
        /// How long.
        lasts: Duration,
    },
    /// The broker has a limit.
    Limit {
        /// Which.
        limit: Limit,
        /// How long.
        lasts: Duration,
    },
    /// A process pauses a queue for a while, or drains it.
    Pause {
        /// The process.
        process: usize,
        /// The queue.
        queue: usize,
        /// How long.
        lasts: Duration,
        /// Whether it handles what it has taken.
        drains: bool,
    },
    /// A process changes how many handlers of a queue run at a time.
    Concurrency {
        /// The process.
        process: usize,
        /// The queue.
        queue: usize,
        /// How many.
        handlers: u16,
    },
}

/// A limit of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The service's user may have no more channels than it has at this moment.
    UserChannels,
    /// The service's user may have no more connections than it has at this moment.
    UserConnections,
    /// The virtual host may have no more connections than it has at this moment.
    VhostConnections,
    /// The node may have no more connections than it has at this moment (4.0 and 4.3).
    NodeConnections,
    /// The node may have no more channels than it has at this moment (4.0 and 4.3).
    NodeChannels,
    /// A connection that is opened from now on may have this many channels, as long as it is open.
    ConnectionChannels(u16),
    /// Channels that are opened from now on, and those that exist, may have one consumer (4.0 and
    /// 4.3).
    ChannelConsumers,
    /// The virtual host may have no more queues than it has at this moment.
    VhostQueues,
}

impl FaultKind {
    /// Whether a limit of the broker is reached.
    pub(crate) fn is_limit(self) -> bool {
        matches!(self, Self::Limit { .. })
    }
}

/// Which queues break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AffectedQueues {
    /// The work queue of this number.
    Work(usize),
    /// The parked queue of this work queue.
    Parked(usize),
    /// All wait queues.
    Waits,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            version,
            conditions,
            processes,
            grace,
            queues,
            messages,
            faults,
            replays,
            ..
        } = self;
        let Self { restart, consumer_timeout, enforced_timeout, .. } = self;
        let timeouts = format!(
            "restart {restart:?}, grace {grace:?}, consumer_timeout {consumer_timeout:?}, enforced {enforced_timeout:?}"
        );
        writeln!(
            f,
            "seed {seed}: RabbitMQ {version:?}, {processes} processes, {timeouts}, {conditions:?}"
        )?;
        queues.iter().try_for_each(|queue| writeln!(f, "  {queue:?}"))?;
        for (number, message) in messages.iter().enumerate() {
            let MessagePlan { at, queue, key, deadline, priority, attempts } = message;
            write!(
                f,
                "  {at:>9.3?} message {number} to queue {queue}, key {key}, deadline {deadline:?}, priority {priority:?}:"
            )?;
            attempts
                .iter()
                .try_for_each(|AttemptPlan { runs, ends }| write!(f, " {runs:?} {ends:?},"))?;
            writeln!(f)?;
        }
        faults.iter().try_for_each(|fault| writeln!(f, "  {:>9.3?} {:?}", fault.at, fault.kind))?;
        replays.iter().try_for_each(|replay| writeln!(f, "  {:>9.3?} {replay:?}", replay.at))
    }
}
