//! What is moved is counted, and the counts reach a collector before the process ends.

use super::message;
use crate::endpoint::{Arrived, Endpoint, with};
use crate::process::Tool;
use crate::support::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn a_command_exports_what_it_has_moved_before_it_ends() {
    let fixture = Fixture::new("counted").await;
    fixture.park_directly([message("seven")]).await;
    let collector =
        Endpoint::start(|_| async { with(200, "content-type", "application/x-protobuf") }).await;
    let environment = collector.as_metrics_collector(&fixture.settings);
    let discarded = Tool::start(
        &["parked", "discard", "--queue", &fixture.queue, "--apply", "--all"],
        environment,
    );
    let discarded = discarded.finished().await;
    assert_eq!(discarded.code(), 0, "{}", discarded.err);
    // Texts are written as they are, between numbers.
    let exported: Vec<_> = collector.arrived().iter().map(Arrived::text).collect();
    let parts = ["rehop.parked.moved", "discard", &fixture.parked(), "rehop parked"];
    assert!(
        exported.iter().any(|text| parts.iter().all(|part| text.contains(part))),
        "{parts:?} are in {exported:?}"
    );
}
