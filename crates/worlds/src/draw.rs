//! Draws a scenario from a seed.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rehop::settings::{Order, WaitQueues, WaitStrategy};
use rehop_simulator::{Time, Version};

use crate::network::Conditions;
use crate::scenario::{
    AffectedQueues, AttemptEnd, AttemptPlan, Disturbance, Fault, FaultKind, LONG_TIMEOUT, Limit,
    MessagePlan, QueuePlan, ReplayPlan, Scenario,
};

/// Everything is published, and breaks, within this time. After it comes the quiet.
const CHAOS: Duration = Duration::from_secs(60);

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

impl Scenario {
    /// The scenario of this seed. In one of eight, nothing breaks but processes, which some
    /// messages kill. There are no more of these, because they take several times as long to run.
    /// In one of sixteen, the broker's ack timeout is shorter than the settings say.
    pub fn draw(seed: u64) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed);
        let mut scenario = match seed % 32 {
            3 => Self::of_poison_in_line(seed, random),
            7 => Self::of_many(seed, random),
            // These take long to run.
            19 if seed % 256 == 19 => Self::of_many_queues(seed, random),
            11 | 27 => Self::of_poison(seed, random),
            13 | 29 => Self::of_short_timeout(seed, random),
            5 | 21 => Self::of_refusals(seed, random),
            9 => Self::of_a_full_queue(seed, random),
            15 => Self::of_limits(seed, random),
            _ => Self::of_faults(seed, random),
        };
        for _ in 0..pick(random, &[0, 0, 0, 0, 1, 2]) {
            scenario.replays.push(replay(random, scenario.queues.len()));
        }
        let (own, shared) = (Some(WaitQueues::Own), Some(WaitQueues::Shared));
        for queue in &mut scenario.queues {
            queue.wait_queues = pick(random, &[None, None, None, own, own, shared]);
        }
        if seed % 8 == 4 {
            // Of their own randomness, so that everything else is as it is without them.
            scenario.add_requests(&mut SmallRng::seed_from_u64(!seed));
        }
        if scenario.faults.iter().any(|fault| fault.kind.is_limit()) {
            // An operator's tool is refused then, and says so.
            scenario.replays.clear();
        }
        scenario
    }

    /// Programs pause their queues, drain them, and change their concurrency.
    fn add_requests(&mut self, random: &mut SmallRng) {
        for _ in 0..random.random_range(1..=4) {
            let (process, queue) =
                (random.random_range(0..self.processes), random.random_range(0..self.queues.len()));
            let lasts = pick(random, &[millis(10), secs(1), secs(12), secs(50)]);
            let handlers = random.random_range(1..=self.queues[queue].concurrency);
            let kind = match random.random_range(0..4) {
                0 => FaultKind::Concurrency { process, queue, handlers },
                kind => FaultKind::Pause { process, queue, lasts, drains: kind == 1 },
            };
            self.faults.push(Fault { at: CHAOS.mul_f64(random.random()), kind });
        }
        self.faults.sort_by_key(|fault| fault.at);
    }

    /// The broker's limits are reached for a while, alone or among other faults.
    fn of_limits(seed: u64, random: &mut SmallRng) -> Self {
        let mut scenario = Self::of_faults(seed, random);
        if random.random() {
            scenario.faults.clear();
        }
        for _ in 0..random.random_range(1..=2) {
            let (at, lasts) =
                (CHAOS.mul_f64(random.random()), pick(random, &[secs(1), secs(10), secs(20)]));
            let limit = pick(random, &LIMITS);
            scenario.faults.push(Fault { at, kind: FaultKind::Limit { limit, lasts } });
            scenario.faults.extend(felt(random, limit, at, scenario.processes));
        }
        scenario.faults.sort_by_key(|fault| fault.at);
        scenario
    }

    /// A queue takes nothing for longer than its messages wait, and another one goes on.
    fn of_a_full_queue(seed: u64, random: &mut SmallRng) -> Self {
        let mut scenario = Self::of_faults(seed, random);
        let (version, most) = (scenario.version, random.random_range(40..=80));
        scenario.queues = (0..2).map(|number| queue(random, version, number)).collect();
        for queue in &mut scenario.queues {
            queue.strategy = pick(random, &[WaitStrategy::Tiers, WaitStrategy::Ladder]);
            (queue.order, queue.immediate, queue.delays) = (Order::None, 0, vec![secs(20)]);
            (queue.concurrency, queue.prefetch) = (1, 5);
            queue.is_existing = random.random();
        }
        scenario.consumer_timeout = secs(1_800);
        scenario.enforced_timeout = secs(1_800);
        let attempts = [AttemptEnd::Fails, AttemptEnd::Succeeds]
            .map(|ends| AttemptPlan { runs: millis(10), ends })
            .to_vec();
        let message = |at, queue, attempts| MessagePlan {
            at,
            queue,
            key: 0,
            priority: None,
            deadline: None,
            attempts,
        };
        let slow = AttemptPlan { runs: secs(10), ends: AttemptEnd::Succeeds };
        let due = (0..most).map(|_| message(secs(1), 0, attempts.clone()));
        let backlog = (0..20).map(|_| message(secs(10), 0, vec![slow]));
        let others = (0..20).map(|number| message(secs(22 + 2 * number), 1, attempts.clone()));
        scenario.messages = due.chain(backlog).chain(others).collect();
        let (lasts, queues) =
            (pick(random, &[secs(30), secs(100), secs(400)]), AffectedQueues::Work(0));
        let kinds = [FaultKind::Full { queues, lasts }, FaultKind::SilentLeader { queues, lasts }];
        scenario.faults = vec![Fault { at: secs(15), kind: pick(random, &kinds) }];
        scenario
    }

    /// Within the limits in which a message that kills is parked alone.
    fn of_poison(seed: u64, random: &mut SmallRng) -> Self {
        let mut scenario = Self::of_faults(seed, random);
        scenario.become_poisoned(random);
        for message in &mut scenario.messages {
            let ends = pick(
                random,
                &[
                    AttemptEnd::Succeeds,
                    AttemptEnd::Succeeds,
                    AttemptEnd::Succeeds,
                    AttemptEnd::Kills,
                ],
            );
            let runs = pick(random, &[Duration::ZERO, millis(10), millis(200), secs(1)]);
            (message.attempts, message.deadline) = (vec![AttemptPlan { runs, ends }], None);
        }
        scenario
    }

    /// Nothing breaks but processes, and once at most for another reason than a message.
    fn become_poisoned(&mut self, random: &mut SmallRng) {
        let latency = millis(random.random_range(1..=3));
        let delivery_lag = pick(random, &[Duration::ZERO, millis(1)]);
        self.conditions = Conditions { latency, delivery_lag, ..Conditions::default() };
        self.processes = random.random_range(1..=6);
        self.faults.clear();
        if random.random_ratio(1, 6) {
            let kind = FaultKind::Kill {
                process: random.random_range(0..self.processes),
                restart: pick(random, &RESTARTS),
            };
            self.faults.push(Fault { at: secs(10).mul_f64(random.random()), kind });
        }
        for queue in &mut self.queues {
            if queue.strategy == WaitStrategy::InProcess {
                (queue.strategy, queue.order) = (WaitStrategy::Tiers, Order::None);
            }
            queue.is_existing = queue.strategy != WaitStrategy::Native && random.random_ratio(1, 3);
            queue.delivery_limit = random.random_range(5..=12);
            queue.immediate = queue.immediate.min(affordable(queue.delivery_limit, self.processes));
            queue.prefetch = pick(random, &[queue.concurrency, 10, 50, 200]).max(queue.concurrency);
        }
    }

    /// The same with many messages, in up to three queues: all at once, at a steady rate, or after
    /// a pause that leaves every process idle.
    fn of_many(seed: u64, random: &mut SmallRng) -> Self {
        let mut scenario = Self::of_faults(seed, random);
        let (most, version) = (pick(random, &[1, 2, 3]), scenario.version);
        scenario.queues = (0..most).map(|number| queue(random, version, number)).collect();
        scenario.become_poisoned(random);
        for queue in &mut scenario.queues {
            queue.prefetch = pick(random, &[1, 3, 10, 40, 100, 200]);
            queue.concurrency = random.random_range(1..=queue.prefetch.min(20));
            queue.immediate =
                random.random_range(0..=affordable(queue.delivery_limit, scenario.processes));
        }
        let typical: Vec<_> =
            scenario.queues.iter().map(|_| millis(pick(random, &[1, 5, 20, 100, 1_000]))).collect();
        let number = pick(random, &[40, 40, 40, 100, 100, 300]);
        let (arrival, pause) = (random.random_range(0..3), secs(20).mul_f64(random.random()));
        let (one_slow_in, one_failing_in) =
            (pick(random, &[0, 0, 10, 50]), pick(random, &[0, 0, 2, 5]));
        let before = random.random_range(0..number);
        let queues = &scenario.queues;
        let mut many = |number: u32| {
            let queue = random.random_range(0..queues.len());
            let at = match arrival {
                0 => Duration::ZERO,
                1 => millis(3) * number,
                _ if number < before => Duration::ZERO,
                _ => pause,
            };
            let is_slow = one_slow_in > 0 && random.random_ratio(1, one_slow_in);
            let runs = typical[queue].mul_f64(random.random_range(0.5..2.0))
                * if is_slow { 30 } else { 1 };
            let runs = runs.min(secs(15));
            let fails = if one_failing_in > 0 && random.random_ratio(1, one_failing_in) {
                random.random_range(0..=queues[queue].immediate as usize)
            } else {
                0
            };
            let mut attempts = vec![AttemptPlan { runs, ends: AttemptEnd::Requeues }; fails];
            attempts.push(AttemptPlan { runs, ends: AttemptEnd::Succeeds });
            MessagePlan {
                at: secs(1) + at,
                queue,
                key: 0,
                deadline: None,
                priority: None,
                attempts,
            }
        };
        scenario.messages = (0..number).map(&mut many).collect();
        if random.random_ratio(1, 4) {
            // Nothing kills, so whatever is counted beside the attempts shows.
            scenario.faults.clear();
            return scenario;
        }
        scenario.kill_some(random);
        scenario
    }

    /// Lets some of the messages kill: any, or some that come one soon after the other.
    fn kill_some(&mut self, random: &mut SmallRng) {
        let number = self.messages.len() as u32;
        let (anywhere, near) = (random.random_ratio(1, 3), random.random_range(0..number));
        for _ in 0..random.random_range(1..=10) {
            let at = if anywhere {
                random.random_range(0..number)
            } else {
                near + random.random_range(0..20)
            };
            let message = &mut self.messages[at.min(number - 1) as usize];
            let runs = pick(
                random,
                &[Duration::ZERO, millis(1), millis(10), millis(500), secs(2).mul_f64(0.9)],
            );
            message.attempts = vec![AttemptPlan { runs, ends: AttemptEnd::Kills }];
        }
    }

    /// Processes that consume many queues. Most are idle, and messages in several of the others
    /// kill.
    fn of_many_queues(seed: u64, random: &mut SmallRng) -> Self {
        let mut scenario = Self::of_faults(seed, random);
        let (number, version) = (pick(random, &[20, 20, 20, 100]), scenario.version);
        scenario.queues = (0..number).map(|number| queue(random, version, number)).collect();
        scenario.become_poisoned(random);
        scenario.processes = random.random_range(1..=3);
        scenario.faults.clear();
        let busy: Vec<usize> = (0..pick(random, &[1, 2, 5, 20]))
            .map(|_| random.random_range(0..scenario.queues.len()))
            .collect();
        let (messages, every) = (pick(random, &[20, 50, 100]), pick(random, &[0, 3, 300]));
        let runs = millis(pick(random, &[1, 5, 100, 1_000]));
        let is_killing = |number| number % pick(random, &[10, 30]) == 7;
        let killing: Vec<bool> = (0..messages).map(is_killing).collect();
        let message = |number: u32| {
            let is_killing = killing[number as usize];
            let ends = if is_killing { AttemptEnd::Kills } else { AttemptEnd::Succeeds };
            let attempts = vec![AttemptPlan { runs, ends }];
            let (at, queue) =
                (secs(1) + millis(every) * number, busy[random.random_range(0..busy.len())]);
            MessagePlan { at, queue, key: 0, priority: None, deadline: None, attempts }
        };
        scenario.messages = (0..messages).map(message).collect();
        scenario
    }

    /// One message of an ordered queue kills.
    fn of_poison_in_line(seed: u64, random: &mut SmallRng) -> Self {
        let mut scenario = Self::of_faults(seed, random);
        scenario.queues.truncate(1);
        scenario.become_poisoned(random);
        (scenario.consumer_timeout, scenario.enforced_timeout) = (secs(1_800), secs(1_800));
        let queue = &mut scenario.queues[0];
        (queue.strategy, queue.order) =
            (WaitStrategy::InProcess, pick(random, &[Order::RoutingKey, Order::Queue]));
        queue.delivery_limit = random.random_range(6..=12);
        queue.immediate = queue.immediate.min(1);
        let number = random.random_range(5..40);
        let (keys, every) =
            (random.random_range(1..=6), pick(random, &[Duration::ZERO, millis(3), millis(300)]));
        let poison = random.random_range(0..number);
        let message = |number: u32| {
            let ends = if number == poison { AttemptEnd::Kills } else { AttemptEnd::Succeeds };
            let attempts = vec![AttemptPlan { runs: millis(5), ends }];
            MessagePlan {
                at: secs(1) + every * number,
                queue: 0,
                key: (number % keys) as u8,
                deadline: None,
                priority: None,
                attempts,
            }
        };
        scenario.messages = (0..number).map(message).collect();
        scenario
    }

    /// The broker would take messages back sooner than the settings say. 4.3 gives each consumer
    /// the time that it asks for.
    fn of_short_timeout(seed: u64, random: &mut SmallRng) -> Self {
        let mut scenario = Self::of_faults(seed, random);
        scenario.faults.clear();
        scenario.consumer_timeout = secs(1_800);
        scenario.enforced_timeout = pick(random, &[secs(15), secs(40)]);
        let is_held = scenario.queues.iter().any(|queue| queue.strategy == WaitStrategy::InProcess);
        let handler_timeout = if is_held { secs(60) } else { pick(random, &[secs(60), secs(400)]) };
        if handler_timeout > secs(60) {
            scenario.consumer_timeout = LONG_TIMEOUT;
        }
        for queue in &mut scenario.queues {
            queue.is_existing = scenario.version == Version::V4_3
                && queue.strategy != WaitStrategy::Native
                && random.random();
            // Some handlers outlive the broker's timeout.
            queue.handler_timeout = handler_timeout;
        }
        for message in &mut scenario.messages {
            message.attempts.retain(|attempt| attempt.ends != AttemptEnd::Kills);
            if message.attempts.is_empty() {
                message.attempts.push(AttemptPlan { runs: secs(1), ends: AttemptEnd::Succeeds });
            }
            if random.random_ratio(1, 6) {
                // It ends after the message was taken back.
                let late = AttemptPlan {
                    runs: scenario.enforced_timeout + secs(2),
                    ends: AttemptEnd::Succeeds,
                };
                message.attempts.insert(0, late);
            }
        }
        scenario
    }

    /// On 4.3, existing queues, of which the broker refuses copies for longer than its ack timeout.
    /// Nothing that comes again may be lost.
    fn of_refusals(seed: u64, random: &mut SmallRng) -> Self {
        let mut scenario = Self::of_faults(seed, random);
        scenario.version = Version::V4_3;
        scenario.faults.clear();
        for queue in &mut scenario.queues {
            queue.is_existing = queue.strategy != WaitStrategy::Native && !queue.order.is_kept();
        }
        if scenario.queues.iter().all(|queue| queue.strategy != WaitStrategy::InProcess) {
            // What is settled shortly before the timeout has to reach the broker in time, however
            // slow the network is.
            (scenario.consumer_timeout, scenario.enforced_timeout) = (secs(100), secs(100));
        }
        for message in &mut scenario.messages {
            message.attempts.retain(|attempt| attempt.ends != AttemptEnd::Kills);
            if message.attempts.is_empty() {
                message.attempts.push(AttemptPlan { runs: secs(1), ends: AttemptEnd::Succeeds });
            }
        }
        for _ in 0..random.random_range(1..=2) {
            let (at, lasts) =
                (CHAOS.mul_f64(random.random()), pick(random, &[secs(20), secs(100), secs(400)]));
            let queue = random.random_range(0..scenario.queues.len());
            let full = |queues| FaultKind::Full { queues, lasts };
            let kinds = [
                FaultKind::NoCopies { lasts },
                full(AffectedQueues::Waits),
                full(AffectedQueues::Parked(queue)),
            ];
            scenario.faults.push(Fault { at, kind: pick(random, &kinds) });
        }
        scenario.faults.sort_by_key(|fault| fault.at);
        scenario
    }

    fn of_faults(seed: u64, random: &mut SmallRng) -> Self {
        let version = pick(random, &[Version::V3_10, Version::V4_0, Version::V4_3]);
        let processes = pick(random, &[1, 1, 2, 2, 3]);
        let conditions = conditions(random);
        let count = pick(random, &[1, 1, 2]);
        let queues: Vec<_> = (0..count).map(|number| queue(random, version, number)).collect();
        let mut messages: Vec<_> =
            (0..random.random_range(3..25)).map(|_| message(random, &queues)).collect();
        if random.random_ratio(1, 3) {
            // All at once, so that many of them wait in their processes.
            let began = CHAOS.mul_f64(random.random::<f64>() * 0.7);
            messages
                .iter_mut()
                .for_each(|message| message.at = began + secs(1).mul_f64(random.random()));
        }
        messages.sort_by_key(|message| message.at);
        let mut faults = Vec::new();
        for _ in 0..pick(random, &[0, 1, 1, 2, 2, 3]) {
            burst(random, processes, queues.len(), &mut faults);
        }
        faults.sort_by_key(|fault| fault.at);
        let grace = pick(random, &[secs(5), secs(30)]);
        let is_held = queues.iter().any(|queue| queue.strategy == WaitStrategy::InProcess);
        // What waits in its process needs the time.
        let shortest = if is_held { secs(600) } else { secs(40) };
        let consumer_timeout = pick(random, &[secs(1_800), secs(1_800), secs(600), shortest]);
        if consumer_timeout < secs(1_800) {
            faults.iter_mut().for_each(|fault| prolong(random, fault));
        }
        Self {
            seed,
            version,
            conditions,
            processes,
            restart: pick(random, &RESTARTS),
            consumer_timeout,
            enforced_timeout: consumer_timeout,
            grace,
            queues,
            messages,
            faults,
            replays: Vec::new(),
        }
    }
}

