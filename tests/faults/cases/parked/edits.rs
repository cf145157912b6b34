//! SIGKILL of an operator's process at each step of an edit. The original is kept, and the next
//! operator finishes.

use std::time::{Duration, Instant};

use rehop_testing::{Client, eventually};

use super::kills::{Stage, handle_all, lab};
use crate::evidence::lasts;
use crate::expectation::{Cause, Fate};
use crate::ground::{Ground, SOON};
use crate::lab::Lab;
use crate::ledger::{Account, Allowed};
use crate::operator::Action;
use crate::service::Does;

/// Where an edit was when it was killed, by what it has left: originals among the discarded, edited
/// copies, and originals still parked.
type Left = (u32, u32, u32);

const UNSENT: Left = (0, 0, 1);
const ORIGINAL_KEPT: Left = (1, 0, 1);
const EDITED_SENT: Left = (1, 1, 1);
const ACKED: Left = (1, 1, 0);
/// How often a moment is tried to be hit.
const TRIALS: usize = 60;

pub(crate) async fn in_an_edit(ground: Ground) -> Account {
    let lab = lab(&ground, "op-edit").await;
    let bystanders = lab.park(5, Does::Permanent).await;
    lab.expect(bystanders.clone(), Fate::Parked(Cause::Permanent));
    let (client, mut kills, mut edited) = (lab.client().await, 0, Vec::new());
    for wanted in [UNSENT, ORIGINAL_KEPT, EDITED_SENT, ACKED] {
        let mut left = None;
        while left != Some(wanted) {
            assert!(kills < TRIALS, "{wanted:?} was met by one of {kills} kills");
            let id = lab.park(1, Does::Permanent).await.start;
            lab.expect(id..id + 1, Fate::Handled);
            edited.push(id);
            left = Some(edit_killed(&lab, &client, id, wanted).await);
            kills += 1;
            lab.operator_with(&lab.config, &edit(id)).ended(SOON).await.unwrap();
        }
    }
    check_originals(&lab, &client, &edited, kills).await;
    handle_all(&lab).await;
    lab.close(Allowed::losses(kills, 1)).await.with_note(format!("{kills} kills"))
}

fn edit(id: u64) -> Action {
    let body = serde_json::json!({ "id": id, "does": Does::Succeed });
    Action::Edit { chain: id.to_string(), body: body.to_string() }
}

async fn edit_killed(lab: &Lab, client: &Client, id: u64, wanted: Left) -> Left {
    let queues = [lab.discarded(), lab.work().to_owned(), lab.parked()];
    let depths = async || {
        let mut depths = [0; 3];
        for (depth, queue) in depths.iter_mut().zip(&queues) {
            *depth = client.depth(queue).await.unwrap_or(0);
        }
        depths
    };
    let before = depths().await;
    let stage = Stage::start(lab, &edit(id), 1_000).await;
    let (consuming, publishing) =
        (stage.proxy.connection(0).unwrap(), stage.proxy.connection(1).unwrap());
    let kept = before[0] + 1;
    match wanted {
        UNSENT => publishing.pause_to_broker(),
        ORIGINAL_KEPT => {
            stage.reaches(&queues[0], kept).await;
            publishing.pause_to_broker();
        }
        _ => {
            stage.reaches(&queues[0], kept).await;
            if wanted == EDITED_SENT {
                consuming.pause_to_broker();
            }
            stage.reaches(&queues[1], before[1] + 1).await;
            if wanted == ACKED {
                lasts(Duration::from_millis(300)).await;
            }
        }
    }
    stage.operator.kill_if_running().await;
    drop(stage.proxy);
    // The broker has taken back what it does when its depths rest. It has the other parked messages
    // in any case.
    let (mut last, mut since) = (depths().await, Instant::now());
    eventually(SOON, "the broker has taken everything back", async || {
        let now = depths().await;
        if now != last || now[2] + 1 < before[2] {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(1)
    })
    .await
    .unwrap();
    (last[0] - before[0], last[1] - before[1], last[2] + 1 - before[2])
}

/// The original of each edited message is among the discarded ones, with its body; twice at most
/// for each kill.
async fn check_originals(lab: &Lab, client: &Client, edited: &[u64], kills: usize) {
    let kept = client.get_all(&lab.discarded()).await.unwrap();
    for id in edited {
        let of_it =
            || kept.iter().filter(|message| message.properties.message_id == Some(id.to_string()));
        assert!(of_it().count() >= 1, "the original of message {id} is kept");
        assert!(
            of_it().all(|message| message.text().contains("permanent")),
            "message {id} is kept as it was"
        );
    }
    assert!(
        kept.len() <= edited.len() + kills,
        "{} originals of {} messages",
        kept.len(),
        edited.len()
    );
}
