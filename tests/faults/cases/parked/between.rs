//! SIGKILL of an operator's process between the steps of a replay: while it counts what matches,
//! waits for the verdict on its canary, or gives back what its filter leaves in the queue.

use std::time::Duration;

use rehop_testing::{Proxy, eventually};

use super::kills::{BEGUN, SLOWLY, Stage, finish, handle_all, lab};
use super::{IN_FLIGHT, MESSAGES};
use crate::evidence::lasts;
use crate::expectation::{Cause, Fate};
use crate::ground::{Ground, SOON};
use crate::ledger::{Account, Allowed};
use crate::operator::{Action, Manner};
use crate::service::Does;

pub(crate) async fn while_it_counts(ground: Ground) -> Account {
    let lab = lab(&ground, "op-counts").await;
    lab.park(MESSAGES, Does::Succeed).await;
    let (client, proxy) = (lab.client().await, Proxy::start(&lab.admin_url).await.unwrap());
    // The messages take about a minute, and the gaps between them are too short for the operator to
    // ask for the queue's depth again.
    proxy.rate(2_000);
    let action = Action::Replay(Manner { expect: Some(MESSAGES as u64), ..Manner::default() });
    let operator = lab.operator_with(&lab.behind(&proxy), &action);
    // More than its first subscription holds.
    let holds =
        async || client.depth(&lab.parked()).await.map(|ready| ready as usize + 1 < MESSAGES);
    eventually(SOON, "it holds what it counts", holds).await.unwrap();
    operator.kill().await;
    assert_eq!(proxy.accepted(), 1, "it has not opened the connection that publishes");
    drop(proxy);
    assert_eq!(client.depth(lab.work()).await.unwrap(), 0, "nothing is sent");
    finish(&lab, &action, [&lab.parked(), lab.work()], 0).await;
    handle_all(&lab).await;
    lab.close(Allowed::nothing()).await
}

pub(crate) async fn while_it_waits_for_a_verdict(ground: Ground) -> Account {
    const CANARY: u32 = 5;
    let lab = lab(&ground, "op-verdict").await;
    lab.park(MESSAGES, Does::Succeed).await;
    let action = Action::Replay(Manner { canary: true, ..Manner::default() });
    let operator = lab.operator_with(&lab.config, &action);
    lab.depth(lab.work(), CANARY).await;
    // Nobody consumes, so the verdict does not come. The acks of the canary do.
    lasts(Duration::from_millis(300)).await;
    operator.kill().await;
    assert_eq!(
        lab.client().await.depth(lab.work()).await.unwrap(),
        CANARY,
        "only the canary is sent"
    );
    finish(&lab, &Action::Replay(Manner::default()), [&lab.parked(), lab.work()], 0).await;
    handle_all(&lab).await;
    lab.close(Allowed::losses(1, CANARY as usize)).await
}

pub(crate) async fn while_it_gives_back(ground: Ground) -> Account {
    let mut sum = Account::default();
    // The operator gives back one subscription after the other, the first of which has one message.
    for back in 0..=2 {
        sum.add(&killed_giving_back(&ground, back).await);
    }
    sum.with_note("3 kills")
}

/// Half of the messages match. Everything that matches is sent, and at least so many of the others
/// are back when the process is killed.
async fn killed_giving_back(ground: &Ground, back: u32) -> Account {
    const HALF: usize = MESSAGES / 2;
    let lab = lab(ground, &format!("op-back-{back}")).await;
    for _ in 0..2 {
        let left = lab.park(HALF / 2, Does::Permanent).await;
        lab.expect(left, Fate::Parked(Cause::Permanent));
        lab.park(HALF / 2, Does::Succeed).await;
    }
    let action = Action::Replay(Manner {
        only: Some(r#"body.does == "succeed""#.to_owned()),
        ..Manner::default()
    });
    let stage = Stage::start(&lab, &action, SLOWLY).await;
    stage.reaches(lab.work(), BEGUN).await;
    // Each answer takes so long that the kill comes before the next subscription.
    stage.proxy.connection(0).unwrap().delay(Duration::from_millis(100));
    stage.reaches(lab.work(), HALF as u32).await;
    stage.reaches(&lab.parked(), back).await;
    let Stage { operator, proxy, .. } = stage;
    assert!(
        !operator.log().contains("replay ended"),
        "it has not given back everything: {}",
        operator.log()
    );
    operator.kill().await;
    drop(proxy);
    finish(&lab, &action, [&lab.parked(), lab.work()], HALF as u32).await;
    handle_all(&lab).await;
    lab.close(Allowed::losses(1, IN_FLIGHT)).await.of(&format!("{back} are back"))
}
