//! What the log says of an operation's end: enough to know why, and nothing of what messages contain.

use std::fs;
use std::path::Path;

use rehop::Failure;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Folder, message};
use crate::support::{Fixture, SOON};
use crate::tool::process::Finished;

/// The line of the log with this text.
#[track_caller]
fn logged<'a>(finished: &'a Finished, text: &str) -> &'a str {
    let line = finished.err.lines().find(|line| line.contains(text));
    line.unwrap_or_else(|| panic!("{text:?} is not in the log: {}", finished.err))
}

/// Writes a file into a pipe as soon as somebody reads it.
async fn feed(file: &Path, pipe: &Path) {
    let mut command = Command::new("sh");
    command.args(["-c", "cat \"$0\" > \"$1\""]).args([file, pipe]).kill_on_drop(true);
    let fed = tokio::time::timeout(SOON, command.status()).await.expect("somebody reads the pipe").unwrap();
    assert!(fed.success());
}

/// The file has changed between the check and the import, as a pipe does.
#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_a_line_ends_logs_which_one_without_quoting_it() {
    let fixture = Fixture::new("logged-import").await;
    fixture.park_directly([message("one")]).await;
    let folder = Folder::of(&fixture);
    let [good, bad, pipe] = ["good", "bad", "pipe"].map(|name| folder.0.join(name));
    let exported = fixture.parked_run("export", &["--reveal", "--output", good.to_str().unwrap()]).await;
    assert_eq!(exported.code(), 0, "{}", exported.err);
    fixture.client.purge(&fixture.parked()).await.unwrap();
    let line = fs::read_to_string(&good).unwrap();
    let mut wrong: Value = serde_json::from_str(&line).unwrap();
    wrong["headers"]["tenant"] = json!({ "$amqp": "hunter2" });
    fs::write(&bad, format!("{line}{wrong}\n")).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().await.unwrap().success());

    let tool = fixture.parked_tool("import", &[pipe.to_str().unwrap(), "--apply", "-v"]);
    feed(&good, &pipe).await;
    // It asks the broker once it has read the file.
    tool.logs("rehop parked consuming").await;
    feed(&bad, &pipe).await;
    let finished = tool.finished().await;
    assert_eq!(finished.code(), 1, "{}", finished.err);
    assert!(finished.err.contains("error: line 2"), "{}", finished.err);
    let ended = logged(&finished, "import ended");
    assert!(ended.contains("imported=1") && ended.contains("error=line 2 cannot be imported"), "{ended}");
    assert!(!ended.contains("hunter2"), "{ended}");
    fixture.has_depth(&fixture.parked(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_that_a_replay_stopped_at_is_printed_and_not_logged() {
    let fixture = Fixture::new("logged-stop").await;
    fixture.park_directly((0..3).map(|n| message(n.to_string()))).await;
    let run = fixture.serve(|message: rehop::Message<bytes::Bytes>| async move {
        if &message[..] == b"0" { Ok(()) } else { Err(Failure::permanent("no customer Ada")) }
    });
    let run = run.await;
    let finished = fixture.parked_run("replay", &["--apply", "--canary", "1"]).await;
    assert_eq!(finished.code(), 3, "{}", finished.err);
    let stop = "a message parked again with a new kind of error";
    assert!(finished.out.contains(&format!("stopped: {stop}: no customer Ada")), "{}", finished.out);
    let ended = logged(&finished, "replay ended");
    assert!(ended.contains(&format!("stopped={stop}")) && !ended.contains("Ada"), "{ended}");
    run.stop().await;
}
