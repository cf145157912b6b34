//! The broker refuses: alarms, and queues that are full.

use std::time::{Duration, Instant};

use rehop::settings::QueueType;
use rehop_testing::eventually;

use crate::evidence::{Policy, alarm_is_on, blocked, lasts, no_alarm_is_on, room_for_one};
use crate::ground::{Ground, SOON};
use crate::ledger::{Account, Allowed};
use crate::record::Step;
use crate::service::Does;

/// From the moment when the broker accepts messages again.
const RECOVERY: Duration = SOON;

/// A resource that can run out.
pub(crate) struct Alarm {
    /// As the management API names it.
    pub(crate) resource: &'static str,
    pub(crate) raise: [&'static str; 2],
    pub(crate) clear: [&'static str; 2],
}

pub(crate) const MEMORY: Alarm = Alarm {
    resource: "memory",
    raise: ["set_vm_memory_high_watermark", "0.0001"],
    clear: ["set_vm_memory_high_watermark", "0.6"],
};

const DISK: Alarm = Alarm {
    resource: "disk space",
    raise: ["set_disk_free_limit", "9000GB"],
    clear: ["set_disk_free_limit", "50MB"],
};

async fn alarm(ground: Ground, name: &str, alarm: Alarm) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let lab = ground.lab_on(name, broker.clone());
    lab.declare().await;
    let mut service = lab.service();
    let load = lab.load(40);
    lab.done(100).await;
    broker.rabbitmqctl(&alarm.raise).await.unwrap();
    alarm_is_on(&broker, alarm.resource).await;
    blocked(&broker, "service").await;
    // Longer than the service waits for an answer.
    lasts(Duration::from_secs(8)).await;
    broker.rabbitmqctl(&alarm.clear).await.unwrap();
    no_alarm_is_on(&broker).await;
    lab.recovers(RECOVERY).await;
    load.stop().await;
    lab.settled(SOON * 2).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

pub(crate) async fn memory(ground: Ground) -> Account {
    alarm(ground, "memory", MEMORY).await
}

pub(crate) async fn disk(ground: Ground) -> Account {
    alarm(ground, "disk", DISK).await
}

/// A queue with room for one message refuses copies until there is room for all.
async fn full(ground: Ground, name: &str, queue: &str, does: Does) -> Account {
    let broker = ground.shared_broker().await;
    let lab = ground.lab(name).await;
    lab.declare().await;
    let queue = lab.exchange(queue);
    let policy = Policy::set(&broker, &queue, room_for_one()).await;
    let (messages, client) = (300, lab.client().await);
    lab.send(messages, does).await;
    let mut service = lab.service();
    lab.started(2).await;
    lasts(Duration::from_secs(5)).await;
    let (mut attempts, mut taken, mut since) = (0, 0, None);
    eventually(SOON, "copies are refused, for longer than one is on its way", async || {
        attempts = lab.count(Step::Failed);
        taken = lab.count(Step::Succeeded)
            + client.depth(&queue).await.map_err(|error| error.to_string())? as usize;
        if taken >= attempts {
            since = None;
            return Err(format!("{taken} of {attempts} copies were taken"));
        }
        Ok(since.get_or_insert_with(Instant::now).elapsed() > Duration::from_secs(1))
    })
    .await
    .unwrap();
    policy.clear().await;
    lab.recovers_when(Instant::now(), SOON, "what was refused is taken", async || {
        let depth = client.depth(&queue).await.map_err(|error| error.to_string())? as usize;
        let taken = lab.count(Step::Succeeded) + depth;
        if taken > attempts { Ok(true) } else { Err(format!("{taken} copies")) }
    })
    .await;
    lab.settled(SOON * 2).await;
    service.stop().await;
    lab.close(Allowed::nothing())
        .await
        .with_note(format!("{attempts} attempts, {taken} copies while full"))
}

pub(crate) async fn full_wait_queue(ground: Ground) -> Account {
    full(ground, "full-wait", "wait.200", Does::Fail(1)).await
}

pub(crate) async fn full_parked_queue(ground: Ground) -> Account {
    full(ground, "full-parked", "orders.parked", Does::Permanent).await
}

/// A message is not settled within the broker's timeout, which the settings do not know. 3.10 and
/// 4.0 close the channel; 4.3 obeys the consumer, which has asked for more. Only this message comes
/// again.
pub(crate) async fn ack_timeout(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder.conf("consumer_timeout = 10000")).await;
    let mut lab = ground.lab_on("ack-timeout", broker);
    // A handler that hangs holds its message for longer than the broker's own timeout in any case.
    let obeys_consumers = ground.is("4.3").await;
    lab.work_mut().handler_timeout = Duration::from_secs(if obeys_consumers { 15 } else { 200 });
    lab.config.grace = Duration::from_secs(1);
    lab.declare().await;
    lab.work_mut().existing = Some(QueueType::Quorum);
    let mut service = lab.service();
    for _ in 0..3 {
        lab.send(1, Does::HangOnce).await;
        lab.send(30, Does::Succeed).await;
        lasts(Duration::from_secs(1)).await;
    }
    // Each message that timed out may cause its own cancel, and work continues in between.
    lab.settled(SOON * 3).await;
    let come_again = lab.record().by_message().values().filter(|entries| entries.len() > 2).count();
    assert_eq!(come_again, 3, "each message that hung has come again");
    lab.send(100, Does::Succeed).await;
    lab.send(20, Does::Fail(1)).await;
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(Allowed::losses(3, 1)).await
}
