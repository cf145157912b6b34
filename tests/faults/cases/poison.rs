//! A message that kills its process is parked by the broker, alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::Rng as _;
use rehop::settings::WaitStrategy;

use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::record::{Entry, Step};
use crate::service::Does;

const PREFETCH: u16 = 100;

async fn lab(ground: &Ground, name: &str) -> Lab {
    let mut lab = ground.lab(name).await;
    lab.work_mut().prefetch = PREFETCH;
    lab.work_mut().delivery_limit = 5;
    lab.work_mut().immediate = 1;
    lab.declare().await;
    lab
}

/// Runs supervised instances until everything has ended. Each death charges the messages that the
/// process held, but only the poison may be parked.
async fn finish(lab: &Lab, instances: usize, poisons: usize) -> Account {
    let deaths = run_until_settled(lab, instances, poisons).await;
    lab.close(charges(deaths, poisons)).await.with_note(format!("{deaths} deaths"))
}

/// A poison kills among others once. After that it runs alone, and what was settled before has
/// reached the broker; on a busy machine, some acks have not.
fn charges(deaths: usize, poisons: usize) -> Allowed {
    let held = PREFETCH.into();
    Allowed::losses(deaths, held).duplicates_at_most(2 * poisons * held)
}

/// Returns how often the instances died.
async fn run_until_settled(lab: &Lab, instances: usize, poisons: usize) -> usize {
    let services: Vec<_> = (0..instances).map(|_| lab.supervised()).collect();
    lab.settled(SOON * 6).await;
    let mut deaths = 0;
    for service in services {
        deaths += service.stop().await;
    }
    assert!(deaths >= poisons, "each poison has killed: {deaths} deaths");
    deaths
}

pub(crate) async fn alone(ground: Ground, instances: usize) -> Account {
    let mut sum = Account::default();
    let rounds = ground.times(1, 10);
    for round in 0..rounds {
        let lab = lab(&ground, "poison").await;
        let before = if round == 0 { 500 } else { rand::rng().random_range(0..1000) };
        lab.send(before, Does::Succeed).await;
        lab.send(1, Does::Poison(0)).await;
        lab.send(999 - before, Does::Succeed).await;
        sum.add(&finish(&lab, instances, 1).await);
    }
    sum.with_note(format!("{rounds} rounds"))
}

pub(crate) async fn among_slow_ones(ground: Ground) -> Account {
    let lab = lab(&ground, "poison-slow").await;
    lab.send(150, Does::Slow(20)).await;
    lab.send(1, Does::Poison(0)).await;
    lab.send(849, Does::Slow(20)).await;
    finish(&lab, 3, 1).await
}

pub(crate) async fn three(ground: Ground) -> Account {
    let lab = lab(&ground, "poison-three").await;
    for count in [200, 3, 400] {
        lab.send(count, Does::Succeed).await;
        lab.send(1, Does::Poison(0)).await;
    }
    lab.send(394, Does::Succeed).await;
    finish(&lab, 3, 3).await
}

/// One kills at its first attempt, and one after a wait in the queue, which a nack begins and the
/// broker does not count. Those among them wait there, too.
pub(crate) async fn in_a_queue_that_delays(ground: Ground) -> Account {
    if ground.is("3.10").await || ground.is("4.0").await {
        return Account::default().with_note("RabbitMQ has it from 4.3");
    }
    let mut lab = ground.lab("poison-native").await;
    let work = lab.work_mut();
    (work.strategy, work.delays) = (WaitStrategy::Native, vec![300, 300]);
    (work.prefetch, work.delivery_limit, work.immediate) = (PREFETCH, 5, 1);
    lab.declare().await;
    lab.send(200, Does::Succeed).await;
    lab.send(60, Does::Fail(1)).await;
    lab.send(1, Does::Poison(0)).await;
    let late = lab.send(1, Does::LatePoison(1)).await;
    lab.send(40, Does::Fail(2)).await;
    lab.send(300, Does::Slow(5)).await;
    let deaths = run_until_settled(&lab, 3, 2).await;
    let is_late = |entry: &&Entry| entry.id == late && entry.step == Step::Started;
    let waited = lab.record().entries.iter().filter(is_late).any(|entry| entry.hop > 0);
    assert!(waited, "one has killed after a wait in the queue");
    // What is under way when a subscription ends comes back as if it had waited.
    let allowed = charges(deaths, 2).spent_waits();
    lab.close(allowed).await.with_note(format!("{deaths} deaths"))
}

/// Overloads this machine until it is dropped, for a minute at most.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn start(loops: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let begun = Instant::now();
        for _ in 0..loops {
            let over = over.clone();
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(60) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(over)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ten of them among three thousand messages, with three processes and an overloaded machine.
pub(crate) async fn ten_on_a_busy_machine(ground: Ground) -> Account {
    let mut sum = Account::default();
    let rounds = ground.times(1, 10);
    for _ in 0..rounds {
        let mut lab = ground.lab("poison-busy").await;
        let work = lab.work_mut();
        (work.prefetch, work.delivery_limit, work.immediate) = (PREFETCH, 5, 0);
        lab.declare().await;
        for _ in 0..10 {
            lab.send(180, Does::Succeed).await;
            lab.send(1, Does::Poison(0)).await;
            lab.send(119, Does::Succeed).await;
        }
        let busy = Busy::start(4);
        let account = finish(&lab, 3, 10).await;
        drop(busy);
        sum.add(&account);
    }
    sum.with_note(format!("{rounds} rounds"))
}
