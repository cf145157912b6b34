//! SIGKILL of an operator's process at each step of a replay, a discard, a restore and an import.
//! The next operator finishes, and nothing is lost.

use std::time::Duration;

use rehop_operator::parked::{DiscardRequest, Exported, Filter};
use rehop_testing::{Client, Proxy, ProxyConnection, eventually};

use super::{IN_FLIGHT, MESSAGES};
use crate::evidence::{between, lasts, quiet};
use crate::expectation::{Cause, Fate};
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::operator::{Action, Manner};
use crate::service::{Does, Service};

/// What the process is doing when it is killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// Copies are sent, and do not arrive.
    Send,
    /// Copies have arrived, and are not confirmed.
    Confirm,
    /// Copies are confirmed, and the acks of their originals do not arrive.
    Ack,
    /// It was told to stop, and the broker's answers do not arrive.
    Stop,
}

/// How many copies are elsewhere before the fault.
pub(super) const BEGUN: u32 = 50;
/// So many bytes a second of the operator's copies pass that it is always amidst them.
pub(super) const SLOWLY: u64 = 15_000;

/// An operator behind a proxy: its connections are number 0, which consumes, and 1, which
/// publishes.
pub(super) struct Stage {
    client: Client,
    pub(super) operator: Service,
    pub(super) proxy: Proxy,
}

impl Stage {
    pub(super) async fn start(lab: &Lab, action: &Action, bytes_per_second: u64) -> Self {
        let proxy = Proxy::start(&lab.admin_url).await.unwrap();
        // From the first byte: an operator can send everything before anybody has seen its second
        // connection.
        proxy.rate(SLOWLY.min(4 * bytes_per_second));
        let operator = lab.operator_with(&lab.behind(&proxy), action);
        eventually(SOON, "the operator has both its connections", async || proxy.accepted() >= 2)
            .await
            .unwrap();
        proxy.connection(0).unwrap().rate(0);
        proxy.connection(1).unwrap().rate(bytes_per_second);
        Self { client: lab.client().await, operator, proxy }
    }

    async fn depth(&self, queue: &str) -> u32 {
        self.client.depth(queue).await.unwrap_or(0)
    }

    pub(super) async fn reaches(&self, target: &str, depth: u32) {
        let reached = async || match self.depth(target).await {
            found if found >= depth => Ok(true),
            found => Err(format!("{found} are there: {}", self.operator.log())),
        };
        eventually(SOON, &format!("{depth} copies are in {target}"), reached).await.unwrap();
    }

    /// Holds back what the step waits for, and kills the process then. Returns how many copies
    /// there are.
    async fn kill(mut self, step: Step, target: &str) -> u32 {
        let (consuming, publishing) =
            (self.proxy.connection(0).unwrap(), self.proxy.connection(1).unwrap());
        match step {
            Step::Send => {
                publishing.pause_to_broker();
                quiet(ProxyConnection::bytes_to_client, &publishing).await;
            }
            Step::Confirm => {
                publishing.pause_to_client();
                quiet(ProxyConnection::bytes_to_broker, &publishing).await;
            }
            Step::Ack => {
                consuming.pause_to_broker();
                quiet(ProxyConnection::bytes_to_client, &publishing).await;
            }
            Step::Stop => {
                consuming.pause_to_client();
                self.operator.terminate().await;
                quiet(ProxyConnection::bytes_to_client, &publishing).await;
            }
        }
        // What was confirmed before is acked by now, unless its ack is held.
        lasts(Duration::from_millis(300)).await;
        let moved = self.depth(target).await;
        assert!(moved < MESSAGES as u32, "it is killed before its end: {moved} are moved");
        self.operator.kill().await;
        moved
    }
}

pub(super) async fn lab(ground: &Ground, name: &str) -> Lab {
    let mut lab = ground.lab(name).await;
    // The bytes held back do not delay a heartbeat too long.
    lab.config.heartbeat = Duration::from_secs(60);
    // Longer than the operator's process is left alone.
    lab.config.answer = SOON;
    lab.declare().await;
    lab
}

