//! Exports and imports of stray and of discarded messages.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rehop_testing::Publish;
use serde_json::{Value, json};

use super::message;
use crate::folder::Folder;
use crate::process::{Finished, Tool, variables};
use crate::support::{Fixture, SOON};

impl Fixture {
    async fn parked_at(&self, arguments: &[&str]) -> Finished {
        let finished = self.tool(&[&["parked"], arguments].concat()).finished().await;
        assert_eq!(finished.code(), 0, "{arguments:?}: {}", finished.err);
        finished
    }
}

/// The disk is full, or the file may not become larger.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_cannot_be_written_leaves_no_file_that_looks_whole_and_takes_no_message() {
    let fixture = Fixture::new("export-full").await;
    fixture.declare().await;
    let large = "x".repeat(10_000);
    let parked = || Publish::to(fixture.stray(), "order.created").body(large.as_str());
    fixture.client.publish_many((0..3).map(|_| parked())).await.unwrap();
    fixture.has_depth(&fixture.stray(), 3).await;
    let folder = Folder::of(&fixture);
    let path = folder.0.join("stray.jsonl");
    let file = path.to_str().unwrap();
    let small_disk = ["sh", "-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh"];
    let arguments = ["parked", "export", "--stray", "--output", file];
    let export = Tool::start_by(&small_disk, &arguments, variables(&fixture.settings));
    let error = export.finished().await.error(1);
    let part = folder.0.join("stray.jsonl.incomplete");
    for told in [part.to_str().unwrap(), "incomplete: delete it", "File too large"] {
        assert!(error.contains(told), "{told}: {error}");
    }
    assert!(!path.exists() && part.exists());
    fixture.has_depth(&fixture.stray(), 3).await;
    let again = fixture.tool(&arguments).finished().await.error(1);
    assert!(again.contains("stray.jsonl.incomplete: File exists"), "{again}");
    fs::remove_file(&part).unwrap();
    fixture.parked_at(&arguments[1..]).await;
    assert!(path.exists() && !part.exists());
    let exists = fixture.tool(&arguments).finished().await.error(1);
    assert!(exists.contains(file), "{exists}");
}

