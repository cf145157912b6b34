//! The demo as a user runs it: as a process, on a broker of its own or a simulated one.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::path::Path;
use std::process::{Command, Output};

use rehop_testing::not_tried;
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_rehop-demo");

fn demo(args: &[&str]) -> Output {
    Command::new(PROGRAM).args(args).output().unwrap()
}

fn number(report: &Value, pointer: &str) -> u64 {
    report
        .pointer(pointer)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("{pointer} is not a number in {report:#}"))
}

/// The report of 150 orders, and what was written to standard error. The demo succeeds, so it adds
/// up.
fn report(args: &[&str]) -> (Value, String) {
    let output = demo(&[args, &["--json", "--messages", "150"]].concat());
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    (serde_json::from_str(&text).expect("standard output is one JSON value"), errors.into_owned())
}

#[test]
fn the_demo_adds_up_and_its_trace_agrees_with_what_the_service_saw() {
    let (report, errors) = report(&[]);
    assert_eq!(report["simulated"], false);
    // One delivery, and five more within the limit. 3.10 and 4.0 also count a message that is
    // handed back unseen, which happens while the queues of a process take turns.
    let crashes = number(&report, "/crashes");
    let handing_back_counts =
        ["RabbitMQ 3.", "RabbitMQ 4.0."].iter().any(|version| errors.contains(version));
    assert!(
        crashes == 6 || (handing_back_counts && (1..6).contains(&crashes)),
        "{crashes} crashes\n{errors}"
    );
    // A message waits for at most 500 ms until its span is exported, so a busy machine may lose
    // some.
    check(&report, crashes, 1);
}

#[test]
fn the_simulated_demo_adds_up_and_shows_the_same() {
    let (report, errors) = report(&["--simulated"]);
    assert_eq!((&report["simulated"], errors.as_str()), (&json!(true), ""));
    // One delivery, and five more within the limit of RabbitMQ 4.3.
    assert_eq!(number(&report, "/crashes"), 6);
    check(&report, 6, 6);
}

#[test]
fn the_simulated_demo_says_at_its_beginning_that_it_is_one_and_at_its_end_what_it_lacks() {
    let output = demo(&["--simulated", "--messages", "100"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.starts_with("SIMULATED, as you asked: "), "{text}");
    let end = text.split("It adds up: 100 orders").nth(1).unwrap_or_else(|| panic!("{text}"));
    for lacks in ["really killed", "real network", "management API", "throughput"] {
        assert!(end.contains(lacks), "{lacks}: {text}");
    }
}

#[test]
fn without_docker_and_a_server_the_demo_plays_on_a_simulated_broker() {
    if Path::new("/usr/lib/rabbitmq/bin/rabbitmq-server").exists() {
        return not_tried("the demo without a broker, because a rabbitmq-server is installed");
    }
    // Neither is found on this path.
    let output =
        Command::new(PROGRAM).args(["--messages", "100"]).env("PATH", "").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        text.starts_with("SIMULATED, because neither Docker nor a rabbitmq-server is here: "),
        "{text}"
    );
}

/// What a demo of 150 orders shows on any broker, if its consumer died this often and so many
/// deaths at least are in the trace.
fn check(report: &Value, crashes: u64, fewest_recorded: u64) {
    check_account(report);
    check_trace(&report["trace"]);
    check_trace_of_poison(report, crashes, fewest_recorded);
    assert!(number(report, "/traces") >= 150);
    assert_eq!(number(report, "/traces_with_doubted_clocks"), 0);
    check_timelines(report, crashes);
    check_jitter(report);
    check_replay(report);
}

fn check_account(report: &Value) {
    assert_eq!(number(report, "/published"), 150);
    let orders = |handled: usize, exhausted: Option<usize>| {
        let mut orders = json!({
            "handled": handled,
            "parked: permanent": 4,
            "parked: undecodable": 1,
            "parked: delivery limit": 1,
            "expired, and parked": 2,
            "stray": 2,
            "still in a queue": 0,
            "lost": 0,
        });
        if let Some(count) = exhausted {
            orders["parked: exhausted"] = json!(count);
        }
        orders
    };
    assert_eq!(report["before_the_replay"]["orders"], orders(132, Some(8)));
    assert_eq!(report["at_the_end"]["orders"], orders(140, None));
    assert!(number(report, "/lateness_ms/waits") > 10);
}