/// The next operators finish, and leave so many messages where they are. One may begin before the
/// broker has taken everything back from the one before.
pub(super) async fn finish(lab: &Lab, action: &Action, [from, to]: [&str; 2], left: u32) {
    let client = lab.client().await;
    let kept = async || {
        let (there, moved) =
            (client.depth(from).await.unwrap(), client.depth(to).await.unwrap_or(0));
        if (there + moved) as usize >= MESSAGES {
            Ok(true)
        } else {
            Err(format!("{there} and {moved}"))
        }
    };
    eventually(SOON, "every message is in one of the two queues", kept).await.unwrap();
    eventually(SOON, "the operators finish", async || {
        lab.operator_ends_or_is_busy(action).await;
        // Some may come back only now: while there are duplicates, the numbers before do not tell.
        lasts(Duration::from_secs(1)).await;
        client.depth(from).await.map(|there| there == left)
    })
    .await
    .unwrap();
}

pub(super) async fn handle_all(lab: &Lab) {
    let mut service = lab.service();
    lab.settled(SOON * 5).await;
    service.stop().await;
}

/// How many duplicates a kill at a step may leave.
fn check(step: Step, account: &Account, in_flight: usize) {
    let duplicates = account.duplicates;
    // A copy that exists beside its original is a duplicate.
    let right = match step {
        // One message at a time leaves moments between them.
        Step::Confirm | Step::Ack => duplicates <= in_flight && (duplicates > 0 || in_flight == 1),
        // Quorum queues lose the last acks of a connection that ends right after them (4.3).
        Step::Send | Step::Stop => duplicates <= in_flight,
    };
    assert!(right, "{duplicates} duplicates: {account}");
}

/// An operator who moves all messages from one queue to another is killed at this step, and the
/// next one finishes.
async fn killed(lab: &Lab, step: Step, action: &Action, [from, to]: [&str; 2]) {
    // After SIGTERM the operator still sends what is under way. The line is slow enough that
    // messages are left when a busy machine delivers the signal late.
    let bytes_per_second = if step == Step::Stop { SLOWLY / 6 } else { SLOWLY };
    let stage = Stage::start(lab, action, bytes_per_second).await;
    stage.reaches(to, BEGUN).await;
    stage.kill(step, to).await;
    finish(lab, action, [from, to], 0).await;
}

/// Closes the account of one kill.
async fn close(lab: &Lab, step: Step, in_flight: usize) -> Account {
    let account = lab.close(Allowed::losses(1, in_flight)).await.of(&format!("{step:?}"));
    check(step, &account, in_flight);
    account
}

/// Each step with the default number in flight, and those that leave duplicates with one in flight.
const STEPS: [(Step, Option<u16>); 6] = [
    (Step::Send, None),
    (Step::Confirm, None),
    (Step::Ack, None),
    (Step::Stop, None),
    (Step::Confirm, Some(1)),
    (Step::Ack, Some(1)),
];

pub(crate) async fn in_a_replay(ground: Ground) -> Account {
    let mut sum = Account::default();
    for (step, in_flight) in STEPS {
        let lab = lab(&ground, &format!("op-replay-{step:?}")).await;
        lab.park(MESSAGES, Does::Succeed).await;
        let action = Action::Replay(Manner { in_flight, ..Manner::default() });
        killed(&lab, step, &action, [&lab.parked(), lab.work()]).await;
        handle_all(&lab).await;
        sum.add(&close(&lab, step, in_flight.map_or(IN_FLIGHT, usize::from)).await);
    }
    sum.with_note("6 kills")
}

pub(crate) async fn in_a_discard(ground: Ground) -> Account {
    let mut sum = Account::default();
    for (step, in_flight) in STEPS {
        let lab = lab(&ground, &format!("op-discard-{step:?}")).await;
        let ids = lab.park(MESSAGES, Does::Succeed).await;
        lab.expect(ids, Fate::Discarded);
        killed(&lab, step, &Action::Discard { in_flight }, [&lab.parked(), &lab.discarded()]).await;
        sum.add(&close(&lab, step, in_flight.map_or(IN_FLIGHT, usize::from)).await);
    }
    sum.with_note("6 kills")
}

