//! The examples as their readers run them: each is a process, and its output is checked.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

mod running;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rehop_testing::{Port, Publish};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use running::{SOON, check, check_with, client, command, tell};

/// All examples in one file. Cargo builds them before this test.
fn names() -> BTreeSet<String> {
    let files =
        fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap().map(|entry| entry.unwrap().path());
    let programs = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    programs.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_orders")).with_file_name(name)
}

/// Checked with the tool, as its page says: crates/cli/tests/tool/readme/tutorial.rs.
const ELSEWHERE: [&str; 1] = ["tutorial"];

#[test]
fn every_example_is_checked_here_or_is_known_to_be_checked_elsewhere() {
    let source = include_str!("examples.rs");
    for name in names().into_iter().filter(|name| !ELSEWHERE.contains(&name.as_str())) {
        assert!(source.contains(&format!("\"{name}\"")), "examples/{name}.rs has no test");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_charges_an_order() {
    let client = client(&["orders"]).await;
    let publish = async {
        let order = json!({ "id": 7, "amount": "12" });
        let published =
            async || client.publish(Publish::to_queue("orders").json(&order)).await.map(|()| true);
        rehop_testing::eventually(SOON, "the queue is declared", published).await.unwrap();
    };
    let last = "stopped cleanly: handled 1, requeued 0, waited 0, parked 0";
    tokio::join!(
        publish,
        check("orders", "INT", &["order 7, attempt 1", "order 7 is charged"], last)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_ends_cleanly_at_a_signal_while_there_is_no_broker() {
    let port = Port::claim().unwrap();
    let nobody = tokio::net::TcpListener::bind(port.address()).await.unwrap();
    let url = format!("amqp://guest:guest@{}/%2f", port.address());
    let example =
        command("orders", &url).env("REHOP_BROKER__STARTUP_TIMEOUT", "10m").spawn().unwrap();
    let pid = example.id().unwrap();
    // By its first try to connect it listens for signals. From then on nothing listens there.
    tokio::time::timeout(SOON, nobody.accept()).await.expect("the example connects").unwrap();
    drop(nobody);
    let told = tell("TERM", pid);
    let ended = tokio::time::timeout(SOON, example.wait_with_output()).await;
    let output = ended.expect("the example ends when it is told to").unwrap();
    let [printed, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(told && output.status.success(), "{}: {errors}", output.status);
    assert!(printed.starts_with("stopped cleanly: handled 0, "), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_passes_an_order_on_and_reports_what_cannot_be_published() {
    client(&["publishing.orders", "publishing.invoices"]).await;
    let lines = [
        "error: no queue takes a message to queue \"nowhere\"; start its service, or declare it with `rehop topology declare \
         --queue nowhere`",
        "error: there is no exchange \"no.such.exchange\": NOT_FOUND - no exchange 'no.such.exchange' in vhost '/'; check its \
         name, and declare it first",
        "error: the deadline of the message was 1m ago; it was not sent",
        "charged order 7",
        "sent invoice-7 for order 7",
    ];
    check(
        "publishing",
        "INT",
        &lines,
        "stopped cleanly: handled 2, requeued 0, waited 0, parked 0",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_gives_each_queue_its_own() {
    client(&["policies.charges", "policies.mails"]).await;
    let lines = [
        "policies.charges: at most 3 attempts",
        "policies.mails: at most 2 attempts",
        "charge, attempt 1",
        "charge, attempt 2",
        "charge, attempt 3",
        "mail, attempt 1",
        "mail, attempt 2",
    ];
    check("policies", "INT", &lines, "stopped cleanly: handled 0, requeued 1, waited 2, parked 2")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_shows_what_becomes_of_each() {
    client(&["failures.orders"]).await;
    let attempts = [
        ("fine", 1),
        ("unreadable", 4),
        ("busy", 2),
        ("refused", 1),
        ("closed", 2),
        ("locked", 4),
        ("empty", 1),
        ("cancelled", 1),
        ("unpaid", 1),
        ("other", 4),
    ];
    // It is deferred once, which is no attempt.
    let deferred = ["early, attempt 1", "early, attempt 1"].map(str::to_owned);
    let lines: Vec<_> = attempts
        .iter()
        .flat_map(|(order, most)| (1..=*most).map(move |n| format!("{order}, attempt {n}")))
        .chain(deferred)
        .collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    check(
        "failures",
        "INT",
        &lines,
        "stopped cleanly: handled 2, requeued 6, waited 6, parked 8, discarded 1",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decoding_takes_bytes_and_a_format_of_its_own() {
    let client = client(&["decoding.orders", "decoding.pictures"]).await;
    let lines = ["shipped a blue lamp for order 7", "archived 2 bytes of image/png"];
    // No handler sees the body that cannot be decoded, so no line tells when it is parked.
    let parked = async {
        client.drain("decoding.orders.parked", 1, SOON).await.unwrap();
    };
    let last = "stopped cleanly: handled 2, requeued 0, waited 0, parked 1";
    check_with("decoding", "127.0.0.1:0", "INT", &lines, parked, last).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn formats_decodes_each_message_by_its_type_its_schema_its_headers_or_its_encoding() {
    let queues =
        ["protobuf", "types", "schemas", "cloud", "gzip"].map(|it| format!("formats.{it}"));
    let client = client(&queues.each_ref().map(String::as_str)).await;
    let lines = [
        "formats.protobuf: cancelled 7",
        "formats.types: ordered 7",
        "formats.schemas: order 7",
        "formats.schemas: order 7",
        "formats.cloud: paid a of order 7",
        "formats.cloud: sent b of order 7",
        "formats.gzip: order 7",
    ];
    let parked = async {
        client.drain("formats.types.parked", 1, SOON).await.unwrap();
    };
    let last = "stopped cleanly: handled 7, requeued 0, waited 0, parked 1";
    check_with("formats", "127.0.0.1:0", "INT", &lines, parked, last).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn telemetry_puts_all_attempts_into_the_publishers_trace() {
    client(&["telemetry.orders"]).await;
    let lines = [
        "attempt 1 is in its publisher's trace: true",
        "attempt 2 is in its publisher's trace: true",
    ];
    check("telemetry", "INT", &lines, "stopped cleanly: handled 1, requeued 0, waited 1, parked 0")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn graceful_stop_finishes_the_running_order_and_leaves_the_next_to_the_broker() {
    let client = client(&["graceful_stop.orders"]).await;
    check(
        "graceful_stop",
        "TERM",
        &["order 7 has begun"],
        "stopped cleanly: handled 1, requeued 0, waited 0, parked 0",
    )
    .await;
    let left = client.drain("graceful_stop.orders", 1, SOON).await.unwrap();
    assert_eq!(left[0].text(), "8");
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_leaves_the_rest_of_a_file_to_a_later_attempt() {
    let client = client(&["upload.files"]).await;
    let last = "stopped cleanly: handled 0, requeued 0, waited 1, parked 0";
    check("upload", "TERM", &["uploaded part 1 of film"], last).await;
    let left = client.drain("upload.files", 1, SOON).await.unwrap();
    assert!(left[0].text().contains("film"), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_queue_uses_a_queue_as_it_is() {
    let client = client(&["takeover.orders"]).await;
    // Another program made the queue: a classic one, with an argument that rehop knows nothing of.
    let arguments = json!({ "x-queue-type": "classic", "x-max-length": 1000 });
    client.declare_queue("takeover.orders", arguments).await.unwrap();
    client.publish(Publish::to_queue("takeover.orders").json(&json!(7))).await.unwrap();
    let lines = ["order 7, attempt 1", "order 7, attempt 2"];
    check(
        "existing_queue",
        "INT",
        &lines,
        "stopped cleanly: handled 1, requeued 0, waited 1, parked 0",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_share_a_limit_and_give_up_a_slow_attempt() {
    let client = client(&["layers.invoices", "layers.refunds"]).await;
    let lines = [
        "refund 7 begins, attempt 1",
        "refund 7 is booked",
        "stuck begins, attempt 1",
        "stuck begins, attempt 2",
    ];
    check("layers", "INT", &lines, "stopped cleanly: handled 1, requeued 1, waited 0, parked 1")
        .await;
    let parked = client.drain("layers.invoices.parked", 1, SOON).await.unwrap();
    let errors = parked[0].headers["rehop-errors"].to_string();
    assert!(errors.contains("ledger_timeout") && errors.contains("request timed out"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn load_publishes_until_it_is_stopped() {
    client(&["load.orders"]).await;
    check(
        "load",
        "INT",
        &["the first order is here; 20 follow each second"],
        "stopped cleanly: handled",
    )
    .await;
}

/// Its tests run as tests.
#[tokio::test(flavor = "multi_thread")]
async fn testing_is_the_service_that_its_tests_are_of() {
    let client = client(&["shipping"]).await;
    let publish = async {
        let published = async || {
            client.publish(Publish::to_queue("shipping").json(&json!(7))).await.map(|()| true)
        };
        rehop_testing::eventually(SOON, "the queue is declared", published).await.unwrap();
    };
    let last = "stopped cleanly: handled 1, requeued 1, waited 1, parked 0";
    tokio::join!(publish, check("testing", "INT", &["order 7 is shipped at attempt 3"], last));
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_ready_when_it_consumes() {
    let client = client(&["health.orders"]).await;
    let port = Port::claim().unwrap();
    let listen = port.address().to_string();
    let publish = async {
        rehop_testing::eventually(SOON, "/readyz answers 200", async || {
            let answer = get(&listen, "/readyz").await;
            if answer.starts_with("HTTP/1.1 200") { Ok(true) } else { Err(answer) }
        })
        .await
        .unwrap();
        assert!(get(&listen, "/livez").await.starts_with("HTTP/1.1 200"));
        assert!(get(&listen, "/metrics").await.contains("rehop_consuming"));
        client.publish(Publish::to_queue("health.orders").json(&json!(7))).await.unwrap();
    };
    let lines = [format!("probes at http://{listen}/readyz"), "order 7 is handled".to_owned()];
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let last = "stopped cleanly: handled 1, requeued 0, waited 0, parked 0";
    tokio::join!(
        publish,
        check_with("health", &listen, "TERM", &lines, std::future::ready(()), last)
    );
}

/// The answer of an HTTP server, or what kept it from coming.
async fn get(address: &str, path: &str) -> String {
    let get = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    get.await.unwrap_or_else(|error| error.to_string())
}
