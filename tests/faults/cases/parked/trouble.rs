//! Replays under trouble.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use rehop_operator::parked::{
    DiscardRequest, ImportRequest, ListRequest, ParkedError, Progress, RampSettings, Stop,
};
use rehop_testing::{Client, Publish, eventually};
use serde_json::json;

use super::{IN_FLIGHT, MESSAGES};
use crate::evidence::{Policy, Witness};
use crate::expectation::{Cause, Fate};
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::operator::everything;
use crate::record::Step;
use crate::service::Does;

async fn lab_with(ground: &Ground, name: &str, does: Does) -> Lab {
    let mut lab = ground.lab(name).await;
    lab.config.answer = SOON;
    lab.declare().await;
    lab.park(MESSAGES, does).await;
    lab
}

/// How many messages are parked and how many are sent, as soon as each is in one of the two queues.
/// The broker may still be taking back what the operator held.
async fn parked_and_sent(lab: &Lab, client: &Client) -> (u32, u32) {
    let mut found = (0, 0);
    eventually(SOON, "each message is in one of the two queues", async || {
        found = lab.ready(client, lab.work()).await;
        let (parked, sent) = found;
        if (parked + sent) as usize == MESSAGES {
            Ok(true)
        } else {
            Err(format!("{sent} sent, {parked} parked"))
        }
    })
    .await
    .unwrap();
    found
}

/// Everything is sent, by operators in this process, and handled.
async fn finish(lab: &Lab, allowed: Allowed) -> Account {
    let client = lab.client().await;
    eventually(SOON, "everything is sent", async || {
        if let Err(error) =
            lab.operator().replay(&everything(), |_| {}, std::future::pending()).await
        {
            return Err(error.to_string());
        }
        client.depth(&lab.parked()).await.map(|left| left == 0).map_err(|error| error.to_string())
    })
    .await
    .unwrap();
    let mut service = lab.service();
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(allowed).await
}

/// One is waiting for its canary when the others come. Then several begin together, and between
/// them take each message once.
pub(crate) async fn two_operators(ground: Ground) -> Account {
    let lab = lab_with(&ground, "op-two", Does::Succeed).await;
    let mut request = everything();
    request.ramp = RampSettings::default();
    let (operator, (stop, stopped)) = (lab.operator(), tokio::sync::oneshot::channel::<()>());
    let first = tokio::spawn(async move {
        operator.replay(&request, |_| {}, async { drop(stopped.await) }).await
    });
    lab.depth(lab.work(), 5).await;
    let other = lab.operator();
    let is_busy = |error: Option<ParkedError>| matches!(error, Some(ParkedError::Busy { .. }));
    let (request, discard, list) =
        (everything(), DiscardRequest::default(), ListRequest::default());
    let import = ImportRequest::default();
    let (replayed, discarded, imported, listed) = tokio::join!(
        other.replay(&request, |_| {}, std::future::pending()),
        other.discard(&discard, |_| {}, std::future::pending()),
        other.import(&import, [], std::future::pending()),
        other.list(&list),
    );
    let refused = [replayed.err(), discarded.err(), imported.err(), listed.err()].map(is_busy);
    assert_eq!(refused, [true; 4], "a second operator is told that somebody is at work");
    stop.send(()).unwrap();
    let replayed = first.await.unwrap().unwrap();
    assert_eq!((replayed.tally.moved, replayed.stopped), (5, Some(Stop::Requested)));
    let together = (0..4).map(|_| {
        let operator = lab.operator();
        async move { operator.replay(&everything(), |_| {}, std::future::pending()).await }
    });
    let mut moved = 5;
    for replayed in join_all(together).await {
        match replayed {
            Ok(replayed) => moved += replayed.tally.moved,
            Err(error) => assert!(matches!(error, ParkedError::Busy { .. }), "{error}"),
        }
    }
    assert!(moved <= MESSAGES as u64, "{moved} messages were moved");
    finish(&lab, Allowed::nothing()).await
}

pub(crate) async fn consumer_still_fails(ground: Ground) -> Account {
    const CANARY: usize = 5;
    let lab = lab_with(&ground, "op-fails", Does::Permanent).await;
    // Most are not attempted.
    lab.expect(1..MESSAGES as u64 + 1, Fate::Parked(Cause::Permanent));
    let mut service = lab.service();
    let mut request = everything();
    (request.ramp, request.follow) = (RampSettings::default(), SOON);
    let replayed = lab.operator().replay(&request, |_| {}, std::future::pending()).await.unwrap();
    assert_eq!(replayed.stopped, Some(Stop::CanaryParked));
    lab.depth(&lab.parked(), MESSAGES as u32).await;
    service.stop().await;
    let disturbed = lab.count(Step::Started);
    assert!((1..=CANARY).contains(&disturbed), "{disturbed} messages were disturbed");
    lab.close(Allowed::nothing()).await.with_note(format!("{disturbed} attempts"))
}

pub(crate) async fn broker_restarts(ground: Ground) -> Account {
    let broker = ground.own_broker(|builder| builder).await;
    let lab = ground.lab_on("op-restart", broker.clone());
    lab.declare().await;
    lab.park(MESSAGES, Does::Succeed).await;
    let mut request = everything();
    // Slow enough that most are left when the restart begins.
    request.rate = Some(5.0);
    let operator = lab.operator();
    let replaying =
        tokio::spawn(
            async move { operator.replay(&request, |_| {}, std::future::pending()).await },
        );
    let client = lab.client().await;
    eventually(SOON, "some are sent", async || {
        client.depth(lab.work()).await.map(|depth| depth >= 5)
    })
    .await
    .unwrap();
    let witness = Witness::new(&broker).await;
    broker.restart().await.unwrap();
    witness.was_cut_off().await;
    let error = tokio::time::timeout(SOON, replaying).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, ParkedError::Broker(_)), "the replay was interrupted: {error}");
    finish(&lab, Allowed::losses(1, IN_FLIGHT)).await
}

