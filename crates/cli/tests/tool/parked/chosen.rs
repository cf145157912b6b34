//! Which messages a command is about.

use super::message;
use crate::support::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn a_unique_prefix_of_its_id_names_a_chain() {
    let fixture = Fixture::new("beginnings").await;
    fixture.park_directly(["order-71", "order-72", "invoice-9"].map(message)).await;
    let shown = fixture.parked_run("show", &["inv"]).await;
    assert!(shown.out.starts_with("chain        invoice-9"), "{}{}", shown.out, shown.err);
    let planned = fixture.parked_run("replay", &["--chain", "inv", "--chain", "order-71"]).await;
    assert!(planned.out.starts_with("2 of 3 messages"), "{}{}", planned.out, planned.err);
    let edited = fixture.parked_run("edit", &["inv", "--body", "/dev/null"]).await;
    assert!(edited.out.starts_with("invoice-9: a body of 0 bytes in place of 9"), "{}{}", edited.out, edited.err);

    for several in [
        &["show", "order"][..],
        &["edit", "order", "--body", "/dev/null"],
        &["list", "--chain", "order"],
        &["export", "--chain", "order"],
        &["discard", "--chain", "order", "--apply"],
        &["replay", "--chain", "order", "--apply"],
    ] {
        let refused = fixture.parked_run(several[0], &several[1..]).await.error(1);
        let says = "several chains begin with \"order\", such as \"order-71\" and \"order-72\"; give a longer prefix";
        assert!(refused.contains(says), "{several:?}: {refused}");
    }
    let nowhere = fixture.parked_run("list", &["--chain", "bill"]).await;
    assert!(nowhere.out.contains("all 3 messages, 0 match"), "{}{}", nowhere.out, nowhere.err);

    let discarded = fixture.parked_run("discard", &["--chain", "inv", "--apply"]).await;
    assert!(discarded.out.starts_with("1 discarded"), "{}{}", discarded.out, discarded.err);
    fixture.has_depth(&fixture.parked(), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_shortens_the_ids_of_chains_and_keeps_them_distinct() {
    let fixture = Fixture::new("short-ids").await;
    let ids = ["0199c7f2-8a11-7c3e", "0199c7f2-8b47-7d02", "41d0e5b7-0000-4000"];
    fixture.park_directly(ids.map(|id| message("a body").message_id(id))).await;
    let listed = fixture.parked_run("list", &["--rows", "3"]).await;
    for (id, short) in ids.into_iter().zip(["0199c7f2-8a", "0199c7f2-8b", "41d0e5b7-00"]) {
        assert!(listed.out.contains(&format!(" {short} ")) && !listed.out.contains(id), "{}", listed.out);
        let shown = fixture.parked_run("show", &[short]).await;
        assert!(shown.out.contains(id), "{}{}", shown.out, shown.err);
    }
    let part = fixture.parked_run("list", &["--rows", "2", "--scan", "2"]).await;
    assert!(part.out.contains(ids[0]), "others may begin so: {}", part.out);
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
        vec!["restore", "--apply"],
    ] {
        let refused = fixture.tool(&[&["parked"], &unsaid[..]].concat()).finished().await.error(2);
        assert!(refused.contains("--expect") && refused.contains("--all"), "{unsaid:?}: {refused}");
    }
    for contradiction in [&["--all", "--class", "x", "--apply"][..], &["--all"]] {
        assert_eq!(fixture.parked_run("discard", contradiction).await.code(), 2, "{contradiction:?}");
    }
    fixture.has_depth(&fixture.parked(), 3).await;
    assert_eq!(fixture.parked_run("discard", &["--apply", "--expect", "3"]).await.code(), 0);
    assert_eq!(fixture.tool(&["parked", "restore", "--apply", "--all"]).finished().await.code(), 0);
    assert_eq!(fixture.parked_run("discard", &["--apply", "--all", "--limit", "2"]).await.code(), 0);
    fixture.has_depth(&fixture.parked(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_reason_is_an_error_that_suggests_one() {
    let fixture = Fixture::new("mistyped").await;
    let mistyped = fixture.parked_run("list", &["--reason", "exausted"]).await;
    assert!(mistyped.code() == 2 && mistyped.err.contains("a similar value exists: 'exhausted'"), "{}", mistyped.err);
}
