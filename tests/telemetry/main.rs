//! Traces, metrics and logs as a collector receives them, from runs on a real broker.
//!
//! The providers are global, so these tests have their own binary, share one set-up and one
//! collector, and find their spans by trace or queue. A test that needs its own set-up runs in its
//! own process ([`alone`]).

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

mod chain;
mod chains;
#[path = "../../src/telemetry/clocks.rs"]
mod clocks;
mod collector;
mod context;
mod deaths;
mod environment;
mod jaeger;
mod metrics;
mod moves;
mod outage;
mod providers;
mod replays;
mod sampling;
#[allow(dead_code, reason = "the other tests use all of it")]
#[path = "../support/mod.rs"]
mod support;
mod ways;

use std::sync::OnceLock;

use collector::Collector;
use rehop::telemetry::FlushError;
use rehop_testing::Broker;
use support::SOON;

static COLLECTOR: OnceLock<Collector> = OnceLock::new();
static TELEMETRY: OnceLock<rehop::telemetry::Telemetry> = OnceLock::new();

/// The collector that this process exports to.
fn collector() -> &'static Collector {
    COLLECTOR.get_or_init(Collector::start)
}

/// Sets up this process's telemetry, once. Each test calls it before its first `connect`.
fn set_up() {
    TELEMETRY.get_or_init(|| {
        rehop::telemetry::builder("tests")
            .endpoint(collector().url())
            .shutdown_limit(SOON)
            .init()
            .unwrap()
    });
}

/// Exports everything that was recorded so far.
async fn flush() -> Result<(), FlushError> {
    set_up();
    TELEMETRY.get().unwrap().flush().await
}

const ALONE: &str = "REHOP_TEST_ALONE";

/// Returns true in a process that runs only this test. Otherwise it starts that process, with these
/// variables and this process's broker, expects it to succeed, and returns false.
async fn alone(test: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(ALONE, "1").kill_on_drop(true);
    command.env("REHOP_TEST_AMQP_URL", Broker::shared().await.amqp_url());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} in its own process:\n{text}"
    );
    false
}
