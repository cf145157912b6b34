//! Queues that are kept in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use rehop::settings::{Order, WaitStrategy};
use rehop_testing::{Client, Proxy, Received, eventually};

use super::cluster::{avoid, balancers, leader_of};
use crate::evidence::{all_broken, between, replaced};
use crate::expectation::Cause;
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::record::{Record, Step};
use crate::service::{Does, Service};

const PREFETCH: u16 = 20;
const KEYS: u64 = 5;

/// What orders messages by the key of their number.
const KEY: &str = "customer";

/// A queue that is ordered like this, for messages of five keys that succeed, are slow, wait, and
/// are parked.
async fn ordered(ground: &Ground, name: &str, order: Order) -> Lab {
    keep_in_order(ground.lab(name).await, order).await
}

async fn keep_in_order(mut lab: Lab, order: Order) -> Lab {
    let work = lab.work_mut();
    (work.strategy, work.order, work.delays) = (WaitStrategy::InProcess, order, vec![100, 200]);
    (work.immediate, work.delivery_limit, work.prefetch, work.concurrency) =
        (1, 100, PREFETCH, KEYS as u16);
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

/// Closes the lab, and adds to its account what is wrong with the order of the messages that have
/// the same key.
async fn close(lab: &Lab, allowed: Allowed, key: impl Fn(u64) -> u64) -> Account {
    let (mut account, messages) = lab.close_and_look(allowed).await;
    let (record, parked) = (lab.record(), parked(&messages));
    let waited =
        record.entries.iter().filter(|entry| entry.hop > 0).map(|entry| key(entry.id)).collect();
    account.breaches.extend(keys_without("waited", &record, waited, &key));
    account.breaches.extend(keys_without(
        "was parked",
        &record,
        parked.keys().copied().map(&key).collect(),
        &key,
    ));
    account.breaches.extend(out_of_order(&record, &parked, key));
    account
}

/// How many copies of each message are parked because it failed for good.
fn parked(messages: &[Received]) -> BTreeMap<u64, usize> {
    let mut parked: BTreeMap<u64, usize> = BTreeMap::new();
    for message in messages.iter().filter(|message| Cause::of(message) == Cause::Permanent) {
        let id = message.properties.message_id.as_deref().and_then(|id| id.parse::<u64>().ok());
        *parked.entry(id.expect("the lab numbers its messages")).or_default() += 1;
    }
    parked
}

/// With a key of which no message has failed, the case would prove nothing.
fn keys_without(
    what: &str,
    record: &Record,
    with: BTreeSet<u64>,
    key: impl Fn(u64) -> u64,
) -> Option<String> {
    let all: BTreeSet<u64> = record.entries.iter().map(|entry| key(entry.id)).collect();
    let without: Vec<_> = all.difference(&with).collect();
    (!without.is_empty()).then(|| format!("no message with one of the keys {without:?} {what}"))
}

/// Attempts that began before every earlier message of the same key was handled or parked. `parked`
/// counts the copies of each message in the parked queue.
pub(super) fn out_of_order(
    record: &Record,
    parked: &BTreeMap<u64, usize>,
    key: impl Fn(u64) -> u64,
) -> Vec<String> {
    let ends = ends(record, parked);
    let (mut open_of_key, mut found): (BTreeMap<u64, BTreeSet<u64>>, _) =
        (BTreeMap::new(), Vec::new());
    for entry in &record.entries {
        open_of_key.entry(key(entry.id)).or_default().insert(entry.id);
    }
    for (index, entry) in record.entries.iter().enumerate() {
        let open = open_of_key.entry(key(entry.id)).or_default();
        if entry.step == Step::Started
            && let Some(before) = open.range(..entry.id).next()
        {
            found.push(format!("message {} was attempted before {before} had ended", entry.id));
        }
        if ends.get(&entry.id) == Some(&index) {
            open.remove(&entry.id);
        }
    }
    found
}

/// The entry with which each message has ended, by its index.
fn ends(record: &Record, parked: &BTreeMap<u64, usize>) -> BTreeMap<u64, usize> {
    let mut ends = BTreeMap::new();
    for (index, entry) in record.entries.iter().enumerate() {
        match (entry.step, parked.get(&entry.id)) {
            // Its last attempt has parked it: if an earlier one had, there would be two copies.
            (Step::Failed, Some(1)) => {
                ends.insert(entry.id, index);
            }
            (Step::Succeeded | Step::Discarded, _) | (Step::Failed, Some(_)) => {
                ends.entry(entry.id).or_insert(index);
            }
            (Step::Started | Step::Failed, _) => {}
        }
    }
    ends
}

const KINDS: [Does; 11] = [
    Does::Succeed,
    Does::Slow(10),
    Does::Fail(1),
    Does::Slow(5),
    Does::Succeed,
    Does::Permanent,
    Does::Slow(20),
    Does::Succeed,
    Does::Fail(2),
    Does::Slow(10),
    Does::Succeed,
];

// Otherwise a kind would always have the same key.
const _: () = assert!(!(KINDS.len() as u64).is_multiple_of(KEYS));

pub(crate) async fn by_key(ground: Ground) -> Account {
    in_order(ground, "order-key", Order::Header(KEY.to_owned()), 250, |id| id % KEYS).await
}

pub(crate) async fn of_all(ground: Ground) -> Account {
    in_order(ground, "order-all", Order::Queue, 50, |_| 0).await
}

/// Two processes, of which one is active. Both are killed in turn, lose their connections, and are
/// replaced. Each round brings as many new `messages` as take about two seconds, so that no fault
/// comes to an empty queue.
async fn in_order(
    ground: Ground,
    name: &str,
    order: Order,
    messages: usize,
    key: impl Fn(u64) -> u64,
) -> Account {
    let mut lab = ordered(&ground, name, order).await;
    let proxy = Proxy::start(&lab.admin_url).await.unwrap();
    lab.config = lab.behind(&proxy);
    let rounds = ground.times(4, 20);
    let services = [lab.supervised(), lab.supervised()];
    for round in 0..rounds {
        send(&lab, KINDS.into_iter().cycle().take(messages)).await;
        lab.done((round + 1) * 10).await;
        tokio::time::sleep(between(50, 400)).await;
        services[round % 2].kill().await;
        lab.done((round + 1) * 20).await;
        services[(round + 1) % 2].kill().await;
        tokio::time::sleep(between(300, 800)).await;
        all_broken(&proxy, Proxy::cut).await;
    }
    for service in services {
        service.stop().await;
    }
    let mut rolling = VecDeque::from([lab.service(), lab.service()]);
    for _ in 0..rounds {
        send(&lab, KINDS.into_iter().cycle().take(messages)).await;
        tokio::time::sleep(between(300, 800)).await;
        rolling.push_back(lab.service());
        rolling.pop_front().unwrap().stop().await;
    }
    lab.settled(SOON * 3).await;
    for service in &mut rolling {
        service.stop().await;
    }
    // Only the active process holds messages. A kill, or a cut of all connections, finds it once at
    // most.
    let (kills, cuts, restarts) = (2 * rounds, rounds, rounds + 2);
    let held = held(&lab);
    // What it has handled and not yet acked ends twice, and may be all that it holds. A process
    // that stops waits for its acks.
    let allowed = Allowed::losses(kills + cuts + restarts, held).restarting(attempts(&lab));
    let account = close(&lab, allowed.duplicates_at_most((kills + cuts) * held), key).await;
    account.with_note(format!("{kills} kills, {cuts} cuts, {restarts} restarts"))
}

/// Between messages of other keys, with a second process ready to take over.
pub(crate) async fn poison(ground: Ground) -> Account {
    let mut sum = Account::default();
    for order in [Order::Queue, Order::Header(KEY.to_owned())] {
        let mut lab = ordered(&ground, "order-poison", order).await;
        (lab.work_mut().delivery_limit, lab.work_mut().immediate) = (6, 1);
        let (client, parked) = (lab.client().await, lab.parked());
        client.delete_queue(lab.work()).await.unwrap();
        lab.declare().await;
        send(&lab, std::iter::repeat_n(Does::Succeed, 57)).await;
        // Alone with its key: those of its own that are behind it in the window would be parked
        // with it.
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
        sum.add(
            &lab.close(Allowed::losses(deaths, held(&lab)))
                .await
                .with_note(format!("{deaths} deaths")),
        );
    }
    sum
}

/// A deploy that narrows the window, and then one that widens it again. Between them what came back
/// is settled: what comes back twice to windows that differ may be taken in another order.
pub(crate) async fn other_windows(ground: Ground) -> Account {
    const NARROW: u16 = 5;
    const PER_ROUND: usize = 1000;
    let mut lab = ordered(&ground, "order-windows", Order::Header(KEY.to_owned())).await;
    let rounds = ground.times(2, 8);
    send(&lab, KINDS.into_iter().cycle().take(PER_ROUND * rounds)).await;
    let client = lab.client().await;
    let mut old = lab.service();
    for round in 0..rounds {
        goes_on(&lab).await;
        let narrows = round % 2 == 0;
        lab.work_mut().prefetch = if narrows { NARROW } else { PREFETCH };
        let new = lab.service();
        consumes(&new).await;
        assert!(
            client.depth(lab.work()).await.unwrap() > 0,
            "there is a backlog, so the window is full"
        );
        old.stop().await;
        assert!(
            handed_back(&old) > 0 || !narrows,
            "the wider window held messages that no handler had begun"
        );
        old = new;
    }
    goes_on(&lab).await;
    lab.settled(SOON * 3).await;
    old.stop().await;
    // A process that stops waits for its acks, so what it hands back has not ended.
    let allowed =
        Allowed::losses(rounds, PREFETCH.into()).restarting(attempts(&lab)).duplicates_at_most(0);
    let account = close(&lab, allowed, |id| id % KEYS).await;
    account.with_note(format!("{rounds} deploys"))
}

/// As the service says when it stops.
fn handed_back(service: &Service) -> u64 {
    let log = service.log();
    let count = log
        .split("handed back ")
        .nth(1)
        .and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    count
        .and_then(|count| count.parse().ok())
        .expect("the service says how many messages it has handed back")
}

/// How many messages the active process holds at most: a single one, if all are in one order.
fn held(lab: &Lab) -> usize {
    lab.config.settings().max_unsettled(lab.work()).unwrap().into()
}

/// How many attempts a message may have had that waits in a process. A process that ends forgets
/// them, and the message begins again.
fn attempts(lab: &Lab) -> usize {
    let work = lab.config.work();
    (work.waits() as usize + 1) * (work.immediate as usize + 1)
}

/// Waits until the process consumes, or stands by.
async fn consumes(service: &Service) {
    let consumes = async || service.log().contains("consuming queue=");
    eventually(SOON, "the process consumes, or stands by", consumes).await.unwrap();
}

/// Waits until twice as many messages as a process holds have been handled. By then what came back
/// from another process was taken.
async fn goes_on(lab: &Lab) {
    lab.done(lab.count(Step::Succeeded) + 2 * usize::from(PREFETCH)).await;
}

/// Since 4.3 the broker waits a minute for the consumers of a dead node. If the active one is among
/// them, nothing is delivered until then.
const FAILOVER: Duration = SOON;

/// Two processes at two nodes of a cluster. The leader of the work queue is killed again and again;
/// the first time it is also the node of the process that is active.
pub(crate) async fn leader_dies(ground: Ground) -> Account {
    const PER_ROUND: usize = 1500;
    let cluster = ground.cluster(3).await;
    let balancers = balancers(&cluster).await;
    let admin = balancers[2].url_for(&cluster.amqp_url(2)).unwrap();
    let mut lab = ground.lab_at("order-leader", &admin);
    lab.notices_silence();
    let lab = keep_in_order(lab, Order::Header(KEY.to_owned())).await;
    let mut leader = leader_of(&cluster, lab.work(), None).await;
    balancers[0].retarget(&cluster.amqp_url(leader)).unwrap();
    balancers[1].retarget(&cluster.amqp_url((leader + 1) % cluster.nodes())).unwrap();
    let mut services = Vec::new();
    for balancer in &balancers[..2] {
        let service = lab.service_with(&lab.behind(balancer));
        consumes(&service).await;
        services.push(service);
    }
    let (rounds, mut killed) = (ground.times(2, 4), Vec::new());
    for round in 0..rounds {
        let done = lab.count(Step::Succeeded);
        send(&lab, KINDS.into_iter().cycle().take(PER_ROUND)).await;
        lab.done(done + usize::from(PREFETCH)).await;
        let accepted = balancers[0].accepted();
        avoid(&cluster, &balancers, leader);
        // Not afterwards: the kill takes a while, and handlers end meanwhile.
        let are_begun = async || lab.in_flight() > 0;
        eventually(SOON, "handlers have begun messages that are not settled", are_begun)
            .await
            .unwrap();
        let in_flight = lab.in_flight();
        cluster.kill(leader).await.unwrap();
        let over = Instant::now();
        assert!(Client::connect(&cluster.amqp_url(leader)).await.is_err(), "node {leader} is down");
        if round == 0 {
            replaced(&balancers[0], accepted).await;
        }
        let wanted = lab.count(Step::Succeeded) + 2 * usize::from(PREFETCH);
        lab.recovers_when(over, FAILOVER, "the queue goes on", async || {
            let done = lab.count(Step::Succeeded);
            if done >= wanted { Ok(true) } else { Err(format!("{done} of {wanted} are handled")) }
        })
        .await;
        killed.push(format!("{leader} with {in_flight} in flight"));
        leader_of(&cluster, lab.work(), Some(leader)).await;
        cluster.start_node(leader).await.unwrap();
        cluster.wait_until_formed().await.unwrap();
        leader = leader_of(&cluster, lab.work(), None).await;
    }
    lab.settled(SOON * 4).await;
    for service in &mut services {
        service.stop().await;
    }
    // Each kill is seen by both processes: by its own node's end, or by a new leader.
    let allowed = Allowed::losses(rounds * 2 * 2, PREFETCH.into()).restarting(attempts(&lab));
    let account = close(&lab, allowed, |id| id % KEYS).await;
    account.with_note(format!("killed: {}", killed.join(", ")))
}
