//! Messages that wait in their queue, or in the process that consumes it, and queues that are kept in order.

use std::collections::VecDeque;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rehop::settings::{Order, WaitStrategy};
use rehop::testing::{Proxy, eventually};

use crate::evidence::{all_broken, between};
use crate::expectation::{Cause, Place};
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::record::{Record, Step};
use crate::service::Does;

const PREFETCH: u16 = 20;
const KEYS: u64 = 5;

/// What orders messages by the key of their number.
const KEY: &str = "customer";

/// A nack delays a message, and a reject or a death does not: both are mixed here.
pub(crate) async fn native(ground: Ground) -> Account {
    if ground.is("3.10").await || ground.is("4.0").await {
        return Account::default().with_note("RabbitMQ has it from 4.3");
    }
    let mut lab = ground.lab("native").await;
    let work = lab.work_mut();
    (work.strategy, work.delays) = (WaitStrategy::Native, vec![300, 300]);
    (work.immediate, work.delivery_limit, work.prefetch) = (1, 20, PREFETCH);
    lab.declare().await;
    let supervised = lab.supervised();
    let mut rolling = VecDeque::from([lab.service()]);
    let load = lab.load(80);
    let rounds = ground.times(12, 100);
    for _ in 0..rounds {
        tokio::time::sleep(between(100, 600)).await;
        supervised.kill().await;
        rolling.push_back(lab.service());
        // What no handler has seen goes back at once, and spends none of its waits.
        rolling.pop_front().unwrap().stop().await;
    }
    lab.recovers(SOON / 2).await;
    load.stop().await;
    lab.settled(SOON).await;
    for service in &mut rolling {
        service.stop().await;
    }
    let deaths = supervised.stop().await;
    // What is under way when a subscription ends comes back as if it had waited.
    let allowed = Allowed::losses(deaths, PREFETCH.into()).spent_waits();
    lab.close(allowed).await.with_note(format!("{deaths} kills, {rounds} restarts"))
}

/// All that the process holds comes again, and its attempts begin again.
pub(crate) async fn killed_while_holding(ground: Ground) -> Account {
    let mut lab = ground.lab("holding").await;
    let work = lab.work_mut();
    (work.strategy, work.delays) = (WaitStrategy::InProcess, vec![1_500, 100]);
    lab.declare().await;
    let (held, rounds) = (10, ground.times(2, 6));
    lab.send(held, Does::Fail(2)).await;
    for round in 1..=rounds {
        let service = lab.service();
        lab.failed(round * held).await;
        service.kill().await;
    }
    let mut service = lab.service();
    lab.recovers(SOON / 2).await;
    lab.settled(SOON).await;
    service.stop().await;
    // A kill takes all the attempts that a message had before, and not just the last one.
    let attempts = lab.config.work().waits() as usize + 1;
    lab.close(Allowed::losses(rounds * attempts, held)).await.with_note(format!("{rounds} kills"))
}

/// The settings believe in half an hour, and the broker takes messages back after 10 s (on 3.10 and 4.0 at the next full minute). 4.3
/// does not count this.
pub(crate) async fn held_for_longer_than_the_broker_allows(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder.conf("consumer_timeout = 10000")).await;
    let mut lab = ground.lab_on("taken-back", broker);
    let work = lab.work_mut();
    (work.strategy, work.delays) = (WaitStrategy::InProcess, vec![2_000, 90_000]);
    (work.delivery_limit, work.handler_timeout) = (3, Duration::from_secs(2));
    lab.declare().await;
    let mut service = lab.service();
    let (long, short) = (5, 20);
    lab.send(long, Does::Fail(3)).await;
    lab.failed(2 * long).await;
    lab.send(short, Does::Fail(1)).await;
    // On 4.3 it is measured here, so on a busy machine it may seem longer.
    let names_the_setting = async || service.log().contains("set broker.consumer_timeout = \"1");
    eventually(SOON * 2, "the log says which setting to change", names_the_setting).await.unwrap();
    lab.settled(SOON * 3).await;
    // What waits for a short time only is not touched by a timeout that is known.
    lab.send(short, Does::Fail(1)).await;
    lab.settled(SOON).await;
    service.stop().await;
    // Each delivery that is taken back begins the attempts of its message again.
    let attempts = lab.config.work().waits() as usize + 1;
    // Whoever comes first to the limit parks a message: the broker, or the process that gives it back.
    let ends = [Cause::DeliveryLimit, Cause::Exhausted].map(Place::Parked);
    let allowed = Allowed::losses(5 * attempts, long + short);
    let allowed = ends.into_iter().fold(allowed, Allowed::or);
    lab.close(allowed).await
}

/// A queue that is ordered like this, with messages of five keys that succeed, are slow, and wait.
async fn ordered(ground: &Ground, name: &str, order: Order) -> Lab {
    let mut lab = ground.lab(name).await;
    let work = lab.work_mut();
    (work.strategy, work.order, work.delays) = (WaitStrategy::InProcess, order, vec![100, 200]);
    (work.immediate, work.delivery_limit, work.prefetch, work.concurrency) = (1, 100, PREFETCH, KEYS as u16);
    lab.declare().await;
    lab
}

