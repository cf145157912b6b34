//! The wall clock of a process jumps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rehop::settings::WaitStrategy;
use rehop_testing::{Client, Publish, eventually};
use rustix::process::Signal;
use serde_json::json;

use crate::clock::{Clock, HOUR};
use crate::evidence::says;
use crate::expectation::{Cause, Fate};
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed, CLOCKS};
use crate::record::{Entry, Millis, Step, now};
use crate::service::{ASKS, Config, Does, QueueConfig};

/// What two processes consume: one whose clock jumps, and one that has the true time.
const SHARED: [WaitStrategy; 3] =
    [WaitStrategy::Tiers, WaitStrategy::Ladder, WaitStrategy::InProcess];
const TIERS: usize = 0;
const LADDER: usize = 1;
/// Only the process whose clock jumps consumes this queue.
const ALONE: usize = SHARED.len();

/// The first wait is long enough for the clock to jump meanwhile.
const DELAYS: [u64; 2] = [6_000, 100];
/// In tiers this takes two legs.
const ASKED: u64 = DELAYS[0] + DELAYS[1];

/// By how many hours the clock is off after each jump.
const JUMPS: [i8; 3] = [1, -1, 0];

/// How many messages of each kind are sent to each queue before each jump.
const EACH: usize = 6;
const WITHOUT_A_WAIT: [Does; 3] = [Does::Succeed, Does::Permanent, Does::Discard];
const WAITING: [Does; 3] = [Does::Fail(1), Does::Fail(2), Does::Fail(u32::MAX)];

type Messages = BTreeMap<u64, Vec<Entry>>;

/// Copies of both processes come to both, so each reads times that the other has written.
pub(crate) async fn jumps(ground: Ground) -> Account {
    let mut lab = ground.lab("clock").await;
    lab.config.queues = queues(lab.work());
    lab.declare().await;
    let clock = Clock::new(lab.file("clock.so"), lab.file("clock")).await;
    let mut jumping =
        lab.service_with(&Config { clock: Some(clock.clone()), ..lab.config.clone() });
    let shared = lab.config.queues[..ALONE].to_vec();
    let mut steady = lab.service_with(&Config { queues: shared, ..lab.config.clone() });
    let (client, process) = (lab.client().await, jumping.pid());
    both_consume(&lab, &client, [process, steady.pid()]).await;
    let mut jumps = Vec::new();
    for hours in JUMPS.repeat(ground.times(1, 10)) {
        let jump = Jump::make(&lab, &client, &clock, hours).await;
        expirable(&lab, &client, hours).await;
        all_have(&lab, &jump.waiting, Step::Started, 1).await;
        jumps.push(jump);
    }
    lab.settled(SOON).await;
    jumping.stop().await;
    steady.stop().await;
    let messages = lab.record().by_message();
    for jump in &jumps {
        jump.has_happened(&messages, process);
        jump.has_shortened_no_wait(&messages);
    }
    lab.close(Allowed::nothing().wrong_times()).await.with_note(format!("{} jumps", jumps.len()))
}

/// Messages wait at the broker, in their queue or in an exchange, and no wait goes by the clock that
/// jumps.
pub(crate) async fn jumps_while_the_broker_delays(
    ground: Ground,
    strategy: WaitStrategy,
) -> Account {
    if strategy == WaitStrategy::Native && !ground.is("4.3").await {
        return Account::default().with_note("RabbitMQ has it from 4.3");
    }
    let mut lab = ground.lab("clock-broker").await;
    (lab.work_mut().strategy, lab.work_mut().delays) = (strategy, vec![DELAYS[0]]);
    if strategy == WaitStrategy::DelayedExchange {
        lab.declare_with_stand_in(DELAYS[0]).await;
    } else {
        lab.declare().await;
    }
    let clock = Clock::new(lab.file("clock.so"), lab.file("clock")).await;
    let mut service =
        lab.service_with(&Config { clock: Some(clock.clone()), ..lab.config.clone() });
    let jumps = JUMPS.repeat(ground.times(1, 5));
    let mut waited = 0;
    for hours in &jumps {
        let mut waiting = BTreeSet::new();
        for does in [Does::Succeed, Does::Fail(1), Does::Fail(u32::MAX)] {
            let first = lab.send(EACH, does).await;
            if matches!(does, Does::Fail(_)) {
                waiting.extend(first..first + EACH as u64);
            }
        }
        all_have(&lab, &waiting, Step::Failed, 0).await;
        clock.set(*hours);
        let late = lab.record().entries.iter().filter(|entry| entry.hop == 1).count();
        lab.settled(SOON).await;
        let home = lab.record().entries.iter().filter(|entry| entry.hop == 1).count();
        waited += usize::from(home > late);
    }
    service.stop().await;
    assert!(waited > 0, "no message waited at any jump");
    lab.close(Allowed::nothing().wrong_times()).await.with_note(format!("{} jumps", jumps.len()))
}

