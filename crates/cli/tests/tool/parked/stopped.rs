//! Signals while messages are looked at.

use std::fs;
use std::path::{Path, PathBuf};

use rehop_testing::{Received, eventually};
use tokio::sync::oneshot;

use super::message;
use crate::folder::Folder;
use crate::process::{Finished, Tool, send_signal, variables};
use crate::support::{Fixture, SOON};

const SAYS: &str =
    "stopped: it was told to stop; every message that it looked at is back in its place";

#[track_caller]
fn says_that_it_was_stopped(finished: &Finished) {
    assert_eq!(finished.code(), 3, "{}", finished.err);
    assert!(finished.err.lines().any(|line| line == SAYS), "{}", finished.err);
}

/// It exports only the second half of the messages, so that it holds those of several subscriptions
/// when nobody reads what it writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_stops_a_look_and_each_message_returns_to_its_place() {
    const COUNT: u32 = 2_000;
    for signal in ["INT", "TERM"] {
        let fixture = Fixture::new("stopped-look").await;
        let reason = |n: u32| if n < COUNT / 2 { "exhausted" } else { "permanent" };
        fixture
            .park_directly(
                (0..COUNT).map(|n| message(n.to_string()).header("rehop-reason", reason(n))),
            )
            .await;
        let (read, reading) = oneshot::channel::<()>();
        let export = ["parked", "export", "--queue", &fixture.queue, "--reason", "permanent"];
        let tool = Tool::start_reading(&export, variables(&fixture.settings), async {
            drop(reading.await)
        });
        fixture.has_depth(&fixture.parked(), 0).await;
        tool.signal(signal);
        tool.logs("a second signal stops immediately").await;
        read.send(()).unwrap();
        let finished = tool.finished().await;
        says_that_it_was_stopped(&finished);
        let exported = finished.out.lines().count();
        assert!(exported < COUNT as usize / 2, "{exported} were exported");
        fixture.has_depth(&fixture.parked(), COUNT).await;
        let left: Vec<_> = fixture
            .client
            .get_all(&fixture.parked())
            .await
            .unwrap()
            .iter()
            .map(Received::text)
            .collect();
        let expected: Vec<_> = (0..COUNT).map(|n| n.to_string()).collect();
        assert!(left == expected, "not in their order after {signal}");
    }
}

/// An edit of a message, while its editor is open.
struct Editing {
    tool: Tool,
    editor: u32,
    /// The file that is edited.
    file: PathBuf,
}

impl Editing {
    /// The editor is a shell script whose argument is the file: what it does first, and what it
    /// does once it is open.
    async fn of(fixture: &Fixture, folder: &Folder, chain: &str, [first, then]: [&str; 2]) -> Self {
        let (editor, opened) = (folder.0.join("editor"), folder.0.join("opened"));
        // What says that it is open appears with its whole content.
        let script = format!(
            "{first}\necho $$ \"$1\" > {0}.new\nmv {0}.new {0}\n{then}\n",
            opened.display()
        );
        fs::write(&editor, script).unwrap();
        let mut environment = variables(&fixture.settings);
        environment.push(("EDITOR".to_owned(), format!("sh {}", editor.display())));
        environment.push(("PATH".to_owned(), std::env::var("PATH").unwrap()));
        let tool = Tool::start(
            &["parked", "edit", "--queue", &fixture.queue, chain, "--apply"],
            environment,
        );
        eventually(SOON, "the editor is open", async || Ok::<_, String>(opened.exists()))
            .await
            .unwrap();
        let opened = fs::read_to_string(opened).unwrap();
        let (editor, file) = opened.trim().split_once(' ').unwrap();
        assert!(Path::new(file).exists());
        Self { tool, editor: editor.parse().unwrap(), file: PathBuf::from(file) }
    }

    /// A terminal sends Ctrl-C to both.
    async fn interrupt(&self) {
        self.tool.signal("INT");
        self.tool.logs("a second signal stops immediately").await;
        send_signal("INT", self.editor);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_editor_that_a_signal_ends_leaves_no_copy_of_the_message_behind() {
    let fixture = Fixture::new("stopped-editor").await;
    fixture.park_directly([message("seven")]).await;
    let folder = Folder::of(&fixture);
    let editing = Editing::of(&fixture, &folder, "seven", ["", "exec sleep 600"]).await;
    editing.interrupt().await;
    says_that_it_was_stopped(&editing.tool.finished().await);
    assert!(!editing.file.exists(), "{} is left", editing.file.display());
    fixture.has_depth(&fixture.parked(), 1).await;
}

/// To some editors Ctrl-C does not mean the end.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_editor_saves_after_a_signal_is_kept_and_can_be_sent() {
    let fixture = Fixture::new("kept-edit").await;
    fixture.park_directly([message("seven")]).await;
    let folder = Folder::of(&fixture);
    let save = folder.0.join("save");
    let saves =
        format!("until [ -e {} ]; do sleep 0.05; done\nprintf mended > \"$1\"", save.display());
    let editing = Editing::of(&fixture, &folder, "seven", ["trap '' INT", &saves]).await;
    editing.interrupt().await;
    fs::write(&save, "").unwrap();
    let finished = editing.tool.finished().await;
    says_that_it_was_stopped(&finished);
    let file = editing.file.to_str().unwrap();
    let kept = format!("the edited body is kept in {file}; to send it, name it with --body {file}");
    assert!(finished.err.lines().any(|line| line == kept), "{}", finished.err);
    assert_eq!(fs::read_to_string(file).unwrap(), "mended");
    fixture.has_depth(&fixture.parked(), 1).await;
    fixture.has_depth(&fixture.queue, 0).await;

    let sent = fixture
        .parked_run("edit", &["seven", "--body", file, "--apply", "--follow", "100ms"])
        .await;
    assert_eq!(sent.code(), 4, "nobody consumes: {}", sent.err);
    assert_eq!(fixture.client.drain(&fixture.queue, 1, SOON).await.unwrap()[0].text(), "mended");
    fs::remove_file(file).unwrap();
}
