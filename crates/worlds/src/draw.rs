//! Draws a scenario from a seed.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rehop::settings::{Order, WaitStrategy};
use rehop_simulator::Version;

use crate::network::Weather;
use crate::scenario::{AttemptPlan, Ending, Fault, FaultKind, MessagePlan, QueuePlan, Scenario};

/// Everything is published, and breaks, within this time. After it comes the quiet.
const CHAOS: Duration = Duration::from_secs(60);

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

impl Scenario {
    /// The scenario of this seed: in every fourth, nothing breaks but processes, which some messages kill.
    pub fn draw(seed: u64) -> Self {
        let random = &mut SmallRng::seed_from_u64(seed);
        if seed % 4 == 3 { Self::of_poison(seed, random) } else { Self::of_faults(seed, random) }
    }

    /// Within the limits in which a message that kills is parked alone.
    fn of_poison(seed: u64, random: &mut SmallRng) -> Self {
        let mut scenario = Self::of_faults(seed, random);
        scenario.faults.clear();
        scenario.weather = Weather { latency: millis(random.random_range(1..=3)), ..Weather::default() };
        scenario.processes = random.random_range(1..=6);
        for queue in &mut scenario.queues {
            if queue.strategy == WaitStrategy::InProcess {
                (queue.strategy, queue.order) = (WaitStrategy::Tiers, Order::None);
            }
            queue.delivery_limit = random.random_range(5..=12);
            queue.immediate = queue.immediate.min(queue.delivery_limit - 3);
            queue.prefetch = pick(random, &[queue.concurrency, 10, 50, 200]).max(queue.concurrency);
        }
        for message in &mut scenario.messages {
            let ends = pick(random, &[Ending::Succeeds, Ending::Succeeds, Ending::Succeeds, Ending::Kills]);
            let runs = pick(random, &[Duration::ZERO, millis(10), millis(200), secs(1)]);
            (message.attempts, message.deadline) = (vec![AttemptPlan { runs, ends }], None);
        }
        scenario
    }

    fn of_faults(seed: u64, random: &mut SmallRng) -> Self {
        let version = pick(random, &[Version::V3_10, Version::V4_0, Version::V4_3]);
        let processes = pick(random, &[1, 1, 2, 2, 3]);
        let weather = weather(random);
        let count = pick(random, &[1, 1, 2]);
        let queues: Vec<_> = (0..count).map(|number| queue(random, version, number)).collect();
        let mut messages: Vec<_> = (0..random.random_range(3..25)).map(|_| message(random, &queues)).collect();
        messages.sort_by_key(|message| message.at);
        let mut faults = Vec::new();
        for _ in 0..pick(random, &[0, 1, 1, 2, 2, 3]) {
            burst(random, processes, queues.len(), &mut faults);
        }
        faults.sort_by_key(|fault| fault.at);
        let grace = pick(random, &[secs(5), secs(30)]);
        let consumer_timeout = pick(random, &[secs(1_800), secs(1_800), secs(600)]);
        if consumer_timeout < secs(1_800) {
            faults.iter_mut().for_each(|fault| prolong(random, fault));
        }
        Self { seed, version, weather, processes, consumer_timeout, grace, queues, messages, faults }
    }
}

fn pick<T: Clone>(random: &mut SmallRng, from: &[T]) -> T {
    from.choose(random).unwrap_or(&from[0]).clone()
}

fn weather(random: &mut SmallRng) -> Weather {
    let latency = pick(random, &[millis(1), millis(1), millis(20)]);
    let slow_per_mille = pick(random, &[0, 0, 5, 50]);
    let slow = pick(random, &[millis(100), secs(2)]);
    let applied_within = pick(random, &[Duration::ZERO, Duration::ZERO, millis(50)]);
    Weather { latency, slow_per_mille, slow, applied_within }
}

fn queue(random: &mut SmallRng, version: Version, number: usize) -> QueuePlan {
    let order = pick(random, &[Order::None, Order::None, Order::None, Order::Queue, Order::RoutingKey]);
    let mut strategies = vec![WaitStrategy::Tiers, WaitStrategy::Ladder, WaitStrategy::InProcess];
    if version == Version::V4_3 {
        strategies.push(WaitStrategy::Native);
    }
    let strategy = if order.is_kept() { WaitStrategy::InProcess } else { pick(random, &strategies) };
    let concurrency = random.random_range(1..=4);
    let waits = random.random_range(1..=3);
    let delay = pick(random, &[secs(1), secs(2), secs(5)]);
    // With native delays every wait of a queue is the same.
    let delays = (0..waits).map(|wait| if strategy == WaitStrategy::Native { delay } else { delay * (1 << wait) });
    QueuePlan {
        name: format!("q{number}"),
        order,
        strategy,
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
        &[Ending::Fails, Ending::Fails, Ending::Fails, Ending::Requeues, Ending::Panics, Ending::Defers(secs(2))],
    );
    let attempt = |random: &mut SmallRng, ends| AttemptPlan {
        runs: pick(random, &[Duration::ZERO, millis(10), millis(200), secs(1), secs(8)]),
        ends,
    };
    let ends = match random.random_range(0..100) {
        0..55 => vec![Ending::Succeeds],
        55..65 => vec![failing, Ending::Succeeds],
        65..75 => vec![failing, failing, failing, Ending::Succeeds],
        75..83 => vec![Ending::Fails],
        83..86 => vec![Ending::FailsForGood],
        86..88 => vec![Ending::Discards],
        88..91 => vec![Ending::Hangs, Ending::Succeeds],
        91..94 => vec![Ending::Kills, Ending::Succeeds],
        94..96 => vec![Ending::Kills],
        _ => vec![Ending::Panics, Ending::Succeeds],
    };
    let attempts = ends.into_iter().map(|ends| attempt(random, ends)).collect();
    let deadline = pick(random, &[None, None, None, None, Some(secs(4)), Some(secs(20))]);
    MessagePlan { at, queue: random.random_range(0..queues.len()), key: random.random_range(0..3), deadline, attempts }
}

/// Some of what keeps copies from being published lasts for longer than the broker waits for an ack.
fn prolong(random: &mut SmallRng, fault: &mut Fault) {
    if let FaultKind::Alarm { lasts } | FaultKind::NoCopies { lasts } = &mut fault.kind {
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
    let connection = random.random_range(0..2);
    let short = pick(random, &[millis(100), secs(1), secs(4), secs(15)]);
    let long = pick(random, &[millis(500), secs(3), secs(20), secs(40)]);
    match random.random_range(0..11) {
        10 => FaultKind::DeleteEmptyQueues,
        0..2 => FaultKind::Cut { process, connection },
        2 => FaultKind::Close { process, connection },
        3 => FaultKind::Silence { process, connection, client: short, broker: long },
        4 => FaultKind::Kill { process, restart: short },
        5 => FaultKind::Stop { process },
        6 => FaultKind::Restart { down: short },
        7 => FaultKind::Alarm { lasts: long },
        8 => FaultKind::SilentLeader { queue: random.random_range(0..queues), lasts: long },
        _ => FaultKind::NoCopies { lasts: long },
    }
}
