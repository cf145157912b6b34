//! Headers with wrong times, and many messages that are due at the same time.

use std::time::{Duration, Instant};

use rehop_testing::Publish;
use serde_json::json;

use super::soak::resident;
use crate::clock::HOUR;
use crate::evidence::{Witness, lasts};
use crate::expectation::Fate;
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::record::{Millis, Step, now};
use crate::service::Does;

/// A message as a service with these clocks would publish it to the wait exchange after its first
/// attempt.
fn copy(lab: &Lab, message: Publish, tier: u64, since: Millis, due: Millis) -> Publish {
    let to_wait =
        Publish { exchange: lab.exchange("wait"), routing_key: lab.work().to_owned(), ..message };
    to_wait
        .header("rehop-return-to", lab.work())
        .header("rehop-wait-for", json!(tier))
        .header("rehop-attempt", json!(1))
        .header("rehop-hop", json!(1))
        .header("rehop-first-seen-at", json!(since))
        .header("rehop-first-failed-at", json!(since))
        .header("rehop-waiting-since", json!(since))
        .header("rehop-due-at", json!(due))
        .header("rehop-exchange", "")
        .header("rehop-routing-key", lab.work())
}

/// As a process would write them whose clock is an hour off or jumps by an hour between two
/// headers, and with times that no clock shows. No message waits for an hour, and all of them end.
pub(crate) async fn forged_times(ground: Ground) -> Account {
    const EACH: usize = 10;
    let lab = ground.lab("forged-times").await;
    lab.declare().await;
    let (tier, present) = (200, now());
    let times = [
        ("an hour ahead", present + HOUR, present + HOUR + 200),
        ("an hour behind", present - HOUR, present - HOUR + 200),
        ("back by an hour meanwhile", present, present - HOUR),
        ("due at once", present, present),
        ("in the first second of 1970", 0, 200),
        ("before 1970", -HOUR, -HOUR + 200),
        ("at the end of all numbers", Millis::MAX - 200, Millis::MAX),
    ];
    for (_, since, due) in times {
        for does in [Does::Succeed, Does::Fail(2), Does::Fail(u32::MAX)] {
            let first =
                lab.send_with(EACH, does, |message| copy(&lab, message, tier, since, due)).await;
            // Their first attempt is forged too.
            let handled = does != Does::Fail(u32::MAX);
            let fate = if handled {
                Fate::Handled
            } else {
                Fate::Parked(crate::expectation::Cause::Exhausted)
            };
            lab.expect(first..first + EACH as u64, fate);
        }
    }
    let mut service = lab.service();
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(Allowed::nothing().wrong_times())
        .await
        .with_note(format!("{} pairs of forged times", times.len()))
}

/// Many messages wait, the broker is frozen until the last of them is due, and all return at once.
pub(crate) async fn due_together(ground: Ground) -> Account {
    let (count, tier) = if ground.long { (1_000_000, 300_000) } else { (5_000, 60_000) };
    let broker = ground.own_broker(|builder| builder).await;
    let mut lab = ground.lab_on("due-together", broker.clone());
    lab.work_mut().delays = vec![tier];
    lab.declare().await;
    let mut service = lab.service();
    lab.send(1, Does::Succeed).await;
    lab.done(1).await;
    let early = resident(&service);
    let (begun, client) = (Instant::now(), lab.client().await);
    for _ in 0..count / 5_000 {
        let since = now();
        let due = since + tier as Millis;
        // The first attempt is forged.
        lab.send_with(5_000, Does::Succeed, |message| copy(&lab, message, tier, since, due)).await;
    }
    // A message that is published later than its header says is due later, by the broker's clock.
    let all_due = now() + tier as Millis;
    assert_eq!(
        client.depth(lab.work()).await.unwrap(),
        0,
        "none is due after {:?}",
        begun.elapsed()
    );
    let witness = Witness::new(&broker).await;
    broker.pause().await.unwrap();
    witness.gets_no_answer(Duration::from_secs(1)).await;
    let still = (all_due - now()).max(0);
    lasts(Duration::from_millis(still as u64 + 500)).await;
    assert_eq!(lab.count(Step::Started), 1, "the broker stood still until all were due");
    broker.resume().await.unwrap();
    let (over, mut most) = (Instant::now(), early);
    let slowest = Duration::from_secs(60 + count as u64 / 500);
    lab.recovers_when(over, slowest, "all messages have returned", async || {
        most = most.max(resident(&service));
        let home = lab.count(Step::Started) - 1;
        if home >= count { Ok(true) } else { Err(format!("{home} of {count} are home")) }
    })
    .await;
    lab.settled(SOON).await;
    service.stop().await;
    let entries = lab.record().entries;
    let starts = || {
        entries
            .iter()
            .filter(|entry| entry.step == Step::Started && entry.hop > 0)
            .map(|entry| entry.at)
    };
    let (first, last) = (starts().min().unwrap(), starts().max().unwrap());
    // A heartbeat was missed while the broker was frozen, so a connection may have been lost.
    lab.close(Allowed::losses(2, 100)).await.with_note(format!(
        "{count} due at once came within {:.1} s, up to {:.1} s late; the service grew from {early} to {most} KiB",
        (last - first) as f64 / 1000.0,
        (last - all_due) as f64 / 1000.0,
    ))
}
