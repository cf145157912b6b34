//! Shutdown in every situation, with the time measured: the service has stopped when its grace time
//! is over.

use std::time::Duration;

use rehop_testing::{Proxy, eventually};

use super::limits::MEMORY;
use super::stalls::refused;
use crate::evidence::{
    Policy, Witness, alarm_is_on, all_broken, blocked, lasts, no_alarm_is_on, room_for_one,
};
use crate::expectation::Fate;
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::record::Step;
use crate::service::Does;

pub(crate) async fn with_a_thousand_in_flight(ground: Ground) -> Account {
    let mut lab = ground.lab("stop-thousand").await;
    (lab.work_mut().prefetch, lab.work_mut().concurrency) = (1000, 400);
    lab.declare().await;
    // Long enough for the signal to find handlers running, and shorter than the grace time. All of
    // them take much longer, so some are still with the broker at the end.
    lab.send(3000, Does::Slow(3000)).await;
    let mut service = lab.service();
    lab.started(300).await;
    service.stop().await;
    let account = lab.close(Allowed::nothing().or(Fate::Queued)).await;
    assert!(account.count(Fate::Queued) > 0, "it stopped in the midst of it: {account}");
    account
}

pub(crate) async fn twice(ground: Ground) -> Account {
    let lab = ground.lab("stop-twice").await;
    lab.declare().await;
    lab.send(100, Does::Slow(300)).await;
    let mut service = lab.service();
    lab.started(10).await;
    service.terminate().await;
    // Two signals that are pending together arrive as one.
    lasts(Duration::from_millis(100)).await;
    service.stop().await;
    lab.close(Allowed::nothing().or(Fate::Queued)).await
}

/// After the grace time, the messages of unfinished handlers stay with the broker.
pub(crate) async fn past_the_grace_time(ground: Ground) -> Account {
    let mut lab = ground.lab("stop-grace").await;
    let grace = Duration::from_secs(1);
    lab.config.grace = grace;
    lab.declare().await;
    let first = lab.send(50, Does::Hang).await;
    lab.expect(first..first + 50, Fate::Queued);
    let mut service = lab.service();
    lab.started(10).await;
    let took = service.stop().await;
    assert_eq!(lab.count(Step::Started), 10, "as many hang as handlers may run");
    lab.close(Allowed::losses(1, 10)).await.with_note(time_taken(took, grace))
}

/// Short compared with the time limit for the broker's answers.
const GRACE: Duration = Duration::from_secs(2);

/// With settings under which a shutdown could easily be late: an answer may take 30 s, and the
/// grace time is 2 s.
async fn impatient(ground: &Ground, name: &str) -> Lab {
    stop_soon(ground.lab(name).await)
}

fn stop_soon(mut lab: Lab) -> Lab {
    (lab.config.grace, lab.config.answer) = (GRACE, Duration::from_secs(30));
    lab
}

/// In the middle of work of each kind that matters to a shutdown: handlers that end soon, handlers
/// that hang, and copies.
async fn busy(lab: &Lab) {
    let first = lab.send(5, Does::Hang).await;
    lab.expect(first..first + 5, Fate::Queued);
    lab.send(100, Does::Slow(100)).await;
    lab.send(50, Does::Fail(1)).await;
}

/// Messages that are unhandled by then are with the broker. Only what the process held when the
/// fault began can end twice.
async fn close(lab: &Lab, took: Duration, grace: Duration) -> Account {
    let held = lab.config.queues[0].prefetch.into();
    let account =
        lab.close(Allowed::losses(2, held).duplicates_at_most(held).or(Fate::Queued)).await;
    account.with_note(time_taken(took, grace))
}

fn time_taken(took: Duration, grace: Duration) -> String {
    format!("{:.2} s of a grace time of {grace:?}", took.as_secs_f64())
}

pub(crate) async fn while_the_broker_is_away(ground: Ground) -> Account {
    let lab = impatient(&ground, "stop-away").await;
    lab.declare().await;
    let (mut service, proxy) = lab.service_behind().await;
    busy(&lab).await;
    lab.done(20).await;
    proxy.refuse().await;
    all_broken(&proxy, Proxy::reset).await;
    lasts(Duration::from_secs(1)).await;
    let took = service.stop().await;
    close(&lab, took, GRACE).await
}

/// It has lost its connections, and new ones are accepted and never answered.
pub(crate) async fn while_it_connects_to_silence(ground: Ground) -> Account {
    let lab = impatient(&ground, "stop-connecting").await;
    lab.declare().await;
    let (mut service, proxy) = lab.service_behind().await;
    busy(&lab).await;
    lab.done(20).await;
    let accepted = proxy.accepted();
    proxy.pause();
    proxy.reset();
    eventually(SOON, "it connects again", async || proxy.accepted() >= accepted + 2).await.unwrap();
    let took = service.stop().await;
    drop(proxy);
    close(&lab, took, GRACE).await
}

pub(crate) async fn while_the_network_is_silent(ground: Ground) -> Account {
    let lab = impatient(&ground, "stop-silent").await;
    lab.declare().await;
    let (mut service, proxy) = lab.service_behind().await;
    busy(&lab).await;
    lab.done(20).await;
    proxy.pause();
    let took = service.stop().await;
    drop(proxy);
    close(&lab, took, GRACE).await
}

pub(crate) async fn while_the_broker_is_frozen(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let lab = stop_soon(ground.lab_on("stop-frozen", broker.clone()));
    lab.declare().await;
    let mut service = lab.service();
    busy(&lab).await;
    lab.done(20).await;
    let witness = Witness::new(&broker).await;
    broker.pause().await.unwrap();
    witness.gets_no_answer(Duration::from_secs(1)).await;
    let took = service.stop().await;
    broker.resume().await.unwrap();
    close(&lab, took, GRACE).await
}

pub(crate) async fn during_an_alarm(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let lab = stop_soon(ground.lab_on("stop-alarm", broker.clone()));
    lab.declare().await;
    let mut service = lab.service();
    lab.recovers(SOON).await;
    busy(&lab).await;
    lab.done(20).await;
    broker.rabbitmqctl(&MEMORY.raise).await.unwrap();
    alarm_is_on(&broker, MEMORY.resource).await;
    blocked(&broker, "service").await;
    let took = service.stop().await;
    broker.rabbitmqctl(&MEMORY.clear).await.unwrap();
    no_alarm_is_on(&broker).await;
    close(&lab, took, GRACE).await
}

/// The broker accepts no copies of the messages that failed. The stop does not wait for that.
pub(crate) async fn while_the_parked_queue_is_full(ground: Ground) -> Account {
    const LONG_GRACE: Duration = Duration::from_secs(60);
    let broker = ground.shared_broker().await;
    let mut lab = ground.lab("stop-full").await;
    lab.config.grace = LONG_GRACE;
    lab.declare().await;
    let policy = Policy::set(&broker, &lab.parked(), room_for_one()).await;
    lab.send(50, Does::Permanent).await;
    let mut service = lab.service();
    refused(&lab, &lab.parked()).await;
    let took = service.stop().await;
    assert!(took < LONG_GRACE / 3, "the stop waited for refused copies: {took:?}");
    policy.clear().await;
    close(&lab, took, LONG_GRACE).await
}
