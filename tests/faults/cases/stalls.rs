//! Two faults at once, and one copy that cannot be sent. Neither may stop unrelated messages.

use std::time::{Duration, Instant};

use rehop_testing::{Broker, ProxyConnection, eventually};
use serde_json::json;

use super::limits::MEMORY;
use crate::evidence::{
    Policy, alarm_is_on, blocked, broken, lasts, no_alarm_is_on, replaced, room_for_one,
};
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::record::Step;
use crate::service::Does;

/// From the moment when the fault is over.
const RECOVERY: Duration = SOON;

/// Copies are refused, the consuming connection is lost in the meantime, and then there is room
/// again.
pub(crate) async fn full_and_cut(ground: Ground) -> Account {
    let mut sum = Account::default();
    for _ in 0..ground.times(2, 8) {
        sum.add(&full_and_cut_once(&ground).await);
    }
    sum
}

async fn full_and_cut_once(ground: &Ground) -> Account {
    let broker = ground.shared_broker().await;
    let mut lab = ground.lab("full-and-cut").await;
    lab.work_mut().delivery_limit = 20;
    lab.declare().await;
    let policy = Policy::set(&broker, &lab.parked(), room_for_one()).await;
    lab.send(50, Does::Permanent).await;
    let (mut service, proxy) = lab.service_behind().await;
    refused(&lab, &lab.parked()).await;
    broken(&proxy.connection(0).unwrap(), ProxyConnection::reset).await;
    replaced(&proxy, 2).await;
    assert!(proxy.connection(1).unwrap().is_open(), "only the consuming connection was lost");
    policy.clear().await;
    lab.recovers(RECOVERY).await;
    lab.settled(SOON).await;
    service.stop().await;
    // Messages that no handler had seen came back as well, and those at a handler may have left a
    // copy.
    lab.close(Allowed::losses(1, 10)).await
}

/// Waits until handlers have asked for more copies than there are, and this stays so for a moment.
pub(crate) async fn refused(lab: &Lab, parked: &str) {
    let (client, mut last) = (lab.client().await, (0, Instant::now()));
    eventually(SOON, "copies are refused, and go on being refused", async || {
        let taken = client.depth(parked).await.map_err(|error| error.to_string())? as usize;
        let asked = lab.count(Step::Failed);
        if asked <= taken || taken != last.0 {
            last = (taken, Instant::now());
            return Err(format!("{taken} of {asked} copies are taken"));
        }
        Ok(last.1.elapsed() > Duration::from_secs(1))
    })
    .await
    .unwrap();
}

/// The consuming connection is lost during an alarm, long after it was opened. The backlog is
/// consumed all the same: it may be why the alarm lasts.
pub(crate) async fn an_alarm_and_cut(ground: Ground) -> Account {
    const CONSUMER_TIMEOUT: Duration = Duration::from_secs(30);
    let broker = ground.own_broker(|builder| builder.conf("consumer_timeout = 30000")).await;
    let mut lab = ground.lab_on("alarm-and-cut", broker.clone());
    is_told_the_ack_timeout(&mut lab, CONSUMER_TIMEOUT);
    lab.work_mut().concurrency = 5;
    lab.declare().await;
    let (mut service, proxy) = lab.service_behind().await;
    lab.recovers(RECOVERY).await;
    // Long enough for the connection to have been lost over an ack timeout.
    lasts(CONSUMER_TIMEOUT * 3 / 4).await;
    let fails = lab.send(1, Does::GateFail).await;
    lab.started(4).await;
    lab.send(1000, Does::Slow(300)).await;
    broker.rabbitmqctl(&MEMORY.raise).await.unwrap();
    alarm_is_on(&broker, MEMORY.resource).await;
    service.go().await;
    blocked(&broker, "service").await;
    let cut = Instant::now();
    broken(&proxy.connection(0).unwrap(), ProxyConnection::reset).await;
    replaced(&proxy, 2).await;
    let left = lab.record().ended().len();
    let goes_on = async || {
        let ended = lab.record().ended().len();
        if ended >= left + 30 {
            Ok(true)
        } else {
            Err(format!("{left} messages were handled before, {ended} by now"))
        }
    };
    eventually(CONSUMER_TIMEOUT / 2, "the backlog is consumed during the alarm", goes_on)
        .await
        .unwrap();
    // It would wait for the alarm for nearly as long as the timeout.
    assert!(
        cut.elapsed() < CONSUMER_TIMEOUT * 3 / 4,
        "the queue was not consumed for {:?}",
        cut.elapsed()
    );
    alarm_is_on(&broker, MEMORY.resource).await;
    assert!(!lab.record().ended().contains(&fails), "no copy was taken");
    broker.rabbitmqctl(&MEMORY.clear).await.unwrap();
    no_alarm_is_on(&broker).await;
    // The backlog comes before what shows the recovery.
    lab.settled(SOON * 3).await;
    lab.recovers(RECOVERY).await;
    service.stop().await;
    lab.close(Allowed::losses(1, 100)).await
}

