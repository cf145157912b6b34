//! What the log says of an operation's end: enough to know why, and nothing of what messages
//! contain.

use rehop::Failure;
use rehop_testing::Broker;
use serde_json::json;

use super::message;
use crate::folder::Folder;
use crate::process::Finished;
use crate::support::{Fixture, not_tried};

/// The line of the log with this text.
#[track_caller]
fn logged<'a>(finished: &'a Finished, text: &str) -> &'a str {
    let line = finished.err.lines().find(|line| line.contains(text));
    line.unwrap_or_else(|| panic!("{text:?} is not in the log: {}", finished.err))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_the_broker_ends_logs_why_without_quoting_a_message() {
    const COUNT: u32 = 400;
    if Broker::shared().await.management_url().is_none() {
        return not_tried(
            "an import that fails half way, because REHOP_TEST_MANAGEMENT_URL is not set",
        );
    }
    let fixture = Fixture::new("logged-import").await;
    fixture.park_directly((0..COUNT).map(|n| message(format!("hunter2-{n}")))).await;
    let folder = Folder::of(&fixture);
    let file = folder.0.join("exported");
    let exported =
        fixture.parked_run("export", &["--reveal", "--output", file.to_str().unwrap()]).await;
    assert_eq!(exported.code(), 0, "{}", exported.err);
    fixture.client.purge(&fixture.parked()).await.unwrap();
    fixture
        .set_policy(&fixture.parked(), json!({ "max-length": 20, "overflow": "reject-publish" }))
        .await;
    let imported = fixture.parked_run("import", &[file.to_str().unwrap(), "--apply", "-v"]).await;
    fixture.clear_policy(&fixture.parked()).await;
    assert_eq!(imported.code(), 1, "{}", imported.err);
    let ended = logged(&imported, "import ended");
    assert!(
        ended.contains("imported=") && ended.contains("the broker refused a message"),
        "{ended}"
    );
    assert!(!imported.err.contains("hunter2"), "{}", imported.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_that_a_replay_stopped_at_is_printed_and_not_logged() {
    let fixture = Fixture::new("logged-stop").await;
    fixture.park_directly((0..3).map(|n| message(n.to_string()))).await;
    let run = fixture.serve(|message: rehop::Message<bytes::Bytes>| async move {
        if &message.body[..] == b"0" { Ok(()) } else { Err(Failure::permanent("no customer Ada")) }
    });
    let run = run.await;
    let finished = fixture.parked_run("replay", &["--apply", "--canary", "1"]).await;
    assert_eq!(finished.code(), 3, "{}", finished.err);
    let stop = "a message parked again with a new kind of error";
    assert!(
        finished.out.contains(&format!("stopped: {stop}: no customer Ada")),
        "{}",
        finished.out
    );
    let ended = logged(&finished, "replay ended");
    assert!(ended.contains(&format!("stopped={stop}")) && !ended.contains("Ada"), "{ended}");
    run.stop().await;
}