/// Publishes these in their order, each with its key.
async fn send(lab: &Lab, kinds: impl IntoIterator<Item = Does>) {
    let messages = lab.offer(0, kinds);
    let ids: Vec<u64> = messages.iter().map(|(id, _)| *id).collect();
    let keyed = messages.into_iter().map(|(id, message)| message.header(KEY, id % KEYS));
    lab.client().await.publish_many(keyed).await.unwrap();
    lab.confirmed(&ids);
}

/// Attempts that began before those of every earlier message of the same key had succeeded.
fn out_of_order(record: &Record, key: impl Fn(u64) -> u64) -> Vec<String> {
    let mut of_key: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for entry in &record.entries {
        of_key.entry(key(entry.id)).or_default().insert(entry.id);
    }
    let (mut done, mut found) = (BTreeSet::new(), Vec::new());
    for entry in &record.entries {
        match entry.step {
            Step::Succeeded => {
                done.insert(entry.id);
            }
            Step::Started => {
                let before = of_key[&key(entry.id)].range(..entry.id);
                if let Some(open) = before.into_iter().find(|id| !done.contains(id)) {
                    found.push(format!("message {} was attempted before {open} had ended", entry.id));
                }
            }
            Step::Failed | Step::Discarded => {}
        }
    }
    found
}

const KINDS: [Does; 10] = [
    Does::Succeed,
    Does::Slow(10),
    Does::Fail(1),
    Does::Slow(5),
    Does::Succeed,
    Does::Slow(20),
    Does::Succeed,
    Does::Fail(2),
    Does::Slow(10),
    Does::Succeed,
];

pub(crate) async fn order_by_key(ground: Ground) -> Account {
    in_order(ground, "order-key", Order::Header(KEY.to_owned()), 600, |id| id % KEYS).await
}

pub(crate) async fn order_of_all(ground: Ground) -> Account {
    in_order(ground, "order-all", Order::Queue, 200, |_| 0).await
}

/// Two processes, of which one is active. Both are killed in turn, lose their connections, and are replaced.
async fn in_order(ground: Ground, name: &str, order: Order, messages: usize, key: impl Fn(u64) -> u64) -> Account {
    let mut lab = ordered(&ground, name, order).await;
    let proxy = Proxy::start(&lab.admin_url).await.unwrap();
    lab.config = lab.behind(&proxy);
    let rounds = ground.times(4, 20);
    send(&lab, KINDS.into_iter().cycle().take(messages * rounds / 4)).await;
    let mut faults = 0;
    let services = [lab.supervised(), lab.supervised()];
    for round in 0..rounds {
        lab.done((round + 1) * 10).await;
        tokio::time::sleep(between(50, 400)).await;
        services[round % 2].kill().await;
        lab.done((round + 1) * 20).await;
        services[(round + 1) % 2].kill().await;
        tokio::time::sleep(between(300, 800)).await;
        faults += 2 + all_broken(&proxy, Proxy::cut).await;
    }
    for service in services {
        service.stop().await;
    }
    let mut rolling = VecDeque::from([lab.service(), lab.service()]);
    for _ in 0..rounds {
        tokio::time::sleep(between(300, 800)).await;
        rolling.push_back(lab.service());
        rolling.pop_front().unwrap().stop().await;
        faults += 1;
    }
    lab.settled(SOON * 3).await;
    for service in &mut rolling {
        service.stop().await;
    }
    let mut account = lab.close(Allowed::losses(faults, PREFETCH.into())).await;
    account.breaches.extend(out_of_order(&lab.record(), key));
    account.with_note(format!("{faults} kills, cuts and restarts"))
}

/// Between messages of other keys, with a second process ready to take over.
pub(crate) async fn poison_in_order(ground: Ground) -> Account {
    let mut sum = Account::default();
    for order in [Order::Queue, Order::Header(KEY.to_owned())] {
        let mut lab = ordered(&ground, "order-poison", order).await;
        (lab.work_mut().delivery_limit, lab.work_mut().immediate) = (6, 1);
        let (client, parked) = (lab.client().await, lab.parked());
        client.delete_queue(lab.work()).await.unwrap();
        lab.declare().await;
        send(&lab, std::iter::repeat_n(Does::Succeed, 57)).await;
        // Alone with its key: those of its own that are behind it in the window would be parked with it.
        let poison = lab.offer(0, [Does::Poison(0)]).remove(0);
        client.publish(poison.1.header(KEY, "poison")).await.unwrap();
        lab.confirmed(&[poison.0]);
        send(&lab, std::iter::repeat_n(Does::Slow(5), 60)).await;
        let services = [lab.supervised(), lab.supervised()];
        lab.settled(SOON * 2).await;
        let mut deaths = 0;
        for service in services {
            deaths += service.stop().await;
        }
        assert!(deaths >= 1, "the poison has killed");
        assert_eq!(client.depth(&parked).await.unwrap(), 1, "only the poison is parked");
        sum.add(&lab.close(Allowed::losses(deaths, PREFETCH.into())).await.with_note(format!("{deaths} deaths")));
    }
    sum
}
