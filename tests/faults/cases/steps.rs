//! SIGKILL at each step that changes something, under each kind of condition. The next process
//! finishes, and nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rehop_testing::{Broker, Client, Proxy, ProxyConnection, Publish, eventually};

use super::limits::MEMORY;
use crate::evidence::{Policy, alarm_is_on, blocked, lasts, no_alarm_is_on, quiet, room_for_one};
use crate::expectation::{Cause, Fate};
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::record::Step as Handler;
use crate::service::{Does, Service};

/// What the process is doing when it is killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// The copy for a wait is published, but not confirmed.
    WaitCopy,
    /// The copy for the parked queue is published, but not confirmed.
    ParkCopy,
    /// The reject is sent, but has not arrived.
    Requeue,
    /// It was told to stop, and has handed back what no handler has seen; this has not arrived.
    HandBack,
    /// The same has arrived, and its handlers are still running.
    HandedBack,
    /// It has declared some of what it needs.
    Declare,
}

const STEPS: [Step; 6] = [
    Step::WaitCopy,
    Step::ParkCopy,
    Step::Requeue,
    Step::HandBack,
    Step::HandedBack,
    Step::Declare,
];

/// The condition meanwhile.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Weather {
    Fair,
    ParkedQueueFull,
    Alarm,
    LateConfirms,
}

const HANDLERS: usize = 10;
/// Messages that the process holds without a handler.
const UNSEEN: usize = 10;
/// Once so many messages are settled, the service takes more than it has handlers for.
const OPENING: usize = 40;
/// The delay of bytes in each direction.
const LATE: Duration = Duration::from_secs(2);
const LONGEST: u64 = 1300;

/// If copies are counted while they wait, they wait long enough for it.
fn first_delay(step: Step) -> u64 {
    if step == Step::WaitCopy { 20_000 } else { 500 }
}

pub(crate) async fn in_fair_weather(ground: Ground) -> Account {
    on_the_shared_broker(&ground, Weather::Fair).await
}

pub(crate) async fn while_the_parked_queue_is_full(ground: Ground) -> Account {
    on_the_shared_broker(&ground, Weather::ParkedQueueFull).await
}

pub(crate) async fn while_confirms_are_late(ground: Ground) -> Account {
    on_the_shared_broker(&ground, Weather::LateConfirms).await
}

pub(crate) async fn during_an_alarm(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    at_each_step(&ground, &broker, Weather::Alarm).await
}

async fn on_the_shared_broker(ground: &Ground, weather: Weather) -> Account {
    let broker = ground.shared_broker().await;
    at_each_step(ground, &broker, weather).await
}

/// All steps at once, each with its own service, so that the condition has to change only twice.
async fn at_each_step(ground: &Ground, broker: &Arc<Broker>, weather: Weather) -> Account {
    let lab = |step: Step| ground.lab_on(&format!("{step:?}-{weather:?}"), broker.clone());
    let stages = join_all(STEPS.map(|step| Stage::prepare(broker, lab(step), step, weather))).await;
    if weather == Weather::Alarm {
        broker.rabbitmqctl(&MEMORY.raise).await.unwrap();
        alarm_is_on(broker, MEMORY.resource).await;
    }
    let killed = join_all(stages.into_iter().map(Stage::kill)).await;
    if weather == Weather::Alarm {
        broker.rabbitmqctl(&MEMORY.clear).await.unwrap();
        no_alarm_is_on(broker).await;
    }
    let mut sum = Account::default();
    for account in join_all(killed.into_iter().map(Killed::finish)).await {
        sum.add(&account);
    }
    sum.with_note(format!("{} steps", STEPS.len()))
}

/// A service that will be killed at a step.
struct Stage<'a> {
    killed: Killed<'a>,
    client: Client,
    service: Option<Service>,
    proxy: Proxy,
}

/// What it has left.
struct Killed<'a> {
    broker: &'a Broker,
    lab: Lab,
    step: Step,
    weather: Weather,
    full: Option<Policy>,
}