fn check_trace(trace: &Value) {
    let spans = trace["spans"].as_array().unwrap();
    let of = |operation: &str| -> Vec<&Value> {
        spans
            .iter()
            .filter(|span| span["attributes"]["messaging.operation.type"] == operation)
            .collect()
    };
    let attempts = of("process");
    assert_eq!(attempts.len() as u64, number(trace, "/attempts_seen_by_the_service"), "{trace:#}");
    assert!(attempts.len() >= 2);
    let root = &spans[0];
    assert!(root["name"].as_str().unwrap().starts_with("publish shop:order."), "{root:#}");
    let waits: Vec<_> =
        spans.iter().filter(|span| span["attributes"].get("rehop.lateness_ms").is_some()).collect();
    for attempt in &attempts {
        let hop = &attempt["attributes"]["rehop.hop"];
        let wait = waits.iter().find(|wait| wait["attributes"]["rehop.hop"] == *hop);
        let is_first = attempt["attributes"]["rehop.attempt"] == 1;
        let above = match wait {
            Some(wait) => wait["span_id"].as_str(),
            None if is_first => root["span_id"].as_str(),
            // It links to the producer's span.
            None => Some(""),
        };
        assert_eq!(
            attempt["parent_id"].as_str(),
            above,
            "each attempt is below the wait before it: {trace:#}"
        );
    }
    assert!(waits.iter().all(|wait| wait["parent_id"] == ""), "waits lie flat: {trace:#}");
    assert_eq!(attempts.last().unwrap()["attributes"]["rehop.outcome"], "ack");
    let outcomes = |wanted: &str| {
        attempts.iter().filter(|it| it["attributes"]["rehop.outcome"] == wanted).count()
    };
    assert_eq!(waits.len(), outcomes("wait"), "each wait that was decided has its span");
    // The broker has the copy before its confirm is here, when the wait's span begins.
    let decided = attempts.iter().filter(|it| it["attributes"]["rehop.outcome"] == "wait");
    for (wait, attempt) in waits.into_iter().zip(decided) {
        let took = number(wait, "/end") - number(attempt, "/end");
        assert!(
            took >= number(wait, "/attributes/rehop.delay_ms") * 1_000_000,
            "never early: {wait:#}"
        );
        assert!(number(wait, "/start") >= number(attempt, "/end"), "never before its cause");
    }
}

fn check_trace_of_poison(report: &Value, crashes: u64, fewest_recorded: u64) {
    let poison = report["trace_of_poison"]["spans"].as_array().unwrap();
    let deaths: Vec<_> =
        poison.iter().filter_map(|span| span["attributes"].get("rehop.unanswered")).collect();
    // The first delivery came back from nowhere, and after the last death there is no other.
    let recorded = deaths.len() as u64 + 1;
    assert!((fewest_recorded..=crashes).contains(&recorded), "{poison:#?}");
    if recorded == crashes {
        assert_eq!(
            poison.last().unwrap()["attributes"]["rehop.last_delivery"],
            crashes == 6,
            "{poison:#?}"
        );
    }
}

fn check_timelines(report: &Value, crashes: u64) {
    let timelines = report["timelines"].as_array().unwrap();
    assert_eq!(timelines.len(), 3);
    let moments = |timeline: usize, what: &str| {
        let moments = timelines[timeline]["moments"].as_array().unwrap().iter();
        moments.filter(|moment| moment.as_str().unwrap().contains(what)).count()
    };
    assert!(moments(0, "answered 503, retry after 1000 ms -> wait") >= 1, "{timelines:#?}");
    assert!(
        moments(0, "waits on the ladder, in 2 of its queues: planned 1000 ms") >= 1,
        "{timelines:#?}"
    );
    assert_eq!(timelines[0]["end"], "handled");
    assert_eq!(timelines[1]["end"], "expired, and parked");
    assert_eq!(moments(2, "the process dies") as u64, crashes);
    assert_eq!(timelines[2]["end"], "parked: delivery limit");
}

fn check_jitter(report: &Value) {
    let waits: Vec<u64> = report["jitter"]["waits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|wait| wait.as_u64().unwrap())
        .collect();
    assert!(waits.iter().all(|wait| (800..=1600).contains(wait)), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait != waits[0]), "jitter makes waits differ: {waits:?}");
}

fn check_replay(report: &Value) {
    let groups = report["parked"].as_array().unwrap();
    let met_bug: Vec<_> = groups.iter().filter(|group| group["class"] == "http_500").collect();
    assert_eq!(met_bug.len(), 1, "{groups:#?}");
    assert_eq!(met_bug[0]["reason"], "exhausted");
    // A crash may have caused duplicates, which are parked and replayed too.
    let replay = &report["replay"];
    let moved = number(replay, "/moved");
    assert!(moved >= 8 && moved == number(met_bug[0], "/count"), "{replay:#}");
    assert_eq!(number(replay, "/fates/handled"), moved, "{replay:#}");
    assert!(groups.iter().map(|group| number(group, "/count")).sum::<u64>() >= 16, "{groups:#?}");
    assert!(report["replayed_orders_seen_after_nanos"].as_array().unwrap().len() >= 8);
}

#[test]
fn a_number_of_messages_without_room_for_every_kind_is_refused() {
    let output = demo(&["--messages", "10"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("100..=5000"));
}
