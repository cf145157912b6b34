//! Says once that nothing records rehop's spans: a provider of another version of OpenTelemetry is as good as none, and nothing else would tell.

use std::sync::atomic::{AtomicBool, Ordering};

/// The version of the crate whose global provider rehop uses.
const VERSION: &str = "0.33";

static SAID: AtomicBool = AtomicBool::new(false);

/// It is known what is recorded: the service has set up telemetry by [`init`](crate::telemetry::init), which may mean that it wants none.
pub fn need_not_be_said() {
    SAID.store(true, Ordering::Relaxed);
}

/// The span of an attempt was not recorded.
pub(crate) fn say() {
    if !SAID.swap(true, Ordering::Relaxed) {
        tracing::info!(
            "no tracer provider is set for opentelemetry {VERSION}, so attempts are in no trace; rehop::telemetry::init sets one up. If the \
             service sets its own, its crate has another version: see `cargo tree -d`"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_is_named_is_the_one_that_is_used() {
        let manifest = include_str!("../../Cargo.toml");
        assert!(manifest.contains(&format!("\nopentelemetry = {{ version = \"{VERSION}.")));
    }
}
