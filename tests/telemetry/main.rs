//! Traces, metrics and logs as a collector gets them, from runs on a real broker.
//!
//! The providers are the process's, so all tests share one set-up and one collector, and know their own spans by trace or
//! queue. What needs a set-up of its own runs in a process of its own ([`alone`]).

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may its helpers")]

mod chain;
mod chains;
mod collector;
mod context;
mod environment;
mod jaeger;
mod metrics;
mod outage;
#[path = "../integration/support.rs"]
#[allow(dead_code, reason = "shared with the integration tests")]
mod support;

use std::sync::OnceLock;

use collector::Collector;
use rehop::testing::Broker;

static COLLECTOR: OnceLock<Collector> = OnceLock::new();
static TELEMETRY: OnceLock<rehop::telemetry::Telemetry> = OnceLock::new();

/// The collector that this process exports to.
fn collector() -> &'static Collector {
    COLLECTOR.get_or_init(Collector::start)
}

/// Sets this process's telemetry up, once. Before the first `connect` of each test.
fn set_up() {
    TELEMETRY.get_or_init(|| rehop::telemetry::builder("tests").endpoint(collector().url()).init().unwrap());
}

/// Has everything exported that was recorded so far.
async fn flush() {
    set_up();
    TELEMETRY.get().unwrap().flush().await.unwrap();
}

const ALONE: &str = "REHOP_TEST_ALONE";

/// True in a process that runs this one test alone. Elsewhere it starts that process, with these variables and this process's
/// broker, expects it to succeed, and is false.
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
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test} in its own process:\n{text}");
    false
}