pub(crate) async fn work_queue_is_full(ground: Ground) -> Account {
    let broker = ground.shared_broker().await;
    let lab = lab_with(&ground, "op-full", Does::Succeed).await;
    let policy =
        Policy::set(&broker, lab.work(), json!({ "max-length": 20, "overflow": "reject-publish" }))
            .await;
    let client = lab.client().await;
    for _ in 0..2 {
        let error =
            lab.operator().replay(&everything(), |_| {}, std::future::pending()).await.unwrap_err();
        assert!(matches!(error, ParkedError::Refused { .. }), "copies were refused: {error}");
        let (parked, sent) = parked_and_sent(&lab, &client).await;
        assert!(sent >= 20 && parked > 0, "{sent} sent, {parked} parked");
    }
    policy.clear().await;
    finish(&lab, Allowed::nothing()).await
}

/// The ledger allows one handler run for each.
pub(crate) async fn parks_again(ground: Ground) -> Account {
    let lab = lab_with(&ground, "op-again", Does::Permanent).await;
    let mut service = lab.service();
    let mut request = everything();
    (request.follow, request.rate) = (SOON, Some(300.0));
    let replayed = lab.operator().replay(&request, |_| {}, std::future::pending()).await.unwrap();
    let (moved, again) = (replayed.tally.moved as usize, replayed.fates.parked_again as usize);
    assert_eq!(
        (moved, again, replayed.unknown),
        (MESSAGES, MESSAGES, 0),
        "each is sent once, and its fate is known"
    );
    lab.settled(SOON).await;
    service.stop().await;
    lab.close(Allowed::nothing()).await
}

/// All are at their handlers, so that the deleted queue holds none. What parks then is kept as a
/// stray message, or in the parked queue that the service has declared again.
pub(crate) async fn parked_queue_is_deleted(ground: Ground) -> Account {
    const AT_HANDLERS: usize = 50;
    let mut lab = ground.lab("op-no-parked").await;
    lab.config.answer = SOON;
    lab.work_mut().concurrency = AT_HANDLERS as u16;
    lab.declare().await;
    lab.park(AT_HANDLERS, Does::GatePark).await;
    let mut service = lab.service();
    let mut request = everything();
    request.follow = SOON;
    let (operator, (shown, mut show)) = (lab.operator(), tokio::sync::mpsc::unbounded_channel());
    let observe = move |progress: &Progress| {
        let _ = shown.send(progress.tally.moved as usize);
    };
    let replaying =
        tokio::spawn(
            async move { operator.replay(&request, observe, std::future::pending()).await },
        );
    lab.started(AT_HANDLERS).await;
    // The first report of all of them may come while it still has the parked queue open.
    for _ in 0..2 {
        while show.recv().await.unwrap() < AT_HANDLERS {}
    }
    let client = lab.client().await;
    client.delete_queue(&lab.parked()).await.unwrap();
    service.go().await;
    let replayed = replaying.await.unwrap().unwrap();
    assert_eq!(
        (replayed.fates.parked_again as usize, replayed.unknown),
        (AT_HANDLERS, 0),
        "{replayed:?}"
    );
    lab.settled(SOON).await;
    service.stop().await;
    let account = lab.close(Allowed::nothing().or(Fate::Stray)).await;
    assert!(account.count(Fate::Stray) > 0, "the parked queue was missing: {account}");
    account
}

/// Every second copy finds no queue and comes back to an operator who has many under way. Only the
/// originals of those copies stay unacked.
///
/// lapin hands a return to the next ack. RabbitMQ (4.3) sends a copy's ack right after its return,
/// unless its channel has just taken confirms from a queue without sending them: then those acks
/// come in between, and blaming the copy whose ack brings the return blames one that was kept. This
/// happens to about one returned copy in 500 here, and no order of publishing forces it. The
/// properties in `publish/returns.rs` try each order.
pub(crate) async fn copies_are_returned(ground: Ground) -> Account {
    let lab = ground.lab("op-returned").await;
    lab.declare().await;
    let parked = AtomicUsize::new(0);
    let change = |message: Publish| {
        let is_kept = parked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        if is_kept { message.header("kept", "yes") } else { message }
    };
    lab.park_with(MESSAGES, Does::Succeed, change).await;
    let (client, exchange) = (lab.client().await, lab.exchange("return"));
    let all = json!({ "x-match": "all", "rehop-return-to": lab.work() });
    let kept = json!({ "x-match": "all", "rehop-return-to": lab.work(), "kept": "yes" });
    client.bind(lab.work(), &exchange, "", kept.clone()).await.unwrap();
    client.unbind(lab.work(), &exchange, "", all).await.unwrap();
    client.unbind(&lab.stray(), &lab.exchange("stray"), "", json!({})).await.unwrap();
    let error =
        lab.operator().replay(&everything(), |_| {}, std::future::pending()).await.unwrap_err();
    assert!(matches!(error, ParkedError::Refused { .. }), "copies were returned: {error}");
    let (_, sent) = parked_and_sent(&lab, &client).await;
    assert!(sent > 0, "copies between those that were returned were kept");
    lab.declare().await;
    client.unbind(lab.work(), &exchange, "", kept).await.unwrap();
    finish(&lab, Allowed::nothing()).await.with_note(format!("{sent} sent before"))
}