impl<'a> Stage<'a> {
    async fn prepare(broker: &'a Broker, mut lab: Lab, step: Step, weather: Weather) -> Self {
        // The bytes held here, and those that pass slowly, delay neither a heartbeat nor an answer
        // too long.
        (lab.config.heartbeat, lab.config.answer) = (Duration::from_secs(60), SOON);
        lab.config.grace = Duration::from_secs(30);
        let work = lab.work_mut();
        (work.concurrency, work.handler_timeout) = (HANDLERS as u16, 2 * SOON);
        work.immediate = u32::from(step == Step::Requeue);
        work.delays = vec![first_delay(step), 1100, 1200, LONGEST];
        lab.declare().await;
        let (client, proxy) = (lab.client().await, Proxy::start(&lab.admin_url).await.unwrap());
        let full = match weather {
            Weather::ParkedQueueFull => Some(fill_parked_queue(broker, &lab, &client).await),
            Weather::Fair | Weather::Alarm | Weather::LateConfirms => None,
        };
        let mut stage = Self {
            killed: Killed { broker, lab, step, weather, full },
            client,
            service: None,
            proxy,
        };
        stage.bring_to_handlers().await;
        stage
    }

    async fn bring_to_handlers(&mut self) {
        let Killed { lab, step, .. } = &self.killed;
        let does = match step {
            Step::WaitCopy | Step::Requeue => Does::GateFail,
            Step::ParkCopy => Does::GatePark,
            Step::HandBack | Step::HandedBack => Does::Gate,
            Step::Declare => Does::Fail(1),
        };
        if *step == Step::Declare {
            lab.send(HANDLERS, does).await;
            return;
        }
        self.service = Some(lab.service_with(&lab.behind(&self.proxy)));
        let hands_back = matches!(step, Step::HandBack | Step::HandedBack);
        if hands_back {
            lab.send(OPENING, Does::Succeed).await;
            lab.done(OPENING).await;
        }
        lab.send(HANDLERS, does).await;
        lab.started(HANDLERS + if hands_back { OPENING } else { 0 }).await;
        if hands_back {
            lab.send(UNSEEN, Does::Succeed).await;
            lab.depth(lab.work(), 0).await;
        }
    }

