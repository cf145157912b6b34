//! Large messages, and many. Operators need little memory for them.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use rehop_testing::{Client, Publish};
use serde_json::json;

use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::Account;
use crate::operator::{Action, Manner};

/// What an operator needed for an action.
struct Need {
    time: Duration,
    /// By how much it grew at most.
    megabytes: usize,
    log: String,
}

impl Need {
    fn has_listed(&self, count: usize) -> bool {
        self.says(&format!("looked at {count}"))
    }

    /// Whether a line of its log ends like this.
    fn says(&self, end: &str) -> bool {
        self.log.lines().any(|line| line.ends_with(end))
    }
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} s and {} MB", self.time.as_secs_f64(), self.megabytes)
    }
}

impl Lab {
    /// A parked message of this size, whose body depends on its number.
    fn resting(&self, number: usize, size: usize) -> Publish {
        let message = Publish::to(self.exchange("park"), self.work()).body(body(number, size));
        message.header("rehop-reason", "permanent").message_id(number.to_string())
    }

    /// A stray message of this size. With its number, its kind changes and the queue that it names,
    /// among more than a list tells apart.
    fn lost(&self, number: usize, size: usize) -> Publish {
        const KINDS: usize = 5_000;
        // Numbers would count as one kind.
        let name: String = (number % KINDS)
            .to_string()
            .bytes()
            .map(|digit| char::from(digit - b'0' + b'a'))
            .collect();
        let text = format!("no {name} left");
        let failures = json!([{ "at": 1_700_000_000_000i64, "attempt": 8, "class": "stock", "message": text }]);
        Publish::to(self.stray(), "order.created")
            .body(body(number, size))
            .message_id(number.to_string())
            .header("rehop-reason", "exhausted")
            .header("rehop-errors", failures.to_string())
            .header("rehop-return-to", format!("{}.{name}", self.work()))
    }

    /// Runs an operator to its end, which has to be a success.
    async fn need(&self, action: &Action) -> Need {
        let begun = Instant::now();
        let mut operator = self.operator_with(&self.config, action);
        assert!(
            operator.ended(10 * SOON).await.unwrap(),
            "the operator succeeds: {}",
            operator.log()
        );
        let (time, log) = (begun.elapsed(), operator.log());
        let grown =
            log.split("memory grew by ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let megabytes = grown.parse::<usize>().unwrap() / 1024;
        Need { time, megabytes, log }
    }
}

fn body(number: usize, size: usize) -> Vec<u8> {
    vec![b'a' + (number % 26) as u8; size]
}

/// Fifty bodies of 8 MiB, or in the long form of 16 MiB, which is the most that RabbitMQ 4.x takes
/// by default. All of them may be in flight by their number, so only their bytes keep most of them
/// out of memory.
pub(crate) async fn large_bodies(ground: Ground) -> Account {
    const COUNT: usize = 50;
    const AT_ONCE: usize = 5;
    /// 64 MiB, in this process and once more in the frames that carry their copies, and as much
    /// again for the allocator.
    const MOST: usize = 4 * 64;
    let size = ground.times(8, 16) << 20;
    let broker = ground.own_broker(|builder| builder).await;
    let mut lab = ground.lab_on("op-large", broker);
    (lab.config.answer, lab.config.heartbeat) = (SOON, Duration::from_secs(15));
    lab.declare().await;
    let client = lab.client().await;
    for first in (0..COUNT).step_by(AT_ONCE) {
        client
            .publish_many((first..first + AT_ONCE).map(|number| lab.resting(number, size)))
            .await
            .unwrap();
    }
    lab.depth(&lab.parked(), COUNT as u32).await;
    let mut needs = Vec::new();
    for (action, queue) in [
        (Action::List, lab.parked()),
        (Action::Discard { in_flight: None }, lab.discarded()),
        (Action::ReplayDiscarded(Manner::default()), lab.work().to_owned()),
    ] {
        let need = lab.need(&action).await;
        lab.depth(&queue, COUNT as u32).await;
        assert!(action != Action::List || need.has_listed(COUNT), "all are listed: {}", need.log);
        assert!(need.megabytes < MOST, "{action:?}: {need}");
        needs.push(need.to_string());
    }
    let first = client.get(lab.work()).await.unwrap().unwrap();
    assert!(first.body == body(0, size), "the first message is what it was");
    let [listed, discarded, replayed] = &needs[..] else { panic!("{needs:?}") };
    let note = format!("listed in {listed}, discarded in {discarded}, replayed in {replayed}");
    Account::default().with_note(note)
}

/// What the page about parked messages says of lists.
pub(crate) async fn a_hundred_thousand(ground: Ground) -> Account {
    let lab = with_stray_messages(&ground, 100_000, 1_024).await;
    // On a busy machine one look may be slow, and one that reads late holds more. None of three
    // would be, if it always were.
    let mut needs = Vec::new();
    for _ in 0..3 {
        let need = list(&lab, 100_000).await;
        let is_enough = need.time < Duration::from_secs(60) && need.megabytes < 50;
        needs.push(need.to_string());
        if is_enough {
            // Whoever uses this broker next has room.
            lab.client().await.delete_queue(&lab.stray()).await.unwrap();
            return Account::default().with_note(needs.join(", then "));
        }
    }
    panic!("each look takes too much: {needs:?}");
}

/// What the page about parked messages says of long lists.
pub(crate) async fn a_million(ground: Ground) -> Account {
    let lab = with_stray_messages(&ground, 1_000_000, 200).await;
    let need = list(&lab, 1_000_000).await;
    lab.client().await.delete_queue(&lab.stray()).await.unwrap();
    assert!(need.megabytes < 100, "{need}");
    Account::default().with_note(need.to_string())
}

async fn with_stray_messages(ground: &Ground, count: usize, size: usize) -> Lab {
    const CLIENTS: usize = 4;
    let mut lab = ground.lab("op-many").await;
    lab.config.answer = Duration::from_secs(120);
    lab.declare().await;
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(lab.client().await);
    }
    let of = &lab;
    let publishing = clients.iter().enumerate().map(|(first, client)| {
        client
            .publish_many((first..count).step_by(CLIENTS).map(move |number| of.lost(number, size)))
    });
    try_join_all(publishing).await.unwrap();
    lab.depth(&lab.stray(), count as u32).await;
    lab
}

async fn list(lab: &Lab, count: usize) -> Need {
    let need = lab.need(&Action::ListStray).await;
    assert!(need.has_listed(count), "all are listed: {}", need.log);
    assert!(need.says("1001 kinds and 1000 queues"), "as many as are told apart: {}", need.log);
    lab.depth(&lab.stray(), count as u32).await;
    need
}
