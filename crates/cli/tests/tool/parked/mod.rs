//! `rehop parked`: what it prints, and what it does.

mod chosen;
mod counted;
mod hostile;
mod list_all;
mod logged;
mod nested;
mod stopped;
mod transfer;
mod warned;

use rehop::Failure;
use rehop_testing::{Broker, Publish, Received, eventually};
use serde_json::{Value, json};

use crate::process::{Finished, Tool, variables};
use crate::support::{Fixture, SOON, not_tried};

impl Fixture {
    /// The tool for the parked messages of this test's queue.
    fn parked_tool(&self, command: &str, more: &[&str]) -> Tool {
        self.tool(&[&["parked", command, "--queue", &self.queue], more].concat())
    }

    async fn parked_run(&self, command: &str, more: &[&str]) -> Finished {
        self.parked_tool(command, more).finished().await
    }

    /// Messages as another program may have parked them: straight through the park exchange.
    async fn park_directly(&self, messages: impl IntoIterator<Item = Publish>) {
        self.declare().await;
        let park = format!("{}.park", self.namespace.name());
        let to_park = |message: Publish| Publish {
            exchange: park.clone(),
            routing_key: self.queue.clone(),
            ..message
        };
        let before = self.client.depth(&self.parked()).await.unwrap();
        let count = self.client.publish_many(messages.into_iter().map(to_park)).await.unwrap();
        self.has_depth(&self.parked(), before + count as u32).await;
    }

    /// Stray messages, straight to the exchange of those that find no queue.
    async fn stray_directly(&self, messages: impl IntoIterator<Item = Publish>) {
        self.declare().await;
        let to_stray = |message: Publish| Publish { exchange: self.stray(), ..message };
        let count = self.client.publish_many(messages.into_iter().map(to_stray)).await.unwrap();
        self.has_depth(&self.stray(), count as u32).await;
    }
}

fn message(body: impl Into<String>) -> Publish {
    let body = body.into();
    Publish::to_queue("anywhere")
        .message_id(body.clone())
        .body(body)
        .header("rehop-reason", "exhausted")
}