pub(crate) async fn in_a_restore(ground: Ground) -> Account {
    let mut sum = Account::default();
    for step in [Step::Send, Step::Confirm, Step::Ack, Step::Stop] {
        let lab = lab(&ground, &format!("op-restore-{step:?}")).await;
        let ids = lab.park(MESSAGES, Does::Succeed).await;
        lab.expect(ids, Fate::Parked(Cause::Permanent));
        lab.operator()
            .discard(&DiscardRequest::default(), |_| {}, std::future::pending())
            .await
            .unwrap();
        lab.depth(&lab.discarded(), MESSAGES as u32).await;
        killed(&lab, step, &Action::Restore, [&lab.discarded(), &lab.parked()]).await;
        sum.add(&close(&lab, step, IN_FLIGHT).await);
    }
    sum.with_note("4 kills")
}

/// An import acks nothing, so nothing of it can be lost. What the queue has already is left out the
/// next time.
pub(crate) async fn in_an_import(ground: Ground) -> Account {
    let mut sum = Account::default();
    for step in [Step::Send, Step::Confirm] {
        let lab = lab(&ground, &format!("op-import-{step:?}")).await;
        let ids = lab.park(MESSAGES, Does::Succeed).await;
        lab.expect(ids, Fate::Parked(Cause::Permanent));
        let (client, lines) = (lab.client().await, lab.file("exported.jsonl"));
        let mut text = String::new();
        let export = |message: Exported| {
            text += &serde_json::to_string(&message).unwrap();
            text.push('\n');
            true
        };
        let exported = lab.operator().export(&Filter::default(), None, export).await.unwrap();
        assert_eq!(exported as usize, MESSAGES);
        std::fs::write(&lines, text).unwrap();
        assert_eq!(client.purge(&lab.parked()).await.unwrap() as usize, MESSAGES);
        let action = Action::Import { lines };
        let stage = Stage::start(&lab, &action, SLOWLY).await;
        stage.reaches(&lab.parked(), BEGUN).await;
        stage.kill(step, &lab.parked()).await;
        lab.operator_ends(&action).await;
        let account = lab.close(Allowed::losses(1, IN_FLIGHT)).await.of(&format!("{step:?}"));
        sum.add(&account);
    }
    sum.with_note("2 kills")
}

/// At full speed, so that the kills come at any moment. Those that meet an operator between its
/// first and its last message count.
pub(crate) async fn at_random(ground: Ground) -> Account {
    let lab = lab(&ground, "op-random").await;
    let (client, wanted) = (lab.client().await, ground.times(5, 100));
    let (mut kills, mut amidst) = (0, 0);
    while amidst < wanted {
        assert!(kills < 20 * wanted, "{amidst} of {kills} kills met an operator at work");
        let parked = client.depth(&lab.parked()).await.unwrap();
        if parked < 1_000 {
            lab.park(1_000, Does::Succeed).await;
        }
        let (_, before) = lab.ready(&client, lab.work()).await;
        let mut operator = lab.operator_with(&lab.config, &Action::Replay(Manner::default()));
        // It ends at once if the broker still takes the one before it for one at work.
        let begun = async || match operator.is_running() {
            true => client.depth(lab.work()).await.map(|depth| depth > before),
            false => Ok(true),
        };
        eventually(SOON, "the first message is sent", begun).await.unwrap();
        lasts(between(0, 150)).await;
        if operator.kill_if_running().await {
            kills += 1;
            amidst += usize::from(client.depth(lab.work()).await.unwrap() > before);
        }
    }
    eventually(SOON, "the operators finish", async || {
        lab.operator_ends_or_is_busy(&Action::Replay(Manner::default())).await;
        lasts(Duration::from_secs(1)).await;
        client.depth(&lab.parked()).await.map(|left| left == 0)
    })
    .await
    .unwrap();
    handle_all(&lab).await;
    lab.close(Allowed::losses(kills, IN_FLIGHT)).await.with_note(format!("{kills} kills"))
}
