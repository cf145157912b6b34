//! `rehop demo` as its user runs it: as a process, on a broker of its own.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

use std::process::{Command, Output};

use serde_json::Value;

fn demo(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rehop")).arg("demo").args(args).output().unwrap()
}

fn number(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer} is no number in {report:#}"))
}

#[test]
fn the_demo_adds_up_and_its_trace_agrees_with_what_the_service_saw() {
    let output = demo(&["--json", "--messages", "150"]);
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    let report: Value = serde_json::from_str(&text).expect("standard output is one JSON value");

    let parked = report["parked"].as_object().unwrap();
    let parked_sum: u64 = parked.values().filter_map(Value::as_u64).sum();
    let sum = number(&report, "/handled") + parked_sum + number(&report, "/expired") + number(&report, "/stray");
    assert_eq!((sum, number(&report, "/published")), (150, 150), "{report:#}");
    for (reason, orders) in [("permanent", 4), ("exhausted", 2), ("undecodable", 1), ("delivery_limit", 1)] {
        assert_eq!(parked[reason], orders, "parked: {reason}");
    }
    assert_eq!((number(&report, "/expired"), number(&report, "/stray")), (2, 2));
    assert_eq!(number(&report, "/crashes"), 6, "one delivery, and five more within the limit");
    assert!(number(&report, "/lateness_ms/waits") > 10);

    let trace = &report["trace"];
    let spans = trace["spans"].as_array().unwrap();
    let of = |operation: &str| -> Vec<&Value> {
        spans.iter().filter(|span| span["attributes"]["messaging.operation.type"] == operation).collect()
    };
    let attempts = of("process");
    assert_eq!(attempts.len() as u64, number(trace, "/attempts_seen_by_the_service"), "{trace:#}");
    assert!(attempts.len() >= 2);
    let root = &spans[0];
    assert!(root["name"].as_str().unwrap().starts_with("publish shop:order."), "{root:#}");
    assert!(attempts.iter().all(|attempt| attempt["parent_id"] == root["span_id"]), "attempts lie flat: {trace:#}");
    assert_eq!(attempts.last().unwrap()["attributes"]["rehop.outcome"], "ack");
    let outcomes = |wanted: &str| attempts.iter().filter(|it| it["attributes"]["rehop.outcome"] == wanted).count();
    let waits = spans.iter().filter(|span| span["attributes"].get("rehop.lateness_ms").is_some()).count();
    assert_eq!(waits, outcomes("wait"), "each wait that was decided has its span");

    let timelines = report["timelines"].as_array().unwrap();
    assert_eq!(timelines.len(), 3);
    let moments = |timeline: usize, what: &str| -> Vec<&Value> {
        let moments = timelines[timeline]["moments"].as_array().unwrap();
        moments.iter().filter(|moment| moment["what"] == what).collect()
    };
    assert!(moments(0, "attempt").iter().any(|attempt| attempt["retry_after_ms"] == 1000));
    assert!(moments(0, "wait").iter().all(|wait| wait["actual_ms"].as_u64() >= wait["planned_ms"].as_u64()));
    assert_eq!(moments(2, "crash").len(), 6);
}

#[test]
fn a_number_of_messages_without_room_for_every_kind_is_refused() {
    let output = demo(&["--messages", "10"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("50..=5000"));
}