/// The machine of a process sleeps while messages wait. Nothing runs in the process for longer than
/// the broker allows, and its clock has gone on by an hour when it wakes.
pub(crate) async fn suspended(ground: Ground) -> Account {
    let mut lab = ground.lab("suspended").await;
    lab.config.queues = queues(lab.work());
    lab.notices_silence();
    lab.declare().await;
    let clock = Clock::new(lab.file("clock.so"), lab.file("clock")).await;
    let mut service =
        lab.service_with(&Config { clock: Some(clock.clone()), ..lab.config.clone() });
    let client = lab.client().await;
    let rounds = ground.times(1, 5);
    for hours in 1..=rounds {
        send(&lab, &client, &WITHOUT_A_WAIT).await;
        lab.settled(SOON).await;
        let waiting = send(&lab, &client, &WAITING).await;
        all_have(&lab, &waiting, Step::Failed, 0).await;
        service.signal(Signal::STOP);
        for queue in &lab.config.queues {
            eventually(SOON, "the broker has given the process up", async || {
                client.consumers(&queue.name).await.map(|consumers| consumers == 0)
            })
            .await
            .unwrap();
        }
        clock.set(hours as i8);
        send(&lab, &client, &[Does::Succeed, Does::Fail(1)]).await;
        let deadline = now() + hours as Millis * HOUR - HOUR / 2;
        let expired = send_expirable(&lab, Does::Succeed, deadline).await;
        lab.expect(expired, Fate::Parked(Cause::Expired));
        service.signal(Signal::CONT);
        lab.settled(SOON).await;
    }
    says(&service, "ahead of the time that has passed").await;
    service.stop().await;
    // What waits in the process is not settled. Elsewhere, a copy may wait and its original not be
    // settled yet.
    let held = SHARED.len() * WAITING.len() * EACH;
    // A process that slept for longer than the waits goes on with what it holds before it notices
    // that its channel is gone. Then the broker has these messages again, with no attempt of that.
    let allowed = Allowed::losses(rounds, held).restarting(1 + DELAYS.len()).wrong_times();
    lab.close(allowed).await.with_note(format!("{rounds} times"))
}

fn queues(work: &str) -> Vec<QueueConfig> {
    let strategies = SHARED.into_iter().chain([WaitStrategy::Tiers]).enumerate();
    strategies
        .map(|(index, strategy)| {
            let config = QueueConfig::new(format!("{work}-{index}"));
            QueueConfig { strategy, delays: DELAYS.to_vec(), ..config }
        })
        .collect()
}

/// Sends messages of these kinds to each queue that both processes consume, and returns their
/// numbers.
async fn send(lab: &Lab, client: &Client, kinds: &[Does]) -> BTreeSet<u64> {
    let messages = (0..SHARED.len()).flat_map(|queue| {
        lab.offer(queue, kinds.iter().flat_map(|does| std::iter::repeat_n(*does, EACH)))
    });
    let (ids, messages): (Vec<u64>, Vec<Publish>) = messages.unzip();
    client.publish_many(messages).await.unwrap();
    lab.confirmed(&ids);
    ids.into_iter().collect()
}

/// Sends messages until each process has had some of each queue.
async fn both_consume(lab: &Lab, client: &Client, processes: [u32; 2]) {
    eventually(SOON, "both processes consume each queue", async || {
        send(lab, client, &[Does::Succeed]).await;
        let entries = lab.record().entries;
        let consumes = |process: u32, queue: usize| {
            entries.iter().any(|entry| (entry.process, entry.queue) == (process, queue))
        };
        (0..SHARED.len()).all(|queue| processes.iter().all(|process| consumes(*process, queue)))
    })
    .await
    .unwrap();
}

/// Waits until each of these messages has come so far after so many waits.
async fn all_have(lab: &Lab, ids: &BTreeSet<u64>, step: Step, hop: u32) {
    eventually(SOON, &format!("all messages have {step:?} after {hop} waits"), async || {
        let entries = lab.record().entries;
        let come = entries
            .iter()
            .filter(|entry| entry.step == step && entry.hop == hop)
            .map(|entry| entry.id);
        let missing = ids.difference(&come.collect()).count();
        if missing == 0 { Ok(true) } else { Err(format!("{missing} of {} have not", ids.len())) }
    })
    .await
    .unwrap();
}