/// The most retries at once that a message can afford beside the deaths of so many processes.
fn affordable(delivery_limit: u32, processes: usize) -> u32 {
    (delivery_limit - 3)
        .min(delivery_limit.saturating_sub(u32::try_from(processes).unwrap_or(u32::MAX)))
}

/// The limits of a broker that may be reached. A connection may have fewer channels than a service
/// needs.
const LIMITS: [Limit; 10] = [
    Limit::UserChannels,
    Limit::UserConnections,
    Limit::VhostConnections,
    Limit::NodeConnections,
    Limit::NodeChannels,
    Limit::ConnectionChannels(2),
    Limit::ConnectionChannels(5),
    Limit::ChannelConsumers,
    Limit::VhostQueues,
    Limit::VhostQueues,
];

/// After how long a process takes the place of one that was killed.
const RESTARTS: [Duration; 5] = [millis(1), millis(100), secs(1), secs(3), secs(20)];

fn pick<T: Clone>(random: &mut SmallRng, from: &[T]) -> T {
    from.choose(random).unwrap_or(&from[0]).clone()
}

fn conditions(random: &mut SmallRng) -> Conditions {
    let latency = pick(random, &[millis(1), millis(1), millis(20)]);
    let slow_per_mille = pick(random, &[0, 0, 5, 50]);
    let slow = pick(random, &[millis(100), secs(2)]);
    let applied_within = pick(random, &[Duration::ZERO, Duration::ZERO, millis(50)]);
    let delivery_lag = pick(random, &[Duration::ZERO, millis(1), millis(3)]);
    Conditions { latency, slow_per_mille, slow, applied_within, delivery_lag }
}

