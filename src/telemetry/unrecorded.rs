//! A hint, once, that nothing records rehop's spans: a provider of another version of OpenTelemetry
//! is as good as none, and nothing else would tell.

use std::sync::atomic::{AtomicBool, Ordering};

/// The version of the crate whose global provider rehop uses.
const VERSION: &str = "0.33";

/// The hint was given, or is not wanted.
static IS_SETTLED: AtomicBool = AtomicBool::new(false);

/// Suppresses the hint: [`init`](crate::telemetry::init) has run, or an operator's variables decide
/// what is recorded.
pub fn suppress_unrecorded_hint() {
    IS_SETTLED.store(true, Ordering::Relaxed);
}

/// For an attempt whose span was not recorded.
pub(crate) fn hint_once() {
    if !IS_SETTLED.swap(true, Ordering::Relaxed) {
        tracing::info!(
            "attempts are not traced, because no tracer provider is set for opentelemetry {VERSION}; call rehop::telemetry::init or, if the \
             service sets a provider, use that version (`cargo tree -d` shows two)"
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
