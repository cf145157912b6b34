//! `rehop ui` as a process.

use std::time::Instant;

use rehop_testing::{Publish, eventually};

use super::http::{ask, encode};
use crate::process::Tool;
use crate::support::{Fixture, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn the_address_is_printed_and_its_token_is_in_no_log() {
    let fixture = Fixture::new("ui-tool").await;
    let arguments = [
        "ui",
        "--queue",
        &fixture.queue,
        "--listen",
        "127.0.0.1:0",
        "--allow",
        "replay,discard",
        "-vv",
    ];
    let tool = fixture.tool(&arguments);
    tool.logs("the page is served").await;
    let ended = tool.stop().await;
    let address =
        ended.out.trim().strip_prefix("Open this address, once: http://127.0.0.1:").unwrap();
    let (_, token) = address.split_once("/enter?token=").unwrap();
    assert_eq!(token.len(), 64);
    assert!(!ended.err.contains(token), "{}", ended.err);
    assert!(ended.err.contains("allowed=replay, discard"), "{}", ended.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_not_be_safe_or_makes_no_sense_is_an_error_at_the_start() {
    let fixture = Fixture::new("ui-wrong").await;
    let queue = fixture.queue.as_str();
    for (arguments, code, says) in [
        (&["--queue", queue, "--listen", "0.0.0.0:0"][..], 1, "--allow-remote"),
        (&["--queue", queue, "--public-url", "ops"], 1, "https://rehop.example.com"),
        (
            &["--queue", queue, "--trace-url", "javascript:alert(1)//{trace_id}"],
            1,
            "not the address of a trace",
        ),
        (&["--queue", queue, "--trace-url", "http://jaeger"], 1, "not the address of a trace"),
        (&["--queue", queue, "--socket", "/"], 1, "choose another path"),
        (&["--listen", "127.0.0.1:0"], 2, "name one with --queue"),
    ] {
        let error = fixture.tool(&[&["ui"][..], arguments].concat()).finished().await.error(code);
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
    let unknown = fixture.tool(&["ui", "--queue", queue, "--allow", "purge"]).finished().await;
    assert_eq!(unknown.code(), 2);
    assert!(unknown.err.contains("expected replay, discard, edit or reveal"), "{}", unknown.err);
}

/// The arguments of the service `page` in observability/compose.yaml.
fn composed() -> Vec<String> {
    let file = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../observability/compose.yaml"
    ))
    .unwrap();
    let (_, service) = file.split_once("\n  page:\n").unwrap();
    let (_, command) = service.split_once("    command:\n").unwrap();
    let lines = command.lines().take_while(|line| line.starts_with("      "));
    lines.filter_map(|line| line.trim().strip_prefix("- ")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_the_compose_file_serves_the_page_where_its_port_is_published() {
    let fixture = Fixture::new("ui-compose").await;
    // Another test, or another program, may have the port.
    let free = |argument: String| argument.replace("--listen=0.0.0.0:7672", "--listen=0.0.0.0:0");
    let arguments: Vec<_> = composed().into_iter().map(free).collect();
    assert!(arguments.iter().any(|argument| argument == "--listen=0.0.0.0:0"), "{arguments:?}");
    let tool = fixture.tool(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tool.logs("the page is served").await;
    let ended = tool.stop().await;
    assert!(
        ended.out.starts_with("Open this address, once: http://127.0.0.1:7672/enter?token="),
        "{}",
        ended.out
    );
    assert!(ended.err.contains("allowed=read-only"), "{}", ended.err);
}

/// Opens the page of a process by the address that it prints. Returns its host and port, and the
/// cookie of the session as a header line.
pub(crate) async fn enter(tool: &Tool) -> (String, String) {
    let is_printed = async || Ok::<_, String>(tool.out.text().contains('\n'));
    eventually(SOON, "the address is printed", is_printed).await.unwrap();
    let printed = tool.out.text();
    let address = printed.trim().split_once("http://").unwrap().1;
    let (authority, entrance) = address.split_once('/').unwrap();
    let entered = ask(authority, &format!("/{entrance}"), "").await;
    let cookie =
        format!("cookie: {}", entered.header("set-cookie").unwrap().split(';').next().unwrap());
    (authority.to_owned(), cookie)
}

/// The most memory that a process has had so far, in KiB.
#[cfg(target_os = "linux")]
fn peak_memory(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// `REHOP_TEST_PAGE_DEPTH=100000` tries it with so many, as the documentation does.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_the_page_does_not_grow_with_the_queue() {
    let depth =
        std::env::var("REHOP_TEST_PAGE_DEPTH").map_or(2_500, |depth| depth.parse::<u32>().unwrap());
    let fixture = Fixture::new("ui-memory").await;
    fixture.declare().await;
    let parked = fixture.parked();
    let message = |number| {
        Publish::to_queue(&parked).body("x".repeat(1_024)).message_id(format!("m-{number}"))
    };
    fixture.client.publish_many((0..depth).map(message)).await.unwrap();
    fixture.has_depth(&parked, depth).await;
    let tool = fixture.tool(&[
        "ui",
        "--queue",
        &fixture.queue,
        "--listen",
        "127.0.0.1:0",
        "--allow",
        "replay",
    ]);
    let (authority, cookie) = enter(&tool).await;
    let at_rest = peak_memory(tool.id());
    let place = format!("queue={}", encode(&fixture.queue));
    let begun = Instant::now();
    let first = ask(&authority, &format!("/messages?{place}"), &cookie).await;
    eprintln!("the first page of {depth} messages took {:?}", begun.elapsed());
    assert_eq!(first.status, 200, "{}", first.body);
    let begun = Instant::now();
    let planned = async || {
        let plan = ask(&authority, &format!("/plan/replay?{place}"), &cookie).await;
        if plan.body.contains(&format!("name=\"expect\" value=\"{depth}\"")) {
            Ok(true)
        } else {
            Err(plan.body)
        }
    };
    eventually(SOON, "a plan of all messages", planned).await.unwrap();
    let peak = peak_memory(tool.id());
    eprintln!(
        "the plan of all took {:?}; at most {peak} KiB of memory, {at_rest} KiB of it before",
        begun.elapsed()
    );
    // 100,000 bodies alone are 100 MiB.
    assert!(peak < at_rest + 64 * 1024, "{peak} KiB of memory, {at_rest} KiB of it before");
    fixture.has_depth(&parked, depth).await;
}