fn error(class: &str, text: &str) -> String {
    json!([{ "at": 1_700_000_000_000i64, "attempt": 8, "class": class, "message": text }])
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_finds_out_what_failed_and_sends_one_kind_back() {
    let fixture = Fixture::new("operator").await;
    let busy = |n: usize| {
        message(format!("busy-{n}"))
            .header("rehop-errors", error("http_503", &format!("order {n} failed")))
    };
    let wrong = (0..2).map(|n| {
        message(format!("wrong-{n}")).header("rehop-errors", error("http_422", "no such customer"))
    });
    fixture.park_directly((0..7).map(busy).chain(wrong)).await;

    let listed = fixture.parked_run("list", &[]).await;
    assert_eq!(listed.code(), 0, "{}", listed.err);
    for part in ["all 9 messages", "2 kinds", "http_503", "order <n> failed", "no such customer"] {
        assert!(listed.out.contains(part), "{part:?} is missing: {}", listed.out);
    }
    let shown = fixture.parked_run("show", &["busy-3"]).await;
    assert!(
        shown.out.contains("attempt 8 failed: http_503: order 3 failed")
            && shown.out.contains("busy-3"),
        "{}",
        shown.out
    );

    let planned = fixture.parked_run("replay", &["--class", "http_503"]).await;
    assert_eq!(planned.code(), 0, "{}", planned.err);
    let command = format!(
        "rehop parked replay --queue {} --class http_503 --apply --expect 7 --why '...'",
        fixture.queue
    );
    for part in [
        "7 of 9 messages",
        &format!("7 would go to queue {}", fixture.queue),
        "Nothing was done",
        &command,
    ] {
        assert!(planned.out.contains(part), "{part:?} is missing: {}", planned.out);
    }
    fixture.has_depth(&fixture.parked(), 9).await;

    let run = fixture.serve_always(Ok(())).await;
    let apply = [
        "--class",
        "http_503",
        "--apply",
        "--expect",
        "7",
        "--why",
        "the shop is up",
        "--json",
        "--follow",
        "60s",
    ];
    let replayed = fixture.parked_run("replay", &apply).await;
    assert_eq!(replayed.code(), 0, "{}", replayed.err);
    let report: Value = serde_json::from_str(&replayed.out).unwrap();
    assert_eq!(
        (&report["moved"], &report["fates"]["handled"], &report["unknown"]),
        (&json!(7), &json!(7), &json!(0))
    );
    assert!(replayed.err.contains("the shop is up"), "the log is the audit: {}", replayed.err);
    fixture.has_depth(&fixture.parked(), 2).await;
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_status_says_how_a_replay_ended() {
    let fixture = Fixture::new("status").await;
    fixture.park_directly((0..3).map(|n| message(n.to_string()))).await;
    let unexpected = fixture.parked_run("replay", &["--apply", "--expect", "4"]).await;
    assert_eq!(unexpected.code(), 3, "{}", unexpected.err);
    assert!(unexpected.out.contains("not the expected number"), "{}", unexpected.out);
    let nobody = fixture
        .parked_run(
            "replay",
            &["--limit", "1", "--apply", "--all", "--canary", "0", "--follow", "100ms"],
        )
        .await;
    assert_eq!(nobody.code(), 4, "{}", nobody.out);
    let (_, run) = nobody.out.split_once("replay ").unwrap();
    let (run, rest) = run.split_once(':').unwrap();
    let look = format!("rehop parked list --queue QUEUE --run {run} --scan all");
    for part in [
        ", 1 unknown\n1 unknown: they may still be in their queue",
        "parked by the broker in the end",
        &look,
    ] {
        assert!(rest.contains(part), "{part:?} is missing: {}", nobody.out);
    }
    let run = fixture.serve_always(Err(Failure::permanent("still wrong"))).await;
    fixture.has_depth(&fixture.parked(), 3).await;
    let again = fixture.parked_run("replay", &["--apply"]).await;
    assert_eq!(again.code(), 3, "{}", again.out);
    assert!(
        again.out.contains("parked again") && again.out.contains("still wrong"),
        "{}",
        again.out
    );
    run.stop().await;
    for wrong in [&["--expect", "3"][..], &["--where", "customer"], &["--apply", "--rate", "0"]] {
        assert_eq!(fixture.parked_run("replay", wrong).await.code(), 2, "{wrong:?}");
    }
    let missing = fixture.tool(&["parked", "list", "--queue", "nowhere"]).finished().await.error(1);
    assert!(missing.contains("nowhere.parked") && missing.contains("does not exist"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stray_whose_queue_is_gone_stays_and_the_plan_says_so() {
    let fixture = Fixture::new("gone").await;
    let run = fixture.serve_always(Ok(())).await;
    let gone = fixture.namespace.queue("gone");
    fixture
        .stray_directly(
            [fixture.queue.as_str(), &gone, ""]
                .map(|queue| message("lost").header("rehop-return-to", queue)),
        )
        .await;
    let planned = fixture.tool(&["parked", "replay", "--stray"]).finished().await;
    assert_eq!(planned.code(), 0, "{}", planned.err);
    for part in [
        format!("1 would go to queue {}", fixture.queue),
        format!("1 cannot be sent: they belong to queue {gone}, which does not exist"),
        "1 do not say where they belong, and would stay unless --to names a queue".to_owned(),
    ] {
        assert!(planned.out.contains(&part), "{part:?} is missing: {}", planned.out);
    }
    let json: Value = serde_json::from_str(
        &fixture.tool(&["parked", "replay", "--stray", "--json"]).finished().await.out,
    )
    .unwrap();
    assert_eq!(
        (&json["missing_destinations"][&gone], &json["without_destination"]),
        (&json!(1), &json!(1))
    );
    let replayed = fixture
        .tool(&["parked", "replay", "--stray", "--apply", "--expect", "3", "--follow", "60s"])
        .finished()
        .await;
    assert_eq!(replayed.code(), 3, "{}", replayed.err);
    for part in [
        "1 sent, 1 handled",
        "1 stay: they do not say where they belong",
        "1 stay: their queue does not exist",
    ] {
        assert!(replayed.out.contains(part), "{part:?} is missing: {}", replayed.out);
    }
    fixture.has_depth(&fixture.stray(), 2).await;
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_replay_gives_back_what_it_did_not_send_and_says_so() {
    let fixture = Fixture::new("interrupt").await;
    fixture.park_directly((0..50).map(|n| message(n.to_string()))).await;
    let tool = fixture.parked_tool("replay", &["--apply", "--all", "--canary", "0", "--rate", "2"]);
    eventually(SOON, "some are sent", async || {
        fixture.client.depth(&fixture.queue).await.map(|depth| depth >= 3)
    })
    .await
    .unwrap();
    tool.signal("INT");
    let finished = tool.finished().await;
    assert_eq!(finished.code(), 3, "{}", finished.err);
    assert!(finished.out.contains("stopped: it was told to stop"), "{}", finished.out);
    let sent = fixture.client.depth(&fixture.queue).await.unwrap();
    fixture.has_depth(&fixture.parked(), 50 - sent).await;
    let left: Vec<_> = fixture
        .client
        .get_all(&fixture.parked())
        .await
        .unwrap()
        .iter()
        .map(Received::text)
        .collect();
    let expected: Vec<_> = (sent..50).map(|n| n.to_string()).collect();
    assert_eq!(left, expected, "in their order");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_editor_mends_a_message() {
    let fixture = Fixture::new("editor").await;
    fixture.park_directly([message("seven").body("wrong amount")]).await;
    let run = fixture.serve(|message: rehop::Message<bytes::Bytes>| async move {
        if &message.body[..] == b"right amount" { Ok(()) } else { Err(Failure::permanent("no")) }
    });
    let run = run.await;
    let environment = [
        variables(&fixture.settings),
        vec![
            ("EDITOR".to_owned(), "sed -i s/wrong/right/".to_owned()),
            ("PATH".to_owned(), std::env::var("PATH").unwrap()),
        ],
    ]
    .concat();
    let arguments = [
        "parked",
        "edit",
        "--queue",
        &fixture.queue,
        "seven",
        "--follow",
        "60s",
        "--apply",
        "--why",
        "a typo",
    ];
    let edited = Tool::start(&arguments, environment.clone()).finished().await;
    assert_eq!(edited.code(), 0, "{}", edited.err);
    assert!(edited.out.contains("it was handled"), "{}", edited.out);
    for line in ["edit begins", "edit ended"] {
        let logged = edited.err.lines().any(|it| it.contains(line) && it.contains("a typo"));
        assert!(logged, "the log is the audit: {}", edited.err);
    }
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discard_says_how_it_is_undone() {
    let fixture = Fixture::new("undo").await;
    fixture.park_directly((0..3).map(|n| message(n.to_string()))).await;
    let discarded = fixture
        .parked_run("discard", &["--limit", "2", "--apply", "--all", "--why", "too many"])
        .await;
    assert_eq!(discarded.code(), 0, "{}", discarded.err);
    let (_, run) = discarded.out.trim().rsplit_once("rehop parked restore --run ").unwrap();
    fixture.has_depth(&fixture.parked(), 1).await;
    let planned = fixture.tool(&["parked", "restore", "--run", run]).finished().await;
    assert_eq!(planned.code(), 0, "{}", planned.err);
    let command = format!("rehop parked restore --run {run} --apply --expect 2 --why '...'");
    assert!(
        planned.out.contains("Nothing was done. To restore them") && planned.out.contains(&command),
        "{}",
        planned.out
    );
    fixture.has_depth(&fixture.parked(), 1).await;
    let apply = [
        "parked",
        "restore",
        "--run",
        run,
        "--apply",
        "--expect",
        "2",
        "--why",
        "a mistake",
        "--json",
    ];
    let restored = fixture.tool(&apply).finished().await;
    assert_eq!(restored.code(), 0, "{}", restored.err);
    let report: Value = serde_json::from_str(&restored.out).unwrap();
    assert_eq!((&report["moved"], &report["stopped"]), (&json!(2), &Value::Null));
    assert!(restored.err.contains("a mistake"), "the log is the audit: {}", restored.err);
    fixture.has_depth(&fixture.parked(), 3).await;
    let none = fixture
        .tool(&["parked", "restore", "--run", run, "--apply", "--expect", "2"])
        .finished()
        .await;
    assert_eq!(none.code(), 3, "nothing is restored twice: {}", none.out);
    let bare = fixture.parked_run("list", &["--class", "", "--error-is", ""]).await;
    assert!(bare.out.contains("all 3 messages, 3 match"), "{}", bare.out);
    let other = fixture.parked_run("list", &["--destination", ""]).await;
    assert!(other.out.contains("0 match"), "{}", other.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discarded_message_whose_queue_is_gone_stays_and_the_plan_of_a_restore_says_so() {
    let fixture = Fixture::new("undo-gone").await;
    fixture.park_directly(["one", "two"].map(message)).await;
    fixture.stray_directly([message("three")]).await;
    assert_eq!(fixture.parked_run("discard", &["--apply", "--all"]).await.code(), 0);
    assert_eq!(
        fixture.tool(&["parked", "discard", "--stray", "--apply", "--all"]).finished().await.code(),
        0
    );
    fixture.client.delete_queue(&fixture.parked()).await.unwrap();
    let restore = async |more: &[&str]| {
        fixture.tool(&[&["parked", "restore"], more].concat()).finished().await
    };
    let planned = restore(&[]).await;
    assert_eq!(planned.code(), 0, "{}", planned.err);
    for part in [
        format!("1 would go back to queue {}", fixture.stray()),
        format!(
            "2 cannot be restored: they were discarded from queue {}, which does not exist",
            fixture.parked()
        ),
    ] {
        assert!(planned.out.contains(&part), "{part:?} is missing: {}", planned.out);
    }
    let json: Value = serde_json::from_str(&restore(&["--json"]).await.out).unwrap();
    assert_eq!(json["missing_destinations"], json!({ (fixture.parked()): 2 }));
    let restored = restore(&["--apply", "--expect", "3"]).await;
    assert_eq!(restored.code(), 3, "{}{}", restored.out, restored.err);
    let stay = "1 restored\n2 stay: the queue that they were discarded from does not exist or cannot be served; declare it again";
    assert_eq!(restored.out.trim(), stay);
    assert!(
        restored
            .err
            .lines()
            .any(|line| line.contains("restore ended") && line.contains("stayed=2"))
    );
    let json: Value =
        serde_json::from_str(&restore(&["--apply", "--all", "--json"]).await.out).unwrap();
    assert_eq!((&json["moved"], &json["missing_destination"]), (&json!(0), &json!(2)));
    fixture.declare().await;
    assert_eq!(restore(&["--apply", "--expect", "2"]).await.code(), 0);
    fixture.has_depth(&fixture.parked(), 2).await;
}

/// The discarded queue takes a part and refuses the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_discard_that_failed_half_way_says_how_it_is_undone() {
    const COUNT: u32 = 400;
    if Broker::shared().await.management_url().is_none() {
        return not_tried(
            "a discard that fails half way, because REHOP_TEST_MANAGEMENT_URL is not set",
        );
    }
    let fixture = Fixture::new("undo-failed").await;
    fixture.park_directly((0..COUNT).map(|n| message(n.to_string()))).await;
    let bin = format!("{}.discarded", fixture.namespace.name());
    fixture.set_policy(&bin, json!({ "max-length": 20, "overflow": "reject-publish" })).await;
    let discarded = fixture.parked_run("discard", &["--apply", "--all", "--why", "too many"]).await;
    fixture.clear_policy(&bin).await;
    assert!(discarded.error(1).contains("the broker refused a message"), "{}", discarded.err);
    let told = " were discarded before the error; to undo it: rehop parked restore --run ";
    let (count, run) = discarded
        .err
        .lines()
        .find_map(|line| line.split_once(told))
        .expect("it says how to undo it");
    let count: u32 = count.parse().unwrap();
    assert!((20..COUNT).contains(&count), "{count} were discarded");
    fixture.has_depth(&bin, count).await;
    let expect = count.to_string();
    let restore = ["parked", "restore", "--run", run, "--apply", "--expect", &expect];
    let restored = fixture.tool(&restore).finished().await;
    assert_eq!(restored.code(), 0, "{}{}", restored.out, restored.err);
    fixture.has_depth(&fixture.parked(), COUNT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_namespace_a_look_warns_and_a_discard_names_the_one_that_the_queue_belongs_to() {
    let fixture = Fixture::new("unnamed").await;
    fixture.park_directly([message("seven")]).await;
    let mut environment = variables(&fixture.settings);
    environment.retain(|(name, _)| name != "REHOP_NAMESPACE");
    let run = async |command: &[&str]| {
        let arguments = [&["parked"], command, &["--queue", &fixture.queue]].concat();
        Tool::start(&arguments, environment.clone()).finished().await
    };
    let listed = run(&["list"]).await;
    assert_eq!(listed.code(), 0, "{}", listed.err);
    assert!(
        listed.out.contains("all 1 messages") && listed.err.contains("no namespace is set"),
        "{}",
        listed.err
    );
    for discard in [&["discard"][..], &["discard", "--apply", "--all"]] {
        let refused = run(discard).await;
        let name = format!("--namespace {}", fixture.namespace.name());
        assert!(refused.error(1).contains(&name), "{}", refused.err);
        assert!(refused.err.contains("no namespace is set"), "{}", refused.err);
    }
    fixture.has_depth(&fixture.parked(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_that_undoes_a_discard_works_as_it_is_printed() {
    let fixture = Fixture::new("undo-line").await;
    fixture.park_directly([message("seven")]).await;
    let mut environment = variables(&fixture.settings);
    environment.retain(|(name, _)| name != "REHOP_NAMESPACE");
    let namespace = ["--namespace", fixture.namespace.name()];
    let discard =
        ["parked", "discard", "--queue", &fixture.queue, "--apply", "--all", "--in-flight", "7"];
    let discarded =
        Tool::start(&[&discard[..], &namespace].concat(), environment.clone()).finished().await;
    assert_eq!(discarded.code(), 0, "{}", discarded.err);
    let (_, undo) = discarded.out.trim().split_once("to undo it: rehop ").unwrap();
    let undo: Vec<_> = undo.split(' ').chain(["--apply"]).collect();
    let restored = Tool::start(&undo, environment).finished().await;
    assert_eq!(restored.code(), 0, "{}", restored.err);
    assert_eq!(restored.out.trim(), "1 restored");
    fixture.has_depth(&fixture.parked(), 1).await;
}