    async fn kill(mut self) -> Killed<'a> {
        let Killed { lab, step, weather, .. } = &self.killed;
        if *weather == Weather::LateConfirms && *step != Step::Declare {
            let publishing = self.proxy.connection(1).unwrap();
            // What comes before a copy is not to be late.
            quiet(ProxyConnection::bytes_to_client, &publishing).await;
            publishing.delay(LATE);
        }
        let service = self.service.take();
        match (step, service) {
            (Step::WaitCopy, Some(service)) => {
                self.kill_before_the_confirm(service, &lab.tier(first_delay(*step))).await;
            }
            (Step::ParkCopy, Some(service)) => {
                self.kill_before_the_confirm(service, &lab.parked()).await
            }
            (Step::Requeue, Some(service)) => self.kill_before_the_reject(service).await,
            (Step::HandBack | Step::HandedBack, Some(service)) => {
                self.kill_at_the_hand_back(service).await
            }
            (_, None) | (Step::Declare, _) => self.kill_while_declaring().await,
        }
        self.killed
    }

    async fn kill_before_the_reject(&self, mut service: Service) {
        self.proxy.connection(0).unwrap().pause_to_broker();
        service.go().await;
        self.failed(HANDLERS).await;
        service.kill().await;
    }

    async fn failed(&self, count: usize) {
        eventually(SOON, "the handlers have failed", async || {
            self.killed.lab.count(Handler::Failed) >= count
        })
        .await
        .unwrap();
    }

    async fn kill_before_the_confirm(&self, mut service: Service, target: &str) {
        let Killed { broker, lab, step, weather, .. } = &self.killed;
        let publishing = self.proxy.connection(1).unwrap();
        // Its channel is open by then: the pause is to hold back confirms, and nothing that comes
        // before a copy.
        quiet(ProxyConnection::bytes_to_client, &publishing).await;
        let (before, sent) =
            (self.client.depth(target).await.unwrap(), publishing.bytes_to_broker());
        // A late confirm could still come before the kill, on a busy machine.
        if matches!(weather, Weather::Fair | Weather::LateConfirms) {
            publishing.pause_to_client();
        }
        let confirmed = publishing.bytes_to_client();
        service.go().await;
        self.failed(HANDLERS).await;
        let all = before + HANDLERS as u32;
        match (weather, step) {
            (Weather::Alarm, _) => {
                blocked(broker, "service").await;
                assert_eq!(self.client.depth(target).await.unwrap(), before, "no copy is taken");
            }
            (Weather::ParkedQueueFull, Step::ParkCopy) => {
                eventually(SOON, "an answer comes", async || {
                    publishing.bytes_to_client() > confirmed
                })
                .await
                .unwrap();
                assert!(self.client.depth(target).await.unwrap() < all, "copies are refused");
            }
            _ => lab.depth(target, all).await,
        }
        assert!(publishing.bytes_to_broker() > sent, "copies were sent");
        if matches!(weather, Weather::Fair | Weather::LateConfirms) {
            assert_eq!(publishing.bytes_to_client(), confirmed, "no confirm has arrived");
        }
        service.kill().await;
    }

    async fn kill_at_the_hand_back(&self, mut service: Service) {
        let lab = &self.killed.lab;
        assert_eq!(lab.count(Handler::Started), OPENING + HANDLERS, "the others are at no handler");
        if self.killed.step == Step::HandBack {
            self.proxy.connection(0).unwrap().pause_to_broker();
            service.terminate().await;
            // What it sends is held and cannot be observed, so it gets a moment to send it.
            lasts(Duration::from_millis(300)).await;
            assert_eq!(
                self.client.depth(lab.work()).await.unwrap(),
                0,
                "nothing is handed back yet"
            );
        } else {
            service.terminate().await;
            lab.depth(lab.work(), UNSEEN as u32).await;
        }
        service.kill().await;
    }

    /// It has to declare most of its topology again, and gets as far as the first of these queues.
    async fn kill_while_declaring(&self) {
        let lab = &self.killed.lab;
        let declared = async |queue: &str| self.client.depth(queue).await.is_ok();
        // The last of these queues comes more than a second after the first. A slower line would be
        // cut by the broker, which gives the opening of a connection ten seconds. On a busy machine
        // the kill may come too late; then it is tried again.
        self.proxy.rate(400);
        for _ in 0..10 {
            for queue in [lab.stray(), lab.tier(first_delay(Step::Declare)), lab.tier(LONGEST)] {
                self.client.delete_queue(&queue).await.unwrap();
            }
            let service = lab.service_with(&lab.behind(&self.proxy));
            eventually(SOON, "the first queue is declared", async || declared(&lab.stray()).await)
                .await
                .unwrap();
            service.kill().await;
            if !declared(&lab.tier(LONGEST)).await {
                return;
            }
        }
        panic!("the last wait queue was declared each time");
    }
}

/// Fills the parked queue with expired messages until it refuses one.
async fn fill_parked_queue(broker: &Broker, lab: &Lab, client: &Client) -> Policy {
    let parked = lab.parked();
    let policy = Policy::set(broker, &parked, room_for_one()).await;
    for _ in 0..20 {
        let (id, message) = lab.offer(0, [Does::Expired]).remove(0);
        let to_parked = Publish { routing_key: parked.clone(), ..message };
        if client.publish(to_parked.header("rehop-reason", "expired")).await.is_err() {
            return policy;
        }
        lab.confirmed(&[id]);
    }
    panic!("{parked} is not full");
}

impl Killed<'_> {
    /// A fresh service finishes it.
    async fn finish(self) -> Account {
        let Self { lab, step, weather, full, .. } = self;
        if let Some(full) = full {
            full.clear().await;
        }
        let mut service = lab.service();
        service.go().await;
        lab.recovers(SOON).await;
        lab.settled(SOON).await;
        service.stop().await;
        let context = format!("{step:?} in {weather:?}");
        let account = lab.close(Allowed::losses(1, HANDLERS)).await.of(&context);
        let twice = matches!(step, Step::WaitCopy | Step::ParkCopy);
        assert!(
            twice || account.duplicates == 0,
            "{context}: only a copy makes a duplicate: {account}"
        );
        if weather == Weather::ParkedQueueFull {
            assert!(
                account.count(Fate::Parked(Cause::Expired)) > 0,
                "{context}: what filled it is there: {account}"
            );
        }
        account
    }
}
