//! Messages that anybody may have written: what the tool prints commands no terminal, and loses
//! nothing of them.

use std::collections::BTreeSet;

use rehop_testing::{Publish, Received};
use serde_json::{Value, json};

use super::{error, message};
use crate::folder::Folder;
use crate::process::Finished;
use crate::support::{Fixture, SOON};

const EVIL: &str = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}";
/// The same as it is shown.
const SHOWN: &str = r"\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}";

/// Fails if a terminal would obey anything of this.
fn is_harmless(Finished { status: _, out, err }: &Finished) {
    for c in out.chars().chain(err.chars()) {
        assert!(c == '\n' || !(c.is_control() || c == '\u{202e}'), "{c:?} in {out}{err}");
    }
}

/// What no handler of rehop's ever made: some were touched by rehop, and some by nothing.
fn hostile() -> Vec<Publish> {
    let records: Vec<Value> = (0..500)
        .map(|n| json!({ "at": i64::MAX - n, "attempt": -n, "class": EVIL, "message": EVIL.repeat(3) }))
        .collect();
    let untouched = |message: Publish| Publish {
        properties: Default::default(),
        headers: Default::default(),
        ..message
    };
    vec![
        message("one")
            .body(EVIL)
            .header("rehop-errors", error(EVIL, EVIL))
            .header("rehop-chain-id", EVIL),
        message("two")
            .header("rehop-reason", EVIL)
            .header(EVIL, EVIL)
            .header("rehop-exchange", EVIL)
            .header("rehop-routing-key", EVIL),
        untouched(Publish { body: vec![0xff, 0x1b, b'[', 0xfe], ..message("x") }),
        untouched(message("three")),
        message("four")
            .header("rehop-errors", "absurd")
            .header("rehop-attempt", i64::MAX)
            .header("rehop-first-seen-at", -1),
        message("five").body(vec![b'x'; 1_000_000]),
        message("six").header("rehop-errors", Value::from(records).to_string()),
        message("seven")
            .header("rehop-hop", i64::MIN)
            .header("rehop-parked-at", i64::MAX)
            .header("rehop-due-at", i64::MAX)
            .header("rehop-replays", i64::MAX)
            .header("rehop-replay-run", EVIL)
            .header(
                "x-death",
                json!([{ "reason": EVIL, "queue": EVIL, "time": -1 }, "absurd", []]),
            ),
        message("eight").body(format!("{{\"a\": \"{}\"}}", "\\u001b]0;owned\\u0007")),
        // Times that no calendar has.
        message("nine").header("rehop-errors", failures_at([i64::MIN, -1, i64::MAX])),
    ]
}

fn failures_at(times: [i64; 3]) -> String {
    let record = |at: i64| json!({ "at": at, "attempt": 1, "class": "io", "message": "busy" });
    Value::from(times.map(record).to_vec()).to_string()
}

