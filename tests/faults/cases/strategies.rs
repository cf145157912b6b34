//! Messages that wait in their queue, or in the process that consumes it.

use std::collections::VecDeque;
use std::time::Duration;

use rehop::settings::{QueueType, WaitStrategy};
use rehop_testing::eventually;

use crate::evidence::between;
use crate::expectation::{Cause, Fate};
use crate::ground::{Ground, SOON};
use crate::ledger::{Account, Allowed};
use crate::service::Does;

const PREFETCH: u16 = 20;

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
    load.stop().await;
    lab.settled(SOON * 3).await;
    lab.recovers(SOON).await;
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
    // What comes again is attempted one by one. All of it has to wait before the first is due.
    (work.strategy, work.delays) = (WaitStrategy::InProcess, vec![30_000, 100]);
    lab.declare().await;
    let (held, rounds) = (10, ground.times(2, 6));
    lab.send(held, Does::Fail(2)).await;
    for round in 1..=rounds {
        let service = lab.service();
        lab.failed(round * held).await;
        service.kill().await;
        assert!(
            lab.record().entries.iter().all(|entry| entry.hop == 0),
            "all wait when the process is killed"
        );
    }
    // The last process does not let them wait for that long.
    lab.work_mut().delays = vec![1_000, 100];
    let mut service = lab.service();
    lab.recovers(SOON).await;
    lab.settled(SOON).await;
    service.stop().await;
    // A kill takes the one attempt that each message has had. None has ended by then, so none can
    // end twice.
    lab.close(Allowed::losses(rounds, held).duplicates_at_most(0))
        .await
        .with_note(format!("{rounds} kills"))
}

/// The settings believe in half an hour, and the broker takes messages back after 10 s: on 3.10 and
/// 4.0 at the next full minute. 4.3 obeys the consumer, which asks for half an hour.
pub(crate) async fn held_for_longer_than_the_broker_allows(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder.conf("consumer_timeout = 10000")).await;
    let mut lab = ground.lab_on("taken-back", broker);
    let work = lab.work_mut();
    let obeys_consumers = ground.is("4.3").await;
    (work.strategy, work.delays) =
        (WaitStrategy::InProcess, vec![2_000, if obeys_consumers { 12_000 } else { 600_000 }]);
    (work.delivery_limit, work.handler_timeout) = (3, Duration::from_secs(2));
    lab.declare().await;
    lab.work_mut().existing = Some(QueueType::Quorum);
    let mut service = lab.service();
    let (long, short) = (5, 20);
    lab.send(long, Does::Fail(3)).await;
    lab.failed(2 * long).await;
    lab.send(short, Does::Fail(1)).await;
    let names_the_setting = async || service.log().contains("set broker.consumer_timeout = \"1");
    if !obeys_consumers {
        eventually(SOON * 2, "the log says which setting to change", names_the_setting)
            .await
            .unwrap();
    }
    lab.settled(SOON * 3).await;
    assert_eq!(names_the_setting().await, !obeys_consumers);
    // What waits for a short time only is not touched by a timeout that is known.
    lab.send(short, Does::Fail(1)).await;
    lab.settled(SOON).await;
    service.stop().await;
    // Each delivery that is taken back begins the attempts of its message again.
    let attempts = lab.config.work().waits() as usize + 1;
    // 3.10 and 4.0 close the channel, once, because then the timeout is known. Each handler may
    // have handled a message by then whose ack does not arrive any more.
    let unacked = if obeys_consumers { 0 } else { usize::from(lab.config.work().concurrency) };
    let allowed = Allowed::losses(5, long + short).restarting(attempts).duplicates_at_most(unacked);
    // Whoever comes first to the limit parks a message: the broker, or the process that gives it
    // back.
    let ends = [Cause::DeliveryLimit, Cause::Exhausted].map(Fate::Parked);
    let allowed = ends.into_iter().fold(allowed, Allowed::or);
    lab.close(allowed).await
}
