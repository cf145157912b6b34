//! Signals while messages are looked at.

use std::fs;
use std::path::Path;

use rehop::testing::{Received, eventually};
use tokio::sync::oneshot;

use super::{Folder, message};
use crate::support::{Fixture, SOON};
use crate::tool::process::{Finished, Tool, variables};

const SAYS: &str = "stopped: it was told to stop; every message that it looked at is back in its place";

#[track_caller]
fn says_that_it_was_stopped(finished: &Finished) {
    assert_eq!(finished.code(), 3, "{}", finished.err);
    assert!(finished.err.lines().any(|line| line == SAYS), "{}", finished.err);
}

/// It exports only the second half of the messages, so that it holds those of several subscriptions when nobody reads what it writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_stops_a_look_and_each_message_returns_to_its_place() {
    const COUNT: u32 = 2_000;
    for signal in ["INT", "TERM"] {
        let fixture = Fixture::new("stopped-look").await;
        let reason = |n: u32| if n < COUNT / 2 { "exhausted" } else { "permanent" };
        fixture.park_directly((0..COUNT).map(|n| message(n.to_string()).header("rehop-reason", reason(n)))).await;
        let (read, reading) = oneshot::channel::<()>();
        let export = ["parked", "export", "--queue", &fixture.queue, "--reason", "permanent"];
        let tool = Tool::start_reading(&export, variables(&fixture.settings), async { drop(reading.await) });
        fixture.has_depth(&fixture.parked(), 0).await;
        tool.signal(signal);
        tool.logs("a second signal stops immediately").await;
        read.send(()).unwrap();
        let finished = tool.finished().await;
        says_that_it_was_stopped(&finished);
        let exported = finished.out.lines().count();
        assert!(exported < COUNT as usize / 2, "{exported} were exported");
        fixture.has_depth(&fixture.parked(), COUNT).await;
        let left: Vec<_> =
            fixture.client.get_all(&fixture.parked()).await.unwrap().iter().map(Received::text).collect();
        let expected: Vec<_> = (0..COUNT).map(|n| n.to_string()).collect();
        assert!(left == expected, "not in their order after {signal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_editor_that_a_signal_ends_leaves_no_copy_of_the_message_behind() {
    let fixture = Fixture::new("stopped-editor").await;
    fixture.park_directly([message("seven")]).await;
    let folder = Folder::of(&fixture);
    let (editor, opened) = (folder.0.join("editor"), folder.0.join("opened"));
    // Its file appears with its whole content.
    let script = format!("echo $$ \"$1\" > {0}.new\nmv {0}.new {0}\nexec sleep 600\n", opened.display());
    fs::write(&editor, script).unwrap();
    let mut environment = variables(&fixture.settings);
    environment.push(("EDITOR".to_owned(), format!("sh {}", editor.display())));
    environment.push(("PATH".to_owned(), std::env::var("PATH").unwrap()));
    let tool = Tool::start(&["parked", "edit", "--queue", &fixture.queue, "seven", "--apply"], environment);
    eventually(SOON, "the editor is open", async || Ok::<_, String>(opened.exists())).await.unwrap();
    let opened = fs::read_to_string(opened).unwrap();
    let (editor, file) = opened.trim().split_once(' ').unwrap();
    assert!(Path::new(file).exists());
    // A terminal sends Ctrl-C to both.
    tool.signal("INT");
    tool.logs("a second signal stops immediately").await;
    assert!(std::process::Command::new("kill").args(["-s", "INT", editor]).status().unwrap().success());
    says_that_it_was_stopped(&tool.finished().await);
    assert!(!Path::new(file).exists(), "{file} is left");
    fixture.has_depth(&fixture.parked(), 1).await;
}
