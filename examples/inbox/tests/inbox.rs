//! The example as its readers run it.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

#[path = "../../tests/running/mod.rs"]
#[allow(dead_code, reason = "the other examples use all of it")]
mod running;

use std::path::PathBuf;

use running::{check, client};

fn program(_: &str) -> PathBuf {
    env!("CARGO_BIN_EXE_inbox").into()
}

#[tokio::test(flavor = "multi_thread")]
async fn inbox_has_one_effect_for_two_messages_with_one_id() {
    client(&["inbox.orders"]).await;
    let lines = ["order 7 is charged; the balance is 88", "order 7 was charged before"];
    check("inbox", "INT", &lines, "stopped cleanly: handled 2, requeued 0, waited 0, parked 0")
        .await;
}