fn queue(random: &mut SmallRng, version: Version, number: usize) -> QueuePlan {
    let order =
        pick(random, &[Order::None, Order::None, Order::None, Order::Queue, Order::RoutingKey]);
    let mut strategies = vec![WaitStrategy::Tiers, WaitStrategy::Ladder, WaitStrategy::InProcess];
    if version == Version::V4_3 {
        strategies.push(WaitStrategy::Native);
    }
    let strategy =
        if order.is_kept() { WaitStrategy::InProcess } else { pick(random, &strategies) };
    let concurrency = random.random_range(1..=4);
    let waits = random.random_range(1..=3);
    let delay = pick(random, &[secs(1), secs(2), secs(5)]);
    // With native delays every wait of a queue is the same.
    let delays = (0..waits)
        .map(|wait| if strategy == WaitStrategy::Native { delay } else { delay * (1 << wait) });
    QueuePlan {
        name: format!("q{number}"),
        is_existing: false,
        order,
        strategy,
        wait_queues: None,
        concurrency,
        prefetch: concurrency + random.random_range(0..=12),
        delivery_limit: random.random_range(6..=12),
        immediate: random.random_range(0..=2),
        delays: delays.collect(),
        handler_timeout: secs(20),
    }
}

fn message(random: &mut SmallRng, queues: &[QueuePlan]) -> MessagePlan {
    let at = CHAOS.mul_f64(random.random::<f64>() * 0.7);
    let failing = pick(
        random,
        &[
            AttemptEnd::Fails,
            AttemptEnd::Fails,
            AttemptEnd::Fails,
            AttemptEnd::Requeues,
            AttemptEnd::Panics,
            AttemptEnd::Defers(secs(2)),
        ],
    );
    let attempt = |random: &mut SmallRng, ends| AttemptPlan {
        runs: pick(random, &[Duration::ZERO, millis(10), millis(200), secs(1), secs(8)]),
        ends,
    };
    let ends = match random.random_range(0..100) {
        0..55 => vec![AttemptEnd::Succeeds],
        55..65 => vec![failing, AttemptEnd::Succeeds],
        65..75 => vec![failing, failing, failing, AttemptEnd::Succeeds],
        75..83 => vec![AttemptEnd::Fails],
        83..86 => vec![AttemptEnd::FailsForGood],
        86..88 => vec![AttemptEnd::Discards],
        88..91 => vec![AttemptEnd::Hangs, AttemptEnd::Succeeds],
        91..94 => vec![AttemptEnd::Kills, AttemptEnd::Succeeds],
        94..96 => vec![AttemptEnd::Kills],
        _ => vec![AttemptEnd::Panics, AttemptEnd::Succeeds],
    };
    let attempts = ends.into_iter().map(|ends| attempt(random, ends)).collect();
    let deadline = pick(random, &[None, None, None, None, Some(secs(4)), Some(secs(20))]);
    MessagePlan {
        at,
        queue: random.random_range(0..queues.len()),
        key: random.random_range(0..3),
        deadline,
        priority: None,
        attempts,
    }
}