/// The permission to write to the park exchange is revoked while the service runs, and granted
/// again. Messages that do not need it continue in the meantime.
pub(crate) async fn one_right_taken(ground: Ground) -> Account {
    let broker = ground.shared_broker().await;
    let mut lab = ground.lab("no-park-right").await;
    let user = lab.config.namespace.clone();
    broker.management().unwrap().add_user(&user, &ground.password).await.unwrap();
    lab.config.url = ground.url_of(broker.amqp_url(), &user);
    lab.config.only_checks = true;
    lab.declare().await;
    permit(&broker, &user, ".*").await;
    let mut service = lab.service();
    lab.recovers(RECOVERY).await;
    permit(&broker, &user, &format!("^(?!{}\\.park$).*", user.replace('.', "\\."))).await;
    let (parked, first) = (lab.send(1, Does::Permanent).await, lab.send(39, Does::Fail(1)).await);
    let others = first..first + 39;
    let unrelated = "the 39 messages that need no right to park are handled";
    eventually(SOON / 2, unrelated, async || {
        let ended = lab.record().ended();
        let missing = others.clone().filter(|id| !ended.contains(id)).count();
        if missing == 0 { Ok(true) } else { Err(format!("{missing} are not")) }
    })
    .await
    .unwrap();
    let refused = format!("access to exchange '{}'", lab.exchange("park"));
    eventually(SOON, "the log says what is lacking", async || service.log().contains(&refused))
        .await
        .unwrap();
    let client = lab.client().await;
    assert_eq!(
        client.depth(&lab.parked()).await.unwrap(),
        0,
        "message {parked} could not be parked"
    );
    permit(&broker, &user, ".*").await;
    lab.recovers_when(Instant::now(), RECOVERY, "the message is parked", async || {
        client.depth(&lab.parked()).await.map(|depth| depth >= 1).map_err(|error| error.to_string())
    })
    .await;
    lab.settled(SOON).await;
    service.stop().await;
    // Each channel that was closed because of the one copy may have accepted others before.
    lab.close(Allowed::losses(4, 10)).await
}

async fn permit(broker: &Broker, user: &str, write: &str) {
    broker.management().unwrap().set_permissions(user, [".*", write, ".*"]).await.unwrap();
}

/// As configured in the broker.
fn is_told_the_ack_timeout(lab: &mut Lab, timeout: Duration) {
    lab.config.ack_timeout = timeout;
    lab.work_mut().handler_timeout = timeout * 9 / 10;
}

/// All handlers together take longer than the ack timeout. None of their messages comes twice, and
/// the subscription stays.
pub(crate) async fn slower_than_the_ack_timeout(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder.conf("consumer_timeout = 10000")).await;
    let mut lab = ground.lab_on("slow-and-timed", broker.clone());
    (lab.work_mut().concurrency, lab.work_mut().delivery_limit) = (2, 2);
    is_told_the_ack_timeout(&mut lab, Duration::from_secs(10));
    lab.declare().await;
    // Before 4.3 the broker checks for such messages once a minute.
    let count = if ground.is("4.3").await { 30 } else { 110 };
    lab.send(count, Does::Slow(1500)).await;
    let mut service = lab.service();
    lab.settled(SOON * 3).await;
    service.stop().await;
    assert!(
        !service.log().contains("cancelled the subscription"),
        "the broker has ended no subscription"
    );
    lab.close(Allowed::nothing()).await
}

/// All handlers wait for their copies when the ack timeout is over, and by then nothing more is
/// subscribed to. Only once do the messages come again, and not before the end of the alarm.
pub(crate) async fn an_alarm_longer_than_the_ack_timeout(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder.conf("consumer_timeout = 20000")).await;
    let mut lab = ground.lab_on("alarm-and-timed", broker.clone());
    lab.work_mut().delivery_limit = 2;
    is_told_the_ack_timeout(&mut lab, Duration::from_secs(20));
    lab.declare().await;
    // As many as there are handlers: what comes behind them stays in the queue.
    let first = lab.send(10, Does::GateFail).await;
    lab.send(60, Does::Succeed).await;
    broker.rabbitmqctl(&MEMORY.raise).await.unwrap();
    alarm_is_on(&broker, MEMORY.resource).await;
    // Its handlers must not have run out of time before they can fail, so it starts last.
    let mut service = lab.service();
    service.go().await;
    lab.failed(10).await;
    blocked(&broker, "service").await;
    let started = lab.count(Step::Started);
    // Before 4.3 the broker checks for such messages once a minute.
    eventually(SOON * 3, "the queue pauses", async || {
        // 4.3 may look only at its next command for what has timed out, and a changed policy is
        // one. Nothing else comes during the alarm.
        let other = json!({ "max-length": rand::random_range(1_000_000..2_000_000) });
        Policy::set(&broker, lab.work(), other).await;
        service.log().contains("consuming again when this ends")
    })
    .await
    .unwrap();
    // It pauses for no longer than the timeout.
    lasts(Duration::from_secs(5)).await;
    assert_eq!(lab.count(Step::Started), started, "a handler ran again during the alarm");
    assert!(!lab.record().ended().contains(&first), "no copy was taken");
    broker.rabbitmqctl(&MEMORY.clear).await.unwrap();
    no_alarm_is_on(&broker).await;
    lab.recovers(RECOVERY).await;
    lab.settled(SOON).await;
    service.stop().await;
    // A message whose handler waits for the confirm of its copy can time out; one that no handler
    // has seen cannot.
    lab.close(Allowed::losses(1, 10)).await
}
