//! Which messages a command is about.

use super::message;
use crate::folder::Folder;
use crate::support::{Fixture, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn a_look_takes_a_unique_prefix_of_a_chains_id() {
    let fixture = Fixture::new("prefixes").await;
    fixture.park_directly(["order-1", "order-12", "order-13", "invoice-9"].map(message)).await;
    let shown = fixture.parked_run("show", &["inv"]).await;
    assert!(shown.out.starts_with("chain        invoice-9"), "{}{}", shown.out, shown.err);
    let exact = fixture.parked_run("show", &["order-1"]).await;
    assert!(exact.out.starts_with("chain        order-1\n"), "{}{}", exact.out, exact.err);
    let edited = fixture.parked_run("edit", &["inv", "--body", "/dev/null"]).await;
    assert!(
        edited.out.starts_with("invoice-9: a body of 0 bytes in place of 9"),
        "{}{}",
        edited.out,
        edited.err
    );
    for several in [&["show", "order-"][..], &["edit", "order-", "--body", "/dev/null"]] {
        let refused = fixture.parked_run(several[0], &several[1..]).await.error(1);
        let says = "several chains begin with \"order-\", such as \"order-1\" and \"order-12\" and \"order-13\"; give a longer prefix";
        assert!(refused.contains(says), "{several:?}: {refused}");
    }
}

/// The id of a message that is gone may be a prefix of another one.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_moved_for_a_prefix() {
    let fixture = Fixture::new("no-prefixes").await;
    fixture.park_directly([message("order-10")]).await;
    let edited =
        fixture.parked_run("edit", &["order-1", "--body", "/dev/null", "--apply"]).await.error(1);
    assert!(edited.contains("no message of chain \"order-1\""), "{edited}");
    let discarded = fixture.parked_run("discard", &["--chain", "order-1", "--apply"]).await;
    assert!(
        discarded.code() == 0 && discarded.out.starts_with("0 discarded"),
        "{}{}",
        discarded.out,
        discarded.err
    );
    let replayed = fixture.parked_run("replay", &["--chain", "order-1", "--apply"]).await;
    assert!(replayed.out.contains(": 0 sent"), "{}{}", replayed.out, replayed.err);
    fixture.has_depth(&fixture.parked(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_moved_without_a_filter_an_expected_number_or_all() {
    let fixture = Fixture::new("meant").await;
    fixture.park_directly((0..3).map(|n| message(n.to_string()))).await;
    let queue = ["--queue", &fixture.queue];
    for unsaid in [
        [&["discard"][..], &queue, &["--apply"]].concat(),
        [&["discard"][..], &queue, &["--apply", "--limit", "1"]].concat(),
        [&["replay"][..], &queue, &["--apply", "--canary", "0"]].concat(),
        [&["replay"][..], &queue, &["--apply", "--canary", "1000"]].concat(),
        vec!["restore", "--apply"],
    ] {
        let refused = fixture.tool(&[&["parked"], &unsaid[..]].concat()).finished().await.error(2);
        assert!(refused.contains("--expect") && refused.contains("--all"), "{unsaid:?}: {refused}");
    }
    for contradiction in
        [&["--all", "--class", "x", "--apply"][..], &["--all"], &["--error", "", "--apply"]]
    {
        assert_eq!(
            fixture.parked_run("discard", contradiction).await.code(),
            2,
            "{contradiction:?}"
        );
    }
    fixture.has_depth(&fixture.parked(), 3).await;
    assert_eq!(fixture.parked_run("discard", &["--apply", "--expect", "3"]).await.code(), 0);
    assert_eq!(fixture.tool(&["parked", "restore", "--apply", "--all"]).finished().await.code(), 0);
    assert_eq!(
        fixture.parked_run("discard", &["--apply", "--all", "--limit", "2"]).await.code(),
        0
    );
    fixture.has_depth(&fixture.parked(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_reason_is_an_error_that_suggests_one() {
    let fixture = Fixture::new("mistyped").await;
    let mistyped = fixture.parked_run("list", &["--reason", "exausted"]).await;
    assert!(
        mistyped.code() == 2 && mistyped.err.contains("a similar value exists: 'exhausted'"),
        "{}",
        mistyped.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_messages_with_one_id_the_one_at_a_position_is_edited() {
    let fixture = Fixture::new("positions").await;
    let same = |body: &str| message("same").body(body);
    fixture.park_directly([same("first"), message("other"), same("second")]).await;
    let folder = Folder::of(&fixture);
    let file = folder.0.join("mended");
    std::fs::write(&file, "mended").unwrap();
    let edit = ["same", "--body", file.to_str().unwrap(), "--apply", "--follow", "100ms"];
    let refused = fixture.parked_run("edit", &edit).await.error(1);
    assert!(refused.contains("2 messages") && refused.contains("at positions 1, 3"), "{refused}");
    for (position, says) in [("2", "is not of chain \"same\""), ("9", "is not of chain")] {
        let at = [&edit[..], &["--position", position]].concat();
        let refused = fixture.parked_run("edit", &at).await.error(1);
        assert!(refused.contains(says), "{position}: {refused}");
    }
    let shown = fixture.parked_run("show", &["same"]).await;
    assert!(shown.out.contains("\nposition     3\n"), "{}", shown.out);
    let edited = fixture.parked_run("edit", &[&edit[..], &["--position", "3"]].concat()).await;
    assert_eq!(edited.code(), 4, "{}{}", edited.out, edited.err);
    let sent = fixture.client.drain(&fixture.queue, 1, SOON).await.unwrap();
    assert_eq!(sent[0].body, b"mended");
    let left: Vec<_> = fixture.drain_parked(2).await.into_iter().map(|it| it.body).collect();
    assert_eq!(left, [b"first".to_vec(), b"other".to_vec()]);
}