/// Some messages are parked at once, others only after all their waits.
fn replay(random: &mut SmallRng, queues: usize) -> ReplayPlan {
    let at = secs(10) + secs(110).mul_f64(random.random());
    let (killed, cut) =
        (Disturbance::Killed, Disturbance::Cut { connection: random.random_range(0..2) });
    let disturbed = pick(random, &[None, None, Some(killed), Some(cut)]);
    let after = secs(2).mul_f64(random.random::<f64>().powi(3));
    ReplayPlan {
        at,
        queue: random.random_range(0..queues),
        most: pick(random, &[None, None, Some(1), Some(3)]),
        batches: pick(random, &[vec![5, 10, 100], vec![1, 2], Vec::new()]),
        in_flight: pick(random, &[100, 1, 3]),
        disturbed: disturbed.map(|disturbance| (after, disturbance)),
    }
}

/// What makes a limit felt: most matter to what is opened or declared again while they last.
fn felt(random: &mut SmallRng, limit: Limit, at: Time, processes: usize) -> Option<Fault> {
    match limit {
        Limit::VhostQueues => {
            let before = secs(3).mul_f64(random.random());
            Some(Fault { at: at.saturating_sub(before), kind: FaultKind::DeleteEmptyQueues })
        }
        Limit::ConnectionChannels(_)
        | Limit::VhostConnections
        | Limit::NodeConnections
        | Limit::NodeChannels => {
            let after = secs(1).mul_f64(random.random());
            let process = random.random_range(0..processes);
            let kind = FaultKind::Cut { process, connection: random.random_range(0..3) };
            Some(Fault { at: at + after, kind }).filter(|_| random.random())
        }
        Limit::UserChannels | Limit::UserConnections | Limit::ChannelConsumers => None,
    }
}