/// What an export prints may be directed to such a disk, and a folder may be mounted read-only.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_to_a_full_or_read_only_disk_says_so_and_takes_no_message() {
    let fixture = Fixture::new("export-read-only").await;
    fixture.declare().await;
    let stray = Publish::to(fixture.stray(), "order.created").body("x");
    fixture.client.publish(stray).await.unwrap();
    fixture.has_depth(&fixture.stray(), 1).await;
    let folder = Folder::of(&fixture);
    let file = folder.0.join("stray.jsonl");
    let on_full_disk = ["sh", "-c", "exec \"$@\" >/dev/full", "sh"];
    let mount = format!("mount -t tmpfs -o ro none {} && exec \"$@\"", folder.0.display());
    let on_read_only = ["unshare", "--map-root-user", "--mount", "sh", "-c", &mount, "sh"];
    let output = ["--output", file.to_str().unwrap()];
    let checks = [
        (&on_full_disk[..], &[][..], "No space left on device"),
        (&on_read_only[..], &output[..], "Read-only file system"),
    ];
    for (program, more, told) in checks {
        let arguments = [&["parked", "export", "--stray"], more].concat();
        let export = Tool::start_by(program, &arguments, variables(&fixture.settings));
        let error = export.finished().await.error(1);
        assert!(error.contains(told), "{told}: {error}");
        fixture.has_depth(&fixture.stray(), 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stray_messages_are_exported_and_imported_into_the_stray_queue_alone() {
    let fixture = Fixture::new("import-stray").await;
    fixture.declare().await;
    let stray = || Publish::to(fixture.stray(), "order.created");
    let returning = stray().body("returning").header("rehop-return-to", fixture.queue.as_str());
    fixture.client.publish_many([returning, stray().body("unknown")]).await.unwrap();
    fixture.has_depth(&fixture.stray(), 2).await;
    let folder = Folder::of(&fixture);
    let path = folder.0.join("stray.jsonl");
    let file = path.to_str().unwrap();
    fixture.parked_at(&["export", "--stray", "--reveal", "--output", file]).await;
    let masked = folder.0.join("masked.jsonl");
    fixture.parked_at(&["export", "--stray", "--output", masked.to_str().unwrap()]).await;
    for written in [&path, &masked] {
        let mode = fs::metadata(written).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "both hold what nobody has thought of masking");
    }
    fixture.client.purge(&fixture.stray()).await.unwrap();

    let checked = fixture.parked_at(&["import", "--stray", file]).await;
    let would = format!("2 messages would be imported into {}. Nothing was done", fixture.stray());
    assert!(checked.out.contains(&would), "{}", checked.out);
    fixture.has_depth(&fixture.stray(), 0).await;
    let elsewhere = format!("{}-other", fixture.namespace.name());
    let missing = fixture
        .tool(&["parked", "import", "--stray", file, "--namespace", &elsewhere])
        .finished()
        .await;
    let missing = missing.error(1);
    assert!(
        missing.contains(&format!("{elsewhere}.stray")) && missing.contains("does not exist"),
        "{missing}"
    );

    let apply = ["import", "--stray", file, "--apply", "--why", "moved house", "--json"];
    for (new, known) in [(2, 0), (0, 2)] {
        let imported = fixture.parked_at(&apply).await;
        let report: Value = serde_json::from_str(&imported.out).unwrap();
        assert_eq!(
            (&report["imported"], &report["already_there"]),
            (&json!(new), &json!(known)),
            "{report}"
        );
        for line in ["import begins", "import ended"] {
            let logged =
                imported.err.lines().any(|it| it.contains(line) && it.contains("moved house"));
            assert!(logged, "the log is the audit: {}", imported.err);
        }
    }
    let checked = fixture.parked_at(&["import", "--stray", file]).await;
    let would = format!(
        "0 messages would be imported into {}; 2 are already there. Nothing was done",
        fixture.stray()
    );
    assert!(checked.out.contains(&would), "{}", checked.out);
    let checked = fixture.parked_at(&["import", "--stray", file, "--json"]).await;
    let report: Value = serde_json::from_str(&checked.out).unwrap();
    assert_eq!(report, json!({ "queue": fixture.stray(), "to_import": 0, "already_there": 2 }));
    let mut back = fixture.client.drain(&fixture.stray(), 2, SOON).await.unwrap();
    back.sort_by_key(|message| message.body.clone());
    assert_eq!([back[0].text(), back[1].text()], ["returning", "unknown"]);
    assert!(back.iter().all(|message| message.routing_key == "order.created"), "{back:?}");
    assert_eq!(
        (&back[0].headers["rehop-return-to"], back[1].headers.get("rehop-return-to")),
        (&json!(fixture.queue), None)
    );
    fixture.has_depth(&fixture.stray(), 0).await;
    fixture.has_depth(&fixture.parked(), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discarded_messages_that_were_imported_again_can_be_restored() {
    let fixture = Fixture::new("import-discarded").await;
    fixture.park_directly([message("seven")]).await;
    let discarded = fixture.parked_run("discard", &["--apply", "--all", "--json"]).await;
    let report: Value = serde_json::from_str(&discarded.out).unwrap();
    let folder = Folder::of(&fixture);
    let file = folder.0.join("discarded.jsonl");
    let file = file.to_str().unwrap();
    fixture.parked_at(&["export", "--discarded", "--reveal", "--output", file]).await;
    fixture.client.purge(&format!("{}.discarded", fixture.namespace.name())).await.unwrap();
    fixture.parked_at(&["import", "--discarded", file, "--apply"]).await;
    let run = report["run"].as_str().unwrap();
    fixture.parked_at(&["restore", "--run", run, "--apply", "--expect", "1"]).await;
    assert_eq!(fixture.drain_parked(1).await[0].text(), "seven");
}

/// A shell's `<(zcat file.gz)` is such a pipe, too.
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_imported_from_a_pipe_and_a_signal_ends_the_wait_for_one() {
    let fixture = Fixture::new("import-pipe").await;
    fixture.park_directly([message("seven")]).await;
    let folder = Folder::of(&fixture);
    let (path, pipe) = (folder.0.join("parked.jsonl"), folder.0.join("pipe"));
    let queue = fixture.queue.as_str();
    fixture
        .parked_at(&["export", "--queue", queue, "--reveal", "--output", path.to_str().unwrap()])
        .await;
    fixture.client.purge(&fixture.parked()).await.unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let import = ["parked", "import", "--queue", queue, pipe.to_str().unwrap(), "--apply"];
    let lines = fs::read(&path).unwrap();
    let written = pipe.clone();
    let writing = tokio::task::spawn_blocking(move || fs::write(written, lines).unwrap());
    let imported = fixture.tool(&import).finished().await;
    assert_eq!(imported.code(), 0, "{}", imported.err);
    assert_eq!(imported.out.trim(), "1 imported, 0 were already there");
    writing.await.unwrap();
    fixture.has_depth(&fixture.parked(), 1).await;

    // Opening it waits for the tool. Then nobody writes. SIGINT may be ignored here: a shell starts
    // what runs in the background so.
    let waiting = fixture.tool(&import);
    let opening =
        tokio::task::spawn_blocking(move || fs::File::options().write(true).open(pipe).unwrap());
    let silent = opening.await.unwrap();
    waiting.signal("TERM");
    assert_eq!(waiting.finished().await.status.code(), None, "the signal ends it");
    drop(silent);
}