fn bodies(messages: &[Received]) -> BTreeSet<Vec<u8>> {
    messages.iter().map(|message| message.body.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_a_message_commands_the_terminal() {
    let fixture = Fixture::new("hostile").await;
    fixture.park_directly(hostile()).await;
    let count = hostile().len();
    let mut commands = vec![
        fixture.parked_run("list", &["--rows", "20"]).await,
        fixture.parked_run("list", &["--rows", "20", "--json"]).await,
        fixture.parked_run("export", &[]).await,
        fixture.parked_run("export", &["--reveal"]).await,
    ];
    let listed: Value = serde_json::from_str(&commands[1].out).unwrap();
    let chains: Vec<_> = listed["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["chain"].as_str().unwrap())
        .collect();
    assert_eq!(chains.len(), count);
    for chain in chains {
        commands.push(fixture.parked_run("show", &["--", chain]).await);
        commands.push(fixture.parked_run("show", &["--json", "--", chain]).await);
    }
    commands.push(fixture.parked_run("replay", &[]).await);
    commands.push(fixture.parked_run("discard", &[]).await);
    for finished in &commands {
        assert!(finished.status.success(), "{}", finished.err);
        is_harmless(finished);
    }
    let origin = format!("published to exchange {SHOWN}, routing key {SHOWN}");
    assert_eq!(
        commands.iter().filter(|finished| finished.out.contains(&origin)).count(),
        1,
        "it is shown, escaped"
    );
    // Errors quote what they are about.
    let missing = ["show", "edit"]
        .map(|command| fixture.parked_tool(command, &["--", &format!("{EVIL}none")]));
    for tool in missing {
        let finished = tool.finished().await;
        assert_eq!(finished.code(), 1, "{}", finished.out);
        is_harmless(&finished);
    }
    fixture.has_depth(&fixture.parked(), count as u32).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_a_stray_message_commands_the_terminal() {
    let fixture = Fixture::new("hostile-stray").await;
    let folder = Folder::of(&fixture);
    let said = message("said").header("rehop-exchange", EVIL).header("rehop-routing-key", EVIL);
    let routed = Publish { routing_key: EVIL.to_owned(), ..message("routed") };
    fixture
        .stray_directly([said, routed].map(|message| message.header("rehop-return-to", EVIL)))
        .await;
    let run = async |arguments: &[&str]| {
        let finished = fixture.tool(&[&["parked"], arguments].concat()).finished().await;
        is_harmless(&finished);
        finished
    };
    let none = String::new();
    for (arguments, shown) in [
        (&["list", "--stray"][..], &none),
        (&["list", "--stray", "--rows", "9", "--json"], &none),
        (
            &["show", "--stray", "said"],
            &format!("published to exchange {SHOWN}, routing key {SHOWN}"),
        ),
        (&["show", "--stray", "routed"], &format!("routing key {SHOWN}")),
        (&["show", "--stray", "said", "--json"], &none),
        (
            &["replay", "--stray"],
            &format!("2 cannot be sent: they belong to queue {SHOWN}, which does not exist"),
        ),
        (&["discard", "--stray"], &none),
        (&["export", "--stray", "--reveal"], &none),
    ] {
        let finished = run(arguments).await;
        assert_eq!(finished.code(), 0, "{arguments:?}: {}", finished.err);
        assert!(finished.out.contains(shown.as_str()), "{shown:?} is missing: {}", finished.out);
    }
    let listed = run(&["list", "--stray", "--rows", "9"]).await.out;
    assert_eq!(
        listed.matches(SHOWN).count(),
        1 + 2 * 2,
        "a queue of the group, a key and a queue of each: {listed}"
    );
    let planned: Value =
        serde_json::from_str(&run(&["replay", "--stray", "--json"]).await.out).unwrap();
    assert_eq!(planned["missing_destinations"][EVIL], json!(2));
    let replayed = run(&["replay", "--stray", "--apply"]).await;
    assert_eq!(replayed.code(), 3, "{}", replayed.err);
    // The broker's error repeats the name, and the log has the error.
    let body = folder.0.join("body");
    std::fs::write(&body, "mended").unwrap();
    let edited =
        run(&["edit", "--stray", "said", "--apply", "--body", body.to_str().unwrap()]).await;
    let error = edited.error(1);
    assert!(
        error.contains("does not exist") && edited.err.contains("edit ended"),
        "{}",
        edited.err
    );
    fixture.has_depth(&fixture.stray(), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_messages_are_exported_and_imported_byte_by_byte() {
    let fixture = Fixture::new("hostile-export").await;
    fixture.park_directly(hostile()).await;
    let folder = Folder::of(&fixture);
    let file = folder.0.join("parked.jsonl");
    let file = file.to_str().unwrap();
    let exported = fixture.parked_run("export", &["--reveal", "--output", file]).await;
    assert_eq!(exported.code(), 0, "{}", exported.err);
    is_harmless(&exported);
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "a pager shows it");
    let count = hostile().len();
    let before = fixture.drain_parked(count).await;
    let imported = fixture.parked_run("import", &[file, "--apply"]).await;
    assert_eq!(imported.code(), 0, "{}", imported.err);
    is_harmless(&imported);
    assert_eq!(bodies(&fixture.drain_parked(count).await), bodies(&before));

    // Lines that no export has written.
    let line = text.lines().next().unwrap();
    for (number, wrong) in [
        EVIL.to_owned(),
        line.replace("\"rehop_export\":1", &format!("{:?}:1", EVIL)),
        line.replace("\"rehop_export\":1", "\"rehop_export\":9"),
        "[".repeat(100_000),
        format!("{{\"rehop_export\":1,\"chain\":\"{}\"}}", "c".repeat(1_000_000)),
    ]
    .into_iter()
    .enumerate()
    {
        let file = folder.0.join(format!("wrong-{number}.jsonl"));
        std::fs::write(&file, wrong).unwrap();
        let refused = fixture.parked_run("import", &[file.to_str().unwrap(), "--apply"]).await;
        let error = refused.error(1);
        assert!(error.contains("line 1") && error.len() < 500, "{error}");
        is_harmless(&refused);
    }
    fixture.has_depth(&fixture.parked(), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_message_is_edited_like_any_other() {
    let fixture = Fixture::new("hostile-edit").await;
    fixture.park_directly(hostile().into_iter().take(2)).await;
    let folder = Folder::of(&fixture);
    let file = folder.0.join("body");
    std::fs::write(&file, [0xff, 0x1b, b'c', 0]).unwrap();
    let body = ["--body", file.to_str().unwrap()];
    let planned = fixture.parked_run("edit", &[&body[..], &["--", EVIL]].concat()).await;
    assert_eq!(planned.code(), 0, "{}", planned.err);
    is_harmless(&planned);
    let edited = fixture
        .parked_run(
            "edit",
            &[&body[..], &["--apply", "--follow", "100ms", "--why", EVIL, "--", EVIL]].concat(),
        )
        .await;
    assert_eq!(edited.code(), 4, "nobody consumes: {}", edited.err);
    is_harmless(&edited);
    let arrived = fixture.client.drain(&fixture.queue, 1, SOON).await.unwrap();
    assert_eq!(arrived[0].body, [0xff, 0x1b, b'c', 0]);
    let discarded =
        fixture.tool(&["parked", "list", "--discarded", "--rows", "5"]).finished().await;
    assert_eq!(discarded.code(), 0, "{}", discarded.err);
    is_harmless(&discarded);
}

/// A plan of them has a line for each queue that it tells apart.
#[tokio::test(flavor = "multi_thread")]
async fn strays_that_name_any_number_of_queues_fill_neither_a_plan_nor_the_memory() {
    let fixture = Fixture::new("hostile-homes").await;
    let strays = (0..1_010)
        .map(|n| message("lost").header("rehop-return-to", format!("{}-{n}", fixture.queue)));
    fixture.stray_directly(strays).await;
    let listed =
        fixture.tool(&["parked", "list", "--stray", "--scan", "all", "--json"]).finished().await;
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let named = listed["destinations"].as_object().unwrap().len();
    assert_eq!(
        (named, &listed["other_destinations"], &listed["matched"]),
        (1_000, &json!(10), &json!(1_010))
    );
    let planned = fixture.tool(&["parked", "replay", "--stray"]).finished().await;
    assert_eq!(planned.code(), 0, "{}", planned.err);
    assert_eq!(
        planned.out.matches("1 cannot be sent: they belong to queue").count(),
        1_000,
        "{}",
        planned.out
    );
    let rest = "10 belong to further queues: a plan names and looks up 1,000 at most";
    assert!(planned.out.contains(rest), "{}", planned.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_chain_fills_neither_the_output_nor_the_memory() {
    let fixture = Fixture::new("hostile-chain").await;
    fixture
        .park_directly(
            (0..150).map(|n| message(format!("m-{n}")).header("rehop-chain-id", "forged")),
        )
        .await;
    let shown = fixture.parked_run("show", &["forged"]).await;
    assert_eq!(shown.code(), 0, "{}", shown.err);
    let bodies = (
        shown.out.matches("body, ").count(),
        shown.out.contains("m-99"),
        shown.out.contains("m-100"),
    );
    assert_eq!(bodies, (100, true, false), "{}", shown.out);
    assert!(
        shown.out.contains("and 50 more messages of this chain: at most 100 are shown"),
        "{}",
        shown.out
    );
    let json: Value =
        serde_json::from_str(&fixture.parked_run("show", &["forged", "--json"]).await.out).unwrap();
    assert_eq!((&json["matched"], json["messages"].as_array().unwrap().len()), (&json!(150), 100));
    let narrowed = fixture.parked_run("export", &["--chain", "forged", "--limit", "1"]).await;
    assert_eq!((narrowed.code(), narrowed.out.lines().count()), (0, 1), "{}", narrowed.err);
}

/// The largest message that 4.0 and 4.3 accept without being configured.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_16_mib_is_listed_shown_in_part_and_moved_whole() {
    const SIZE: usize = 16 * 1024 * 1024;
    let fixture = Fixture::new("hostile-size").await;
    let body: Vec<u8> = (0..SIZE).map(|n| (n % 251) as u8 | 0x80).collect();
    fixture.park_directly([message("large").body(body.clone())]).await;
    // What is not whole JSON is shown in part, too.
    let listed = fixture.parked_run("list", &["--rows", "1"]).await;
    assert!(
        listed.status.success() && listed.out.contains("16 MiB"),
        "{}{}",
        listed.out,
        listed.err
    );
    let chain: Value =
        serde_json::from_str(&fixture.parked_run("list", &["--rows", "1", "--json"]).await.out)
            .unwrap();
    let chain = chain["messages"][0]["chain"].as_str().unwrap().to_owned();
    let shown = fixture.parked_run("show", &["--", &chain]).await;
    assert!(shown.status.success() && shown.out.contains("more bytes)"), "{}", shown.err);
    assert!(shown.out.len() < 200_000, "{} bytes", shown.out.len());
    is_harmless(&shown);

    let folder = Folder::of(&fixture);
    let file = folder.0.join("large.jsonl");
    let file = file.to_str().unwrap();
    let exported = fixture.parked_run("export", &["--reveal", "--output", file]).await;
    assert_eq!(exported.code(), 0, "{}", exported.err);
    fixture.client.purge(&fixture.parked()).await.unwrap();
    let imported = fixture.parked_run("import", &[file, "--apply"]).await;
    assert_eq!(imported.code(), 0, "{}", imported.err);
    let edited = folder.0.join("edited");
    let mended: Vec<u8> = body.iter().map(|byte| byte ^ 1).collect();
    std::fs::write(&edited, &mended).unwrap();
    let edit = ["--body", edited.to_str().unwrap(), "--apply", "--follow", "100ms", "--", &chain];
    let edited = fixture.parked_run("edit", &edit).await;
    assert_eq!(edited.code(), 4, "nobody consumes: {}", edited.err);
    let arrived = fixture.client.drain(&fixture.queue, 1, SOON).await.unwrap();
    assert!(arrived[0].body == mended, "{} bytes", arrived[0].body.len());
    let discarded = fixture
        .client
        .drain(&format!("{}.discarded", fixture.namespace.name()), 1, SOON)
        .await
        .unwrap();
    assert!(discarded[0].body == body, "{} bytes", discarded[0].body.len());
}