/// Some of what keeps copies from being published lasts for longer than the broker waits for an
/// ack.
fn prolong(random: &mut SmallRng, fault: &mut Fault) {
    if let FaultKind::Alarm { lasts }
    | FaultKind::NoCopies { lasts }
    | FaultKind::Full { lasts, .. }
    | FaultKind::SilentLeader {
        lasts,
        queues: AffectedQueues::Parked(_) | AffectedQueues::Waits,
    } = &mut fault.kind
    {
        *lasts = pick(random, &[*lasts, secs(200), secs(700)]);
    }
}

/// The worst comes of two faults at once, so they come in bursts.
fn burst(random: &mut SmallRng, processes: usize, queues: usize, faults: &mut Vec<Fault>) {
    let (began, process) = (CHAOS.mul_f64(random.random()), random.random_range(0..processes));
    for _ in 0..pick(random, &[1, 1, 2, 2, 3]) {
        let at = began + secs(10).mul_f64(random.random::<f64>().powi(2));
        faults.push(Fault { at, kind: kind(random, process, queues) });
    }
}

fn kind(random: &mut SmallRng, process: usize, queues: usize) -> FaultKind {
    let connection = random.random_range(0..3);
    let short = pick(random, &[millis(100), secs(1), secs(4), secs(15)]);
    let long = pick(random, &[millis(500), secs(3), secs(20), secs(40)]);
    let queue = random.random_range(0..queues);
    match random.random_range(0..16) {
        10 | 14 => FaultKind::DeleteEmptyQueues,
        11 => FaultKind::Full {
            queues: pick(random, &[AffectedQueues::Parked(queue), AffectedQueues::Waits]),
            lasts: long,
        },
        12 => FaultKind::NoBodies { lasts: long },
        13 => FaultKind::SilentLeader {
            queues: pick(random, &[AffectedQueues::Parked(queue), AffectedQueues::Waits]),
            lasts: long,
        },
        0..2 => FaultKind::Cut { process, connection },
        2 => FaultKind::Close { process, connection },
        3 => FaultKind::Silence { process, connection, client: short, broker: long },
        4 => FaultKind::Kill { process, restart: short },
        5 | 15 => FaultKind::Stop { process },
        6 => FaultKind::Restart { down: short },
        7 => FaultKind::Alarm { lasts: long },
        8 => FaultKind::SilentLeader { queues: AffectedQueues::Work(queue), lasts: long },
        _ => FaultKind::NoCopies { lasts: long },
    }
}