/// A process goes by its own clock: an hour ahead, it parks a message half an hour before the
/// deadline; an hour behind, it attempts one half an hour after.
async fn expirable(lab: &Lab, client: &Client, hours: i8) {
    let (sooner, later) = (if hours < 0 { -HOUR / 2 } else { HOUR / 2 }, 2 * HOUR);
    let parked = lab.config.queues[ALONE].parked();
    let before = client.depth(&parked).await.unwrap();
    let retried = send_expirable(lab, Does::Fail(1), now() + later).await;
    let once = send_expirable(lab, Does::Succeed, now() + sooner).await;
    if hours > 0 {
        lab.expect(once, Fate::Parked(Cause::Expired));
        lab.depth(&parked, before + EACH as u32).await;
    } else {
        all_have(lab, &once.collect(), Step::Succeeded, 0).await;
    }
    all_have(lab, &retried.collect(), Step::Failed, 0).await;
}

async fn send_expirable(lab: &Lab, does: Does, deadline: Millis) -> Range<u64> {
    let first = lab
        .send_to(ALONE, EACH, does, |message| message.header("rehop-expires-at", json!(deadline)))
        .await;
    first..first + EACH as u64
}

/// One jump, and the messages that were sent before it.
struct Jump {
    hours: i8,
    /// The true times before it and after it.
    before: Millis,
    after: Millis,
    /// Those whose handlers ask for a wait.
    asking: BTreeSet<u64>,
    /// All that wait.
    waiting: BTreeSet<u64>,
}

impl Jump {
    /// Sends messages, and moves the clock when all of them have failed that are to.
    async fn make(lab: &Lab, client: &Client, clock: &Clock, hours: i8) -> Self {
        send(lab, client, &WITHOUT_A_WAIT).await;
        let asking = send(lab, client, &[Does::Ask(ASKED)]).await;
        let waiting = &asking | &send(lab, client, &WAITING).await;
        all_have(lab, &waiting, Step::Failed, 0).await;
        let before = now();
        clock.set(hours);
        Self { hours, before, after: now(), asking, waiting }
    }

    /// Messages of each queue waited meanwhile, and came to the process whose clock had jumped. It
    /// has made copies with the wrong time.
    fn has_happened(&self, messages: &Messages, process: u32) {
        for queue in 0..SHARED.len() {
            let has_waited = |entries: &&[Entry]| {
                let failed =
                    find(entries, Step::Failed, 0).is_some_and(|failed| failed.at <= self.before);
                let again = find(entries, Step::Started, 1);
                failed
                    && again.is_some_and(|again| again.at >= self.after && again.process == process)
            };
            let have_waited = self.of_queue(messages, queue).filter(has_waited).count();
            assert!(
                have_waited > 0,
                "messages of queue {queue} waited when the clock came to be {} h off",
                self.hours
            );
        }
        for queue in [TIERS, LADDER] {
            let has_wrong_time = |entries: &&[Entry]| {
                let last = find(entries, Step::Started, 2);
                last.and_then(|last| Some(last.due? - last.at))
                    .is_some_and(|off| self.is_off_by(off))
            };
            let have_wrong_time = self.of_queue(messages, queue).filter(has_wrong_time).count();
            assert!(
                have_wrong_time > 0,
                "copies of queue {queue} were made when the clock was {} h off",
                self.hours
            );
        }
    }

    /// Whether a time that is this far from the true one was read from the clock after the jump.
    /// The rest is the message's lateness.
    fn is_off_by(&self, off: Millis) -> bool {
        (off - Millis::from(self.hours) * HOUR).abs() < HOUR / 2
    }

    /// The ledger checks the delays of the policy, and this those that handlers asked for. A clock
    /// that is ahead may end a wait of several legs after one of them.
    fn has_shortened_no_wait(&self, messages: &Messages) {
        for id in &self.asking {
            let entries = &messages[id];
            let least = if entries[0].queue == TIERS { DELAYS[0] } else { ASKED };
            for hop in 0..ASKS {
                let (failed, again) =
                    (find(entries, Step::Failed, hop), find(entries, Step::Started, hop + 1));
                let waited = again.unwrap().at - failed.unwrap().at;
                assert!(
                    waited + CLOCKS >= least as Millis,
                    "message {id} waited {waited} ms in place of {least}"
                );
            }
        }
    }

    fn of_queue<'a>(
        &'a self,
        messages: &'a Messages,
        queue: usize,
    ) -> impl Iterator<Item = &'a [Entry]> {
        let waiting = self.waiting.iter().map(move |id| messages[id].as_slice());
        waiting.filter(move |entries| entries[0].queue == queue)
    }
}

/// The first entry of a message that says so.
fn find(entries: &[Entry], step: Step, hop: u32) -> Option<&Entry> {
    entries.iter().find(|entry| entry.step == step && entry.hop == hop)
}
